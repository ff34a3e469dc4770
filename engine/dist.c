/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/dist.h"

#include "base/exp.h"

#include <math.h>
#include <string.h>

/* Four lanes by the compilers' vector extension: the same bits on every machine, since nothing is
 * contracted and no lane sees another. */
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
enum { LANES = 4, VECS = TR_DIST_BLOCK / LANES };

static vf splat(float f)
{
    return (vf){f, f, f, f};
}

static vf choose(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

/* exp(t) for t <= 0; exactly 0 below -87, for minus infinity and for NaN. */
static vf exp_lanes(vf t)
{
    vi live = t >= splat(-87.0F);
    t = choose(live, t, splat(-87.0F));
    /* t = n ln2 + r, |r| <= ln2 / 2.  Adding 1.5 * 2^23 rounds to the nearest integer. */
    vf shifted = t * splat(1.44269504F) + splat(12582912.0F);
    vf n = shifted - splat(12582912.0F);
    /* ln2 in two parts, the first with few bits so that n * part is exact. */
    vf r = t - n * splat(0.693359375F) - n * splat(-2.12194440e-4F);
    /* Taylor series to r^7: the rest is below 6e-9. */
    vf p = splat(1.0F / 5040);
    p = p * r + splat(1.0F / 720);
    p = p * r + splat(1.0F / 120);
    p = p * r + splat(1.0F / 24);
    p = p * r + splat(1.0F / 6);
    p = p * r + splat(0.5F);
    p = p * r + splat(1.0F);
    p = p * r + splat(1.0F);
    /* The low bits of `shifted` are n as an integer; n >= -126 keeps the exponent in range. */
    vi e = (((vi)shifted - 0x4b400000) + 127) << 23;
    return choose(live, p * (vf)e, splat(0.0F));
}

/* The block, filled up with minus infinity where the vocabulary ends inside it. */
static const float *block_of(const struct tr_dist *d, uint32_t b, float pad[TR_DIST_BLOCK])
{
    uint32_t at = b * TR_DIST_BLOCK, left = d->n - at;
    if (left >= TR_DIST_BLOCK)
        return d->x + at;
    for (uint32_t i = 0; i < TR_DIST_BLOCK; i++)
        pad[i] = i < left ? d->x[at + i] : -INFINITY;
    return pad;
}

static vf load(const float *x, uint32_t i)
{
    vf v;
    memcpy(&v, x + (size_t)i * LANES, sizeof(v));
    return v;
}

void tr_dist_scan(struct tr_dist *d, const float *x, uint32_t n, float *bmax, double *bsum)
{
    *d =
        (struct tr_dist){.x = x, .n = n, .n_blocks = tr_dist_blocks(n), .bmax = bmax, .bsum = bsum};
    d->max = -INFINITY;
    for (uint32_t b = 0; b < d->n_blocks; b++) {
        float pad[TR_DIST_BLOCK];
        const float *p = block_of(d, b, pad);
        vf m = splat(-INFINITY);
        for (uint32_t i = 0; i < VECS; i++) {
            vf v = load(p, i);
            m = choose(v > m, v, m); /* false for NaN */
        }
        float top = m[0];
        for (uint32_t l = 1; l < LANES; l++)
            top = m[l] > top ? m[l] : top;
        bmax[b] = top;
        d->max = top > d->max ? top : d->max;
    }
}

uint32_t tr_dist_argmax(const struct tr_dist *d)
{
    for (uint32_t b = 0; b < d->n_blocks; b++) {
        if (d->bmax[b] < d->max || d->max == -INFINITY)
            continue;
        for (uint32_t i = b * TR_DIST_BLOCK; i < d->n; i++)
            if (d->x[i] == d->max)
                return i;
    }
    return 0;
}

uint32_t tr_dist_weights(const struct tr_dist *d, uint32_t block, float top, float scale,
                         float w[TR_DIST_BLOCK])
{
    float pad[TR_DIST_BLOCK];
    const float *p = block_of(d, block, pad);
    for (uint32_t i = 0; i < VECS; i++) {
        vf e = exp_lanes((load(p, i) - splat(top)) * splat(scale));
        memcpy(w + (size_t)i * LANES, &e, sizeof(e));
    }
    uint32_t left = d->n - block * TR_DIST_BLOCK;
    return left < TR_DIST_BLOCK ? left : TR_DIST_BLOCK;
}

double tr_dist_sum(struct tr_dist *d, float top, float scale)
{
    double total = 0, group = 0;
    double *gsum = d->bsum + d->n_blocks;
    for (uint32_t b = 0; b < d->n_blocks; b++) {
        float pad[TR_DIST_BLOCK];
        const float *p = block_of(d, b, pad);
        vf sum = splat(0.0F);
        for (uint32_t i = 0; i < VECS; i++)
            sum += exp_lanes((load(p, i) - splat(top)) * splat(scale));
        d->bsum[b] = (double)sum[0] + (double)sum[1] + (double)sum[2] + (double)sum[3];
        group += d->bsum[b];
        if (b % TR_DIST_GROUP == TR_DIST_GROUP - 1 || b == d->n_blocks - 1) {
            gsum[b / TR_DIST_GROUP] = group;
            total += group;
            group = 0;
        }
    }
    return total;
}

/* Of n sums from `first`: the one in which the running sum passes `target`, the last that is not zero if
 * none.  *run becomes the sum before it. */
static uint32_t sum_at(const double *sum, uint32_t first, uint32_t n, double target, double *run)
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

uint32_t tr_dist_at(const struct tr_dist *d, float top, float scale, double target)
{
    double run = 0;
    uint32_t n_groups = tr_dist_groups(d->n);
    uint32_t g = sum_at(d->bsum + d->n_blocks, 0, n_groups, target, &run);
    uint32_t first = g * TR_DIST_GROUP, left = d->n_blocks - first;
    uint32_t b = sum_at(d->bsum, first, left < TR_DIST_GROUP ? left : TR_DIST_GROUP, target, &run);
    /* The sums were taken in another order: walking the ids may miss the target by a rounding, then the last
     * id with weight in the block is meant. */
    float w[TR_DIST_BLOCK];
    uint32_t n = tr_dist_weights(d, b, top, scale, w), at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (w[i] <= 0)
            continue;
        at = i;
        run += (double)w[i];
        if (run > target)
            break;
    }
    return b * TR_DIST_BLOCK + at;
}

/* Moves the k largest of a[0, n) to its front (quickselect, middle element as pivot). */
static void select_top(float *a, uint32_t n, uint32_t k)
{
    uint32_t lo = 0, hi = n;
    while (hi - lo > 1) {
        float pivot = a[lo + (hi - lo) / 2];
        uint32_t gt = lo, i = lo, lt = hi; /* [lo,gt) larger, [gt,i) equal, [lt,hi) smaller */
        while (i < lt) {
            float v = a[i];
            if (v > pivot) {
                a[i++] = a[gt];
                a[gt++] = v;
            } else if (v < pivot) {
                a[i] = a[--lt];
                a[lt] = v;
            } else {
                i++;
            }
        }
        if (k <= gt)
            hi = gt;
        else if (k > lt)
            lo = lt;
        else
            return;
    }
}

double tr_dist_floor(const struct tr_dist *d, uint32_t k, float *scratch)
{
    if (k == 0 || k > d->n_blocks)
        return -INFINITY;
    /* k blocks have a maximum of at least this, so k logits have. */
    memcpy(scratch, d->bmax, d->n_blocks * sizeof(float));
    select_top(scratch, d->n_blocks, k);
    float least = scratch[0];
    for (uint32_t i = 1; i < k; i++)
        least = scratch[i] < least ? scratch[i] : least;
    return (double)least;
}

uint32_t tr_dist_gather(const struct tr_dist *d, double floor, struct tr_cand *out, uint32_t from)
{
    float least = (float)floor; /* that reaches the floor */
    if ((double)least < floor || least == -INFINITY)
        least = nextafterf(least, INFINITY);
    for (uint32_t b = 0; b < d->n_blocks; b++) {
        float pad[TR_DIST_BLOCK];
        if (d->bmax[b] < least)
            continue;
        const float *p = block_of(d, b, pad);
        for (uint32_t i = 0; i < VECS; i++) {
            vf v = load(p, i);
            vi hit = v >= splat(least);
            if (!(hit[0] | hit[1] | hit[2] | hit[3]))
                continue;
            /* Without branches that nobody could foresee; there is room, for fewer were kept than seen. */
            uint32_t first = b * TR_DIST_BLOCK + i * LANES, left = d->n - first;
            for (uint32_t l = 0; l < LANES && l < left; l++) {
                out[from] = (struct tr_cand){.v = (double)v[l], .id = first + l};
                from -= (uint32_t)hit[l];
            }
        }
    }
    return from;
}

static int before(const struct tr_cand *a, const struct tr_cand *b)
{
    return a->v > b->v || (a->v == b->v && a->id < b->id);
}

static void swap(struct tr_cand *a, struct tr_cand *b)
{
    struct tr_cand x = *a;
    *a = *b;
    *b = x;
}

static void sift_down(struct tr_cand *c, uint32_t at, uint32_t n)
{
    struct tr_cand x = c[at];
    for (uint32_t kid; (kid = 2 * at + 1) < n; at = kid) {
        if (kid + 1 < n && before(&c[kid], &c[kid + 1]))
            kid++;
        if (before(&c[kid], &x))
            break;
        c[at] = c[kid];
    }
    c[at] = x;
}

static void heap_sort(struct tr_cand *c, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(c, i, n);
    for (uint32_t end = n; end-- > 1;) {
        swap(&c[0], &c[end]);
        sift_down(c, 0, end);
    }
}

static void insertion_sort(struct tr_cand *c, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        struct tr_cand x = c[i];
        uint32_t at = i;
        for (; at > 0 && before(&x, &c[at - 1]); at--)
            c[at] = c[at - 1];
        c[at] = x;
    }
}

/* Splits around the median of three; no two entries are equal, for their ids differ. */
static uint32_t split(struct tr_cand *c, uint32_t n)
{
    uint32_t mid = n / 2;
    if (before(&c[mid], &c[0]))
        swap(&c[mid], &c[0]);
    if (before(&c[n - 1], &c[mid]))
        swap(&c[n - 1], &c[mid]);
    if (before(&c[mid], &c[0]))
        swap(&c[mid], &c[0]);
    struct tr_cand pivot = c[mid];
    uint32_t i = 0, j = n - 1;
    for (;;) {
        while (before(&c[i], &pivot))
            i++;
        while (before(&pivot, &c[j]))
            j--;
        if (i >= j)
            return i;
        swap(&c[i++], &c[j--]);
    }
}

enum { SMALL = 16 };

/* Quicksort that turns to heapsort when it has split too often: no logits make it quadratic. */
static void sort(struct tr_cand *c, uint32_t n, uint32_t splits)
{
    while (n > SMALL) {
        if (splits-- == 0) {
            heap_sort(c, n);
            return;
        }
        uint32_t at = split(c, n);
        sort(c + at, n - at, splits);
        n = at;
    }
    insertion_sort(c, n);
}

void tr_cand_sort(struct tr_cand *c, uint32_t n)
{
    uint32_t splits = 2;
    for (uint32_t m = n; m > 1; m /= 2)
        splits += 2;
    sort(c, n, splits);
}

double tr_curve_at(const struct tr_curve *c, double v)
{
    return tr_exp((v - c->ref) * c->scale);
}

void tr_classes_init(struct tr_classes *k, struct tr_curve curve, double top)
{
    k->curve = curve;
    k->top = top;
    k->total = 0;
    memset(k->sum, 0, sizeof(k->sum));
    memset(k->n, 0, sizeof(k->n));
}

/* Rises as v falls: all of one class come before all of the next. */
static uint32_t class_of(const struct tr_classes *k, double v)
{
    double at = (k->top - v) * (k->curve.scale * (64 / 0.69314718055994531));
    return at < TR_DIST_CLASSES - 1 ? (uint32_t)at : TR_DIST_CLASSES - 1;
}

void tr_classes_count(struct tr_classes *k, const struct tr_cand *c, uint32_t n, double below)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!(c[i].v < below))
            continue;
        uint32_t at = class_of(k, c[i].v);
        double w = tr_curve_at(&k->curve, c[i].v);
        k->sum[at] += w;
        k->n[at]++;
        k->total += w;
    }
}

enum { FEW = 256 };

uint32_t tr_cand_sort_top(struct tr_cand *c, uint32_t n, const struct tr_classes *k, double enough)
{
    uint32_t end[TR_DIST_CLASSES],
        next[TR_DIST_CLASSES]; /* of a class: its end, where it is filled */
    uint32_t last = 0, at = 0;
    if (n < FEW) {
        tr_cand_sort(c, n);
        return n;
    }
    /* More than any order of adding can differ by: 2^-53 for each addition. */
    double limit = enough * (1 + 1e-9), run = 0;
    for (uint32_t i = 0; i < TR_DIST_CLASSES; i++) {
        next[i] = at;
        at += k->n[i];
        end[i] = at;
        run += k->sum[i];
        last = i;
        if (run > limit)
            break;
    }
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++)
        if (class_of(k, c[i].v) <= last)
            c[m++] = c[i];
    for (uint32_t i = 0, first = 0; i <= last; first = end[i++]) {
        while (next[i] < end[i]) {
            uint32_t home = class_of(k, c[next[i]].v);
            swap(&c[next[i]], &c[next[home]]);
            next[home]++;
        }
        tr_cand_sort(c + first, end[i] - first);
    }
    return m;
}
