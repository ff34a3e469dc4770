/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/choose.cu - the id of a pick (engine/sample.h, steps 4 to 8), when logits are changed, and
 * maxima and sums are there.
 *
 *   greedy    the first group whose maximum is the row's, and the touched: the lowest id
 *   no cut    by running sums: the group, in it the block, in it the id; then groups of touched ids
 *   cut       slices in falling order (falling.cuh) with their running sums, up to three times: the weight of
 *             what top_k leaves, where the cut is, where the draw falls.  One slice is nearly always all, and
 *             is looked at three times where it lies.
 *
 * Launch: a block of 512 threads has a pick.  Expected for 128k ids: greedy and no cut a few us, by latency;
 * cut some 10 us, half of it sorting.  One thread adds up where the order of sums is promised: groups are
 * of 64, so these chains have at most 64 links (a slice: 64 for each of its groups, side by side, then 33). */
#include "cuda_kernels/falling.cuh"

/* Shared memory of a block. */
struct choose_memory {
    struct falling_memory slice;
    double group[FALLING_SLICE / SAMPLE_BLOCK + 2]; /* running sum before each group of the slice */
    float weight[SAMPLE_BLOCK];
    double weight_most, sum;
    uint64_t key_k; /* of the last that top_k asks for */
    uint32_t stop, stop_k, id;
};

/* A pick at work; all threads of the block have the same in it. */
struct chooser {
    const struct sample_call *c;
    const struct tr_cuda_pick *p;
    uint32_t at;
    const float *x, *block_max;
    struct sample_touched touched;
    struct sample_top top;
    struct choose_memory *m;
};

static __device__ double weight(const struct chooser *k, double v)
{
    return tr_exp((v - (double)k->top.ref) * k->p->scale);
}

/* Before the block's threads look for the least of something by atomicMin: NONE so far. */
static __device__ void least_begin(uint32_t *least)
{
    __syncthreads();
    if (threadIdx.x == 0)
        *least = TR_CUDA_PICK_NONE;
    __syncthreads();
}

/* ---- step 4 ---- */

/* The first group that has the largest logit; all lanes of a warp call it. */
static __device__ uint32_t largest_group(const struct chooser *k)
{
    const float *max = k->c->group_max + (size_t)k->at * k->c->n_groups;
    uint32_t n = k->c->n_groups, hits = 0, from = 0;
    for (; from < n && !hits; from += 32) {
        uint32_t g = from + threadIdx.x % 32;
        hits = __ballot_sync(~0u, g < n && max[g] == k->top.max);
    }
    return from - 32 + (uint32_t)__popc(~hits & (hits - 1));
}

static __device__ uint32_t largest(const struct chooser *k)
{
    uint32_t *best = &k->m->id;
    least_begin(best);
    if ((double)k->top.max == k->top.all && k->top.all > -INFINITY) {
        uint32_t from = largest_group(k) * SAMPLE_GROUP;
        for (uint32_t i = threadIdx.x; i < SAMPLE_GROUP; i += SAMPLE_THREADS)
            if (from + i < k->c->n_vocab && k->x[from + i] == k->top.max)
                atomicMin(best, from + i);
    }
    for (uint32_t s = threadIdx.x; s < k->touched.n; s += SAMPLE_THREADS)
        if (k->touched.v[s] == k->top.all)
            atomicMin(best, k->touched.id[s]);
    __syncthreads();
    return *best == TR_CUDA_PICK_NONE ? 0 : *best;
}

/* ---- without a cut ---- */

static __device__ double sum_of_groups(const struct chooser *k)
{
    const double *sum = k->c->group_sum + (size_t)k->at * k->c->n_groups;
    double all = 0;
    for (uint32_t g = 0; g < k->c->n_groups; g++)
        all += sum[g];
    return all;
}

/* The weights of the touched by groups, and of everything.  All threads have the answer. */
static __device__ double whole(const struct chooser *k)
{
    uint32_t n_groups = (k->touched.n + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
    for (uint32_t g = threadIdx.x; g < n_groups; g += SAMPLE_THREADS) {
        double sum = 0;
        for (uint32_t s = g * SAMPLE_BLOCK; s < (g + 1) * SAMPLE_BLOCK && s < k->touched.n; s++)
            sum += weight(k, k->touched.v[s]);
        k->touched.sum[g] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = sum_of_groups(k);
        for (uint32_t g = 0; g < n_groups; g++)
            sum += k->touched.sum[g];
        k->m->sum = sum;
    }
    __syncthreads();
    return k->m->sum;
}

/* engine/dist.c, sum_at. */
static __device__ uint32_t sum_at(const double *sum, uint32_t first, uint32_t n, double target,
                                  double *run)
{
    uint32_t last = first;
    double at_last = *run;
    for (uint32_t i = first; i < first + n; i++) {
        if (sum[i] <= 0)
            continue;
        last = i;
        at_last = *run;
        if (*run + sum[i] > target)
            break;
        *run += sum[i];
    }
    *run = at_last;
    return last;
}

/* engine/dist.c, tr_dist_at, in the group: the block by one thread, weights by many, the id by one. */
static __device__ uint32_t raw_at(const struct chooser *k, double target)
{
    const struct sample_call *c = k->c;
    struct choose_memory *m = k->m;
    double run = 0;
    if (threadIdx.x == 0) {
        uint32_t g =
            sum_at(c->group_sum + (size_t)k->at * c->n_groups, 0, c->n_groups, target, &run);
        uint32_t first = g * SAMPLE_BLOCK, left = c->n_blocks - first;
        m->stop = sum_at(c->block_sum + (size_t)k->at * c->n_blocks, first,
                         left < SAMPLE_BLOCK ? left : (uint32_t)SAMPLE_BLOCK, target, &run);
    }
    __syncthreads();
    uint32_t id = m->stop * SAMPLE_BLOCK + threadIdx.x;
    if (threadIdx.x < SAMPLE_BLOCK)
        m->weight[threadIdx.x] =
            id < c->n_vocab ? sample_expf((k->x[id] - k->top.ref) * (float)k->p->scale) : 0.0f;
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t at = 0;
        for (uint32_t i = 0; i < SAMPLE_BLOCK; i++) {
            if (m->weight[i] <= 0)
                continue;
            at = i;
            run += (double)m->weight[i];
            if (run > target)
                break;
        }
        m->id = m->stop * SAMPLE_BLOCK + at;
    }
    __syncthreads();
    return m->id;
}

/* The touched id at which the running sum passes the target, else the last with any weight; NONE if none has. */
static __device__ uint32_t touched_at(const struct chooser *k, double target, double run)
{
    uint32_t n = k->touched.n, last = TR_CUDA_PICK_NONE;
    for (uint32_t g = 0; g * SAMPLE_BLOCK < n; run += k->touched.sum[g++]) {
        double sum = 0;
        if (!(run + k->touched.sum[g] > target) && (g + 1) * SAMPLE_BLOCK < n)
            continue; /* not here; nor is it the last group */
        for (uint32_t s = g * SAMPLE_BLOCK; s < (g + 1) * SAMPLE_BLOCK && s < n; s++) {
            double w = weight(k, k->touched.v[s]);
            sum += w;
            if (w <= 0)
                continue;
            last = k->touched.id[s];
            if (run + sum > target)
                return last;
        }
    }
    for (uint32_t s = n; last == TR_CUDA_PICK_NONE && s-- > 0;)
        if (weight(k, k->touched.v[s]) > 0)
            last = k->touched.id[s];
    return last;
}

static __device__ uint32_t draw_whole(const struct chooser *k)
{
    double target = k->p->draw * whole(k);
    double raw = sum_of_groups(k);
    if (target < raw)
        return raw_at(k, target);
    if (threadIdx.x == 0)
        k->m->id = touched_at(k, target, raw);
    __syncthreads();
    uint32_t id = k->m->id;
    return id != TR_CUDA_PICK_NONE ? id : largest(k);
}

/* ---- with a cut ---- */

/* Running sums behind the slice's entries, in the entries' place: those within their group, which the sum
 * before the group is to be added to. */
static __device__ double *running(const struct chooser *k)
{
    return (double *)(void *)k->m->slice.key;
}

/* The sum before entry i of the slice; i may be its end. */
static __device__ double sum_before(const struct chooser *k, const struct falling *f,
                                    double carried, uint32_t i)
{
    uint32_t place = f->base + i, g = place / SAMPLE_BLOCK - f->base / SAMPLE_BLOCK;
    if (place % SAMPLE_BLOCK == 0)
        return k->m->group[g];
    return k->m->group[g] + (i ? running(k)[i - 1] : carried);
}

/* A slice's weights and their running sums, which go on from `before`, the sum before the group that the slice
 * begins in, and `carried`, the sum in it.  Sets stop_k, the first entry that top_k does not leave, and stop,
 * the first that weighs too little. */
static __device__ void weigh(const struct chooser *k, const struct falling *f, double before,
                             double carried)
{
    struct choose_memory *m = k->m;
    const struct tr_cuda_pick *p = k->p;
    uint32_t n = f->n, top_k = p->top_k;
    if (threadIdx.x == 0) {
        m->stop = m->stop_k = TR_CUDA_PICK_NONE;
        if (f->base == 0 && n)
            m->weight_most = weight(k, sample_value_of(m->slice.key[0]));
        if (top_k > f->base && top_k <= f->base + n)
            m->key_k = m->slice.key[top_k - 1 - f->base];
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += SAMPLE_THREADS) {
        uint64_t key = m->slice.key[i];
        double w = weight(k, sample_value_of(key));
        if (top_k && f->base + i >= top_k && key != m->key_k)
            atomicMin(&m->stop_k, i);
        if (w <= 0 || (f->base + i && w < p->min_p * m->weight_most))
            atomicMin(&m->stop, i);
        running(k)[i] = w;
    }
    __syncthreads();
    uint32_t first = f->base / SAMPLE_BLOCK;
    uint32_t n_groups = n ? (f->base + n - 1) / SAMPLE_BLOCK - first + 1 : 0;
    for (uint32_t g = threadIdx.x; g < n_groups; g += SAMPLE_THREADS) {
        uint32_t from = (first + g) * SAMPLE_BLOCK, end = from + SAMPLE_BLOCK;
        uint32_t i = from > f->base ? from - f->base : 0;
        double sum = g == 0 ? carried : 0;
        for (; i < n && f->base + i < end; i++)
            running(k)[i] = sum = sum + running(k)[i];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        m->group[0] = before;
        for (uint32_t g = 0; g < n_groups; g++) {
            uint32_t end = (first + g + 1) * SAMPLE_BLOCK - f->base;
            m->group[g + 1] = m->group[g] + running(k)[(end < n ? end : n) - 1];
        }
    }
    __syncthreads();
}

/* What a walk through the slices is for. */
enum walk { WALK_TOTAL, WALK_CUT, WALK_DRAW };

struct walk_end {
    uint32_t n;  /* entries before the end */
    double sum;  /* of their weights */
    uint32_t id; /* with DRAW: that the sum passes the target at, or the last */
};

/* The first entry of the slice that ends the walk; not one of the slice's: the walk goes on. */
static __device__ uint32_t stop_of(const struct chooser *k, const struct falling *f, enum walk why,
                                   double carried, double limit, uint32_t kept)
{
    struct choose_memory *m = k->m;
    uint32_t stop = why == WALK_TOTAL || m->stop_k < m->stop ? m->stop_k : m->stop;
    bool ends = why != WALK_CUT || k->p->top_p < 1.0;
    if (why == WALK_DRAW)
        stop = kept - f->base - 1; /* the last, if none before it */
    if (why == WALK_TOTAL || !ends)
        return stop;
    least_begin(&m->id);
    for (uint32_t i = threadIdx.x; i < f->n; i += SAMPLE_THREADS) {
        bool here = why == WALK_DRAW ? sum_before(k, f, carried, i + 1) > limit
                                     : f->base + i && sum_before(k, f, carried, i) >= limit;
        if (here)
            atomicMin(&m->id, i);
    }
    __syncthreads();
    return m->id < stop ? m->id : stop;
}

/* Goes through the slices until the end of what is asked for.  `limit`: of CUT, what the sum before an entry
 * must stay below with top_p; of DRAW, the target.  `kept` entries are drawn from. */
static __device__ struct walk_end walk(const struct chooser *k, struct falling *f, enum walk why,
                                       double limit, uint32_t kept)
{
    const struct tr_cuda_pick *p = k->p;
    double before = 0, carried = 0;
    uint32_t want = p->top_k ? p->top_k : 1;
    if (f->base != 0 || f->n == 0) {
        falling_begin(f, k->top.all, 1.0 / p->scale, p->depth);
        falling_next(f, want < FALLING_SLICE ? want : (uint32_t)FALLING_SLICE);
        weigh(k, f, before, carried);
    } /* else the first slice is still there, and is weighed */
    for (;;) {
        uint32_t stop = stop_of(k, f, why, carried, limit, kept);
        if (stop < f->n || f->n == 0) {
            uint32_t n = f->n ? stop : 0;
            struct walk_end e = {f->base + n, sum_before(k, f, carried, n), 0};
            if (why == WALK_DRAW)
                e.id = k->m->slice.id[n];
            return e;
        }
        double end = sum_before(k, f, carried, f->n);
        uint32_t open = (f->base + f->n) % SAMPLE_BLOCK; /* entries of a group that is not full */
        uint32_t g = (f->base + f->n) / SAMPLE_BLOCK - f->base / SAMPLE_BLOCK;
        double next = k->m->group[g];
        carried = open ? running(k)[f->n - 1] : 0;
        before = open ? next : end;
        falling_next(f, 1);
        weigh(k, f, before, carried);
    }
}

static __device__ uint32_t draw_cut(const struct chooser *k)
{
    const struct tr_cuda_pick *p = k->p;
    struct falling f = {};
    double total = 0;
    f.m = &k->m->slice;
    f.x = k->x;
    f.block_max = k->block_max;
    f.touched = k->touched;
    f.n_vocab = k->c->n_vocab;
    f.n_blocks = k->c->n_blocks;
    if (p->top_p < 1.0)
        total = p->top_k ? walk(k, &f, WALK_TOTAL, 0, 0).sum : whole(k);
    struct walk_end cut = walk(k, &f, WALK_CUT, p->top_p * total, 0);
    if (cut.n == 0)
        return largest(k);
    return walk(k, &f, WALK_DRAW, p->draw * cut.sum, cut.n).id;
}

/* ---- all of it ---- */

/* The logit that the model gave `id`. */
static __device__ float raw_of(const struct chooser *k, uint32_t id)
{
    uint32_t *seat = &k->m->stop;
    least_begin(seat);
    for (uint32_t s = threadIdx.x; s < k->touched.n; s += SAMPLE_THREADS)
        if (k->touched.id[s] == id)
            *seat = s;
    __syncthreads();
    return *seat != TR_CUDA_PICK_NONE ? k->touched.raw[*seat] : k->x[id];
}

static __global__ void __launch_bounds__(SAMPLE_THREADS, 1) choose(struct sample_call c)
{
    TR_SHARED(struct choose_memory, memory, 1);
    uint32_t at = blockIdx.x, id;
    const struct tr_cuda_pick *p = &c.picks[at];
    if (p->flags & TR_CUDA_PICK_ECHO)
        return;
    struct chooser k = {};
    k.c = &c;
    k.p = p;
    k.at = at;
    k.x = sample_row(&c, at);
    k.block_max = c.block_max + (size_t)at * c.n_blocks;
    k.touched = sample_touched_of(&c, at);
    k.top = sample_top_of(&c, at);
    k.m = memory;
    if (p->mask_at != TR_CUDA_PICK_NONE && !(k.top.all > -INFINITY))
        id = TR_CUDA_PICK_NONE;
    else if (p->flags & TR_CUDA_PICK_GREEDY)
        id = largest(&k);
    else
        id = p->flags & TR_CUDA_PICK_CUT ? draw_cut(&k) : draw_whole(&k);
    float raw = 0;
    if ((p->flags & TR_CUDA_PICK_LP) && id != TR_CUDA_PICK_NONE)
        raw = raw_of(&k, id);
    if (threadIdx.x == 0) {
        c.out[at].id = id;
        c.out[at].raw = raw;
    }
}

void sample_choose(struct tr_dev *dev, const struct sample_call *c, uint32_t n)
{
    TR_LAUNCH(choose, dim3(n), dim3(SAMPLE_THREADS), 0, dev->stream, *c);
}
