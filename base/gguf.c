/* SPDX-License-Identifier: Apache-2.0 */
#include "base/gguf.h"

#include "base/assert.h"
#include "base/gguf_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEADER_BYTES = 24,
    KV_BYTES_MIN = 8 + 1 + 4 + 1,             /* key length, key, type, value */
    TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8, /* name length, name, dims, ne, type, offset */
    ENTRIES_MAX = 65536,                      /* keys, and tensors; real files have < 3000 */
    KEY_BYTES_MAX = 65535,                    /* both from the specification */
    TENSOR_NAME_BYTES_MAX = 64,
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MIN = 8,
    ALIGNMENT_MAX = 1 << 20,
    NAME_SHOWN = 160, /* of a path, at most */
    KEY_SHOWN = 80
};

/* Block sizes of ggml's tensor types, so that the extent of any tensor can be checked and a
 * model that cannot be run is refused by the type's name. */
static const struct type_info {
    const char *name;
    uint16_t block, bytes; /* elements and bytes of a block */
} types[] = {
    [TR_T_F32] = {"F32", 1, 4},
    [TR_T_F16] = {"F16", 1, 2},
    [TR_T_Q4_0] = {"Q4_0", 32, 18},
    [TR_T_Q4_1] = {"Q4_1", 32, 20},
    [TR_T_Q5_0] = {"Q5_0", 32, 22},
    [TR_T_Q5_1] = {"Q5_1", 32, 24},
    [TR_T_Q8_0] = {"Q8_0", 32, 34},
    [TR_T_Q8_1] = {"Q8_1", 32, 36},
    [TR_T_Q2_K] = {"Q2_K", 256, 84},
    [TR_T_Q3_K] = {"Q3_K", 256, 110},
    [TR_T_Q4_K] = {"Q4_K", 256, 144},
    [TR_T_Q5_K] = {"Q5_K", 256, 176},
    [TR_T_Q6_K] = {"Q6_K", 256, 210},
    [TR_T_Q8_K] = {"Q8_K", 256, 292},
    [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},
    [18] = {"IQ3_XXS", 256, 98},
    [19] = {"IQ1_S", 256, 50},
    [20] = {"IQ4_NL", 32, 18},
    [21] = {"IQ3_S", 256, 110},
    [22] = {"IQ2_S", 256, 82},
    [23] = {"IQ4_XS", 256, 136},
    [24] = {"I8", 1, 1},
    [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},
    [27] = {"I64", 1, 8},
    [28] = {"F64", 1, 8},
    [29] = {"IQ1_M", 256, 56},
    [TR_T_BF16] = {"BF16", 1, 2},
    [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},
    [39] = {"MXFP4", 32, 17},
};

static const struct type_info *type_info(uint32_t t)
{
    return t < sizeof(types) / sizeof(types[0]) && types[t].name ? &types[t] : NULL;
}

const char *tr_tensor_type_name(enum tr_tensor_type t, char buf[24])
{
    const struct type_info *ti = type_info((uint32_t)t);
    if (ti)
        return ti->name;
    snprintf(buf, 24, "type %" PRIu32, (uint32_t)t);
    return buf;
}

/* A place in the file.  pos <= len always. */
struct cursor {
    const uint8_t *base;
    size_t len, pos;
    const char *file;
    struct tr_errbuf *err;
};

static size_t left(const struct cursor *c)
{
    return c->len - c->pos;
}

/* `n` bytes of a field, or the sentence that they are not there.  `what` names the field, `of` its
 * owner (a key, a tensor). */
static const uint8_t *take(struct cursor *c, uint64_t n, const char *what, struct tr_str of)
{
    if (n > left(c)) {
        tr_errf(c->err, -EINVAL,
                "%s: %s%s%.*s at byte %zu needs %" PRIu64 " bytes, the file ends after %zu",
                c->file, what, of.len ? " of " : "", (int)(of.len < KEY_SHOWN ? of.len : KEY_SHOWN),
                of.p, c->pos, n, left(c));
        return NULL;
    }
    const uint8_t *p = c->base + c->pos;
    c->pos += (size_t)n;
    return p;
}

static const struct tr_str nobody = {"", 0};

static int take_str(struct cursor *c, struct tr_str *out, const char *what, struct tr_str of)
{
    const uint8_t *p = take(c, 8, what, of);
    if (!p)
        return -EINVAL;
    uint64_t len = tr_gguf_le64(p);
    p = take(c, len, what, of);
    if (!p)
        return -EINVAL;
    *out = (struct tr_str){(const char *)p, (size_t)len};
    return 0;
}

static int bad_kv(const struct cursor *c, struct tr_str key, const char *why, uint64_t n)
{
    return tr_errf(c->err, -EINVAL, "%s: key %.*s: %s %" PRIu64, c->file,
                   (int)(key.len < KEY_SHOWN ? key.len : KEY_SHOWN), key.p, why, n);
}

/* Bytes are looked at only where the format says less than a byte can hold. */
static int check_bools(const struct cursor *c, struct tr_str key, const uint8_t *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] > 1)
            return bad_kv(c, key, "a truth value is", p[i]);
    return 0;
}

static int skip_array(struct cursor *c, struct tr_str key)
{
    const uint8_t *p = take(c, 12, "the array header", key);
    if (!p)
        return -EINVAL;
    uint32_t type = tr_gguf_le32(p);
    uint64_t n = tr_gguf_le64(p + 4);
    if (type == TR_GGUF_ARRAY)
        return bad_kv(c, key, "arrays of arrays are not accepted; length", n);
    size_t each = tr_gguf_scalar_bytes(type);
    if (!each && type != TR_GGUF_STRING)
        return bad_kv(c, key, "unknown array element type", type);
    /* A string takes at least its length field; so a claimed count never exceeds the file. */
    if (n > left(c) / (each ? each : 8))
        return bad_kv(c, key, "the array does not fit in the file: its length is", n);
    if (each) {
        p = take(c, n * each, "the array", key);
        return !p ? -EINVAL : type == TR_GGUF_BOOL ? check_bools(c, key, p, n) : 0;
    }
    struct tr_str s;
    for (uint64_t i = 0; i < n; i++)
        if (take_str(c, &s, "an array element", key) < 0)
            return -EINVAL;
    return 0;
}

static int take_kv(struct cursor *c, struct tr_gguf_kv *kv)
{
    if (take_str(c, &kv->key, "a metadata key", nobody) < 0)
        return -EINVAL;
    if (kv->key.len == 0 || kv->key.len > KEY_BYTES_MAX)
        return tr_errf(c->err, -EINVAL,
                       "%s: a metadata key before byte %zu has %zu bytes, not 1..%d", c->file,
                       c->pos, kv->key.len, KEY_BYTES_MAX);
    const uint8_t *p = take(c, 4, "the value type", kv->key);
    if (!p)
        return -EINVAL;
    uint32_t type = tr_gguf_le32(p);
    size_t start = c->pos, bytes = tr_gguf_scalar_bytes(type);
    struct tr_str s;
    int r = 0;
    if (bytes) {
        p = take(c, bytes, "the value", kv->key);
        r = !p ? -EINVAL : type == TR_GGUF_BOOL ? check_bools(c, kv->key, p, 1) : 0;
    } else if (type == TR_GGUF_STRING) {
        r = take_str(c, &s, "the string", kv->key);
    } else if (type == TR_GGUF_ARRAY) {
        r = skip_array(c, kv->key);
    } else {
        r = bad_kv(c, kv->key, "unknown value type", type);
    }
    kv->type = (enum tr_gguf_type)type;
    kv->val = c->base + start;
    kv->bytes = c->pos - start;
    return r;
}

static int bad_tensor(const struct cursor *c, struct tr_str name, const char *why, uint64_t n)
{
    return tr_errf(c->err, -EINVAL, "%s: tensor %.*s: %s %" PRIu64, c->file, (int)name.len, name.p,
                   why, n);
}

/* Dimensions, type and bytes of a tensor; its data is placed later, when the end of the
 * descriptions is known.  Until then `bytes` is right and `data` holds nothing. */
static int take_tensor(struct cursor *c, struct tr_gguf_tensor *t, uint64_t *offset)
{
    if (take_str(c, &t->name, "a tensor name", nobody) < 0)
        return -EINVAL;
    if (t->name.len == 0 || t->name.len > TENSOR_NAME_BYTES_MAX)
        return tr_errf(c->err, -EINVAL,
                       "%s: a tensor name before byte %zu has %zu bytes, not 1..%d", c->file,
                       c->pos, t->name.len, TENSOR_NAME_BYTES_MAX);
    const uint8_t *p = take(c, 4, "the number of dimensions", t->name);
    if (!p)
        return -EINVAL;
    t->n_dims = tr_gguf_le32(p);
    if (t->n_dims < 1 || t->n_dims > 4)
        return bad_tensor(c, t->name, "the number of dimensions must be 1..4, not", t->n_dims);
    p = take(c, t->n_dims * 8ull + 12, "the description", t->name);
    if (!p)
        return -EINVAL;
    uint64_t n = 1;
    for (uint32_t d = 0; d < 4; d++) {
        t->ne[d] = d < t->n_dims ? tr_gguf_le64(p + d * 8ull) : 1;
        if (t->ne[d] == 0)
            return bad_tensor(c, t->name, "a dimension is", 0);
        if (__builtin_mul_overflow(n, t->ne[d], &n))
            return bad_tensor(c, t->name, "the product of its dimensions overflows at", t->ne[d]);
    }
    p += t->n_dims * 8ull;
    uint32_t type = tr_gguf_le32(p);
    const struct type_info *ti = type_info(type);
    if (!ti)
        return bad_tensor(c, t->name, "unknown tensor type", type);
    if (t->ne[0] % ti->block)
        return bad_tensor(c, t->name,
                          "its first dimension is not a multiple of its type's block:", t->ne[0]);
    if (__builtin_mul_overflow(n / ti->block, (uint64_t)ti->bytes, &t->bytes))
        return bad_tensor(c, t->name, "its size in bytes overflows; elements:", n);
    t->type = (enum tr_tensor_type)type;
    *offset = tr_gguf_le64(p + 4);
    return 0;
}

static int place_tensor(const struct tr_gguf *g, const struct cursor *c, uint64_t data_start,
                        struct tr_gguf_tensor *t, uint64_t offset)
{
    uint64_t end;
    if (offset % g->alignment)
        return bad_tensor(c, t->name, "its offset is not a multiple of the alignment:", offset);
    if (__builtin_add_overflow(data_start, offset, &offset) ||
        __builtin_add_overflow(offset, t->bytes, &end))
        return bad_tensor(c, t->name, "its offset or end overflows; bytes:", t->bytes);
    if (end > g->len)
        return tr_errf(c->err, -EINVAL,
                       "%s: tensor %.*s: its data ends at byte %" PRIu64
                       ", the file has %zu: cut short?",
                       c->file, (int)t->name.len, t->name.p, end, g->len);
    t->data = g->base + offset;
    return 0;
}

static int cmp_kv(const void *a, const void *b, void *kv)
{
    const struct tr_gguf_kv *k = kv;
    return tr_str_cmp(k[*(const uint32_t *)a].key, k[*(const uint32_t *)b].key);
}

static int cmp_tensor(const void *a, const void *b, void *tensor)
{
    const struct tr_gguf_tensor *t = tensor;
    return tr_str_cmp(t[*(const uint32_t *)a].name, t[*(const uint32_t *)b].name);
}

/* Indices of `of` in ascending order of names, or NULL without memory. */
static uint32_t *sorted(uint32_t n, void *of, int (*cmp)(const void *, const void *, void *))
{
    uint32_t *idx = malloc((n ? n : 1) * sizeof(*idx));
    if (!idx)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        idx[i] = i;
    qsort_r(idx, n, sizeof(*idx), cmp, of);
    return idx;
}

/* An array that grows with what was really read, with room for element n; NULL without memory, and
 * the array is still the caller's. */
static void *grow(const struct cursor *c, void *array, uint32_t n, size_t size)
{
    if (array && (n < 16 || (n & (n - 1))))
        return array;
    array = realloc(array, (n ? 2ull * n : 16) * size);
    if (!array)
        tr_errf(c->err, -ENOMEM, "%s: no memory for %" PRIu32 " entries", c->file, n);
    return array;
}

static int read_kvs(struct tr_gguf *g, struct cursor *c, uint64_t n)
{
    for (; g->n_kv < n; g->n_kv++) {
        struct tr_gguf_kv *kv = grow(c, g->kv, g->n_kv, sizeof(*kv));
        if (!kv)
            return -ENOMEM;
        g->kv = kv;
        if (take_kv(c, &kv[g->n_kv]) < 0)
            return -EINVAL;
    }
    g->kv_sorted = sorted(g->n_kv, g->kv, cmp_kv);
    if (!g->kv_sorted)
        return tr_errf(c->err, -ENOMEM, "%s: no memory for the index of keys", c->file);
    for (uint32_t i = 1; i < g->n_kv; i++) {
        struct tr_str key = g->kv[g->kv_sorted[i]].key;
        if (tr_str_cmp(g->kv[g->kv_sorted[i - 1]].key, key) == 0)
            return tr_errf(c->err, -EINVAL, "%s: key %.*s is there twice", c->file,
                           (int)(key.len < KEY_SHOWN ? key.len : KEY_SHOWN), key.p);
    }
    return 0;
}

static int read_alignment(struct tr_gguf *g, const struct cursor *c)
{
    g->alignment = ALIGNMENT_DEFAULT;
    int r = tr_gguf_u64(g, "general.alignment", &g->alignment);
    if (r == -EINVAL || g->alignment < ALIGNMENT_MIN || g->alignment > ALIGNMENT_MAX ||
        (g->alignment & (g->alignment - 1)))
        return tr_errf(c->err, -EINVAL,
                       "%s: key general.alignment must be a power of two, %d..%d, not %" PRIu64,
                       c->file, ALIGNMENT_MIN, ALIGNMENT_MAX, r == -EINVAL ? 0 : g->alignment);
    return 0;
}

static int read_tensors(struct tr_gguf *g, struct cursor *c, uint64_t n)
{
    uint64_t *offset = NULL;
    int r = -EINVAL;
    for (; g->n_tensors < n; g->n_tensors++) {
        struct tr_gguf_tensor *t = grow(c, g->tensor, g->n_tensors, sizeof(*t));
        if (!t)
            goto out;
        g->tensor = t;
        uint64_t *o = grow(c, offset, g->n_tensors, sizeof(*o));
        if (!o)
            goto out;
        offset = o;
        if (take_tensor(c, &t[g->n_tensors], &o[g->n_tensors]) < 0)
            goto out;
    }
    uint64_t data_start = ((uint64_t)c->pos + g->alignment - 1) & ~(g->alignment - 1);
    TR_ASSERT(offset || !g->n_tensors);
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (place_tensor(g, c, data_start, &g->tensor[i], offset[i]) < 0)
            goto out;
    g->tensor_sorted = sorted(g->n_tensors, g->tensor, cmp_tensor);
    if (!g->tensor_sorted) {
        tr_errf(c->err, -ENOMEM, "%s: no memory for the index of tensors", c->file);
        goto out;
    }
    for (uint32_t i = 1; i < g->n_tensors; i++) {
        struct tr_str name = g->tensor[g->tensor_sorted[i]].name;
        if (tr_str_cmp(g->tensor[g->tensor_sorted[i - 1]].name, name) == 0) {
            tr_errf(c->err, -EINVAL, "%s: tensor %.*s is there twice", c->file, (int)name.len,
                    name.p);
            goto out;
        }
    }
    r = 0;
out:
    free(offset);
    return r;
}

/* Counts are held against what the rest of the file could hold before anything is read. */
static int check_count(const struct cursor *c, const char *what, uint64_t n, size_t each)
{
    if (n > ENTRIES_MAX || n > left(c) / each)
        return tr_errf(c->err, -EINVAL,
                       "%s: the %s count %" PRIu64
                       " does not fit (%zu bytes follow, at most %d are "
                       "accepted)",
                       c->file, what, n, left(c), ENTRIES_MAX);
    return 0;
}

static int read_header(struct cursor *c, uint64_t *n_tensors, uint64_t *n_kv)
{
    const uint8_t *p = c->base;
    if (c->len >= 4 && memcmp(p, "GGUF", 4) != 0)
        return tr_errf(c->err, -EINVAL,
                       "%s: not a GGUF file: its magic is %02x %02x %02x %02x, not \"GGUF\"",
                       c->file, p[0], p[1], p[2], p[3]);
    p = take(c, HEADER_BYTES, "the header", nobody);
    if (!p)
        return -EINVAL;
    uint32_t version = tr_gguf_le32(p + 4);
    if (version != 2 && version != 3)
        return tr_errf(c->err, -EINVAL,
                       "%s: GGUF version %" PRIu32 " is not supported (2 and 3 are)%s", c->file,
                       version, version & 0xffff ? "" : "; a big-endian file?");
    *n_tensors = tr_gguf_le64(p + 8);
    *n_kv = tr_gguf_le64(p + 16);
    if (check_count(c, "tensor", *n_tensors, TENSOR_BYTES_MIN) < 0)
        return -EINVAL;
    return check_count(c, "metadata", *n_kv, KV_BYTES_MIN);
}

/* What is shown of a path: all of it, or its end. */
static char *shown(const char *path)
{
    size_t n = strlen(path);
    if (n <= NAME_SHOWN)
        return strdup(path);
    char *s = NULL;
    return asprintf(&s, "...%s", path + n - NAME_SHOWN) < 0 ? NULL : s;
}

/* `map` is `data` if it is to be unmapped at close, and in any case of failure; else NULL. */
static struct tr_gguf *parse(const void *data, size_t len, void *map, const char *name,
                             struct tr_errbuf *err)
{
    struct tr_gguf *g = calloc(1, sizeof(*g));
    if (g)
        g->name = shown(name);
    if (!g || !g->name) {
        tr_errf(err, -ENOMEM, "%.160s: no memory", name);
        if (map)
            munmap(map, len);
        free(g);
        return NULL;
    }
    g->base = data;
    g->len = len;
    g->map = map;
    if (len >= 8)
        g->version = tr_gguf_le32(g->base + 4);
    struct cursor c = {.base = data, .len = len, .file = g->name, .err = err};
    uint64_t n_tensors = 0, n_kv = 0;
    if (read_header(&c, &n_tensors, &n_kv) == 0 && read_kvs(g, &c, n_kv) == 0 &&
        read_alignment(g, &c) == 0 && read_tensors(g, &c, n_tensors) == 0)
        return g;
    tr_gguf_close(g);
    return NULL;
}

struct tr_gguf *tr_gguf_parse(const void *data, size_t len, const char *name, struct tr_errbuf *err)
{
    return parse(data, len, NULL, name, err);
}

static struct tr_gguf_origin origin_of(const struct stat *st)
{
    return (struct tr_gguf_origin){.dev = st->st_dev,
                                   .ino = st->st_ino,
                                   .size = (uint64_t)st->st_size,
                                   .mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u +
                                               (uint64_t)st->st_mtim.tv_nsec};
}

struct tr_gguf *tr_gguf_open(const char *path, struct tr_errbuf *err)
{
    struct tr_gguf *g = NULL;
    /* Non-blocking, so that a pipe in the file's place does not hang the start. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        tr_errf(err, -errno, "%.160s: cannot open: %s", path, strerror(errno));
        return NULL;
    }
    struct stat st;
    if (fstat(fd, &st) < 0) {
        tr_errf(err, -errno, "%.160s: cannot stat: %s", path, strerror(errno));
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        tr_errf(err, -EINVAL, "%.160s: not a file but %s", path,
                S_ISDIR(st.st_mode) ? "a folder" : "a device or pipe");
        goto out;
    }
    if (st.st_size < HEADER_BYTES) {
        tr_errf(err, -EINVAL, "%.160s: the file has %lld bytes, the GGUF header alone needs %d",
                path, (long long)st.st_size, HEADER_BYTES);
        goto out;
    }
    void *base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED) {
        tr_errf(err, -errno, "%.160s: cannot map: %s", path, strerror(errno));
        goto out;
    }
    g = parse(base, (size_t)st.st_size, base, path, err);
    if (g)
        g->origin = origin_of(&st);
out:
    close(fd);
    return g;
}

struct tr_gguf_origin tr_gguf_origin(const struct tr_gguf *g)
{
    return g->origin;
}

void tr_gguf_close(struct tr_gguf *g)
{
    if (!g)
        return;
    if (g->map)
        munmap(g->map, g->len);
    free(g->kv);
    free(g->kv_sorted);
    free(g->tensor);
    free(g->tensor_sorted);
    free(g->name);
    free(g);
}

uint64_t tr_gguf_n_tensors(const struct tr_gguf *g)
{
    return g->n_tensors;
}

const struct tr_gguf_tensor *tr_gguf_tensor_at(const struct tr_gguf *g, uint64_t i)
{
    return i < g->n_tensors ? &g->tensor[i] : NULL;
}

const struct tr_gguf_tensor *tr_gguf_tensor(const struct tr_gguf *g, const char *name)
{
    struct tr_str want = {name, strlen(name)};
    uint32_t lo = 0, hi = g->n_tensors;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const struct tr_gguf_tensor *t = &g->tensor[g->tensor_sorted[mid]];
        int cmp = tr_str_cmp(t->name, want);
        if (cmp == 0)
            return t;
        if (cmp < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}
