/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/choice_priv.h - what the files that send a choice share: choice_send.c, choice_event.c. */
#ifndef TR_FRONTEND_CHOICE_PRIV_H
#define TR_FRONTEND_CHOICE_PRIV_H

#include "frontend/stream.h"

/* An event in the making: text in fe->text; entries ch->lpq.item[0, ch->lp_told). */
struct tr_delta {
    enum tr_event_type type; /* from the first member on */
    uint32_t call;
    size_t len;
    uint32_t members;
    uint32_t tokens; /* up to the last member's */
};

/* Whether the connection takes another event, and the client wants it; what was written in this turn is
 * tried first. */
bool tr_choice_has_room(struct tr_stream *s);

/* Runs one token, number `at` of prompt (if it is echoed) and answer, through the sending state, its
 * logprob entry with it.  False: not now (no entry, no room); nothing has changed then, but that what `d`
 * held may have gone. */
bool tr_choice_step(struct tr_stream *s, struct tr_choice *ch, uint32_t id, uint64_t at,
                    struct tr_delta *d);

/* Whether the event has to go now. */
bool tr_choice_must_go(const struct tr_stream *s, const struct tr_choice *ch,
                       const struct tr_delta *d);

/* What was held because nothing could follow it yet, at the end of an echo; at the end of the answer:
 * false if there was no room. */
void tr_choice_end_echo(struct tr_stream *s, struct tr_choice *ch, struct tr_delta *d);
bool tr_choice_flush(struct tr_stream *s, struct tr_choice *ch, struct tr_delta *d);

/* Gives it to the dialect, if it has a member. */
void tr_choice_emit(struct tr_stream *s, struct tr_choice *ch, struct tr_delta *d);

#endif
