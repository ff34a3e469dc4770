/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/metrics.c - GET /metrics: the sums of all statistics regions.
 *
 * In OpenMetrics 1.0 for who would rather have that, else in the text format 0.0.4.  `_created` and
 * exemplars are left out.  No label tells of a request, a key or a client: the page is open. */
#include "frontend/accept.h"
#include "frontend/api.h"
#include "frontend/figures.h"

#include <string.h>

enum {
    LABEL_BYTES = 300
}; /* of one: a name of the model has at most 127 bytes, escaped twice that */

static const char text_type[] = "text/plain; version=0.0.4; charset=utf-8";
static const char open_type[] = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/* A tie is OpenMetrics': who names it can read it. */
static bool wants_open(const struct tr_http_request *rq)
{
    static const struct tr_media open = {"application", "openmetrics-text", "1.0.0"};
    static const struct tr_media text = {"text", "plain", "0.0.4"};
    struct tr_slice accept = tr_http_field(rq->http, "accept");
    unsigned q = tr_accept_q(accept, &open, true);

    return q && q >= tr_accept_q(accept, &text, false);
}

static void put_info(const struct tr_expo *x, const struct tr_frontend_config *c)
{
    char labels[4 * LABEL_BYTES];
    size_t n = 0;
    const char *const rows[][2] = {{"version", c->version},
                                   {"backend", c->backend},
                                   {"model", c->served_name},
                                   {"deterministic", c->deterministic ? "1" : "0"}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (i)
            labels[n++] = ',';
        n += tr_expo_label(labels + n, LABEL_BYTES - 1, rows[i][0], rows[i][1] ? rows[i][1] : "");
    }
    tr_expo_family(x, "info", TR_EXPO_INFO,
                   "What is served here; deterministic: the same request gives the same tokens.");
    tr_expo_count(x, "info", labels, 1);
}

static void put_processes(const struct tr_expo *x, const struct tr_figures *f, bool ready)
{
    tr_expo_family(x, "ready", TR_EXPO_GAUGE, "1 while /readyz says that requests are taken.");
    tr_expo_count(x, "ready", "", ready);
    tr_expo_family(x, "processes", TR_EXPO_GAUGE,
                   "Processes that serve: an engine that has loaded, frontends.");
    tr_expo_count(x, "processes", "role=\"engine\"", f->engine);
    tr_expo_count(x, "processes", "role=\"frontend\"", f->frontends);
}

static void put_row(const struct tr_expo *x, const struct tr_figures *f, unsigned id,
                    const char *metric)
{
    if (id != TR_STAT_LEDGER_LAG_US)
        tr_expo_count(x, metric, tr_stat_rows[id].labels, f->value[id]);
    else if (f->engine) /* without one nobody knows */
        tr_expo_real(x, metric, "", (double)f->value[id] / 1e6);
}

/* All rows of one metric stand together. */
static void put_metric(const struct tr_expo *x, const struct tr_figures *f, unsigned id)
{
    const struct tr_stat_row *row = &tr_stat_rows[id];
    const char *metric = id == TR_STAT_LEDGER_LAG_US ? "ledger_lag_seconds" : row->metric;

    for (unsigned i = 0; i < id; i++)
        if (strcmp(tr_stat_rows[i].metric, row->metric) == 0)
            return;
    tr_expo_family(x, metric, row->kind == TR_KIND_COUNTER ? TR_EXPO_COUNTER : TR_EXPO_GAUGE,
                   row->help);
    for (unsigned i = id; i < TR_STAT_N; i++)
        if (strcmp(tr_stat_rows[i].metric, row->metric) == 0)
            put_row(x, f, i, metric);
}

void tr_api_metrics(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    struct tr_fe *fe = ctx;
    struct tr_emit *e = &fe->json;
    struct tr_expo expo = {e, wants_open(rq), "tokenring_", ""};
    struct tr_figures f;

    tr_figures_take(&f, fe);
    tr_emit_reset(e);
    put_info(&expo, fe->cfg);
    put_processes(&expo, &f, tr_fe_ready(fe) == TR_OK);
    for (unsigned i = 0; i < TR_STAT_N; i++)
        put_metric(&expo, &f, i);
    for (unsigned i = 0; i < TR_HIST_N; i++) {
        const struct tr_hist_row *row = &tr_hist_rows[i];
        tr_expo_family(&expo, row->metric, TR_EXPO_HISTOGRAM, row->help);
        tr_expo_hist(&expo, row->metric, row->scale, &f.hist[i]);
    }
    if (fe->cfg->compat_metrics)
        tr_metrics_compat(e, expo.open, &f, fe->cfg);
    tr_expo_end(&expo);
    if (e->failed) {
        tr_exchange_error(x, TR_ERR_INTERNAL, NULL, NULL);
        return;
    }
    tr_exchange_header(x, "Vary", "Accept");
    tr_exchange_reply(x, 200, expo.open ? open_type : text_type, e->buf, e->len);
}
