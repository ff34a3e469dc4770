/* SPDX-License-Identifier: Apache-2.0 */
/* shm/lpring.h - one request's log-probabilities, engine -> owner frontend.
 *
 * Path: http > tokens > subq > engine > step > ring [+ lpring] > detok > event > socket
 *
 * A bounded SPSC ring of as many entries as the window, used only when they were asked for.  The
 * entries and the tail lie in the rings region (engine), the head in the owner's area, so each
 * side writes only its own memory.
 *
 *   I1  head <= tail <= head + window (64-bit counts; they never wrap)
 *   I2  entries [head, tail) belong to the reader, all others to the writer
 *   I3  entry i tells about output token i; with echo, entries 0 .. prompt_len - 1 come first and
 *       tell about the prompt (entry 0 has no logprob: n_top is 0 and logprob is 0)
 *
 * Full: tr_lpring_push says -EAGAIN and the engine parks the sequence.  A nonsense head looks like a
 * full ring: the sequence parks, nobody else notices.  While nobody has confirmed that he has the stream
 * there is no head to look at, and the ring counts as full. */
#ifndef TR_SHM_LPRING_H
#define TR_SHM_LPRING_H

#include "shm/layout.h"

struct tr_lp {
    uint32_t id;
    float logprob; /* natural log, of the distribution before temperature and cuts */
    uint32_t n_top;
    uint32_t top_id[TR_MAX_TOP]; /* by falling logprob, ties by rising id */
    float top_logprob[TR_MAX_TOP];
};

struct tr_shm;

/* Engine. */
int tr_lpring_push(struct tr_shm *s, uint32_t slot, const struct tr_lp *e);
uint32_t tr_lpring_room(const struct tr_shm *s, uint32_t slot);
/* The token that the entry pushed last tells about; there must be one. */
uint32_t tr_lpring_last(const struct tr_shm *s, uint32_t slot);

/* Owner frontend.  Copies the oldest unread entry out; 0, or -EAGAIN: none, or the stream is not this
 * frontend's any more.  n_top is bounded on reading. */
int tr_lpring_peek(const struct tr_shm *s, uint32_t slot, struct tr_lp *out);
void tr_lpring_pop(struct tr_shm *s, uint32_t slot);
/* Whoever takes a stream over: the entries so far are lost. */
void tr_lpring_skip(struct tr_shm *s, uint32_t slot);

#endif
