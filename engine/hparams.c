/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/hparams.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>

enum {
    DIM_MAX = 1 << 20, /* of every size but the vocabulary */
    VOCAB_MAX = 1 << 24,
    CTX_MAX = 1 << 24
};

/* Keys that change the numbers in ways that the forward pass does not know, with the value that
 * changes nothing. */
static int refuse_variants(const struct tr_keys *k)
{
    static const struct {
        const char *suffix;
        double neutral;
        const char *what;
    } variants[] = {
        {"expert_count", 0, "mixtures of experts"},
        {"attn_logit_softcapping", 0, "caps of attention scores"},
        {"final_logit_softcapping", 0, "caps of logits"},
    };
    char key[TR_KEY_MAX];
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        double v = variants[i].neutral;
        int r = tr_gguf_f64(k->g, tr_key(k, variants[i].suffix, key), &v);
        if (r == -EINVAL)
            return tr_keys_refuse(k, "key %s is not one number", key);
        if (v != variants[i].neutral)
            return tr_keys_refuse(k, "key %s: %s (%g) are not implemented", key, variants[i].what,
                                  v);
    }
    return 0;
}

static int read_heads(const struct tr_keys *k, struct tr_hparams *hp)
{
    uint32_t value_dim;
    if (tr_keys_u32(k, "attention.head_count", DIM_MAX, NULL, &hp->n_head) < 0 ||
        tr_keys_u32(k, "attention.head_count_kv", DIM_MAX, &hp->n_head, &hp->n_head_kv) < 0)
        return -EINVAL;
    if (hp->n_head % hp->n_head_kv)
        return tr_keys_refuse(k, "%" PRIu32 " heads cannot share %" PRIu32 " KV heads evenly",
                              hp->n_head, hp->n_head_kv);
    uint32_t dim = hp->n_embd / hp->n_head;
    if (tr_keys_u32(k, "attention.key_length", DIM_MAX, &dim, &hp->head_dim) < 0 ||
        tr_keys_u32(k, "attention.value_length", DIM_MAX, &hp->head_dim, &value_dim) < 0)
        return -EINVAL;
    if (value_dim != hp->head_dim)
        return tr_keys_refuse(k,
                              "heads whose values (%" PRIu32 ") and keys (%" PRIu32
                              ") differ in length "
                              "are not implemented",
                              value_dim, hp->head_dim);
    if (hp->head_dim == 0 || hp->head_dim % 16 || hp->head_dim > TR_OPS_HEAD_MAX ||
        (uint64_t)hp->head_dim * hp->n_head > DIM_MAX)
        return tr_keys_refuse(k,
                              "%" PRIu32 " heads of %" PRIu32
                              " elements are not implemented (multiples "
                              "of 16 up to %d are)",
                              hp->n_head, hp->head_dim, TR_OPS_HEAD_MAX);
    if (tr_keys_u32(k, "rope.dimension_count", hp->head_dim, &hp->head_dim, &hp->n_rot) < 0)
        return -EINVAL;
    if (hp->n_rot % 2)
        return tr_keys_refuse(k, "RoPE over %" PRIu32 " elements, an odd number", hp->n_rot);
    return 0;
}

/* The vocabulary's size is that of the embedding; what the file says elsewhere must agree. */
static int read_vocab(const struct tr_keys *k, struct tr_hparams *hp)
{
    const char *embd = tr_model_tensors[0].name;
    const struct tr_gguf_tensor *t = tr_gguf_tensor(k->g, embd);
    if (!t)
        return tr_keys_refuse(k, "tensor %s is missing", embd);
    if (t->n_dims != 2 || t->ne[1] > VOCAB_MAX)
        return tr_keys_refuse(k, "tensor %s is not a table of up to %d rows", embd, VOCAB_MAX);
    hp->n_vocab = (uint32_t)t->ne[1];
    uint32_t said;
    if (tr_keys_u32(k, "vocab_size", VOCAB_MAX, &hp->n_vocab, &said) < 0)
        return -EINVAL;
    struct tr_gguf_array a = {.len = hp->n_vocab};
    int r = tr_gguf_array(k->g, "tokenizer.ggml.tokens", &a);
    if (r == -EINVAL || a.len != hp->n_vocab || said != hp->n_vocab)
        return tr_keys_refuse(k,
                              "the vocabulary has %" PRIu64
                              " tokens by tokenizer.ggml.tokens, %" PRIu32
                              " by %s.vocab_size and %" PRIu32 " by %s",
                              a.len, said, k->arch, hp->n_vocab, embd);
    return 0;
}

/* Which layers are local: a list, a period, or what the architecture is known for. */
static int read_pattern(struct tr_hparams *hp, const struct tr_keys *k, uint32_t period)
{
    char key[TR_KEY_MAX];
    struct tr_gguf_array a;
    if (tr_gguf_array(k->g, tr_key(k, "attention.sliding_window_pattern", key), &a) < 0) {
        if (tr_keys_u32(k, "attention.sliding_window_pattern", TR_LAYERS_MAX, &period, &period) < 0)
            return -EINVAL;
        for (uint32_t i = 0; i < hp->n_layer; i++)
            hp->local[i] = (i + 1) % period != 0;
        return 0;
    }
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        if (a.len != hp->n_layer || tr_gguf_next_bool(&a, &hp->local[i]) < 0)
            return tr_keys_refuse(k, "key %s does not say yes or no for each of %" PRIu32 " layers",
                                  key, hp->n_layer);
    }
    return 0;
}

static int read_window(struct tr_hparams *hp, const struct tr_keys *k, const struct tr_arch *arch)
{
    char key[TR_KEY_MAX];
    uint64_t window = 0;
    if (tr_gguf_u64(k->g, tr_key(k, "attention.sliding_window", key), &window) == -EINVAL ||
        window > UINT32_MAX)
        return tr_keys_refuse(k, "key %s is not a number of positions", key);
    if (window && !arch->full_period)
        return tr_keys_refuse(k, "key %s: sliding windows (%" PRIu64 ") are not implemented for %s",
                              key, window, arch->name);
    hp->window = (uint32_t)window;
    if (!window)
        return 0;
    if (hp->rope.scaling != TR_ROPE_LINEAR && hp->rope.scaling != TR_ROPE_PLAIN)
        return tr_keys_refuse(k, "this RoPE scaling beside sliding windows is not implemented");
    hp->rope_local = (struct tr_rope_spec){.factor = 1, .amplitude = 1};
    if (tr_keys_f64(k, "rope.freq_base_swa", arch->local_base, &hp->rope_local.base) < 0)
        return -EINVAL;
    return read_pattern(hp, k, arch->full_period);
}

static int read_attention(struct tr_hparams *hp, const struct tr_keys *k,
                          const struct tr_arch *arch)
{
    double scale;
    if (read_heads(k, hp) < 0 || tr_rope_spec_read(&hp->rope, k, hp->n_ctx) < 0 ||
        read_window(hp, k, arch) < 0)
        return -EINVAL;
    bool wide = hp->n_layer == arch->wide_layers;
    double dim = wide ? (double)hp->n_embd / hp->n_head : hp->head_dim;
    if (tr_keys_f64(k, "attention.scale", 1 / sqrt(dim), &scale) < 0)
        return -EINVAL;
    hp->attn_scale = (float)scale;
    return 0;
}

int tr_hparams_read(struct tr_hparams *hp, const struct tr_keys *k, const struct tr_arch *arch)
{
    double eps;
    if (refuse_variants(k) < 0 || read_vocab(k, hp) < 0 ||
        tr_keys_u32(k, "block_count", TR_LAYERS_MAX, NULL, &hp->n_layer) < 0 ||
        tr_keys_u32(k, "context_length", CTX_MAX, NULL, &hp->n_ctx) < 0 ||
        tr_keys_u32(k, "embedding_length", DIM_MAX, NULL, &hp->n_embd) < 0 ||
        tr_keys_u32(k, "feed_forward_length", DIM_MAX, NULL, &hp->n_ff) < 0 ||
        tr_keys_f64(k, "attention.layer_norm_rms_epsilon", 0, &eps) < 0 ||
        read_attention(hp, k, arch) < 0)
        return -EINVAL;
    if (hp->n_embd % 32 || hp->n_ff % 32)
        return tr_keys_refuse(k,
                              "embedding_length %" PRIu32 " and feed_forward_length %" PRIu32
                              " must be multiples of 32",
                              hp->n_embd, hp->n_ff);
    hp->norm_eps = (float)eps;
    hp->embd_scale = arch->embd_scaled ? sqrtf((float)hp->n_embd) : 1;
    hp->ffn_act = arch->ffn_act;
    hp->rope_style = arch->rope_style;
    return 0;
}

uint32_t tr_hparams_side(const struct tr_hparams *hp, enum tr_dim d)
{
    switch (d) {
    case TR_DIM_EMBD:
        return hp->n_embd;
    case TR_DIM_FF:
        return hp->n_ff;
    case TR_DIM_Q:
        return hp->n_head * hp->head_dim;
    case TR_DIM_KV:
        return hp->n_head_kv * hp->head_dim;
    case TR_DIM_VOCAB:
        return hp->n_vocab;
    case TR_DIM_HEAD:
        return hp->head_dim;
    case TR_DIM_PAIRS:
        return hp->n_rot / 2;
    case TR_DIM_ONE:
        break;
    }
    return 1;
}
