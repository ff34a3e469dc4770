/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/settle.h"

#include "testlib/shm_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct shm_rig r;
static struct tr_bill got[8];
static int n_got;

static void setup(void)
{
    shm_rig_open(&r, 6, 1);
    shm_rig_open_slots(&r);
    tr_role = TR_ROLE_ENGINE;
    n_got = 0;
}

static void teardown(void)
{
    shm_rig_close(&r);
}

TestSuite(settle, .init = setup, .fini = teardown);

static void note(void *arg, const struct tr_bill *b)
{
    (void)arg;
    got[n_got++] = *b;
}

/* An admitted request of `prompt` tokens that has published `out`. */
static struct tr_ring *request(uint32_t slot, const char *id, uint32_t prompt, uint32_t out)
{
    struct tr_ring *g = tr_ring_at(&r.s, slot);
    g->of_gen = atomic_load(&g->gen);
    g->prompt_len = prompt;
    g->group_n = 1;
    g->group_lead = slot;
    g->group_bill_prompt = 1;
    snprintf(g->request_id, sizeof(g->request_id), "%s", id);
    for (uint32_t i = 0; i < out; i++)
        tr_ring_push(&r.s, slot, 100 + i, 0);
    atomic_store(&g->state, TR_RUNNING);
    return g;
}

Test(settle, what_runs_ends_as_lost_with_what_was_published)
{
    request(1, "a", 5, 7);
    tr_settle_rings(&r.s, note, NULL);
    cr_assert_eq(n_got, 1);
    cr_assert_str_eq(got[0].request_id, "a");
    cr_assert(got[0].state == TR_ERROR && got[0].err == TR_ERR_ENGINE_LOST);
    cr_assert(got[0].prompt_tokens == 5 && got[0].completion_tokens == 7 &&
              got[0].last_token == 106);
}

Test(settle, what_had_ended_keeps_its_end)
{
    struct tr_ring *g = request(0, "b", 2, 10);
    g->finish_index = 8;
    g->finish = TR_FINISH_STOP_STRING;
    tr_ring_end(&r.s, 0, TR_COMPLETED);
    tr_settle_rings(&r.s, note, NULL);
    cr_assert_eq(n_got, 1);
    cr_assert(got[0].state == TR_COMPLETED && got[0].completion_tokens == 8 &&
              got[0].overrun_tokens == 2);
}

Test(settle, a_request_whose_record_was_queued_is_left_alone)
{
    struct tr_ring *g = request(0, "c", 2, 1);
    struct tr_bill b = {0};
    uint64_t seq;
    cr_assert_eq(tr_bill_push(&r.s, &b, &seq), 0);
    atomic_store(&g->bill_seq, seq);
    tr_settle_rings(&r.s, note, NULL);
    cr_assert_eq(n_got, 0);
}

Test(settle, a_number_that_was_never_counted_is_void)
{
    struct tr_ring *g = request(0, "d", 2, 1);
    atomic_store(&g->bill_seq, tr_bill_next(&r.s));
    tr_settle_rings(&r.s, note, NULL);
    cr_assert_eq(n_got, 1);
}

Test(settle, fields_of_another_generation_are_no_request)
{
    request(0, "e", 2, 1)->of_gen--;
    tr_settle_rings(&r.s, note, NULL);
    cr_assert_eq(n_got, 0);
}

Test(settle, the_choices_of_a_group_are_one_record)
{
    for (uint32_t k = 0; k < 3; k++) {
        struct tr_ring *g = request(2 + k, "f", 4, 2 + k);
        g->group_n = 3;
        g->group_k = k;
        g->group_lead = 2;
        g->group_bill_prompt = k == 0;
    }
    tr_settle_rings(&r.s, note, NULL);
    cr_assert_eq(n_got, 1);
    cr_assert(got[0].choices == 3 && got[0].prompt_tokens == 4 &&
              got[0].completion_tokens == 2 + 3 + 4);
}

Test(settle, a_request_of_the_same_id_is_not_of_the_group)
{
    for (uint32_t k = 0; k < 3; k++) {
        struct tr_ring *g = request(2 + k, "same", 4, 1);
        g->group_n = 3;
        g->group_k = k;
        g->group_lead = 2;
        g->stream_rand = k == 2 ? 8 : 7;
    }
    tr_settle_rings(&r.s, note, NULL);
    cr_assert_eq(got[0].choices, 2);
}

Test(settle, nonsense_in_a_ring_is_bounded)
{
    struct tr_ring *g = request(0, "g", 2, 1);
    g->prompt_len = UINT32_MAX;
    atomic_store(&g->published, UINT64_MAX);
    memset(g->request_id, 'x', sizeof(g->request_id));
    tr_settle_rings(&r.s, note, NULL);
    cr_assert_eq(n_got, 1);
    cr_assert_lt(strlen(got[0].request_id), sizeof(got[0].request_id));
}
