/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model.h"

#include "base/assert.h"
#include "engine/weights.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    LAYERS_MAX = 1024,
    DIM_MAX = 1 << 20, /* of every size but the vocabulary */
    VOCAB_MAX = 1 << 24,
    CTX_MAX = 1 << 24,
    TENSOR_NAME_MAX = 65,
    PATH_SHOWN = 160
};

/* --- architectures as data -------------------------------------------------------------------- */

/* A side of a matrix. */
enum dim { DIM_EMBD, DIM_FF, DIM_Q, DIM_KV, DIM_VOCAB, DIM_ONE };

/* A tensor of an architecture: its name (in a layer: after "blk.N."), its sides, and where in the
 * model or layer it goes.  A vector of F32 has n_out DIM_ONE and goes to a `const float *`; a
 * matrix goes to a `struct tr_mat`. */
struct tensor_spec {
    const char *name;
    enum dim n_in, n_out;
    size_t place;
};

struct arch {
    const char *name;
    enum tr_rope_style rope_style;
    const struct tensor_spec *layer; /* ends with a NULL name */
};

#define IN_LAYER(field) offsetof(struct tr_layer, field)
#define IN_MODEL(field) offsetof(struct tr_model, field)

static const struct tensor_spec llama_layer[] = {
    {"attn_norm.weight", DIM_EMBD, DIM_ONE, IN_LAYER(attn_norm)},
    {"attn_q.weight", DIM_EMBD, DIM_Q, IN_LAYER(q)},
    {"attn_k.weight", DIM_EMBD, DIM_KV, IN_LAYER(k)},
    {"attn_v.weight", DIM_EMBD, DIM_KV, IN_LAYER(v)},
    {"attn_output.weight", DIM_Q, DIM_EMBD, IN_LAYER(attn_out)},
    {"ffn_norm.weight", DIM_EMBD, DIM_ONE, IN_LAYER(ffn_norm)},
    {"ffn_gate.weight", DIM_EMBD, DIM_FF, IN_LAYER(gate)},
    {"ffn_up.weight", DIM_EMBD, DIM_FF, IN_LAYER(up)},
    {"ffn_down.weight", DIM_FF, DIM_EMBD, IN_LAYER(down)},
    {NULL, DIM_ONE, DIM_ONE, 0},
};

/* In the llama architecture rows of q and k are stored so that neighbours turn together. */
static const struct arch archs[] = {
    {"llama", TR_ROPE_ADJACENT, llama_layer},
};

/* Outside the layers all architectures are alike. */
static const struct tensor_spec spec_embd = {"token_embd.weight", DIM_EMBD, DIM_VOCAB,
                                             IN_MODEL(token_embd)};
static const struct tensor_spec spec_norm = {"output_norm.weight", DIM_EMBD, DIM_ONE,
                                             IN_MODEL(output_norm)};
static const struct tensor_spec spec_output = {"output.weight", DIM_EMBD, DIM_VOCAB,
                                               IN_MODEL(output)};

/* --- loading ---------------------------------------------------------------------------------- */

struct loader {
    const struct tr_gguf *g;
    const char *path;
    const struct tr_ops *ops;
    struct tr_dev *dev;
    int keep_fd;
    bool filled; /* the weights are there already */
    void (*beat)(void *);
    void *beat_arg;
    struct tr_errbuf *err;
    const struct arch *arch;
    struct tr_model *m;
    /* Weights are placed one after the other: a first pass without memory counts the bytes. */
    size_t used;
    uint64_t n_known; /* tensors of the file that found their place */
};

static void say(const struct loader *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(const struct loader *l, const char *fmt, ...)
{
    char why[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    tr_errf(l->err, -EINVAL, "%.*s: %s", PATH_SHOWN, l->path, why);
}

/* The sentence after the file's name, and the error. */
#define refuse(l, ...) (say((l), __VA_ARGS__), -EINVAL)

static const char *arch_key(const struct loader *l, const char *suffix, char key[96])
{
    snprintf(key, 96, "%s.%s", l->arch->name, suffix);
    return key;
}

/* An integer key of the architecture in 1..max.  Without `fallback` it must be there. */
static int get_u32(const struct loader *l, const char *suffix, uint32_t max,
                   const uint32_t *fallback, uint32_t *out)
{
    char key[96];
    uint64_t v = 0;
    int r = tr_gguf_u64(l->g, arch_key(l, suffix, key), &v);
    if (r == -ENOENT && fallback) {
        *out = *fallback;
        return 0;
    }
    if (r == -ENOENT)
        return refuse(l, "key %s is missing", key);
    if (r < 0)
        return refuse(l, "key %s is not one non-negative integer", key);
    if (v < 1 || v > max)
        return refuse(l, "key %s must be 1..%" PRIu32 ", not %" PRIu64, key, max, v);
    *out = (uint32_t)v;
    return 0;
}

/* A positive finite number; without `fallback` (0) it must be there. */
static int get_f64(const struct loader *l, const char *suffix, double fallback, double *out)
{
    char key[96];
    double v = fallback;
    int r = tr_gguf_f64(l->g, arch_key(l, suffix, key), &v);
    if (r == -ENOENT && fallback == 0)
        return refuse(l, "key %s is missing", key);
    if (r == -EINVAL)
        return refuse(l, "key %s is not one number", key);
    if (!isfinite(v) || v <= 0)
        return refuse(l, "key %s must be above 0 and finite, not %g", key, v);
    *out = v;
    return 0;
}

static int find_arch(struct loader *l)
{
    struct tr_str s;
    if (tr_gguf_str(l->g, "general.architecture", &s) < 0)
        return refuse(l, "key general.architecture is missing or not a string");
    for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++)
        if (strlen(archs[i].name) == s.len && memcmp(archs[i].name, s.p, s.len) == 0) {
            l->arch = &archs[i];
            return 0;
        }
    return refuse(l, "architecture \"%.*s\" is not implemented (llama is)",
                  (int)(s.len < 40 ? s.len : 40), s.p);
}

/* Keys that change the numbers in ways that the forward pass does not know. */
static int refuse_variants(const struct loader *l)
{
    char key[96];
    struct tr_str s;
    double f = 1;
    uint64_t u = 0;
    if (tr_gguf_str(l->g, arch_key(l, "rope.scaling.type", key), &s) == 0 &&
        !(s.len == 4 && memcmp(s.p, "none", 4) == 0))
        return refuse(l, "key %s: RoPE scaling \"%.*s\" is not implemented", key,
                      (int)(s.len < 40 ? s.len : 40), s.p);
    if (tr_gguf_f64(l->g, arch_key(l, "rope.scale_linear", key), &f) == 0 && f != 1)
        return refuse(l, "key %s: linear RoPE scaling (%g) is not implemented", key, f);
    if (tr_gguf_u64(l->g, arch_key(l, "expert_count", key), &u) == 0 && u)
        return refuse(l, "key %s: mixtures of experts (%" PRIu64 ") are not implemented", key, u);
    if (tr_gguf_u64(l->g, arch_key(l, "attention.sliding_window", key), &u) == 0 && u)
        return refuse(l, "key %s: sliding windows (%" PRIu64 ") are not implemented", key, u);
    if (tr_gguf_f64(l->g, arch_key(l, "attention.scale", key), &f) == 0)
        return refuse(l, "key %s: an attention scale of its own (%g) is not implemented", key, f);
    return 0;
}

static int read_heads(const struct loader *l, struct tr_hparams *hp)
{
    uint32_t value_dim;
    if (get_u32(l, "attention.head_count", DIM_MAX, NULL, &hp->n_head) < 0 ||
        get_u32(l, "attention.head_count_kv", DIM_MAX, &hp->n_head, &hp->n_head_kv) < 0)
        return -EINVAL;
    if (hp->n_head % hp->n_head_kv)
        return refuse(l, "%" PRIu32 " heads cannot share %" PRIu32 " KV heads evenly", hp->n_head,
                      hp->n_head_kv);
    uint32_t dim = hp->n_embd / hp->n_head;
    if (get_u32(l, "attention.key_length", DIM_MAX, &dim, &hp->head_dim) < 0 ||
        get_u32(l, "attention.value_length", DIM_MAX, &hp->head_dim, &value_dim) < 0)
        return -EINVAL;
    if (value_dim != hp->head_dim)
        return refuse(l,
                      "heads whose values (%" PRIu32 ") and keys (%" PRIu32 ") differ in length "
                      "are not implemented",
                      value_dim, hp->head_dim);
    if (hp->head_dim == 0 || hp->head_dim % 16 || hp->head_dim > TR_OPS_HEAD_MAX ||
        (uint64_t)hp->head_dim * hp->n_head > DIM_MAX)
        return refuse(l,
                      "%" PRIu32 " heads of %" PRIu32 " elements are not implemented (multiples "
                      "of 16 up to %d are)",
                      hp->n_head, hp->head_dim, TR_OPS_HEAD_MAX);
    if (get_u32(l, "rope.dimension_count", hp->head_dim, &hp->head_dim, &hp->n_rot) < 0)
        return -EINVAL;
    if (hp->n_rot % 2)
        return refuse(l, "RoPE over %" PRIu32 " elements, an odd number", hp->n_rot);
    return 0;
}

/* The vocabulary's size is that of the embedding; what the file says elsewhere must agree. */
static int read_vocab(const struct loader *l, struct tr_hparams *hp)
{
    const struct tr_gguf_tensor *t = tr_gguf_tensor(l->g, spec_embd.name);
    if (!t)
        return refuse(l, "tensor %s is missing", spec_embd.name);
    if (t->n_dims != 2 || t->ne[1] > VOCAB_MAX)
        return refuse(l, "tensor %s is not a table of up to %d rows", spec_embd.name, VOCAB_MAX);
    hp->n_vocab = (uint32_t)t->ne[1];
    uint32_t said;
    if (get_u32(l, "vocab_size", VOCAB_MAX, &hp->n_vocab, &said) < 0)
        return -EINVAL;
    struct tr_gguf_array a = {.len = hp->n_vocab};
    int r = tr_gguf_array(l->g, "tokenizer.ggml.tokens", &a);
    if (r == -EINVAL || a.len != hp->n_vocab || said != hp->n_vocab)
        return refuse(l,
                      "the vocabulary has %" PRIu64 " tokens by tokenizer.ggml.tokens, %" PRIu32
                      " by %s.vocab_size and %" PRIu32 " by %s",
                      a.len, said, l->arch->name, hp->n_vocab, spec_embd.name);
    return 0;
}

static int read_hparams(const struct loader *l, struct tr_hparams *hp)
{
    double eps;
    if (refuse_variants(l) < 0 || read_vocab(l, hp) < 0 ||
        get_u32(l, "block_count", LAYERS_MAX, NULL, &hp->n_layer) < 0 ||
        get_u32(l, "context_length", CTX_MAX, NULL, &hp->n_ctx) < 0 ||
        get_u32(l, "embedding_length", DIM_MAX, NULL, &hp->n_embd) < 0 ||
        get_u32(l, "feed_forward_length", DIM_MAX, NULL, &hp->n_ff) < 0 ||
        get_f64(l, "attention.layer_norm_rms_epsilon", 0, &eps) < 0 ||
        get_f64(l, "rope.freq_base", 10000, &hp->rope_base) < 0 || read_heads(l, hp) < 0)
        return -EINVAL;
    if (hp->n_embd % 32 || hp->n_ff % 32)
        return refuse(l,
                      "embedding_length %" PRIu32 " and feed_forward_length %" PRIu32
                      " must be multiples of 32",
                      hp->n_embd, hp->n_ff);
    hp->norm_eps = (float)eps;
    hp->rope_style = l->arch->rope_style;
    return 0;
}

static uint32_t side(const struct tr_hparams *hp, enum dim d)
{
    switch (d) {
    case DIM_EMBD:
        return hp->n_embd;
    case DIM_FF:
        return hp->n_ff;
    case DIM_Q:
        return hp->n_head * hp->head_dim;
    case DIM_KV:
        return hp->n_head_kv * hp->head_dim;
    case DIM_VOCAB:
        return hp->n_vocab;
    case DIM_ONE:
        break;
    }
    return 1;
}

/* Bytes of a tensor in our memory, or 0 and the sentence why it cannot be used. */
static size_t packed_bytes(const struct loader *l, const struct tr_gguf_tensor *t, const char *name,
                           uint32_t n_in, uint32_t n_out, bool vector)
{
    char buf[24];
    if (t->n_dims > 2 || t->ne[0] != n_in || t->ne[1] != n_out) {
        say(l,
            "tensor %s is [%" PRIu64 ", %" PRIu64 "], the model's keys say [%" PRIu32 ", %" PRIu32
            "]",
            name, t->ne[0], t->ne[1], n_in, n_out);
        return 0;
    }
    if (vector && t->type != TR_T_F32) {
        say(l, "tensor %s has type %s; vectors must be F32", name,
            tr_tensor_type_name(t->type, buf));
        return 0;
    }
    size_t n = vector ? (size_t)t->bytes : l->ops->mat_bytes(l->dev, t->type, n_in, n_out);
    if (n == 0)
        say(l,
            "tensor %s has type %s, which is not implemented (F32, F16, BF16, Q8_0, Q4_0 and "
            "Q4_1 are)",
            name, tr_tensor_type_name(t->type, buf));
    return n;
}

enum { READ_SLICE = 4 << 20, PAGE = 4096 };

/* Brings a tensor's pages in from the file, slice by slice: from a slow disk a single one can take
 * minutes, and packing, which would do it too, gives no sign of life. */
static void read_in(const struct loader *l, const struct tr_gguf_tensor *t)
{
    const volatile uint8_t *bytes = t->data;
    if (!l->beat)
        return;
    for (uint64_t at = 0; at < t->bytes; at += PAGE) {
        if (at % READ_SLICE == 0)
            l->beat(l->beat_arg);
        (void)bytes[at];
    }
    l->beat(l->beat_arg);
}

/* Into `mem`, or found there; `to` is what tells where it is. */
static void place_tensor(const struct loader *l, const struct tr_gguf_tensor *t, bool vector,
                         uint32_t n_in, uint32_t n_out, uint8_t *mem, void *to)
{
    if (!l->filled)
        read_in(l, t);
    if (vector) {
        if (!l->filled)
            memcpy(mem, t->data, (size_t)t->bytes);
        memcpy(to, &mem, sizeof(mem));
    } else if (l->filled) {
        l->ops->mat_adopt(l->dev, to, t->type, n_in, n_out, mem);
    } else {
        l->ops->mat_prepare(l->dev, to, t->type, n_in, n_out, t->data, mem);
    }
}

/* Counts one tensor and, in the second pass, packs it.  `at` is the model or layer it belongs to. */
static int load_tensor(struct loader *l, const struct tensor_spec *s, const char *name, void *at)
{
    const struct tr_hparams *hp = &l->m->hp;
    const struct tr_gguf_tensor *t = tr_gguf_tensor(l->g, name);
    if (!t)
        return refuse(l, "tensor %s is missing", name);
    bool vector = s->n_out == DIM_ONE;
    uint32_t n_in = side(hp, s->n_in), n_out = side(hp, s->n_out);
    size_t n = packed_bytes(l, t, name, n_in, n_out, vector);
    if (n == 0)
        return -EINVAL;
    uint8_t *mem = l->m->weights ? (uint8_t *)l->m->weights + l->used : NULL;
    if (mem)
        place_tensor(l, t, vector, n_in, n_out, mem, (uint8_t *)at + s->place);
    l->used += (n + TR_OPS_ALIGN - 1) & ~(size_t)(TR_OPS_ALIGN - 1);
    l->n_known++;
    return 0;
}

/* One pass over all tensors of the architecture. */
static int load_all(struct loader *l)
{
    struct tr_model *m = l->m;
    char name[TENSOR_NAME_MAX];
    l->used = 0;
    l->n_known = 0;
    if (load_tensor(l, &spec_embd, spec_embd.name, m) < 0)
        return -EINVAL;
    size_t embd_bytes = l->used;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        for (const struct tensor_spec *s = l->arch->layer; s->name; s++) {
            snprintf(name, sizeof(name), "blk.%" PRIu32 ".%s", i, s->name);
            if (load_tensor(l, s, name, &m->layers[i]) < 0)
                return -EINVAL;
        }
    if (load_tensor(l, &spec_norm, spec_norm.name, m) < 0)
        return -EINVAL;
    m->output_tied = !tr_gguf_tensor(l->g, spec_output.name);
    if (m->output_tied)
        m->output = m->token_embd;
    else if (load_tensor(l, &spec_output, spec_output.name, m) < 0)
        return -EINVAL;
    m->step_bytes = l->used - (m->output_tied ? 0 : embd_bytes);
    return 0;
}

static bool is_known(const struct loader *l, struct tr_str name)
{
    const struct tensor_spec *top[] = {&spec_embd, &spec_norm, &spec_output};
    for (size_t i = 0; i < sizeof(top) / sizeof(top[0]); i++)
        if (strlen(top[i]->name) == name.len && memcmp(top[i]->name, name.p, name.len) == 0)
            return true;
    char want[TENSOR_NAME_MAX];
    for (uint32_t i = 0; i < l->m->hp.n_layer; i++)
        for (const struct tensor_spec *s = l->arch->layer; s->name; s++) {
            int n = snprintf(want, sizeof(want), "blk.%" PRIu32 ".%s", i, s->name);
            if ((size_t)n == name.len && memcmp(want, name.p, name.len) == 0)
                return true;
        }
    return false;
}

/* A tensor without a place would change the numbers if it were used. */
static int refuse_unknown(const struct loader *l)
{
    if (l->n_known == tr_gguf_n_tensors(l->g))
        return 0;
    for (uint64_t i = 0; i < tr_gguf_n_tensors(l->g); i++) {
        struct tr_str name = tr_gguf_tensor_at(l->g, i)->name;
        if (!is_known(l, name))
            return refuse(l, "tensor %.*s is not implemented for architecture %s%s", (int)name.len,
                          name.p, l->arch->name,
                          name.len > 5 && memcmp(name.p + name.len - 5, ".bias", 5) == 0
                              ? " (biases are not)"
                              : "");
    }
    return 0;
}

void *tr_model_map(size_t len, bool huge)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    /* Advice only: without large pages it is slower, not wrong. */
    if (huge)
        (void)madvise(p, len, MADV_HUGEPAGE);
    return p;
}

/* The name goes to logs and terminals: what is not plain ASCII becomes '?'. */
static void copy_name(const struct tr_gguf *g, char *out, size_t size)
{
    struct tr_str s = {"", 0};
    (void)tr_gguf_str(g, "general.name", &s);
    size_t n = s.len < size ? s.len : size - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = s.p[i] >= 0x20 && s.p[i] < 0x7f ? s.p[i] : '?';
    out[n] = 0;
}

static int load(struct loader *l)
{
    struct tr_model *m = l->m;
    if (find_arch(l) < 0 || read_hparams(l, &m->hp) < 0)
        return -EINVAL;
    snprintf(m->arch, sizeof(m->arch), "%s", l->arch->name);
    copy_name(l->g, m->name, sizeof(m->name));
    m->layers = calloc(m->hp.n_layer, sizeof(*m->layers));
    if (!m->layers)
        return refuse(l, "no memory for %" PRIu32 " layers", m->hp.n_layer);
    if (load_all(l) < 0 || refuse_unknown(l) < 0)
        return -EINVAL;
    m->weights_len = l->used;
    void *kept = tr_weights_take(l->keep_fd, tr_gguf_origin(l->g), m->weights_len, l->beat,
                                 l->beat_arg, &l->filled);
    m->weights = kept ? kept : tr_model_map(m->weights_len, true);
    if (!m->weights)
        return refuse(l, "no memory for %zu bytes of weights", m->weights_len);
    int r = load_all(l);
    TR_ASSERT(r == 0 && l->used == m->weights_len);
    int ret = kept && !l->filled ? tr_weights_keep(l->keep_fd, kept, m->weights_len) : 0;
    return ret ? refuse(l, "the weights cannot be kept: %s", strerror(-ret)) : 0;
}

struct tr_model *tr_model_load(const struct tr_gguf *g, const char *path, int keep_fd,
                               const struct tr_ops *ops, struct tr_dev *dev, void (*beat)(void *),
                               void *arg, struct tr_errbuf *err)
{
    struct tr_model *m = calloc(1, sizeof(*m));
    struct loader l = {.g = g,
                       .path = path,
                       .keep_fd = keep_fd,
                       .ops = ops,
                       .dev = dev,
                       .err = err,
                       .m = m,
                       .beat = beat,
                       .beat_arg = arg};
    if (!m) {
        say(&l, "no memory");
        return NULL;
    }
    if (load(&l) < 0) {
        tr_model_free(m);
        return NULL;
    }
    return m;
}

void tr_model_free(struct tr_model *m)
{
    if (!m)
        return;
    if (m->weights)
        munmap(m->weights, m->weights_len);
    free(m->layers);
    free(m);
}
