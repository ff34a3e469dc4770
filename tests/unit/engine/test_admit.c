/* SPDX-License-Identifier: Apache-2.0 */
#include "enginerig/engine_rig.h"

#include "base/sim_vocab.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static struct tr_engine_rig r;

static void setup(void)
{
    tr_engine_rig_open(&r, NULL);
}

static void teardown(void)
{
    tr_engine_rig_close(&r);
}

TestSuite(admit, .init = setup, .fini = teardown);

Test(admit, a_request_runs_to_its_limit_and_is_told_in_its_ring)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    struct tr_ring *ring = tr_rig_ring(&r, &q);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
    cr_assert_eq(ring->finish, TR_FINISH_LENGTH);
    cr_assert_eq(ring->err, TR_OK);
    cr_assert_eq(tr_rig_published(&r, &q), 16);
    cr_assert_eq(ring->finish_index, 16);
    cr_assert_eq(ring->overrun, 0);
    cr_assert_str_eq(ring->request_id, "req-1");
    cr_assert_eq(ring->stream_rand, 4711);
    cr_assert_eq(tr_ring_owner(ring).area, 0);
    cr_assert(ring->arrival_ns <= ring->admitted_ns && ring->admitted_ns <= ring->started_ns &&
              ring->started_ns <= ring->first_token_ns &&
              ring->first_token_ns <= ring->finished_ns);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 0);
}

Test(admit, the_area_is_not_read_after_admission)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req one = tr_rig_submit(&r, &a), two = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    tr_rig_be_frontend(&r, 0);
    memset(tr_request_at(&r.s, two.slot), 0xff, sizeof(struct tr_request));
    memset(tr_request_prompt(&r.s, two.slot), 0xff, 3 * sizeof(uint32_t));
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_published(&r, &two), 16);
    cr_assert_eq(memcmp(tr_rig_output(&r, &one), tr_rig_output(&r, &two), 16 * sizeof(uint32_t)),
                 0);
}

/* ---- malformed requests ---- */

static void spoil(struct tr_request *q, uint32_t how)
{
    struct tr_params *p = &q->params;
    switch (how) {
    case 0:
        q->prompt_len = 0;
        break;
    case 1:
        q->prompt_len = r.c.shm.n_ctx + 1;
        break;
    case 2:
        q->prompt_len = UINT32_MAX;
        break;
    case 3:
        p->max_tokens = r.c.shm.n_ctx - q->prompt_len + 1;
        break;
    case 4:
        p->max_tokens = UINT32_MAX;
        break;
    case 5:
        p->temperature = (double)NAN;
        break;
    case 6:
        p->temperature = -0.5;
        break;
    case 7:
        p->temperature = (double)INFINITY;
        break;
    case 8:
        p->top_p = 0;
        break;
    case 9:
        p->top_p = 1.5;
        break;
    case 10:
        p->min_p = (double)NAN;
        break;
    case 11:
        p->presence_penalty = 2.1;
        break;
    case 12:
        p->frequency_penalty = -3;
        break;
    case 13:
        p->repetition_penalty = 0;
        break;
    case 14:
        p->n_top = TR_MAX_TOP + 1;
        break;
    case 15:
        p->flags |= 1u << 31;
        break;
    case 16:
        q->extra_len = TR_EXTRA_BYTES + 1;
        break;
    case 17:
        q->extra_len = 5; /* zeros are no map */
        break;
    case 18:
        memset(q->request_id, 'x', sizeof(q->request_id));
        break;
    case 19:
        q->request_id[0] = '\n';
        break;
    case 20:
        memset(q->key, 'k', sizeof(q->key));
        break;
    case 21:
        q->group_n = 0;
        break;
    case 22:
        q->group_n = 2;
        break;
    case 23:
        q->group_n = UINT32_MAX;
        break;
    case 24:
        q->group_k = 1;
        break;
    case 25:
        q->group_lead = q->group_lead + 1;
        break;
    case 26:
        q->params.priority = TR_PRIORITY_MAX + 1;
        break;
    case 27:
        q->gen++;
        break;
    default:
        break;
    }
}
enum { SPOILS = 28 };

Test(admit, a_malformed_request_ends_is_accounted_and_hurts_nobody)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req good = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &good, 1);
    for (uint32_t how = 0; how < SPOILS; how++) {
        uint64_t bills = tr_rig_bills(&r), refused = tr_rig_stat(&r, TR_STAT_REFUSED_SUBMISSIONS);
        struct tr_rig_req again = tr_rig_submit(&r, &a);
        struct tr_rig_req bad = tr_rig_prepare(&r, &a);
        spoil(tr_request_at(&r.s, bad.slot), how);
        tr_rig_push(&r, &bad);
        tr_rig_run(&r, &again, 1);
        cr_assert_eq(tr_rig_state(&r, &bad), TR_ERROR, "spoil %u", how);
        cr_assert_eq(tr_rig_ring(&r, &bad)->err, TR_ERR_BAD_SUBMISSION);
        cr_assert_eq(tr_rig_published(&r, &bad), 0);
        cr_assert_eq(tr_rig_bills(&r), bills + 2);
        cr_assert_eq(tr_rig_bill(&r, bills)->err, TR_ERR_BAD_SUBMISSION);
        cr_assert_eq(tr_rig_bill(&r, bills)->prompt_tokens, 0);
        cr_assert_eq(tr_rig_stat(&r, TR_STAT_REFUSED_SUBMISSIONS), refused + 1);
        cr_assert_eq(tr_rig_published(&r, &again), 16);
        cr_assert_eq(
            memcmp(tr_rig_output(&r, &again), tr_rig_output(&r, &good), 16 * sizeof(uint32_t)), 0);
        tr_rig_release(&r, &bad);
        tr_rig_release(&r, &again);
        tr_rig_run(&r, NULL, 0);
    }
    tr_rig_release(&r, &good);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_OPEN), r.c.shm.n_admit);
}

Test(admit, a_malformed_request_that_was_given_up_before_gives_its_slot_back)
{
    struct tr_rig_ask a = tr_rig_ask();
    for (uint32_t how = 0; how < SPOILS; how++) {
        struct tr_rig_req bad = tr_rig_prepare(&r, &a);
        spoil(tr_request_at(&r.s, bad.slot), how);
        tr_rig_cancel(&r, &bad, TR_ERR_CLIENT_GONE);
        tr_rig_release(&r, &bad);
        tr_rig_turn(&r); /* takes the dirty bit: there is no request yet */
        tr_rig_push(&r, &bad);
        tr_rig_run(&r, NULL, 0);
        cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_OPEN), r.c.shm.n_admit, "spoil %u", how);
        cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_TAKEN), 0, "spoil %u", how);
    }
}

Test(admit, ids_outside_the_vocabulary_are_refused_and_wiped)
{
    struct tr_rig_ask a = tr_rig_ask();
    uint32_t prompt[] = {1, r.c.shm.n_vocab, 77};
    a.prompt = prompt;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_ring(&r, &q)->err, TR_ERR_BAD_SUBMISSION);
    cr_assert_eq(tr_ring_ids(&r.s, q.slot)[2], 0);
}

Test(admit, messages_for_slots_the_sender_does_not_hold_touch_no_ring)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 400;
    struct tr_rig_req live = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    uint32_t before = tr_rig_published(&r, &live);
    uint64_t bills = tr_rig_bills(&r);
    struct tr_msg m[] = {
        {.kind = TR_MSG_SUBMIT, .slot = live.slot, .gen = live.gen},
        {.kind = TR_MSG_SUBMIT, .slot = live.slot, .gen = live.gen + 1},
        {.kind = TR_MSG_SUBMIT, .slot = 9999, .gen = 1},
        {.kind = TR_MSG_SUBMIT, .slot = 63, .gen = 1},
        {.kind = 77, .slot = 1, .gen = 1},
        {.kind = TR_MSG_CANCEL, .slot = live.slot, .gen = live.gen, .stream_rand = 1},
        {.kind = TR_MSG_CANCEL, .slot = UINT32_MAX}};
    tr_rig_be_frontend(&r, 1);
    cr_assert_eq(tr_subq_push(&r.s, m, 7), 0);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_REFUSED_SUBMISSIONS), 7);
    cr_assert_eq(tr_rig_state(&r, &live), TR_RUNNING);
    cr_assert_gt(tr_rig_published(&r, &live), before);
    cr_assert_eq(tr_rig_bills(&r), bills);
}

Test(admit, a_foreign_cancel_needs_the_random_bits)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 400;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    struct tr_msg m = {.kind = TR_MSG_CANCEL, .slot = q.slot, .gen = q.gen, .stream_rand = a.rand};
    tr_rig_be_frontend(&r, 2);
    tr_subq_push(&r.s, &m, 1);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_CANCELLED);
    cr_assert_eq(tr_rig_ring(&r, &q)->err, TR_ERR_CANCELLED);
}

/* ---- groups ---- */

Test(admit, a_group_has_one_record_with_the_sums_of_all)
{
    struct tr_rig_ask a[3] = {tr_rig_ask(), tr_rig_ask(), tr_rig_ask()};
    struct tr_rig_req q[3];
    a[1].params.max_tokens = 5;
    a[2].params.max_tokens = 7;
    cr_assert_eq(tr_rig_submit_group(&r, a, 3, q), 0);
    for (uint32_t i = 0; i < 7; i++)
        tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q[1]), TR_INCOMPLETE);
    cr_assert_eq(tr_rig_bills(&r), 0, "not before all have ended");
    tr_rig_run(&r, q, 3);
    cr_assert_eq(tr_rig_bills(&r), 1);
    const struct tr_bill *b = tr_rig_bill(&r, 0);
    cr_assert_eq(b->choices, 3);
    cr_assert_eq(b->completion_tokens, 16 + 5 + 7);
    cr_assert_eq(b->prompt_tokens, 3, "the prompt of the first choice only");
    for (uint32_t i = 0; i < 3; i++)
        cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q[i])->bill_seq), 1);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_TOK_COMPLETION), 28);
}

Test(admit, a_malformed_member_ends_its_whole_group_once)
{
    struct tr_rig_ask a[3] = {tr_rig_ask(), tr_rig_ask(), tr_rig_ask()};
    struct tr_rig_req q[3];
    uint32_t bad[] = {UINT32_MAX};
    a[2].prompt = bad;
    a[2].prompt_len = 1;
    tr_rig_submit_group(&r, a, 3, q);
    tr_rig_run(&r, q, 3);
    for (uint32_t i = 0; i < 3; i++)
        cr_assert_eq(tr_rig_ring(&r, &q[i])->err, TR_ERR_BAD_SUBMISSION);
    cr_assert_eq(tr_rig_bills(&r), 1);
    cr_assert_eq(tr_rig_bill(&r, 0)->choices, 3);
}

Test(admit, a_group_that_names_anothers_slot_does_not_get_it)
{
    struct tr_rig_ask a[2] = {tr_rig_ask(), tr_rig_ask()};
    struct tr_rig_req mine[2], other;
    a[0].area = a[1].area = 1;
    tr_rig_submit_group(&r, a, 2, mine);
    tr_rig_turn(&r);
    a[0].area = 2;
    other = tr_rig_prepare(&r, &a[0]);
    tr_request_at(&r.s, other.slot)->group_n = 2;
    struct tr_msg m[] = {{.kind = TR_MSG_SUBMIT, .slot = other.slot, .gen = other.gen},
                         {.kind = TR_MSG_SUBMIT, .slot = mine[1].slot, .gen = mine[1].gen}};
    tr_subq_push(&r.s, m, 2);
    tr_rig_run(&r, mine, 2);
    cr_assert_eq(tr_rig_ring(&r, &other)->err, TR_ERR_BAD_SUBMISSION);
    cr_assert_eq(tr_rig_state(&r, &mine[1]), TR_INCOMPLETE);
    cr_assert_eq(tr_rig_published(&r, &mine[1]), 16);
}

Test(admit, more_groups_than_one_look_into_the_queue_shows)
{
    struct tr_engine_rig big;
    struct tr_engine_rig_config c = {.shm = {.n_slots = 400, .n_admit = 400, .max_seqs = 8}};
    tr_engine_rig_open(&big, &c);
    static struct tr_rig_ask a[TR_MAX_CHOICES];
    static struct tr_rig_req q[3][TR_MAX_CHOICES];
    for (uint32_t k = 0; k < TR_MAX_CHOICES; k++) {
        a[k] = tr_rig_ask();
        a[k].params.max_tokens = 2;
    }
    for (uint32_t g = 0; g < 3; g++)
        cr_assert_eq(tr_rig_submit_group(&big, a, 100 + g * 14, q[g]), 0);
    tr_rig_run(&big, NULL, 0);
    cr_assert_eq(tr_rig_bills(&big), 3);
    for (uint32_t g = 0; g < 3; g++)
        cr_assert_eq(tr_rig_bill(&big, g)->completion_tokens, 2 * (100 + g * 14));
    tr_engine_rig_close(&big);
}

/* ---- limits, echo, stop ids ---- */

Test(admit, no_tokens_wanted_is_prefill_only)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 0;
    a.params.flags |= TR_REQ_ECHO_LOGPROBS;
    a.params.n_top = 2;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
    cr_assert_eq(tr_rig_ring(&r, &q)->finish, TR_FINISH_LENGTH);
    cr_assert_eq(tr_rig_published(&r, &q), 0);
    cr_assert_eq(tr_rig_ring(&r, &q)->first_token_ns, 0);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q)->lp_tail), 3, "an entry for each prompt token");
}

Test(admit, a_prompt_that_fills_the_context_runs)
{
    uint32_t prompt[512];
    for (uint32_t i = 0; i < 512; i++)
        prompt[i] = TR_SIM_TEXT + i % 50;
    struct tr_rig_ask a = tr_rig_ask();
    a.prompt = prompt;
    a.prompt_len = 511;
    a.params.max_tokens = 1;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    a.prompt_len = 512;
    a.params.max_tokens = 0;
    struct tr_rig_req full = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_published(&r, &q), 1);
    cr_assert_eq(tr_rig_state(&r, &full), TR_INCOMPLETE);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &full)->prefill_done), 512);
}

static struct tr_extra forced(uint32_t id)
{
    return (struct tr_extra){.n_bias = 1, .bias = {{.id = id, .value = 100}}};
}

Test(admit, the_end_of_turn_ends_and_counts_as_a_token)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_extra e = forced(TR_SIM_IM_END);
    a.extra = &e;
    a.params.flags = TR_REQ_STREAM;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_state(&r, &q), TR_COMPLETED);
    cr_assert_eq(tr_rig_ring(&r, &q)->finish, TR_FINISH_EOG);
    cr_assert_eq(tr_rig_ring(&r, &q)->finish_index, 1);
    cr_assert_eq(tr_rig_output(&r, &q)[0], TR_SIM_IM_END);
}

Test(admit, min_tokens_keeps_the_end_away_and_ignore_eos_for_good)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_extra e = forced(TR_SIM_EOS);
    a.extra = &e;
    a.params.flags = TR_REQ_STREAM;
    a.params.min_tokens = 5;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    a.params.min_tokens = 0;
    a.params.flags |= TR_REQ_IGNORE_EOS;
    struct tr_rig_req never = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_ring(&r, &q)->finish, TR_FINISH_EOG);
    cr_assert_eq(tr_rig_published(&r, &q), 6);
    cr_assert_eq(tr_rig_ring(&r, &never)->finish, TR_FINISH_LENGTH);
    cr_assert_eq(tr_rig_published(&r, &never), 16);
}

Test(admit, a_stop_id_ends_and_belongs_to_its_own_request)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_extra e = forced(300), f = forced(301);
    e.n_stop = 1;
    e.stop_ids[0] = 300;
    a.extra = &e;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    a.extra = &f;
    struct tr_rig_req other = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_ring(&r, &q)->finish, TR_FINISH_STOP_ID);
    cr_assert_eq(tr_rig_ring(&r, &q)->finish_index, 1);
    cr_assert_eq(tr_rig_published(&r, &other), 16);
    for (uint32_t i = 0; i < 16; i++)
        cr_assert_eq(tr_rig_output(&r, &other)[i], 301);
}

/* Whatever a frontend writes anywhere it may write, the engine goes on and others are unharmed. */
Test(admit, garbage_everywhere_in_an_area_hurts_nobody_else, .timeout = 60)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req good = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &good, 1);
    srand(5);
    for (uint32_t round = 0; round < 60; round++) {
        struct tr_rig_req again = tr_rig_submit(&r, &a);
        unsigned char *area = (unsigned char *)r.s.area[3];
        size_t bytes = tr_layout_region_bytes(&r.c.shm, TR_REGION_AREA);
        for (uint32_t i = 0; i < 3000; i++)
            area[sizeof(struct tr_region_head) +
                 (size_t)rand() % (bytes - sizeof(struct tr_region_head))] = (unsigned char)rand();
        atomic_store(&r.s.area[3]->subq_tail,
                     atomic_load(&r.s.rings->subq_head[3]) + (uint64_t)(rand() % 64));
        tr_rig_run(&r, &again, 1);
        cr_assert_eq(tr_rig_published(&r, &again), 16);
        cr_assert_eq(
            memcmp(tr_rig_output(&r, &again), tr_rig_output(&r, &good), 16 * sizeof(uint32_t)), 0);
        tr_rig_release(&r, &again);
        tr_rig_turn(&r);
    }
}

static void note_slot(void *arg, uint32_t slot)
{
    *(uint64_t *)arg |= 1ull << slot;
}

Test(admit, who_submits_a_slot_that_the_claims_give_to_another_is_told_to_look)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_prepare(&r, &a);
    uint64_t told = 0;
    tr_rig_be_frontend(&r, 0);
    tr_news_take(&r.s, note_slot, &told);
    atomic_store(&r.s.claims->word[q.slot],
                 tr_claim_pack((struct tr_claim){.state = TR_CLAIM_OPEN, .gen = q.gen}));
    tr_rig_push(&r, &q);
    tr_rig_turn(&r);
    told = 0;
    tr_rig_be_frontend(&r, 0);
    tr_news_take(&r.s, note_slot, &told);
    cr_assert(told >> q.slot & 1);
    cr_assert(tr_claim_is_lost(&r.s, q.slot, q.gen));
}
