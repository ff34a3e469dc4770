/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cost.h"

#include <math.h>
#include <string.h>

enum { FIRST_ROWS = 32, AHEAD = 4 };

/* Of the relative errors. */
#define ERROR_FIRST 0.5
#define ERROR_LEAST 0.02
#define ERROR_UP (1.0 / 4)
#define ERROR_DOWN (1.0 / 16)
#define LATE_FIRST 0.25
#define FAR 3.0

/* So much too slow, and so many steps one after the other: everything has become slower, not this step. */
#define SLOW 1.5
#define SLOW_STEPS 4

/* How the certainty about what was in a step fades, as a factor of the variances. */
#define FADE 1.02

/* A step that reads the weights from memory at 4 GB/s, and a row of a prompt that takes a 50th of that:
 * slow machines are better.  Without weights (sim): 1 ms each. */
#define STEP_NS_PER_BYTE 0.25
#define ROWS_PER_STEP 50
#define UNKNOWN_NS 1e6

/* ---- prices ---- */

void tr_cost_init(struct tr_cost *c, uint64_t weight_bytes)
{
    memset(c, 0, sizeof(*c));
    double step = weight_bytes ? STEP_NS_PER_BYTE * (double)weight_bytes : UNKNOWN_NS;
    double row = weight_bytes ? step / ROWS_PER_STEP : UNKNOWN_NS;
    c->guess[TR_COST_STEP] = step;
    c->guess[TR_COST_DECODE] = row;
    c->guess[TR_COST_PREFILL] = row;
    c->guess[TR_COST_LOGITS] = row / 4;
    /* A thousand positions cost a row as much as its products. */
    c->guess[TR_COST_DECODE_KV] = row / 1024;
    c->guess[TR_COST_PREFILL_KV] = row / 1024;
    for (int i = 0; i < TR_COST_PARTS; i++) {
        c->price[i] = c->guess[i];
        c->unsure[i] = c->guess[i] * c->guess[i];
    }
    c->error = ERROR_FIRST;
    c->late = LATE_FIRST;
}

static double predict(const struct tr_cost *c, const struct tr_cost_work *w)
{
    double ns = 0;
    for (int i = 0; i < TR_COST_PARTS; i++)
        ns += c->price[i] * (double)w->n[i];
    return ns;
}

uint64_t tr_cost_predict(const struct tr_cost *c, const struct tr_cost_work *w)
{
    double ns = predict(c, w);
    return ns < 1e18 ? (uint64_t)ns : (uint64_t)1e18;
}

/* ---- learning ---- */

/* Nothing is known yet, or not any more, and the prices are far too low. */
static void scale_all(struct tr_cost *c, double times)
{
    for (int i = 0; i < TR_COST_PARTS; i++) {
        c->price[i] *= times;
        c->guess[i] *= times;
        c->unsure[i] *= times * times;
    }
}

static void move_error(double *usual, double now, double error)
{
    double d = fmin(now, FAR * error) - *usual;
    *usual += d * (d > 0 ? ERROR_UP : ERROR_DOWN);
}

static double clip(double v, double most)
{
    return v > most ? most : v < -most ? -most : v;
}

/* The step of the filter: x is what was in the step, over its scale; `off` the relative error.  No
 * price grows less certain than a guess, or than the price itself if that is more. */
static void correct(struct tr_cost *c, const double *x, double off)
{
    double sum = c->error * c->error;
    for (int i = 0; i < TR_COST_PARTS; i++)
        sum += x[i] * x[i] * c->unsure[i];
    for (int i = 0; i < TR_COST_PARTS; i++) {
        double gain = c->unsure[i] * x[i] / sum;
        c->price[i] = fmax(0, c->price[i] + gain * off);
        double most = fmax(c->price[i], c->guess[i]);
        double v = c->unsure[i] * (1 - gain * x[i]);
        c->unsure[i] = x[i] > 0 ? fmin(v * FADE, most * most) : v;
    }
}

void tr_cost_learn(struct tr_cost *c, const struct tr_cost_work *w, uint64_t ns)
{
    double was = (double)(ns ? ns : 1);
    double expected = fmax(predict(c, w), 1);
    c->slow =
        was > SLOW * expected ? fmin(c->slow > 0 ? c->slow : was / expected, was / expected) : 0;
    c->n_slow = c->slow > 0 ? c->n_slow + 1 : 0;
    if (c->n_slow == (c->known ? SLOW_STEPS : 1)) {
        scale_all(c, c->slow);
        expected = fmax(predict(c, w), 1);
        c->n_slow = 0;
        c->slow = 0;
    }
    double scale = fmax(was, expected), off = (was - expected) / scale;
    double x[TR_COST_PARTS];
    for (int i = 0; i < TR_COST_PARTS; i++)
        x[i] = (double)w->n[i] / scale;
    correct(c, x, clip(off, FAR * c->error));
    double error = c->error;
    move_error(&c->error, fabs(off), error);
    c->error = fmax(c->error, ERROR_LEAST);
    c->known |= c->error < ERROR_FIRST;
    if (!w->n[TR_COST_PREFILL])
        return;
    move_error(&c->late, fmax(off, 0), error);
    if (w->n[TR_COST_PREFILL] > c->measured)
        c->measured = (uint32_t)w->n[TR_COST_PREFILL];
}

/* ---- what fits ---- */

void tr_cost_add_prefill(struct tr_cost_work *w, uint32_t pos, uint32_t n)
{
    w->n[TR_COST_PREFILL] += n;
    w->n[TR_COST_PREFILL_KV] += (uint64_t)n * pos + (uint64_t)n * (n + 1) / 2;
}

void tr_cost_add_decode(struct tr_cost_work *w, uint32_t pos)
{
    w->n[TR_COST_DECODE]++;
    w->n[TR_COST_DECODE_KV] += pos + 1;
    w->n[TR_COST_LOGITS]++;
}

static int fits(const struct tr_cost *c, const struct tr_cost_work *w, uint32_t pos, uint32_t n,
                double limit)
{
    struct tr_cost_work more = *w;
    tr_cost_add_prefill(&more, pos, n);
    return predict(c, &more) * (1 + 2 * c->late) <= limit;
}

uint32_t tr_cost_fit(const struct tr_cost *c, const struct tr_cost_work *w, uint32_t pos,
                     uint32_t n, uint64_t limit_ns)
{
    uint32_t good = 0, bad = n + 1;
    if (fits(c, w, pos, n, (double)limit_ns))
        return n;
    while (bad - good > 1) {
        uint32_t mid = good + (bad - good) / 2;
        if (fits(c, w, pos, mid, (double)limit_ns))
            good = mid;
        else
            bad = mid;
    }
    return good;
}

uint32_t tr_cost_trusted(const struct tr_cost *c)
{
    uint64_t n = (uint64_t)c->measured * AHEAD;
    return n > FIRST_ROWS ? (uint32_t)(n < UINT32_MAX ? n : UINT32_MAX) : FIRST_ROWS;
}
