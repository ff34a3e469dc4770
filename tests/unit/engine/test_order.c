/* SPDX-License-Identifier: Apache-2.0 */
/* Who goes first, as the scheduler does it: priorities, keys, preemption, recovery. */
#include "enginerig/engine_rig.h"

#include "base/sim_vocab.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static struct tr_engine_rig r;
static uint32_t prompt[256];

static void open_with(uint32_t max_seqs, uint32_t chunk, uint32_t kv_blocks)
{
    struct tr_engine_rig_config c = {
        .shm = {.n_slots = 64, .n_admit = 56, .max_seqs = max_seqs, .n_ctx = 256, .window = 256},
        .sched = {.prefill_chunk = chunk},
        .kv_blocks = kv_blocks};
    tr_engine_rig_open(&r, &c);
    for (uint32_t i = 0; i < 256; i++)
        prompt[i] = TR_SIM_TEXT + i % 32;
}

static void close_rig(void)
{
    tr_engine_rig_close(&r);
}

TestSuite(order, .fini = close_rig);

static struct tr_rig_req ask(uint32_t len, uint32_t max_tokens, int32_t priority, const char *key)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.prompt = prompt;
    a.prompt_len = len;
    a.params.max_tokens = max_tokens;
    a.params.priority = priority;
    a.key = key;
    return tr_rig_submit(&r, &a);
}

Test(order, lower_priorities_are_admitted_first_then_the_oldest)
{
    open_with(1, 64, 0);
    struct tr_rig_req q[] = {ask(10, 4, 3, "a"), ask(10, 4, -7, "a"), ask(10, 4, -7, "a"),
                             ask(10, 4, 0, "a")};
    static const uint32_t expected[] = {1, 2, 3, 0};
    for (int k = 0; k < 4; k++) {
        struct tr_rig_req *now = &q[expected[k]];
        tr_rig_turn(&r);
        cr_assert_eq(tr_rig_published(&r, now), 1, "%d", k);
        for (int t = 0; t < 3; t++)
            tr_rig_turn(&r);
        cr_assert_eq(tr_rig_state(&r, now), TR_INCOMPLETE);
    }
}

Test(order, the_place_in_the_queue_is_told_by_priority)
{
    open_with(1, 64, 0);
    ask(10, 50, 0, "a");
    tr_rig_turn(&r);
    struct tr_rig_req low = ask(10, 4, 5, "a"), high = ask(10, 4, -5, "a");
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_ring(&r, &high)->queue_pos, 0);
    cr_assert_eq(tr_rig_ring(&r, &low)->queue_pos, 1);
}

Test(order, the_highest_number_is_put_back_when_blocks_run_out)
{
    open_with(2, 64, 8);
    struct tr_rig_req low = ask(60, 150, 1, "a");
    tr_rig_turn(&r);
    prompt[0]++; /* with the same tokens they would share all their blocks */
    struct tr_rig_req high = ask(60, 150, 0, "a");
    for (int i = 0; i < 500 && !tr_rig_stat(&r, TR_STAT_PREEMPTIONS); i++)
        tr_rig_turn(&r);
    cr_assert_eq(tr_rig_ring(&r, &low)->preemptions, 1);
    cr_assert_eq(tr_rig_ring(&r, &high)->preemptions, 0);
}

/* A sends many, B one after the other: with one place they take turns by tokens. */
Test(order, a_key_with_many_requests_gets_no_more_than_one_with_few)
{
    enum { MANY = 12, FEW = 4 };
    open_with(1, 64, 0);
    struct tr_rig_req many[MANY], few[FEW];
    for (int i = 0; i < MANY; i++)
        many[i] = ask(10, 8, 0, "many");
    for (int i = 0; i < FEW; i++)
        few[i] = ask(10, 8, 0, "few");
    for (int t = 0; t < 2 * FEW * 8; t++)
        tr_rig_turn(&r);
    for (int i = 0; i < FEW; i++)
        cr_assert_eq(tr_rig_state(&r, &few[i]), TR_INCOMPLETE, "%d", i);
    cr_assert_eq(tr_rig_state(&r, &many[FEW - 1]), TR_INCOMPLETE);
    cr_assert_eq(tr_rig_published(&r, &many[FEW + 1]), 0);
}

/* Random traces on a small pool: whoever is preempted has made a token since the last time, whoever
 * was preempted first waits before all others of his priority, and all come to their end. */
Test(order, between_two_preemptions_of_a_request_there_is_a_token)
{
    enum { N = 40 };
    for (unsigned seed = 1; seed <= 12; seed++) {
        srand(seed);
        open_with(2 + (uint32_t)rand() % 6, 16 + (uint32_t)rand() % 48, 8 + (uint32_t)rand() % 8);
        struct tr_rig_req q[N];
        uint32_t times[N] = {0}, at[N] = {0}, asked = 0, ended = 0, seen = 0;
        for (uint32_t turn = 0; ended < N; turn++) {
            cr_assert_lt(turn, 20000, "no end");
            while (asked < N && rand() % 4 == 0) {
                uint32_t len = 1 + (uint32_t)rand() % 120;
                q[asked++] = ask(len, 1 + (uint32_t)rand() % (255 - len), rand() % 3 - 1,
                                 rand() % 2 ? "a" : "b");
            }
            tr_rig_turn(&r);
            ended = 0;
            for (uint32_t i = 0; i < asked; i++) {
                uint32_t now = tr_rig_ring(&r, &q[i])->preemptions, n = tr_rig_published(&r, &q[i]);
                ended += tr_state_terminal(tr_rig_state(&r, &q[i]));
                if (now == times[i])
                    continue;
                cr_assert_eq(now, times[i] + 1);
                cr_assert(times[i] == 0 || n > at[i], "seed %u: twice without a token", seed);
                times[i] = now;
                at[i] = n;
                seen++;
            }
        }
        cr_assert(seed > 3 || seen, "seed %u: no preemption", seed);
        tr_engine_rig_close(&r);
    }
    open_with(1, 64, 0);
}

Test(order, after_a_death_priorities_count_then_who_was_begun_then_age)
{
    open_with(1, 64, 0);
    struct tr_rig_req first = ask(10, 20, 0, "a");
    for (int i = 0; i < 3; i++)
        tr_rig_turn(&r);
    struct tr_rig_req second = ask(10, 20, 0, "a"), high = ask(10, 4, -1, "b");
    tr_rig_turn(&r);
    tr_engine_rig_crash(&r);
    tr_engine_rig_restart(&r);
    uint32_t before = tr_rig_published(&r, &first);
    for (int i = 0; i < 4; i++)
        tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &high), TR_INCOMPLETE);
    cr_assert_eq(tr_rig_published(&r, &first), before);
    for (int i = 0; i < 3; i++)
        tr_rig_turn(&r);
    cr_assert_gt(tr_rig_published(&r, &first), before);
    cr_assert_eq(tr_rig_published(&r, &second), 0);
}
