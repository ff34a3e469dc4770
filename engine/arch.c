/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/arch.h"

#include "engine/model.h"

#include <string.h>

#define IN_LAYER(field) offsetof(struct tr_layer, field)
#define IN_MODEL(field) offsetof(struct tr_model, field)
#define END                                                                                        \
    {                                                                                              \
        .name = NULL                                                                               \
    }

static const struct tr_tensor_spec llama_top[] = {
    {"token_embd.weight", TR_DIM_EMBD, TR_DIM_VOCAB, IN_MODEL(token_embd), false},
    {"output_norm.weight", TR_DIM_EMBD, TR_DIM_ONE, IN_MODEL(output_norm), false},
    {"output.weight", TR_DIM_EMBD, TR_DIM_VOCAB, IN_MODEL(output), true},
    {"rope_freqs.weight", TR_DIM_PAIRS, TR_DIM_ONE, IN_MODEL(rope_freqs), true},
    {"rope_factors_long.weight", TR_DIM_PAIRS, TR_DIM_ONE, IN_MODEL(rope_long), true},
    {"rope_factors_short.weight", TR_DIM_PAIRS, TR_DIM_ONE, IN_MODEL(rope_short), true},
    END,
};

static const struct tr_tensor_spec llama_layer[] = {
    {"attn_norm.weight", TR_DIM_EMBD, TR_DIM_ONE, IN_LAYER(attn_norm), false},
    {"attn_q.weight", TR_DIM_EMBD, TR_DIM_Q, IN_LAYER(q), false},
    {"attn_k.weight", TR_DIM_EMBD, TR_DIM_KV, IN_LAYER(k), false},
    {"attn_v.weight", TR_DIM_EMBD, TR_DIM_KV, IN_LAYER(v), false},
    {"attn_output.weight", TR_DIM_Q, TR_DIM_EMBD, IN_LAYER(attn_out), false},
    {"ffn_norm.weight", TR_DIM_EMBD, TR_DIM_ONE, IN_LAYER(ffn_norm), false},
    {"ffn_gate.weight", TR_DIM_EMBD, TR_DIM_FF, IN_LAYER(gate), false},
    {"ffn_up.weight", TR_DIM_EMBD, TR_DIM_FF, IN_LAYER(up), false},
    {"ffn_down.weight", TR_DIM_FF, TR_DIM_EMBD, IN_LAYER(down), false},
    END,
};

/* In the llama architecture rows of q and k are stored so that neighbours turn together. */
static const struct tr_arch archs[] = {
    {"llama", TR_ROPE_ADJACENT, llama_top, llama_layer},
};

enum { N_ARCHS = sizeof(archs) / sizeof(archs[0]) };

const struct tr_arch *tr_arch_find(struct tr_str name)
{
    for (size_t i = 0; i < N_ARCHS; i++)
        if (strlen(archs[i].name) == name.len && memcmp(archs[i].name, name.p, name.len) == 0)
            return &archs[i];
    return NULL;
}

const char *tr_arch_names(char buf[96])
{
    buf[0] = 0;
    for (size_t i = 0; i < N_ARCHS; i++) {
        strcat(buf, i ? ", " : "");
        strcat(buf, archs[i].name);
    }
    return buf;
}
