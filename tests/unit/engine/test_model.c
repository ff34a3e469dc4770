/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model.h"

#include "engine/backend.h"
#include "testlib/gguf_write.h"
#include "testrig/apart.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct tr_dev *open_dev(enum tr_ops_math math)
{
    struct tr_errbuf err = {""};
    struct tr_dev *dev = tr_cpu_open(
        &(struct tr_cpu_config){.math = math, .level_max = TR_CPU_AVX512, .n_threads = 1}, &err);
    cr_assert(ne(ptr, dev, NULL), "%s", err.msg);
    return dev;
}

static uint32_t signs; /* of life, given while models load */

static void count_beat(void *arg)
{
    ++*(uint32_t *)arg;
}

/* Loads the file of `w` (which is consumed); NULL and the sentence in `err` if it is refused. */
static struct tr_model *load(struct tr_gw *w, struct tr_dev *dev, struct tr_errbuf *err)
{
    size_t len;
    uint8_t *bytes = tr_gw_finish(w, &len);
    struct tr_gguf *g = tr_gguf_parse(bytes, len, "m.gguf", err);
    cr_assert(ne(ptr, g, NULL), "%s", err->msg);
    struct tr_model *m = tr_model_load(g, "m.gguf", 0, &tr_ops_cpu, dev, count_beat, &signs, err);
    tr_gguf_close(g);
    free(bytes);
    return m;
}

static void refused(struct tr_gw *w, const char *want)
{
    struct tr_errbuf err = {""};
    struct tr_dev *dev = open_dev(TR_OPS_INT8);
    struct tr_model *m = load(w, dev, &err);
    cr_expect(eq(ptr, m, NULL), "accepted: %s", want);
    cr_expect(strstr(err.msg, want) != NULL, "wanted \"%s\" in \"%s\"", want, err.msg);
    cr_expect(strncmp(err.msg, "m.gguf: ", 8) == 0, "no file in \"%s\"", err.msg);
    tr_model_free(m);
    tr_ops_cpu.close(dev);
}

static struct tr_gw *tiny(const struct tr_gw_llama *spec)
{
    struct tr_gw *w = tr_gw_new(3);
    tr_gw_llama(w, spec);
    return w;
}

#define LLAMA(...) tiny(&(struct tr_gw_llama){__VA_ARGS__})

/* From a slow disk every few megabytes take their time, in many tensors or in one. */
Test(model, loading_gives_signs_of_life)
{
    struct tr_errbuf err = {""};
    struct tr_dev *dev = open_dev(TR_OPS_INT8);
    struct tr_model *m = load(LLAMA(.n_layer = 4), dev, &err);
    cr_assert(ne(ptr, m, NULL), "%s", err.msg);
    cr_expect(signs > 4 * 9, "%u for four layers of nine tensors", signs);
    uint32_t small = signs;
    tr_model_free(m);
    signs = 0;
    m = load(LLAMA(.n_layer = 4, .n_vocab = 100000), dev, &err); /* 25.6 MB of it */
    cr_assert(ne(ptr, m, NULL), "%s", err.msg);
    cr_expect(eq(u32, signs, small + 6));
    tr_model_free(m);
    tr_ops_cpu.close(dev);
}

Test(model, every_type_loads_in_every_math_mode)
{
    static const enum tr_tensor_type types[] = {
        TR_T_F32,  TR_T_F16,  TR_T_BF16, TR_T_Q8_0, TR_T_Q4_0, TR_T_Q4_1, TR_T_Q5_0,
        TR_T_Q5_1, TR_T_Q2_K, TR_T_Q3_K, TR_T_Q4_K, TR_T_Q5_K, TR_T_Q6_K};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        for (int math = TR_OPS_INT8; math <= TR_OPS_F32; math++) {
            struct tr_errbuf err = {""};
            struct tr_dev *dev = open_dev((enum tr_ops_math)math);
            struct tr_model *m =
                load(LLAMA(.type = types[i], .embd_type = types[i], .output = i & 1, .n_embd = 256,
                           .n_ff = 256, .n_head = 8),
                     dev, &err);
            cr_assert(ne(ptr, m, NULL), "%s", err.msg);
            cr_expect(m->output_tied == !(i & 1));
            cr_expect(eq(u32, m->hp.n_vocab, 100));
            cr_expect(eq(u32, m->hp.head_dim, 32));
            cr_expect(eq(u32, m->hp.n_rot, 32));
            cr_expect(m->step_bytes <= m->weights_len && m->step_bytes > m->weights_len / 2);
            tr_model_free(m);
            tr_ops_cpu.close(dev);
        }
}

/* What it would be is known without a weight being packed. */
Test(model, measuring_tells_what_loading_makes)
{
    for (int own_output = 0; own_output < 2; own_output++) {
        struct tr_errbuf err = {""};
        struct tr_dev *dev = open_dev(TR_OPS_INT8);
        size_t len;
        uint8_t *bytes = tr_gw_finish(
            LLAMA(.type = TR_T_Q8_0, .embd_type = TR_T_F16, .output = own_output), &len);
        struct tr_gguf *g = tr_gguf_parse(bytes, len, "m.gguf", &err);
        struct tr_model *a = tr_model_measure(g, "m.gguf", &tr_ops_cpu, dev, &err);
        struct tr_model *b =
            tr_model_load(g, "m.gguf", 0, &tr_ops_cpu, dev, count_beat, &signs, &err);
        cr_assert(a && b, "%s", err.msg);
        cr_expect(a->weights == NULL && b->weights != NULL);
        cr_expect(eq(sz, a->weights_len, b->weights_len));
        cr_expect(eq(u64, a->step_bytes, b->step_bytes));
        cr_expect(a->output_tied == b->output_tied && a->output_tied == !own_output);
        cr_expect(memcmp(&a->hp, &b->hp, sizeof(a->hp)) == 0);
        tr_model_free(a);
        tr_model_free(b);
        tr_gguf_close(g);
        free(bytes);
        tr_ops_cpu.close(dev);
    }
}

Test(model, other_architectures_are_refused_by_name)
{
    refused(LLAMA(.arch = "gemma2"),
            "architecture \"gemma2\" is not implemented (these are: llama, qwen2, qwen3, gemma3)");
    refused(tr_gw_new(3), "key general.architecture is missing");
}

Test(model, other_tensor_types_are_refused_by_name)
{
    struct tr_gw *w = LLAMA(.skip = "blk.1.attn_k.weight");
    tr_gw_tensor(w, "blk.1.attn_k.weight", TR_T_Q8_1, 2, (uint64_t[]){64, 32},
                 (uint8_t[64 * 36]){0}, 64 * 36);
    refused(w, "tensor blk.1.attn_k.weight has type Q8_1, which is not implemented");
    w = LLAMA(.skip = "output_norm.weight");
    tr_gw_random(w, "output_norm.weight", TR_T_F16, 1, (uint64_t[]){64});
    refused(w, "tensor output_norm.weight has type F16; vectors must be F32");
}

Test(model, missing_tensors_and_keys_are_named)
{
    static const char *const tensors[] = {"token_embd.weight", "blk.0.attn_norm.weight",
                                          "blk.1.ffn_down.weight", "output_norm.weight"};
    char want[96];
    for (size_t i = 0; i < 4; i++) {
        snprintf(want, sizeof(want), "tensor %s is missing", tensors[i]);
        refused(LLAMA(.skip = tensors[i]), want);
    }
    static const char *const keys[] = {
        "llama.block_count",          "llama.context_length",
        "llama.embedding_length",     "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"};
    for (size_t i = 0; i < 6; i++) {
        snprintf(want, sizeof(want), "key %s is missing", keys[i]);
        refused(LLAMA(.skip = keys[i]), want);
    }
}

Test(model, wrong_shapes_are_named)
{
    struct tr_gw *w = LLAMA(.skip = "blk.0.ffn_up.weight");
    tr_gw_random(w, "blk.0.ffn_up.weight", TR_T_F32, 2, (uint64_t[]){64, 64});
    refused(w, "tensor blk.0.ffn_up.weight is [64, 64], the model's keys say [64, 96]");
    w = LLAMA(.skip = "token_embd.weight");
    tr_gw_random(w, "token_embd.weight", TR_T_F32, 1, (uint64_t[]){64});
    refused(w, "tensor token_embd.weight is not a table");
}

Test(model, tensors_without_a_place_are_refused)
{
    refused(LLAMA(.extra = "blk.0.ffn_up.bias"),
            "tensor blk.0.ffn_up.bias is not implemented for architecture llama");
    refused(LLAMA(.extra = "blk.0.attn_q_norm.weight"), "tensor blk.0.attn_q_norm.weight is not");
    refused(LLAMA(.arch = "qwen3", .extra = "blk.0.attn_q.bias"),
            "tensor blk.0.attn_q.bias is not");
    refused(LLAMA(.arch = "qwen2", .extra = "rope_freqs.weight"), "rope_freqs.weight is not");
    refused(LLAMA(.extra = "blk.2.attn_norm.weight"), "tensor blk.2.attn_norm.weight is not");
    refused(LLAMA(.extra = "blk.00.attn_norm.weight"), "tensor blk.00.attn_norm.weight is not");
}

Test(model, variants_of_the_arithmetic_are_refused)
{
    struct tr_gw *w = LLAMA(.seed = 1);
    tr_gw_u32(w, "llama.expert_count", 8);
    refused(w, "mixtures of experts (8)");
    w = LLAMA(.seed = 1);
    tr_gw_u32(w, "llama.attention.sliding_window", 512);
    refused(w, "sliding windows (512)");
    w = LLAMA(.seed = 1);
    tr_gw_f32(w, "llama.final_logit_softcapping", 30);
    refused(w, "caps of logits (30)");
    w = LLAMA(.seed = 1);
    tr_gw_u32(w, "llama.attention.value_length", 64);
    refused(w, "heads whose values (64) and keys (32) differ");
}

static struct tr_model *loaded(struct tr_gw *w, struct tr_dev *dev)
{
    struct tr_errbuf err = {""};
    struct tr_model *m = load(w, dev, &err);
    cr_assert(ne(ptr, m, NULL), "%s", err.msg);
    return m;
}

Test(model, each_architecture_has_its_parts)
{
    struct tr_dev *dev = open_dev(TR_OPS_F32);
    struct tr_model *m = loaded(LLAMA(.arch = "qwen2"), dev);
    const struct tr_layer *l = &m->layers[1];
    cr_expect(l->q_bias && l->k_bias && l->v_bias && !l->q_norm && !l->attn_post_norm);
    cr_expect(m->hp.rope_style == TR_ROPE_HALF && m->hp.embd_scale == 1);
    tr_model_free(m);
    m = loaded(LLAMA(.arch = "qwen3", .head_dim = 48), dev);
    l = &m->layers[1];
    cr_expect(l->q_norm && l->k_norm && !l->q_bias && !l->ffn_post_norm);
    cr_expect(m->hp.head_dim == 48 && l->q.n_out == 96 && l->attn_out.n_in == 96);
    tr_model_free(m);
    m = loaded(LLAMA(.arch = "gemma3"), dev);
    l = &m->layers[1];
    cr_expect(l->q_norm && l->k_norm && l->attn_post_norm && l->ffn_post_norm);
    cr_expect(m->hp.embd_scale == 8 && m->hp.ffn_act == TR_FFN_GELU && m->hp.window == 0);
    tr_model_free(m);
    m = loaded(LLAMA(.extra = "blk.1.attn_output.bias"), dev);
    cr_expect(m->layers[1].attn_out_bias && !m->layers[0].attn_out_bias);
    tr_model_free(m);
    refused(LLAMA(.arch = "qwen2", .skip = "blk.1.attn_k.bias"), "attn_k.bias is missing");
    refused(LLAMA(.arch = "gemma3", .skip = "blk.0.post_ffw_norm.weight"), "is missing");
    tr_ops_cpu.close(dev);
}

/* Every sixth layer of Gemma 3 sees everything, which its files do not say. */
Test(model, which_layers_are_local_is_known_or_said)
{
    struct tr_dev *dev = open_dev(TR_OPS_F32);
    struct tr_model *m = loaded(LLAMA(.arch = "gemma3", .n_layer = 13, .window = 8), dev);
    for (uint32_t i = 0; i < 13; i++)
        cr_expect(m->hp.local[i] == (i != 5 && i != 11), "layer %u", i);
    cr_expect(m->hp.window == 8 && m->hp.rope_local.base == 10000);
    tr_model_free(m);

    struct tr_gw *w = LLAMA(.arch = "gemma3", .n_layer = 3, .window = 8);
    tr_gw_u32(w, "gemma3.attention.sliding_window_pattern", 2);
    tr_gw_f32(w, "gemma3.rope.freq_base_swa", 5000);
    tr_gw_f32(w, "gemma3.rope.scale_linear", 8);
    m = loaded(w, dev);
    cr_expect(m->hp.local[0] && m->hp.local[2]);
    cr_expect(m->hp.local[1] == false);
    cr_expect(m->hp.rope_local.base == 5000 && m->hp.rope_local.factor == 1);
    cr_expect(m->hp.rope.factor == 8);
    tr_model_free(m);

    /* element type bool, length, one byte each */
    const uint8_t list[] = {7, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1};
    w = LLAMA(.arch = "gemma3", .n_layer = 3, .window = 8);
    tr_gw_kv(w, "gemma3.attention.sliding_window_pattern", TR_GGUF_ARRAY, list, sizeof(list));
    m = loaded(w, dev);
    cr_expect(m->hp.local[1] && m->hp.local[2]);
    cr_expect(m->hp.local[0] == false);
    tr_model_free(m);
    w = LLAMA(.arch = "gemma3", .n_layer = 4, .window = 8);
    tr_gw_kv(w, "gemma3.attention.sliding_window_pattern", TR_GGUF_ARRAY, list, sizeof(list));
    refused(w, "does not say yes or no for each of 4 layers");
    w = LLAMA(.arch = "gemma3", .n_layer = 4, .window = 8);
    tr_gw_u32(w, "gemma3.attention.sliding_window_pattern", 0);
    refused(w, "sliding_window_pattern must be 1..");
    tr_ops_cpu.close(dev);
}

Test(model, scores_are_scaled_by_the_key_or_by_the_heads)
{
    struct tr_dev *dev = open_dev(TR_OPS_F32);
    struct tr_model *m = loaded(LLAMA(.n_head = 4), dev);
    cr_expect(m->hp.attn_scale == 0.25f);
    tr_model_free(m);
    struct tr_gw *w = LLAMA(.seed = 1);
    tr_gw_f32(w, "llama.attention.scale", 0.125f);
    m = loaded(w, dev);
    cr_expect(m->hp.attn_scale == 0.125f);
    tr_model_free(m);
    m = loaded(LLAMA(.arch = "gemma3", .n_layer = 62, .n_embd = 128, .head_dim = 16), dev);
    cr_expect(m->hp.attn_scale == 0.125f, "the 27B: 1/sqrt(128 / 2)");
    tr_model_free(m);
    tr_ops_cpu.close(dev);
}

/* Factors [16] for heads of 32; the first one is `f`. */
static void add_factors(struct tr_gw *w, const char *name, float f)
{
    float factors[16] = {f};
    for (int i = 1; i < 16; i++)
        factors[i] = 1.0f + (float)i;
    tr_gw_tensor(w, name, TR_T_F32, 1, (uint64_t[]){16}, factors, sizeof(factors));
}

static struct tr_gw *longrope(void)
{
    struct tr_gw *w = LLAMA(.seed = 1);
    tr_gw_str(w, "llama.rope.scaling.type", "longrope");
    tr_gw_u32(w, "llama.rope.scaling.original_context_length", 64);
    tr_gw_f32(w, "llama.rope.scaling.attn_factor", 1.25f);
    return w;
}

Test(model, factors_of_angles_go_with_their_scaling)
{
    struct tr_errbuf err = {""};
    struct tr_dev *dev = open_dev(TR_OPS_F32);
    struct tr_gw *w = LLAMA(.seed = 1);
    add_factors(w, "rope_freqs.weight", 8);
    struct tr_model *m = load(w, dev, &err);
    cr_assert(ne(ptr, m, NULL), "%s", err.msg);
    cr_expect(m->rope_freqs && m->rope_freqs[0] == 8 && m->rope_freqs[15] == 16);
    cr_expect(m->output_tied && !m->rope_long && !m->rope_short);
    tr_model_free(m);
    w = longrope();
    add_factors(w, "rope_factors_short.weight", 1);
    add_factors(w, "rope_factors_long.weight", 4);
    m = load(w, dev, &err);
    cr_assert(ne(ptr, m, NULL), "%s", err.msg);
    cr_expect(m->rope_short[0] == 1 && m->rope_long[0] == 4 && !m->rope_freqs);
    cr_expect(m->step_bytes == m->weights_len);
    tr_model_free(m);
    tr_ops_cpu.close(dev);
}

Test(model, wrong_factors_of_angles_are_refused)
{
    struct tr_gw *w = LLAMA(.seed = 1);
    add_factors(w, "rope_freqs.weight", 0);
    refused(w, "tensor rope_freqs.weight: a factor is 0");
    refused(LLAMA(.extra = "rope_freqs.weight"), "tensor rope_freqs.weight is [64, 1]");
    w = LLAMA(.seed = 1);
    add_factors(w, "rope_factors_long.weight", 1);
    refused(w, "tensor rope_factors_long.weight does not go with the RoPE scaling");
    w = longrope();
    add_factors(w, "rope_factors_long.weight", 1);
    refused(w, "tensor rope_factors_short.weight is missing");
    w = longrope();
    add_factors(w, "rope_freqs.weight", 1);
    add_factors(w, "rope_factors_long.weight", 1);
    add_factors(w, "rope_factors_short.weight", 1);
    refused(w, "tensor rope_freqs.weight does not go with");
}

Test(model, harmless_variants_are_accepted)
{
    struct tr_errbuf err = {""};
    struct tr_dev *dev = open_dev(TR_OPS_F32);
    struct tr_gw *w = LLAMA(.seed = 1);
    tr_gw_str(w, "llama.rope.scaling.type", "none");
    tr_gw_u32(w, "llama.expert_count", 0);
    tr_gw_u32(w, "llama.vocab_size", 100);
    tr_gw_u32(w, "llama.rope.dimension_count", 16);
    struct tr_model *m = load(w, dev, &err);
    cr_assert(ne(ptr, m, NULL), "%s", err.msg);
    cr_expect(eq(u32, m->hp.n_rot, 16));
    tr_model_free(m);
    tr_ops_cpu.close(dev);
}

Test(model, numbers_out_of_bounds_are_refused)
{
    refused(LLAMA(.n_head = 2, .n_head_kv = 4), "2 heads cannot share 4 KV heads evenly");
    refused(LLAMA(.n_head = 8), "8 heads of 8 elements are not implemented");
    refused(LLAMA(.n_layer = 5000, .n_ff = 32, .n_vocab = 2, .skip = "token_embd.weight"),
            "tensor token_embd.weight is missing");
    struct tr_gw *w = LLAMA(.skip = "llama.context_length");
    tr_gw_u32(w, "llama.context_length", 0);
    refused(w, "key llama.context_length must be 1..");
    w = LLAMA(.skip = "llama.block_count");
    tr_gw_u32(w, "llama.block_count", UINT32_MAX);
    refused(w, "key llama.block_count must be 1..");
    w = LLAMA(.skip = "llama.rope.freq_base");
    tr_gw_f32(w, "llama.rope.freq_base", -1);
    refused(w, "key llama.rope.freq_base must be above 0");
    w = LLAMA(.seed = 1);
    tr_gw_strs(w, "tokenizer.ggml.tokens", (const char *const[]){"a", "b"}, 2);
    refused(w, "the vocabulary has 2 tokens by tokenizer.ggml.tokens");
    w = LLAMA(.seed = 1);
    tr_gw_u32(w, "llama.rope.dimension_count", 7);
    refused(w, "RoPE over 7 elements");
}

/* --- through the backend ---------------------------------------------------------------------- */

static struct tr_backend *open_file(const char *path, struct tr_backend_config c,
                                    struct tr_backend_info *info, struct tr_errbuf *err)
{
    c.model_path = path;
    c.n_threads = c.n_threads ? c.n_threads : 1;
    c.max_rows = c.max_rows ? c.max_rows : 8;
    c.max_out = c.max_out ? c.max_out : 8;
    return tr_backend_cpu.open(&c, info, err);
}

static void save_tiny(char path[64])
{
    size_t len;
    uint8_t *b = tr_gw_finish(LLAMA(.type = TR_T_Q8_0, .embd_type = TR_T_Q8_0), &len);
    tr_gw_save(b, len, path);
    free(b);
}

Test(backend_cpu, memory_is_planned_from_the_configuration)
{
    char path[64];
    save_tiny(path);
    struct tr_backend_info info;
    struct tr_errbuf err = {""};
    struct tr_backend *b = open_file(
        path, (struct tr_backend_config){.max_seqs = 3, .kv_type = TR_KV_F32}, &info, &err);
    cr_assert(ne(ptr, b, NULL), "%s", err.msg);
    cr_expect(eq(u32, info.n_ctx, 256));
    cr_expect(eq(u32, info.n_kv_blocks, 3 * 256 / TR_KV_BLOCK));
    cr_expect(eq(u64, info.kv_block_bytes, 2 * 2 * 32 * TR_KV_BLOCK * 4));
    cr_expect(info.deterministic);
    cr_expect(strstr(info.description, "ctx 256") != NULL, "%s", info.description);
    tr_backend_cpu.close(b);

    /* Memory for two blocks: a context nobody asked for shrinks, one that was asked for does not. */
    b = open_file(
        path,
        (struct tr_backend_config){.max_seqs = 3, .kv_bytes = 2 * 16384, .kv_type = TR_KV_F32},
        &info, &err);
    cr_assert(ne(ptr, b, NULL), "%s", err.msg);
    cr_expect(eq(u32, info.n_ctx, 2 * TR_KV_BLOCK));
    cr_expect(eq(u32, info.n_kv_blocks, 2));
    tr_backend_cpu.close(b);
    b = open_file(path,
                  (struct tr_backend_config){
                      .max_seqs = 3, .kv_bytes = 2 * 16384, .n_ctx = 100, .kv_type = TR_KV_F32},
                  &info, &err);
    cr_expect(eq(ptr, b, NULL));
    cr_expect(strstr(err.msg, "KV memory for 64 tokens is less than one context of 100") != NULL,
              "%s", err.msg);
    b = open_file(path, (struct tr_backend_config){.max_seqs = 3, .n_ctx = 257}, &info, &err);
    cr_expect(eq(ptr, b, NULL));
    cr_expect(strstr(err.msg, "the model has 256") != NULL, "%s", err.msg);
    unlink(path);
}

Test(backend_cpu, who_insists_on_the_same_tokens_gets_no_blas)
{
    char path[64];
    save_tiny(path);
    struct tr_backend_info info;
    struct tr_errbuf err = {""};
    struct tr_backend_config c = {.max_seqs = 1, .math = TR_MATH_BLAS, .deterministic = true};
    struct tr_backend *b = open_file(path, c, &info, &err);
    cr_assert(eq(ptr, b, NULL));
    cr_expect(eq(str, err.msg, "the products of blas are not deterministic"));
    c.math = TR_MATH_F32;
    b = open_file(path, c, &info, &err);
    cr_assert(ne(ptr, b, NULL), "%s", err.msg);
    cr_expect(info.deterministic);
    tr_backend_cpu.close(b);
    unlink(path);
}

Test(backend_cpu, windows_and_scaling_are_told)
{
    char path[64];
    size_t len;
    struct tr_gw *w = LLAMA(.arch = "gemma3", .n_layer = 7, .window = 512);
    tr_gw_f32(w, "gemma3.rope.scale_linear", 8);
    uint8_t *bytes = tr_gw_finish(w, &len);
    tr_gw_save(bytes, len, path);
    free(bytes);
    struct tr_backend_info info;
    struct tr_errbuf err = {""};
    struct tr_backend *b = open_file(path, (struct tr_backend_config){.max_seqs = 1}, &info, &err);
    cr_assert(ne(ptr, b, NULL), "%s", err.msg);
    cr_expect(strstr(info.description, ", RoPE linear, window 512 in 6 of 7 layers") != NULL, "%s",
              info.description);
    tr_backend_cpu.close(b);
    unlink(path);
}

Test(backend_cpu, a_kv_type_that_cannot_hold_the_heads_is_refused)
{
    char path[64];
    size_t len;
    uint8_t *bytes = tr_gw_finish(LLAMA(.n_head = 4), &len);
    tr_gw_save(bytes, len, path);
    free(bytes);
    struct tr_backend_info info;
    struct tr_errbuf err = {""};
    struct tr_backend_config c = {.max_seqs = 1, .kv_type = TR_KV_Q8_0};
    cr_expect(eq(ptr, open_file(path, c, &info, &err), NULL));
    cr_expect(strstr(err.msg, "KV type q8_0 cannot hold heads of 16") != NULL, "%s", err.msg);
    c.kv_type = TR_KV_F16;
    struct tr_backend *b = open_file(path, c, &info, &err);
    cr_expect(ne(ptr, b, NULL), "%s", err.msg);
    tr_backend_cpu.close(b);
    unlink(path);
}

Test(backend_cpu, faults_of_the_file_come_back_as_sentences)
{
    struct tr_backend_info info;
    struct tr_errbuf err = {""};
    cr_expect(eq(ptr, open_file("/nonexistent", (struct tr_backend_config){0}, &info, &err), NULL));
    cr_expect(strstr(err.msg, "No such file") != NULL);
    cr_expect(eq(ptr, open_file(NULL, (struct tr_backend_config){0}, &info, &err), NULL));
    cr_expect(strstr(err.msg, "needs a model file") != NULL);
    tr_backend_cpu.close(NULL);
}

static void count(void *n)
{
    ++*(uint32_t *)n;
}

/* The file may be cut short or replaced while the engine runs: nothing of it is touched any more. */
Test(backend_cpu, a_file_cut_after_load_does_not_hurt)
{
    char path[64];
    save_tiny(path);
    struct tr_backend_info info;
    struct tr_errbuf err = {""};
    struct tr_backend *b = open_file(path, (struct tr_backend_config){.max_seqs = 1}, &info, &err);
    cr_assert(ne(ptr, b, NULL), "%s", err.msg);
    cr_assert(eq(int, truncate(path, 0), 0));
    float logits[2][100];
    uint32_t blocks[] = {3}, beats = 0;
    for (int i = 0; i < 2; i++)
        tr_backend_cpu.forward(
            b,
            &(struct tr_batch){.rows = &(struct tr_batch_row){.token = 5},
                               .n_rows = 1,
                               .seqs = &(struct tr_kv_table){.blocks = blocks, .n_blocks = 1},
                               .n_seqs = 1,
                               .n_out = 1},
            logits[i], count, &beats);
    cr_expect(eq(u32, beats, 4), "a beat after each of two layers");
    cr_expect(memcmp(logits[0], logits[1], sizeof(logits[0])) == 0);
    tr_backend_cpu.close(b);
    unlink(path);
}

static void mark(void *arg, uint32_t i)
{
    ((uint8_t *)arg)[i]++;
}

Test(backend_cpu, parallel_runs_each_index_once)
{
    char path[64];
    save_tiny(path);
    struct tr_backend_info info;
    struct tr_errbuf err = {""};
    struct tr_backend *b =
        open_file(path, (struct tr_backend_config){.max_seqs = 1, .n_threads = 2}, &info, &err);
    cr_assert(ne(ptr, b, NULL), "%s", err.msg);
    uint8_t seen[301] = {0};
    tr_backend_cpu.parallel(b, 300, mark, seen);
    for (int i = 0; i < 301; i++)
        cr_expect(eq(int, seen[i], i < 300));
    tr_backend_cpu.close(b);
    unlink(path);
}

/* --- on a device whose memory is not the host's --- */

static bool in_device(const struct tr_model *m, const void *p)
{
    return (uintptr_t)p - (uintptr_t)m->resident < m->weights_len;
}

/* What operations read is there; what the host reads is not. */
Test(model, weights_are_where_the_device_finds_them)
{
    struct tr_errbuf err = {""};
    for (int tied = 0; tied < 2; tied++) {
        struct tr_dev *dev = tr_apart_open(&(struct tr_cpu_config){.n_threads = 1}, &err);
        struct tr_gw *w = LLAMA(.output = !tied, .extra = "blk.1.attn_output.bias");
        add_factors(w, "rope_freqs.weight", 8);
        size_t len;
        uint8_t *bytes = tr_gw_finish(w, &len);
        struct tr_gguf *g = tr_gguf_parse(bytes, len, "m.gguf", &err);
        struct tr_model *m = tr_model_load(g, "m.gguf", 0, &tr_ops_apart, dev, NULL, NULL, &err);
        cr_assert(m != NULL, "%s", err.msg);
        for (uint32_t i = 0; i < m->hp.n_layer; i++) {
            const struct tr_layer *l = &m->layers[i];
            cr_expect(in_device(m, l->attn_norm) && in_device(m, l->ffn_norm));
            cr_expect(in_device(m, l->q.packed) && in_device(m, l->k.packed) &&
                      in_device(m, l->v.packed) && in_device(m, l->attn_out.packed) &&
                      in_device(m, l->gate.packed) && in_device(m, l->up.packed) &&
                      in_device(m, l->down.packed));
            cr_expect(i == 1 ? in_device(m, l->attn_out_bias) : !l->attn_out_bias);
        }
        cr_expect(in_device(m, m->token_embd.packed) && in_device(m, m->output_norm));
        cr_expect(in_device(m, m->output.packed));
        bool same = m->output.packed == m->token_embd.packed;
        cr_expect(same == tied);
        cr_expect(m->rope_freqs[0] == 8 && !in_device(m, m->rope_freqs));

        float norm[64];
        const struct tr_gguf_tensor *t = tr_gguf_tensor(g, "blk.1.ffn_norm.weight");
        cr_assert(t->bytes <= sizeof(norm));
        tr_ops_apart.download(dev, norm, m->layers[1].ffn_norm, t->bytes);
        cr_expect(memcmp(norm, t->data, t->bytes) == 0);
        tr_gguf_close(g);
        free(bytes);
        tr_model_free(m);
        tr_ops_apart.close(dev);
    }
}
