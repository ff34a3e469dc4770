/* SPDX-License-Identifier: Apache-2.0 */
/* replay/prompt.h - the bytes of one request, its prompt of exactly as many tokens as the trace
 * says.
 *
 * A length is made of token ids, sent to /v1/completions; the ids are those of common words, as the
 * server's own /tokenize gives them, in an order that differs for every request, or is the one of its
 * chat.  A server without /tokenize gets as many words instead, which is about right.  A text goes to chat. */
#ifndef TR_REPLAY_PROMPT_H
#define TR_REPLAY_PROMPT_H

#include "replay/options.h"
#include "replay/trace.h"

#define TR_PROMPT_IDS_MAX 256

struct tr_prompts {
    int64_t ids[TR_PROMPT_IDS_MAX]; /* [n], each once */
    size_t n;                       /* 0: lengths are made of words */
};

/* Asks the server. */
void tr_prompts_learn(struct tr_prompts *p, const struct tr_target *t, const char *model);

/* The request of e, head and body in one piece; `id` goes into X-Request-Id.  The caller frees.
 * NULL without memory, or when the prompt is not UTF-8. */
char *tr_prompt_request(const struct tr_prompts *p, const struct tr_replay_opts *o,
                        const char *model, const struct tr_trace_entry *e, const char *id,
                        size_t *len);

#endif
