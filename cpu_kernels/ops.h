/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/ops.h - the operations a forward pass is made of, and the numbers they owe.
 *
 * Path: http > tokens > subq > engine > [step] > ring > detok > event > socket
 *
 * One table, `struct tr_ops`, with the state of whoever fills it in an opaque `struct tr_dev`.
 * The CPU fills it in cpu_kernels/cpu.c (and dev.h); the forward pass is written once over it and calls the
 * same operations for one row (decode) and for many (prefill, several sequences).
 *
 * What every filler owes (promises P7 and P10; checked by memcmp, never by tolerance):
 *   N1  Row r of an output depends on row r of the inputs and on the weights only: not on how
 *       many rows there are, where r stands, how work is tiled or how many threads work.
 *       (Not for TR_OPS_BLAS, whose products change with their shape: `deterministic` is false.)
 *   N2  A product's sum runs over K-blocks of 32 in ascending order into one float accumulator
 *       per output.  Inside a block quantised products are exact integers; float products are
 *       summed from zero in ascending order by fmaf, then added.
 *       Where 16 weights have a scale, the two sums are multiplied by their whole-number scales and
 *       added as whole numbers.  What is added per type: add_block in generic.c.
 *   N3  Activations are quantised per row and block of 32: d = max|x| / 127, and zero where that
 *       maximum is below 2^-50.  So quantised products never meet a subnormal number, whatever the
 *       scales in the file are.
 *   N4  Attention reads K and V as stored, also those of the rows at hand, in partitions of
 *       TR_OPS_KV_PART absolute positions merged in ascending order.
 *   N6  The plain C level (TR_CPU_GENERIC) is the meaning.  All other levels give the same bits,
 *       for every operation here, as long as all numbers are finite (which NaN comes out of
 *       NaNs may differ).
 * The floating-point environment is the default one: round to nearest, subnormals kept.  No
 * operation changes it, so it cannot differ between threads.
 *
 * Shapes are written as [rows, columns], row-major, contiguous.  All pointers are aligned to
 * TR_OPS_ALIGN where memory is handed over (`mem`), to 4 bytes elsewhere.
 *
 * Who may call: one thread at a time, the one that opened the device.  `take`, `take_host` and
 * `resident` are for the time of opening; no other operation allocates or fails; a wrong shape is the caller's mistake and is asserted. */
#ifndef TR_CPU_KERNELS_OPS_H
#define TR_CPU_KERNELS_OPS_H

#include "base/err.h"
#include "base/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TR_OPS_ALIGN = 64,     /* of memory handed to the operations */
    TR_OPS_LINE = 128,     /* pieces of a region lie at multiples of this: lines of a GPU's cache */
    TR_OPS_KV_BLOCK = 32,  /* tokens in a KV block */
    TR_OPS_KV_PART = 256,  /* positions in a partition of attention */
    TR_OPS_HEAD_MAX = 256, /* largest head_dim */
    TR_OPS_PRODUCTS = 4,   /* products in one matmul_n */
};

/* The position of a row that is not there, where a pass has more rows than there is work for: K and
 * V of it are not stored, it is not turned, attention leaves zeros. */
#define TR_NO_POS UINT32_MAX

/* How matrix products are computed.
 * INT8: quantised weights stay so (Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K) and meet
 *       activations quantised to int8;
 *       F32, F16, BF16 weights are multiplied as floats, exactly as in F32.
 * BLAS: weights dequantised, OpenBLAS.
 * F32:  weights dequantised, plain float products in the order of N2. */
enum tr_ops_math { TR_OPS_INT8, TR_OPS_BLAS, TR_OPS_F32 };

/* A weight matrix, prepared once at load.  out = x * W^T, W is [n_out, n_in]. */
struct tr_mat {
    const void *packed; /* the memory given to mat_prepare; what is in it is the filler's own */
    enum tr_tensor_type type; /* of the packed form: after dequantising it is F32 */
    uint32_t n_in;
    uint32_t n_out;
    bool row_major; /* packed as plain rows of floats (BLAS), not as strips */
};

/* Rows of activations on their way into products: made once, used by all products that read the
 * same rows (q, k and v; gate and up). */
struct tr_act {
    const float *x; /* [n_rows, dim] as given to act_set, borrowed until the next act_set */
    int8_t *q;      /* [max_rows, dim], -127..127 */
    float *d;       /* [max_rows, dim / 32] scale of a block */
    float *s;       /* [max_rows, dim / 32] d * sum of the block's q (for minima) */
    int32_t *sum;   /* [max_rows, dim / 32] sum of the block's q */
    int32_t *low;   /* [max_rows, dim / 32] sum of the first half of the block's q */
    uint32_t dim;
    uint32_t n_rows;
    uint32_t max_rows;
};

/* Rotary embedding: which elements of a head form a pair, and its table of angles. */
enum tr_rope_style {
    TR_ROPE_ADJACENT, /* (2i, 2i+1): GGUF files of the llama architecture */
    TR_ROPE_HALF,     /* (i, i + n_rot/2): qwen2, qwen3, gemma3 */
};

struct tr_rope {
    enum tr_rope_style style;
    uint32_t n_rot; /* leading elements of a head that are turned; even */
    uint32_t n_ctx;
    uint32_t n_filled; /* positions in the table so far */
    float amplitude;
    float freq[TR_OPS_HEAD_MAX / 2];
    float *cos_sin; /* [n_ctx, 2, n_rot/2]: cosines, then sines; [n_filled] of them are there */
};

/* Bytes of the table.  n_rot even, <= TR_OPS_HEAD_MAX, n_ctx > 0. */
size_t tr_rope_bytes(uint32_t n_rot, uint32_t n_ctx);

/* A table without any position, in `mem` (tr_rope_bytes, the caller's, must outlive r).  freq[i], n_rot/2 of them, is the
 * angle of pair i per position (theta^(-2i/n_rot) for plain RoPE, with a model's scaling already
 * in it); it is rounded to float, the angle pos * freq[i] too, as models were trained with.
 * Cosines and sines are multiplied by `amplitude` (1, but for scalings such as YaRN's). */
void tr_rope_init(struct tr_rope *r, enum tr_rope_style style, uint32_t n_rot, uint32_t n_ctx,
                  const double *freq, float amplitude, void *mem);

/* Fills the table up to n <= n_ctx positions, where it is not; memory of others is not touched, so a
 * table takes what the longest sequence so far has needed. */
void tr_rope_reach(struct tr_rope *r, uint32_t n);

/* The KV cache: n_layer * n_blocks blocks of TR_OPS_KV_BLOCK positions.
 * Block b of layer l lies at mem + (l * n_blocks + b) * block_bytes and holds, for each KV head,
 * K transposed, [head_dim, 32 positions], so that a query meets 32 positions in lanes and its sum
 * runs over head_dim in order; after all K, for each KV head V as [32 positions, head_dim].
 * Q8_0: the int8 values as above, followed per head by F16 scales of 32 elements of one position:
 * K [head_dim/32, 32], V [32, head_dim/32]. */
enum tr_ops_kv { TR_OPS_KV_F16, TR_OPS_KV_Q8_0, TR_OPS_KV_F32 };

struct tr_kv {
    void *mem;
    enum tr_ops_kv type;
    uint32_t n_layer;
    uint32_t n_blocks;
    uint32_t n_head_kv;
    uint32_t head_dim;  /* a multiple of 16 (Q8_0: of 32), <= TR_OPS_HEAD_MAX */
    size_t block_bytes; /* one block of one layer, K and V: tr_kv_block_bytes */
    uint32_t *ids;      /* [n_blocks, 32] the tokens that stand there; NULL: nobody asks */
};

/* Bytes of one block of one layer, a multiple of TR_OPS_ALIGN; 0 for a shape that is not served. */
size_t tr_kv_block_bytes(enum tr_ops_kv type, uint32_t n_head_kv, uint32_t head_dim);

/* Where a row stands: position `pos` (or TR_NO_POS) of a sequence whose KV is in `blocks`; position p is at
 * blocks[p / 32], p % 32.  Rows of one sequence that follow each other share the pointer. */
struct tr_place {
    const uint32_t *blocks;
    uint32_t pos;
};

/* How a row attends.  score = scale * (q . k), and with a cap: soft_cap * tanh(score / soft_cap).
 * A row at pos sees the positions p with pos - window < p <= pos, all p <= pos without a window.
 * Positions that a row does not see take no part at all: whole partitions of them are skipped,
 * and in the others they are in neither maximum, nor sum, nor weighted values. */
struct tr_attend_params {
    float scale;     /* usually 1/sqrt(head_dim) */
    float soft_cap;  /* 0: none */
    uint32_t window; /* 0: all */
};

struct tr_dev; /* the filler's state: threads, scratch, stream, ... */

struct tr_ops {
    const char *name;

    /* Memory.  Operations read and write memory of the device, which the host cannot touch where it
     * is `apart`; where it is not (the CPU), the host's memory is the device's too, an upload to where
     * something is already does nothing, and there is no reason to make a copy. */
    bool apart;

    /* Zeroed memory in whole pages, NULL where there is none left.  `huge` asks for large pages: for
     * what is read from end to end.  `give` ends it; NULL is fine. */
    void *(*take)(struct tr_dev *dev, size_t len, bool huge);
    void (*give)(struct tr_dev *dev, void *mem, size_t len);

    /* The same of the host's memory, such as uploads are fastest from. */
    void *(*take_host)(struct tr_dev *dev, size_t len);
    void (*give_host)(struct tr_dev *dev, void *mem, size_t len);

    /* Where operations find what lies in `mem`, which stays as it is from now on (weights); NULL
     * where there is no memory for it.  `evict` ends what it gave. */
    const void *(*resident)(struct tr_dev *dev, const void *mem, size_t len);
    void (*evict)(struct tr_dev *dev, const void *mem, size_t len);

    /* From the host to the device, in order with the operations; `from` stays as it is until they
     * are waited for. */
    void (*upload)(struct tr_dev *dev, void *to, const void *from, size_t len);

    /* From the device to the host, after waiting for all that comes before; with a length of 0 it
     * waits, and that is all. */
    void (*download)(struct tr_dev *dev, void *to, const void *from, size_t len);

    /* Recorded passes.  A pass whose rows all have logits is made with bucket(n_rows) >= n_rows rows,
     * some of which are not there, so that there are few kinds of passes; 0: such a pass is not
     * recorded and has n_rows.  (Where the caller has less room than that, its room is the number of
     * rows of the last kind.)  replay(n_rows) starts the recorded pass of that bucket, if there is
     * one; else the pass follows, and after it record_end.  What differs between passes of a kind is
     * in memory that was uploaded before.  NULL: none are recorded. */
    uint32_t (*bucket)(const struct tr_dev *dev, uint32_t n_rows);
    bool (*replay)(struct tr_dev *dev, uint32_t n_rows);
    void (*record_end)(struct tr_dev *dev);

    /* Bytes of a weight matrix once prepared; 0 if this type or shape cannot be computed with
     * (n_in a multiple of 32 for quantised types, both at least 1). */
    size_t (*mat_bytes)(const struct tr_dev *dev, enum tr_tensor_type type, uint32_t n_in,
                        uint32_t n_out);

    /* Packs `data` (GGUF rows of n_in elements, unaligned is fine) into `mem` (mat_bytes, aligned,
     * the caller's, must outlive m) and fills *m.  The file is not needed afterwards. */
    void (*mat_prepare)(struct tr_dev *dev, struct tr_mat *m, enum tr_tensor_type type,
                        uint32_t n_in, uint32_t n_out, const void *data, void *mem);

    /* Fills *m for memory that mat_prepare filled before (another process, same math). */
    void (*mat_adopt)(struct tr_dev *dev, struct tr_mat *m, enum tr_tensor_type type, uint32_t n_in,
                      uint32_t n_out, const void *mem);

    /* out[i, n_in] = dequantised row tokens[i] of m; tokens[i] < n_out. */
    void (*embed)(struct tr_dev *dev, const struct tr_mat *m, const uint32_t *tokens,
                  uint32_t n_rows, float *out);

    /* Memory for up to max_rows rows; dim is a multiple of 32 where quantised weights read it. */
    size_t (*act_bytes)(const struct tr_dev *dev, uint32_t max_rows, uint32_t dim);
    void (*act_init)(struct tr_dev *dev, struct tr_act *a, uint32_t max_rows, uint32_t dim,
                     void *mem);
    /* Takes x [n_rows, dim], n_rows <= max_rows, and quantises it where the math mode wants it. */
    void (*act_set)(struct tr_dev *dev, struct tr_act *a, const float *x, uint32_t n_rows);

    /* out[a->n_rows, w->n_out] = a * W^T.  a->dim == w->n_in; out overlaps neither. */
    void (*matmul)(struct tr_dev *dev, const struct tr_mat *w, const struct tr_act *a, float *out);

    /* out[i] = a * w[i]^T for i < n <= TR_OPS_PRODUCTS, as n calls of matmul: several products of
     * the same rows cost the threads one meeting. */
    void (*matmul_n)(struct tr_dev *dev, uint32_t n, const struct tr_mat *const *w,
                     const struct tr_act *a, float *const *out);

    /* out = x / sqrt(mean(x^2) + eps) * w, per row; w is [dim].  out may be x. */
    void (*rms_norm)(struct tr_dev *dev, const float *x, const float *w, float eps, uint32_t n_rows,
                     uint32_t dim, float *out);

    /* x += y, then out = rms_norm(x): a layer's residual and the next norm in one pass.
     * out may be y. */
    void (*add_rms_norm)(struct tr_dev *dev, float *x, const float *y, const float *w, float eps,
                         uint32_t n_rows, uint32_t dim, float *out);

    /* x += rms_norm(y, w_post), then out = rms_norm(x, w_next): the same where a half of a layer
     * has a norm of its own at its end.  The bits of the three operations; out may be y. */
    void (*norm_add_rms_norm)(struct tr_dev *dev, float *x, const float *y, const float *w_post,
                              const float *w_next, float eps, uint32_t n_rows, uint32_t dim,
                              float *out);

    /* rms_norm of each head of x [n_rows, n_head, head_dim] in place; w is [head_dim]. */
    void (*head_norm)(struct tr_dev *dev, float *x, const float *w, float eps, uint32_t n_rows,
                      uint32_t n_head, uint32_t head_dim);

    /* x += y. */
    void (*add)(struct tr_dev *dev, float *x, const float *y, uint32_t n_rows, uint32_t dim);

    /* x[r] += b, for every row; b is [dim]. */
    void (*add_bias)(struct tr_dev *dev, float *x, const float *b, uint32_t n_rows, uint32_t dim);

    /* x *= s. */
    void (*scale)(struct tr_dev *dev, float *x, float s, uint32_t n_rows, uint32_t dim);

    /* gate = gate / (1 + exp(-gate)) * up. */
    void (*silu_mul)(struct tr_dev *dev, float *gate, const float *up, uint32_t n_rows,
                     uint32_t dim);

    /* gate = gelu(gate) * up, with gelu(x) = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))). */
    void (*gelu_mul)(struct tr_dev *dev, float *gate, const float *up, uint32_t n_rows,
                     uint32_t dim);

    /* Turns x [n_rows, n_head, head_dim] in place by places[i].pos < r->n_filled. */
    void (*rope)(struct tr_dev *dev, const struct tr_rope *r, float *x,
                 const struct tr_place *places, uint32_t n_rows, uint32_t n_head,
                 uint32_t head_dim);

    /* Stores k and v [n_rows, n_head_kv, head_dim] at their places in layer `layer`. */
    void (*kv_write)(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
                     const struct tr_place *places, uint32_t n_rows, const float *k,
                     const float *v);

    /* Causal attention of q [n_rows, n_head, head_dim] over the positions that each row sees (all
     * of them stored already); head h reads KV head h / (n_head / n_head_kv).
     * out [n_rows, n_head, head_dim]. */
    void (*attention)(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
                      const struct tr_place *places, uint32_t n_rows, const float *q,
                      uint32_t n_head, const struct tr_attend_params *p, float *out);

    /* out[i, dim] = row rows[i] of x [., dim], for i < n; out does not overlap x. */
    void (*gather)(struct tr_dev *dev, const float *x, const uint32_t *rows, uint32_t n,
                   uint32_t dim, float *out);

    /* Notes the tokens of rows at their places in kv->ids, which is not NULL. */
    void (*note_ids)(struct tr_dev *dev, const struct tr_kv *kv, const struct tr_place *places,
                     const uint32_t *tokens, uint32_t n_rows);

    /* While on, operations may wait until one that needs what they wrote: what is given to them
     * stays as it is, and the host reads what they wrote only after defer(false), which does all
     * that waits.  So those whose rows do not meet (norms, activations, rope, storing K and V,
     * quantising) cost the threads one meeting together.  Off at first. */
    void (*defer)(struct tr_dev *dev, bool on);

    /* fn(arg, i) for 0 <= i < n on the device's host threads; returns when all are done. */
    void (*parallel)(struct tr_dev *dev, uint32_t n, void (*fn)(void *arg, uint32_t i), void *arg);

    /* fn(arg, what) beside whatever comes next, on a host thread that has nothing to do; false if
     * there is none, then it is the caller's to do. */
    bool (*errand)(struct tr_dev *dev, void (*fn)(void *arg, uint64_t what), void *arg,
                   uint64_t what);

    void (*close)(struct tr_dev *dev); /* NULL is fine */
};

/* --- the CPU ---------------------------------------------------------------------------------- */

/* Instruction levels, each a superset of the ones before it. */
enum tr_cpu_level {
    TR_CPU_GENERIC,      /* plain C */
    TR_CPU_AVX2,         /* AVX2, FMA, F16C */
    TR_CPU_AVX512_PLAIN, /* AVX-512 F, BW, DQ, VL */
    TR_CPU_AVX512,       /* and VNNI */
};

struct tr_cpu_config {
    enum tr_ops_math math;
    enum tr_cpu_level level_max; /* the highest level to use; TR_CPU_AVX512 means the best */
    uint32_t n_threads;          /* >= 1, the caller's thread included */
    bool pin_threads;            /* each to a processor of its own */
};

extern const struct tr_ops tr_ops_cpu;

/* Starts the threads (and loads OpenBLAS in TR_OPS_BLAS): call it after the fork.
 * NULL and a sentence on failure; ended by tr_ops_cpu.close. */
struct tr_dev *tr_cpu_open(const struct tr_cpu_config *c, struct tr_errbuf *err);

/* The highest level of this machine that is not above `max`. */
enum tr_cpu_level tr_cpu_level_find(enum tr_cpu_level max);
const char *tr_cpu_level_name(enum tr_cpu_level level); /* generic, avx2, avx512, avx512-vnni */

#ifdef __cplusplus
}
#endif

#endif
