/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/event.h - the typed events of a stream: made once, rendered by each dialect.
 *
 * Path: http > tokens > subq > engine > step > ring > detok > [event] > frame > socket
 *
 * They are the moves of the request's state as a client may see them.  Order, for any stream:
 *
 *   STARTED  (QUEUED | PREFILL)*  (DELTA | REASONING | calls | FINISH)*  then one of
 *       USAGE  END                    every choice completed or incomplete
 *       FAIL                          error or cancelled: no FINISH for the choice that failed
 *
 * Calls are, for each of them, CALL, CALL_ARGS one or more, CALL_DONE, with nothing else of that choice
 * between; the answer may end before CALL_DONE, and the call is then no complete one.  REASONING and calls
 * come only of requests whose answers are taken apart (tr_ask_splits).
 *
 * A request that is computed anew (preempted, or its engine was replaced) may wait again between
 * deltas.  QUEUED and PREFILL tell time and take no number; the others are a pure function of the
 * ring, and so are the numbers that a dialect gives to what it makes of them (tr_stream_count). */
#ifndef TR_FRONTEND_EVENT_H
#define TR_FRONTEND_EVENT_H

#include "base/err.h"
#include "frontend/fault.h"
#include "frontend/fields.h"
#include "frontend/route.h"
#include "frontend/sse.h"
#include "shm/lpring.h"
#include "shm/ring.h"
#include "shm/stream_id.h"

#include <stdbool.h>

struct tr_exchange;
struct tr_fe;
struct tr_stream;

enum tr_event_type {
    TR_EV_STARTED,   /* admitted: the first event */
    TR_EV_QUEUED,    /* position */
    TR_EV_PREFILL,   /* done, total */
    TR_EV_DELTA,     /* choice, text, tokens, lp: never empty */
    TR_EV_REASONING, /* the same of what is thought */
    TR_EV_CALL,      /* a call begins: as DELTA, with its number; the text is the function's name */
    TR_EV_CALL_ARGS, /* a piece of its arguments' JSON */
    TR_EV_CALL_DONE, /* it is complete; no text */
    TR_EV_FINISH,    /* choice, finish, calls: its text is complete */
    TR_EV_USAGE,     /* usage of all choices */
    TR_EV_END,       /* everything went well */
    TR_EV_FAIL       /* err, cancelled, last_token */
};

/* Logprob entry of one token whose text has been shown (or has none). */
struct tr_lp_item {
    struct tr_lp lp;
    bool lost;            /* an earlier reader took it: only its place is known */
    bool first;           /* first token of an echoed prompt: it has no logprob */
    bool empty;           /* adds no bytes to the text */
    uint64_t start;       /* bytes of the choice's text before it, what is held included */
    uint32_t text_offset; /* the same in characters */
};

struct tr_usage {
    uint64_t prompt, cached, completion;
};

struct tr_event {
    enum tr_event_type type;
    uint32_t choice;
    uint32_t members; /* uncoalesced events it stands for; 0: takes no number */

    /* From DELTA to CALL_DONE: */
    const char *text; /* whole characters, borrowed for the call */
    size_t text_len;
    uint32_t tokens;
    const struct tr_lp_item *lp; /* entries; NULL without logprobs, or if all are lost */
    uint32_t n_lp;
    uint32_t call; /* which of the choice's calls, from 0 */

    uint32_t position, done, total; /* QUEUED, PREFILL */
    bool length;                    /* FINISH: by the token limit, else a stop; END: any choice */
    uint32_t calls;                 /* FINISH: complete calls of the choice; END: of all */
    enum tr_err err;                /* FAIL */
    bool cancelled;                 /* FAIL: by somebody, not by a fault */
    int64_t last_token;             /* FAIL: index of the last token that counts, -1 none */
};

/* FINISH, END: what a choice that came to its own end says. */
static inline const char *tr_event_finish(const struct tr_event *ev)
{
    return ev->length ? "length" : ev->calls ? "tool_calls" : "stop";
}

enum tr_api {
#define X(id, name) TR_API_##id,
#include "frontend/dialects.def"
#undef X
    TR_APIS
};

/* A request in the words of completions or chat completions. */
struct tr_translation {
    struct tr_emit body; /* JSON, read as if the client had sent it */
    struct tr_emit keep; /* what the dialect needs of the request later (ask.h); mostly empty */
    bool detached; /* it is answered as soon as it is admitted, and goes on without a reader */
};

/* How far a dialect is with what it says before the end. */
enum tr_closing {
    TR_CLOSING_DONE,
    TR_CLOSING_LATER, /* the connection has no room, or the turn has no time left: it is due then */
    TR_CLOSING_LOST   /* an event has begun whose rest does not come: the ring is another's, or it
                       * failed; it is cut */
};

/* One dialect: the only code that knows its field names. */
struct tr_dialect {
    enum tr_api api;
    const char *id_prefix; /* of the id in its objects */
    enum tr_frame frame;   /* of its streams, unless the handler chooses another */
    bool lifecycle;        /* shows QUEUED and PREFILL */
    bool splits;           /* shows reasoning and calls; else all of an answer is text */

    /* Writes the request as one of completions or chat completions; any thread, pure; NULL: it is one
     * already.  0, or -EINVAL with *f, in this dialect's names.  A fault that is found later in the
     * translation has its param put back by `fields`. */
    int (*translate)(const struct tr_json_doc *doc, const struct tr_json *body,
                     struct tr_translation *t, struct tr_fault *f);
    const struct tr_field_row *fields;
    size_t n_fields;
    /* What the rows cannot say of such a param: members within a field that are called otherwise.  In place,
     * it gets no longer.  NULL: none. */
    void (*inner_names)(char *param);

    /* Renders and writes one event (tr_stream_frame); some write nothing for some. */
    void (*event)(struct tr_stream *s, const struct tr_event *ev);
    /* What stands between the last delta and the end if it repeats the text: in pieces (retell.h) out of
     * the ring, no more than the connection takes, called until it is done; its state in s->closing.
     * NULL: nothing. */
    enum tr_closing (*close)(struct tr_stream *s);
    /* A stream that is detached has been admitted and is held: answers. */
    void (*accepted)(struct tr_stream *s, struct tr_exchange *x);
    /* The same for somebody who asks for it once more (Idempotency-Key): answers with what there is now. */
    void (*again)(struct tr_fe *fe, struct tr_exchange *x, struct tr_stream_id id, const char *key);
    /* Each turn, before the streams: what waits for rings of others.  True if anything moved.  May be
     * NULL. */
    bool (*turn)(struct tr_fe *fe);
    const char *position; /* how a reader's position is called in a GET; NULL: "after" */
    bool
        cancel_keeps; /* one that is cancelled by request is kept for questions (TR_REQ_CANCEL_KEEPS) */
    /* The whole answer when it is not streamed; the text of each choice by tr_whole_text. */
    void (*body)(struct tr_stream *s, struct tr_emit *e);
    /* What is written when nothing else was for --heartbeat-s; NULL: as the frame shape has it. */
    void (*keepalive)(struct tr_emit *e);

    const struct tr_route *routes;
    size_t n_routes;
};

/* NULL for anything but an enum tr_api. */
const struct tr_dialect *tr_dialect_of(unsigned api);

#define X(id, name) extern const struct tr_dialect tr_dialect_##name;
#include "frontend/dialects.def"
#undef X

#endif
