/* SPDX-License-Identifier: Apache-2.0 */
/* engine/forward.h - one forward pass over a batch, written once for prefill and decode.
 *
 * Path: http > tokens > subq > engine > [step] > ring > detok > event > socket
 *
 * Owns the KV pool, the table of angles and the scratch for max_rows rows, all in memory of the
 * operations (apart from the host's, it may be: then logits are there too).  All arithmetic is in
 * the operations (cpu_kernels/ops.h), which see rows, not sequences; so a row's numbers depend on
 * its own sequence alone (engine/backend.h I3), and rows whose logits nobody wants stop after
 * their K and V of the last layer are stored.
 *
 * Who may call: the engine's main thread.  After open nothing allocates or fails. */
#ifndef TR_ENGINE_FORWARD_H
#define TR_ENGINE_FORWARD_H

#include "engine/backend.h"
#include "engine/model.h"

struct tr_forward_config {
    enum tr_kv_type kv_type;
    uint32_t n_ctx;       /* 1 .. CTX of the pool: n_kv_blocks * TR_KV_BLOCK */
    uint32_t n_kv_blocks; /* >= 1 */
    uint32_t max_rows;    /* >= 1 */
    uint32_t max_out;     /* 1 .. max_rows */
    uint32_t max_seqs;    /* in a batch; 0: as many as rows */
    bool ids;             /* keep the tokens beside their KV (struct tr_kv) */
};

enum { TR_FORWARD_IDS_BYTES = TR_KV_BLOCK * 4 }; /* of a KV block, where they are kept */

struct tr_forward;

/* Bytes of one KV block over all layers, K and V; 0 if the type cannot hold the model's heads. */
uint64_t tr_forward_kv_block_bytes(const struct tr_model *m, enum tr_kv_type type);

/* NULL and a sentence if there is not enough memory or the KV type does not fit the heads.  Model, ops and dev must outlive it. */
struct tr_forward *tr_forward_open(const struct tr_model *m, const struct tr_ops *ops,
                                   struct tr_dev *dev, const struct tr_forward_config *c,
                                   struct tr_errbuf *err);

/* Bytes that tr_forward_open takes of the operations' memory, but for KV; n_kv_blocks is not read. */
uint64_t tr_forward_measure(const struct tr_model *m, const struct tr_ops *ops, struct tr_dev *dev,
                            const struct tr_forward_config *c);

/* As `forward` of struct tr_backend_ops: with logits NULL, which takes a device that is apart, the pass
 * may be under way when it comes back, and must be over before the next one.  `beat` is called once for a
 * recorded pass. */
void tr_forward_run(struct tr_forward *f, const struct tr_batch *batch, float *logits,
                    void (*beat)(void *), void *arg);

/* Makes each kind of pass that the device records once, of rows that are not there, so that no pass
 * afterwards is the first of its kind. */
void tr_forward_record(struct tr_forward *f);

/* Where the last pass leaves what is sampled from, on a device that is apart. */
struct tr_forward_out {
    float *logits;                 /* [n_out, n_vocab] */
    const struct tr_place *places; /* [n_out] of the rows with logits */
    const struct tr_kv *kv;
};
struct tr_forward_out tr_forward_out(const struct tr_forward *f);

/* For tests: `tap` sees the residual stream x [n_rows, n_embd] after the embedding (stage 0) and
 * after layer i (stage i + 1), and last the normed rows that meet the output matrix (stage
 * n_layer + 1).  From the last layer on only the rows with logits are there, in their order.
 * NULL turns it off, which is how it starts.  While it is on no pass is recorded. */
void tr_forward_tap(struct tr_forward *f,
                    void (*tap)(void *arg, uint32_t stage, const float *x, uint32_t n_rows),
                    void *arg);

uint64_t tr_forward_scratch_bytes(const struct tr_forward *f);

void tr_forward_close(struct tr_forward *f); /* NULL is fine */

#endif
