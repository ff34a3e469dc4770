/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/ws_turn.h - whose turn it is on a socket that several streams share.
 *
 * Frontend only, pure.  While the socket takes everything nobody waits.  A stream that finds no room
 * waits in line.  When there is room again a round begins: each who stands in line may write one event,
 * in that order; whoever has more to write, or comes meanwhile, stands in line for the next.  One that
 * was let in and found no room after all keeps its place before those.  So nobody gets a second event
 * before everybody who waits had one.
 *
 * As long as somebody stands in line a round is to be begun in each turn of the loop in which there is
 * room: who was let in and had nothing to write is then forgotten. */
#ifndef TR_FRONTEND_WS_TURN_H
#define TR_FRONTEND_WS_TURN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

struct tr_ws_member {
    TAILQ_ENTRY(tr_ws_member) link;
    bool waits;     /* in line */
    bool let_in;    /* ... was, in this round, and has not written yet */
    unsigned round; /* which that was */
};

TAILQ_HEAD(tr_ws_line, tr_ws_member);

struct tr_ws_turn {
    struct tr_ws_line line;
    struct tr_ws_member *kept; /* the last of those who keep their place at the front; NULL: none */
    unsigned round;
    size_t inside; /* let in, and not yet written */
};

void tr_ws_turn_init(struct tr_ws_turn *t);
void tr_ws_turn_leave(struct tr_ws_turn *t, struct tr_ws_member *m);

/* What of the socket's room is this member's: all, or 0, and it is in line then. */
size_t tr_ws_turn_room(struct tr_ws_turn *t, struct tr_ws_member *m, size_t room);

/* It has written an event. */
void tr_ws_turn_wrote(struct tr_ws_turn *t, struct tr_ws_member *m);

static inline bool tr_ws_turn_waits(const struct tr_ws_turn *t)
{
    return !TAILQ_EMPTY(&t->line);
}

/* A round begins: how many are let in; then each of them.  Whoever is told asks for room later. */
size_t tr_ws_turn_round(struct tr_ws_turn *t);
struct tr_ws_member *tr_ws_turn_next(struct tr_ws_turn *t);

#endif
