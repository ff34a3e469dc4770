/* SPDX-License-Identifier: Apache-2.0 */
/* Typed access to the metadata that gguf.c has checked to lie in the file. */
#include "base/gguf_priv.h"

#include "base/assert.h"

#include <errno.h>

static const struct tr_gguf_kv *find(const struct tr_gguf *g, const char *key)
{
    struct tr_str want = {key, strlen(key)};
    uint32_t lo = 0, hi = g->n_kv;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const struct tr_gguf_kv *kv = &g->kv[g->kv_sorted[mid]];
        int cmp = tr_str_cmp(kv->key, want);
        if (cmp == 0)
            return kv;
        if (cmp < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

#define LOAD(T, p)                                                                                 \
    __extension__({                                                                                \
        T v_;                                                                                      \
        memcpy(&v_, (p), sizeof(v_));                                                              \
        v_;                                                                                        \
    })

/* Any integer type.  Values above INT64_MAX exist only as U64 and are flagged by `*big`. */
static int load_int(enum tr_gguf_type type, const uint8_t *p, int64_t *out, bool *big)
{
    *big = false;
    switch (type) {
    case TR_GGUF_U8:
        *out = *p;
        return 0;
    case TR_GGUF_I8:
        *out = *p < 128 ? *p : *p - 256;
        return 0;
    case TR_GGUF_U16:
        *out = LOAD(uint16_t, p);
        return 0;
    case TR_GGUF_I16:
        *out = LOAD(int16_t, p);
        return 0;
    case TR_GGUF_U32:
        *out = LOAD(uint32_t, p);
        return 0;
    case TR_GGUF_I32:
        *out = LOAD(int32_t, p);
        return 0;
    case TR_GGUF_I64:
        *out = LOAD(int64_t, p);
        return 0;
    case TR_GGUF_U64:
        *out = LOAD(int64_t, p);
        *big = *out < 0;
        return 0;
    default:
        return -EINVAL;
    }
}

static int load_u64(enum tr_gguf_type type, const uint8_t *p, uint64_t *out)
{
    int64_t v;
    bool big;
    if (load_int(type, p, &v, &big) < 0 || (v < 0 && !big))
        return -EINVAL;
    *out = (uint64_t)v;
    return 0;
}

static int load_f64(enum tr_gguf_type type, const uint8_t *p, double *out)
{
    int64_t v;
    bool big;
    if (type == TR_GGUF_F32)
        *out = (double)LOAD(float, p);
    else if (type == TR_GGUF_F64)
        *out = LOAD(double, p);
    else if (load_int(type, p, &v, &big) < 0)
        return -EINVAL;
    else
        *out = big ? (double)(uint64_t)v : (double)v;
    return 0;
}

int tr_gguf_u64(const struct tr_gguf *g, const char *key, uint64_t *out)
{
    const struct tr_gguf_kv *kv = find(g, key);
    return kv ? load_u64(kv->type, kv->val, out) : -ENOENT;
}

int tr_gguf_f64(const struct tr_gguf *g, const char *key, double *out)
{
    const struct tr_gguf_kv *kv = find(g, key);
    return kv ? load_f64(kv->type, kv->val, out) : -ENOENT;
}

int tr_gguf_bool(const struct tr_gguf *g, const char *key, bool *out)
{
    const struct tr_gguf_kv *kv = find(g, key);
    if (!kv)
        return -ENOENT;
    if (kv->type != TR_GGUF_BOOL)
        return -EINVAL;
    *out = *kv->val != 0;
    return 0;
}

int tr_gguf_str(const struct tr_gguf *g, const char *key, struct tr_str *out)
{
    const struct tr_gguf_kv *kv = find(g, key);
    if (!kv)
        return -ENOENT;
    if (kv->type != TR_GGUF_STRING)
        return -EINVAL;
    *out = (struct tr_str){(const char *)kv->val + 8, kv->bytes - 8};
    return 0;
}

static struct tr_gguf_array array_of(const struct tr_gguf_kv *kv)
{
    uint64_t n = tr_gguf_le64(kv->val + 4);
    return (struct tr_gguf_array){.type = (enum tr_gguf_type)tr_gguf_le32(kv->val),
                                  .len = n,
                                  .next = kv->val + 12,
                                  .left = n,
                                  .end = kv->val + kv->bytes};
}

int tr_gguf_array(const struct tr_gguf *g, const char *key, struct tr_gguf_array *out)
{
    const struct tr_gguf_kv *kv = find(g, key);
    if (!kv)
        return -ENOENT;
    if (kv->type != TR_GGUF_ARRAY)
        return -EINVAL;
    *out = array_of(kv);
    return 0;
}

int tr_gguf_next_str(struct tr_gguf_array *a, struct tr_str *out)
{
    if (a->left == 0)
        return -ENOENT;
    if (a->type != TR_GGUF_STRING)
        return -EINVAL;
    uint64_t len = tr_gguf_le64(a->next); /* fits: the whole array was walked at open */
    *out = (struct tr_str){(const char *)a->next + 8, (size_t)len};
    a->next += 8 + len;
    a->left--;
    return 0;
}

/* The next scalar, or NULL and in `*r` why not. */
static const uint8_t *peek_scalar(const struct tr_gguf_array *a, int *r)
{
    *r = a->left == 0 ? -ENOENT : tr_gguf_scalar_bytes(a->type) == 0 ? -EINVAL : 0;
    return *r ? NULL : a->next;
}

static void step_scalar(struct tr_gguf_array *a)
{
    a->next += tr_gguf_scalar_bytes(a->type);
    a->left--;
}

int tr_gguf_next_u64(struct tr_gguf_array *a, uint64_t *out)
{
    int r;
    const uint8_t *p = peek_scalar(a, &r);
    if (!p)
        return r;
    r = load_u64(a->type, p, out);
    if (r == 0)
        step_scalar(a);
    return r;
}

int tr_gguf_next_i64(struct tr_gguf_array *a, int64_t *out)
{
    int r;
    bool big;
    int64_t v;
    const uint8_t *p = peek_scalar(a, &r);
    if (!p)
        return r;
    if (load_int(a->type, p, &v, &big) < 0 || big)
        return -EINVAL;
    *out = v;
    step_scalar(a);
    return 0;
}

int tr_gguf_next_f64(struct tr_gguf_array *a, double *out)
{
    int r;
    const uint8_t *p = peek_scalar(a, &r);
    if (!p)
        return r;
    r = load_f64(a->type, p, out);
    if (r == 0)
        step_scalar(a);
    return r;
}

int tr_gguf_next_bool(struct tr_gguf_array *a, bool *out)
{
    int r;
    const uint8_t *p = peek_scalar(a, &r);
    if (!p || a->type != TR_GGUF_BOOL)
        return p ? -EINVAL : r;
    *out = *p != 0;
    step_scalar(a);
    return 0;
}

struct tr_gguf_about tr_gguf_about(const struct tr_gguf *g)
{
    return (struct tr_gguf_about){
        .version = g->version, .bytes = g->len, .n_keys = g->n_kv, .alignment = g->alignment};
}

struct tr_gguf_entry tr_gguf_entry_at(const struct tr_gguf *g, uint64_t i)
{
    TR_ASSERT(i < g->n_kv);
    const struct tr_gguf_kv *kv = &g->kv[i];
    struct tr_gguf_entry e = {.key = kv->key, .type = kv->type};
    bool big;

    if (kv->type == TR_GGUF_STRING)
        e.s = (struct tr_str){(const char *)kv->val + 8, (size_t)tr_gguf_le64(kv->val)};
    else if (kv->type == TR_GGUF_ARRAY)
        e.a = array_of(kv);
    else if (kv->type == TR_GGUF_BOOL)
        e.b = *kv->val != 0;
    else if (load_int(kv->type, kv->val, &e.i, &big) == 0)
        e.u = (uint64_t)e.i;
    else
        (void)load_f64(kv->type, kv->val, &e.f);
    return e;
}
