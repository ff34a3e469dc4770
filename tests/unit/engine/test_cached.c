/* SPDX-License-Identifier: Apache-2.0 */
/* The sim backend's answers are a function of what really stands in the blocks of a table, one after the
 * other: a block of somebody else's tokens, or one that was written meanwhile, makes another answer. */
#include "enginerig/engine_rig.h"

#include "base/sim_vocab.h"
#include "engine/kv.h"
#include "shm/lpring.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { B = TR_KV_BLOCK, CTX = 512, ANSWER = 40 };

static struct tr_engine_rig r;
static uint32_t text[4][CTX];

static void open_with(enum tr_prefix_cache cache, uint32_t max_seqs, uint32_t chunk,
                      uint32_t kv_blocks)
{
    struct tr_engine_rig_config c = {
        .shm = {.n_slots = 64, .n_admit = 56, .max_seqs = max_seqs, .n_ctx = CTX, .window = 64},
        .sched = {.prefix_cache = cache, .prefill_chunk = chunk},
        .kv_blocks = kv_blocks};
    tr_engine_rig_open(&r, &c);
    for (uint32_t k = 0; k < 4; k++)
        for (uint32_t i = 0; i < CTX; i++)
            text[k][i] = TR_SIM_TEXT + (i * (k + 3) + i / 7 + k) % 60;
}

static void close_rig(void)
{
    tr_engine_rig_close(&r);
}

TestSuite(cached, .fini = close_rig);

static struct tr_rig_ask ask(const uint32_t *prompt, uint32_t len)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.prompt = prompt;
    a.prompt_len = len;
    a.params.max_tokens = ANSWER;
    return a;
}

struct answer {
    uint32_t ids[ANSWER];
    struct tr_lp lp[ANSWER];
    uint32_t cached;
};

/* Runs it to its end, alone, and lets its slot go. */
static struct answer run(const struct tr_rig_ask *a)
{
    struct answer out = {0};
    uint32_t n = 0;
    struct tr_rig_req q = tr_rig_submit(&r, a);
    for (uint32_t turns = 0; tr_rig_turn(&r) || turns < 2; turns++) {
        tr_rig_be_frontend(&r, q.area);
        while (n < ANSWER && tr_lpring_peek(&r.s, q.slot, &out.lp[n]) == 0) {
            tr_lpring_pop(&r.s, q.slot);
            n++;
        }
        tr_rig_read_all(&r, &q);
    }
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
    cr_assert_eq(n, a->params.flags & TR_REQ_LOGPROBS ? ANSWER : 0);
    memcpy(out.ids, tr_rig_output(&r, &q), sizeof(out.ids));
    out.cached = atomic_load(&tr_rig_ring(&r, &q)->cached_tokens);
    cr_assert_lt(out.cached, a->prompt_len);
    cr_assert_eq(tr_rig_ring(&r, &q)->prompt_len, a->prompt_len);
    tr_rig_release(&r, &q);
    tr_rig_ledger_runs(&r);
    tr_rig_run(&r, NULL, 0);
    return out;
}

static uint64_t rows(void)
{
    return tr_rig_stat(&r, TR_STAT_ROWS);
}

static void all_is_back(void)
{
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 0);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_FREE) + tr_rig_stat(&r, TR_STAT_KV_CACHED),
                 r.info.n_kv_blocks);
}

/* ---- the same answer ---- */

Test(cached, miss_hit_and_off_give_the_same_answer_at_all_lengths)
{
    static const uint32_t len[] = {1, B - 1, B, B + 1, 2 * B, 5 * B - 1, 5 * B, 5 * B + 1};
    enum { N = sizeof(len) / sizeof(*len) };
    static struct answer off[2 * N];
    uint32_t half[CTX];
    open_with(TR_PREFIX_OFF, 4, 48, 0);
    memcpy(half, text[0], sizeof(half));
    for (uint32_t i = 3 * B - 7; i < CTX; i++)
        half[i] = text[1][i];
    for (uint32_t k = 0; k < 2 * N; k++) {
        struct tr_rig_ask a = ask(k < N ? text[0] : half, len[k % N]);
        a.params.flags |= TR_REQ_LOGPROBS;
        a.params.n_top = 5;
        off[k] = run(&a);
        cr_assert_eq(off[k].cached, 0);
    }
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_CACHED), 0);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_PREFIX_QUERIES), 0);
    close_rig();
    open_with(TR_PREFIX_ON, 4, 48, 0);
    uint64_t queries = 0, hits = 0;
    for (uint32_t k = 0; k < 2 * N; k++) {
        for (uint32_t round = 0; round < 4; round++) {
            struct tr_rig_ask a = ask(k < N ? text[0] : half, len[k % N]);
            a.params.flags |= TR_REQ_LOGPROBS;
            a.params.n_top = 5;
            struct answer on = run(&a);
            cr_expect_eq(memcmp(on.ids, off[k].ids, sizeof(on.ids)), 0, "%u tokens", len[k % N]);
            cr_expect_eq(memcmp(on.lp, off[k].lp, sizeof(on.lp)), 0, "%u tokens", len[k % N]);
            if (round)
                cr_expect_eq(on.cached, (len[k % N] - 1) / B * B, "%u tokens", len[k % N]);
            queries += len[k % N];
            hits += on.cached;
        }
    }
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_PREFIX_QUERIES), queries);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_PREFIX_HITS), hits);
    all_is_back();
}

Test(cached, the_next_turn_of_a_chat_computes_what_is_new)
{
    uint32_t chat[CTX];
    open_with(TR_PREFIX_ON, 4, 0, 0);
    memcpy(chat, text[0], sizeof(chat));
    struct tr_rig_ask a = ask(chat, 100);
    struct answer first = run(&a);
    memcpy(chat + 100, first.ids, sizeof(first.ids));
    a = ask(chat, 100 + ANSWER + 20);
    uint64_t before = rows();
    struct answer second = run(&a);
    cr_assert_eq(second.cached, (100 + ANSWER - 1) / B * B, "the answer, too; its last has no KV");
    cr_assert_eq(rows() - before, 160 - second.cached + ANSWER - 1);
}

Test(cached, whoever_shares_a_half_takes_the_half)
{
    uint32_t other[CTX];
    open_with(TR_PREFIX_ON, 4, 0, 0);
    memcpy(other, text[0], sizeof(other));
    other[4 * B + 3]++;
    struct tr_rig_ask a = ask(text[0], 8 * B), b = ask(other, 8 * B);
    run(&a);
    cr_assert_eq(run(&b).cached, 4 * B);
    cr_assert_eq(run(&b).cached, 7 * B);
    cr_assert_eq(run(&a).cached, 7 * B);
}

Test(cached, keys_share_nothing_when_they_are_kept_apart)
{
    open_with(TR_PREFIX_PER_KEY, 4, 0, 0);
    struct tr_rig_ask a = ask(text[0], 100), b = a;
    b.key = "another";
    run(&a);
    cr_assert_eq(run(&b).cached, 0);
    cr_assert_eq(run(&b).cached, 96);
    cr_assert_eq(run(&a).cached, 96);
}

Test(cached, prompts_whose_logprobs_are_wanted_are_computed)
{
    open_with(TR_PREFIX_ON, 4, 0, 0);
    struct tr_rig_ask a = ask(text[0], 40);
    run(&a);
    a.params.flags |= TR_REQ_ECHO_LOGPROBS;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q)->cached_tokens), 0);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q)->lp_tail), 40);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_PREFIX_QUERIES), 40, "it was not looked up");
}

/* ---- at the same time ---- */

Test(cached, what_several_ask_at_the_same_time_is_computed_once)
{
    for (uint32_t chunk = 0; chunk <= 48; chunk += 48) {
        if (chunk)
            close_rig();
        open_with(TR_PREFIX_ON, 8, chunk, 0);
        struct tr_rig_ask a = ask(text[0], 200);
        struct answer want = run(&a);
        struct tr_rig_req q[8];
        struct tr_rig_ask b = ask(text[1], 200);
        uint64_t before = rows(), hits = tr_rig_stat(&r, TR_STAT_PREFIX_HITS);
        for (uint32_t i = 0; i < 8; i++)
            q[i] = tr_rig_submit(&r, &b);
        tr_rig_run(&r, q, 8);
        for (uint32_t i = 1; i < 8; i++)
            cr_assert_eq(memcmp(tr_rig_output(&r, &q[i]), tr_rig_output(&r, &q[0]),
                                ANSWER * sizeof(uint32_t)),
                         0);
        cr_assert_eq(rows() - before, 200 + 7 * (200 - 6 * B) + 8 * (ANSWER - 1));
        cr_assert_eq(tr_rig_stat(&r, TR_STAT_PREFIX_HITS) - hits, 7 * 6 * B);
        cr_assert_eq(tr_rig_stat(&r, TR_STAT_PREEMPTIONS), 0);
        (void)want;
        all_is_back();
    }
}

Test(cached, choices_of_a_request_share_its_prompt_and_bill_it_once)
{
    open_with(TR_PREFIX_ON, 8, 64, 0);
    struct tr_rig_ask a[4];
    struct tr_rig_req q[4];
    for (uint32_t k = 0; k < 4; k++) {
        a[k] = ask(text[0], 130);
        a[k].params.temperature = 1;
        a[k].params.seed = 100 + k;
    }
    cr_assert_eq(tr_rig_submit_group(&r, a, 4, q), 0);
    tr_rig_run(&r, q, 4);
    cr_assert_eq(rows(), 130 + 3 * (130 - 128) + 4 * (ANSWER - 1));
    cr_assert_eq(tr_rig_bills(&r), 1);
    cr_assert_eq(tr_rig_bill(&r, 0)->prompt_tokens, 130);
    cr_assert_eq(tr_rig_bill(&r, 0)->cached_tokens, 0, "one of them computed it");
    cr_assert_neq(memcmp(tr_rig_output(&r, &q[0]), tr_rig_output(&r, &q[1]), 40), 0);
    struct answer alone = run(&a[2]);
    cr_assert_eq(memcmp(alone.ids, tr_rig_output(&r, &q[2]), sizeof(alone.ids)), 0);
    cr_assert_eq(tr_rig_bill(&r, 1)->cached_tokens, 128);
}

Test(cached, an_abort_in_a_shared_prompt_takes_nothing_from_the_others)
{
    open_with(TR_PREFIX_OFF, 8, 48, 0);
    struct tr_rig_ask a = ask(text[0], 300);
    struct answer want = run(&a);
    close_rig();
    for (uint32_t when = 0; when < 9; when++) {
        if (when)
            close_rig();
        open_with(TR_PREFIX_ON, 8, 48, 0);
        struct tr_rig_req q[3];
        for (uint32_t i = 0; i < 3; i++)
            q[i] = tr_rig_submit(&r, &a);
        for (uint32_t t = 0; t < when; t++)
            tr_rig_turn(&r);
        tr_rig_cancel(&r, &q[0], TR_ERR_CANCELLED);
        tr_rig_run(&r, q, 3);
        cr_assert_eq(tr_rig_state(&r, &q[0]), TR_CANCELLED);
        for (uint32_t i = 1; i < 3; i++)
            cr_assert_eq(memcmp(tr_rig_output(&r, &q[i]), want.ids, sizeof(want.ids)), 0);
        cr_assert_leq(rows(), 300 + 48 + 2 * (300 - 288) + 3 * (ANSWER - 1), "%u", when);
        all_is_back();
    }
}

/* ---- room ---- */

Test(cached, a_pool_full_of_what_was_cached_is_as_good_as_an_empty_one)
{
    uint32_t prompt[CTX];
    open_with(TR_PREFIX_ON, 4, 0, CTX / B);
    for (uint32_t i = 0; i < 20; i++) {
        memcpy(prompt, text[0], sizeof(prompt));
        prompt[0] = TR_SIM_TEXT + i;
        struct tr_rig_ask a = ask(prompt, 100);
        run(&a);
    }
    all_is_back();
    cr_assert_leq(tr_rig_stat(&r, TR_STAT_KV_FREE), 1, "the one that the last was still writing");
    struct tr_rig_ask big = ask(text[1], 300);
    big.params.max_tokens = CTX - 300;
    struct tr_rig_req q[4];
    for (uint32_t i = 0; i < 4; i++)
        q[i] = tr_rig_submit(&r, &big);
    tr_rig_run(&r, q, 4);
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert_eq(tr_rig_state(&r, &q[i]), TR_INCOMPLETE);
        cr_assert_eq(tr_rig_published(&r, &q[i]), CTX - 300);
    }
    all_is_back();
}

Test(cached, who_was_preempted_finds_what_it_had)
{
    open_with(TR_PREFIX_OFF, 4, 0, 0);
    struct answer want[4];
    for (uint32_t i = 0; i < 4; i++) {
        struct tr_rig_ask a = ask(text[i], 90);
        want[i] = run(&a);
    }
    close_rig();
    open_with(TR_PREFIX_ON, 4, 0, CTX / B);
    struct tr_rig_req q[4];
    for (uint32_t i = 0; i < 4; i++) {
        struct tr_rig_ask a = ask(text[i], 90);
        q[i] = tr_rig_submit(&r, &a);
    }
    tr_rig_run(&r, q, 4);
    cr_assert_gt(tr_rig_stat(&r, TR_STAT_PREEMPTIONS), 0);
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert_eq(memcmp(tr_rig_output(&r, &q[i]), want[i].ids, sizeof(want[i].ids)), 0);
        cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q[i])->cached_tokens), 0,
                     "what it found the second time is not counted");
    }
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_PREFIX_HITS), 0);
    all_is_back();
}

Test(cached, a_new_engine_knows_nothing_and_goes_on_with_the_same_answer)
{
    open_with(TR_PREFIX_ON, 4, 64, 0);
    struct tr_rig_ask a = ask(text[0], 200);
    struct answer want = run(&a);
    struct tr_rig_req q[2];
    q[0] = tr_rig_submit(&r, &a);
    for (uint32_t i = 0; i < 10; i++)
        tr_rig_turn(&r);
    q[1] = tr_rig_submit(&r, &a);
    uint32_t cached = atomic_load(&tr_rig_ring(&r, &q[0])->cached_tokens);
    cr_assert_eq(cached, 192);
    tr_engine_rig_crash(&r);
    tr_engine_rig_restart(&r);
    tr_rig_run(&r, q, 2);
    for (uint32_t i = 0; i < 2; i++)
        cr_assert_eq(memcmp(tr_rig_output(&r, &q[i]), want.ids, sizeof(want.ids)), 0);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q[0])->cached_tokens), cached, "it does not change");
    all_is_back();
}

/* ---- anything at any time ---- */

/* Requests that share more or less, readers that stop, cancels, deaths of the engine, a pool that is too
 * small for all: every answer is what it is alone without a cache. */
enum { KINDS = 12, LIVE = 10 };

struct kind {
    uint32_t prompt[CTX], len;
    struct answer want;
};

static void make_kinds(struct kind *k)
{
    open_with(TR_PREFIX_OFF, 6, 48, 0);
    for (uint32_t i = 0; i < KINDS; i++) {
        uint32_t common = (uint32_t)rand() % 8 * B / 2;
        k[i].len = common + 1 + (uint32_t)rand() % 150;
        for (uint32_t n = 0; n < k[i].len; n++)
            k[i].prompt[n] = text[n < common ? 0 : i % 4][n] + (n == common ? i % 3 : 0);
        struct tr_rig_ask a = ask(k[i].prompt, k[i].len);
        k[i].want = run(&a);
    }
    close_rig();
}

static void live(const struct kind *k, uint32_t blocks, uint32_t chunk)
{
    struct tr_rig_req q[LIVE];
    uint32_t of[LIVE], ends = 0, cached_max = 0;
    bool on[LIVE] = {false}, cancelled[LIVE] = {false};
    open_with(TR_PREFIX_ON, 6, chunk, blocks);
    for (uint32_t i = 0; i < 6000 || ends < 100; i++) {
        uint32_t n = (uint32_t)rand() % LIVE;
        cr_assert_lt(i, 60000, "nothing comes to an end");
        if (!on[n]) {
            of[n] = (uint32_t)rand() % KINDS;
            struct tr_rig_ask a = ask(k[of[n]].prompt, k[of[n]].len);
            q[n] = tr_rig_submit(&r, &a);
            on[n] = true;
            cancelled[n] = false;
        } else if (tr_state_terminal(tr_rig_state(&r, &q[n]))) {
            uint32_t got = tr_rig_published(&r, &q[n]);
            cr_assert(cancelled[n] || got == ANSWER);
            cr_assert_eq(memcmp(tr_rig_output(&r, &q[n]), k[of[n]].want.ids, got * 4), 0);
            uint32_t cached = atomic_load(&tr_rig_ring(&r, &q[n])->cached_tokens);
            cr_assert_leq(cached, k[of[n]].len - 1);
            cached_max = cached > cached_max ? cached : cached_max;
            tr_rig_release(&r, &q[n]);
            tr_rig_ledger_runs(&r);
            on[n] = false;
            ends++;
        } else if (rand() % 60 == 0) {
            tr_rig_cancel(&r, &q[n], TR_ERR_CANCELLED);
            cancelled[n] = true;
        } else if (rand() % 3) {
            tr_rig_read_all(&r, &q[n]);
        }
        if (rand() % 700 == 0)
            tr_engine_rig_restart(&r);
        tr_rig_turn(&r);
        cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_FREE) + tr_rig_stat(&r, TR_STAT_KV_CACHED) +
                         tr_rig_stat(&r, TR_STAT_KV_USED),
                     r.info.n_kv_blocks);
    }
    for (uint32_t n = 0; n < LIVE; n++)
        if (on[n])
            tr_rig_cancel(&r, &q[n], TR_ERR_CANCELLED);
    tr_rig_run(&r, NULL, 0);
    cr_assert_geq(cached_max, 2 * B, "and the cache is used");
    all_is_back();
}

Test(cached, answers_are_the_same_whatever_else_happens)
{
    static struct kind k[KINDS];
    srand(5);
    make_kinds(k);
    live(k, 0, 48);
    close_rig();
    live(k, CTX / B, 48);
    close_rig();
    live(k, CTX / B + 5, 0);
}
