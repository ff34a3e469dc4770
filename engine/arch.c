/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/arch.h"

#include "engine/model.h"

#include <string.h>

#define IN_LAYER(field) offsetof(struct tr_layer, field)
#define IN_MODEL(field) offsetof(struct tr_model, field)

static const struct tr_tensor_spec llama_layer[] = {
    {"attn_norm.weight", TR_DIM_EMBD, TR_DIM_ONE, IN_LAYER(attn_norm)},
    {"attn_q.weight", TR_DIM_EMBD, TR_DIM_Q, IN_LAYER(q)},
    {"attn_k.weight", TR_DIM_EMBD, TR_DIM_KV, IN_LAYER(k)},
    {"attn_v.weight", TR_DIM_EMBD, TR_DIM_KV, IN_LAYER(v)},
    {"attn_output.weight", TR_DIM_Q, TR_DIM_EMBD, IN_LAYER(attn_out)},
    {"ffn_norm.weight", TR_DIM_EMBD, TR_DIM_ONE, IN_LAYER(ffn_norm)},
    {"ffn_gate.weight", TR_DIM_EMBD, TR_DIM_FF, IN_LAYER(gate)},
    {"ffn_up.weight", TR_DIM_EMBD, TR_DIM_FF, IN_LAYER(up)},
    {"ffn_down.weight", TR_DIM_FF, TR_DIM_EMBD, IN_LAYER(down)},
    {NULL, TR_DIM_ONE, TR_DIM_ONE, 0},
};

/* In the llama architecture rows of q and k are stored so that neighbours turn together. */
static const struct tr_arch archs[] = {
    {"llama", TR_ROPE_ADJACENT, llama_layer},
};

const struct tr_tensor_spec tr_spec_embd = {"token_embd.weight", TR_DIM_EMBD, TR_DIM_VOCAB,
                                            IN_MODEL(token_embd)};
const struct tr_tensor_spec tr_spec_norm = {"output_norm.weight", TR_DIM_EMBD, TR_DIM_ONE,
                                            IN_MODEL(output_norm)};
const struct tr_tensor_spec tr_spec_output = {"output.weight", TR_DIM_EMBD, TR_DIM_VOCAB,
                                              IN_MODEL(output)};

const struct tr_arch *tr_arch_find(struct tr_str name)
{
    for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++)
        if (strlen(archs[i].name) == name.len && memcmp(archs[i].name, name.p, name.len) == 0)
            return &archs[i];
    return NULL;
}
