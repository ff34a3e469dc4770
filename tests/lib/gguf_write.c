/* SPDX-License-Identifier: Apache-2.0 */
#include "testlib/gguf_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIGN = 32 };

struct buf {
    uint8_t *p;
    size_t len, cap;
};

struct tr_gw {
    uint32_t version;
    uint64_t n_kv, n_tensors;
    struct buf kv, info, data;
    uint64_t rand;
    bool head_only;
    struct tr_gw_part *part;
    uint32_t n_parts;
    uint64_t end; /* of the parts */
};

static void put(struct buf *b, const void *p, size_t n)
{
    if (b->len + n > b->cap) {
        b->cap = (b->len + n) * 2;
        b->p = realloc(b->p, b->cap);
        if (!b->p)
            abort();
    }
    if (n)
        memcpy(b->p + b->len, p, n);
    b->len += n;
}

static void put32(struct buf *b, uint32_t v)
{
    put(b, &v, sizeof(v));
}

static void put64(struct buf *b, uint64_t v)
{
    put(b, &v, sizeof(v));
}

static void put_str(struct buf *b, const char *s)
{
    put64(b, strlen(s));
    put(b, s, strlen(s));
}

static void pad(struct buf *b)
{
    static const uint8_t zero[ALIGN];
    put(b, zero, -b->len & (ALIGN - 1));
}

struct tr_gw *tr_gw_new(uint32_t version)
{
    struct tr_gw *w = calloc(1, sizeof(*w));
    if (!w)
        abort();
    w->version = version;
    w->rand = 0x9e3779b97f4a7c15u;
    return w;
}

void tr_gw_kv(struct tr_gw *w, const char *key, enum tr_gguf_type type, const void *value,
              size_t bytes)
{
    put_str(&w->kv, key);
    put32(&w->kv, (uint32_t)type);
    put(&w->kv, value, bytes);
    w->n_kv++;
}

void tr_gw_u32(struct tr_gw *w, const char *key, uint32_t v)
{
    tr_gw_kv(w, key, TR_GGUF_U32, &v, sizeof(v));
}

void tr_gw_f32(struct tr_gw *w, const char *key, float v)
{
    tr_gw_kv(w, key, TR_GGUF_F32, &v, sizeof(v));
}

void tr_gw_str(struct tr_gw *w, const char *key, const char *v)
{
    struct buf b = {0};
    put_str(&b, v);
    tr_gw_kv(w, key, TR_GGUF_STRING, b.p, b.len);
    free(b.p);
}

void tr_gw_strs(struct tr_gw *w, const char *key, const char *const *v, uint64_t n)
{
    struct buf b = {0};
    put32(&b, TR_GGUF_STRING);
    put64(&b, n);
    for (uint64_t i = 0; i < n; i++)
        put_str(&b, v[i]);
    tr_gw_kv(w, key, TR_GGUF_ARRAY, b.p, b.len);
    free(b.p);
}

static void put_tensor(struct tr_gw *w, const char *name, enum tr_tensor_type type, uint32_t n_dims,
                       const uint64_t *ne, uint64_t at)
{
    put_str(&w->info, name);
    put32(&w->info, n_dims);
    for (uint32_t d = 0; d < n_dims; d++)
        put64(&w->info, ne[d]);
    put32(&w->info, (uint32_t)type);
    put64(&w->info, at);
    w->n_tensors++;
}

void tr_gw_tensor(struct tr_gw *w, const char *name, enum tr_tensor_type type, uint32_t n_dims,
                  const uint64_t *ne, const void *data, size_t bytes)
{
    put_tensor(w, name, type, n_dims, ne, w->data.len);
    put(&w->data, data, bytes);
    pad(&w->data);
}

static uint64_t next(uint64_t *rand)
{
    *rand ^= *rand << 13;
    *rand ^= *rand >> 7;
    *rand ^= *rand << 17;
    return *rand;
}

/* Uniform in [-1, 1). */
static float uniform(uint64_t *rand)
{
    return (float)(next(rand) >> 40) * 0x1p-23f - 1.0f;
}

/* Half precision by truncation; good enough to make weights of (normal numbers only). */
static uint16_t half(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    int32_t e = (int32_t)(u >> 23 & 255) - 127 + 15;
    uint32_t sign = u >> 16 & 0x8000;
    return (uint16_t)(e <= 0 ? sign : sign | (uint32_t)e << 10 | (u >> 13 & 0x3ff));
}

/* How a quantised type's blocks look. */
struct block {
    enum tr_tensor_type type;
    uint32_t elements, bytes;
    uint32_t scale_at; /* the F16 scale */
    bool min;          /* an F16 minimum is behind it */
    float top;         /* the largest number that the scale is multiplied by, about */
};

static const struct block *block_of(enum tr_tensor_type type)
{
    static const struct block blocks[] = {
        {TR_T_Q8_0, 32, 34, 0, false, 127},        {TR_T_Q4_0, 32, 18, 0, false, 8},
        {TR_T_Q4_1, 32, 20, 0, true, 8},           {TR_T_Q5_0, 32, 22, 0, false, 16},
        {TR_T_Q5_1, 32, 24, 0, true, 16},          {TR_T_Q2_K, 256, 84, 80, true, 2 * 15},
        {TR_T_Q3_K, 256, 110, 108, false, 4 * 32}, {TR_T_Q4_K, 256, 144, 0, true, 8 * 63},
        {TR_T_Q5_K, 256, 176, 0, true, 16 * 63},   {TR_T_Q6_K, 256, 210, 208, false, 32 * 128},
    };
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
        if (blocks[i].type == type)
            return &blocks[i];
    return NULL;
}

/* One block of a quantised type: a scale (and an offset) and random quants. */
static void random_block(uint64_t *rand, struct buf *b, const struct block *t, float amp)
{
    uint8_t block[256];
    uint16_t d = half(amp * (0.5f + 0.4f * uniform(rand)) / t->top);
    float min = amp * (0.5f + 0.1f * uniform(rand));
    /* Of a super-block it is multiplied by whole numbers and taken off. */
    uint16_t m = half(t->elements == 32 ? -min : min * 8 / t->top);
    for (uint32_t i = 0; i < t->bytes; i += 8) {
        uint64_t bits = next(rand);
        memcpy(block + i, &bits, sizeof(bits));
    }
    memcpy(block + t->scale_at, &d, sizeof(d));
    if (t->min)
        memcpy(block + t->scale_at + 2, &m, sizeof(m));
    put(b, block, t->bytes);
}

/* `n` elements of a tensor of rows of n_in: around 1 if it is a vector, around 0 else. */
static void random_contents(uint64_t *rand, struct buf *b, enum tr_tensor_type type, bool vector,
                            uint64_t n_in, uint64_t n)
{
    float amp = 1.7f / sqrtf((float)n_in);
    const struct block *t = block_of(type);
    for (uint64_t i = 0; i < n; i += t ? t->elements : 1) {
        if (t) {
            random_block(rand, b, t, amp);
            continue;
        }
        float f = vector ? 1.0f + 0.3f * uniform(rand) : amp * uniform(rand);
        uint32_t u;
        memcpy(&u, &f, sizeof(u));
        uint16_t h = type == TR_T_BF16 ? (uint16_t)(u >> 16) : half(f);
        if (type == TR_T_F32)
            put(b, &f, sizeof(f));
        else
            put(b, &h, sizeof(h));
    }
}

/* What so many elements take. */
static uint64_t bytes_of(enum tr_tensor_type type, uint64_t n)
{
    const struct block *t = block_of(type);
    return t ? n / t->elements * t->bytes : n * (type == TR_T_F32 ? 4 : 2);
}

static void declare(struct tr_gw *w, enum tr_tensor_type type, bool vector, uint64_t n_in,
                    uint64_t n)
{
    uint64_t bytes = bytes_of(type, n);
    w->part = realloc(w->part, (w->n_parts + 1) * sizeof(*w->part));
    if (!w->part)
        abort();
    w->part[w->n_parts++] = (struct tr_gw_part){
        .type = type, .vector = vector, .n_in = n_in, .at = w->end, .bytes = bytes};
    w->end += bytes + (-bytes & (ALIGN - 1));
}

void tr_gw_random(struct tr_gw *w, const char *name, enum tr_tensor_type type, uint32_t n_dims,
                  const uint64_t *ne)
{
    struct buf b = {0};
    uint64_t n = 1;
    for (uint32_t d = 0; d < n_dims; d++)
        n *= ne[d];
    if (w->head_only) {
        put_tensor(w, name, type, n_dims, ne, w->end);
        declare(w, type, n_dims == 1, ne[0], n);
        return;
    }
    random_contents(&w->rand, &b, type, n_dims == 1, ne[0], n);
    tr_gw_tensor(w, name, type, n_dims, ne, b.p, b.len);
    free(b.p);
}

void tr_gw_head_only(struct tr_gw *w)
{
    w->head_only = true;
}

uint8_t *tr_gw_finish_head(struct tr_gw *w, size_t *len, struct tr_gw_part **parts,
                           uint32_t *n_parts)
{
    *parts = w->part;
    *n_parts = w->n_parts;
    return tr_gw_finish(w, len);
}

void tr_gw_fill(const struct tr_gw_part *p, uint64_t seed, void *out, uint64_t bytes)
{
    struct buf b = {.p = out, .cap = bytes};
    uint64_t rand = (seed + 1) * 0x9e3779b97f4a7c15u;
    const struct block *t = block_of(p->type);
    uint64_t n = t ? bytes / t->bytes * t->elements : bytes / (p->type == TR_T_F32 ? 4 : 2);
    random_contents(&rand, &b, p->type, p->vector, p->n_in, n);
}

uint8_t *tr_gw_finish(struct tr_gw *w, size_t *len)
{
    struct buf b = {0};
    put(&b, "GGUF", 4);
    put32(&b, w->version);
    put64(&b, w->n_tensors);
    put64(&b, w->n_kv);
    put(&b, w->kv.p, w->kv.len);
    put(&b, w->info.p, w->info.len);
    if (w->n_tensors)
        pad(&b);
    put(&b, w->data.p, w->data.len);
    free(w->kv.p);
    free(w->info.p);
    free(w->data.p);
    free(w);
    /* The exact size, so that the address sanitizer sees a read past the end. */
    uint8_t *exact = realloc(b.p, b.len);
    if (!exact)
        abort();
    *len = b.len;
    return exact;
}

static void llama_u32(struct tr_gw *w, const struct tr_gw_llama *m, const char *suffix, uint32_t v)
{
    char key[96];
    snprintf(key, sizeof(key), "%s.%s", m->arch, suffix);
    if (!m->skip || strcmp(m->skip, key) != 0)
        tr_gw_u32(w, key, v);
}

static void llama_keys(struct tr_gw *w, const struct tr_gw_llama *m)
{
    char key[96];
    tr_gw_str(w, "general.architecture", m->arch);
    llama_u32(w, m, "block_count", m->n_layer);
    llama_u32(w, m, "context_length", m->n_ctx);
    llama_u32(w, m, "embedding_length", m->n_embd);
    llama_u32(w, m, "feed_forward_length", m->n_ff);
    llama_u32(w, m, "attention.head_count", m->n_head);
    llama_u32(w, m, "attention.head_count_kv", m->n_head_kv);
    if (m->head_dim) {
        llama_u32(w, m, "attention.key_length", m->head_dim);
        llama_u32(w, m, "attention.value_length", m->head_dim);
    }
    if (m->window)
        llama_u32(w, m, "attention.sliding_window", m->window);
    snprintf(key, sizeof(key), "%s.attention.layer_norm_rms_epsilon", m->arch);
    if (!m->skip || strcmp(m->skip, key) != 0)
        tr_gw_f32(w, key, 1e-5f);
    snprintf(key, sizeof(key), "%s.rope.freq_base", m->arch);
    if (!m->skip || strcmp(m->skip, key) != 0)
        tr_gw_f32(w, key, 10000.0f);
}

static void weight(struct tr_gw *w, const struct tr_gw_llama *m, const char *name,
                   enum tr_tensor_type type, uint64_t n_in, uint64_t n_out)
{
    if (!m->skip || strcmp(m->skip, name) != 0)
        tr_gw_random(w, name, type, n_out ? 2 : 1, (uint64_t[]){n_in, n_out});
}

static void layer(struct tr_gw *w, const struct tr_gw_llama *m, uint32_t i)
{
    uint64_t dim = m->n_embd, head = m->head_dim ? m->head_dim : dim / m->n_head;
    uint64_t q = head * m->n_head, kv = head * m->n_head_kv;
    bool gemma = !strcmp(m->arch, "gemma3"), qwen2 = !strcmp(m->arch, "qwen2");
    bool norms = gemma || !strcmp(m->arch, "qwen3");
    const struct {
        const char *name;
        enum tr_tensor_type type;
        uint64_t in, out;
        bool absent;
    } t[] = {
        {"attn_norm.weight", TR_T_F32, dim, 0, false},
        {"attn_q.weight", m->type, dim, q, false},
        {"attn_k.weight", m->type, dim, kv, false},
        {"attn_v.weight", m->type, dim, kv, false},
        {"attn_q.bias", TR_T_F32, q, 0, !qwen2},
        {"attn_k.bias", TR_T_F32, kv, 0, !qwen2},
        {"attn_v.bias", TR_T_F32, kv, 0, !qwen2},
        {"attn_q_norm.weight", TR_T_F32, head, 0, !norms},
        {"attn_k_norm.weight", TR_T_F32, head, 0, !norms},
        {"attn_output.weight", m->type, q, dim, false},
        {"post_attention_norm.weight", TR_T_F32, dim, 0, !gemma},
        {"ffn_norm.weight", TR_T_F32, dim, 0, false},
        {"ffn_gate.weight", m->type, dim, m->n_ff, false},
        {"ffn_up.weight", m->type, dim, m->n_ff, false},
        {"ffn_down.weight", m->type, m->n_ff, dim, false},
        {"post_ffw_norm.weight", TR_T_F32, dim, 0, !gemma},
    };
    for (size_t k = 0; k < sizeof(t) / sizeof(t[0]); k++) {
        char name[64];
        snprintf(name, sizeof(name), "blk.%u.%s", i, t[k].name);
        if (!t[k].absent)
            weight(w, m, name, t[k].type, t[k].in, t[k].out);
    }
}

void tr_gw_llama(struct tr_gw *w, const struct tr_gw_llama *spec)
{
    struct tr_gw_llama m = *spec;
    const struct {
        uint32_t *field, value;
    } defaults[] = {{&m.n_layer, 2}, {&m.n_embd, 64},   {&m.n_head, 2}, {&m.n_head_kv, 1},
                    {&m.n_ff, 96},   {&m.n_vocab, 100}, {&m.n_ctx, 256}};
    for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++)
        if (*defaults[i].field == 0)
            *defaults[i].field = defaults[i].value;
    if (!m.arch)
        m.arch = "llama";
    if (m.seed)
        w->rand ^= m.seed * 0xbf58476d1ce4e5b9u;
    llama_keys(w, &m);
    weight(w, &m, "token_embd.weight", m.embd_type, m.n_embd, m.n_vocab);
    for (uint32_t i = 0; i < m.n_layer; i++)
        layer(w, &m, i);
    weight(w, &m, "output_norm.weight", TR_T_F32, m.n_embd, 0);
    if (m.output)
        weight(w, &m, "output.weight", m.output_type ? m.output_type : m.type, m.n_embd, m.n_vocab);
    if (m.extra)
        tr_gw_random(w, m.extra, TR_T_F32, 1, (uint64_t[]){m.n_embd});
}

void tr_gw_save(const uint8_t *bytes, size_t len, char path[64])
{
    const char *dir = getenv("TMPDIR");
    if (!dir || strlen(dir) > 40)
        dir = "/tmp";
    snprintf(path, 64, "%s/tr-gguf-XXXXXX", dir);
    int fd = mkstemp(path);
    if (fd < 0)
        abort();
    for (size_t done = 0; done < len;) {
        ssize_t n = write(fd, bytes + done, len - done);
        if (n <= 0)
            abort();
        done += (size_t)n;
    }
    close(fd);
}
