/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/stream.h - one admitted request on its way to one client.
 *
 * Path: http > tokens > subq > engine > step > ring > [detok > event] > frame > socket
 *
 * Frontend only, event loop only.  Two cursors for each choice: *scanned*, every token on arrival,
 * whatever the socket does, so that a stop string or the end is seen at once; *sent*, behind it,
 * which moves when the connection takes what is framed.  Text is made twice from the ring, never
 * kept: a stream that cannot write costs its two scanning states and nothing else.
 *
 *   I1  sent <= scanned <= published; both are published to the engine after each turn
 *   I2  one terminal event, after everything before it; it waits until the ledger has the record or
 *       --ledger-wait-ms have passed (counted)
 *   I3  RELEASE is posted for every slot exactly once: with the terminal event, or with the cut.
 *       Whether there is an event, how a cut shows and what the log says: shm/close.def
 *   I4  after a close nothing of the ring is read any more
 *
 * Full: tr_exchange_room says 0, `sent` stands still, the window closes, the engine parks the sequence.
 * Engine died: the ring stands still until the next one goes on with it; keep-alives meanwhile.  The
 * slot was taken away, or no engine comes any more: engine_lost. */
#ifndef TR_FRONTEND_STREAM_H
#define TR_FRONTEND_STREAM_H

#include "frontend/admit.h"
#include "frontend/exchange.h"
#include "frontend/event.h"
#include "frontend/logprobs.h"
#include "frontend/receipt.h"
#include "frontend/sse.h"
#include "shm/stream_id.h"
#include "frontend/whole.h"

#include <event2/event_struct.h>

enum {
    TR_EVENT_TEXT = 8192,                                      /* bytes at which coalescing stops */
    TR_EVENT_TEXT_CAP = TR_EVENT_TEXT + TR_SPLIT_TEXT_MAX + 8, /* scratch for one event */
    TR_EVENT_ENTRIES = 64 /* logprob entries at which coalescing stops */
};

struct tr_choice {
    uint32_t slot, gen, index;
    uint32_t prompt_len; /* known from `admitted` on */
    uint32_t state;      /* enum tr_state as last read */
    bool admitted;       /* the ring shows it */
    bool lost; /* the slot is another's: `scanned` and what follows it here is all there is */
    uint32_t billed_prompt; /* prompt tokens that count for this choice; from `admitted` on */
    bool text_done;         /* the last token of the text has been scanned */
    bool catching_up;       /* what is published is scanned further in the next turn */
    bool cut;               /* it ended without an end of its own: what is held is not shown */
    bool echo_done;
    bool flushed;  /* the sending scan has been told that no more tokens come */
    bool begun;    /* a delta or finish has been framed: the role is out */
    bool finished; /* FINISH has been framed */
    bool blocked;  /* text waits for the connection */
    bool paused;   /* the rest of what the reader has waits for the next turn */

    /* scanned side */
    struct tr_scan scan;
    uint64_t scanned;
    uint64_t charged;  /* tokens of it that its key has been charged (gate.h) */
    uint64_t text_end; /* text_done: tokens that make the text (an end-of-turn token is none) */

    /* sent side */
    struct tr_scan send;
    uint64_t sent;         /* output tokens framed */
    uint64_t coalesce_to;  /* tokens below it became text while nothing could be written */
    uint32_t echoed;       /* prompt tokens framed (echo) */
    uint32_t event_tokens; /* tokens since the last event */
    uint32_t lp_told;      /* entries of lpq that members of the next event carry */
    uint64_t last_event_ns;
    uint64_t behind; /* its share of fe->behind */
    uint64_t shown;  /* bytes of text given out, an echoed prompt included */
    uint64_t sent_published, scanned_published; /* cursors as the engine knows them */
    struct tr_lpq lpq;                          /* logprob entries not yet framed */
    struct tr_emit_piece delta_head;            /* what events of one kind begin with ... */
    enum tr_event_type head_type;               /* ... which is this ... */
    uint32_t head_call;                         /* ... of this call */
    struct tr_lp_text lp_text;                  /* not streamed: entries rendered so far */
    uint32_t shown_chars;
    uint32_t calls;          /* complete ones in what is sent; not streamed: in all of it */
    enum tr_event_type last; /* of the events of an answer that is taken apart */
    /* What the dialect has begun of the answer's blocks, or items: so many, the last of this kind (DELTA,
     * REASONING or CALL), which may be open. */
    uint32_t blocks;
    enum tr_event_type block;
    bool block_open;
    struct tr_split split; /* behind `send`, if it is (tr_ask_splits) */
};

/* Who wants to read a stream, from which event on, in which shape. */
struct tr_reader {
    struct tr_exchange *x; /* NULL: nobody */
    const struct tr_dialect *dialect;
    enum tr_frame frame;
    int64_t after; /* number of the last event it has; -1: none */
};

/* What a resumable stream has besides (hold.c). */
struct tr_hold {
    TAILQ_ENTRY(tr_stream) link;
    bool listed;                      /* in fe->held: no reader */
    bool unwanted;                    /* cancelled by request: let go as soon as it has ended */
    bool adopted;                     /* admitted by another frontend */
    bool taking;                      /* the ring does not say yet that it is ours */
    bool given;                       /* taking: the engine gave it to us, nobody asked */
    enum tr_err cancel;               /* taking: what is to be posted then */
    uint64_t asked_ns;                /* taking: when the engine was asked; 0: its queue was full */
    uint64_t asked_at;                /* messages pushed by then (tr_subq_is_heard) ... */
    uint32_t asked_area, asked_epoch; /* ... and whose it was */
    struct tr_reader waiter;          /* taking: a reader who waits for it (resume.c) ... */
    uint64_t wait_ns;                 /* ... until then */
    uint64_t gone_ns;                 /* when the last reader's close was seen */
    uint64_t from_ns;                 /* without a reader it is kept for a window from then on */
    bool is_answer;                   /* listed: kept for its Idempotency-Key alone */
};

struct tr_stream {
    struct tr_fe *fe;
    struct tr_exchange *x; /* NULL: no reader (hold.h) */
    struct tr_ask *ask;
    const struct tr_dialect *dialect;
    enum tr_frame frame;
    struct tr_stream *next, **pprev;
    TAILQ_ENTRY(tr_stream) due_link, gate_link;
    bool is_due, is_gated;
    bool rang;          /* its timer has: the clock is looked at */
    struct event timer; /* fires at or before the next thing that time does to it */
    uint64_t armed_ns;  /* when; 0: not armed */

    uint64_t submitted;      /* as in struct tr_admitted */
    uint64_t prompt_charged; /* tokens of prompts that its key was charged then (gate.h) */
    struct tr_stream_id name;
    char stream_id[TR_STREAM_ID_BYTES];
    char id[64];        /* with the dialect's prefix */
    uint64_t created;   /* wall clock, seconds */
    uint64_t number;    /* the next event's, in the sequence of its dialect */
    uint64_t resume_at; /* the first that the reader does not have: those before are not written */

    uint64_t deadline_ns, max_ns; /* 0 none */
    uint64_t gate_ns;             /* since when all has ended; 0 not yet */
    uint64_t last_byte_ns;        /* something was handed to the connection */
    uint64_t plain_acked,
        plain_moved_ns;    /* plain text that waits for its cut: what has arrived, when */
    uint64_t bytes_before; /* the connection's count when this answer began */
    uint64_t drain_since_ns, drain_bytes; /* --min-drain-bps */
    uint64_t starved_ns;                  /* its text waits for credit since; 0: not so */
    uint32_t queue_seen, prefill_seen;    /* last QUEUED and PREFILL */
    bool cancelled;                       /* CANCEL has been posted */
    enum tr_err failure; /* found by this process; what the rings say comes second */
    bool head_due;  /* a reader has come, and the head of his answer waits for his first event */
    bool resumed;   /* he is not its first */
    bool plain_due; /* plain text: the head waits for the first byte */
    bool told;      /* a reader was given its terminal event */
    bool entering; /* it has a key: whether it is the first one is what the engine says (enter.h) */
    bool replay;   /* the ring is not ours: it is told once more (replay.h) */
    bool torn;     /* replay: the ring was let go while it was read */
    uint64_t bytes_told; /* accepted by the connections of former readers */
    struct tr_hold hold;
    struct tr_receipt receipt;
    void *
        closing; /* of the dialect's `close`, which has begun; from malloc, freed here; else NULL */
    bool in_event; /* its last write was a part of an event: only the rest of it may follow */
    struct tr_whole *whole; /* not streamed, and ended: its texts in the making; else NULL */

    uint32_t running; /* so many of its key's streams are its choices (gate.h) */
    uint32_t n;
    struct tr_choice choice[];
};

/* Takes the request over: admits it and binds the connection, or answers the error.  `ask` is
 * owned from here on in every case. */
void tr_stream_start(struct tr_fe *fe, struct tr_exchange *x, struct tr_ask *ask,
                     const struct tr_dialect *dialect, enum tr_frame frame);

/* Answers a request that cannot be admitted, and counts it. */
void tr_stream_refuse(struct tr_fe *fe, struct tr_exchange *x, enum tr_err e);

/* Looks at the streams that are due and at rings with news, and does what can be done.  True if
 * anything moved. */
bool tr_streams_pump(struct tr_fe *fe);

/* It will be looked at in the next tr_streams_pump. */
void tr_stream_due(struct tr_stream *s);

/* Posts a command for a choice; nothing of a replay. */
void tr_stream_say(struct tr_stream *s, const struct tr_choice *ch, uint32_t flags, uint32_t arg);

/* Cancels all choices; the stream ends when the engine has said so. */
void tr_stream_cancel(struct tr_stream *s, enum tr_err why);
void tr_streams_cancel_all(struct tr_fe *fe, enum tr_err why);

/* Ends all that is left without waiting for engine or ledger: this process is about to end. */
void tr_streams_end_all(struct tr_fe *fe, enum tr_err why);

struct tr_stream *tr_stream_find(struct tr_fe *fe, struct tr_stream_id id);

/* The same on request: it is not kept for a reader either, here or, when this process dies, by the one
 * that has it next. */
void tr_stream_cancel_for_good(struct tr_stream *s);

/* ---- for dialects ---- */

/* Counts an event that stands for so many uncoalesced ones: its number is s->number - 1 from here on.
 * False: the reader has it, nothing is to be made of it. */
static inline bool tr_stream_count(struct tr_stream *s, uint32_t members)
{
    s->number += members;
    return s->number > s->resume_at;
}

/* Whether the next event is one that the reader has. */
static inline bool tr_stream_is_past(const struct tr_stream *s)
{
    return s->number < s->resume_at;
}

/* What the events of a choice begin with is the same for all that follow each other and are of one kind.
 * Begins fe->json so and says true, if it was kept; else the caller writes it and keeps it. */
static inline bool tr_stream_begin_again(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_choice *ch = &s->choice[ev->choice];

    if (!ch->delta_head.buf || ch->head_type != ev->type || ch->head_call != ev->call)
        return false;
    tr_emit_begin(&s->fe->json, &ch->delta_head);
    return true;
}
static inline void tr_stream_keep_begin(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_choice *ch = &s->choice[ev->choice];

    tr_emit_piece_fini(&ch->delta_head);
    tr_emit_keep(&s->fe->json, &ch->delta_head);
    ch->head_type = ev->type;
    ch->head_call = ev->call;
}

/* Frames fe->json (one event) and writes it.  `type` for shapes that name events; `number` < 0:
 * an event without number, which repeats none. */
void tr_stream_frame(struct tr_stream *s, const char *type, int64_t number);

/* Writes what a dialect has put into fe->frame as one chunk. */
void tr_stream_write_frame(struct tr_stream *s);

struct tr_usage tr_stream_usage(const struct tr_stream *s);

/* "stop", "length" or "tool_calls" for a choice whose text is complete. */
const char *tr_choice_finish(const struct tr_stream *s, const struct tr_choice *ch);
/* The stop string that ended such a choice, also one that another process began; p NULL: none did. */
struct tr_str tr_choice_stop(const struct tr_stream *s, const struct tr_choice *ch);
/* Whether prompt and answer of such a choice fill the context. */
bool tr_choice_is_full(const struct tr_stream *s, const struct tr_choice *ch);

/* ---- inside (stream_clock.c for stream.c and choice.c) ---- */

void tr_stream_clock_init(struct tr_stream *s);
void tr_stream_clock_fini(struct tr_stream *s);
/* It is looked at by then at the latest, its clock too. */
void tr_stream_remind(struct tr_stream *s, uint64_t at_ns);
/* The tick: those whose timer could not be armed (no memory) get another look. */
void tr_streams_clock_again(struct tr_fe *fe);
/* What time does to it: deadlines, keep-alives, readers that are too slow; arms the timer for what
 * comes next.  False: it was cut, and is gone or held now, or it was held and is gone. */
bool tr_stream_clock(struct tr_stream *s, uint64_t now_ns);

/* Tokens that may still be written: what a client with credits has left, until the stream fails or is
 * cancelled, which is told in any case. */
uint64_t tr_stream_credit(const struct tr_stream *s);
void tr_stream_spend(struct tr_stream *s, uint32_t tokens);

/* ---- inside (stream.c for stream_clock.c) ---- */

/* Whether every choice has come to its end in the engine. */
bool tr_stream_all_ended(const struct tr_stream *s);
/* The error this stream ends with, TR_OK if every choice came to its natural end. */
enum tr_err tr_stream_outcome(const struct tr_stream *s);
/* Cuts a connection that still lives, so that the cut shows; the stream is gone. */
void tr_stream_cut(struct tr_stream *s, enum tr_err why);
/* Writes a keep-alive. */
void tr_stream_probe(struct tr_stream *s);

/* ---- inside (choice.c) ---- */

void tr_choice_init(struct tr_stream *s, struct tr_choice *ch, uint32_t slot, uint32_t gen);
void tr_choice_fini(struct tr_choice *ch);
/* Its output ids. */
const uint32_t *tr_choice_output(const struct tr_stream *s, const struct tr_choice *ch);
/* Reads the ring and scans what is new.  True if anything moved. */
bool tr_choice_scan(struct tr_stream *s, struct tr_choice *ch);

/* ---- inside (choice_send.c; what a token makes: choice_priv.h) ---- */

/* The sending side as it is at the beginning: nothing has been framed. */
void tr_choice_rewind(struct tr_stream *s, struct tr_choice *ch);
/* Frames what the connection takes.  True if anything moved. */
bool tr_choice_frame(struct tr_stream *s, struct tr_choice *ch, bool all_ended);
/* Everything of its text has been framed (or, not streamed, scanned). */
bool tr_choice_out(const struct tr_stream *s, const struct tr_choice *ch);
void tr_choice_publish(struct tr_stream *s, struct tr_choice *ch);

/* How this stream's logprobs are written; for one expression. */
#define tr_stream_lp_style(s)                                                                      \
    (&(struct tr_lp_style){(s)->fe->vocab, (s)->ask->params.n_top, (s)->ask->token_ids})

#endif
