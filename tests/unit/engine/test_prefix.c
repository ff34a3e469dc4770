/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/prefix.h"

#include "engine/kv.h"

#include "base/siphash.h"

#include <criterion/criterion.h>
#include <string.h>

/* All hashes are the same in the tests that want it. */
static bool collide;

uint64_t __real_tr_siphash(const uint64_t key[2], const void *text, size_t len);
uint64_t __wrap_tr_siphash(const uint64_t key[2], const void *text, size_t len);
uint64_t __wrap_tr_siphash(const uint64_t key[2], const void *text, size_t len)
{
    return collide ? 5 : __real_tr_siphash(key, text, len);
}

static const uint64_t key[2] = {1, 2};

static uint32_t ids[8][TR_KV_BLOCK];

static void fill(void)
{
    for (uint32_t i = 0; i < 8; i++)
        for (uint32_t k = 0; k < TR_KV_BLOCK; k++)
            ids[i][k] = i;
}

/* Adds `block` behind *at, which moves on to it. */
static void add(struct tr_prefix *p, struct tr_prefix_at *at, uint32_t block, uint32_t what)
{
    struct tr_prefix_at next;
    cr_assert(!tr_prefix_find(p, at, ids[what], &next));
    tr_prefix_add(p, block, &next, at->block, ids[what]);
    cr_assert(tr_prefix_find(p, at, ids[what], &next));
    cr_assert_eq(next.block, block);
    *at = next;
}

static void two_prompts_are_two(void)
{
    struct tr_prefix *p = tr_prefix_new(16, key);
    struct tr_prefix_at a = tr_prefix_begin(p, 0), b = a, other = tr_prefix_begin(p, 9), next;
    fill();
    add(p, &a, 0, 1);
    add(p, &a, 1, 2);
    add(p, &b, 2, 2); /* the tokens of the second, at the beginning */
    add(p, &b, 3, 1);
    cr_assert(!tr_prefix_find(p, &other, ids[1], &next), "of another salt");
    add(p, &other, 4, 1);
    cr_assert_eq(tr_prefix_parent(p, 1), 0);
    cr_assert_eq(tr_prefix_parent(p, 2), TR_NO_BLOCK);
    cr_assert(!tr_prefix_find(p, &a, ids[3], &next));
    tr_prefix_free(p);
}

Test(prefix, tokens_parent_and_salt_tell_entries_apart)
{
    two_prompts_are_two();
}

Test(prefix, names_have_salts_that_who_does_not_know_the_key_cannot_tell)
{
    struct tr_prefix *p = tr_prefix_new(16, key), *q = tr_prefix_new(16, (const uint64_t[]){1, 3});
    cr_assert_neq(tr_prefix_salt(p, "anna", 4), tr_prefix_salt(p, "bert", 4));
    cr_assert_neq(tr_prefix_salt(p, "anna", 4), tr_prefix_salt(p, "anna", 3));
    cr_assert_neq(tr_prefix_salt(p, "anna", 4), tr_prefix_salt(q, "anna", 4));
    tr_prefix_free(p);
    tr_prefix_free(q);
}

Test(prefix, also_when_all_hashes_are_the_same)
{
    collide = true;
    two_prompts_are_two();
}

Test(prefix, who_has_rested_longest_goes_first_and_is_not_found_again)
{
    for (uint32_t round = 0; round < 2; round++) {
        collide = round;
        struct tr_prefix *p = tr_prefix_new(16, key);
        struct tr_prefix_at a = tr_prefix_begin(p, 0), b = a, begin = a, next;
        fill();
        cr_assert_eq(tr_prefix_evict(p), TR_NO_BLOCK);
        add(p, &a, 7, 1);
        add(p, &a, 8, 2);
        add(p, &b, 9, 3);
        cr_assert_eq(tr_prefix_evict(p), TR_NO_BLOCK, "all are held");
        tr_prefix_rest(p, 8);
        tr_prefix_rest(p, 7);
        tr_prefix_rest(p, 9);
        tr_prefix_wake(p, 7);
        tr_prefix_rest(p, 7);
        cr_assert_eq(tr_prefix_n_resting(p), 3);
        uint64_t life = tr_prefix_life(p, 8);
        cr_assert_eq(tr_prefix_evict(p), 8);
        cr_assert_eq(tr_prefix_evict(p), 9);
        cr_assert(!tr_prefix_has(p, 9));
        cr_assert(!tr_prefix_find(p, &begin, ids[3], &next));
        cr_assert(tr_prefix_find(p, &begin, ids[1], &next));
        add(p, &next, 8, 2);
        cr_assert_neq(tr_prefix_life(p, 8), life);
        cr_assert_eq(tr_prefix_evict(p), 7);
        tr_prefix_free(p);
    }
}

Test(prefix, a_pool_with_one_hash_for_all_tells_prompts_apart)
{
    collide = true;
    enum { N = 40 };
    struct tr_kv *kv = tr_kv_new(N, N, 2, tr_prefix_new(N, key));
    uint32_t t[2 * TR_KV_BLOCK] = {0};
    for (uint32_t i = 0; i < 3 * N; i++) {
        t[TR_KV_BLOCK - 1] = i;
        tr_kv_begin(kv, i % N, 0);
        cr_assert_eq(tr_kv_seek(kv, i % N, t, TR_KV_BLOCK), 0);
        tr_kv_take(kv, i % N);
        cr_assert_eq(tr_kv_reserve(kv, i % N, TR_KV_BLOCK), 0);
        tr_kv_keep(kv, i % N, t, TR_KV_BLOCK);
        tr_kv_give(kv, i % N);
    }
    for (uint32_t i = 2 * N; i < 3 * N; i++) {
        t[TR_KV_BLOCK - 1] = i;
        tr_kv_begin(kv, 0, 0);
        cr_assert_eq(tr_kv_seek(kv, 0, t, TR_KV_BLOCK), TR_KV_BLOCK);
    }
    tr_kv_free(kv);
}
