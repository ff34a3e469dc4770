/* SPDX-License-Identifier: Apache-2.0 */
/* shm/ring.h - one request's ring: everything that is true about it.
 *
 * Path: http > tokens > subq > engine > step > [ring] > detok > event > socket
 *
 * One per slot, written by the engine alone, readable by all.  It holds a validated copy of the
 * request, the prompt ids, the output ids (room for the whole context, so within a request nothing
 * wraps and nothing is overwritten until the slot is released), how far the request is and how it
 * ended.  Delivery, the ledger, crash recovery and resume read it and nothing else.
 *
 * Always true, seen from any reader that compared `gen` before and after:
 *   R1  ids[0, prompt_len) and everything under "fixed at admission" do not change while gen does not
 *   R2  ids[prompt_len, prompt_len + published) never change while gen does not; published only grows
 *   R3  when `state` is terminal (acquire), the end fields and `published` are final
 *   R4  finish_index <= published; published - finish_index is the overrun
 *
 * Readers bound published by n_ctx - prompt_len themselves: a crashed engine may have left anything. */
#ifndef TR_SHM_RING_H
#define TR_SHM_RING_H

#include "base/err.h"
#include "shm/request.h"

#include <stdbool.h>

/* States of a request; the allowed moves are the table in engine/seq.c. */
enum tr_state {
    TR_FREE,       /* no request in this generation yet */
    TR_WAITING,    /* admitted, in the queue (also after preemption) */
    TR_PREFILL,    /* its prompt is being processed */
    TR_RUNNING,    /* decoding */
    TR_PARKED,     /* its reader is behind */
    TR_COMPLETED,  /* terminal: natural end, stop id, stop string */
    TR_INCOMPLETE, /* terminal: token limit or context */
    TR_CANCELLED,  /* terminal: err says by what */
    TR_ERROR       /* terminal: err says which */
};

static inline bool tr_state_terminal(uint32_t s)
{
    return s >= TR_COMPLETED && s <= TR_ERROR;
}

/* Whether a request with these flags (TR_REQ_*), in this state, outlives its frontend. */
static inline bool tr_state_is_kept(uint32_t flags, uint32_t s)
{
    return (flags & TR_REQ_RESUMABLE) ||
           ((flags & TR_REQ_IDEMPOTENT) && (s == TR_COMPLETED || s == TR_INCOMPLETE));
}

/* How clients and the ledger call a terminal state; NULL for all others, and for nonsense. */
const char *tr_state_name(uint32_t s);

enum tr_finish {
    TR_FINISH_NONE,
    TR_FINISH_EOG, /* the model ended its turn */
    TR_FINISH_STOP_ID,
    TR_FINISH_STOP_STRING,
    TR_FINISH_LENGTH, /* max_tokens or the context */
    TR_FINISH_GRAMMAR /* nothing may follow by its grammar */
};

/* Of queue_pos: its place has not been told since it began to wait. */
#define TR_QUEUE_UNTOLD UINT32_MAX

struct tr_ring {
    /*                                          engine writes   who reads       what */
    TR_LINE _Atomic uint32_t gen;  /* release         acquire         generation, 1, 2, ...  */
    _Atomic uint32_t state;        /* release         acquire         enum tr_state */
    _Atomic uint32_t queue_pos;    /* relaxed         relaxed         0 = next, while waiting */
    _Atomic uint32_t prefill_done; /* relaxed         relaxed         prompt tokens processed */
    _Atomic uint32_t
        wants_cursor; /* seq_cst         seq_cst         1: parked, set the dirty bit when a cursor moves */

    TR_LINE _Atomic uint64_t published; /* release         acquire         output ids */
    _Atomic uint64_t lp_tail;           /* release         acquire         logprob entries pushed */

    /* The end; written before the terminal state is stored (release), read after it (acquire). */
    TR_LINE uint32_t finish; /* enum tr_finish */
    uint32_t err;            /* enum tr_err for cancelled and error, else TR_OK */
    uint64_t finish_index;   /* completion tokens: the last one that counts, inclusive */
    uint64_t overrun;        /* published beyond it */
    uint64_t finished_ns;
    uint64_t cancel_ack_ns;    /* when the engine took the cancel; 0 if none */
    uint64_t disconnect_ns;    /* what the frontend reported with it */
    _Atomic uint64_t bill_seq; /* release/acquire: 1 + place in the accounting queue; 0 not yet.
                                * Stored before the record is counted: above its tail it is void */

    /* Written when it happens, relaxed; 0 = not yet. */
    TR_LINE _Atomic uint64_t admitted_ns; /* taken from the submission queue */
    _Atomic uint64_t started_ns;          /* first step that worked on it */
    _Atomic uint64_t first_token_ns;
    _Atomic uint32_t cached_tokens; /* prompt tokens not computed */
    _Atomic uint32_t preemptions;

    /* What deaths of engines say about it; engine alone, relaxed (engine/suspect.c). */
    _Atomic uint32_t deaths;       /* engines that died in a pass with it, since it got further */
    _Atomic uint32_t deaths_alone; /* of those, with nobody else in the pass */
    _Atomic uint64_t death_at;     /* published when the last of them died */
    _Atomic uint64_t pass;         /* the last pass it was in */

    _Atomic uint64_t past; /* relaxed, relaxed: tr_ring_past_of; outlives the reset */

    /* Whose stream it is: tr_ring_owner.  Release, acquire; noted at admission, changed when its
     * frontend has died and when another one adopts it (shm/README.md, "Held streams"). */
    _Atomic uint64_t owner;
    _Atomic uint32_t
        unwanted; /* relaxed, before the news: 1: its owner was told that nobody wants it
                                * (UNWANTED), or it was cancelled after its end; who has it without a
                                * reader lets it go */
    _Atomic uint64_t asked_ns; /* relaxed: when another frontend was last asked about it (WANTED);
                                * 0: never.  Its window begins anew */

    /* Fixed at admission; visible with state != TR_FREE (acquire). */
    TR_LINE uint32_t of_gen; /* generation these fields are about; differs from gen only when a
                              * crash cut a reset short (shm/README.md, "Death of the engine") */
    uint32_t prompt_len;
    uint32_t extra_len;
    uint64_t stream_rand;
    uint64_t arrival_ns;
    struct tr_params params;
    uint32_t group_n, group_k, group_lead, group_bill_prompt;
    char request_id[TR_ID_BYTES];
    char key[TR_KEY_BYTES];
    struct tr_trace trace;
    struct tr_stages stage;
    struct tr_idem idem; /* all 0 without TR_REQ_IDEMPOTENT */
    /* followed, at offsets of shm/layout.h, by
     *   uint32_t ids[n_ctx]    prompt, then output
     *   uint32_t steps[n_ctx]  step index of output i at steps[i]
     *   uint8_t extra[TR_EXTRA_BYTES]
     *   struct tr_lp lp[window] */
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "counters are shared between processes");
_Static_assert(TR_ERR_COUNT <= 128, "a reason fits into 7 bits of `past`");

/* The frontend that delivers a request.  Unconfirmed: it was given the stream of a dead one and has
 * not said yet that it took it; until then its cursors and commands in that slot are about nothing. */
struct tr_owner {
    uint32_t area; /* TR_MAX_AREAS: nobody */
    uint32_t epoch;
    bool confirmed;
};

/* Any role.  As last stored by the engine; about a request only while state is not FREE.  Acquire. */
struct tr_owner tr_ring_owner(const struct tr_ring *r);

/* Engine.  Release, and a fence: entries that the new owner's counts allow are written behind it. */
void tr_ring_set_owner(struct tr_ring *r, struct tr_owner o);

struct tr_shm;

/* Frontend.  Whether the owner is this process, confirmed or not. */
bool tr_ring_is_ours(const struct tr_shm *s, const struct tr_ring *r);

/* Any role.  NULL when slot is out of range. */
struct tr_ring *tr_ring_at(const struct tr_shm *s, uint32_t slot);
const uint32_t *tr_ring_ids(const struct tr_shm *s, uint32_t slot);   /* [n_ctx] */
const uint32_t *tr_ring_steps(const struct tr_shm *s, uint32_t slot); /* [n_ctx] */

/* Engine.  Writable views of the same. */
uint32_t *tr_ring_ids_rw(struct tr_shm *s, uint32_t slot);
uint32_t *tr_ring_steps_rw(struct tr_shm *s, uint32_t slot);
uint8_t *tr_ring_extra_rw(struct tr_shm *s, uint32_t slot);

/* Engine.  Appends one output id made in `step` and publishes it.  -ENOSPC when the context is full. */
int tr_ring_push(struct tr_shm *s, uint32_t slot, uint32_t id, uint32_t step);

/* Engine.  Stores the terminal state; the end fields must have been written. */
void tr_ring_end(struct tr_shm *s, uint32_t slot, enum tr_state terminal);

/* Engine.  Next generation: state FREE, all counters 0; ids, extra and logprobs are wiped as far as they
 * were used.  `err` of a ring that was FREE is why what was submitted for it was turned away. */
void tr_ring_reset(struct tr_shm *s, uint32_t slot);

/* How the generation before the present one ended, for somebody who looks a moment too late. */
struct tr_ring_past {
    uint32_t state; /* enum tr_state, terminal */
    uint32_t err;
    uint64_t finish_index;
};

/* Reader.  0 and *out, or -ESTALE: `gen` is not the generation before this one, or did not end. */
int tr_ring_past_of(const struct tr_shm *s, uint32_t slot, uint32_t gen, struct tr_ring_past *out);

/* Reader.  TR_OK, or why the engine turned away what was submitted for that generation, the one before
 * the present one: it was never admitted. */
enum tr_err tr_ring_turned_away(const struct tr_shm *s, uint32_t slot, uint32_t gen);

/* Reader.  The two above have nothing to say of that generation any more: another has been and gone since. */
bool tr_ring_forgotten(const struct tr_shm *s, uint32_t slot, uint32_t gen);

/* Reader.  The generation of the request that is there; 0 when there is none, or it is just being wiped. */
uint32_t tr_ring_request(const struct tr_shm *s, uint32_t slot);

/* Reader.  Output ids published so far, bounded by the context; `*state` is read before the count,
 * so that a terminal state means the count is final.  -ESTALE when `gen` is not current. */
int64_t tr_ring_read(const struct tr_shm *s, uint32_t slot, uint32_t gen, uint32_t *state);

#endif
