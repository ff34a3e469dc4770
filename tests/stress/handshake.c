/* SPDX-License-Identifier: Apache-2.0 */
/* The handshakes that need a full fence on both sides, in every order that a machine with delayed
 * stores permits (tso.h): the one who waits sees the work, or is rung.  Compiled with shm/bell.c,
 * shm/area.c, shm/bitmap.c and shm/lpring.c on the simulator; tests/stress/shm.c races the same on the
 * real one. */
#include "shm/bell.h"
#include "shm/lpring.h"
#include "testlib/shm_rig.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SLOT = 2 };

static struct shm_rig rig;
static struct tr_shm *s;
static bool saw;  /* what the waiting side found */
static bool pops; /* the cursor that moves is that of the logprob ring */

static bool was_rung(void)
{
    uint64_t n;
    return read(s->bell_engine, &n, sizeof(n)) == (ssize_t)sizeof(n);
}

static bool nobody_misses(void)
{
    return was_rung() || saw;
}

static void nothing_yet(void)
{
    saw = false;
    was_rung();
    tr_role = TR_ROLE_FRONTEND;
    tr_area_init(s);
    atomic_store_explicit(&s->rings->sleeping, 0, memory_order_relaxed);
    atomic_store_explicit(&tr_ring_at(s, SLOT)->wants_cursor, 0, memory_order_relaxed);
}

/* ---- sleeping: the engine announces it, looks once more, sleeps ---- */

static void submit(void)
{
    tr_role = TR_ROLE_FRONTEND;
    struct tr_msg m = {.kind = TR_MSG_SUBMIT, .slot = SLOT};
    tr_subq_push(s, &m, 1);
}

static void sleep_unless_submitted(void)
{
    tr_role = TR_ROLE_ENGINE;
    struct tr_msg m;
    tr_bell_sleep(&s->rings->sleeping);
    saw = tr_subq_peek(s, 0, &m, 1) == 1;
}

static void found(void *arg, uint32_t area, uint32_t slot, uint64_t word)
{
    (void)area;
    *(bool *)arg = slot == SLOT && tr_cmd_flags(word) == TR_CMD_CANCEL;
}

static void command(void)
{
    tr_role = TR_ROLE_FRONTEND;
    tr_cmd_post(s, SLOT, 1, TR_CMD_CANCEL, 0);
}

static void sleep_unless_commanded(void)
{
    tr_role = TR_ROLE_ENGINE;
    tr_bell_sleep(&s->rings->sleeping);
    tr_cmd_sweep(s, 0, found, &saw);
}

static void nothing_dirty(void)
{
    bool any;
    nothing_yet();
    tr_role = TR_ROLE_ENGINE;
    tr_cmd_sweep(s, 0, found, &any);
}

/* ---- parking: the engine asks to be told, looks at the cursors, and from then on only at dirty bits */

static void awake_lp(void)
{
    nothing_dirty();
    pops = true;
}

static void asleep_lp(void)
{
    awake_lp();
    atomic_store_explicit(&s->rings->sleeping, 1, memory_order_relaxed);
}

static void asleep(void)
{
    asleep_lp();
    pops = false;
}

static void move_cursor(void)
{
    tr_role = TR_ROLE_FRONTEND;
    tr_cursor_set(s, SLOT, 7, 7);
}

static void pop_entry(void)
{
    tr_role = TR_ROLE_FRONTEND;
    tr_lpring_pop(s, SLOT);
}

/* At the one that moves: each further operation multiplies the orders. */
static void look_at_cursors(void)
{
    const struct tr_cursor *c = tr_cursor_at(s, 0, SLOT);
    saw |= atomic_load_explicit(pops ? &c->lp_head : &c->sent, memory_order_relaxed) != 0;
}

/* A bit without the cursor it is about is worth nothing: the sweep looks, and not again. */
static void dirty_slot(void *arg, uint32_t area, uint32_t slot, uint64_t word)
{
    (void)arg, (void)area, (void)word;
    if (slot == SLOT)
        look_at_cursors();
}

static void park(void)
{
    tr_role = TR_ROLE_ENGINE;
    tr_cursor_want(s, SLOT);
    look_at_cursors();
}

/* As the engine's loop does: the turn before the sleep takes the bits and looks at what it parked
 * last; what it parked earlier it knows by the bits alone. */
static void park_and_sleep(void)
{
    tr_role = TR_ROLE_ENGINE;
    tr_cursor_want(s, SLOT);
    look_at_cursors();
    tr_bell_sleep(&s->rings->sleeping);
    tr_cmd_sweep(s, 0, dirty_slot, NULL);
}

/* The engine looked in time, or it is rung and then finds the bit. */
static bool reader_is_seen(void)
{
    if (saw)
        return true;
    tr_role = TR_ROLE_ENGINE;
    bool rung = was_rung();
    tr_cmd_sweep(s, 0, dirty_slot, NULL);
    return rung && saw;
}

static const struct {
    const char *name;
    struct tso_case c;
} cases[] = {
    {"submit", {nothing_yet, {submit, sleep_unless_submitted}, nobody_misses}},
    {"command", {nothing_dirty, {command, sleep_unless_commanded}, nobody_misses}},
    {"park", {asleep, {move_cursor, park}, reader_is_seen}},
    {"park_lp", {asleep_lp, {pop_entry, park}, reader_is_seen}},
    {"park_and_sleep", {awake_lp, {pop_entry, park_and_sleep}, reader_is_seen}},
};

int main(void)
{
    int passed = 0, failed = 0;
    shm_rig_open(&rig, 4, 1);
    s = &rig.s;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bad, runs = tso_explore(&cases[i].c, &bad);
        printf("%s: %llu orders, %llu of them lose the wake-up\n", cases[i].name,
               (unsigned long long)runs, (unsigned long long)bad);
        *(bad ? &failed : &passed) += 1;
    }
    shm_rig_close(&rig);
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
