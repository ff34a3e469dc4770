/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/logprobs.h - logprob entries between the ring and the answer, and their JSON.
 *
 * Frontend only.  An entry leaves the ring when its token is framed, and waits in a small queue
 * until it is certain that the token's text will be shown: text held back for a stop string may
 * turn out to be part of it, and then its entries are not shown either.
 *
 * Bounded: text is held for at most TR_STOP_LEN_MAX bytes, so at most so many tokens wait; at
 * TR_LPQ_MAX the oldest are given out whatever is held. */
#ifndef TR_FRONTEND_LOGPROBS_H
#define TR_FRONTEND_LOGPROBS_H

#include "base/emit.h"
#include "frontend/event.h"
#include "text/vocab.h"

enum { TR_LPQ_MAX = 1536 };

struct tr_lpq {
    struct tr_lp_item *item; /* [cap], grown on demand */
    uint32_t n, cap;
};

/* 0 or -ENOMEM. */
int tr_lpq_push(struct tr_lpq *q, const struct tr_lp_item *it);
/* How many of the oldest are certain once `shown` bytes of the text are: those that added a byte to
 * them, and those without bytes that come before anything held. */
uint32_t tr_lpq_certain(const struct tr_lpq *q, uint64_t shown);
void tr_lpq_drop(struct tr_lpq *q, uint32_t n);
void tr_lpq_fini(struct tr_lpq *q);

/* How entries are written. */
struct tr_lp_style {
    const struct tr_vocab *vocab;
    uint32_t n_top;
    bool ids; /* tokens are called token_id:N (return_tokens_as_token_ids) */
};

/* The entries of an answer that is not streamed, as they come: JSON arrays without their end. */
struct tr_lp_text {
    struct tr_emit a[4]; /* chat uses the first; completions: tokens, logprobs, top, offsets */
    bool open;
};
void tr_lp_text_fini(struct tr_lp_text *t);
size_t tr_lp_text_bytes(const struct tr_lp_text *t);
void tr_lp_text_add(struct tr_lp_text *t, bool chat, const struct tr_lp_style *y,
                    const struct tr_lp_item *it, uint32_t n);

/* One value: {"content":[...],"refusal":null}, or {"tokens":[...],...}. */
void tr_lp_emit_text(struct tr_emit *e, bool chat, struct tr_lp_text *t);
/* Entries of the chat shape as a bare array. */
void tr_lp_emit_list(struct tr_emit *e, struct tr_lp_text *t);
void tr_lp_emit_items(struct tr_emit *e, const struct tr_lp_style *y, const struct tr_lp_item *it,
                      uint32_t n);
void tr_lp_emit_chat(struct tr_emit *e, const struct tr_lp_style *y, const struct tr_lp_item *it,
                     uint32_t n);
void tr_lp_emit_completions(struct tr_emit *e, const struct tr_lp_style *y,
                            const struct tr_lp_item *it, uint32_t n);

/* About how many bytes of JSON an entry takes, to refuse at admission what cannot fit. */
size_t tr_lp_estimate(bool chat, uint32_t n_top);

#endif
