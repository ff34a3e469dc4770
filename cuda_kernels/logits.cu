/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/logits.cu - a row of logits in blocks of 64 and groups of 64 blocks: largest, and sums of
 * weights (engine/dist.c: tr_dist_scan, tr_dist_sum).
 *
 * Launch: a block of 256 threads has a group, 4,096 logits of one pick; grid (groups, picks).  A vocabulary
 * of 128k gives 32 blocks a pick, 256k 64, so that one pick alone is spread over that many multiprocessors
 * and reads its 512 KiB (1 MiB), which the last product has just left in L2, in the time of a few round
 * trips; 256 picks are 8,192 (16,384) blocks.  Expected: bound by L2 for many picks, by launch and latency
 * for few.
 *
 * The logits go through shared memory: read in order, 128 bytes a warp, and looked at as the CPU does it,
 * four lanes of sixteen steps per block of 64.  A block's row there is 68 floats long, so that the 32
 * threads of a warp, which have eight blocks and four lanes, meet all 32 banks. */
#include "cuda_kernels/sample.cuh"

enum { THREADS = 256, LANES = 4, STEPS = SAMPLE_BLOCK / LANES, STRIDE = SAMPLE_BLOCK + LANES };

/* A bit of the pick's mask: may the id be sampled?  All may without one. */
static __device__ bool is_allowed(const uint32_t *mask, uint32_t id)
{
    return !mask || (mask[id / 32] >> (id % 32) & 1);
}

/* The group's logits into `to`, minus infinity beyond the vocabulary.  With a mask also where it has no bit,
 * there and in the row itself. */
static __device__ void stage(const struct sample_call *c, float *x, uint32_t group,
                             const uint32_t *mask, float *to)
{
    for (uint32_t i = threadIdx.x; i < SAMPLE_GROUP; i += THREADS) {
        uint32_t id = group * SAMPLE_GROUP + i;
        float v = id < c->n_vocab ? x[id] : -INFINITY;
        if (id < c->n_vocab && !is_allowed(mask, id))
            x[id] = v = -INFINITY;
        to[i / SAMPLE_BLOCK * STRIDE + i % SAMPLE_BLOCK] = v;
    }
    __syncthreads();
}

static __global__ void __launch_bounds__(THREADS) maxima(struct sample_call c, bool changed)
{
    TR_SHARED(float, logit, SAMPLE_BLOCK *STRIDE);
    TR_SHARED(float, largest, THREADS / 32);
    uint32_t group = blockIdx.x, at = blockIdx.y;
    const struct tr_cuda_pick *p = &c.picks[at];
    bool echo = p->flags & TR_CUDA_PICK_ECHO;
    if (changed ? echo || !sample_is_changed(p)
                : !(p->flags & TR_CUDA_PICK_LP) && sample_is_changed(p))
        return;
    stage(&c, sample_row(&c, at), group,
          changed && p->mask_at != TR_CUDA_PICK_NONE ? c.words + p->mask_at : NULL, logit);
    uint32_t block = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const float *v = logit + block * STRIDE + lane;
    float top = -INFINITY;
    for (uint32_t i = 0; i < STEPS; i++)
        top = v[i * LANES] > top ? v[i * LANES] : top;
    for (int by = 1; by < 32; by *= 2) {
        float other = __shfl_xor_sync(~0u, top, by);
        top = other > top ? other : top;
        uint32_t b = group * SAMPLE_BLOCK + block;
        if (by == LANES / 2 && lane == 0 && b < c.n_blocks)
            c.block_max[(size_t)at * c.n_blocks + b] = top;
    }
    largest[threadIdx.x / 32] = top;
    __syncthreads();
    if (threadIdx.x < 32) {
        top = sample_max_of(largest, THREADS / 32);
        if (threadIdx.x == 0)
            c.group_max[(size_t)at * c.n_groups + group] = top;
    }
}

void sample_maxima(struct tr_dev *dev, const struct sample_call *c, uint32_t n, bool changed)
{
    TR_LAUNCH(maxima, dim3(c->n_groups, n), dim3(THREADS), 0, dev->stream, *c, changed);
}

/* Whether a pick's draw looks at the weight of the whole vocabulary. */
static __device__ bool counts_all(const struct tr_cuda_pick *p)
{
    if (p->flags & (TR_CUDA_PICK_ECHO | TR_CUDA_PICK_GREEDY))
        return false;
    return !(p->flags & TR_CUDA_PICK_CUT) || (p->top_k == 0 && p->top_p < 1.0);
}

static __global__ void __launch_bounds__(THREADS) sums(struct sample_call c, bool changed)
{
    TR_SHARED(float, logit, SAMPLE_BLOCK *STRIDE);
    TR_SHARED(double, sum, SAMPLE_BLOCK);
    uint32_t group = blockIdx.x, at = blockIdx.y;
    const struct tr_cuda_pick *p = &c.picks[at];
    if (changed ? !counts_all(p) : !(p->flags & TR_CUDA_PICK_LP))
        return;
    stage(&c, sample_row(&c, at), group, NULL, logit);
    struct sample_top t = sample_top_of(&c, at);
    float from = changed ? t.ref : t.max, scale = changed ? (float)p->scale : 1.0f;
    uint32_t block = threadIdx.x / LANES, b = group * SAMPLE_BLOCK + block;
    const float *v = logit + block * STRIDE + threadIdx.x % LANES;
    float lane = 0.0f;
    for (uint32_t i = 0; i < STEPS; i++)
        lane += sample_expf((v[i * LANES] - from) * scale);
    double all = (double)__shfl_sync(~0u, lane, 0, LANES);
    for (int l = 1; l < LANES; l++)
        all += (double)__shfl_sync(~0u, lane, l, LANES);
    if (threadIdx.x % LANES == 0) {
        sum[block] = all;
        if (b < c.n_blocks)
            c.block_sum[(size_t)at * c.n_blocks + b] = all;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double of_group = 0;
        for (uint32_t i = 0; i < SAMPLE_BLOCK && group * SAMPLE_BLOCK + i < c.n_blocks; i++)
            of_group += sum[i];
        c.group_sum[(size_t)at * c.n_groups + group] = of_group;
    }
}

void sample_sums(struct tr_dev *dev, const struct sample_call *c, uint32_t n, bool changed)
{
    TR_LAUNCH(sums, dim3(c->n_groups, n), dim3(THREADS), 0, dev->stream, *c, changed);
}
