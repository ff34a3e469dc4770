/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/logprob.cu - what log-probabilities are made of: the sum of all exponentials and the largest
 * logits, before anything is changed; for an echo the known id's logit too (engine/sample.h).
 *
 * Launch: a block of 512 threads has a pick.  The largest are the front of a sorted slice (falling.cuh); with 20
 * of them it is seldom longer than a few hundred. */
#include "cuda_kernels/falling.cuh"

static __global__ void __launch_bounds__(SAMPLE_THREADS) alternatives(struct sample_call c)
{
    TR_SHARED(struct falling_memory, memory, 1);
    uint32_t at = blockIdx.x;
    const struct tr_cuda_pick *p = &c.picks[at];
    struct tr_cuda_picked *out = &c.out[at];
    const float *x = sample_row(&c, at);
    if (!(p->flags & TR_CUDA_PICK_LP))
        return;
    float max = sample_max_of(c.group_max + (size_t)at * c.n_groups, c.n_groups);
    struct falling f = {};
    f.m = memory;
    f.x = x;
    f.block_max = c.block_max + (size_t)at * c.n_blocks;
    f.n_vocab = c.n_vocab;
    f.n_blocks = c.n_blocks;
    falling_begin(&f, (double)max, 1.0, 4.0);
    uint32_t n_top = 0;
    while (n_top < p->n_top) { /* mostly once */
        falling_next(&f, p->n_top - n_top);
        uint32_t left = p->n_top - n_top, n = f.n < left ? f.n : left;
        if (threadIdx.x < n) {
            uint32_t id = memory->id[threadIdx.x];
            out->top_id[n_top + threadIdx.x] = id;
            out->top[n_top + threadIdx.x] = x[id]; /* not the key's: zeros have a sign */
        }
        if (n == 0)
            break;
        n_top += n;
    }
    if (threadIdx.x == 0) {
        double sum = 0;
        for (uint32_t g = 0; g < c.n_groups; g++)
            sum += c.group_sum[(size_t)at * c.n_groups + g];
        out->max = max;
        out->sum = sum;
        out->n_top = n_top;
        if (p->flags & TR_CUDA_PICK_ECHO) {
            out->id = p->echo;
            out->raw = x[p->echo];
        }
    }
}

void sample_alternatives(struct tr_dev *dev, const struct sample_call *c, uint32_t n)
{
    TR_LAUNCH(alternatives, dim3(n), dim3(SAMPLE_THREADS), 0, dev->stream, *c);
}
