/* SPDX-License-Identifier: Apache-2.0 */
/* engine/pick_cuda.h - picks on their way to a GPU and back (engine/pick.h, cuda_kernels/sample.h).
 *
 * Path: http > tokens > subq > engine > [step] > ring > detok > event > socket
 *
 * All memory is taken at open: of the device, the scratch of its sampler and what picks bring with them; of
 * the host, page-locked, what they bring and the answers.  A pick brings its numbers, TR_MAX_BIAS biases,
 * TR_MAX_STOP_IDS and n_eog ids and a mask at most: 8 KiB and a bit for each id of the vocabulary.  What is
 * there goes to the device in one copy; the answers are written into the host's memory.
 *
 * Who may call: the engine's main thread. */
#ifndef TR_ENGINE_PICK_CUDA_H
#define TR_ENGINE_PICK_CUDA_H

#include "cuda_kernels/sample.h"
#include "engine/pick.h"

struct tr_pick_cuda;

struct tr_pick_cuda_config {
    uint32_t n_vocab;
    uint32_t n_ctx;
    uint32_t max_out; /* picks in a step */
    uint32_t n_eog;   /* ids that end a turn, at most */
};

/* Bytes of the device and of page-locked host memory that an open takes. */
uint64_t tr_pick_cuda_bytes(const struct tr_pick_cuda_config *c);
uint64_t tr_pick_cuda_host_bytes(const struct tr_pick_cuda_config *c);

/* NULL without memory.  ops and dev must outlive it. */
struct tr_pick_cuda *tr_pick_cuda_open(const struct tr_ops *ops, struct tr_dev *dev,
                                       const struct tr_pick_cuda_config *c);
void tr_pick_cuda_close(struct tr_pick_cuda *k); /* NULL is fine */

/* Sends n picks after the pass that left `from` and returns; p is not read any more afterwards. */
void tr_pick_cuda_send(struct tr_pick_cuda *k, const struct tr_cuda_logits *from,
                       const struct tr_pick *p, uint32_t n);

/* The answers to the n picks that were sent, when the device is done with them. */
void tr_pick_cuda_read(const struct tr_pick_cuda *k, struct tr_picked *out, uint32_t n);

#endif
