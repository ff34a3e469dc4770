/* SPDX-License-Identifier: Apache-2.0 */
/* shm/area.h - what one frontend writes: its submission queue, command words, cursors, dirty bits,
 * delivery records and signs of life.
 *
 * Path: http > tokens > [subq] > engine > step > ring > detok > event > socket
 *
 * One region per area; 2 x N areas, so that a new frontend can have one while an old one drains.
 * Written by the frontend that has it; the engine also exchanges the dirty words and sets the bits of
 * news, which the frontend exchanges.  The engine reads all of it as input. */
#ifndef TR_SHM_AREA_H
#define TR_SHM_AREA_H

#include "shm/request.h"

#include <stdbool.h>

/* ---- messages to the engine ---- */
enum tr_msg_kind {
    TR_MSG_SUBMIT =
        1, /* slot, gen: the request in this area; a group is n messages in one push, lead first */
    TR_MSG_CANCEL = 2,  /* a stream of another frontend: slot, gen and stream_rand must match */
    TR_MSG_ADOPT = 3,   /* a resumable one is wanted here, whoever has it: tr_adopt */
    TR_MSG_CONFIRM = 4, /* one that was given to this frontend is taken: tr_adopt */
    TR_MSG_WANTED = 5   /* somebody asks about a resumable one of another frontend: as CANCEL */
};

struct tr_msg {
    uint32_t kind;
    uint32_t slot;
    uint32_t gen;
    uint32_t pad;
    uint64_t stream_rand;
    uint64_t pad2;
};

/* ---- command word of a slot: bits 0..31 generation, 32..55 argument, 56..63 flags ---- */
enum {
    TR_CMD_CANCEL = 1, /* argument: enum tr_err, why */
    TR_CMD_FINISH = 2, /* argument: completion tokens; a stop string ended the answer there */
    TR_CMD_RELEASE =
        4, /* terminal event handed over or stream cut: the ring is not needed any more */
    TR_CMD_UNWANTED =
        8 /* cancelled by request: whoever has it after us lets it go as soon as it has
                         * ended (tr_ring.unwanted) */
};

/* What a frontend says about a slot, all by the owner frontend; the engine clamps what it reads. */
struct tr_cursor {
    _Atomic uint64_t scanned;       /* release: output tokens looked at */
    _Atomic uint64_t sent;          /* release: tokens before the first unsent byte */
    _Atomic uint64_t lp_head;       /* release: logprob entries popped */
    _Atomic uint64_t disconnect_ns; /* relaxed, before the cancel: when the close was seen */
};

/* ---- delivery record: what became of the bytes ---- */
struct tr_delivery {
    char request_id[TR_ID_BYTES];
    uint32_t delivered_tokens;
    uint32_t slot, gen; /* of the lead: the stream id together with stream_rand */
    uint64_t stream_rand;
    uint64_t first_byte_ns; /* first content byte handed to the socket; 0 never */
    uint64_t closed_ns;     /* last byte acknowledged, or the socket gone */
};

struct tr_area {
    struct tr_region_head head;
    TR_LINE _Atomic uint64_t heartbeat_ns; /* relaxed: the loop turned */
    _Atomic uint32_t sleeping;             /* seq_cst, shm/bell.h */
    _Atomic uint32_t streams;              /* relaxed: open streams, for balancing and top */
    _Atomic uint32_t connections;          /* relaxed */
    TR_LINE _Atomic uint64_t subq_tail;    /* release; head is the engine's, rings head */
    _Atomic uint64_t delivery_tail;        /* release; head is the ledger's, ledger page */
    /* then subq, delivery, dirty, news, cmd, cursor, requests at the offsets of shm/layout.h */
};

struct tr_shm;

/* Frontend, once, before it serves: everything empty. */
void tr_area_init(struct tr_shm *s);

/* Frontend.  Pushes n messages as one; 0, or -EAGAIN when there is no room for all. */
int tr_subq_push(struct tr_shm *s, const struct tr_msg *m, uint32_t n);
/* Frontend.  How many messages it has pushed; and whether the engine has done what the first n of them
 * ask for (acquire: what it wrote for it is seen). */
uint64_t tr_subq_pushed(const struct tr_shm *s);
bool tr_subq_is_heard(const struct tr_shm *s, uint64_t n);

/* Engine.  Next messages of an area without consuming; number copied (<= cap), 0 when empty.  A
 * nonsense tail (more than the queue holds) is read as empty. */
uint32_t tr_subq_peek(const struct tr_shm *s, uint32_t area, struct tr_msg *out, uint32_t cap);
void tr_subq_consume(struct tr_shm *s, uint32_t area, uint32_t n);

/* Frontend.  Stores the command (release), then the dirty bit, and rings the engine's bell.
 * RELEASE and UNWANTED are added to what is there for the same generation; a CANCEL or FINISH, alone or
 * together with them, counts only when none was stored for this generation; for one before that of the
 * last tr_cursor_reset nothing is stored. */
void tr_cmd_post(struct tr_shm *s, uint32_t slot, uint32_t gen, uint32_t flags, uint32_t arg);

/* Engine.  Calls fn(arg, area, slot, word) for every slot whose dirty bit was set since the last
 * call; clears the bits (acquire, pairs with tr_cmd_post and tr_cursor_moved). */
void tr_cmd_sweep(struct tr_shm *s, uint32_t area,
                  void (*fn)(void *arg, uint32_t area, uint32_t slot, uint64_t word), void *arg);
uint64_t tr_cmd_word(const struct tr_shm *s, uint32_t area, uint32_t slot);
static inline uint32_t tr_cmd_gen(uint64_t w)
{
    return (uint32_t)w;
}
static inline uint32_t tr_cmd_arg(uint64_t w)
{
    return (uint32_t)(w >> 32) & 0xffffffu;
}
static inline uint32_t tr_cmd_flags(uint64_t w)
{
    return (uint32_t)(w >> 56);
}

/* ---- news: which rings of an area's requests have changed ---- */

/* Engine.  The rings of slots 64 x word + (bits) have news for that area: ids, state, place in the
 * queue, record.  After all of it was published, before the bell. */
void tr_news_post(struct tr_shm *s, uint32_t area, uint32_t word, uint64_t bits);
/* Engine.  Every slot: what a former engine published and did not post is found. */
void tr_news_post_all(struct tr_shm *s, uint32_t area);
/* Frontend.  Calls fn(arg, slot) for every slot with news since the last call; slots of nobody are
 * among them. */
void tr_news_take(struct tr_shm *s, void (*fn)(void *arg, uint32_t slot), void *arg);

/* Frontend.  Clears cursors and command word of a slot it has just claimed. */
void tr_cursor_reset(struct tr_shm *s, uint32_t slot, uint32_t gen);
/* Engine.  Asks for a dirty bit and the bell whenever a cursor of the slot moves; the caller then
 * looks at them once more before it relies on that (tr_ring.wants_cursor; taken back by a relaxed 0). */
void tr_cursor_want(struct tr_shm *s, uint32_t slot);
/* Frontend, after it stored a cursor of the slot: tells the engine if it wants to know. */
void tr_cursor_moved(struct tr_shm *s, uint32_t slot);
/* Frontend.  Publishes both cursors; tells the engine when the slot is parked and waits for it. */
void tr_cursor_set(struct tr_shm *s, uint32_t slot, uint64_t scanned, uint64_t sent);
/* Frontend.  Asks the engine for a resumable stream that a reader wants, or confirms it if it was given
 * to us meanwhile: cursors and command word of the slot are reset, logprob entries pushed so far are
 * passed over, the message is pushed.  Of several who ask, the last one heard has it; who was given a
 * stream of a dead frontend and is asked about by a reader meanwhile does not lose it to an older
 * confirmation.  The answer is in the ring: tr_ring_owner becomes this process, confirmed; and news.
 * Somebody else, or another generation, once the message was heard: it was not to be had.
 * 0; -ESTALE when the slot holds no such resumable request, -EALREADY when it is this frontend's and
 * confirmed: nothing was touched; -EAGAIN when the queue has no room: the stream is as it was, ask again.
 * The stream's random bits stand in the ring: that the client may have it (its key) is the caller's
 * check. */
int tr_adopt(struct tr_shm *s, uint32_t slot, uint32_t gen, uint64_t stream_rand);
/* Frontend.  The same of one that it was given and that nobody here has asked for: -ESTALE also when it
 * is somebody else's by now, who has a reader for it. */
int tr_confirm(struct tr_shm *s, uint32_t slot, uint32_t gen, uint64_t stream_rand);

/* Frontend.  Whether it is to take a stream that it does not know, on news of it: a resumable request of
 * generation *gen that is this process's, and that it has not released.  It was given the stream; or the
 * engine died when it had answered an adoption that nobody here waits for any more. */
bool tr_adopt_is_due(const struct tr_shm *s, uint32_t slot, uint32_t *gen);

/* Engine (any area) and owner. */
struct tr_cursor *tr_cursor_at(const struct tr_shm *s, uint32_t area, uint32_t slot);

/* Frontend -> ledger.  -EAGAIN when full (the record is then lost: its columns stay NULL). */
int tr_delivery_push(struct tr_shm *s, const struct tr_delivery *d);
/* Ledger.  0 and a copy, or -EAGAIN; consumes it. */
int tr_delivery_pop(struct tr_shm *s, uint32_t area, struct tr_delivery *out);

#endif
