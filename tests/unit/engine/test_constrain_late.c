/* SPDX-License-Identifier: Apache-2.0 */
/* Masks that take longer than a step has for them: whose sequences sit out, and who goes on.  How long a mask
 * takes is what this says: the step's own thread is stopped by its allowance of work, the other one by a
 * gate that the test opens. */
#include "engine/constrain.h"

#include "base/sim_vocab.h"
#include "enginerig/engine_rig.h"
#include "grammar/build.h"
#include "grammar/mask.h"
#include "testlib/sim_pieces.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOWS = 3, MAX_OUT = 12, STEP = TR_CONSTRAIN_STEP_WORK, MASK = TR_CONSTRAIN_MASK_WORK };

/* ---- masks that are as slow as they are said to be ---- */

static bool slow;             /* all of them need more than they are allowed */
static _Atomic int gate;      /* so many the other thread may finish */
static _Atomic uint64_t used; /* work by the step's thread since it was last looked at */
static _Atomic int begun;     /* that the other thread has taken up */
static _Atomic int stopped;   /* left off because nobody wants them */

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
bool __real_tr_gmasks_try(struct tr_gmasks *c, const struct tr_gprog *p, const struct tr_gmatch *m,
                          uint32_t *mask, uint64_t *allowed, const atomic_bool *stop, bool *some);
bool __wrap_tr_gmasks_try(struct tr_gmasks *c, const struct tr_gprog *p, const struct tr_gmatch *m,
                          uint32_t *mask, uint64_t *allowed, const atomic_bool *stop, bool *some);

bool __wrap_tr_gmasks_try(struct tr_gmasks *c, const struct tr_gprog *p, const struct tr_gmatch *m,
                          uint32_t *mask, uint64_t *allowed, const atomic_bool *stop, bool *some)
{
    if (slow && *allowed != UINT64_MAX) {
        atomic_fetch_add(&used, *allowed);
        *allowed = 0;
        return false;
    }
    if (slow)
        atomic_fetch_add(&begun, 1);
    for (int n = 0; slow && (n = atomic_load(&gate),
                            n == 0 || !atomic_compare_exchange_strong(&gate, &n, n - 1));) {
        if (stop && atomic_load(stop)) {
            atomic_fetch_add(&stopped, 1);
            return false;
        }
        usleep(100);
    }
    return __real_tr_gmasks_try(c, p, m, mask, allowed, stop, some);
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- requests ---- */

static struct tr_engine_rig r;
static uint8_t image[TR_GRAM_BYTES];
static size_t image_len;
static void *pieces;
static size_t pieces_len;
static struct tr_extra extra;

static void setup(void)
{
    struct tr_errbuf err = {""};
    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode letters =
        tr_g_repeat(b, tr_g_class(b, &(struct tr_grange){'a', 'z'}, 1, false), 1, TR_G_INF);
    cr_assert_eq(tr_gbuild_finish(b, letters, image, sizeof(image), &image_len, &err), 0, "%s",
                 err.msg);
    tr_gbuild_free(b);
    extra = (struct tr_extra){.grammar = image, .grammar_len = (uint32_t)image_len};
    cr_assert_eq(tr_gpieces_build(TR_SIM_VOCAB_SIZE, sim_piece, NULL, &pieces, &pieces_len), 0);
    struct tr_engine_rig_config c = {
        .shm = {.n_slots = 24, .n_admit = 16, .max_seqs = 8, .window = 64},
        .sched = {.prefill_chunk = 16, .pieces = pieces, .pieces_len = pieces_len}};
    tr_engine_rig_open(&r, &c);
    slow = true;
    gate = begun = stopped = 0;
    used = 0;
}

static void teardown(void)
{
    slow = false;
    gate = 1000;
    tr_engine_rig_close(&r);
    free(pieces);
}

TestSuite(constrain_late, .init = setup, .fini = teardown, .timeout = 100);

static struct tr_rig_req submit(bool bound, uint64_t seed)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = MAX_OUT;
    a.params.temperature = 1;
    a.params.seed = seed;
    if (bound)
        a.extra = &extra;
    return tr_rig_submit(&r, &a);
}

static void turns(int n)
{
    while (n--)
        tr_rig_turn(&r);
}

/* Lets one mask through, and turns until somebody has got his token by it. */
static void let_through(const struct tr_rig_req *q, uint32_t n)
{
    uint32_t before = 0, now = 0;
    for (uint32_t i = 0; i < n; i++)
        before += tr_rig_published(&r, &q[i]);
    atomic_fetch_add(&gate, 1);
    for (int i = 0; i < 100000 && now <= before; i++) {
        turns(1);
        now = 0;
        for (uint32_t k = 0; k < n; k++)
            now += tr_rig_published(&r, &q[k]);
        usleep(50);
    }
    cr_assert_eq(now, before + 1);
}

/* ---- claims ---- */

Test(constrain_late, whose_mask_is_not_made_sits_out_and_the_others_go_on)
{
    struct tr_rig_req s = submit(true, 1), plain = submit(false, 2);
    turns(1);
    for (uint32_t i = 1; i < MAX_OUT; i++) {
        uint32_t n = tr_rig_published(&r, &plain);
        turns(1);
        cr_expect_eq(tr_rig_published(&r, &plain), n + 1, "a token in each step");
    }
    cr_expect_eq(tr_rig_published(&r, &s), 0u);
    cr_expect_eq(tr_rig_state(&r, &plain), TR_INCOMPLETE);
    cr_expect_eq(tr_rig_stat(&r, TR_STAT_MASKS_LATE), 1u, "tried once, not in each step");
    let_through(&s, 1);
    cr_expect_eq(tr_rig_published(&r, &s), 1u);
}

Test(constrain_late, a_step_does_no_more_for_all_masks_than_it_has_work_for)
{
    struct tr_rig_req q[7];
    for (uint32_t i = 0; i < 7; i++)
        q[i] = submit(true, i);
    submit(false, 9);
    for (int i = 0; i < 10; i++) {
        atomic_store(&used, 0);
        turns(1);
        cr_expect_leq(atomic_load(&used), (uint64_t)STEP);
    }
    for (uint32_t i = 0; i < 7; i++)
        cr_expect_eq(tr_rig_published(&r, &q[i]), 0u);
    cr_expect_leq(MASK, STEP / 2, "one mask leaves something to the others");
}

Test(constrain_late, those_that_wait_are_served_in_turn)
{
    struct tr_rig_req q[SLOWS];
    for (uint32_t i = 0; i < SLOWS; i++)
        q[i] = submit(true, i);
    turns(3);
    for (uint32_t round = 1; round <= 3; round++) {
        for (uint32_t i = 0; i < SLOWS; i++)
            let_through(q, SLOWS);
        for (uint32_t i = 0; i < SLOWS; i++)
            cr_expect_eq(tr_rig_published(&r, &q[i]), round, "%u", i);
    }
}

Test(constrain_late, the_tokens_are_those_of_a_run_without_waits)
{
    uint32_t ids[SLOWS][MAX_OUT];
    for (int run = 0; run < 2; run++) {
        struct tr_rig_req q[SLOWS];
        slow = run;
        for (uint32_t i = 0; i < SLOWS; i++)
            q[i] = submit(true, i + 1);
        for (uint32_t i = 0; run && i < SLOWS * MAX_OUT; i++)
            let_through(q, SLOWS);
        slow = false;
        tr_rig_run(&r, q, SLOWS);
        for (uint32_t i = 0; i < SLOWS; i++) {
            cr_assert_eq(tr_rig_published(&r, &q[i]), MAX_OUT);
            const uint32_t *out = tr_rig_output(&r, &q[i]);
            if (!run)
                memcpy(ids[i], out, sizeof(ids[i]));
            cr_expect_arr_eq(out, ids[i], sizeof(ids[i]), "run %d, request %u", run, i);
        }
    }
}

Test(constrain_late, one_that_is_cancelled_is_not_made_to_its_end)
{
    struct tr_rig_req s = submit(true, 1), other = submit(true, 2);
    turns(3);
    for (int i = 0; i < 100000 && !atomic_load(&begun); i++)
        usleep(100); /* the other thread has its turn when it has it */
    tr_rig_cancel(&r, &s, TR_ERR_CLIENT_GONE);
    turns(1);
    cr_expect_eq(tr_rig_state(&r, &s), TR_CANCELLED);
    cr_expect_eq(atomic_load(&stopped), 1);
    let_through(&other, 1);
}

Test(constrain_late, who_waits_for_masks_alone_is_heard_of_again_in_the_next_turn)
{
    struct tr_rig_req s = submit(true, 1);
    turns(3);
    cr_expect(tr_rig_turn(&r), "the engine does not go to sleep on it");
    let_through(&s, 1);
}

Test(constrain_late, an_engine_that_dies_with_one_in_work_takes_it_up_again)
{
    struct tr_rig_req s = submit(true, 1);
    turns(3);
    let_through(&s, 1);
    tr_engine_rig_restart(&r);
    let_through(&s, 1);
    cr_expect_eq(tr_rig_published(&r, &s), 2u);
}
