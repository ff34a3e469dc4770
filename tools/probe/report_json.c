/* SPDX-License-Identifier: Apache-2.0 */
#include "client/json_out.h"
#include "probe/report.h"

static json_t *since_start(const struct tr_record *rec, uint64_t at_ns)
{
    return at_ns ? tr_json_ms((double)(at_ns - rec->start_ns) / 1e6) : json_null();
}

static json_t *stream(struct tr_json_maker *m, const struct tr_report *r, size_t i)
{
    const struct tr_record *rec = &r->load->records[i];
    json_t *o = tr_json_object(m);
    tr_json_put_int(m, o, "index", i);
    tr_json_put_text(m, o, "outcome", tr_outcome_name(rec->outcome));
    tr_json_put_text(m, o, "detail", rec->detail);
    tr_json_put(m, o, "http_status",
                rec->http_status ? json_integer(rec->http_status) : json_null());
    tr_json_put_text(m, o, "finish_reason", rec->finish);
    tr_json_put(m, o, "prompt_tokens",
                rec->has_usage ? json_integer(rec->usage.prompt) : json_null());
    tr_json_put(m, o, "completion_tokens",
                rec->has_usage ? json_integer(rec->usage.completion) : json_null());
    tr_json_put_int(m, o, "events", rec->events);
    tr_json_put_int(m, o, "content_events", rec->content_events);
    tr_json_put(m, o, "connect_ms", since_start(rec, rec->connect_ns));
    tr_json_put(m, o, "headers_ms", since_start(rec, rec->head_ns));
    tr_json_put(m, o, "ttft_ms", since_start(rec, rec->first_ns));
    tr_json_put(m, o, "e2e_ms", since_start(rec, rec->end_ns));
    tr_json_put(m, o, "gap_max_ms",
                rec->content_events > 1 ? tr_json_ms((double)rec->gap_max_ns / 1e6) : json_null());
    if (r->opts->show_text)
        tr_json_put(m, o, "text", json_stringn(rec->text ? rec->text : "", rec->text_kept));
    return o;
}

static json_t *outcomes(struct tr_json_maker *m, const struct tr_report *r)
{
    json_t *o = tr_json_object(m);
    for (int i = 0; i < TR_OUT_COUNT; i++)
        tr_json_put_int(m, o, tr_outcome_name((enum tr_outcome)i), r->outcomes[i]);
    return o;
}

static json_t *finish_reasons(struct tr_json_maker *m, const struct tr_report *r)
{
    json_t *o = tr_json_object(m);
    for (size_t i = 0; i < r->n_finish; i++)
        tr_json_put_int(m, o, r->finish[i].name, r->finish[i].n);
    return o;
}

static json_t *usage(struct tr_json_maker *m, const struct tr_report *r)
{
    if (!r->usage_streams)
        return json_null();
    json_t *o = tr_json_object(m);
    tr_json_put_int(m, o, "streams", r->usage_streams);
    tr_json_put_int(m, o, "prompt_tokens", (uint64_t)r->usage.prompt);
    tr_json_put_int(m, o, "cached_tokens", (uint64_t)r->usage.cached);
    tr_json_put_int(m, o, "completion_tokens", (uint64_t)r->usage.completion);
    return o;
}

static json_t *events(struct tr_json_maker *m, const struct tr_report *r)
{
    json_t *o = tr_json_object(m);
    tr_json_put_int(m, o, "all", r->sums.events);
    tr_json_put_int(m, o, "content", r->sums.content_events);
    tr_json_put_int(m, o, "comments", r->sums.comments);
    tr_json_put_int(m, o, "foreign", r->sums.foreign);
    tr_json_put_int(m, o, "empty", r->sums.empty);
    tr_json_put_int(m, o, "undecodable", r->sums.undecodable);
    tr_json_put_int(m, o, "after_done", r->sums.after_done);
    return o;
}

static json_t *times(struct tr_json_maker *m, const struct tr_report *r)
{
    json_t *o = tr_json_object(m);
    tr_json_put(m, o, "connect", tr_json_summary(m, &r->connect));
    tr_json_put(m, o, "headers", tr_json_summary(m, &r->headers));
    tr_json_put(m, o, "ttft", tr_json_summary(m, &r->ttft));
    tr_json_put(m, o, "gap", tr_json_summary(m, &r->gap));
    tr_json_put(m, o, "e2e", tr_json_summary(m, &r->e2e));
    return o;
}

static json_t *text(struct tr_json_maker *m, const struct tr_report *r)
{
    if (!r->opts->check_text)
        return json_null();
    json_t *o = tr_json_object(m);
    tr_json_put_int(m, o, "checked", r->text_checked);
    tr_json_put_int(m, o, "mismatches", r->text_mismatches);
    tr_json_put(m, o, "first_mismatch",
                r->text_mismatches ? json_integer((json_int_t)r->first_mismatch) : json_null());
    return o;
}

static json_t *whole(struct tr_json_maker *m, const struct tr_report *r)
{
    json_t *o = tr_json_object(m), *rate = tr_json_object(m), *streams = json_array();
    tr_json_put_text(m, o, "probe", "tokenring.probe.v1");
    tr_json_put_text(m, o, "url", r->opts->to.url_text);
    tr_json_put_text(m, o, "route", r->opts->route == TR_ROUTE_CHAT ? "chat" : "completions");
    tr_json_put_text(m, o, "model", r->model);
    tr_json_put_int(m, o, "parallel", r->opts->parallel);
    tr_json_put_int(m, o, "requests", r->opts->requests);
    tr_json_put(m, o, "wall_s", json_real(r->wall_s));
    tr_json_put(m, o, "outcomes", outcomes(m, r));
    tr_json_put(m, o, "finish_reasons", finish_reasons(m, r));
    tr_json_put(m, o, "usage", usage(m, r));
    tr_json_put(m, rate, "total", r->usage_streams ? json_real(r->tok_s) : json_null());
    tr_json_put(m, rate, "per_stream", tr_json_summary(m, &r->rate));
    tr_json_put(m, o, "tok_s", rate);
    tr_json_put(m, o, "ms", times(m, r));
    tr_json_put_int(m, o, "gaps_zero", r->gaps_zero);
    tr_json_put(m, o, "events", events(m, r));
    tr_json_put_int(m, o, "late_cuts", r->late_cuts);
    tr_json_put(m, o, "probe_delay_max_ms", tr_json_ms((double)r->load->delay_max_ns / 1e6));
    tr_json_put(m, o, "text", text(m, r));
    tr_json_put(m, o, "server", tr_json_server_hists(m, &r->server));
    tr_json_put_text(m, o, "server_note", r->server.note);
    for (size_t i = 0; i < r->load->n; i++)
        m->bad |= json_array_append_new(streams, stream(m, r, i));
    tr_json_put(m, o, "streams", streams);
    return o;
}

int tr_report_json(const struct tr_report *r, FILE *out)
{
    struct tr_json_maker m = {0};
    json_t *o = whole(&m, r);
    return tr_json_write(&m, o, out);
}
