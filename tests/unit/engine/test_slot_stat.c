/* SPDX-License-Identifier: Apache-2.0 */
/* What observers see of a slot is what its ring says. */
#include "enginerig/engine_rig.h"

#include "shm/slot_stat.h"

#include <criterion/criterion.h>

static struct tr_engine_rig r;

static void close_rig(void)
{
    tr_engine_rig_close(&r);
}

TestSuite(slot_stat, .fini = close_rig);

static void open_with(uint32_t window, uint32_t chunk)
{
    struct tr_engine_rig_config c = {.shm = {.window = window, .n_areas = 2},
                                     .sched = {.prefill_chunk = chunk}};
    tr_engine_rig_open(&r, &c);
}

static void must_agree(uint32_t slot)
{
    const struct tr_slot_stat *t = &r.s.slots->slot[slot];
    const struct tr_ring *ring = tr_ring_at(&r.s, slot);
    cr_assert_eq(atomic_load(&t->state), atomic_load(&ring->state));
    if (atomic_load(&ring->state) == TR_FREE)
        return;
    cr_assert_eq(atomic_load(&t->gen), atomic_load(&ring->gen));
    cr_assert_eq(atomic_load(&t->area), tr_ring_owner(ring).area);
    cr_assert_eq(atomic_load(&t->prompt_len), ring->prompt_len);
    cr_assert_eq(atomic_load(&t->max_tokens), ring->params.max_tokens);
    cr_assert_eq(atomic_load(&t->prefilled), atomic_load(&ring->prefill_done));
    cr_assert_eq(atomic_load(&t->published), atomic_load(&ring->published));
    cr_assert_eq(atomic_load(&t->preemptions), atomic_load(&ring->preemptions));
    cr_assert_eq(atomic_load(&t->arrival_ns), ring->arrival_ns);
}

Test(slot_stat, every_turn_of_a_life_shows)
{
    open_with(64, 2);
    struct tr_rig_ask a = tr_rig_ask();
    a.area = 1;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < 40 && !tr_state_terminal(tr_rig_state(&r, &q)); i++) {
        tr_rig_turn(&r);
        must_agree(q.slot);
        seen |= 1u << atomic_load(&r.s.slots->slot[q.slot].state);
    }
    cr_assert_eq(seen, 1u << TR_PREFILL | 1u << TR_RUNNING | 1u << TR_INCOMPLETE);
    cr_assert_eq(atomic_load(&r.s.slots->slot[q.slot].area), 1);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_PUBLISHED), 16, "counted before the record is made");
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_ROWS), 3 + 15);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_SLOTS_ENDED), 1);
    tr_rig_release(&r, &q);
    tr_rig_run(&r, NULL, 0);
    must_agree(q.slot);
    cr_assert_eq(tr_rig_state(&r, &q), TR_FREE);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_SLOTS_ENDED), 0);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_SLOTS_FREE) + tr_rig_stat(&r, TR_STAT_SLOTS_OPEN), 64);
}

Test(slot_stat, cursors_are_what_the_engine_believes)
{
    open_with(8, 16);
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, NULL, 0);
    must_agree(q.slot);
    cr_assert_eq(atomic_load(&r.s.slots->slot[q.slot].state), TR_PARKED);
    cr_assert_eq(atomic_load(&r.s.slots->slot[q.slot].cursors), 0);
    tr_rig_be_frontend(&r, 0);
    tr_cursor_set(&r.s, q.slot, 7, 3);
    tr_rig_turn(&r);
    cr_assert_eq(atomic_load(&r.s.slots->slot[q.slot].cursors), 7 | 3ull << 32);
    tr_rig_be_frontend(&r, 0);
    tr_cursor_set(&r.s, q.slot, UINT64_MAX, UINT64_MAX);
    tr_rig_turn(&r);
    cr_assert_eq(atomic_load(&r.s.slots->slot[q.slot].cursors), 8 | 8ull << 32, "no nonsense");
}

Test(slot_stat, a_new_engine_writes_it_anew)
{
    open_with(64, 16);
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    tr_rig_turn(&r);
    for (uint32_t i = 0; i < r.s.config.n_slots; i++)
        atomic_store(&r.s.slots->slot[i].state, 77);
    atomic_store(&r.s.slots->slot[q.slot].published, 99);
    tr_engine_rig_crash(&r);
    tr_engine_rig_restart(&r);
    for (uint32_t i = 0; i < r.s.config.n_slots; i++)
        must_agree(i);
    cr_assert_eq(atomic_load(&r.s.slots->slot[q.slot].state), TR_WAITING);
}
