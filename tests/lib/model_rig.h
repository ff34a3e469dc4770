/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/model_rig.h - a model, a forward pass and some sequences, for tests of numbers.
 *
 * Every sequence owns a whole context of KV blocks, scattered over the pool by `seed`.  A batch is
 * made row by row; the rig keeps positions.  Any failure ends the program with a sentence. */
#ifndef TR_TESTS_MODEL_RIG_H
#define TR_TESTS_MODEL_RIG_H

#include "engine/forward.h"
#include "engine/model.h"

struct tr_rig_config {
    const char *path;     /* a model file, or */
    const uint8_t *bytes; /* a file in memory */
    size_t len;
    enum tr_ops_math math;
    enum tr_cpu_level level;
    enum tr_kv_type kv_type;
    uint32_t n_threads;
    bool apart;     /* on a device whose memory is not the host's (apart.h) */
    bool ids;       /* as in struct tr_forward_config */
    uint32_t n_ctx; /* 0: the model's own */
    uint32_t n_seqs;
    uint32_t max_rows; /* all of them may have logits */
    uint64_t seed;
};

struct tr_rig {
    struct tr_rig_config c;
    const struct tr_ops *ops;
    struct tr_dev *dev;
    struct tr_model *m;
    struct tr_forward *f;
    uint32_t n_ctx;
    uint32_t *blocks; /* [n_seqs, n_ctx / TR_KV_BLOCK] */
    struct tr_kv_table *tables;
    uint32_t *len; /* [n_seqs] tokens so far */
    struct tr_batch_row *rows;
    uint32_t n_rows, n_out;
    float *logits; /* [max_rows, n_vocab] */
    uint64_t rand;
};

struct tr_rig *tr_rig_open(const struct tr_rig_config *c);
void tr_rig_close(struct tr_rig *r);

/* Uniform in 0..n-1. */
uint32_t tr_rig_random(struct tr_rig *r, uint32_t n);

/* Adds the next token of a sequence; rows of one sequence are added one after the other.  Returns
 * the row of `logits` it will fill (the rows with logits are counted up), or TR_NO_LOGITS. */
uint32_t tr_rig_add(struct tr_rig *r, uint32_t seq, uint32_t token, bool out);
/* Runs the batch and begins a new one; `logits` holds until the next run. */
void tr_rig_run(struct tr_rig *r);
/* Feeds n tokens in chunks of at most max_rows, with logits of the last row only; returns them. */
const float *tr_rig_prefill(struct tr_rig *r, uint32_t seq, const uint32_t *ids, uint32_t n);
void tr_rig_reset(struct tr_rig *r, uint32_t seq); /* back to an empty sequence */

/* The model of the tests: $TOKENRING_TEST_MODEL, else .cache/smollm2.gguf. */
const char *tr_rig_model_path(void);

#endif
