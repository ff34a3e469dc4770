/* SPDX-License-Identifier: Apache-2.0 */
/* base/gguf.h - reader of the GGUF container (versions 2 and 3, little-endian).
 *
 * The file is input: every count, length, offset, dimension and product of dimensions is checked
 * against the file's size before it is used, nothing is allocated in proportion to a number that
 * was only claimed, and nested arrays are refused.  A message names the file, the field and the
 * tensor.  Format: the GGUF specification in the ggml repository (docs/gguf.md).
 *
 * The mapping is private and read-only.  Everything that is handed out points into it and lives
 * until tr_gguf_close. */
#ifndef TR_BASE_GGUF_H
#define TR_BASE_GGUF_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that are not ended by NUL and may contain NUL. */
struct tr_str {
    const char *p;
    size_t len;
};

/* Element types of metadata values, as numbered in the file. */
enum tr_gguf_type {
    TR_GGUF_U8 = 0,
    TR_GGUF_I8 = 1,
    TR_GGUF_U16 = 2,
    TR_GGUF_I16 = 3,
    TR_GGUF_U32 = 4,
    TR_GGUF_I32 = 5,
    TR_GGUF_F32 = 6,
    TR_GGUF_BOOL = 7,
    TR_GGUF_STRING = 8,
    TR_GGUF_ARRAY = 9,
    TR_GGUF_U64 = 10,
    TR_GGUF_I64 = 11,
    TR_GGUF_F64 = 12
};

/* Tensor types, as numbered in the file.  The reader knows the block sizes of all types of ggml
 * that carry weights, so that it can check any file; which of them can be computed with is the
 * business of the model (engine/model.h). */
enum tr_tensor_type {
    TR_T_F32 = 0,
    TR_T_F16 = 1,
    TR_T_Q4_0 = 2,
    TR_T_Q4_1 = 3,
    TR_T_Q5_0 = 6,
    TR_T_Q5_1 = 7,
    TR_T_Q8_0 = 8,
    TR_T_Q8_1 = 9,
    TR_T_Q2_K = 10,
    TR_T_Q3_K = 11,
    TR_T_Q4_K = 12,
    TR_T_Q5_K = 13,
    TR_T_Q6_K = 14,
    TR_T_Q8_K = 15,
    TR_T_BF16 = 30
};

struct tr_gguf_tensor {
    struct tr_str name;
    enum tr_tensor_type type;
    uint32_t n_dims;  /* 1..4 */
    uint64_t ne[4];   /* fastest dimension first; 1 beyond n_dims */
    const void *data; /* into the mapping, aligned to the file's alignment */
    uint64_t bytes;
};

/* A metadata array; elements are read in order with the tr_gguf_next_* functions. */
struct tr_gguf_array {
    enum tr_gguf_type type;
    uint64_t len;        /* elements, checked to fit in the file */
    const uint8_t *next; /* first unread element */
    uint64_t left;       /* unread elements */
    const uint8_t *end;
};

struct tr_gguf;

/* Maps and checks the file.  NULL and a sentence in `err` on any fault. */
struct tr_gguf *tr_gguf_open(const char *path, struct tr_errbuf *err);

/* Which file was mapped, whatever lies at its path by now; all 0 for bytes in memory. */
struct tr_gguf_origin {
    uint64_t dev, ino, size, mtime_ns;
};
struct tr_gguf_origin tr_gguf_origin(const struct tr_gguf *g);

/* The same over bytes in memory (tests, fuzzing); `data` is borrowed until tr_gguf_close. */
struct tr_gguf *tr_gguf_parse(const void *data, size_t len, const char *name,
                              struct tr_errbuf *err);

void tr_gguf_close(struct tr_gguf *g); /* NULL is fine */

/* The container: what its header says, and how large it is. */
struct tr_gguf_about {
    uint32_t version;
    uint64_t bytes, n_keys, alignment;
};
struct tr_gguf_about tr_gguf_about(const struct tr_gguf *g);

/* A key and its value, for who lists them all.  One of the values is set, by `type`: `u` of unsigned
 * integers, `i` of signed ones, `f`, `b`, `s` or `a`. */
struct tr_gguf_entry {
    struct tr_str key;
    enum tr_gguf_type type;
    uint64_t u;
    int64_t i;
    double f;
    bool b;
    struct tr_str s;
    struct tr_gguf_array a;
};
struct tr_gguf_entry tr_gguf_entry_at(const struct tr_gguf *g, uint64_t i); /* i < n_keys */

/* Metadata.  0, -ENOENT if there is no such key, -EINVAL if it has another type or (for u64) is
 * negative; the output is then untouched.  u64 takes every integer type, f64 every number. */
int tr_gguf_u64(const struct tr_gguf *g, const char *key, uint64_t *out);
int tr_gguf_f64(const struct tr_gguf *g, const char *key, double *out);
int tr_gguf_bool(const struct tr_gguf *g, const char *key, bool *out);
int tr_gguf_str(const struct tr_gguf *g, const char *key, struct tr_str *out);
int tr_gguf_array(const struct tr_gguf *g, const char *key, struct tr_gguf_array *out);

/* Next element of an array.  0, -ENOENT at its end, -EINVAL if the type does not fit. */
int tr_gguf_next_str(struct tr_gguf_array *a, struct tr_str *out);
int tr_gguf_next_u64(struct tr_gguf_array *a, uint64_t *out);
int tr_gguf_next_i64(struct tr_gguf_array *a, int64_t *out);
int tr_gguf_next_f64(struct tr_gguf_array *a, double *out);
int tr_gguf_next_bool(struct tr_gguf_array *a, bool *out);

uint64_t tr_gguf_n_tensors(const struct tr_gguf *g);
const struct tr_gguf_tensor *tr_gguf_tensor_at(const struct tr_gguf *g, uint64_t i);
const struct tr_gguf_tensor *tr_gguf_tensor(const struct tr_gguf *g,
                                            const char *name); /* or NULL */

/* Name of a tensor type as it is written in file names ("Q4_1"), or "type N" in `buf`. */
const char *tr_tensor_type_name(enum tr_tensor_type t, char buf[24]);

/* The file is a private mapping: when it is cut short by another process, touching the lost pages
 * raises SIGBUS.  Copies that must outlive such a cut are made at load. */

#ifdef __cplusplus
}
#endif

#endif
