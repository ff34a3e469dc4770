/* SPDX-License-Identifier: Apache-2.0 */
/* engine/arch.h - architectures as data: which tensors one has, how they are shaped and where in
 * the model they go, and what of its arithmetic the file does not say.
 *
 * A new architecture whose layers are made of the same parts is a row of the table in arch.c; the
 * forward pass (engine/forward.h) is the same for every row. */
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
    TR_DIM_PAIRS, /* that RoPE turns in a head */
    TR_DIM_ONE
};

/* A tensor of an architecture: its name (in a layer: after "blk.N."), its sides, and where in the
 * model or layer it goes.  A vector of F32 has n_out TR_DIM_ONE and goes to a `const float *`; a
 * matrix goes to a `struct tr_mat`.  What is optional and not there leaves its place zero. */
struct tr_tensor_spec {
    const char *name;
    enum tr_dim n_in, n_out;
    size_t place;
    bool optional;
};

struct tr_arch {
    const char *name;
    enum tr_rope_style rope_style;
    const struct tr_tensor_spec
        *top; /* outside the layers, token_embd first; ends with a NULL name */
    const struct tr_tensor_spec *layer; /* ends with a NULL name */
};

/* The architecture of that name, or NULL. */
const struct tr_arch *tr_arch_find(struct tr_str name);

/* All names with commas between them, for messages. */
const char *tr_arch_names(char buf[96]);

#endif
