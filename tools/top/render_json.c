/* SPDX-License-Identifier: Apache-2.0 */
#include "top/render.h"

#include "base/clock.h"

#include <math.h>
#include <string.h>

/* ---- JSON: names are ours, the strings of the service were made printable (attach.c), so there is
 * nothing to escape ---- */

struct out {
    FILE *to;
    bool first; /* in the innermost object or array */
};

static void comma(struct out *o)
{
    if (!o->first)
        fputc(',', o->to);
    o->first = false;
}

/* name NULL: an element of an array. */
static void begin(struct out *o, const char *name, char bracket)
{
    comma(o);
    if (name)
        fprintf(o->to, "\"%s\":", name);
    fputc(bracket, o->to);
    o->first = true;
}

static void end(struct out *o, char bracket)
{
    fputc(bracket, o->to);
    o->first = false;
}

static void number(struct out *o, const char *name, double v)
{
    comma(o);
    if (isfinite(v))
        fprintf(o->to, "\"%s\":%.6g", name, v);
    else
        fprintf(o->to, "\"%s\":null", name);
}

/* Readers of JSON have signed numbers; nothing honest is larger. */
static long long in_bounds(uint64_t v)
{
    return v < INT64_MAX ? (long long)v : INT64_MAX;
}

static void whole(struct out *o, const char *name, uint64_t v)
{
    comma(o);
    fprintf(o->to, "\"%s\":%lld", name, in_bounds(v));
}

static void text(struct out *o, const char *name, const char *v)
{
    comma(o);
    fprintf(o->to, "\"%s\":\"%s\"", name, v);
}

/* ---- parts ---- */

static double since_s(uint64_t then_ns, uint64_t now_ns)
{
    return now_ns > then_ns ? (double)(now_ns - then_ns) * 1e-9 : 0;
}

static void service(struct out *o, const struct tr_top_figures *f)
{
    const struct tr_observe *h = f->hello;
    comma(o);
    fprintf(o->to, "\"time\":%.3f", tr_wall_of_ns(f->snap->now_ns));
    number(o, "interval_s", f->interval_s);
    begin(o, "service", '{');
    text(o, "state", tr_top_phase(f->snap));
    text(o, "version", h->version);
    text(o, "model", h->model);
    text(o, "backend", h->backend);
    whole(o, "port", h->port);
    whole(o, "pid", h->pid);
    number(o, "up_s", since_s(h->started_ns, f->snap->now_ns));
    end(o, '}');
}

static void tokens(struct out *o, const struct tr_top_figures *f)
{
    begin(o, "tokens", '{');
    whole(o, "generated", f->total[TR_STAT_PUBLISHED]);
    number(o, "generated_per_s", f->rate[TR_STAT_PUBLISHED]);
    whole(o, "through_model", f->total[TR_STAT_ROWS]);
    number(o, "through_model_per_s", f->rate[TR_STAT_ROWS]);
    number(o, "steps_per_s", f->step_s);
    number(o, "engine_busy", f->busy);
    end(o, '}');
}

static void slots(struct out *o, const struct tr_top_figures *f)
{
    const uint32_t *n = f->by_state;
    begin(o, "slots", '{');
    whole(o, "total", f->snap->n_slots);
    whole(o, "free", f->total[TR_STAT_SLOTS_FREE]);
    whole(o, "open", f->total[TR_STAT_SLOTS_OPEN]);
    whole(o, "waiting", n[TR_WAITING]);
    whole(o, "prefill", n[TR_PREFILL]);
    whole(o, "running", n[TR_RUNNING]);
    whole(o, "parked", n[TR_PARKED]);
    whole(o, "ended", f->total[TR_STAT_SLOTS_ENDED]);
    end(o, '}');
}

/* The rows of one metric by the value of their label. */
static void labelled(struct out *o, const struct tr_top_figures *f, const char *name,
                     const char *metric)
{
    begin(o, name, '{');
    for (unsigned k = 0; k < TR_STAT_N; k++) {
        int n;
        const char *label = tr_top_label((enum tr_stat_id)k, &n);
        if (strcmp(tr_stat_rows[k].metric, metric) != 0)
            continue;
        comma(o);
        fprintf(o->to, "\"%.*s\":", n, label);
        if (tr_stat_rows[k].kind == TR_KIND_GAUGE)
            fprintf(o->to, "%lld", in_bounds(f->total[k]));
        else
            fprintf(o->to, "{\"total\":%lld,\"per_s\":%.6g}", in_bounds(f->total[k]), f->rate[k]);
    }
    end(o, '}');
}

static void spread(struct out *o, const char *name, const struct tr_top_spread *s)
{
    begin(o, name, '{');
    whole(o, "n", s->n);
    number(o, "p50_s", s->p50);
    number(o, "p90_s", s->p90);
    number(o, "p99_s", s->p99);
    end(o, '}');
}

static void latencies(struct out *o, const struct tr_top_figures *f)
{
    begin(o, "latency", '{');
    for (unsigned k = 0; k < TR_TOP_LATENCIES; k++) {
        begin(o, tr_top_latency_names[k], '{');
        spread(o, "last", &f->last[k]);
        spread(o, "all", &f->all[k]);
        end(o, '}');
    }
    end(o, '}');
}

static void process(struct out *o, const struct tr_top_figures *f, const struct tr_top_snap *then,
                    uint32_t i)
{
    const struct tr_top_snap *s = f->snap;
    const struct tr_top_process *p = &s->process[i];
    bool alive = tr_top_lives(p);
    begin(o, NULL, '{');
    text(o, "role", tr_top_role(i));
    if (i >= TR_STAT_AREA0)
        whole(o, "number", p->number);
    whole(o, "pid", p->pid);
    text(o, "state", tr_top_health(s, i));
    number(o, "up_s", alive ? since_s(p->started_ns, s->now_ns) : NAN);
    number(o, "beat_age_s", alive && p->heartbeat_ns ? since_s(p->heartbeat_ns, s->now_ns) : NAN);
    if (i >= TR_STAT_AREA0) {
        whole(o, "connections", alive ? s->value[i][TR_STAT_CONNECTIONS] : 0);
        whole(o, "streams", alive ? s->value[i][TR_STAT_STREAMS] : 0);
        number(o, "requests_per_s", tr_top_rate(then, s, i, TR_STAT_HTTP_REQUESTS));
    }
    end(o, '}');
}

static void processes(struct out *o, const struct tr_top_figures *f, const struct tr_top_snap *then)
{
    begin(o, "processes", '[');
    for (uint32_t i = 0; i < f->snap->n_stats; i++)
        if (tr_top_shown(f->snap, i))
            process(o, f, then, i);
    end(o, ']');
}

static void live(struct out *o, const struct tr_top_figures *f, unsigned n)
{
    whole(o, "live_slots", f->n_live);
    begin(o, "live", '[');
    for (uint32_t i = 0; i < f->n_live && i < n; i++) {
        const struct tr_top_live *l = &f->live[i];
        const struct tr_top_slot *s = &f->snap->slot[l->slot];
        begin(o, NULL, '{');
        whole(o, "slot", l->slot);
        text(o, "state", tr_top_state_name(s->state));
        number(o, "age_s", l->age_s);
        whole(o, "prompt_tokens", s->prompt_len);
        whole(o, "prefilled", s->prefilled);
        whole(o, "completion_tokens", s->published);
        whole(o, "max_tokens", s->max_tokens);
        number(o, "tokens_per_s", l->tokens_s);
        number(o, "window_fill", tr_state_terminal(s->state) ? NAN : l->fill);
        number(o, "scanned_lag", tr_state_terminal(s->state) ? NAN : (double)l->lag);
        number(o, "frontend",
               s->area == TR_TOP_NOBODY ? NAN
                                        : (double)f->snap->process[TR_STAT_AREA0 + s->area].number);
        whole(o, "preemptions", s->preemptions);
        end(o, '}');
    }
    end(o, ']');
}

void tr_top_render_json(FILE *to, const struct tr_top_figures *f, const struct tr_top_snap *then,
                        unsigned n_slots)
{
    struct out o = {.to = to, .first = true};
    begin(&o, NULL, '{');
    service(&o, f);
    tokens(&o, f);
    slots(&o, f);
    labelled(&o, f, "kv_blocks", "kv_blocks");
    labelled(&o, f, "buffered_bytes", "buffered_bytes");
    whole(&o, "connections", f->total[TR_STAT_CONNECTIONS]);
    whole(&o, "streams", f->total[TR_STAT_STREAMS]);
    whole(&o, "held", f->total[TR_STAT_STREAMS_HELD]);
    number(&o, "ledger_behind_s", (double)f->total[TR_STAT_LEDGER_LAG_US] * 1e-6);
    labelled(&o, f, "ended", "streams_ended_total");
    labelled(&o, f, "refused", "requests_refused_total");
    labelled(&o, f, "restarts", "process_restarts_total");
    latencies(&o, f);
    processes(&o, f, then);
    live(&o, f, n_slots);
    end(&o, '}');
    fputc('\n', to);
}
