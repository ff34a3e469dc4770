/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/cuda.h - the GPU for the engine: opening it, what it has, and what becomes of it.
 *
 * Path: http > tokens > subq > engine > [step] > ring > detok > event > socket
 *
 * The operations are those of cpu_kernels/ops.h, in tr_ops_cuda.  They put work on one stream and come
 * back; the host learns by tr_cuda_ask that all of it is done, or that the device has failed.
 *
 * A device that has failed answers nothing more in this process: the first error is kept, operations
 * do nothing, and whoever asks is told in one sentence.  The engine then ends, and another one opens
 * the device anew (engine/backend_cuda.c).
 *
 * Who may call: the thread that opened the device, after the fork (a context does not outlive one). */
#ifndef TR_CUDA_KERNELS_CUDA_H
#define TR_CUDA_KERNELS_CUDA_H

#include "base/err.h"
#include "cpu_kernels/ops.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TR_CUDA_ROWS = 256 }; /* rows of the largest recorded pass */

struct tr_cuda_config {
    bool exact;         /* the bits of TR_CPU_GENERIC in all operations (--deterministic) */
    uint32_t n_threads; /* of the host, the caller's included: they pack weights */
    /* Called while weights go to the device, for every few megabytes.  NULL: nobody watches. */
    void (*beat)(void *);
    void *beat_arg;
};

struct tr_cuda_facts {
    char name[64];
    int major, minor; /* compute capability */
    int n_sm;
    uint64_t memory, free; /* bytes; free as of now */
};

extern const struct tr_ops tr_ops_cuda;

/* The first device that is to be seen.  NULL and a sentence that says what to do: no driver or an old
 * one, no device, one before compute capability 8.0.  Ended by tr_ops_cuda.close. */
struct tr_dev *tr_cuda_open(const struct tr_cuda_config *c, struct tr_errbuf *err);

void tr_cuda_facts(const struct tr_dev *dev, struct tr_cuda_facts *f);

/* Scratch that operations share, by the largest pass there may be.  _bytes: how much that is. */
struct tr_cuda_shape {
    uint32_t n_ctx, max_rows, n_head, n_head_kv, head_dim;
};
uint64_t tr_cuda_room_bytes(const struct tr_dev *dev, const struct tr_cuda_shape *s);
/* 0, or -ENOMEM and a sentence. */
int tr_cuda_take_room(struct tr_dev *dev, const struct tr_cuda_shape *s, struct tr_errbuf *err);

/* Between these, passes that have no recording yet are recorded and not made (ops.h, replay).  _end:
 * 0, or -errno and a sentence. */
void tr_cuda_record_begin(struct tr_dev *dev);
int tr_cuda_record_end(struct tr_dev *dev, struct tr_errbuf *err);

enum tr_cuda_state {
    TR_CUDA_DONE,  /* nothing is under way */
    TR_CUDA_BUSY,  /* something is */
    TR_CUDA_FAULT, /* a kernel did what it must not: the pass may be to blame */
    TR_CUDA_LOST,  /* everything else: no pass is to blame */
};

/* Does not wait.  With FAULT and LOST a sentence, the same each time. */
enum tr_cuda_state tr_cuda_ask(struct tr_dev *dev, struct tr_errbuf *err);

#ifdef __cplusplus
}
#endif

#endif
