/* SPDX-License-Identifier: Apache-2.0 */
/* engine/engine.h - the body of the engine process.
 *
 * Path: http > tokens > subq > [engine] > step > ring > detok > event > socket
 *
 * One process owns weights, KV blocks, scheduler and sampler.  It waits for nobody: what it reads
 * are commands and submissions, what it writes are rings, records and figures, all in shared
 * memory.  It logs, allocates and touches files only before its first step. */
#ifndef TR_ENGINE_ENGINE_H
#define TR_ENGINE_ENGINE_H

#include "engine/backend.h"
#include "engine/sched.h"

struct tr_engine_config {
    const struct tr_backend_ops *ops;
    /* model_path, math, kv_type, n_threads, kv_bytes and the sim times are the caller's; n_ctx,
     * max_seqs, max_rows and max_out follow from shared memory and `sched`. */
    struct tr_backend_config backend;
    struct tr_sched_config sched; /* without `pieces` */
    int pieces_fd; /* above 0: the vocabulary as grammar/pieces.h has it; closed when it is mapped */
    uint64_t idle_ns; /* longest sleep, and so the longest time between two heartbeats; 0: 100 ms */
};

struct tr_shm;

/* Runs the engine over `s`, attached with TR_ROLE_ENGINE, until the control page says CUT and
 * everything has ended.  Signals are the supervisor's business: it has them ignored in its children,
 * so that a service manager's SIGTERM to the whole group drains like one to the supervisor alone.
 * Returns the exit status of the process: 0, or 1 after a sentence in the log.
 *
 * Order at start: what a former engine left is taken over, and what had its end is settled, before the
 * model is loaded; the rest goes on, and admission begins, when rings->ready holds this engine's epoch. */
int tr_engine_main(struct tr_shm *s, const struct tr_engine_config *c);

#endif
