/* SPDX-License-Identifier: Apache-2.0 */
/* shm/request.h - a request as a frontend hands it over.
 *
 * Path: http > [tokens] > subq > engine > step > ring > detok > event > socket
 *
 * Written by the owner frontend into its area between claim and submit; copied and checked by the
 * engine at admission and never read again. */
#ifndef TR_SHM_REQUEST_H
#define TR_SHM_REQUEST_H

#include "shm/layout.h"
#include "shm/trace.h"

#include <stdbool.h>

enum {
    TR_REQ_STREAM = 1u << 0,        /* a reader follows; else sent = scanned */
    TR_REQ_LOGPROBS = 1u << 1,      /* entries for output tokens in the logprob ring */
    TR_REQ_ECHO_LOGPROBS = 1u << 2, /* entries for prompt tokens 1.. too, before the first output */
    TR_REQ_IGNORE_EOS = 1u << 3,
    TR_REQ_RESUMABLE = 1u << 4,
    /* The frontend looks for stop strings: an end that the engine finds by itself waits until all
     * tokens have been scanned, since a FINISH for an earlier one may be on its way. */
    TR_REQ_STOP_STRINGS = 1u << 5,
    /* A resumable one that is cancelled by request is kept like any other that has ended, and let go by
     * a second cancel. */
    TR_REQ_CANCEL_KEEPS = 1u << 6,
    /* It has an Idempotency-Key: `idem` is not 0.  Never with logprobs, which cannot be told again, or
     * in a group. */
    TR_REQ_IDEMPOTENT = 1u << 7
};

enum { TR_PRIORITY_MAX = 32767, TR_WEIGHT_MAX = 1000 };

/* Sampling parameters and priority, all explicit: a default has been replaced by its value. */
struct tr_params {
    uint64_t seed;
    double temperature;        /* >= 0; 0 is greedy */
    double top_p;              /* (0, 1]; 1 off */
    double min_p;              /* [0, 1]; 0 off */
    double presence_penalty;   /* [-2, 2] */
    double frequency_penalty;  /* [-2, 2] */
    double repetition_penalty; /* > 0; 1 off */
    int32_t top_k;             /* <= 0 off */
    uint32_t max_tokens;       /* output tokens, >= 0; prompt_len + max_tokens <= n_ctx */
    uint32_t min_tokens;       /* eog and stop ids are not sampled before so many */
    uint32_t n_top;            /* alternatives per logprob entry, <= TR_MAX_TOP */
    uint32_t flags;            /* TR_REQ_* */
    uint32_t choice;           /* index of this choice: a part of the random draw (N5) */
    int32_t priority;          /* lower goes first; within +-TR_PRIORITY_MAX, 0 unless asked for */
    uint32_t weight;           /* of its key's share, 1 .. TR_WEIGHT_MAX */
};

/* What an Idempotency-Key and the request that came with it are known by: hashes, with a seed that all
 * frontends of a service have.  All 0: none. */
struct tr_idem {
    uint64_t key[2];  /* of the header's value and the API key's name */
    uint64_t body[2]; /* of what was asked for, and in which shape */
};

struct tr_request {
    uint32_t gen;        /* of the slot */
    uint32_t prompt_len; /* tokens, 1 .. n_ctx */
    uint32_t extra_len;  /* bytes of the packed part, <= TR_EXTRA_BYTES */
    uint32_t pad;
    uint64_t stream_rand; /* random bits of the stream id */
    uint64_t arrival_ns;  /* first byte of the request */
    struct tr_params params;
    /* A request with several choices is a group of slots, submitted together; lead first. */
    uint32_t group_n;    /* 1 .. TR_MAX_CHOICES */
    uint32_t group_k;    /* 0 .. group_n - 1, its place */
    uint32_t group_lead; /* slot of place 0 */
    uint32_t
        group_prompts; /* prompts counted in the ledger: this slot's prompt counts if group_bill_prompt */
    uint32_t group_bill_prompt; /* 1: the first choice of its prompt */
    uint32_t pad2;
    char request_id[TR_ID_BYTES]; /* NUL-ended printable ASCII */
    char key[TR_KEY_BYTES];       /* id of the API key, "" without */
    struct tr_trace trace;
    struct tr_stages stage; /* submitted_ns: as it is pushed */
    struct tr_idem idem;
    /* followed by: uint32_t prompt[n_ctx], then uint8_t extra[TR_EXTRA_BYTES] */
};

struct tr_shm;

/* Owner frontend.  Pointers into its own area. */
struct tr_request *tr_request_at(struct tr_shm *s, uint32_t slot);
uint32_t *tr_request_prompt(struct tr_shm *s, uint32_t slot); /* [n_ctx] */
uint8_t *tr_request_extra(struct tr_shm *s, uint32_t slot);   /* [TR_EXTRA_BYTES] */

/* Owner frontend, when the engine has consumed the submission (tr_subq_is_heard) and nobody needs the
 * request any more: nothing of it stays in the area for whoever has that next.  A slot that was claimed
 * again since is left alone. */
void tr_request_wipe(struct tr_shm *s, uint32_t slot, uint32_t gen);

/* Owner frontend.  Whether the request in the slot's ring (state not FREE, acquire) is the one that this
 * process submitted with these random bits: the owner words are everybody's, so that another frontend's
 * nonsense there may have given the slot to somebody else, in the same generation. */
bool tr_request_is_mine(const struct tr_shm *s, uint32_t slot, uint64_t stream_rand);

/* Engine.  The same of any area. */
const struct tr_request *tr_request_of(const struct tr_shm *s, uint32_t area, uint32_t slot);
const uint32_t *tr_request_prompt_of(const struct tr_shm *s, uint32_t area, uint32_t slot);
const uint8_t *tr_request_extra_of(const struct tr_shm *s, uint32_t area, uint32_t slot);

#endif
