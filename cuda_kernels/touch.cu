/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/touch.cu - bias, penalties and ids that are off (engine/sample.h, steps 1 to 3): which ids a pick
 * touches, in the order of touching, and their logits, in double.
 *
 * What touches is one list: the biases, the history where there are penalties, the ids that are off.  Each id
 * learns by an atomic maximum of the places' complements who touches it first; those who do are counted,
 * each warp a stretch of the list, and take their seats in order.  Everything else goes by seats: counts by
 * integer atomics, whose order does not matter, and the arithmetic of a logit by one thread.
 *
 * Launch: a block of 512 threads has a pick.  A history of 8k ids is 16 a thread and pass, there are five
 * passes, and the ids lie in lines of 128 bytes by KV block: expected, under 10 us, bound by the atomics'
 * round trips to L2; 128k ids, about 100 us.  More blocks a pick would need a grid-wide meeting, and picks
 * with penalties go side by side anyway.
 *
 * A touched id leaves the row (minus infinity there).  Seats of earlier picks stay: they are smaller than any
 * complement, so nobody takes them for a place in his list. */
#include "cuda_kernels/sample.cuh"

/* What a pick is touched by, in order. */
struct touches {
    const uint32_t *bias, *off; /* in words */
    const uint32_t *ids, *blocks;
    uint32_t n_bias, n_history, n_off, first; /* first: position of the history that counts */
};

static __device__ struct touches touches_of(const struct sample_call *c,
                                            const struct tr_cuda_pick *p)
{
    struct touches t = {};
    bool rep = p->repetition != 1.0;
    bool out = p->presence != 0.0 || p->frequency != 0.0;
    t.bias = c->words + p->bias_at;
    t.off = c->words + p->off_at;
    t.n_bias = p->n_bias;
    t.n_off = p->n_off;
    if (!rep && !out)
        return t;
    t.ids = c->ids;
    t.blocks = c->places[p->row].blocks;
    t.first = rep ? 0 : p->prompt_len;
    t.n_history = p->n_ids > t.first ? p->n_ids - t.first : 0;
    return t;
}

static __device__ uint32_t history_at(const struct touches *t, uint32_t pos)
{
    return t
        ->ids[(size_t)t->blocks[pos / TR_OPS_KV_BLOCK] * TR_OPS_KV_BLOCK + pos % TR_OPS_KV_BLOCK];
}

static __device__ uint32_t id_at(const struct touches *t, uint32_t i)
{
    if (i < t->n_bias)
        return t->bias[2 * i];
    i -= t->n_bias;
    return i < t->n_history ? history_at(t, t->first + i) : t->off[i - t->n_history];
}

/* Gives the touched their seats, 1 and up, in `seat`; *n_biased becomes how many are touched by a bias.
 * Returns how many there are.  `count` [SAMPLE_WARPS] is the block's. */
static __device__ uint32_t take_seats(const struct touches *t, uint32_t *seat, const float *x,
                                      const struct sample_touched *to, uint32_t *count,
                                      uint32_t *n_biased)
{
    uint32_t n = t->n_bias + t->n_history + t->n_off, lane = threadIdx.x % 32;
    for (uint32_t i = threadIdx.x; i < n; i += SAMPLE_THREADS)
        atomicMax(&seat[id_at(t, i)], ~i);
    __syncthreads();
    uint32_t each = (n + 32 * SAMPLE_WARPS - 1) / (32 * SAMPLE_WARPS) * 32;
    uint32_t from = threadIdx.x / 32 * each, end = from + each < n ? from + each : n;
    uint32_t mine = 0;
    for (uint32_t i = from; i < end; i += 32)
        mine += (uint32_t)__popc(
            __ballot_sync(~0u, i + lane < end && seat[id_at(t, i + lane)] == ~(i + lane)));
    if (lane == 0)
        count[threadIdx.x / 32] = mine;
    __syncthreads();
    uint32_t at = 0, all = 0;
    for (uint32_t w = 0; w < SAMPLE_WARPS; w++) {
        at += w < threadIdx.x / 32 ? count[w] : 0;
        all += count[w];
    }
    /* A seat is smaller than the complement of any place: who looks after it was taken is not misled. */
    for (uint32_t i = from; i < end; i += 32) {
        uint32_t id = i + lane < end ? id_at(t, i + lane) : 0;
        bool is_first = i + lane < end && seat[id] == ~(i + lane);
        uint32_t firsts = __ballot_sync(~0u, is_first);
        if (is_first) {
            uint32_t s = at + (uint32_t)__popc(firsts & ((1u << lane) - 1));
            to->id[s] = id;
            to->raw[s] = x[id];
            to->v[s] = (double)x[id];
            to->seen[s] = 0;
            seat[id] = s + 1;
            if (i + lane < t->n_bias)
                atomicAdd(n_biased, 1u);
        }
        at += (uint32_t)__popc(firsts);
    }
    __syncthreads();
    return all;
}

static __device__ void penalise(const struct tr_cuda_pick *p, double *v, uint32_t seen)
{
    if (!seen)
        return;
    uint32_t n_out = seen / 2;
    if (p->repetition != 1.0)
        *v = *v > 0 ? *v / p->repetition : *v * p->repetition;
    *v -= p->frequency * n_out;
    if (n_out)
        *v -= p->presence;
}

/* The logit of the touched `s`, but for ids that are off. */
static __device__ void adjust(const struct tr_cuda_pick *p, const struct touches *t,
                              const struct sample_touched *to, uint32_t s, uint32_t n_biased)
{
    double v = to->v[s];
    for (uint32_t i = 0; s < n_biased && i < t->n_bias; i++)
        if (t->bias[2 * i] == to->id[s])
            v += (double)tr_float_of(t->bias[2 * i + 1]);
    penalise(p, &v, to->seen[s]);
    to->v[s] = v;
}

static __global__ void __launch_bounds__(SAMPLE_THREADS) touch(struct sample_call c)
{
    TR_SHARED(uint32_t, count, SAMPLE_WARPS);
    TR_SHARED(uint32_t, n_biased, 1);
    TR_SHARED(unsigned long long, top, 1);
    uint32_t at = blockIdx.x;
    const struct tr_cuda_pick *p = &c.picks[at];
    if (p->slot == TR_CUDA_PICK_NONE || (p->flags & TR_CUDA_PICK_ECHO))
        return;
    float *x = sample_row(&c, at);
    uint32_t *seat = c.seat + (size_t)p->slot * c.n_vocab;
    struct touches t = touches_of(&c, p);
    struct sample_touched to = sample_touched_of(&c, at);
    if (threadIdx.x == 0) {
        *n_biased = 0;
        *top = sample_key_of(-INFINITY);
    }
    __syncthreads();
    uint32_t n = take_seats(&t, seat, x, &to, count, n_biased);
    for (uint32_t i = threadIdx.x; i < t.n_history; i += SAMPLE_THREADS) {
        uint32_t *seen = &to.seen[seat[history_at(&t, t.first + i)] - 1];
        if (t.first + i >= p->prompt_len)
            atomicAdd(seen, 2u);
        else
            atomicOr(seen, 1u);
    }
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < n; s += SAMPLE_THREADS)
        adjust(p, &t, &to, s, *n_biased);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < t.n_off; i += SAMPLE_THREADS)
        to.v[seat[t.off[i]] - 1] = -INFINITY;
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < n; s += SAMPLE_THREADS) {
        uint32_t id = to.id[s];
        bool off =
            p->mask_at != TR_CUDA_PICK_NONE && !(c.words[p->mask_at + id / 32] >> (id % 32) & 1);
        if (off || to.v[s] != to.v[s])
            to.v[s] = -INFINITY;
        atomicMax(top, (unsigned long long)sample_key_of(to.v[s]));
        x[id] = -INFINITY;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        c.n_touched[p->slot] = n;
        c.touched_top[p->slot] = sample_value_of(*top);
    }
}

void sample_touch(struct tr_dev *dev, const struct sample_call *c, uint32_t n)
{
    TR_LAUNCH(touch, dim3(n), dim3(SAMPLE_THREADS), 0, dev->stream, *c);
}
