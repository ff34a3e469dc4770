/* SPDX-License-Identifier: Apache-2.0 */
/* engine/model.h - a model loaded from a GGUF file: its numbers, and its weights ready to compute.
 *
 * The file is input.  What is not implemented is refused by its name: the architecture, a key that
 * changes the numbers (engine/hparams.h), a tensor's type, and any tensor that the architecture's
 * table (engine/arch.h) does not know, because leaving one out would give wrong numbers in silence.
 *
 * Weights are copied into memory of our own in the form the operations want.  After tr_model_load
 * the file is not touched again: cutting it short does not hurt a running engine. */
#ifndef TR_ENGINE_MODEL_H
#define TR_ENGINE_MODEL_H

#include "base/err.h"
#include "base/gguf.h"
#include "cpu_kernels/ops.h"
#include "engine/hparams.h"

/* What an architecture does not have is NULL. */
struct tr_layer {
    const float *attn_norm;       /* [n_embd] */
    struct tr_mat q;              /* n_embd -> n_head * head_dim */
    struct tr_mat k, v;           /* n_embd -> n_head_kv * head_dim */
    const float *q_bias;          /* [n_head * head_dim] */
    const float *k_bias, *v_bias; /* [n_head_kv * head_dim] */
    const float *q_norm, *k_norm; /* [head_dim] */
    struct tr_mat attn_out;       /* n_head * head_dim -> n_embd */
    const float *attn_out_bias;   /* [n_embd] */
    const float *attn_post_norm;  /* [n_embd] of what attention adds to the residual stream */
    const float *ffn_norm;        /* [n_embd] */
    struct tr_mat gate, up;       /* n_embd -> n_ff */
    struct tr_mat down;           /* n_ff -> n_embd */
    const float *ffn_post_norm;   /* [n_embd] of what the feed-forward half adds */
};

/* Const after load; any thread may read it. */
struct tr_model {
    struct tr_hparams hp;
    char arch[16];
    char name[64]; /* general.name, cut; empty if there is none */
    struct tr_mat token_embd;
    const float *output_norm; /* [n_embd] */
    struct tr_mat output;     /* n_embd -> n_vocab; token_embd again where the file has none */
    bool output_tied;
    /* What angles are divided by, [n_rot / 2]; NULL where the file has none (engine/rope_spec.h). */
    const float *rope_freqs, *rope_long, *rope_short;
    struct tr_layer *layers; /* [n_layer] */
    void *weights;           /* one region of the host, in which all of the above are packed */
    const void *resident;    /* where operations find it: what all but the factors point into */
    size_t weights_len;
    const struct tr_ops *ops;
    struct tr_dev *dev;
    uint64_t step_bytes; /* weights that a decode step reads: all, without an untied embedding */
};

/* NULL and a sentence that names file, key or tensor.  `path` is for messages.  `g` may be closed
 * afterwards; ops and dev must outlive the model.  `keep_fd`, if above 0, is where packed weights
 * outlive us (weights.h).  `beat(arg)`, if not NULL, is called for every few megabytes of the file. */
struct tr_model *tr_model_load(const struct tr_gguf *g, const char *path, int keep_fd,
                               const struct tr_ops *ops, struct tr_dev *dev, void (*beat)(void *),
                               void *arg, struct tr_errbuf *err);

/* The same without its weights, for who wants to know whether and how it would load: all checks are
 * made, its numbers are those of a loaded one, `weights` is NULL and nothing in it can be computed
 * with. */
struct tr_model *tr_model_measure(const struct tr_gguf *g, const char *path,
                                  const struct tr_ops *ops, struct tr_dev *dev,
                                  struct tr_errbuf *err);

void tr_model_free(struct tr_model *m); /* NULL is fine */

#endif
