/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/sample.h - from logits on the device to tokens: engine/sample.h there, with the same bits.
 *
 * Path: http > tokens > subq > engine > [step] > ring > detok > event > socket
 *
 * A pick is one token: sampled from a row of logits, or known (echo) and looked up.  What it needs beside
 * the logits is told in a struct tr_cuda_pick and in words that it points into; the history of ids is read
 * from beside the KV blocks (struct tr_kv, ids).  The answer is an id, and for log-probabilities the numbers
 * that they are the logarithms of: the host takes those.
 *
 * Bits: all exponentials are additions and multiplications that IEEE 754 fixes (base/exp.h, engine/dist.c),
 * sums are made in groups of 64 as engine/dist.h says, and what is cut is decided by the sums in falling
 * order.  So a pick has the same answer here and there, whatever else is sampled at the same time.
 *
 * Picks whose ids are touched (bias, penalties, ids that are off) need scratch of their own: for
 * TR_CUDA_PICK_SLOTS of them at a time.  More go in waves, one behind the other. */
#ifndef TR_CUDA_KERNELS_SAMPLE_H
#define TR_CUDA_KERNELS_SAMPLE_H

#include "cpu_kernels/ops.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TR_CUDA_PICK_BLOCK =
        64,                /* engine/dist.h: ids in a block, blocks in a group, terms in a group */
    TR_CUDA_PICK_TOP = 20, /* alternatives of a log-probability at most */
    TR_CUDA_PICK_SLOTS = 64,
};
#define TR_CUDA_PICK_NONE UINT32_MAX /* no mask, no slot, no token */

enum {
    TR_CUDA_PICK_ECHO = 1u << 0,
    TR_CUDA_PICK_LP = 1u << 1,
    TR_CUDA_PICK_GREEDY = 1u << 2,
    TR_CUDA_PICK_CUT = 1u << 3, /* top_k, top_p or min_p is on */
};

struct tr_cuda_pick {
    uint32_t row;   /* of the logits and of the places */
    uint32_t flags; /* TR_CUDA_PICK_* */
    uint32_t echo;  /* the known id */
    uint32_t n_top; /* alternatives, <= TR_CUDA_PICK_TOP */
    uint32_t top_k; /* 0: off; < n_vocab */
    uint32_t n_ids; /* positions of the history, those of the prompt first */
    uint32_t prompt_len;
    uint32_t n_bias, n_off; /* off: ids that are not to be sampled */
    uint32_t bias_at;       /* in words: [n_bias] of id and float */
    uint32_t off_at;        /* [n_off] */
    uint32_t mask_at;       /* [(n_vocab + 31) / 32], or TR_CUDA_PICK_NONE */
    uint32_t slot;          /* of touched ids' scratch, or TR_CUDA_PICK_NONE: none are touched */
    uint32_t pad;
    double scale;                           /* 1 / temperature */
    double top_p;                           /* 1: off */
    double min_p;                           /* 0: off */
    double repetition, frequency, presence; /* 1, 0, 0: off */
    double draw;                            /* [0, 1) */
    double depth; /* > 0, how far below the largest the search begins, in nats: a guess */
};

struct tr_cuda_picked {
    uint32_t id; /* or TR_CUDA_PICK_NONE: the mask leaves nothing */
    float raw;   /* its logit; this and the rest with LP alone */
    float max;   /* largest logit */
    uint32_t n_top;
    double sum; /* of exp(logit - max) */
    uint32_t top_id[TR_CUDA_PICK_TOP];
    float top[TR_CUDA_PICK_TOP]; /* logits, falling, ties by rising id */
};

struct tr_cuda_sampler {
    uint32_t n_vocab, max_rows, touched_cap;
    void *room;
};

/* Bytes of the device for up to max_rows picks in a call, histories of n_ctx ids and max_listed ids of bias
 * and off together.  Zeroed at first. */
size_t tr_cuda_sample_room(uint32_t n_vocab, uint32_t n_ctx, uint32_t max_rows,
                           uint32_t max_listed);
void tr_cuda_sample_init(struct tr_cuda_sampler *s, uint32_t n_vocab, uint32_t n_ctx,
                         uint32_t max_rows, uint32_t max_listed, void *room);

/* Where a pass left what is sampled from, on the device.  The logits are changed. */
struct tr_cuda_logits {
    float *x;                      /* [rows, n_vocab] */
    const struct tr_place *places; /* [rows] */
    const struct tr_kv *kv;        /* the host's; its ids are needed for penalties alone */
};

/* Launches what n picks need and returns.  `host` are the picks as the host sees them, read now; `picks`
 * and `words` the same on the device, or page-locked; `out` [n] is page-locked.  The k-th touched pick has
 * slot k % TR_CUDA_PICK_SLOTS. */
void tr_cuda_sample(struct tr_dev *dev, const struct tr_cuda_sampler *s,
                    const struct tr_cuda_logits *logits, const struct tr_cuda_pick *host,
                    const struct tr_cuda_pick *picks, const uint32_t *words, uint32_t n,
                    struct tr_cuda_picked *out);

#ifdef __cplusplus
}
#endif

#endif
