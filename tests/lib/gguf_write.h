/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/gguf_write.h - builds GGUF files in memory: any metadata, any tensors, and whole tiny
 * llama models with random weights, so that loading and the forward pass are tested without a
 * model file.
 *
 * Running out of memory aborts: these are tests. */
#ifndef TR_TESTS_GGUF_WRITE_H
#define TR_TESTS_GGUF_WRITE_H

#include "base/gguf.h"

struct tr_gw;

struct tr_gw *tr_gw_new(uint32_t version);
/* Appends one key with its value as it lies in the file (array headers included). */
void tr_gw_kv(struct tr_gw *w, const char *key, enum tr_gguf_type type, const void *value,
              size_t bytes);
void tr_gw_u32(struct tr_gw *w, const char *key, uint32_t v);
void tr_gw_f32(struct tr_gw *w, const char *key, float v);
void tr_gw_str(struct tr_gw *w, const char *key, const char *v);
void tr_gw_strs(struct tr_gw *w, const char *key, const char *const *v, uint64_t n);
/* Appends a tensor; `data` is copied and padded to the alignment. */
void tr_gw_tensor(struct tr_gw *w, const char *name, enum tr_tensor_type type, uint32_t n_dims,
                  const uint64_t *ne, const void *data, size_t bytes);
/* The same with random contents of a reasonable size for weights of `ne[0]` inputs. */
void tr_gw_random(struct tr_gw *w, const char *name, enum tr_tensor_type type, uint32_t n_dims,
                  const uint64_t *ne);
/* The finished file; the caller frees it.  `w` is gone. */
uint8_t *tr_gw_finish(struct tr_gw *w, size_t *len);

/* Files too large for memory: from tr_gw_head_only on tr_gw_random only notes what is to be written, and the
 * file that tr_gw_finish_head gives ends where its data begins.  The parts, the caller's to free, are then
 * filled piece by piece at head + at.  What is between them does not matter. */
struct tr_gw_part {
    enum tr_tensor_type type;
    bool vector;
    uint64_t n_in;
    uint64_t at, bytes;
};
void tr_gw_head_only(struct tr_gw *w);
uint8_t *tr_gw_finish_head(struct tr_gw *w, size_t *len, struct tr_gw_part **parts,
                           uint32_t *n_parts);
/* `bytes` of a part, whole blocks, as `seed` says. */
void tr_gw_fill(const struct tr_gw_part *p, uint64_t seed, void *out, uint64_t bytes);

/* A tiny model.  Zero fields get the values in brackets; `arch` decides which tensors there are
 * (biases for qwen2, norms of heads for qwen3, those and norms at the ends for gemma3). */
struct tr_gw_llama {
    uint32_t n_layer;         /* [2] */
    uint32_t n_embd;          /* [64] */
    uint32_t n_head;          /* [2] */
    uint32_t n_head_kv;       /* [1] */
    uint32_t head_dim;        /* [n_embd / n_head, and no key that says it] */
    uint32_t window;          /* gemma3's sliding window [none] */
    uint32_t n_ff;            /* [96] */
    uint32_t n_vocab;         /* [100] */
    uint32_t n_ctx;           /* [256] */
    enum tr_tensor_type type; /* of the matrices of the layers [F32] */
    enum tr_tensor_type embd_type;
    bool output;                     /* own output matrix (otherwise tied to token_embd) */
    enum tr_tensor_type output_type; /* [`type`] */
    const char *skip;                /* leave out the tensor or key of this name */
    const char *extra;               /* add an F32 tensor of this name, n_embd long */
    const char *arch;                /* ["llama"] */
    uint64_t seed;
};
/* Builds into `w`, so that the caller can add keys; then tr_gw_finish. */
void tr_gw_llama(struct tr_gw *w, const struct tr_gw_llama *m);

/* Writes bytes to a new temporary file whose name goes to `path`; the caller unlinks it. */
void tr_gw_save(const uint8_t *bytes, size_t len, char path[64]);

#endif
