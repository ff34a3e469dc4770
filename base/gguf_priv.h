/* SPDX-License-Identifier: Apache-2.0 */
/* base/gguf_priv.h - what gguf.c (checks the file) and gguf_kv.c (reads values) share. */
#ifndef TR_BASE_GGUF_PRIV_H
#define TR_BASE_GGUF_PRIV_H

#include "base/gguf.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "values are read as they lie in the file");

/* One metadata entry; its value was checked to lie in [val, val + bytes). */
struct tr_gguf_kv {
    struct tr_str key;
    enum tr_gguf_type type;
    const uint8_t *val;
    size_t bytes;
};

struct tr_gguf {
    char *name; /* for messages; long paths keep their end */
    const uint8_t *base;
    size_t len;
    void *map; /* the same when it is ours to unmap, else NULL */
    struct tr_gguf_origin origin;
    uint64_t alignment;
    uint32_t version;
    struct tr_gguf_kv *kv;
    uint32_t *kv_sorted; /* indices by key */
    uint32_t n_kv;
    struct tr_gguf_tensor *tensor;
    uint32_t *tensor_sorted; /* indices by name */
    uint32_t n_tensors;
};

/* Bytes of one scalar of a type; 0 for strings, arrays and unknown types. */
static inline size_t tr_gguf_scalar_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {
        [TR_GGUF_U8] = 1,  [TR_GGUF_I8] = 1,  [TR_GGUF_U16] = 2, [TR_GGUF_I16] = 2,
        [TR_GGUF_U32] = 4, [TR_GGUF_I32] = 4, [TR_GGUF_F32] = 4, [TR_GGUF_BOOL] = 1,
        [TR_GGUF_U64] = 8, [TR_GGUF_I64] = 8, [TR_GGUF_F64] = 8};
    return type < sizeof(bytes) ? bytes[type] : 0;
}

/* Values in the metadata have no alignment. */
static inline uint32_t tr_gguf_le32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline uint64_t tr_gguf_le64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

/* Order of names: by bytes, then by length. */
static inline int tr_str_cmp(struct tr_str a, struct tr_str b)
{
    int c = memcmp(a.p, b.p, a.len < b.len ? a.len : b.len);
    return c ? c : (a.len > b.len) - (a.len < b.len);
}

#endif
