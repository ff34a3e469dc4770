/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

static uint32_t count_refs(const struct tr_kv *kv, uint32_t n_blocks, uint32_t n_seqs)
{
    uint32_t used = 0;
    for (uint32_t b = 0; b < n_blocks; b++) {
        uint32_t named = 0;
        for (uint32_t q = 0; q < n_seqs; q++) {
            struct tr_kv_table t = tr_kv_table_of(kv, q);
            for (uint32_t i = 0; i < t.n_blocks; i++)
                named += t.blocks[i] == b;
        }
        cr_assert_eq(named, tr_kv_refs(kv, b));
        used += named > 0;
    }
    return used;
}

Test(kv, blocks_for_rounds_up)
{
    cr_assert_eq(tr_kv_blocks_for(0), 0);
    cr_assert_eq(tr_kv_blocks_for(1), 1);
    cr_assert_eq(tr_kv_blocks_for(TR_KV_BLOCK), 1);
    cr_assert_eq(tr_kv_blocks_for(TR_KV_BLOCK + 1), 2);
}

Test(kv, empty_pool_refuses_and_is_unchanged)
{
    struct tr_kv *kv = tr_kv_new(3, 2, 8);
    cr_assert_eq(tr_kv_reserve(kv, 0, 2 * TR_KV_BLOCK), 0);
    cr_assert_eq(tr_kv_reserve(kv, 1, 2 * TR_KV_BLOCK), -ENOMEM);
    cr_assert_eq(tr_kv_table_of(kv, 1).n_blocks, 0);
    cr_assert_eq(tr_kv_n_free(kv), 1);
    cr_assert_eq(tr_kv_reserve(kv, 1, 1), 0);
    cr_assert_eq(tr_kv_n_free(kv), 0);
    tr_kv_give(kv, 0);
    cr_assert_eq(tr_kv_n_free(kv), 2);
    tr_kv_free(kv);
}

Test(kv, reserve_keeps_what_a_sequence_has)
{
    struct tr_kv *kv = tr_kv_new(8, 1, 8);
    tr_kv_reserve(kv, 0, 40);
    uint32_t first = tr_kv_table_of(kv, 0).blocks[0];
    tr_kv_reserve(kv, 0, 10);
    cr_assert_eq(tr_kv_table_of(kv, 0).n_blocks, 2);
    tr_kv_reserve(kv, 0, 200);
    cr_assert_eq(tr_kv_table_of(kv, 0).blocks[0], first);
    cr_assert_eq(tr_kv_table_of(kv, 0).n_blocks, 7);
    tr_kv_free(kv);
}

Test(kv, shared_block_goes_back_with_its_last_holder)
{
    struct tr_kv *kv = tr_kv_new(4, 2, 4);
    tr_kv_reserve(kv, 0, 3 * TR_KV_BLOCK);
    tr_kv_share(kv, 0, 1, 2);
    cr_assert_eq(tr_kv_n_used(kv), 3);
    tr_kv_give(kv, 0);
    cr_assert_eq(tr_kv_n_used(kv), 2);
    count_refs(kv, 4, 2);
    tr_kv_give(kv, 1);
    cr_assert_eq(tr_kv_n_free(kv), 4);
    tr_kv_free(kv);
}

Test(kv, every_block_is_free_or_held_whatever_happens)
{
    enum { BLOCKS = 37, SEQS = 9, PER = 12 };
    struct tr_kv *kv = tr_kv_new(BLOCKS, SEQS, PER);
    srand(7);
    for (int i = 0; i < 3000; i++) {
        uint32_t q = (uint32_t)rand() % SEQS;
        uint32_t from = (uint32_t)rand() % SEQS;
        uint32_t n = tr_kv_table_of(kv, from).n_blocks;
        switch (rand() % 4) {
        case 0:
            tr_kv_give(kv, q);
            break;
        case 1:
            if (tr_kv_table_of(kv, q).n_blocks == 0 && from != q)
                tr_kv_share(kv, from, q, n ? (uint32_t)rand() % (n + 1) : 0);
            break;
        default:
            tr_kv_reserve(kv, q, (uint32_t)rand() % (PER * TR_KV_BLOCK + 1));
        }
        cr_assert_eq(count_refs(kv, BLOCKS, SEQS), tr_kv_n_used(kv));
        cr_assert_eq(tr_kv_n_used(kv) + tr_kv_n_free(kv), BLOCKS);
    }
    tr_kv_free(kv);
}
