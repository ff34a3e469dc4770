/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/playback.h - plays requests against the plan (engine/plan.h) in virtual time.
 *
 * The plan, the cost model that learns and the counters of keys are the engine's own; model, clock,
 * frontends and readers are not there: a step takes what its prices say, and perhaps some noise.  So a
 * minute of traffic takes milliseconds, nothing depends on the machine, and a policy can be looked at, or
 * tested, by itself.  Readers always keep up; there is no prefix cache and no speculation.
 *
 * The same configuration and requests give the same result. */
#ifndef TR_TOOLS_BENCH_PLAYBACK_H
#define TR_TOOLS_BENCH_PLAYBACK_H

#include "engine/cost.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tr_playback_config {
    uint32_t max_seqs, max_queue;
    uint32_t n_blocks; /* of the KV pool, at least enough for the longest request */
    uint32_t prefill_chunk;
    uint64_t itl_target_ns, ttft_target_ns;
    double price[TR_COST_PARTS]; /* what the machine takes, ns */
    double noise;                /* a step takes up to so much more or less, relatively; < 1 */
    uint64_t seed;               /* of the noise */
    uint64_t weight_bytes;       /* what the cost model is told before it has learnt */
};

#define TR_PLAYBACK_NEVER UINT64_MAX

struct tr_playback_request {
    uint64_t at_ns;              /* arrival */
    uint32_t prompt, max_tokens; /* > 0 */
    int32_t priority;
    const char *key;         /* NULL: "" */
    uint64_t leave_ns;       /* the client leaves then, or NEVER */
    uint64_t leave_after_ns; /* so long after its first token, or NEVER */

    /* What became of it. */
    bool refused, left;
    uint32_t n_out, preemptions;
    uint64_t started_ns, first_ns, end_ns; /* NEVER: it did not come to that */
};

struct tr_playback_totals {
    uint64_t steps, late; /* late: with streams that waited for a token, longer than itl_target */
    uint64_t preemptions;
    uint64_t decode_rows, prompt_rows;
    uint64_t busy_ns, end_ns;
    uint64_t longest_ns; /* step with streams that waited for a token */
};

/* Called for each token: r is the request, n the token's number from 1, gap_ns since the one before. */
typedef void tr_playback_token(void *arg, const struct tr_playback_request *r, uint32_t n,
                               uint64_t gap_ns);

/* Plays all requests [n], ordered by arrival, to their end.  0, -ENOMEM, -EINVAL (a request that does not
 * fit into the pool).  `token` may be NULL. */
int tr_playback_run(const struct tr_playback_config *c, struct tr_playback_request *r, size_t n,
                    struct tr_playback_totals *t, tr_playback_token *token, void *arg);

#endif
