/* SPDX-License-Identifier: Apache-2.0 */
/* A backend that works like a device (tests/lib/late_backend.h) beside one that is done when it comes back: the
 * same tokens, log-probabilities, ends and records; and what is done when. */
#include "engine/pick.h"

#include "base/sim_vocab.h"
#include "engine/constrain.h"
#include "enginerig/engine_rig.h"
#include "enginerig/late_backend.h"
#include "grammar/build.h"
#include "grammar/mask.h"
#include "shm/bill.h"
#include "shm/lpring.h"
#include "testlib/sim_pieces.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 24, MAX_OUT = 60, CALLS = 64 };

static struct tr_engine_rig r;
static uint8_t image[TR_GRAM_BYTES];
static size_t image_len;
static void *pieces;
static size_t pieces_len;

/* ---- what happens, and when ---- */

static struct call {
    enum tr_late_call call;
    uint32_t n_rows;
    uint64_t bills;
    uint32_t open, taken; /* places */
    uint32_t queue_pos;
} calls[CALLS];
static uint32_t n_calls;
static struct tr_rig_req watched;
static void (*at_collect)(void);

static void note_call(enum tr_late_call call, const struct tr_batch *batch)
{
    if (call == TR_LATE_COLLECT && at_collect)
        at_collect();
    if (n_calls < CALLS)
        calls[n_calls++] =
            (struct call){.call = call,
                          .n_rows = batch->n_rows,
                          .bills = tr_rig_bills(&r),
                          .open = tr_rig_claims(&r, TR_CLAIM_OPEN),
                          .taken = tr_rig_claims(&r, TR_CLAIM_TAKEN),
                          .queue_pos = atomic_load(&tr_rig_ring(&r, &watched)->queue_pos)};
}

/* Of the calls since the last one, the first of its kind. */
static const struct call *first(enum tr_late_call call)
{
    for (uint32_t i = 0; i < n_calls; i++)
        if (calls[i].call == call)
            return &calls[i];
    cr_assert_fail("no call %d", (int)call);
    return NULL;
}

static bool turn(void)
{
    n_calls = 0;
    return tr_rig_turn(&r);
}

/* ---- seams: records, and masks that take as long as the test says ---- */

static uint32_t in_pass_at_bill;
static _Atomic bool slow, gate, through;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
int __real_tr_bill_push(struct tr_shm *s, const struct tr_bill *b, uint64_t *seq);
int __wrap_tr_bill_push(struct tr_shm *s, const struct tr_bill *b, uint64_t *seq);
bool __real_tr_gmasks_try(struct tr_gmasks *c, const struct tr_gprog *p, const struct tr_gmatch *m,
                          uint32_t *mask, uint64_t *allowed, const atomic_bool *stop, bool *some);
bool __wrap_tr_gmasks_try(struct tr_gmasks *c, const struct tr_gprog *p, const struct tr_gmatch *m,
                          uint32_t *mask, uint64_t *allowed, const atomic_bool *stop, bool *some);
bool __real_tr_constrain_is_made(struct tr_constrain *c, uint32_t slot);
bool __wrap_tr_constrain_is_made(struct tr_constrain *c, uint32_t slot);

int __wrap_tr_bill_push(struct tr_shm *s, const struct tr_bill *b, uint64_t *seq)
{
    in_pass_at_bill = atomic_load(&s->rings->in_pass);
    return __real_tr_bill_push(s, b, seq);
}

bool __wrap_tr_gmasks_try(struct tr_gmasks *c, const struct tr_gprog *p, const struct tr_gmatch *m,
                          uint32_t *mask, uint64_t *allowed, const atomic_bool *stop, bool *some)
{
    if (slow && *allowed != UINT64_MAX) {
        *allowed = 0;
        return false;
    }
    while (slow && !gate)
        usleep(100);
    bool made = __real_tr_gmasks_try(c, p, m, mask, allowed, stop, some);
    through = slow;
    return made;
}

/* Its thread says so a moment after it was. */
bool __wrap_tr_constrain_is_made(struct tr_constrain *c, uint32_t slot)
{
    bool made;
    while (!(made = __real_tr_constrain_is_made(c, slot)) && through)
        usleep(100);
    return made;
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- rigs ---- */

static void setup(void)
{
    struct tr_errbuf err = {""};
    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode letters =
        tr_g_repeat(b, tr_g_class(b, &(struct tr_grange){'a', 'z'}, 1, false), 1, TR_G_INF);
    cr_assert_eq(tr_gbuild_finish(b, letters, image, sizeof(image), &image_len, &err), 0, "%s",
                 err.msg);
    tr_gbuild_free(b);
    cr_assert_eq(tr_gpieces_build(TR_SIM_VOCAB_SIZE, sim_piece, NULL, &pieces, &pieces_len), 0);
}

static void teardown(void)
{
    free(pieces);
}

static void open_rig(bool late, uint32_t window, uint32_t max_seqs, uint32_t chunk, uint32_t kv,
                     bool speculate)
{
    struct tr_engine_rig_config c = {
        .ops = late ? &tr_backend_late : &tr_backend_sim,
        .shm = {.n_slots = 64, .n_admit = 40, .max_seqs = max_seqs, .n_ctx = 256, .window = window},
        .sched = {.prefill_chunk = chunk,
                  .speculate = speculate,
                  .draft_floor = 0.01F,
                  .pieces = pieces,
                  .pieces_len = pieces_len},
        .kv_blocks = kv};
    tr_late = (struct tr_late){.over = &tr_backend_sim};
    tr_engine_rig_open(&r, &c);
    tr_late.told = note_call;
    watched = (struct tr_rig_req){0};
    at_collect = NULL;
}

static void close_rig(void)
{
    tr_late.told = NULL;
    tr_engine_rig_close(&r);
}

TestSuite(pick, .init = setup, .fini = teardown, .timeout = 100);

/* ---- the same answers ---- */

struct answer {
    uint32_t n, state, finish, n_lp;
    uint64_t finish_index, overrun;
    uint32_t ids[MAX_OUT];
    struct tr_lp lp[256];
};

static struct answer answers[2][N];
static struct tr_bill bills[2][N];
static struct tr_extra extras[N];
static uint32_t prompts[N][80];

static struct tr_rig_ask ask(uint32_t i)
{
    struct tr_rig_ask a = tr_rig_ask();
    char *id = (char *)&prompts[i][70];
    id[0] = (char)('a' + (char)i);
    id[1] = 0;
    a.id = id;
    a.prompt = prompts[i];
    a.prompt_len = 1 + (i * 13) % 60;
    for (uint32_t k = 0; k < a.prompt_len; k++)
        prompts[i][k] = TR_SIM_TEXT + (k % (3 + i)) % 40;
    a.params.max_tokens = i == 9 ? 0 : 1 + (i * 29 + 40) % MAX_OUT;
    a.params.temperature = i % 3 ? 1.1 : 0;
    a.params.seed = i + 1;
    a.params.top_p = i % 5 == 1 ? 0.8 : 1;
    a.params.min_p = i % 5 == 2 ? 0.05 : 0;
    a.params.top_k = i % 4 == 1 ? 5 : 0;
    a.params.frequency_penalty = i % 4 == 2 ? 1 : 0;
    a.params.repetition_penalty = i % 6 == 4 ? 1.2 : 1;
    a.params.n_top = i % 4;
    if (i % 2)
        a.params.flags |= TR_REQ_LOGPROBS;
    if (i % 8 == 3)
        a.params.flags |= TR_REQ_ECHO_LOGPROBS;
    if (i % 3 == 0)
        a.params.flags &= ~(uint32_t)TR_REQ_IGNORE_EOS;
    extras[i] = (struct tr_extra){0};
    if (i % 6 == 5)
        extras[i] = (struct tr_extra){.grammar = image, .grammar_len = (uint32_t)image_len};
    else if (i % 4 == 0) /* it repeats itself */
        extras[i] = (struct tr_extra){.n_bias = 2,
                                      .bias = {{TR_SIM_TEXT + 7, 100}, {TR_SIM_TEXT + 9, 100}}};
    a.extra = &extras[i];
    a.area = i % 4;
    return a;
}

static void read_all(const struct tr_rig_req *q, struct answer *w)
{
    struct tr_lp lp;
    tr_rig_be_frontend(&r, q->area);
    while (w->n_lp < 256 && tr_lpring_peek(&r.s, q->slot, &lp) == 0) {
        w->lp[w->n_lp++] = lp;
        tr_lpring_pop(&r.s, q->slot);
    }
    uint32_t n = tr_rig_published(&r, q);
    tr_cursor_set(&r.s, q->slot, n, n);
}

static void note(const struct tr_rig_req *q, struct answer *w)
{
    const struct tr_ring *ring = tr_rig_ring(&r, q);
    read_all(q, w);
    w->n = tr_rig_published(&r, q);
    w->state = tr_rig_state(&r, q);
    w->finish = ring->finish;
    w->finish_index = ring->finish_index;
    w->overrun = ring->overrun;
    memcpy(w->ids, tr_rig_output(&r, q), w->n * sizeof(uint32_t));
}

/* What of a record does not depend on the time. */
static void note_bill(struct tr_bill *out, const struct tr_bill *b)
{
    out->state = b->state;
    out->finish = b->finish;
    out->err = b->err;
    out->choices = b->choices;
    out->prompt_tokens = b->prompt_tokens;
    out->completion_tokens = b->completion_tokens;
    out->overrun_tokens = b->overrun_tokens;
    out->last_token = b->last_token;
}

static void all_together(struct answer *out, struct tr_bill *billed)
{
    struct tr_rig_req q[N];
    uint32_t n = 0;
    for (uint32_t t = 0;; t++) {
        cr_assert_lt(t, 100000);
        for (uint32_t k = (uint32_t)rand() % 3; k && n < N; k--, n++) {
            struct tr_rig_ask a = ask(n);
            q[n] = tr_rig_submit(&r, &a);
        }
        bool busy = turn();
        for (uint32_t i = 0; i < n; i++)
            if (rand() % 4 == 0 || !busy)
                read_all(&q[i], &out[i]);
        if (!busy && n == N && tr_rig_bills(&r) == N)
            break;
    }
    for (uint32_t i = 0; i < N; i++) {
        const struct tr_bill *b = tr_rig_bill(&r, i);
        note(&q[i], &out[i]);
        note_bill(&billed[b->request_id[0] - 'a'], b);
    }
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 0);
}

Test(pick, a_device_gives_the_tokens_logprobs_ends_and_records_that_a_host_gives)
{
    static const struct {
        uint32_t window, max_seqs, chunk, kv;
    } runs[] = {{256, 4, 16, 0}, {8, 3, 7, 9}, {256, 32, 0, 0}, {5, 2, 40, 8}};
    uint64_t accepted = 0;
    for (uint32_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        memset(answers, 0, sizeof(answers));
        memset(bills, 0, sizeof(bills));
        for (int late = 0; late < 2; late++) {
            srand(i);
            open_rig(late, runs[i].window, runs[i].max_seqs, runs[i].chunk, runs[i].kv, i % 2 == 0);
            all_together(answers[late], bills[late]);
            accepted += tr_rig_stat(&r, TR_STAT_ACCEPTED);
            close_rig();
        }
        for (uint32_t k = 0; k < N; k++) {
            cr_assert_eq(memcmp(&answers[1][k], &answers[0][k], sizeof(answers[0][k])), 0,
                         "run %u, request %u", i, k);
            cr_assert_eq(memcmp(&bills[1][k], &bills[0][k], sizeof(bills[0][k])), 0,
                         "run %u, record of %u", i, k);
        }
    }
    cr_assert_gt(accepted, 50, "drafts are part of this");
}

/* ---- what is done when ---- */

static struct tr_rig_req submit(uint32_t max_tokens)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = max_tokens;
    return tr_rig_submit(&r, &a);
}

Test(pick, who_has_ended_is_billed_while_the_next_pass_is_under_way)
{
    open_rig(true, 256, 8, 16, 0, false);
    submit(1);
    submit(3);
    turn();
    cr_assert_eq(tr_rig_bills(&r), 0, "its token comes first");
    in_pass_at_bill = 99;
    turn();
    cr_assert_eq(first(TR_LATE_FORWARD)->bills, 0);
    cr_assert_eq(first(TR_LATE_COLLECT)->bills, 1);
    cr_assert_eq(in_pass_at_bill, 0, "a death in it is no evidence against the other");
    turn();
    cr_assert_eq(tr_rig_bills(&r), 1);
    cr_assert(turn());
    cr_assert_eq(n_calls, 0, "without a pass");
    cr_assert_eq(tr_rig_bills(&r), 2, "in its turn all the same");
    close_rig();
}

Test(pick, places_are_opened_and_given_back_while_a_pass_is_under_way)
{
    open_rig(true, 256, 8, 16, 0, false);
    struct tr_rig_req a = submit(1);
    submit(20);
    turn();
    turn();
    cr_assert_eq(first(TR_LATE_COLLECT)->open, first(TR_LATE_FORWARD)->open + 1, "one has ended");
    tr_rig_ledger_runs(&r);
    tr_rig_release(&r, &a);
    turn();
    cr_assert_eq(first(TR_LATE_FORWARD)->taken, 2);
    cr_assert_eq(first(TR_LATE_COLLECT)->taken, 1);
    close_rig();
}

Test(pick, who_waits_learns_its_place_while_a_pass_is_under_way)
{
    open_rig(true, 256, 1, 16, 0, false);
    submit(10);
    turn();
    watched = submit(1);
    turn();
    cr_assert_neq(first(TR_LATE_FORWARD)->queue_pos, 0);
    cr_assert_eq(first(TR_LATE_COLLECT)->queue_pos, 0);
    close_rig();
}

Test(pick, a_cancel_heard_before_the_launch_takes_effect_before_it)
{
    open_rig(true, 256, 8, 16, 0, false);
    struct tr_rig_req a = submit(20), b = submit(20);
    turn();
    turn();
    cr_assert_eq(first(TR_LATE_FORWARD)->n_rows, 2);
    uint32_t n = tr_rig_published(&r, &a);
    tr_rig_cancel(&r, &a, TR_ERR_CANCELLED);
    turn();
    cr_assert_eq(first(TR_LATE_FORWARD)->n_rows, 1);
    cr_assert_eq(tr_rig_state(&r, &a), TR_CANCELLED);
    cr_assert_eq(tr_rig_published(&r, &a), n);
    cr_assert_eq(first(TR_LATE_COLLECT)->bills, 1, "and it is billed in the same turn");
    cr_assert_eq(tr_rig_published(&r, &b), n + 1);
    close_rig();
}

Test(pick, a_pass_without_logits_is_waited_for_and_nothing_picked)
{
    static uint32_t prompt[100];
    open_rig(true, 256, 8, 16, 0, false);
    struct tr_rig_ask a = tr_rig_ask();
    a.prompt = prompt;
    a.prompt_len = 100;
    a.params.max_tokens = 2;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    turn();
    cr_assert_eq(n_calls, 2);
    cr_assert_eq(first(TR_LATE_COLLECT)->n_rows, 16);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q)->prefill_done), 16);
    close_rig();
}

/* ---- masks ---- */

/* The other thread has made its mask by the end of the pass, and not before. */
static void open_gate(void)
{
    gate = true;
    while (!through)
        usleep(100);
}

Test(pick, a_mask_has_the_whole_pass_before_it_is_late)
{
    open_rig(true, 256, 8, 16, 0, false);
    struct tr_extra e = {.grammar = image, .grammar_len = (uint32_t)image_len};
    struct tr_rig_ask a = tr_rig_ask();
    a.extra = &e;
    slow = true;
    at_collect = open_gate;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    turn();
    cr_assert_eq(n_calls, 4);
    cr_assert_eq(calls[1].call, TR_LATE_COLLECT, "the pass alone");
    cr_assert_eq(calls[2].call, TR_LATE_PICK);
    cr_assert_eq(tr_rig_published(&r, &q), 1);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_MASKS_LATE), 0);
    slow = false;
    close_rig();
}
