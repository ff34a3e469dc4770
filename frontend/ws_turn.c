/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/ws_turn.c - see ws_turn.h. */
#include "frontend/ws_turn.h"

void tr_ws_turn_init(struct tr_ws_turn *t)
{
    *t = (struct tr_ws_turn){0};
    TAILQ_INIT(&t->line);
}

static void take_out(struct tr_ws_turn *t, struct tr_ws_member *m)
{
    if (t->kept == m) /* those before it are kept too */
        t->kept = TAILQ_PREV(m, tr_ws_line, link);
    TAILQ_REMOVE(&t->line, m, link);
    m->waits = false;
}

/* Forgets that it was let in; whether it was, in this round. */
static bool was_let_in(struct tr_ws_turn *t, struct tr_ws_member *m)
{
    bool was = m->let_in && m->round == t->round;

    t->inside -= was;
    m->let_in = false;
    return was;
}

void tr_ws_turn_leave(struct tr_ws_turn *t, struct tr_ws_member *m)
{
    if (m->waits)
        take_out(t, m);
    was_let_in(t, m);
}

static void stand_in_line(struct tr_ws_turn *t, struct tr_ws_member *m)
{
    m->waits = true;
    if (!was_let_in(t, m)) {
        TAILQ_INSERT_TAIL(&t->line, m, link);
        return;
    }
    if (t->kept)
        TAILQ_INSERT_AFTER(&t->line, t->kept, m, link);
    else
        TAILQ_INSERT_HEAD(&t->line, m, link);
    t->kept = m;
}

size_t tr_ws_turn_room(struct tr_ws_turn *t, struct tr_ws_member *m, size_t room)
{
    if (m->waits && room && t->inside == 0 && TAILQ_FIRST(&t->line) == m)
        tr_ws_turn_next(t); /* there is room after all, and nobody is before it */
    if (m->waits)
        return 0;
    bool let_in = m->let_in && m->round == t->round;
    if (room && (let_in || (TAILQ_EMPTY(&t->line) && t->inside == 0)))
        return room;
    stand_in_line(t, m);
    return 0;
}

void tr_ws_turn_wrote(struct tr_ws_turn *t, struct tr_ws_member *m)
{
    was_let_in(t, m);
}

size_t tr_ws_turn_round(struct tr_ws_turn *t)
{
    const struct tr_ws_member *m;
    size_t n = 0;

    t->round++;
    t->inside = 0;
    TAILQ_FOREACH(m, &t->line, link)
    n++;
    return n;
}

struct tr_ws_member *tr_ws_turn_next(struct tr_ws_turn *t)
{
    struct tr_ws_member *m = TAILQ_FIRST(&t->line);

    if (!m)
        return NULL;
    take_out(t, m);
    m->let_in = true;
    m->round = t->round;
    t->inside++;
    return m;
}
