/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/report.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

/* jansson's *_new setters take NULL as a failure, so one flag at the end of each object is enough:
 * `bad` is raised by any part that could not be made. */
struct maker {
    int bad;
};

static json_t *object(struct maker *m)
{
    json_t *o = json_object();
    m->bad |= !o;
    return o;
}

static void put(struct maker *m, json_t *to, const char *key, json_t *v)
{
    m->bad |= json_object_set_new(to, key, v);
}

static void put_int(struct maker *m, json_t *to, const char *key, uint64_t v)
{
    put(m, to, key, json_integer((json_int_t)v));
}

static void put_text(struct maker *m, json_t *to, const char *key, const char *v)
{
    put(m, to, key, v && *v ? json_string(v) : json_null());
}

/* Microsecond steps: more digits would be noise. */
static json_t *ms(double v)
{
    return json_real((double)(long long)(v * 1e3 + 0.5) / 1e3);
}

static json_t *summary(struct maker *m, const struct tr_summary *s)
{
    if (!s->n)
        return json_null();
    json_t *o = object(m);
    put_int(m, o, "n", s->n);
    put_int(m, o, "left_out", s->left_out);
    put(m, o, "min", ms(s->min));
    put(m, o, "mean", ms(s->mean));
    put(m, o, "p50", ms(s->p50));
    put(m, o, "p90", ms(s->p90));
    put(m, o, "p99", ms(s->p99));
    put(m, o, "max", ms(s->max));
    return o;
}

static json_t *since_start(const struct tr_record *rec, uint64_t at_ns)
{
    return at_ns ? ms((double)(at_ns - rec->start_ns) / 1e6) : json_null();
}

static json_t *stream(struct maker *m, const struct tr_report *r, size_t i)
{
    const struct tr_record *rec = &r->load->records[i];
    json_t *o = object(m);
    put_int(m, o, "index", i);
    put_text(m, o, "outcome", tr_outcome_name(rec->outcome));
    put_text(m, o, "detail", rec->detail);
    put(m, o, "http_status", rec->http_status ? json_integer(rec->http_status) : json_null());
    put_text(m, o, "finish_reason", rec->finish);
    put(m, o, "prompt_tokens", rec->has_usage ? json_integer(rec->usage.prompt) : json_null());
    put(m, o, "completion_tokens",
        rec->has_usage ? json_integer(rec->usage.completion) : json_null());
    put_int(m, o, "events", rec->events);
    put_int(m, o, "content_events", rec->content_events);
    put(m, o, "connect_ms", since_start(rec, rec->connect_ns));
    put(m, o, "headers_ms", since_start(rec, rec->head_ns));
    put(m, o, "ttft_ms", since_start(rec, rec->first_ns));
    put(m, o, "e2e_ms", since_start(rec, rec->end_ns));
    put(m, o, "gap_max_ms",
        rec->content_events > 1 ? ms((double)rec->gap_max_ns / 1e6) : json_null());
    if (r->opts->show_text)
        put(m, o, "text", json_stringn(rec->text ? rec->text : "", rec->text_kept));
    return o;
}

static json_t *server(struct maker *m, const struct tr_report *r)
{
    if (r->server_note)
        return json_null();
    json_t *o = object(m);
    for (int i = 0; i < TR_SERVER_HISTS; i++) {
        const struct tr_hist *h = &r->server[i].diff;
        if (!r->server[i].metric)
            continue;
        json_t *one = object(m);
        put_text(m, one, "metric", r->server[i].metric);
        put(m, one, "n", json_integer((json_int_t)h->count));
        put(m, one, "mean", h->count > 0 ? ms(h->sum / h->count * 1e3) : json_null());
        put(m, one, "p50", ms(tr_hist_quantile(h, 0.5) * 1e3));
        put(m, one, "p90", ms(tr_hist_quantile(h, 0.9) * 1e3));
        put(m, one, "p99", ms(tr_hist_quantile(h, 0.99) * 1e3));
        put(m, o, tr_server_hist_name((enum tr_server_hist)i), one);
    }
    return o;
}

static json_t *outcomes(struct maker *m, const struct tr_report *r)
{
    json_t *o = object(m);
    for (int i = 0; i < TR_OUT_COUNT; i++)
        put_int(m, o, tr_outcome_name((enum tr_outcome)i), r->outcomes[i]);
    return o;
}

static json_t *finish_reasons(struct maker *m, const struct tr_report *r)
{
    json_t *o = object(m);
    for (size_t i = 0; i < r->n_finish; i++)
        put_int(m, o, r->finish[i].name, r->finish[i].n);
    return o;
}

static json_t *usage(struct maker *m, const struct tr_report *r)
{
    if (!r->usage_streams)
        return json_null();
    json_t *o = object(m);
    put_int(m, o, "streams", r->usage_streams);
    put_int(m, o, "prompt_tokens", (uint64_t)r->usage.prompt);
    put_int(m, o, "cached_tokens", (uint64_t)r->usage.cached);
    put_int(m, o, "completion_tokens", (uint64_t)r->usage.completion);
    return o;
}

static json_t *events(struct maker *m, const struct tr_report *r)
{
    json_t *o = object(m);
    put_int(m, o, "all", r->sums.events);
    put_int(m, o, "content", r->sums.content_events);
    put_int(m, o, "comments", r->sums.comments);
    put_int(m, o, "foreign", r->sums.foreign);
    put_int(m, o, "empty", r->sums.empty);
    put_int(m, o, "undecodable", r->sums.undecodable);
    put_int(m, o, "after_done", r->sums.after_done);
    return o;
}

static json_t *times(struct maker *m, const struct tr_report *r)
{
    json_t *o = object(m);
    put(m, o, "connect", summary(m, &r->connect));
    put(m, o, "headers", summary(m, &r->headers));
    put(m, o, "ttft", summary(m, &r->ttft));
    put(m, o, "gap", summary(m, &r->gap));
    put(m, o, "e2e", summary(m, &r->e2e));
    return o;
}

static json_t *text(struct maker *m, const struct tr_report *r)
{
    if (!r->opts->check_text)
        return json_null();
    json_t *o = object(m);
    put_int(m, o, "checked", r->text_checked);
    put_int(m, o, "mismatches", r->text_mismatches);
    put(m, o, "first_mismatch",
        r->text_mismatches ? json_integer((json_int_t)r->first_mismatch) : json_null());
    return o;
}

static json_t *whole(struct maker *m, const struct tr_report *r)
{
    json_t *o = object(m), *rate = object(m), *streams = json_array();
    put_text(m, o, "probe", "tokenring.probe.v1");
    put_text(m, o, "url", r->opts->url_text);
    put_text(m, o, "route", r->opts->route == TR_ROUTE_CHAT ? "chat" : "completions");
    put_text(m, o, "model", r->model);
    put_int(m, o, "parallel", r->opts->parallel);
    put_int(m, o, "requests", r->opts->requests);
    put(m, o, "wall_s", json_real(r->wall_s));
    put(m, o, "outcomes", outcomes(m, r));
    put(m, o, "finish_reasons", finish_reasons(m, r));
    put(m, o, "usage", usage(m, r));
    put(m, rate, "total", r->usage_streams ? json_real(r->tok_s) : json_null());
    put(m, rate, "per_stream", summary(m, &r->rate));
    put(m, o, "tok_s", rate);
    put(m, o, "ms", times(m, r));
    put_int(m, o, "gaps_zero", r->gaps_zero);
    put(m, o, "events", events(m, r));
    put_int(m, o, "late_cuts", r->late_cuts);
    put(m, o, "probe_delay_max_ms", ms((double)r->load->delay_max_ns / 1e6));
    put(m, o, "text", text(m, r));
    put(m, o, "server", server(m, r));
    put_text(m, o, "server_note", r->server_note);
    for (size_t i = 0; i < r->load->n; i++)
        m->bad |= json_array_append_new(streams, stream(m, r, i));
    put(m, o, "streams", streams);
    return o;
}

int tr_report_json(const struct tr_report *r, FILE *out)
{
    struct maker m = {0};
    json_t *o = whole(&m, r);
    int rc = m.bad ? -ENOMEM : 0;
    if (!rc && json_dumpf(o, out, JSON_INDENT(1) | JSON_REAL_PRECISION(9)))
        rc = -EIO;
    json_decref(o);
    if (!rc)
        fputs("\n", out);
    return rc;
}
