/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv.h"

#include "engine/prefix.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { B = TR_KV_BLOCK };

static struct tr_kv *pool(uint32_t n_blocks, uint32_t n_seqs, uint32_t per_seq)
{
    return tr_kv_new(n_blocks, n_seqs, per_seq, NULL);
}

static struct tr_kv *cache(uint32_t n_blocks, uint32_t n_seqs, uint32_t per_seq)
{
    return tr_kv_new(n_blocks, n_seqs, per_seq, tr_prefix_new(n_blocks, (const uint64_t[]){4, 2}));
}

/* Recounts from the tables all that the pool says of itself. */
static void recount(const struct tr_kv *kv, uint32_t n_blocks, uint32_t n_seqs, const bool *rests)
{
    uint32_t used = 0, loose = 0;
    for (uint32_t b = 0; b < n_blocks; b++) {
        uint32_t named = 0, resting = 0;
        for (uint32_t q = 0; q < n_seqs; q++) {
            struct tr_kv_table t = tr_kv_table_of(kv, q);
            for (uint32_t i = 0; i < t.n_blocks; i++) {
                named += t.blocks[i] == b;
                resting += t.blocks[i] == b && rests && rests[q];
            }
        }
        cr_assert_eq(named, tr_kv_refs(kv, b));
        used += named > 0;
        loose += named > 0 && named == resting;
    }
    cr_assert_eq(used, tr_kv_n_used(kv));
    cr_assert_eq(loose, tr_kv_n_loose(kv));
    cr_assert_eq(used + tr_kv_n_free(kv) + tr_kv_n_cached(kv), n_blocks);
    for (uint32_t q = 0; q < n_seqs; q++) {
        struct tr_kv_table t = tr_kv_table_of(kv, q);
        uint32_t own = 0;
        for (uint32_t i = 0; i < t.n_blocks; i++)
            own += tr_kv_refs(kv, t.blocks[i]) == 1;
        cr_assert_eq(own, tr_kv_own(kv)[q]);
    }
}

/* ---- tables ---- */

Test(kv, blocks_for_rounds_up)
{
    cr_assert_eq(tr_kv_blocks_for(0), 0);
    cr_assert_eq(tr_kv_blocks_for(1), 1);
    cr_assert_eq(tr_kv_blocks_for(B), 1);
    cr_assert_eq(tr_kv_blocks_for(B + 1), 2);
}

Test(kv, empty_pool_refuses_and_is_unchanged)
{
    struct tr_kv *kv = pool(3, 2, 8);
    cr_assert_eq(tr_kv_reserve(kv, 0, 2 * B), 0);
    cr_assert_eq(tr_kv_reserve(kv, 1, 2 * B), -ENOMEM);
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
    struct tr_kv *kv = pool(8, 1, 8);
    tr_kv_reserve(kv, 0, 40);
    uint32_t first = tr_kv_table_of(kv, 0).blocks[0];
    tr_kv_reserve(kv, 0, 10);
    cr_assert_eq(tr_kv_table_of(kv, 0).n_blocks, 2);
    tr_kv_reserve(kv, 0, 200);
    cr_assert_eq(tr_kv_table_of(kv, 0).blocks[0], first);
    cr_assert_eq(tr_kv_table_of(kv, 0).n_blocks, 7);
    tr_kv_free(kv);
}

/* ---- the cache ---- */

static void fill(uint32_t *ids, uint32_t n, uint32_t from)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = from + i;
}

/* A sequence of these tokens, all computed, from the cache as far as it goes; how far it went. */
static uint32_t run(struct tr_kv *kv, uint32_t seq, const uint32_t *ids, uint32_t n)
{
    uint32_t hit = tr_kv_seek(kv, seq, ids, n ? n - 1 : 0);
    tr_kv_take(kv, seq);
    cr_assert_eq(tr_kv_reserve(kv, seq, n), 0);
    tr_kv_keep(kv, seq, ids, n);
    return hit;
}

static uint32_t run_and_end(struct tr_kv *kv, uint32_t seq, const uint32_t *ids, uint32_t n)
{
    tr_kv_begin(kv, seq, 0);
    uint32_t hit = run(kv, seq, ids, n);
    tr_kv_give(kv, seq);
    return hit;
}

Test(kv, what_a_sequence_left_is_found_in_whole_blocks_and_never_its_last_token)
{
    struct tr_kv *kv = cache(16, 2, 8);
    uint32_t ids[4 * B];
    fill(ids, 4 * B, 0);
    cr_assert_eq(run_and_end(kv, 0, ids, 3 * B), 0);
    cr_assert_eq(tr_kv_n_cached(kv), 3);
    cr_assert_eq(tr_kv_n_used(kv), 0);
    static const uint32_t n[] = {1, B - 1, B, B + 1, 2 * B, 3 * B - 1, 3 * B, 3 * B + 1};
    static const uint32_t hit[] = {0, 0, 0, B, B, 2 * B, 2 * B, 3 * B};
    for (uint32_t i = 0; i < sizeof(n) / sizeof(*n); i++)
        cr_expect_eq(run_and_end(kv, 1, ids, n[i]), hit[i], "%u tokens", n[i]);
    cr_assert_eq(tr_kv_n_cached(kv), 3, "nothing is in it twice");
    ids[B] ^= 1;
    cr_assert_eq(run_and_end(kv, 1, ids, 3 * B), B, "as far as the tokens agree");
    tr_kv_free(kv);
}

Test(kv, sequences_in_flight_share_what_is_full_and_nothing_else)
{
    struct tr_kv *kv = cache(16, 3, 8);
    uint32_t ids[4 * B];
    fill(ids, 4 * B, 0);
    tr_kv_begin(kv, 0, 0);
    tr_kv_begin(kv, 1, 0);
    run(kv, 0, ids, 2 * B + 5);
    cr_assert_eq(run(kv, 1, ids, 2 * B + 9), 2 * B);
    struct tr_kv_table a = tr_kv_table_of(kv, 0), b = tr_kv_table_of(kv, 1);
    cr_assert_eq(a.blocks[1], b.blocks[1]);
    cr_assert_neq(a.blocks[2], b.blocks[2], "that one is being written");
    cr_assert_eq(tr_kv_own(kv)[0], 1);
    recount(kv, 16, 3, NULL);
    tr_kv_give(kv, 0);
    cr_assert_eq(tr_kv_n_cached(kv), 0, "held by the other");
    cr_assert_eq(tr_kv_own(kv)[1], 3);
    tr_kv_give(kv, 1);
    cr_assert_eq(tr_kv_n_cached(kv), 2);
    recount(kv, 16, 3, NULL);
    tr_kv_free(kv);
}

Test(kv, blocks_that_were_computed_twice_are_kept_once)
{
    struct tr_kv *kv = cache(16, 2, 8);
    uint32_t ids[3 * B];
    fill(ids, 3 * B, 0);
    for (uint32_t q = 0; q < 2; q++) {
        tr_kv_begin(kv, q, 0);
        tr_kv_seek(kv, q, ids, 3 * B - 1);
        tr_kv_take(kv, q);
        tr_kv_reserve(kv, q, 3 * B);
    }
    tr_kv_keep(kv, 0, ids, B + 1);
    tr_kv_keep(kv, 1, ids, 2 * B);
    cr_assert_eq(tr_kv_table_of(kv, 0).blocks[0], tr_kv_table_of(kv, 1).blocks[0]);
    cr_assert_eq(tr_kv_n_used(kv), 5);
    cr_assert_eq(tr_kv_catch_up(kv, 0, ids, B + 1, 3 * B - 1), 2 * B, "the other was further");
    cr_assert_eq(tr_kv_n_used(kv), 4);
    cr_assert_eq(tr_kv_catch_up(kv, 1, ids, 2 * B, 3 * B - 1), 2 * B);
    recount(kv, 16, 2, NULL);
    tr_kv_give(kv, 0);
    tr_kv_give(kv, 1);
    cr_assert_eq(tr_kv_n_cached(kv), 2);
    tr_kv_free(kv);
}

Test(kv, pool_full_of_cached_blocks_gives_them_the_end_of_the_oldest_first)
{
    struct tr_kv *kv = cache(8, 3, 8);
    uint32_t old[4 * B], young[4 * B], other[8 * B];
    fill(old, 4 * B, 0);
    fill(young, 4 * B, 1000);
    fill(other, 8 * B, 2000);
    run_and_end(kv, 0, old, 4 * B);
    run_and_end(kv, 0, young, 4 * B);
    cr_assert_eq(tr_kv_n_free(kv), 0);
    tr_kv_begin(kv, 0, 0);
    cr_assert_eq(tr_kv_reserve(kv, 0, 2 * B), 0);
    tr_kv_begin(kv, 1, 0);
    tr_kv_begin(kv, 2, 0);
    cr_assert_eq(tr_kv_seek(kv, 1, old, 4 * B), 2 * B, "it lost its end");
    cr_assert_eq(tr_kv_seek(kv, 2, young, 4 * B), 4 * B);
    cr_assert_eq(tr_kv_reserve(kv, 0, 5 * B), 0);
    cr_assert_eq(tr_kv_seek(kv, 1, old, 4 * B), 0, "what was found before is not believed");
    cr_assert_eq(tr_kv_seek(kv, 2, young, 4 * B), 3 * B);
    cr_assert_eq(tr_kv_reserve(kv, 0, 8 * B), 0);
    cr_assert_eq(tr_kv_seek(kv, 2, young, 4 * B), 0);
    cr_assert_eq(tr_kv_reserve(kv, 1, 1), -ENOMEM);
    recount(kv, 8, 3, NULL);
    tr_kv_free(kv);
}

Test(kv, use_keeps_a_prefix_young)
{
    struct tr_kv *kv = cache(6, 2, 8);
    uint32_t shared[2 * B + 1], other[3 * B];
    fill(shared, 2 * B + 1, 0);
    fill(other, 3 * B, 1000);
    run_and_end(kv, 0, shared, 2 * B + 1);
    run_and_end(kv, 0, other, 3 * B);
    cr_assert_eq(run_and_end(kv, 0, shared, 2 * B + 1), 2 * B);
    tr_kv_begin(kv, 0, 0);
    tr_kv_reserve(kv, 0, 4 * B);
    tr_kv_begin(kv, 1, 0);
    cr_assert_eq(tr_kv_seek(kv, 1, shared, 2 * B), 2 * B);
    cr_assert_eq(tr_kv_seek(kv, 1, other, 0), 0);
    cr_assert_eq(tr_kv_seek(kv, 1, other, 3 * B), 0);
    tr_kv_free(kv);
}

Test(kv, one_salt_does_not_find_what_another_left)
{
    struct tr_kv *kv = cache(16, 2, 8);
    uint32_t ids[2 * B];
    fill(ids, 2 * B, 0);
    tr_kv_begin(kv, 0, 7);
    run(kv, 0, ids, 2 * B);
    tr_kv_begin(kv, 1, 8);
    cr_assert_eq(tr_kv_seek(kv, 1, ids, 2 * B), 0);
    tr_kv_begin(kv, 1, 7);
    cr_assert_eq(tr_kv_seek(kv, 1, ids, 2 * B), 2 * B);
    tr_kv_free(kv);
}

Test(kv, without_a_cache_nothing_is_found_and_all_is_given)
{
    struct tr_kv *kv = pool(8, 1, 8);
    uint32_t ids[2 * B];
    fill(ids, 2 * B, 0);
    cr_assert_eq(run_and_end(kv, 0, ids, 2 * B), 0);
    cr_assert_eq(run_and_end(kv, 0, ids, 2 * B), 0);
    tr_kv_reserve(kv, 0, 2 * B);
    cr_assert_eq(tr_kv_catch_up(kv, 0, ids, 5, 2 * B), 5);
    tr_kv_give(kv, 0);
    cr_assert_eq(tr_kv_n_free(kv), 8);
    cr_assert_eq(tr_kv_n_cached(kv), 0);
    tr_kv_free(kv);
}

Test(kv, loose_is_what_resting_tables_alone_hold)
{
    struct tr_kv *kv = cache(16, 4, 8);
    uint32_t ids[4 * B];
    fill(ids, 4 * B, 0);
    for (uint32_t q = 0; q < 4; q++)
        tr_kv_begin(kv, q, 0);
    run(kv, 0, ids, 3 * B + 1);
    run(kv, 1, ids, 2 * B + 1);
    cr_assert_eq(tr_kv_seek(kv, 2, ids, 4 * B), 3 * B);
    cr_assert_eq(tr_kv_loose_of(kv, 2), 0);
    tr_kv_rest(kv, 0, true);
    cr_assert_eq(tr_kv_n_loose(kv), 2);
    cr_assert_eq(tr_kv_loose_of(kv, 0), 2);
    cr_assert_eq(tr_kv_loose_of(kv, 2), 1, "its third is held by the resting one alone");
    tr_kv_rest(kv, 1, true);
    cr_assert_eq(tr_kv_n_loose(kv), 5);
    cr_assert_eq(tr_kv_loose_of(kv, 0), 4);
    cr_assert_eq(tr_kv_loose_of(kv, 2), 3);
    tr_kv_rest(kv, 0, false);
    cr_assert_eq(tr_kv_n_loose(kv), 1);
    tr_kv_give(kv, 0);
    tr_kv_give(kv, 1);
    cr_assert_eq(tr_kv_n_loose(kv), 0);
    cr_assert_eq(tr_kv_loose_of(kv, 2), 3, "cached");
    tr_kv_free(kv);
}

/* What is in the blocks, as the tables see it: whoever takes a block from the cache must find in it what
 * he would have written himself. */
struct world {
    struct tr_kv *kv;
    uint32_t n_blocks, n_seqs, per_seq;
    uint64_t *is; /* [n_blocks] a number for all tokens up to its end; 0: being written */
    uint32_t ids[16][16 * B];      /* [n_seqs, per_seq * B] */
    uint32_t total[16], in_kv[16]; /* [n_seqs] */
    uint64_t salt[16];
    bool rests[16];
};

static uint64_t upto(const struct world *w, uint32_t q, uint32_t n)
{
    uint64_t h = w->salt[q] + 1;
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ (w->ids[q][i] + 1)) * 0x9e3779b97f4a7c15u;
    return h | 1;
}

static void begin(struct world *w, uint32_t q)
{
    tr_kv_give(w->kv, q);
    w->total[q] = 1 + (uint32_t)rand() % (w->per_seq * B);
    w->in_kv[q] = 0;
    w->salt[q] = (uint64_t)rand() % 2;
    uint32_t kind = (uint32_t)rand() % 4;
    for (uint32_t i = 0; i < w->total[q]; i++)
        w->ids[q][i] = kind * (i >= B * kind) + (rand() % 200 == 0);
    tr_kv_begin(w->kv, q, w->salt[q]);
}

/* What a scheduler does for one sequence in a step. */
static void compute(struct world *w, uint32_t q)
{
    uint32_t before = tr_kv_table_of(w->kv, q).n_blocks;
    if (before == 0) {
        w->in_kv[q] = tr_kv_seek(w->kv, q, w->ids[q], w->total[q] - 1);
        if (rand() % 8)
            tr_kv_take(w->kv, q);
        else
            w->in_kv[q] = 0;
    }
    if (tr_kv_reserve(w->kv, q, w->total[q])) {
        cr_assert_gt(tr_kv_blocks_for(w->total[q]) - tr_kv_table_of(w->kv, q).n_blocks,
                     tr_kv_n_free(w->kv) + tr_kv_n_cached(w->kv));
        tr_kv_give(w->kv, q);
        w->in_kv[q] = 0;
        return;
    }
    struct tr_kv_table t = tr_kv_table_of(w->kv, q);
    uint32_t rows = (uint32_t)rand() % (w->total[q] - w->in_kv[q] + 1);
    for (uint32_t i = w->in_kv[q]; i < w->in_kv[q] + rows; i++) {
        cr_assert_eq(tr_kv_refs(w->kv, t.blocks[i / B]), 1, "nobody else sees what is written");
        w->is[t.blocks[i / B]] = i % B == B - 1 ? upto(w, q, i + 1) : 0;
    }
    w->in_kv[q] += rows;
    if (rand() % 2)
        tr_kv_keep(w->kv, q, w->ids[q], w->in_kv[q]);
    else
        w->in_kv[q] = tr_kv_catch_up(w->kv, q, w->ids[q], w->in_kv[q], w->total[q] - 1);
    cr_assert_leq(w->in_kv[q], w->total[q]);
    t = tr_kv_table_of(w->kv, q);
    for (uint32_t k = 0; k < w->in_kv[q] / B; k++)
        cr_assert_eq(w->is[t.blocks[k]], upto(w, q, (k + 1) * B), "block %u of %u", k, q);
}

static void live(uint32_t n_blocks, uint32_t n_seqs, uint32_t per_seq, uint32_t steps)
{
    struct world w = {.n_blocks = n_blocks, .n_seqs = n_seqs, .per_seq = per_seq};
    w.kv = cache(n_blocks, n_seqs, per_seq);
    w.is = calloc(n_blocks, sizeof(*w.is));
    for (uint32_t q = 0; q < n_seqs; q++)
        begin(&w, q);
    for (uint32_t i = 0; i < steps; i++) {
        uint32_t q = (uint32_t)rand() % n_seqs;
        switch (rand() % 6) {
        case 0:
            begin(&w, q);
            break;
        case 1:
            tr_kv_give(w.kv, q);
            w.in_kv[q] = 0;
            break;
        case 2:
            w.rests[q] = rand() % 2;
            tr_kv_rest(w.kv, q, w.rests[q]);
            break;
        default:
            compute(&w, q);
        }
        recount(w.kv, n_blocks, n_seqs, w.rests);
    }
    tr_kv_free(w.kv);
    free(w.is);
}

Test(kv, every_block_is_free_cached_or_held_and_holds_what_it_should_whatever_happens)
{
    srand(7);
    live(37, 9, 8, 6000);
    live(8, 3, 8, 6000);
    live(300, 16, 16, 1500);
}

Test(kv, its_bytes_are_those_of_tables_and_index)
{
    struct tr_kv *small = pool(8, 4, 2), *wide = pool(8, 4, 102), *known = cache(8, 4, 2);
    cr_assert_eq(tr_kv_bytes(wide) - tr_kv_bytes(small), 4 * 100 * sizeof(uint32_t));
    cr_assert_geq(tr_kv_bytes(known) - tr_kv_bytes(small), 8 * B * sizeof(uint32_t));
    tr_kv_free(small);
    tr_kv_free(wide);
    tr_kv_free(known);
}
