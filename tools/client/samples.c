/* SPDX-License-Identifier: Apache-2.0 */
#include "client/samples.h"

#include <stdlib.h>
#include <string.h>

void tr_samples_add(struct tr_samples *s, double v)
{
    if (!s->n || v < s->min)
        s->min = v;
    if (!s->n || v > s->max)
        s->max = v;
    s->n++;
    s->sum += v;
    if (v == 0)
        s->zeros++;
    if (s->len == s->cap && s->cap < TR_SAMPLES_MAX) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        double *p = realloc(s->v, cap * sizeof(*p));
        if (!p)
            return;
        s->v = p;
        s->cap = cap;
    }
    if (s->len < s->cap)
        s->v[s->len++] = v;
}

void tr_samples_fini(struct tr_samples *s)
{
    free(s->v);
    memset(s, 0, sizeof(*s));
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double at_rank(const struct tr_samples *s, double p)
{
    double rank = p * (double)(s->len - 1);
    size_t i = (size_t)rank;
    if (i + 1 >= s->len)
        return s->v[s->len - 1];
    return s->v[i] + (rank - (double)i) * (s->v[i + 1] - s->v[i]);
}

struct tr_summary tr_samples_summary(struct tr_samples *s)
{
    struct tr_summary r = {.n = s->n, .left_out = s->n - s->len};
    if (!s->n)
        return r;
    r.min = s->min;
    r.max = s->max;
    r.mean = s->sum / (double)s->n;
    if (!s->len)
        return r;
    qsort(s->v, s->len, sizeof(*s->v), ascending);
    r.p50 = at_rank(s, 0.50);
    r.p90 = at_rank(s, 0.90);
    r.p99 = at_rank(s, 0.99);
    return r;
}
