/* SPDX-License-Identifier: Apache-2.0 */
/* engine/backend.h - what the scheduler asks of a model: one forward pass over a batch.
 *
 * Path: http > tokens > subq > engine > [step] > ring > detok > event > socket
 *
 * One table, filled by `cpu` (engine/forward.c over cpu_kernels/ops.h), `sim` (engine/sim.c) and, in a
 * build with CUDA, `cuda` (engine/backend_cuda.c).  Prefill and decode are the same call: a sequence gives
 * one row when it decodes and a run of rows when a chunk of its prompt is prefilled.
 *
 * A backend without `pick` is done when `forward` comes back, and the scheduler samples from the logits that
 * it left.  One with `pick` keeps them, and may come back from `forward` and `pick` before anything is done:
 * a step is forward, pick, collect, and what the host does between them costs no time of the device.
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
    bool deterministic;   /* P10 is insisted on: what cannot keep it is not opened */
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
    bool deterministic;      /* P10 holds (not for blas, nor for cuda unless it was insisted on) */
    char description[224];   /* one line for the start-up log */
};

struct tr_pick; /* engine/pick.h */
struct tr_picked;
struct tr_backend;

struct tr_backend_ops {
    const char *name;
    /* What info.deterministic will say: clients are told before anything is open.  NULL: always true. */
    bool (*deterministic)(const struct tr_backend_config *c);
    /* Loads the model and takes all memory it will ever need.  NULL and a sentence on failure. */
    struct tr_backend *(*open)(const struct tr_backend_config *c, struct tr_backend_info *info,
                               struct tr_errbuf *err);
    /* Writes K and V of every row, then fills logits [n_out, n_vocab].  `beat(arg)` is called
     * after every layer (sim: at least every 100 ms): the engine's sign of life.
     * With `pick`: logits is NULL, and what `batch` points to is read before it comes back; the pass may
     * then be under way until `collect`. */
    void (*forward)(struct tr_backend *b, const struct tr_batch *batch, float *logits,
                    void (*beat)(void *), void *arg);
    /* Once for a pass, n <= n_out, before `collect`: has n tokens picked when the pass is done.  `p`, and
     * what it points to, stays as it is until then.  NULL: the scheduler samples from logits. */
    void (*pick)(struct tr_backend *b, const struct tr_pick *p, uint32_t n);
    /* Waits for the pass and for the n picks, and leaves them in `out`, in their order.  With n = 0 and no
     * `pick` before it: waits for the pass alone, and may be followed by `pick` and another `collect`.
     * `beat(arg)` at least every 100 ms, as long as the device may be believed to be alive. */
    void (*collect)(struct tr_backend *b, struct tr_picked *out, uint32_t n, void (*beat)(void *),
                    void *arg);
    /* Runs fn(arg, i) for 0 <= i < n on the backend's threads and waits (sampling uses it).  May be NULL
     * with `pick`. */
    void (*parallel)(struct tr_backend *b, uint32_t n, void (*fn)(void *, uint32_t), void *arg);
    /* Has fn(arg, what) done by a thread of the backend that has nothing to do, beside whatever comes
     * next.  False: there is none, the caller does it itself.  NULL: there never is. */
    bool (*errand)(struct tr_backend *b, void (*fn)(void *, uint64_t), void *arg, uint64_t what);
    void (*close)(struct tr_backend *b); /* NULL is fine */
};

extern const struct tr_backend_ops tr_backend_cpu;
extern const struct tr_backend_ops tr_backend_sim;
/* In a build without CUDA there is no `forward`, and `open` says so whatever it is given. */
extern const struct tr_backend_ops tr_backend_cuda;

/* Whether P10 will hold, as info.deterministic says when it is open. */
static inline bool tr_backend_keeps(const struct tr_backend_ops *ops,
                                    const struct tr_backend_config *c)
{
    return !ops->deterministic || ops->deterministic(c);
}

#endif
