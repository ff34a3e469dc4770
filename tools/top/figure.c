/* SPDX-License-Identifier: Apache-2.0 */
#include "top/figure.h"

#include "shm/control.h"

#include <stdlib.h>
#include <string.h>

/* A process that serves beats many times a second. */
#define SILENT_NS 5000000000ull

const char *const tr_top_latency_names[TR_TOP_LATENCIES] = {[TR_TOP_FIRST_TOKEN] = "first_token",
                                                            [TR_TOP_FIRST_BYTE] = "first_byte",
                                                            [TR_TOP_TOKEN_GAP] = "token_gap",
                                                            [TR_TOP_DELIVERED_GAP] =
                                                                "delivered_gap"};

static const enum tr_hist_id latency_hist[TR_TOP_LATENCIES] = {
    [TR_TOP_FIRST_TOKEN] = TR_HIST_TTFT,
    [TR_TOP_FIRST_BYTE] = TR_HIST_FIRST_BYTE,
    [TR_TOP_TOKEN_GAP] = TR_HIST_ITL,
    [TR_TOP_DELIVERED_GAP] = TR_HIST_DELIVERED_GAP};

/* ---- names ---- */

const char *tr_top_role(uint32_t index)
{
    static const char *const names[] = {"engine", "ledger", "supervisor", "frontend"};
    return names[index < TR_STAT_AREA0 ? index : TR_STAT_AREA0];
}

const char *tr_top_state_name(uint32_t state)
{
    static const char *const names[] = {"free", "waiting", "prefill", "running", "parked"};
    const char *ended = tr_state_name(state);
    return ended ? ended : state <= TR_PARKED ? names[state] : "?";
}

const char *tr_top_health(const struct tr_top_snap *s, uint32_t index)
{
    static const char *const names[] = {"none", "starting", "serving", "retired", "dead"};
    const struct tr_top_process *p = &s->process[index];
    if (p->state == TR_PROCESS_SERVING && s->now_ns - p->heartbeat_ns > SILENT_NS)
        return "silent";
    return names[p->state];
}

const char *tr_top_phase(const struct tr_top_snap *s)
{
    if (s->drain != TR_DRAIN_NO)
        return "draining";
    return s->process[TR_STAT_ENGINE].state == TR_PROCESS_SERVING ? "serving" : "no engine";
}

const char *tr_top_label(enum tr_stat_id id, int *n)
{
    const char *p = strchr(tr_stat_rows[id].labels, '"');
    p = p ? p + 1 : "";
    *n = (int)strcspn(p, "\"");
    return p;
}

bool tr_top_shown(const struct tr_top_snap *s, uint32_t index)
{
    const struct tr_top_process *p = &s->process[index];
    if (p->state == TR_PROCESS_NONE || tr_top_lives(p) || index < TR_STAT_AREA0)
        return p->state != TR_PROCESS_NONE;
    for (uint32_t i = TR_STAT_AREA0; i < s->n_stats; i++)
        if (tr_top_lives(&s->process[i]) && s->process[i].number == p->number)
            return false;
    return true;
}

/* ---- figures ---- */

static double per_second(uint64_t then, uint64_t now, double interval_s)
{
    return now > then && interval_s > 0 ? (double)(now - then) / interval_s : 0;
}

static double seconds_between(uint64_t then_ns, uint64_t now_ns)
{
    return now_ns > then_ns ? (double)(now_ns - then_ns) * 1e-9 : 0;
}

double tr_top_rate(const struct tr_top_snap *then, const struct tr_top_snap *now, uint32_t index,
                   enum tr_stat_id id)
{
    return per_second(then->value[index][id], now->value[index][id],
                      seconds_between(then->now_ns, now->now_ns));
}

static uint64_t sum(const struct tr_top_snap *s, enum tr_stat_id id)
{
    bool gauge = tr_stat_rows[id].kind == TR_KIND_GAUGE;
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n_stats; i++)
        if (!gauge || i < TR_STAT_AREA0 || tr_top_lives(&s->process[i]))
            n += s->value[i][id];
    return n;
}

static void add_up(struct tr_top_figures *f, const struct tr_top_snap *then)
{
    for (unsigned k = 0; k < TR_STAT_N; k++) {
        enum tr_stat_id id = (enum tr_stat_id)k;
        f->total[k] = sum(f->snap, id);
        if (tr_stat_rows[k].kind == TR_KIND_COUNTER)
            f->rate[k] = per_second(sum(then, id), f->total[k], f->interval_s);
    }
}

static struct tr_top_spread spread(const struct tr_top_hist *h, enum tr_hist_id id)
{
    return (struct tr_top_spread){.n = tr_top_hist_count(h),
                                  .p50 = tr_top_quantile(h, id, 0.5),
                                  .p90 = tr_top_quantile(h, id, 0.9),
                                  .p99 = tr_top_quantile(h, id, 0.99)};
}

static void spread_all(struct tr_top_figures *f, const struct tr_top_snap *then)
{
    for (unsigned k = 0; k < TR_TOP_LATENCIES; k++) {
        const struct tr_top_hist *now = &f->snap->hist[latency_hist[k]];
        struct tr_top_hist d = tr_top_hist_since(now, &then->hist[latency_hist[k]]);
        f->last[k] = spread(&d, latency_hist[k]);
        f->all[k] = spread(now, latency_hist[k]);
    }
    struct tr_top_hist steps =
        tr_top_hist_since(&f->snap->hist[TR_HIST_STEP], &then->hist[TR_HIST_STEP]);
    f->step_s = per_second(0, tr_top_hist_count(&steps), f->interval_s);
    f->busy = per_second(then->step_ns, f->snap->step_ns, f->interval_s) * 1e-9;
    if (f->busy > 1)
        f->busy = 1; /* a step is counted when it ends, with all its time */
}

static struct tr_top_live live_of(const struct tr_top_figures *f, const struct tr_top_snap *then,
                                  uint32_t slot)
{
    const struct tr_top_slot *t = &f->snap->slot[slot], *before = &then->slot[slot];
    uint32_t from = before->gen == t->gen && before->state != TR_FREE ? before->published : 0;
    struct tr_top_live l = {.slot = slot,
                            .age_s = seconds_between(t->arrival_ns, f->snap->now_ns),
                            .tokens_s = per_second(from, t->published, f->interval_s)};
    if (!tr_state_terminal(t->state)) {
        l.fill = (double)(t->published - t->sent) / f->hello->config.window;
        l.lag = t->published - t->scanned;
    }
    return l;
}

/* ---- order ---- */

static int falling(double a, double b)
{
    return a < b ? 1 : a > b ? -1 : 0;
}

static int by_slot(const struct tr_top_live *a, const struct tr_top_live *b)
{
    return a->slot < b->slot ? -1 : a->slot > b->slot;
}

static int by_fill(const void *x, const void *y)
{
    const struct tr_top_live *a = x, *b = y;
    int d = falling(a->fill, b->fill);
    d = d ? d : falling(a->tokens_s, b->tokens_s);
    return d ? d : by_slot(a, b);
}

static int by_rate(const void *x, const void *y)
{
    const struct tr_top_live *a = x, *b = y;
    int d = falling(a->tokens_s, b->tokens_s);
    return d ? d : by_slot(a, b);
}

static int by_age(const void *x, const void *y)
{
    const struct tr_top_live *a = x, *b = y;
    int d = falling(a->age_s, b->age_s);
    return d ? d : by_slot(a, b);
}

void tr_top_figure(struct tr_top_figures *f, const struct tr_observe *hello,
                   const struct tr_top_snap *then, const struct tr_top_snap *now,
                   enum tr_top_sort sort)
{
    static int (*const orders[])(const void *, const void *) = {
        [TR_TOP_BY_FILL] = by_fill, [TR_TOP_BY_RATE] = by_rate, [TR_TOP_BY_AGE] = by_age};
    struct tr_top_live *live = f->live;
    *f = (struct tr_top_figures){.hello = hello,
                                 .snap = now,
                                 .live = live,
                                 .interval_s = seconds_between(then->now_ns, now->now_ns)};
    add_up(f, then);
    spread_all(f, then);
    for (uint32_t i = 0; i < now->n_slots; i++) {
        f->by_state[now->slot[i].state]++;
        if (now->slot[i].state != TR_FREE)
            live[f->n_live++] = live_of(f, then, i);
    }
    qsort(live, f->n_live, sizeof(*live), orders[sort]);
}
