/* SPDX-License-Identifier: Apache-2.0 */
/* engine/arch.h - architectures as data: which tensors one has, how they are shaped and where in
 * the model they go, and what of its arithmetic the file does not say.
 *
 * A new architecture whose layers are made of the same parts is a row of the table in arch.c; the
 * forward pass (engine/forward.h) is the same for every row and does what it finds in a layer. */
#ifndef TR_ENGINE_ARCH_H
#define TR_ENGINE_ARCH_H

#include "base/gguf.h"
#include "cpu_kernels/ops.h"

/* A side of a matrix, or the length of a vector. */
enum tr_dim {
    TR_DIM_EMBD,
    TR_DIM_FF,
    TR_DIM_Q,  /* all heads */
    TR_DIM_KV, /* all KV heads */
    TR_DIM_VOCAB,
    TR_DIM_HEAD,
    TR_DIM_PAIRS, /* that RoPE turns in a head */
    TR_DIM_ONE
};

/* Parts of a model that come and go together from one architecture to the next; bits. */
enum tr_part {
    TR_PART_CORE = 1,         /* what all have */
    TR_PART_OUTPUT = 2,       /* an output matrix that is not the embedding again */
    TR_PART_ROPE_FACTORS = 4, /* by which angles are divided */
    TR_PART_QKV_BIASES = 8,
    TR_PART_ATTN_OUT_BIAS = 16,
    TR_PART_HEAD_NORMS = 32, /* of q and k, before they are turned */
    TR_PART_POST_NORMS = 64, /* of what a half of a layer adds to the residual stream */
};

/* A tensor: its name (in a layer: after "blk.N."), its sides, and where in the model or layer it
 * goes.  A vector of F32 has n_out TR_DIM_ONE and goes to a `const float *`; a matrix goes to a
 * `struct tr_mat`.  The place of one that is not there stays zero. */
struct tr_tensor_spec {
    const char *name;
    enum tr_part part;
    enum tr_dim n_in, n_out;
    size_t place;
};

/* Both end with a NULL name; the first one outside the layers is the embedding. */
extern const struct tr_tensor_spec tr_model_tensors[], tr_layer_tensors[];

/* What the gate of a feed-forward half goes through. */
enum tr_ffn_act { TR_FFN_SILU, TR_FFN_GELU };

struct tr_arch {
    const char *name;
    enum tr_rope_style rope_style;
    enum tr_ffn_act ffn_act;
    bool embd_scaled; /* embedded rows are multiplied by sqrt(n_embd) */
    /* Every so many layers one sees all positions, the others a sliding window, with angles of
     * this base; 0: the architecture has no windows. */
    uint32_t full_period;
    double local_base;
    uint32_t wide_layers; /* a model of so many layers divides scores by sqrt(n_embd / n_head) */
    uint32_t needs;       /* parts that must be there */
    uint32_t may;         /* parts that may be there, each tensor for itself */
};

static inline bool tr_arch_has(const struct tr_arch *a, const struct tr_tensor_spec *s)
{
    return ((a->needs | a->may) & (uint32_t)s->part) != 0;
}

/* The architecture of that name, or NULL. */
const struct tr_arch *tr_arch_find(struct tr_str name);

/* All names with commas between them, for messages. */
const char *tr_arch_names(char buf[96]);

#endif
