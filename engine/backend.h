/* SPDX-License-Identifier: Apache-2.0 */
/* engine/backend.h - what the scheduler asks of a model: one forward pass over a batch.
 *
 * Path: http > tokens > subq > engine > [step] > ring > detok > event > socket
 *
 * One table, filled by `cpu` (engine/forward.c over cpu_kernels/ops.h) and `sim` (engine/sim.c).
 * Prefill and decode are the same call: a sequence gives one row when it decodes and a run of
 * rows when a chunk of its prompt is prefilled.
 *
 * Always true:
 *   I1  rows of one sequence stand together, with ascending positions, and follow what is already
 *       in its KV blocks: position p of a sequence is at blocks[p / TR_KV_BLOCK], p % TR_KV_BLOCK
 *   I2  the blocks of two sequences are disjoint, or shared and below the first position of both
 *       (nobody writes a shared block)
 *   I3  logits of a row are a function of its sequence's tokens up to its position alone (P10)
 * No call allocates memory or blocks on another process after open. */
#ifndef TR_ENGINE_BACKEND_H
#define TR_ENGINE_BACKEND_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TR_KV_BLOCK = 32 }; /* tokens in a KV block */
#define TR_NO_LOGITS UINT32_MAX

struct tr_batch_row {
    uint32_t token; /* < n_vocab */
    uint32_t pos;   /* absolute position in its sequence, < n_ctx */
    uint32_t seq;   /* index into tr_batch.seqs */
    uint32_t out;   /* row of the logits this row fills, or TR_NO_LOGITS */
};

/* Where a sequence's KV lives: block ids < n_kv_blocks, enough for its last row. */
struct tr_kv_table {
    const uint32_t *blocks;
    uint32_t n_blocks;
};

struct tr_batch {
    const struct tr_batch_row *rows;
    uint32_t n_rows; /* 1 .. max_rows */
    const struct tr_kv_table *seqs;
    uint32_t n_seqs; /* 1 .. max_seqs */
    uint32_t n_out;  /* rows of logits, <= max_out */
};

enum tr_math { TR_MATH_INT8, TR_MATH_BLAS, TR_MATH_F32 };
enum tr_kv_type { TR_KV_F16, TR_KV_Q8_0, TR_KV_F32 };

struct tr_backend_config {
    const char *model_path; /* file; for sim NULL means the built-in vocabulary */
    int weights_fd; /* above 0: where packed weights outlive the engine; closed when they are there */
    enum tr_math math;
    enum tr_kv_type kv_type;
    uint32_t n_threads; /* >= 1, the caller's thread included */
    bool pin_threads;   /* each to a processor of its own */
    uint32_t n_ctx;     /* 0: the model's own; else at most that */
    uint64_t kv_bytes;  /* memory for KV blocks; 0: max_seqs * n_ctx, or a quarter of memory */
    uint32_t max_seqs;
    uint32_t max_rows; /* largest batch */
    uint32_t max_out;
    uint32_t sim_step_us; /* sim: time of a step, and per prefilled token */
    uint32_t sim_prefill_us;
    /* Called while the model loads, at least for every few megabytes that come from the file: the
     * engine's sign of life.  NULL: nobody watches. */
    void (*beat)(void *);
    void *beat_arg;
};

struct tr_backend_info {
    uint32_t n_vocab;
    uint32_t n_ctx;
    uint32_t n_layer;
    uint32_t n_kv_blocks;
    uint64_t kv_block_bytes; /* all layers, K and V */
    uint64_t weight_bytes;   /* what a decode step reads */
    bool deterministic;      /* P10 holds (false for blas) */
    char description[224];   /* one line for the start-up log */
};

struct tr_backend;

struct tr_backend_ops {
    const char *name;
    /* Loads the model and takes all memory it will ever need.  NULL and a sentence on failure. */
    struct tr_backend *(*open)(const struct tr_backend_config *c, struct tr_backend_info *info,
                               struct tr_errbuf *err);
    /* Writes K and V of every row, then fills logits [n_out, n_vocab].  `beat(arg)` is called
     * after every layer (sim: at least every 100 ms): the engine's sign of life. */
    void (*forward)(struct tr_backend *b, const struct tr_batch *batch, float *logits,
                    void (*beat)(void *), void *arg);
    /* Runs fn(arg, i) for 0 <= i < n on the backend's threads and waits (sampling uses it). */
    void (*parallel)(struct tr_backend *b, uint32_t n, void (*fn)(void *, uint32_t), void *arg);
    /* Has fn(arg, what) done by a thread of the backend that has nothing to do, beside whatever comes
     * next.  False: there is none, the caller does it itself.  NULL: there never is. */
    bool (*errand)(struct tr_backend *b, void (*fn)(void *, uint64_t), void *arg, uint64_t what);
    void (*close)(struct tr_backend *b); /* NULL is fine */
};

extern const struct tr_backend_ops tr_backend_cpu;
extern const struct tr_backend_ops tr_backend_sim;

#endif
