/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* An id whose logit is not the raw one. */
struct touched {
    double v;
    uint32_t id;
    uint32_t n_out; /* times in the output */
    float raw;
    bool penalised;
};

struct tr_sampler {
    uint32_t rows, n_vocab, n_blocks, touched_cap;
    float *bmax, *tmp;       /* [rows, n_blocks] */
    double *sums;            /* [rows, tr_dist_sums] */
    struct tr_cand *cand;    /* [rows, n_vocab] */
    struct touched *touched; /* [rows, touched_cap] */
    uint32_t *index;         /* [rows, n_vocab]: 1 + place in touched; all 0 between calls */
};

/* One row at work. */
struct job {
    const struct tr_sample_in *in;
    float *logits;
    struct tr_dist d;
    float *bmax, *tmp;
    double *sums;
    struct tr_cand *cand;
    struct touched *touched;
    uint32_t *index;
    uint32_t n_vocab, n_touched;
    double top; /* largest adjusted logit */
    float ref;  /* the same in float: where all exponentials, float or double, start from */
    struct tr_curve curve;
};

struct tr_sampler *tr_sampler_new(uint32_t rows, uint32_t n_vocab, uint32_t n_ctx, uint64_t *bytes)
{
    struct tr_sampler *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    uint64_t cap = (uint64_t)n_ctx + TR_MAX_BIAS + TR_MAX_STOP_IDS + 64;
    *s = (struct tr_sampler){.rows = rows, .n_vocab = n_vocab, .n_blocks = tr_dist_blocks(n_vocab)};
    s->touched_cap = cap < n_vocab ? (uint32_t)cap : n_vocab;
    size_t nb = (size_t)rows * s->n_blocks, nv = (size_t)rows * n_vocab;
    size_t nt = (size_t)rows * s->touched_cap, ns = (size_t)rows * tr_dist_sums(n_vocab);
    s->bmax = calloc(nb, sizeof(float));
    s->tmp = calloc(nb, sizeof(float));
    s->sums = calloc(ns, sizeof(double));
    s->cand = calloc(nv, sizeof(struct tr_cand));
    s->touched = calloc(nt, sizeof(struct touched));
    s->index = calloc(nv, sizeof(uint32_t));
    if (!s->bmax || !s->tmp || !s->sums || !s->cand || !s->touched || !s->index) {
        tr_sampler_free(s);
        return NULL;
    }
    if (bytes)
        *bytes = nb * 2 * sizeof(float) + ns * sizeof(double) + nt * sizeof(struct touched) +
                 nv * (sizeof(struct tr_cand) + sizeof(uint32_t));
    return s;
}

void tr_sampler_free(struct tr_sampler *s)
{
    if (!s)
        return;
    free(s->bmax);
    free(s->tmp);
    free(s->sums);
    free(s->cand);
    free(s->touched);
    free(s->index);
    free(s);
}

static struct job job_of(struct tr_sampler *s, uint32_t row, float *logits,
                         const struct tr_sample_in *in)
{
    size_t nb = (size_t)row * s->n_blocks, nv = (size_t)row * s->n_vocab;
    return (struct job){.in = in,
                        .logits = logits,
                        .bmax = s->bmax + nb,
                        .tmp = s->tmp + nb,
                        .sums = s->sums + (size_t)row * tr_dist_sums(s->n_vocab),
                        .cand = s->cand + nv,
                        .touched = s->touched + (size_t)row * s->touched_cap,
                        .index = s->index + nv,
                        .n_vocab = s->n_vocab};
}

/* ---- log-probabilities ---- */

double tr_sample_lse(float max, double sum)
{
    return (double)max + log(sum);
}

float tr_sample_logprob_at(float logit, double lse)
{
    double v = (double)logit - lse;
    return isfinite(v) && v > (double)TR_LOGPROB_MIN ? (float)v : TR_LOGPROB_MIN;
}

/* The alternatives, and the logarithm of the sum of all exponentials. */
static double fill_top(struct job *j, uint32_t n_top, struct tr_lp *lp)
{
    double lse = tr_sample_lse(j->d.max, tr_dist_sum(&j->d, j->d.max, 1.0F));
    lp->n_top = 0;
    if (n_top > TR_MAX_TOP)
        n_top = TR_MAX_TOP;
    if (n_top == 0)
        return lse;
    uint32_t n = tr_dist_gather(&j->d, tr_dist_floor(&j->d, n_top, j->tmp), j->cand, 0);
    tr_cand_sort(j->cand, n);
    lp->n_top = n < n_top ? n : n_top;
    for (uint32_t i = 0; i < lp->n_top; i++) {
        lp->top_id[i] = j->cand[i].id;
        lp->top_logprob[i] = tr_sample_logprob_at((float)j->cand[i].v, lse);
    }
    return lse;
}

void tr_sample_logprob(struct tr_sampler *s, uint32_t row, const float *logits, uint32_t id,
                       uint32_t n_top, struct tr_lp *lp)
{
    struct job j = job_of(s, row, NULL, NULL);
    memset(lp, 0, sizeof(*lp));
    tr_dist_scan(&j.d, logits, j.n_vocab, j.bmax, j.sums);
    lp->id = id;
    lp->logprob = tr_sample_logprob_at(logits[id], fill_top(&j, n_top, lp));
}

/* ---- bias, penalties, masks ---- */

/* The entry of `id`, made on first use. */
static struct touched *touch(struct job *j, uint32_t id)
{
    if (!j->index[id]) {
        j->touched[j->n_touched] =
            (struct touched){.v = (double)j->logits[id], .id = id, .raw = j->logits[id]};
        j->index[id] = ++j->n_touched;
    }
    return &j->touched[j->index[id] - 1];
}

static uint32_t id_at(const struct tr_sample_in *in, uint32_t i)
{
    uint32_t in_ring = in->prompt_len + in->n_out - in->n_drafts;
    return i < in_ring ? in->ids[i] : in->drafts[i - in_ring];
}

static void add_penalties(struct job *j)
{
    const struct tr_params *p = j->in->params;
    bool rep = p->repetition_penalty != 1.0;
    bool out = p->presence_penalty != 0.0 || p->frequency_penalty != 0.0;
    if (!rep && !out)
        return;
    uint32_t n = j->in->prompt_len + j->in->n_out;
    for (uint32_t i = rep ? 0 : j->in->prompt_len; i < n; i++) {
        struct touched *t = touch(j, id_at(j->in, i));
        t->penalised = true;
        t->n_out += i >= j->in->prompt_len;
    }
    for (uint32_t i = 0; i < j->n_touched; i++) {
        struct touched *t = &j->touched[i];
        if (!t->penalised)
            continue;
        if (rep)
            t->v = t->v > 0 ? t->v / p->repetition_penalty : t->v * p->repetition_penalty;
        t->v -= p->frequency_penalty * t->n_out;
        if (t->n_out)
            t->v -= p->presence_penalty;
    }
}

static void add_masks(struct job *j)
{
    const struct tr_params *p = j->in->params;
    bool early = j->in->n_out < p->min_tokens;
    if (early || (p->flags & TR_REQ_IGNORE_EOS))
        for (uint32_t i = 0; i < j->in->n_eog; i++)
            touch(j, j->in->eog[i])->v = -INFINITY;
    if (early && j->in->extra)
        for (uint32_t i = 0; i < j->in->extra->n_stop; i++)
            touch(j, j->in->extra->stop_ids[i])->v = -INFINITY;
}

static bool is_allowed(const uint32_t *mask, uint32_t id)
{
    return mask[id / 32] >> (id % 32) & 1;
}

/* Of 32 logits those stay whose bit is set.  Where few are: they are kept aside, which is quicker than to
 * look at each of the others. */
static void keep(float *x, uint32_t n, uint32_t bits)
{
    float kept[8];
    uint32_t few = (uint32_t)__builtin_popcount(bits), k = 0;
    if (few > 8) {
        for (uint32_t off = ~bits; off; off &= off - 1) {
            uint32_t i = (uint32_t)__builtin_ctz(off);
            if (i < n)
                x[i] = -INFINITY;
        }
        return;
    }
    for (uint32_t on = bits; on; on &= on - 1)
        kept[k++] = x[__builtin_ctz(on)];
    for (uint32_t i = 0; i < n; i++)
        x[i] = -INFINITY;
    k = 0;
    for (uint32_t on = bits; on; on &= on - 1)
        x[__builtin_ctz(on)] = kept[k++];
}

static void add_grammar(struct job *j)
{
    const uint32_t *mask = j->in->mask;
    for (uint32_t i = 0; i < j->n_touched; i++)
        if (!is_allowed(mask, j->touched[i].id))
            j->touched[i].v = -INFINITY;
    for (uint32_t at = 0; at < j->n_vocab; at += 32) {
        uint32_t n = j->n_vocab - at < 32 ? j->n_vocab - at : 32;
        uint32_t none = n < 32 ? UINT32_MAX << n : 0; /* beyond the vocabulary */
        if (mask[at / 32] != UINT32_MAX)
            keep(j->logits + at, n, mask[at / 32] & ~none);
    }
}

/* Steps 1 to 3.  Touched ids leave the row of logits (minus infinity there) and are carried beside
 * it in double; the block maxima are taken afterwards. */
static void adjust(struct job *j)
{
    if (j->in->extra)
        for (uint32_t i = 0; i < j->in->extra->n_bias; i++)
            touch(j, j->in->extra->bias[i].id)->v += (double)j->in->extra->bias[i].value;
    add_penalties(j);
    add_masks(j);
    if (j->in->mask)
        add_grammar(j);
    for (uint32_t i = 0; i < j->n_touched; i++) {
        struct touched *t = &j->touched[i];
        j->logits[t->id] = -INFINITY;
        j->index[t->id] = 0;
        if (isnan(t->v))
            t->v = -INFINITY;
    }
    tr_dist_scan(&j->d, j->logits, j->n_vocab, j->bmax, j->sums);
    j->top = (double)j->d.max;
    for (uint32_t i = 0; i < j->n_touched; i++)
        if (j->touched[i].v > j->top)
            j->top = j->touched[i].v;
    j->ref = (float)j->top;
    j->curve = (struct tr_curve){.ref = (double)j->ref, .scale = 1.0 / j->in->params->temperature};
}

/* ---- step 4 ---- */

static bool is_greedy(const struct job *j)
{
    return j->in->params->temperature < TR_GREEDY_BELOW;
}

static uint32_t largest(const struct job *j)
{
    uint32_t best = UINT32_MAX;
    if ((double)j->d.max == j->top && j->top > -INFINITY)
        best = tr_dist_argmax(&j->d);
    for (uint32_t i = 0; i < j->n_touched; i++)
        if (j->touched[i].v == j->top && j->touched[i].id < best)
            best = j->touched[i].id;
    return best == UINT32_MAX ? 0 : best;
}

/* ---- steps 5 to 7 ---- */

static bool has_cut(const struct job *j)
{
    const struct tr_params *p = j->in->params;
    return (p->top_k > 0 && (uint32_t)p->top_k < j->n_vocab) || p->top_p < 1.0 || p->min_p > 0.0;
}

/* Everything that reaches `floor`, touched or not. */
static uint32_t gather(struct job *j, double floor)
{
    uint32_t n = tr_dist_gather(&j->d, floor, j->cand, 0);
    for (uint32_t i = 0; i < j->n_touched; i++)
        if (j->touched[i].v >= floor && j->touched[i].v > -INFINITY)
            j->cand[n++] = (struct tr_cand){.v = j->touched[i].v, .id = j->touched[i].id};
    return n;
}

/* Weight of the whole vocabulary: the raw ids, then the touched ones in the order of touching. */
static double whole(struct job *j)
{
    struct tr_run run = {.before = tr_dist_sum(&j->d, j->ref, (float)j->curve.scale)};
    for (uint32_t i = 0; i < j->n_touched; i++)
        tr_run_add(&run, tr_curve_at(&j->curve, j->touched[i].v));
    return tr_run_sum(&run);
}

/* Below any logit that min_p can keep; the slack is more than all that is rounded on the way. */
static double last_of(const struct job *j)
{
    const struct tr_params *p = j->in->params;
    if (p->min_p <= 0)
        return -INFINITY;
    double depth = (-log(p->min_p) * (1 + 1e-9) + 1e-9) * p->temperature;
    return j->top - depth - fabs(j->top) * 1e-12;
}

/* The candidates with top_k off, sorted: as many as top_p and min_p can keep, or more.  The search
 * goes down in doubling distances from the top until it has enough; where it stops decides nothing. */
static uint32_t nucleus(struct job *j, double *total)
{
    const struct tr_params *p = j->in->params;
    struct tr_classes classes;
    double last = last_of(j), above = INFINITY, enough = INFINITY;
    uint32_t n = 0;
    tr_classes_init(&classes, j->curve, j->top);
    *total = 0;
    if (p->top_p < 1.0) {
        *total = whole(j);
        enough = p->top_p * *total;
    }
    for (double depth = 4;; depth *= 2) {
        double floor = j->top - depth * p->temperature;
        bool all = !(floor > last) || p->top_p >= 1.0 || depth > 64;
        if (all)
            floor = last;
        n = gather(j, floor);
        tr_classes_count(&classes, j->cand, n, above);
        if (all || classes.total > enough * (1 + 1e-9))
            break;
        above = floor;
    }
    return tr_cand_sort_top(j->cand, n, &classes, enough);
}

/* Those that top_k leaves, sorted; *total is their weight, where top_p asks for it. */
static uint32_t top_k(struct job *j, uint32_t k, double *total)
{
    uint32_t n = gather(j, tr_dist_floor(&j->d, k, j->tmp));
    struct tr_run run = {0};
    tr_cand_sort(j->cand, n);
    uint32_t kept = n < k ? n : k;
    while (kept && kept < n && j->cand[kept].v == j->cand[k - 1].v)
        kept++;
    for (uint32_t i = 0; i < kept && j->in->params->top_p < 1.0; i++)
        tr_run_add(&run, tr_curve_at(&j->curve, j->cand[i].v));
    *total = tr_run_sum(&run);
    return kept;
}

/* What is kept, in falling order; logits become weights, *sum is their sum.  Everything here is decided by
 * the candidates in falling order, one after the other: how many more were gathered does not matter. */
static uint32_t cut(struct job *j, double *sum)
{
    const struct tr_params *p = j->in->params;
    double total, most = 0;
    struct tr_run run = {0};
    bool k_on = p->top_k > 0 && (uint32_t)p->top_k < j->n_vocab;
    uint32_t n = k_on ? top_k(j, (uint32_t)p->top_k, &total) : nucleus(j, &total), kept = 0;
    for (; kept < n; kept++) {
        double w = tr_curve_at(&j->curve, j->cand[kept].v);
        if (!kept)
            most = w;
        if (w <= 0 || (kept && ((p->top_p < 1.0 && tr_run_sum(&run) >= p->top_p * total) ||
                                w < p->min_p * most)))
            break;
        tr_run_add(&run, w);
        j->cand[kept].v = w;
    }
    *sum = tr_run_sum(&run);
    return kept;
}

/* ---- step 8 ---- */

static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

double tr_sample_draw(uint64_t seed, uint32_t choice, uint32_t index)
{
    return (double)(mix(mix(mix(seed) ^ choice) ^ index) >> 11) * 0x1p-53;
}

static uint32_t draw_cut(struct job *j, double u)
{
    double sum;
    struct tr_run run = {0};
    uint32_t n = cut(j, &sum);
    for (uint32_t i = 0; i < n; i++) {
        tr_run_add(&run, j->cand[i].v);
        if (tr_run_sum(&run) > u * sum)
            return j->cand[i].id;
    }
    return n ? j->cand[n - 1].id : largest(j);
}

/* No cut: the raw ids in rising order, then the touched ones in the order of touching, which is a
 * function of the request and its tokens alone. */
static uint32_t draw_whole(struct job *j, double u)
{
    double target = u * whole(j);
    struct tr_run run = {0};
    for (uint32_t g = 0; g < tr_dist_groups(j->n_vocab); g++)
        run.before += j->d.bsum[j->d.n_blocks + g];
    if (target < run.before)
        return tr_dist_at(&j->d, j->ref, (float)j->curve.scale, target);
    uint32_t last = UINT32_MAX;
    for (uint32_t i = 0; i < j->n_touched; i++) {
        double w = tr_curve_at(&j->curve, j->touched[i].v);
        tr_run_add(&run, w);
        if (w <= 0)
            continue;
        last = j->touched[i].id;
        if (tr_run_sum(&run) > target)
            break;
    }
    return last != UINT32_MAX ? last : largest(j);
}

static float raw_logit(const struct job *j, uint32_t id)
{
    for (uint32_t i = 0; i < j->n_touched; i++)
        if (j->touched[i].id == id)
            return j->touched[i].raw;
    return j->logits[id];
}

uint32_t tr_sample(struct tr_sampler *s, uint32_t row, float *logits, const struct tr_sample_in *in,
                   struct tr_lp *lp)
{
    struct job j = job_of(s, row, logits, in);
    double lse = 0;
    if (lp) {
        memset(lp, 0, sizeof(*lp));
        tr_dist_scan(&j.d, logits, j.n_vocab, j.bmax, j.sums);
        lse = fill_top(&j, in->params->n_top, lp);
    }
    adjust(&j);
    uint32_t id;
    if (in->mask && !(j.top > -INFINITY)) {
        return TR_NO_TOKEN;
    } else if (is_greedy(&j)) {
        id = largest(&j);
    } else {
        double u = tr_sample_draw(in->params->seed, in->params->choice, in->n_out);
        id = has_cut(&j) ? draw_cut(&j, u) : draw_whole(&j, u);
    }
    if (lp) {
        lp->id = id;
        lp->logprob = tr_sample_logprob_at(raw_logit(&j, id), lse);
    }
    return id;
}

uint32_t tr_sample_probs(struct tr_sampler *s, uint32_t row, float *logits,
                         const struct tr_sample_in *in, struct tr_cand *out)
{
    struct job j = job_of(s, row, logits, in);
    adjust(&j);
    if (in->mask && !(j.top > -INFINITY))
        return 0;
    if (is_greedy(&j)) {
        out[0] = (struct tr_cand){.v = 1.0, .id = largest(&j)};
        return 1;
    }
    uint32_t n = 0;
    double sum;
    if (has_cut(&j)) {
        n = cut(&j, &sum);
        memcpy(out, j.cand, n * sizeof(*out));
    } else {
        sum = whole(&j);
        for (uint32_t b = 0; b < j.d.n_blocks; b++) {
            float w[TR_DIST_BLOCK];
            uint32_t m = tr_dist_weights(&j.d, b, j.ref, (float)j.curve.scale, w);
            for (uint32_t i = 0; i < m; i++)
                if (w[i] > 0)
                    out[n++] = (struct tr_cand){.v = (double)w[i], .id = b * TR_DIST_BLOCK + i};
        }
        for (uint32_t i = 0; i < j.n_touched; i++) {
            double w = tr_curve_at(&j.curve, j.touched[i].v);
            if (w > 0)
                out[n++] = (struct tr_cand){.v = w, .id = j.touched[i].id};
        }
    }
    for (uint32_t i = 0; i < n; i++)
        out[i].v /= sum;
    return n;
}
