/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/sample.cuh - what the kernels of sampling share: their view of a call and of the room, and
 * engine/dist.c's exponential.
 *
 * A pick goes through these, each a kernel over all picks of a call; those that have nothing to do return:
 *
 *   maxima (raw)      logits.cu    largest of blocks and groups, of the logits as they are
 *   sums (raw)        logits.cu    weights of blocks and groups           log-probabilities
 *   alternatives      logprob.cu   the largest of them                    log-probabilities
 *   touch             touch.cu     history, bias, ids that are off        where any are touched
 *   maxima (changed)  logits.cu    again, after those and the mask        touched or masked
 *   sums (changed)    logits.cu    with the temperature                   not greedy, where the whole counts
 *   choose            choose.cu    the id
 */
#ifndef TR_CUDA_KERNELS_SAMPLE_CUH
#define TR_CUDA_KERNELS_SAMPLE_CUH

#include "base/exp.h"
#include "cuda_kernels/dev.cuh"
#include "cuda_kernels/sample.h"

enum {
    SAMPLE_BLOCK = TR_CUDA_PICK_BLOCK,
    SAMPLE_GROUP = SAMPLE_BLOCK * SAMPLE_BLOCK, /* logits */
    SAMPLE_THREADS = 512,                       /* of kernels with a block of threads per pick */
    SAMPLE_WARPS = SAMPLE_THREADS / 32
};

/* A call, by value to each kernel.  Scratch [max_rows, ...] is the pick's own, [TR_CUDA_PICK_SLOTS, ...] its
 * slot's. */
struct sample_call {
    uint32_t n_vocab, n_blocks, n_groups, touched_cap, n_touched_groups;
    float *x;
    const struct tr_place *places;
    const uint32_t *ids; /* beside the KV blocks */
    const struct tr_cuda_pick *picks;
    const uint32_t *words;
    struct tr_cuda_picked *out;
    float *group_max, *block_max;  /* [max_rows, n_groups], [max_rows, n_blocks] */
    double *group_sum, *block_sum; /* the same of weights */
    uint32_t *n_touched;           /* [SLOTS] */
    double *touched_top;           /* [SLOTS] largest of the touched */
    uint32_t *seat;                /* [SLOTS, n_vocab] of an id among the touched, from 1 */
    double *touched_v;             /* [SLOTS, touched_cap] logit */
    double *touched_sum;           /* [SLOTS, n_touched_groups] weights of groups of them */
    float *touched_raw;            /* [SLOTS, touched_cap] */
    uint32_t *touched_id;
    uint32_t *touched_seen; /* 2 for each time in the output, 1 if in the prompt */
};

/* The picks of one wave begin at c->picks; `at` is a pick's place there. */
static __device__ inline float *sample_row(const struct sample_call *c, uint32_t at)
{
    return c->x + (size_t)c->picks[at].row * c->n_vocab;
}

static __device__ inline bool sample_is_changed(const struct tr_cuda_pick *p)
{
    return p->slot != TR_CUDA_PICK_NONE || p->mask_at != TR_CUDA_PICK_NONE;
}

/* The touched ids of a pick, in the order of touching; none without a slot. */
struct sample_touched {
    uint32_t n;
    double top;
    double *v, *sum;
    float *raw;
    uint32_t *id, *seen;
};

static __device__ inline struct sample_touched sample_touched_of(const struct sample_call *c,
                                                                 uint32_t at)
{
    struct sample_touched t = {};
    uint32_t slot = c->picks[at].slot;
    if (slot == TR_CUDA_PICK_NONE)
        return t;
    size_t from = (size_t)slot * c->touched_cap;
    t.n = c->n_touched[slot];
    t.top = c->touched_top[slot];
    t.v = c->touched_v + from;
    t.sum = c->touched_sum + (size_t)slot * c->n_touched_groups;
    t.raw = c->touched_raw + from;
    t.id = c->touched_id + from;
    t.seen = c->touched_seen + from;
    return t;
}

/* Largest of the n values, in every lane; minus infinity for none.  All lanes of a warp call it. */
static __device__ inline float sample_max_of(const float *v, uint32_t n)
{
    float top = -INFINITY;
    for (uint32_t i = threadIdx.x % 32; i < n; i += 32)
        top = v[i] > top ? v[i] : top;
    for (int by = 16; by >= 1; by /= 2) {
        float other = __shfl_xor_sync(~0u, top, by);
        top = other > top ? other : top;
    }
    return top;
}

/* What the distribution is drawn from: largest logit, and where all exponentials start from. */
struct sample_top {
    float max; /* of those that are not touched */
    double all;
    float ref;
};

static __device__ inline struct sample_top sample_top_of(const struct sample_call *c, uint32_t at)
{
    struct sample_top t;
    uint32_t slot = c->picks[at].slot;
    t.max = sample_max_of(c->group_max + (size_t)at * c->n_groups, c->n_groups);
    t.all = (double)t.max;
    if (slot != TR_CUDA_PICK_NONE && c->touched_top[slot] > t.all)
        t.all = c->touched_top[slot];
    t.ref = (float)t.all;
    return t;
}

/* Doubles as whole numbers in the same order, both zeros the same; no NaN. */
static __device__ inline uint64_t sample_key_of(double v)
{
    uint64_t bits;
    v = v + 0.0;
    memcpy(&bits, &v, sizeof(bits));
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}
static __device__ inline double sample_value_of(uint64_t key)
{
    uint64_t bits = key >> 63 ? key & ~(1ull << 63) : ~key;
    double v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

/* engine/dist.c, exp_lanes: exp(t) for t <= 0; exactly 0 below -87, for minus infinity and for NaN. */
static __device__ inline float sample_expf(float t)
{
    if (!(t >= -87.0f))
        return 0.0f;
    float shifted = t * 1.44269504f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r = t - n * 0.693359375f - n * -2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * tr_float_of((tr_bits_of(shifted) - 0x4b400000u + 127u) << 23);
}

/* Kernels, each in its file.  `changed`: of the logits after steps 1 to 3; else as they are. */
void sample_maxima(struct tr_dev *dev, const struct sample_call *c, uint32_t n, bool changed);
void sample_sums(struct tr_dev *dev, const struct sample_call *c, uint32_t n, bool changed);
void sample_alternatives(struct tr_dev *dev, const struct sample_call *c, uint32_t n);
void sample_touch(struct tr_dev *dev, const struct sample_call *c, uint32_t n);
void sample_choose(struct tr_dev *dev, const struct sample_call *c, uint32_t n);

#endif
