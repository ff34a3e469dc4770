/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/arch.h"

#include "base/assert.h"
#include "engine/model.h"

#include <stdio.h>
#include <string.h>

#define TENSOR(name, part, n_in, n_out, place)                                                     \
    {                                                                                              \
        name, TR_PART_##part, TR_DIM_##n_in, TR_DIM_##n_out, place                                 \
    }
#define LAYER(name, part, n_in, n_out, field)                                                      \
    TENSOR(name, part, n_in, n_out, offsetof(struct tr_layer, field))
#define MODEL(name, part, n_in, n_out, field)                                                      \
    TENSOR(name, part, n_in, n_out, offsetof(struct tr_model, field))

const struct tr_tensor_spec tr_model_tensors[] = {
    MODEL("token_embd.weight", CORE, EMBD, VOCAB, token_embd),
    MODEL("output_norm.weight", CORE, EMBD, ONE, output_norm),
    MODEL("output.weight", OUTPUT, EMBD, VOCAB, output),
    MODEL("rope_freqs.weight", ROPE_FACTORS, PAIRS, ONE, rope_freqs),
    MODEL("rope_factors_long.weight", ROPE_FACTORS, PAIRS, ONE, rope_long),
    MODEL("rope_factors_short.weight", ROPE_FACTORS, PAIRS, ONE, rope_short),
    TENSOR(NULL, CORE, ONE, ONE, 0),
};

const struct tr_tensor_spec tr_layer_tensors[] = {
    LAYER("attn_norm.weight", CORE, EMBD, ONE, attn_norm),
    LAYER("attn_q.weight", CORE, EMBD, Q, q),
    LAYER("attn_k.weight", CORE, EMBD, KV, k),
    LAYER("attn_v.weight", CORE, EMBD, KV, v),
    LAYER("attn_q.bias", QKV_BIASES, Q, ONE, q_bias),
    LAYER("attn_k.bias", QKV_BIASES, KV, ONE, k_bias),
    LAYER("attn_v.bias", QKV_BIASES, KV, ONE, v_bias),
    LAYER("attn_q_norm.weight", HEAD_NORMS, HEAD, ONE, q_norm),
    LAYER("attn_k_norm.weight", HEAD_NORMS, HEAD, ONE, k_norm),
    LAYER("attn_output.weight", CORE, Q, EMBD, attn_out),
    LAYER("attn_output.bias", ATTN_OUT_BIAS, EMBD, ONE, attn_out_bias),
    LAYER("post_attention_norm.weight", POST_NORMS, EMBD, ONE, attn_post_norm),
    LAYER("ffn_norm.weight", CORE, EMBD, ONE, ffn_norm),
    LAYER("ffn_gate.weight", CORE, EMBD, FF, gate),
    LAYER("ffn_up.weight", CORE, EMBD, FF, up),
    LAYER("ffn_down.weight", CORE, FF, EMBD, down),
    LAYER("post_ffw_norm.weight", POST_NORMS, EMBD, ONE, ffn_post_norm),
    TENSOR(NULL, CORE, ONE, ONE, 0),
};

/* In the llama architecture rows of q and k are stored so that neighbours turn together; in the
 * others each element turns with the one half of the turned ones away.
 *
 * Gemma 3: norms are stored with their 1 added; the pattern of layers, the base of local angles and
 * the scale of the 27B (62 layers) are facts of the models that their files do not say. */
static const struct tr_arch archs[] = {
    {
        .name = "llama",
        .rope_style = TR_ROPE_ADJACENT,
        .needs = TR_PART_CORE,
        .may = TR_PART_OUTPUT | TR_PART_ROPE_FACTORS | TR_PART_QKV_BIASES | TR_PART_ATTN_OUT_BIAS,
    },
    {
        .name = "qwen2",
        .rope_style = TR_ROPE_HALF,
        .needs = TR_PART_CORE | TR_PART_QKV_BIASES,
        .may = TR_PART_OUTPUT,
    },
    {
        .name = "qwen3",
        .rope_style = TR_ROPE_HALF,
        .needs = TR_PART_CORE | TR_PART_HEAD_NORMS,
        .may = TR_PART_OUTPUT,
    },
    {
        .name = "gemma3",
        .rope_style = TR_ROPE_HALF,
        .ffn_act = TR_FFN_GELU,
        .embd_scaled = true,
        .full_period = 6,
        .local_base = 10000,
        .wide_layers = 62,
        .needs = TR_PART_CORE | TR_PART_HEAD_NORMS | TR_PART_POST_NORMS,
        .may = TR_PART_OUTPUT,
    },
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
    size_t n = 0;
    for (size_t i = 0; i < N_ARCHS; i++)
        n += (size_t)snprintf(buf + n, 96 - n, "%s%s", i ? ", " : "", archs[i].name);
    TR_ASSERT(n < 96);
    return buf;
}
