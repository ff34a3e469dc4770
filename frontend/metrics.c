/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/metrics.c - GET /metrics: the sums of all statistics regions.
 *
 * Format: Prometheus text exposition 0.0.4.  Counters and histograms are added over all regions,
 * also those of processes that have died, so they only grow; gauges only over the living: without an
 * engine nothing runs, waits or holds blocks.  How far the ledger is behind is then not known. */
#include "frontend/api.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void put(struct tr_emit *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(struct tr_emit *e, const char *fmt, ...)
{
    char buf[512];
    va_list ap;

    va_start(ap, fmt);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it loses va_start when it inlines this */
    int n = vsnprintf(buf, sizeof(buf), fmt, ap);
    va_end(ap);
    tr_emit_bytes(e, buf, (size_t)n < sizeof(buf) ? (size_t)n : sizeof(buf) - 1);
}

static bool alive(const struct tr_fe *fe, uint32_t region)
{
    const struct tr_control *c = fe->shm->control;

    if (region == TR_STAT_ENGINE) /* one that still loads has not said anything either */
        return atomic_load_explicit(&c->engine_alive, memory_order_relaxed) &&
               atomic_load_explicit(&fe->shm->rings->ready, memory_order_relaxed) ==
                   atomic_load_explicit(&c->engine_epoch, memory_order_relaxed);
    if (region < TR_STAT_AREA0)
        return true;
    return atomic_load_explicit(&c->area_alive[region - TR_STAT_AREA0], memory_order_relaxed);
}

static uint64_t sum(const struct tr_fe *fe, unsigned id)
{
    bool gauge = tr_stat_rows[id].kind == TR_KIND_GAUGE;
    uint64_t total = 0;

    for (uint32_t r = 0; r < TR_STAT_AREA0 + fe->shm->config.n_areas; r++) {
        const struct tr_stat *s = fe->shm->stat[r];
        if (s && (!gauge || alive(fe, r)))
            total += atomic_load_explicit(&s->value[id], memory_order_relaxed);
    }
    return total;
}

static void put_row(struct tr_emit *e, const struct tr_fe *fe, unsigned id, const char *metric)
{
    const struct tr_stat_row *row = &tr_stat_rows[id];
    const char *open = *row->labels ? "{" : "", *close = *row->labels ? "}" : "";

    if (id == TR_STAT_LEDGER_LAG_US && !alive(fe, TR_STAT_ENGINE))
        return;
    if (id == TR_STAT_LEDGER_LAG_US)
        put(e, "tokenring_%s %.6f\n", metric, (double)sum(fe, id) / 1e6);
    else
        put(e, "tokenring_%s%s%s%s %llu\n", metric, open, row->labels, close,
            (unsigned long long)sum(fe, id));
}

/* All rows of one metric stand together under one HELP and TYPE. */
static void put_metric(struct tr_emit *e, const struct tr_fe *fe, unsigned id)
{
    const struct tr_stat_row *row = &tr_stat_rows[id];
    const char *metric = id == TR_STAT_LEDGER_LAG_US ? "ledger_lag_seconds" : row->metric;

    for (unsigned i = 0; i < id; i++)
        if (strcmp(tr_stat_rows[i].metric, row->metric) == 0)
            return;
    put(e, "# HELP tokenring_%s %s\n", metric, row->help);
    put(e, "# TYPE tokenring_%s %s\n", metric, row->kind == TR_KIND_COUNTER ? "counter" : "gauge");
    for (unsigned i = id; i < TR_STAT_N; i++)
        if (strcmp(tr_stat_rows[i].metric, row->metric) == 0)
            put_row(e, fe, i, metric);
}

static void put_hist(struct tr_emit *e, const struct tr_fe *fe, unsigned id)
{
    const struct tr_hist_row *row = &tr_hist_rows[id];
    uint64_t bucket[TR_HIST_BUCKETS + 1] = {0}, sum_ns = 0, run = 0;

    for (uint32_t r = 0; r < TR_STAT_AREA0 + fe->shm->config.n_areas; r++) {
        const struct tr_stat *s = fe->shm->stat[r];
        if (!s)
            continue;
        for (unsigned b = 0; b <= TR_HIST_BUCKETS; b++)
            bucket[b] += atomic_load_explicit(&s->hist[id].bucket[b], memory_order_relaxed);
        sum_ns += atomic_load_explicit(&s->hist[id].sum_ns, memory_order_relaxed);
    }
    put(e, "# HELP tokenring_%s %s\n", row->metric, row->help);
    put(e, "# TYPE tokenring_%s histogram\n", row->metric);
    for (unsigned b = 0; b < TR_HIST_BUCKETS; b++) {
        run += bucket[b];
        put(e, "tokenring_%s_bucket{le=\"%g\"} %llu\n", row->metric, tr_hist_bounds[b],
            (unsigned long long)run);
    }
    run += bucket[TR_HIST_BUCKETS];
    put(e, "tokenring_%s_bucket{le=\"+Inf\"} %llu\n", row->metric, (unsigned long long)run);
    put(e, "tokenring_%s_sum %.9f\n", row->metric, (double)sum_ns / 1e9);
    /* The count that fits the buckets, which were read one by one while others wrote. */
    put(e, "tokenring_%s_count %llu\n", row->metric, (unsigned long long)run);
}

/* A label value: what would end it is escaped. */
static void put_label(struct tr_emit *e, const char *name, const char *value, bool last)
{
    put(e, "%s=\"", name);
    for (const char *p = value ? value : ""; *p; p++) {
        if (*p == '\n')
            put(e, "\\n");
        else if (*p == '"' || *p == '\\')
            put(e, "\\%c", *p);
        else
            tr_emit_bytes(e, p, 1);
    }
    put(e, last ? "\"" : "\",");
}

void tr_api_metrics(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    struct tr_fe *fe = ctx;
    struct tr_emit *e = &fe->json;

    (void)rq;
    tr_emit_reset(e);
    put(e, "# HELP tokenring_info What is served here.\n# TYPE tokenring_info gauge\n");
    put(e, "tokenring_info{");
    put_label(e, "version", fe->cfg->version, false);
    put_label(e, "backend", fe->cfg->backend, false);
    put_label(e, "model", fe->cfg->served_name, true);
    put(e, "} 1\n");
    for (unsigned i = 0; i < TR_STAT_N; i++)
        put_metric(e, fe, i);
    for (unsigned i = 0; i < TR_HIST_N; i++)
        put_hist(e, fe, i);
    if (e->failed)
        tr_exchange_error(x, TR_ERR_INTERNAL, NULL, NULL);
    else
        tr_exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", e->buf, e->len);
}
