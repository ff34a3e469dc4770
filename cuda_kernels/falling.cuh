/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/falling.cuh - the logits of a pick in falling order (ties by rising id), a slice of at most 2,048
 * at a time, sorted in shared memory.
 *
 * A slice is all that lies between two bounds.  The lower one is a guess at first, some nats below the
 * largest, twice as deep each time it brings too little.  Where it brings too much, a histogram over what lies
 * between finds a bound that does not, which takes one look or, where logits crowd, a few; equal logits beyond
 * a slice's size go by windows of ids.  Bounds are whole numbers in the order of doubles, so nothing is lost
 * or seen twice, and what a slice holds does not depend on the order of its threads.
 *
 * Cost: peaked logits, one look at the block maxima (8 to 16 KiB) and a few blocks, and a sort of a hundred.
 * Flat ones with a top_p near 1 are the worst: each 2,048 of the kept cost two looks at the whole row
 * (expected, some 10 us of one multiprocessor) and a sort of 66 meetings (5 us). */
#ifndef TR_CUDA_KERNELS_FALLING_CUH
#define TR_CUDA_KERNELS_FALLING_CUH

#include "cuda_kernels/sample.cuh"

enum { FALLING_SLICE = 2048, FALLING_BINS = 256 };

/* Shared memory of the block. */
struct falling_memory {
    uint64_t key[FALLING_SLICE]; /* of the slice, sorted; its reader may put doubles there */
    uint32_t id[FALLING_SLICE];
    uint32_t bin[FALLING_BINS];
    uint32_t n, picked, picked_n;
};

/* All threads of the block have the same in it. */
struct falling {
    struct falling_memory *m;
    const float *x, *block_max;
    struct sample_touched touched;
    uint32_t n_vocab, n_blocks;
    uint32_t base, n;       /* place of the slice's first, how many it has; 0: there are no more */
    double top, nat, depth; /* largest; a nat in logits; how many below the next guess is */
    uint64_t most;          /* above it all have been seen */
    bool equal;             /* of those at `most` some have: all with smaller ids than `from` */
    uint32_t from;
};

static __device__ inline uint64_t falling_least()
{
    return sample_key_of(-INFINITY) + 1;
}

/* fn(key, id) for all between the bounds, by whichever thread. */
template <class F>
static __device__ inline void falling_each(const struct falling *f, uint64_t least, uint64_t most,
                                           const F &fn)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t from = threadIdx.x / 32 * 32; from < f->n_blocks; from += SAMPLE_THREADS) {
        uint32_t b = from + lane;
        bool hit = b < f->n_blocks && sample_key_of((double)f->block_max[b]) >= least;
        for (uint32_t hits = __ballot_sync(~0u, hit); hits; hits &= hits - 1) {
            uint32_t first = (from + (uint32_t)__popc(~hits & (hits - 1))) * SAMPLE_BLOCK;
            for (uint32_t id = first + lane; id < first + SAMPLE_BLOCK; id += 32) {
                float v = id < f->n_vocab ? f->x[id] : -INFINITY;
                uint64_t key = v > -INFINITY ? sample_key_of((double)v) : 0;
                if (key >= least && key <= most)
                    fn(key, id);
            }
        }
    }
    for (uint32_t s = threadIdx.x; s < f->touched.n; s += SAMPLE_THREADS) {
        uint64_t key = sample_key_of(f->touched.v[s]);
        if (key >= least && key <= most)
            fn(key, f->touched.id[s]);
    }
}

/* Those between the bounds with an id in [from, end) into the slice; returns how many they are, of which as
 * many are there as it holds. */
static __device__ inline uint32_t falling_gather(const struct falling *f, uint64_t least,
                                                 uint64_t most, uint32_t from, uint32_t end)
{
    struct falling_memory *m = f->m;
    __syncthreads();
    if (threadIdx.x == 0)
        m->n = 0;
    __syncthreads();
    falling_each(f, least, most, [=](uint64_t key, uint32_t id) {
        uint32_t i = id >= from && id < end ? atomicAdd(&m->n, 1u) : (uint32_t)FALLING_SLICE;
        if (i < FALLING_SLICE) {
            m->key[i] = key;
            m->id[i] = id;
        }
    });
    __syncthreads();
    return m->n;
}

static __device__ inline bool falling_before(const struct falling_memory *m, uint32_t i, uint32_t j)
{
    return m->key[i] > m->key[j] || (m->key[i] == m->key[j] && m->id[i] < m->id[j]);
}

/* Sorts the first n (bitonic, filled up to a power of two). */
static __device__ inline void falling_sort(struct falling_memory *m, uint32_t n)
{
    uint32_t size = 2;
    while (size < n)
        size *= 2;
    for (uint32_t i = n + threadIdx.x; i < size; i += SAMPLE_THREADS) {
        m->key[i] = 0;
        m->id[i] = ~0u;
    }
    __syncthreads();
    for (uint32_t run = 2; run <= size; run *= 2)
        for (uint32_t by = run / 2; by; by /= 2) {
            for (uint32_t t = threadIdx.x; t < size / 2; t += SAMPLE_THREADS) {
                uint32_t i = 2 * t - (t & (by - 1)), j = i + by;
                bool up = i & run;
                if (falling_before(m, j, i) != up) {
                    uint64_t key = m->key[i];
                    uint32_t id = m->id[i];
                    m->key[i] = m->key[j];
                    m->id[i] = m->id[j];
                    m->key[j] = key;
                    m->id[j] = id;
                }
            }
            __syncthreads();
        }
}

/* Between `least` and f->most there are more than a slice holds: a higher bound, above which there are some
 * and not too many.  Or, where too many are equal, f->equal. */
static __device__ inline uint64_t falling_narrow(struct falling *f, uint64_t least)
{
    struct falling_memory *m = f->m;
    uint64_t most = f->most;
    for (;;) {
        int shift = 0;
        while ((most - least) >> shift >= FALLING_BINS)
            shift++;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < FALLING_BINS; i += SAMPLE_THREADS)
            m->bin[i] = 0;
        __syncthreads();
        falling_each(f, least, most, [=](uint64_t key, uint32_t) {
            atomicAdd(&m->bin[(uint32_t)((most - key) >> shift)], 1u);
        });
        __syncthreads();
        if (threadIdx.x == 0) {
            uint32_t i = 0, n = 0;
            while (n + m->bin[i] <= FALLING_SLICE) /* ends: they are too many */
                n += m->bin[i++];
            m->picked = i; /* the bin that is too much */
            m->picked_n = n;
        }
        __syncthreads();
        uint64_t above = most - ((uint64_t)m->picked << shift); /* the largest in that bin */
        if (m->picked_n)
            return above + 1;
        f->most = most = above;
        if (shift == 0) {
            f->equal = true;
            f->from = 0;
            return above;
        }
        uint64_t end = above - ((1ull << shift) - 1);
        least = end > least ? end : least;
    }
}

/* The next slice: `want` at least if there are so many, but fewer where they crowd. */
static __device__ inline void falling_next(struct falling *f, uint32_t want)
{
    uint32_t n = 0;
    __syncthreads(); /* whoever still reads the last slice */
    f->base += f->n;
    while (n == 0 && f->most >= falling_least()) {
        if (f->equal) {
            n = falling_gather(f, f->most, f->most, f->from, f->from + FALLING_SLICE);
            f->from += FALLING_SLICE;
            f->equal = f->from < f->n_vocab;
            f->most -= !f->equal;
            continue;
        }
        uint64_t least = falling_least(), guess = 0;
        if (f->depth < 1e6)
            guess = sample_key_of(f->top - f->depth * f->nat);
        if (guess > least)
            least = guess < f->most ? guess : f->most;
        bool bottom = least == falling_least();
        n = falling_gather(f, least, f->most, 0, ~0u);
        if (n > FALLING_SLICE) {
            least = falling_narrow(f, least);
            n = f->equal ? 0 : falling_gather(f, least, f->most, 0, ~0u);
            if (f->equal)
                continue;
        } else if (n < want && !bottom) {
            n = 0;
            f->depth *= 2;
            continue;
        }
        f->most = least - 1;
    }
    f->n = n;
    falling_sort(f->m, n);
}

/* From the largest on. */
static __device__ inline void falling_begin(struct falling *f, double top, double nat, double depth)
{
    f->base = f->n = f->from = 0;
    f->equal = false;
    f->top = top;
    f->nat = nat;
    f->depth = depth;
    f->most = sample_key_of(top);
}

#endif
