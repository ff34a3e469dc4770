/* SPDX-License-Identifier: Apache-2.0 */
#include "enginerig/engine_rig.h"

#include "base/clock.h"
#include "base/sim_vocab.h"
#include "shm/lpring.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct tr_engine_rig r;

static void open_with(uint32_t window, uint32_t max_seqs, uint32_t chunk, uint32_t kv_blocks)
{
    struct tr_engine_rig_config c = {
        .shm = {.n_slots = 64, .n_admit = 56, .max_seqs = max_seqs, .n_ctx = 256, .window = window},
        .sched = {.prefill_chunk = chunk},
        .kv_blocks = kv_blocks};
    tr_engine_rig_open(&r, &c);
}

static void close_rig(void)
{
    tr_engine_rig_close(&r);
}

TestSuite(step, .fini = close_rig);

/* ---- window ---- */

Test(step, parks_at_the_window_and_comes_back_below_half_of_it)
{
    open_with(8, 2, 16, 0);
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 40;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
    cr_assert_eq(tr_rig_published(&r, &q), 8);
    cr_assert_eq(tr_rig_ring(&r, &q)->wants_cursor, 1);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_PARKED), 1);
    tr_rig_be_frontend(&r, 0);
    tr_cursor_set(&r.s, q.slot, 8, 4); /* unsent is what counts */
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
    tr_rig_be_frontend(&r, 0);
    tr_cursor_set(&r.s, q.slot, 8, 5);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_RUNNING);
    cr_assert_eq(tr_rig_ring(&r, &q)->wants_cursor, 0);
    cr_assert_eq(tr_rig_published(&r, &q), 9, "in the same turn");
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_published(&r, &q), 13);
    tr_rig_be_frontend(&r, 0);
    tr_cursor_set(&r.s, q.slot, 2, 13); /* nor does the scan go back */
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_published(&r, &q), 13);
    tr_rig_be_frontend(&r, 0);
    tr_cursor_set(&r.s, q.slot, UINT64_MAX, UINT64_MAX); /* nonsense is read as all */
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_published(&r, &q), 40);
}

Test(step, a_parked_one_gives_its_place_to_a_waiting_one_at_once)
{
    open_with(8, 1, 16, 0);
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req slow = tr_rig_submit(&r, &a), next = tr_rig_submit(&r, &a);
    for (uint32_t i = 0; i < 9; i++)
        tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &slow), TR_PARKED);
    cr_assert_eq(tr_rig_published(&r, &next), 1, "in the turn in which the other parks");
    tr_rig_run(&r, &next, 1);
    cr_assert_eq(tr_rig_state(&r, &next), TR_INCOMPLETE);
    cr_assert_eq(tr_rig_state(&r, &slow), TR_PARKED);
}

Test(step, a_parked_one_loses_its_blocks_only_when_somebody_needs_them)
{
    open_with(40, 2, 0, 9);
    uint32_t prompt[200];
    for (uint32_t i = 0; i < 200; i++)
        prompt[i] = TR_SIM_TEXT + i % 50;
    struct tr_rig_ask a = tr_rig_ask();
    a.prompt = prompt;
    a.prompt_len = 60;
    a.params.max_tokens = 100;
    struct tr_rig_req alone = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &alone, 1);
    uint32_t want[100];
    memcpy(want, tr_rig_output(&r, &alone), sizeof(want));

    struct tr_rig_req slow = tr_rig_submit(&r, &a);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &slow), TR_PARKED);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 4);
    a.prompt_len = 20;
    struct tr_rig_req small = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 5, "there was room for both");
    tr_rig_cancel(&r, &small, TR_ERR_CANCELLED);
    a.prompt_len = 190;
    a.params.max_tokens = 10;
    struct tr_rig_req big = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &big), TR_RUNNING);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 6, "only the big one's");
    cr_assert_eq(tr_rig_state(&r, &slow), TR_PARKED);
    struct tr_rig_req both[] = {big, slow};
    tr_rig_read_all(&r, &slow);
    tr_rig_run(&r, both, 2);
    cr_assert_eq(tr_rig_state(&r, &slow), TR_INCOMPLETE);
    cr_assert_eq(memcmp(tr_rig_output(&r, &slow), want, sizeof(want)), 0, "recomputed, the same");
}

/* Thousands may be parked, so a turn must not depend on a look at each. */
Test(step, a_parked_one_is_looked_at_when_its_frontend_says_so_and_not_before)
{
    open_with(8, 2, 16, 0);
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, NULL, 0);
    struct tr_cursor *c = tr_cursor_at(&r.s, q.area, q.slot);
    atomic_store(&c->scanned, 8);
    atomic_store(&c->sent, 8);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED, "nobody told");
    tr_rig_be_frontend(&r, 0);
    tr_cursor_moved(&r.s, q.slot);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_published(&r, &q), 9);
}

/* The cursor comes in the moment between parking and the look that follows. */
Test(step, a_reader_that_catches_up_while_it_parks_is_not_missed)
{
    open_with(8, 2, 16, 0);
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    for (uint32_t i = 0; i < 100 && tr_rig_state(&r, &q) != TR_PARKED; i++)
        tr_rig_turn(&r);
    struct tr_cursor *c = tr_cursor_at(&r.s, q.area, q.slot);
    atomic_store(&c->scanned, 8);
    atomic_store(&c->sent, 8);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_published(&r, &q), 9);
}

/* The oldest comes in first, whoever was heard of first. */
Test(step, parked_ones_come_back_by_their_age)
{
    open_with(8, 1, 16, 0);
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q[4];
    for (uint32_t i = 0; i < 3; i++) {
        q[i] = tr_rig_submit(&r, &a);
        tr_rig_run(&r, NULL, 0);
        cr_assert_eq(tr_rig_state(&r, &q[i]), TR_PARKED);
    }
    q[3] = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q[3]), TR_RUNNING);
    for (uint32_t i = 3; i-- > 0;) {
        tr_rig_read_all(&r, &q[i]);
        tr_rig_turn(&r);
        cr_assert_eq(tr_rig_state(&r, &q[i]), TR_PARKED, "no place in the batch");
    }
    tr_rig_cancel(&r, &q[3], TR_ERR_CANCELLED);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_published(&r, &q[0]), 9);
    tr_rig_cancel(&r, &q[0], TR_ERR_CANCELLED);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_published(&r, &q[1]), 9);
    cr_assert_eq(tr_rig_published(&r, &q[2]), 8);
}

Test(step, the_youngest_parked_ones_lose_their_blocks_first)
{
    open_with(40, 2, 0, 8);
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q[3];
    uint32_t prompt[200], left[3];
    for (uint32_t i = 0; i < 200; i++)
        prompt[i] = TR_SIM_TEXT + i % 50;
    a.params.max_tokens = 60;
    for (uint32_t i = 0; i < 3; i++) {
        a.prompt = prompt + 1 + i; /* nothing is shared */
        q[i] = tr_rig_submit(&r, &a);
        tr_rig_run(&r, NULL, 0);
        cr_assert_eq(tr_rig_state(&r, &q[i]), TR_PARKED);
    }
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 6, "two each");
    struct tr_rig_ask b = a;
    b.prompt = prompt;
    b.prompt_len = 100;
    b.params.max_tokens = 1;
    struct tr_rig_req big = tr_rig_submit(&r, &b);
    tr_rig_run(&r, &big, 1);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 4, "one lost two for the four of the big one");
    for (uint32_t i = 0; i < 3; i++) {
        tr_rig_cancel(&r, &q[i], TR_ERR_CANCELLED);
        tr_rig_turn(&r);
        left[i] = (uint32_t)tr_rig_stat(&r, TR_STAT_KV_USED);
    }
    cr_assert_eq(left[0], 2);
    cr_assert_eq(left[1], 0, "the youngest had none");
}

/* ---- logprobs ---- */

static uint32_t pop_lps(const struct tr_rig_req *q, struct tr_lp *out, uint32_t cap)
{
    uint32_t n = 0;
    tr_rig_be_frontend(&r, q->area);
    while (n < cap && tr_lpring_peek(&r.s, q->slot, &out[n]) == 0) {
        tr_lpring_pop(&r.s, q->slot);
        n++;
    }
    return n;
}

Test(step, a_full_logprob_ring_parks_and_popping_brings_it_back)
{
    open_with(6, 2, 16, 0);
    struct tr_rig_ask a = tr_rig_ask();
    a.params.flags |= TR_REQ_LOGPROBS;
    a.params.n_top = 3;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    struct tr_lp lp[20];
    uint32_t got = 0;
    for (uint32_t i = 0; i < 40; i++) {
        tr_rig_run(&r, NULL, 0);
        uint32_t n = tr_rig_published(&r, &q);
        tr_rig_be_frontend(&r, 0);
        tr_cursor_set(&r.s, q.slot, n, n); /* the text is read, the entries are not */
        tr_rig_run(&r, NULL, 0);
        cr_assert_leq(tr_rig_published(&r, &q), got + 6);
        got += pop_lps(&q, lp + got, 1 + (uint32_t)i % 3);
    }
    cr_assert_eq(got, 16);
    for (uint32_t i = 0; i < 16; i++) {
        cr_assert_eq(lp[i].id, tr_rig_output(&r, &q)[i]);
        cr_assert_eq(lp[i].n_top, 3);
        cr_assert(isfinite(lp[i].logprob) && lp[i].logprob <= 0);
        cr_assert_eq(lp[i].top_id[0], lp[i].id, "greedy");
    }
}

/* Echoed prompt entries through a ring much smaller than the prompt, with preemption in between. */
Test(step, echoed_logprobs_come_once_each_in_order)
{
    open_with(7, 3, 16, 8);
    uint32_t prompt[100];
    for (uint32_t i = 0; i < 100; i++)
        prompt[i] = TR_SIM_TEXT + (i * 3) % 50;
    struct tr_rig_ask a = tr_rig_ask();
    a.prompt = prompt;
    a.prompt_len = 100;
    a.params.max_tokens = 30;
    struct tr_rig_ask e = a;
    e.params.flags |= TR_REQ_LOGPROBS | TR_REQ_ECHO_LOGPROBS;
    e.params.n_top = 2;
    struct tr_rig_req other[2] = {tr_rig_submit(&r, &a), tr_rig_submit(&r, &a)};
    struct tr_rig_req q = tr_rig_submit(&r, &e);
    static struct tr_lp lp[200];
    uint32_t got = 0;
    for (uint32_t i = 0; i < 4000 && got < 130; i++) {
        tr_rig_turn(&r);
        tr_rig_read_all(&r, &other[0]);
        tr_rig_read_all(&r, &other[1]);
        uint32_t n = tr_rig_published(&r, &q);
        tr_rig_be_frontend(&r, 0);
        tr_cursor_set(&r.s, q.slot, n, n);
        if (i % 3 == 0)
            got += pop_lps(&q, lp + got, 2);
    }
    tr_rig_run(&r, other, 2);
    cr_assert_eq(got, 130);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
    for (uint32_t i = 0; i < 130; i++)
        cr_assert_eq(lp[i].id, i < 100 ? prompt[i] : tr_rig_output(&r, &q)[i - 100], "entry %u", i);
    cr_assert_eq(lp[0].n_top, 0);
    cr_assert_eq(lp[1].n_top, 2);
    cr_assert_eq(memcmp(tr_rig_output(&r, &q), tr_rig_output(&r, &other[0]), 30 * sizeof(uint32_t)),
                 0);
}

Test(step, a_nonsense_pop_count_parks_that_request_alone)
{
    open_with(8, 4, 16, 0);
    struct tr_rig_ask a = tr_rig_ask();
    a.params.flags |= TR_REQ_LOGPROBS;
    struct tr_rig_req q = tr_rig_submit(&r, &a), other = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    atomic_store(&tr_cursor_at(&r.s, 0, q.slot)->lp_head, 1ull << 60);
    tr_rig_run(&r, &other, 1);
    cr_assert_eq(tr_rig_state(&r, &other), TR_INCOMPLETE);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
    tr_rig_cancel(&r, &q, TR_ERR_SLOW_CLIENT);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 0);
}

/* ---- scheduling ---- */

Test(step, one_long_prompt_does_not_hold_up_a_running_stream)
{
    open_with(256, 4, 8, 0);
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 60;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    uint32_t prompt[240];
    for (uint32_t i = 0; i < 240; i++)
        prompt[i] = TR_SIM_TEXT + i % 50;
    struct tr_rig_ask big = tr_rig_ask();
    big.prompt = prompt;
    big.prompt_len = 240;
    struct tr_rig_req b[3] = {tr_rig_submit(&r, &big), tr_rig_submit(&r, &big),
                              tr_rig_submit(&r, &big)};
    for (uint32_t i = 0; i < 30; i++) {
        tr_rig_turn(&r);
        cr_assert_eq(tr_rig_published(&r, &q), 2 + i, "a token in every step");
        cr_assert_eq(tr_rig_ring(&r, &b[0])->prefill_done, 8 * (i + 1));
    }
    cr_assert_eq(tr_rig_state(&r, &b[0]), TR_RUNNING);
}

Test(step, the_queue_tells_places_and_moves_up)
{
    open_with(256, 1, 16, 0);
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q[4];
    for (uint32_t i = 0; i < 4; i++)
        q[i] = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    for (uint32_t i = 1; i < 4; i++)
        cr_assert_eq(tr_rig_ring(&r, &q[i])->queue_pos, i - 1);
    tr_rig_cancel(&r, &q[1], TR_ERR_CANCELLED);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_ring(&r, &q[2])->queue_pos, 0);
    cr_assert_eq(tr_rig_ring(&r, &q[3])->queue_pos, 1);
}

Test(step, far_back_in_the_queue_places_are_told_from_time_to_time)
{
    struct tr_engine_rig_config c = {
        .shm = {.n_slots = 128, .n_admit = 120, .max_seqs = 1, .n_ctx = 256, .window = 256},
        .sched = {.prefill_chunk = 16}};
    tr_engine_rig_open(&r, &c);
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q[101];
    for (uint32_t i = 0; i < 100; i++)
        q[i] = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_ring(&r, &q[90])->queue_pos, 89);
    q[100] = tr_rig_submit(&r, &a);
    tr_rig_cancel(&r, &q[1], TR_ERR_CANCELLED);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_ring(&r, &q[2])->queue_pos, 0);
    cr_assert_eq(tr_rig_ring(&r, &q[100])->queue_pos, 98, "the first time at once");
    for (uint64_t until = tr_now_ns() + 20000000000ull; tr_now_ns() < until;) {
        tr_rig_turn(&r);
        if (tr_rig_ring(&r, &q[90])->queue_pos < 89)
            break;
    }
    cr_assert_lt(tr_rig_ring(&r, &q[90])->queue_pos, 89);
}

Test(step, every_token_tells_its_step_and_the_step_its_time)
{
    open_with(256, 2, 16, 0);
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    const uint32_t *steps = tr_ring_steps(&r.s, q.slot);
    uint64_t before = tr_rig_ring(&r, &q)->started_ns;
    for (uint32_t i = 0; i < 16; i++) {
        uint64_t t = atomic_load(&r.s.rings->step_ns[steps[i]]);
        cr_assert(i == 0 || steps[i] == steps[i - 1] + 1);
        cr_assert(t >= before && t <= tr_rig_ring(&r, &q)->finished_ns);
        before = t;
    }
    cr_assert_eq(atomic_load(&r.s.rings->step), steps[15] + 1);
    cr_assert_eq(tr_rig_hist(&r, TR_HIST_TTFT), 1);
    cr_assert_eq(tr_rig_hist(&r, TR_HIST_ITL), 15);
    cr_assert_eq(tr_rig_hist(&r, TR_HIST_QUEUE), 1);
    cr_assert_eq(tr_rig_hist(&r, TR_HIST_PREFILL), 1);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_SLO), 1);
}

/* Targets that nobody can meet, one at a time, and one that everybody does. */
Test(step, only_requests_that_met_both_targets_are_counted_as_such)
{
    static const struct {
        uint64_t ttft_ns, itl_ns, within;
    } targets[] = {{1, 0, 0}, {0, 1, 0}, {1000000000000, 1000000000000, 1}};
    for (uint32_t i = 0; i < 3; i++) {
        struct tr_engine_rig_config c = {
            .shm = {.n_slots = 64, .n_admit = 56, .max_seqs = 2, .n_ctx = 256, .window = 256},
            .sched = {.ttft_target_ns = targets[i].ttft_ns, .itl_target_ns = targets[i].itl_ns}};
        if (i)
            close_rig();
        tr_engine_rig_open(&r, &c);
        struct tr_rig_ask a = tr_rig_ask();
        struct tr_rig_req q[2] = {tr_rig_submit(&r, &a), tr_rig_submit(&r, &a)};
        tr_rig_turn(&r);
        tr_rig_cancel(&r, &q[1], TR_ERR_CANCELLED);
        tr_rig_run(&r, q, 2);
        cr_assert_eq(tr_rig_state(&r, &q[0]), TR_INCOMPLETE);
        cr_expect_eq(tr_rig_stat(&r, TR_STAT_SLO), targets[i].within, "targets %u", i);
    }
}

/* ---- P10: the same request gives the same tokens, whatever shares the batch ---- */

enum { MIXED = 40, MAX_OUT = 130 };

static uint32_t prompts[MIXED][120];
static uint32_t want[MIXED][MAX_OUT];
static uint32_t want_n[MIXED];
static struct tr_extra extras[MIXED];

static struct tr_rig_ask mixed(uint32_t i)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.prompt = prompts[i];
    a.prompt_len = 1 + (i * 17) % 120;
    for (uint32_t k = 0; k < a.prompt_len; k++)
        prompts[i][k] = TR_SIM_TEXT + (k * (i + 3) + i) % 60;
    a.params.max_tokens = 1 + (i * 37) % MAX_OUT;
    a.params.temperature = i % 3 ? 0.3 * (i % 7) : 0;
    a.params.seed = i;
    a.params.top_k = i % 5 == 1 ? 12 : 0;
    a.params.top_p = i % 4 == 2 ? 0.8 : 1;
    a.params.min_p = i % 7 == 3 ? 0.05 : 0;
    a.params.repetition_penalty = i % 6 == 4 ? 1.3 : 1;
    a.params.frequency_penalty = i % 8 == 5 ? 0.7 : 0;
    a.params.flags = TR_REQ_STREAM | (i % 2 ? TR_REQ_IGNORE_EOS : 0);
    if (i % 9 == 0) {
        extras[i] = (struct tr_extra){.n_bias = 1, .bias = {{.id = 270 + i, .value = 9.5F}}};
        a.extra = &extras[i];
    }
    return a;
}

static void each_alone(void)
{
    open_with(256, 4, 0, 0);
    for (uint32_t i = 0; i < MIXED; i++) {
        struct tr_rig_ask a = mixed(i);
        struct tr_rig_req q = tr_rig_submit(&r, &a);
        tr_rig_run(&r, &q, 1);
        want_n[i] = tr_rig_published(&r, &q);
        memcpy(want[i], tr_rig_output(&r, &q), want_n[i] * sizeof(uint32_t));
        tr_rig_release(&r, &q);
        tr_rig_turn(&r);
    }
    tr_engine_rig_close(&r);
}

/* All together, with readers that come and go. */
static void all_together(uint32_t window, uint32_t max_seqs, uint32_t chunk, uint32_t kv)
{
    struct tr_rig_req q[MIXED];
    uint32_t n = 0;
    open_with(window, max_seqs, chunk, kv);
    for (uint32_t turns = 0; turns < 100000; turns++) {
        for (uint32_t k = (uint32_t)rand() % 3; k && n < MIXED; k--, n++) {
            struct tr_rig_ask a = mixed(n);
            a.area = n % 4;
            q[n] = tr_rig_submit(&r, &a);
        }
        bool busy = tr_rig_turn(&r);
        for (uint32_t i = 0; i < n; i++)
            if (rand() % 4 == 0 || !busy)
                tr_rig_read_all(&r, &q[i]);
        if (!busy && n == MIXED && tr_rig_bills(&r) == MIXED)
            break;
    }
    for (uint32_t i = 0; i < MIXED; i++) {
        cr_assert(tr_state_terminal(tr_rig_state(&r, &q[i])), "request %u", i);
        cr_assert_eq(tr_rig_published(&r, &q[i]), want_n[i], "request %u", i);
        cr_assert_eq(memcmp(tr_rig_output(&r, &q[i]), want[i], want_n[i] * sizeof(uint32_t)), 0,
                     "request %u", i);
    }
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 0);
}

Test(step, forty_mixed_requests_give_the_same_tokens_as_each_alone, .timeout = 100)
{
    static const struct {
        uint32_t window, max_seqs, chunk, kv;
    } runs[] = {{256, 8, 0, 0},  {256, 8, 7, 0},   {8, 8, 16, 0},    {256, 8, 16, 9},
                {5, 12, 33, 8},  {3, 2, 1, 8},     {16, 32, 64, 20}, {256, 8, 0, 10},
                {64, 8, 50, 11}, {256, 5, 90, 12}, {99, 9, 20, 8},   {256, 40, 11, 16}};
    each_alone();
    uint64_t preempted = 0;
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        srand((unsigned)i);
        all_together(runs[i].window, runs[i].max_seqs, runs[i].chunk, runs[i].kv);
        preempted += tr_rig_stat(&r, TR_STAT_PREEMPTIONS);
        if (i + 1 < sizeof(runs) / sizeof(runs[0]))
            tr_engine_rig_close(&r);
    }
    cr_assert_gt(preempted, 20, "%u preemptions: this tests less than it says",
                 (unsigned)preempted);
}

Test(step, the_sim_model_sees_wrong_kv)
{
    /* The test above proves something only if a wrong token in the KV changes the output. */
    open_with(256, 2, 0, 0);
    struct tr_rig_ask a = tr_rig_ask();
    uint32_t x[40], y[40];
    for (uint32_t i = 0; i < 40; i++)
        x[i] = y[i] = TR_SIM_TEXT + i;
    y[0]++;
    a.prompt = x;
    a.prompt_len = 40;
    struct tr_rig_req p = tr_rig_submit(&r, &a);
    a.prompt = y;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &p, 1);
    cr_assert_neq(memcmp(tr_rig_output(&r, &p), tr_rig_output(&r, &q), 16 * sizeof(uint32_t)), 0);
}
