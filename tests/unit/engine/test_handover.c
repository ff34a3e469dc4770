/* SPDX-License-Identifier: Apache-2.0 */
#include "enginerig/engine_rig.h"

#include "base/clock.h"
#include "base/sim_vocab.h"
#include "shm/lpring.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

enum { WINDOW = 8 };

static struct tr_engine_rig r;

static void setup(void)
{
    struct tr_engine_rig_config c = {.shm = {.n_slots = 24,
                                             .n_admit = 16,
                                             .max_seqs = 4,
                                             .n_areas = 4,
                                             .window = WINDOW,
                                             .ledger = 1},
                                     .sched = {.prefill_chunk = 16}};
    tr_engine_rig_open(&r, &c);
}

static void teardown(void)
{
    tr_engine_rig_close(&r);
}

TestSuite(handover, .init = setup, .fini = teardown);

static struct tr_rig_ask ask_of(uint32_t area)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.area = area;
    a.params.max_tokens = 40;
    a.params.flags |= TR_REQ_RESUMABLE;
    return a;
}

static struct tr_rig_req submit(uint32_t area)
{
    struct tr_rig_ask a = ask_of(area);
    return tr_rig_submit(&r, &a);
}

static struct tr_owner owner(const struct tr_rig_req *q)
{
    return tr_ring_owner(tr_rig_ring(&r, q));
}

static void check_owner(const struct tr_rig_req *q, uint32_t area, bool confirmed)
{
    struct tr_owner o = owner(q);
    cr_assert_eq(o.area, area, "area %u", o.area);
    cr_assert_eq(o.confirmed, confirmed);
    if (area < TR_MAX_AREAS)
        cr_assert_eq(o.epoch, atomic_load(&r.s.control->area_epoch[area]));
}

static int confirm(const struct tr_rig_req *q, uint32_t area)
{
    tr_rig_be_frontend(&r, area);
    return tr_confirm(&r.s, q->slot, q->gen, 4711);
}

static int adopt(struct tr_rig_req *q, uint32_t area)
{
    tr_rig_be_frontend(&r, area);
    int ret = tr_adopt(&r.s, q->slot, q->gen, 4711);
    q->area = area;
    return ret;
}

static void says_streams(uint32_t area, uint32_t n)
{
    atomic_store(&r.s.area[area]->streams, n);
}

/* Nobody but `area` is there to be given anything. */
static void leave_only(uint32_t area)
{
    for (uint32_t a = 0; a < r.c.shm.n_areas; a++)
        if (a != area)
            tr_rig_kill_frontend(&r, a);
}

struct slots {
    uint32_t n, slot[32];
};

static void collect(void *arg, uint32_t slot)
{
    struct slots *s = arg;
    if (s->n < 32)
        s->slot[s->n++] = slot;
}

static bool has_news(uint32_t area, uint32_t slot)
{
    struct slots s = {0};
    tr_rig_be_frontend(&r, area);
    tr_news_take(&r.s, collect, &s);
    for (uint32_t i = 0; i < s.n; i++)
        if (s.slot[i] == slot)
            return true;
    return false;
}

static void turn_n(uint32_t n)
{
    while (n--)
        tr_rig_turn(&r);
}

/* ---- of the dead ---- */

Test(handover, a_dead_frontends_resumable_request_is_given_to_who_has_fewest_streams)
{
    struct tr_rig_req q = submit(0);
    struct tr_rig_ask plain = tr_rig_ask();
    struct tr_rig_req other = tr_rig_submit(&r, &plain);
    turn_n(3);
    says_streams(1, 7);
    says_streams(2, 2);
    says_streams(3, 5);
    has_news(2, 0);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    check_owner(&q, 2, false);
    cr_assert(has_news(2, q.slot));
    cr_assert_eq(tr_rig_ring(&r, &other)->err, TR_ERR_FRONTEND_LOST);
    cr_assert_eq(atomic_load(&r.s.rings->area_ack[0]), 1);
}

Test(handover, several_are_spread)
{
    struct tr_rig_req q[6];
    uint32_t got[4] = {0};
    for (uint32_t i = 0; i < 6; i++)
        q[i] = submit(0);
    tr_rig_turn(&r);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    for (uint32_t i = 0; i < 6; i++)
        got[owner(&q[i]).area]++;
    for (uint32_t a = 1; a < 4; a++)
        cr_assert_eq(got[a], 2);
}

Test(handover, what_was_submitted_but_not_taken_is_given_too)
{
    struct tr_rig_req q = submit(0);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    check_owner(&q, 1, false);
    cr_assert_eq(tr_rig_state(&r, &q), TR_RUNNING);
}

Test(handover, until_it_is_confirmed_it_parks_within_the_window_then_it_goes_on)
{
    struct tr_rig_req q = submit(0), same = submit(2);
    turn_n(3);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_run(&r, &same, 1);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
    cr_assert_eq(tr_rig_published(&r, &q), WINDOW);
    cr_assert_eq(adopt(&q, 1), 0);
    tr_rig_run(&r, &q, 1);
    check_owner(&q, 1, true);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
    cr_assert_eq(memcmp(tr_rig_output(&r, &q), tr_rig_output(&r, &same), 40 * sizeof(uint32_t)), 0);
}

Test(handover, what_stands_in_the_dead_ones_area_counts_no_more)
{
    struct tr_rig_req q = submit(0);
    turn_n(3);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    tr_rig_start_frontend(&r, 0);
    tr_cursor_set(&r.s, q.slot, 1000, 1000);
    tr_cmd_post(&r.s, q.slot, q.gen, TR_CMD_CANCEL, TR_ERR_CLIENT_GONE);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
    check_owner(&q, 1, false);
}

Test(handover, what_the_given_one_says_before_it_confirms_counts_no_more_either)
{
    struct tr_rig_req q = submit(0);
    turn_n(3);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    tr_rig_be_frontend(&r, 1); /* words of a former request in that slot */
    tr_cursor_set(&r.s, q.slot, 1000, 1000);
    tr_cmd_post(&r.s, q.slot, q.gen, TR_CMD_CANCEL, TR_ERR_CLIENT_GONE);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
    cr_assert_eq(adopt(&q, 1), 0);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED, "the command was reset");
}

Test(handover, who_was_given_it_and_dies_as_well_leaves_it_to_the_next)
{
    struct tr_rig_req q = submit(0);
    turn_n(2);
    for (uint32_t a = 0; a < 3; a++) {
        tr_rig_kill_frontend(&r, a);
        tr_rig_turn(&r);
        check_owner(&q, a + 1, false);
    }
    adopt(&q, 3);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
}

Test(handover, who_confirms_and_dies_before_the_engine_reads_it_leaves_it_to_the_next)
{
    struct tr_rig_req q = submit(0);
    turn_n(2);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    adopt(&q, 1);
    tr_rig_kill_frontend(&r, 1);
    tr_rig_turn(&r);
    check_owner(&q, 2, false);
}

Test(handover, it_waits_as_an_orphan_until_somebody_comes)
{
    struct tr_rig_req q = submit(0);
    turn_n(2);
    leave_only(TR_MAX_AREAS);
    tr_rig_run(&r, NULL, 0);
    check_owner(&q, TR_MAX_AREAS, false);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
    tr_rig_start_frontend(&r, 2);
    tr_rig_turn(&r);
    check_owner(&q, 2, false);
    cr_assert_eq(adopt(&q, 2), 0);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
}

Test(handover, a_retiring_frontend_is_given_nothing)
{
    struct tr_rig_req q = submit(0);
    turn_n(2);
    atomic_store(&r.s.control->area_retire[1], atomic_load(&r.s.control->area_epoch[1]));
    says_streams(2, 50);
    says_streams(3, 60);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    check_owner(&q, 2, false);
}

Test(handover, one_that_has_ended_is_given_and_kept_until_its_new_owner_lets_it_go)
{
    struct tr_rig_req q = submit(0);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    check_owner(&q, 1, false);
    tr_rig_ledger_runs(&r);
    has_news(1, 0);
    tr_rig_turn(&r);
    cr_assert(has_news(1, q.slot), "the ledger has rung the dead one");
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
    adopt(&q, 1);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
    tr_rig_release(&r, &q);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_FREE);
    cr_assert_eq(tr_rig_bills(&r), 1);
}

/* ---- what the former owner has said ---- */

Test(handover, a_cancel_of_the_dead_one_counts)
{
    struct tr_rig_req q = submit(0);
    turn_n(3);
    tr_rig_cancel(&r, &q, TR_ERR_CANCELLED);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_CANCELLED);
    cr_assert_eq(tr_rig_ring(&r, &q)->err, TR_ERR_CANCELLED);
    check_owner(&q, 1, false);
}

Test(handover, when_a_client_of_the_dead_one_had_gone_counts_although_no_cancel_says_so)
{
    struct tr_rig_ask a = ask_of(0);
    a.params.flags &= ~(uint32_t)TR_REQ_RESUMABLE;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    turn_n(4);
    uint64_t seen = tr_now_ns();
    tr_rig_be_frontend(&r, 0);
    atomic_store(&tr_cursor_at(&r.s, 0, q.slot)->disconnect_ns, seen);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_ring(&r, &q)->err, TR_ERR_FRONTEND_LOST);
    cr_assert_eq(tr_rig_ring(&r, &q)->disconnect_ns, seen);
}

Test(handover, a_stop_string_found_by_the_dead_one_counts)
{
    struct tr_rig_req q = submit(0);
    turn_n(5);
    tr_rig_finish(&r, &q, 3);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_COMPLETED);
    cr_assert_eq(tr_rig_ring(&r, &q)->finish_index, 3);
}

/* A DELETE that the dead one has answered: whoever is given it lets it go. */
Test(handover, what_nobody_wants_any_more_is_given_with_that_word)
{
    struct tr_rig_req over = submit(0), runs = submit(0), wanted = submit(0);
    const struct tr_rig_req *all[] = {&over, &runs, &wanted};
    tr_rig_run(&r, &over, 1);
    for (int i = 0; i < 2; i++) {
        tr_rig_be_frontend(&r, 0);
        tr_cmd_post(&r.s, all[i]->slot, all[i]->gen, TR_CMD_CANCEL | TR_CMD_UNWANTED,
                    TR_ERR_CANCELLED);
    }
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(owner(all[i]).confirmed, false, "%d", i);
        cr_assert_eq(atomic_load(&tr_rig_ring(&r, all[i])->unwanted), i < 2, "%d", i);
    }
    cr_assert_eq(tr_rig_state(&r, &over), TR_INCOMPLETE, "its end stays");
    cr_assert_eq(tr_rig_state(&r, &runs), TR_CANCELLED);
}

Test(handover, a_new_engine_hears_that_nobody_wants_it)
{
    struct tr_rig_req q = submit(0);
    tr_rig_run(&r, &q, 1);
    tr_engine_rig_crash(&r);
    tr_rig_be_frontend(&r, 0);
    tr_cmd_post(&r.s, q.slot, q.gen, TR_CMD_CANCEL | TR_CMD_UNWANTED, TR_ERR_CANCELLED);
    tr_rig_kill_frontend(&r, 0);
    tr_engine_rig_restart(&r);
    check_owner(&q, 1, false);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q)->unwanted), 1);
}

Test(handover, what_the_dead_one_had_released_is_not_given)
{
    struct tr_rig_req q = submit(0);
    tr_rig_run(&r, &q, 1);
    tr_rig_ledger_runs(&r);
    tr_rig_release(&r, &q);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_FREE);
}

Test(handover, an_end_waits_for_the_new_owners_scan_however_far_the_dead_one_was)
{
    struct tr_rig_ask a = ask_of(0);
    a.params.max_tokens = 6;
    a.params.flags |= TR_REQ_STOP_STRINGS;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    turn_n(5);
    tr_rig_read_all(&r, &q);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_published(&r, &q), 6);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
    adopt(&q, 1);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
    tr_rig_finish(&r, &q, 4);
    tr_cursor_set(&r.s, q.slot, 6, 4);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_COMPLETED);
    cr_assert_eq(tr_rig_ring(&r, &q)->finish_index, 4);
}

/* ---- adopted by another ---- */

Test(handover, who_adopts_has_it_and_the_former_owners_words_are_void)
{
    struct tr_rig_req q = submit(0), old = q;
    turn_n(3);
    has_news(0, 0);
    has_news(2, 0);
    cr_assert_eq(adopt(&q, 2), 0);
    tr_rig_turn(&r);
    check_owner(&q, 2, true);
    cr_assert(has_news(2, q.slot));
    cr_assert(has_news(0, q.slot), "who has lost it is told");
    tr_rig_cancel(&r, &old, TR_ERR_CLIENT_GONE);
    tr_rig_release(&r, &old);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
    tr_rig_ledger_runs(&r);
    tr_rig_release(&r, &old);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
    tr_rig_release(&r, &q);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_FREE);
}

Test(handover, a_cancel_before_the_adoption_counts)
{
    struct tr_rig_req q = submit(0), old = q;
    turn_n(3);
    adopt(&q, 1);
    tr_rig_cancel(&r, &old, TR_ERR_CANCELLED);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_CANCELLED);
    check_owner(&q, 1, true);
}

Test(handover, what_its_owner_has_released_cannot_be_adopted)
{
    struct tr_rig_req q = submit(0), old = q;
    tr_rig_run(&r, &q, 1);
    adopt(&q, 1);
    tr_rig_release(&r, &old);
    tr_rig_turn(&r);
    check_owner(&q, 0, true);
    tr_rig_ledger_runs(&r);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_FREE);
}

Test(handover, of_two_who_adopt_the_last_one_heard_has_it)
{
    struct tr_rig_req q = submit(0);
    turn_n(2);
    adopt(&q, 3);
    adopt(&q, 1);
    tr_rig_turn(&r);
    check_owner(&q, 3, true); /* areas are read in their order */
    adopt(&q, 1);
    tr_rig_turn(&r);
    check_owner(&q, 1, true);
    cr_assert_eq(adopt(&q, 1), -EALREADY);
}

/* It stood still between the news and the confirmation. */
Test(handover, who_was_given_it_confirms_no_more_once_a_reader_has_it_elsewhere)
{
    struct tr_rig_req q = submit(0), given;
    turn_n(2);
    leave_only(1);
    tr_rig_turn(&r);
    check_owner(&q, 1, false);
    given = q;
    tr_rig_start_frontend(&r, 2);
    cr_assert_eq(adopt(&q, 2), 0);
    tr_rig_turn(&r);
    check_owner(&q, 2, true);
    cr_assert_eq(confirm(&given, 1), -ESTALE);
    tr_rig_turn(&r);
    check_owner(&q, 2, true);
}

Test(handover, a_late_confirmation_does_not_take_it_from_a_reader)
{
    struct tr_rig_req q = submit(0);
    turn_n(2);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    check_owner(&q, 1, false);
    adopt(&q, 1);
    struct tr_msg m = {.kind = TR_MSG_ADOPT, .slot = q.slot, .gen = q.gen, .stream_rand = 4711};
    tr_rig_be_frontend(&r, 2);
    cr_assert_eq(tr_subq_push(&r.s, &m, 1), 0);
    tr_rig_turn(&r); /* the confirmation, then the adoption */
    check_owner(&q, 2, true);
    m.kind = TR_MSG_CONFIRM;
    tr_rig_be_frontend(&r, 1);
    cr_assert_eq(tr_subq_push(&r.s, &m, 1), 0);
    tr_rig_turn(&r);
    check_owner(&q, 2, true);
}

Test(handover, an_adoption_by_somebody_who_dies_leaves_it_to_the_next)
{
    struct tr_rig_req q = submit(0);
    turn_n(2);
    adopt(&q, 1);
    tr_rig_turn(&r);
    check_owner(&q, 1, true);
    tr_rig_kill_frontend(&r, 1);
    says_streams(0, 3);
    says_streams(2, 1);
    says_streams(3, 2);
    tr_rig_turn(&r);
    check_owner(&q, 2, false);
}

/* Its reader has lost his connection before, and may have asked another one since. */
Test(handover, who_asks_and_is_dead_before_he_is_heard_takes_it_from_nobody)
{
    struct tr_rig_req q = submit(0);
    turn_n(2);
    adopt(&q, 3);
    adopt(&q, 1);
    tr_rig_kill_frontend(&r, 3);
    tr_rig_turn(&r);
    check_owner(&q, 1, true);
}

Test(handover, a_cursor_moved_before_the_engine_reads_the_adoption_is_seen)
{
    struct tr_rig_req q = submit(0);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
    /* The dirty bit is taken in a turn that does not know the new owner yet. */
    tr_rig_be_frontend(&r, 1);
    tr_cursor_reset(&r.s, q.slot, q.gen);
    tr_cursor_set(&r.s, q.slot, WINDOW, WINDOW);
    tr_rig_run(&r, NULL, 0);
    struct tr_msg m = {.kind = TR_MSG_ADOPT, .slot = q.slot, .gen = q.gen, .stream_rand = 4711};
    tr_rig_be_frontend(&r, 1);
    tr_subq_push(&r.s, &m, 1);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_published(&r, &q), 2 * WINDOW);
}

Test(handover, a_cursor_whose_bit_was_lost_is_seen_in_the_end)
{
    struct tr_rig_req q = submit(0);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
    atomic_store(&tr_cursor_at(&r.s, 0, q.slot)->scanned, WINDOW);
    atomic_store(&tr_cursor_at(&r.s, 0, q.slot)->sent, WINDOW);
    tr_rig_turn(&r);
    turn_n(256 + WINDOW);
    cr_assert_eq(tr_rig_published(&r, &q), 2 * WINDOW);
}

/* A reader that catches up between two looks of the engine: before the second one from here. */
static struct {
    uint32_t slot, looks; /* looks 0: not armed */
} quick;

struct tr_cursor *__real_tr_cursor_at(const struct tr_shm *s, uint32_t area, uint32_t slot);
struct tr_cursor *__wrap_tr_cursor_at(const struct tr_shm *s, uint32_t area, uint32_t slot);

struct tr_cursor *__wrap_tr_cursor_at(const struct tr_shm *s, uint32_t area, uint32_t slot)
{
    struct tr_cursor *c = __real_tr_cursor_at(s, area, slot);
    if (tr_role == TR_ROLE_ENGINE && quick.looks && slot == quick.slot && --quick.looks == 0) {
        atomic_store(&c->scanned, WINDOW);
        atomic_store(&c->sent, WINDOW);
    }
    return c;
}

/* With one slot, the turn that puts its request aside is also the one in which its number comes up. */
Test(handover, a_cursor_that_moves_in_the_turn_that_puts_its_request_aside)
{
    tr_engine_rig_close(&r);
    struct tr_engine_rig_config c = {
        .shm = {.n_slots = 1, .n_admit = 1, .max_seqs = 1, .window = WINDOW, .ledger = 1}};
    tr_engine_rig_open(&r, &c);
    struct tr_rig_req q = submit(0);
    while (tr_rig_state(&r, &q) != TR_PARKED)
        tr_rig_turn(&r);
    quick.slot = q.slot;
    quick.looks = 2;
    turn_n(2 * WINDOW);
    cr_assert_eq(quick.looks, 0);
    cr_assert_eq(tr_rig_published(&r, &q), 2 * WINDOW);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_SLOTS_BUSY), 1, "it is there once");
}

Test(handover, an_adoption_of_nothing_that_fits_is_refused)
{
    struct tr_rig_ask plain = tr_rig_ask();
    struct tr_rig_req q = submit(0), fixed = tr_rig_submit(&r, &plain);
    turn_n(2);
    tr_rig_be_frontend(&r, 1);
    cr_assert_eq(tr_adopt(&r.s, q.slot, q.gen + 1, 4711), -ESTALE);
    cr_assert_eq(tr_adopt(&r.s, q.slot, q.gen, 4712), -ESTALE);
    cr_assert_eq(tr_adopt(&r.s, fixed.slot, fixed.gen, 4711), -ESTALE);
    cr_assert_eq(tr_adopt(&r.s, UINT32_MAX, 1, 4711), -ESTALE);
    struct tr_msg m[] = {{TR_MSG_ADOPT, q.slot, q.gen + 1, 0, 4711, 0},
                         {TR_MSG_ADOPT, q.slot, q.gen, 0, 4712, 0},
                         {TR_MSG_ADOPT, fixed.slot, fixed.gen, 0, 4711, 0},
                         {TR_MSG_ADOPT, 99999, 1, 0, 4711, 0},
                         {TR_MSG_CONFIRM, 23, 1, 0, 0, 0}};
    for (uint32_t i = 0; i < 5; i++)
        cr_assert_eq(tr_subq_push(&r.s, &m[i], 1), 0);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_REFUSED_SUBMISSIONS), 5);
    check_owner(&q, 0, true);
    check_owner(&fixed, 0, true);
}

/* ---- what a frontend is to take ---- */

static bool is_due(uint32_t area, const struct tr_rig_req *q)
{
    uint32_t gen = 0;
    tr_rig_be_frontend(&r, area);
    return tr_adopt_is_due(&r.s, q->slot, &gen) && gen == q->gen;
}

Test(handover, what_was_given_is_due_until_it_is_released)
{
    struct tr_rig_req q = submit(0);
    tr_rig_run(&r, &q, 1);
    cr_assert(!is_due(1, &q));
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    cr_assert(is_due(1, &q));
    cr_assert(!is_due(2, &q));
    adopt(&q, 1);
    tr_rig_turn(&r);
    cr_assert(is_due(1, &q), "should it have been forgotten");
    tr_rig_release(&r, &q);
    cr_assert(!is_due(1, &q));
}

Test(handover, a_release_that_came_too_late_does_not_keep_it_from_being_taken_again)
{
    struct tr_rig_req q = submit(1), old = q;
    tr_rig_run(&r, &q, 1);
    adopt(&q, 2);
    tr_rig_turn(&r);
    tr_rig_release(&r, &old); /* has not heard of it yet */
    tr_rig_turn(&r);
    tr_rig_kill_frontend(&r, 2);
    says_streams(0, 1);
    says_streams(3, 1);
    tr_rig_turn(&r);
    check_owner(&q, 1, false);
    cr_assert(is_due(1, &q));
    adopt(&q, 1);
    tr_rig_ledger_runs(&r);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE, "that release was about nothing");
    tr_rig_release(&r, &q);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_FREE);
}

Test(handover, an_adoption_is_answered_with_news_whatever_came_of_it)
{
    struct tr_rig_req q = submit(0);
    turn_n(2);
    has_news(1, 0);
    struct tr_msg m = {.kind = TR_MSG_ADOPT, .slot = q.slot, .gen = q.gen + 1};
    tr_rig_be_frontend(&r, 1);
    cr_assert_eq(tr_subq_push(&r.s, &m, 1), 0);
    tr_rig_turn(&r);
    cr_assert(has_news(1, q.slot));
}

/* ---- cancel by others ---- */

static void cancel_from(uint32_t area, const struct tr_rig_req *q)
{
    struct tr_msg m = {.kind = TR_MSG_CANCEL, .slot = q->slot, .gen = q->gen, .stream_rand = 4711};
    tr_rig_be_frontend(&r, area);
    tr_subq_push(&r.s, &m, 1);
}

Test(handover, a_cancel_of_one_that_has_ended_tells_its_owner_that_nobody_wants_it)
{
    struct tr_rig_req q = submit(0);
    tr_rig_run(&r, &q, 1);
    tr_rig_ledger_runs(&r);
    tr_rig_turn(&r);
    has_news(0, 0);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q)->unwanted), 0);
    cancel_from(2, &q);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE, "its end stays");
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q)->unwanted), 1);
    cr_assert(has_news(0, q.slot));
    tr_rig_release(&r, &q);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_FREE);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q)->unwanted), 0);
}

Test(handover, a_question_about_one_is_noted_in_its_ring_until_the_slot_is_free)
{
    struct tr_rig_req q = submit(0);
    struct tr_msg m = {.kind = TR_MSG_WANTED, .slot = q.slot, .gen = q.gen, .stream_rand = 4711};
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q)->asked_ns), 0);
    tr_rig_be_frontend(&r, 2);
    tr_subq_push(&r.s, &m, 1);
    tr_rig_turn(&r);
    cr_assert_neq(atomic_load(&tr_rig_ring(&r, &q)->asked_ns), 0);
    tr_rig_ledger_runs(&r);
    tr_rig_release(&r, &q);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_FREE);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q)->asked_ns), 0);
}

Test(handover, a_question_needs_the_random_bits)
{
    struct tr_rig_req q = submit(0);
    struct tr_msg m = {.kind = TR_MSG_WANTED, .slot = q.slot, .gen = q.gen, .stream_rand = 4712};
    tr_rig_turn(&r);
    uint64_t before = tr_rig_stat(&r, TR_STAT_REFUSED_SUBMISSIONS);
    tr_rig_be_frontend(&r, 2);
    tr_subq_push(&r.s, &m, 1);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_REFUSED_SUBMISSIONS), before + 1);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q)->asked_ns), 0);
}

Test(handover, a_cancel_of_an_orphan_lets_its_slot_go)
{
    struct tr_rig_req q = submit(0);
    turn_n(3);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_kill_frontend(&r, 2);
    tr_rig_kill_frontend(&r, 3);
    atomic_store(&r.s.control->area_retire[1], atomic_load(&r.s.control->area_epoch[1]));
    tr_rig_turn(&r);
    check_owner(&q, TR_MAX_AREAS, false);
    cancel_from(1, &q);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_CANCELLED);
    tr_rig_ledger_runs(&r);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_FREE);
}

/* ---- the rest ---- */

Test(handover, a_group_is_never_resumable)
{
    struct tr_rig_ask a[2] = {ask_of(0), ask_of(0)};
    struct tr_rig_req q[2];
    cr_assert_eq(tr_rig_submit_group(&r, a, 2, q), 0);
    tr_rig_turn(&r);
    for (uint32_t i = 0; i < 2; i++) {
        cr_assert_eq(tr_rig_ring(&r, &q[i])->err, TR_ERR_BAD_SUBMISSION);
        cr_assert_eq(tr_rig_ring(&r, &q[i])->params.flags, 0);
    }
}

Test(handover, a_frontend_that_died_while_there_was_no_engine_is_found)
{
    struct tr_rig_req q = submit(0), same = submit(2);
    turn_n(3);
    tr_rig_cancel(&r, &same, TR_ERR_CANCELLED);
    tr_engine_rig_crash(&r);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_kill_frontend(&r, 2);
    tr_engine_rig_restart(&r);
    check_owner(&q, 1, false);
    cr_assert_eq(tr_rig_state(&r, &same), TR_CANCELLED, "its last word");
    check_owner(&same, 3, false);
    cr_assert_eq(adopt(&q, 1), 0);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
}

Test(handover, a_new_engine_knows_who_has_not_confirmed)
{
    struct tr_rig_req q = submit(0);
    turn_n(3);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    tr_rig_be_frontend(&r, 1); /* words of a former request in that slot */
    tr_cmd_post(&r.s, q.slot, q.gen, TR_CMD_CANCEL, TR_ERR_CLIENT_GONE);
    tr_engine_rig_restart(&r);
    tr_rig_run(&r, NULL, 0);
    check_owner(&q, 1, false);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
    adopt(&q, 1);
    tr_engine_rig_restart(&r);
    check_owner(&q, 1, false);
    tr_rig_run(&r, &q, 1);
    check_owner(&q, 1, true);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE, "the message had waited");
}

Test(handover, an_orphan_stays_one_over_a_new_engine)
{
    struct tr_rig_req q = submit(0);
    turn_n(3);
    leave_only(TR_MAX_AREAS);
    tr_rig_turn(&r);
    tr_engine_rig_restart(&r);
    tr_rig_run(&r, NULL, 0);
    check_owner(&q, TR_MAX_AREAS, false);
    tr_rig_start_frontend(&r, 3);
    tr_rig_turn(&r);
    check_owner(&q, 3, false);
}

Test(handover, logprobs_wait_for_the_new_owner_and_begin_anew)
{
    struct tr_rig_ask a = ask_of(0);
    a.params.flags |= TR_REQ_LOGPROBS;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    turn_n(4);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_run(&r, NULL, 0);
    uint32_t before = tr_rig_published(&r, &q);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
    cr_assert_leq(before, 4);
    adopt(&q, 1);
    tr_cursor_set(&r.s, q.slot, before, before);
    tr_rig_run(&r, NULL, 0);
    struct tr_lp e;
    tr_rig_be_frontend(&r, 1);
    for (uint32_t i = before; i < before + WINDOW; i++) {
        cr_assert_eq(tr_lpring_peek(&r.s, q.slot, &e), 0);
        cr_assert_eq(e.id, tr_rig_output(&r, &q)[i]);
        tr_lpring_pop(&r.s, q.slot);
    }
    cr_assert_eq(tr_lpring_peek(&r.s, q.slot, &e), -EAGAIN);
    tr_rig_read_all(&r, &q);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
}

Test(handover, who_has_lost_it_reads_no_logprobs)
{
    struct tr_rig_ask a = ask_of(0);
    a.params.flags |= TR_REQ_LOGPROBS;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    struct tr_lp e;
    turn_n(3);
    tr_rig_be_frontend(&r, 0);
    cr_assert_eq(tr_lpring_peek(&r.s, q.slot, &e), 0);
    adopt(&q, 1);
    tr_rig_turn(&r);
    tr_rig_be_frontend(&r, 0);
    cr_assert_eq(tr_lpring_peek(&r.s, q.slot, &e), -EAGAIN);
}

Test(handover, the_cut_ends_orphans_too)
{
    struct tr_rig_req q = submit(0);
    turn_n(3);
    leave_only(TR_MAX_AREAS);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
    tr_rig_drain(&r, TR_DRAIN_CUT);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_ring(&r, &q)->err, TR_ERR_DRAIN_LIMIT);
    cr_assert(tr_sched_done(r.sched));
}

/* A request that changes hands at random, while anybody may die, is billed once and its slot comes back. */
Test(handover, any_order, .timeout = 100)
{
    enum { ROUNDS = 300, N = 8 };
    struct tr_rig_req q[N];
    uint64_t submitted = 0;
    srand(22);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < N; i++, submitted++)
            q[i] = submit((uint32_t)rand() % 4);
        for (uint32_t k = 0; k < 40; k++) {
            struct tr_rig_req *x = &q[rand() % N];
            uint32_t area = (uint32_t)rand() % 4;
            bool alive = atomic_load(&r.s.control->area_alive[area]);
            switch (rand() % 7) {
            case 0:
                if (alive && rand() % 3 == 0)
                    tr_rig_kill_frontend(&r, area);
                else if (!alive && atomic_load(&r.s.rings->area_ack[area]) ==
                                       atomic_load(&r.s.control->area_epoch[area]))
                    tr_rig_start_frontend(&r, area);
                break;
            case 1:
            case 2:
                if (alive)
                    adopt(x, area);
                break;
            case 3:
                if (alive && x->area == area)
                    tr_rig_read_all(&r, x);
                break;
            case 4:
                if (alive && rand() % 8 == 0)
                    cancel_from(area, x);
                break;
            case 5:
                if (rand() % 4 == 0)
                    tr_engine_rig_restart(&r);
                break;
            default:
                tr_rig_turn(&r);
            }
        }
        for (uint32_t a = 0; a < 4; a++)
            if (!atomic_load(&r.s.control->area_alive[a])) {
                tr_rig_turn(&r);
                tr_rig_start_frontend(&r, a);
            }
        tr_rig_turn(&r);
        for (uint32_t i = 0; i < N; i++) {
            struct tr_owner o = owner(&q[i]);
            if (o.area == TR_MAX_AREAS ||
                o.epoch != atomic_load(&r.s.control->area_epoch[o.area])) {
                cr_assert_eq(tr_rig_state(&r, &q[i]), TR_CANCELLED, "when it had no owner");
                continue;
            }
            adopt(&q[i], o.area);
            tr_rig_turn(&r);
            check_owner(&q[i], q[i].area, true);
            tr_rig_read_all(&r, &q[i]);
        }
        tr_rig_run(&r, q, N);
        tr_rig_ledger_runs(&r);
        for (uint32_t i = 0; i < N; i++)
            tr_rig_release(&r, &q[i]);
        tr_rig_run(&r, NULL, 0);
        cr_assert_eq(tr_rig_bills(&r), submitted, "round %u", round);
        cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_TAKEN), 0, "round %u", round);
        cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_OPEN), r.c.shm.n_admit);
    }
}
