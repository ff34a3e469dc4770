/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/report.h"

#include "client/json_out.h"

#include <math.h>

static json_t *real(double v)
{
    return isnan(v) ? json_null() : json_real(v);
}

static json_t *outcomes(struct tr_json_maker *m, const struct tr_class_tally *c)
{
    json_t *o = tr_json_object(m);
    for (int i = 0; i < TR_FATES; i++)
        tr_json_put_int(m, o, tr_fate_name((enum tr_fate)i), c->fates[i]);
    return o;
}

static json_t *abandoned(struct tr_json_maker *m, const struct tr_class_tally *c)
{
    json_t *o = tr_json_object(m);
    tr_json_put_int(m, o, "before_head", c->left_before_head);
    tr_json_put_int(m, o, "before_content", c->left_before_content);
    tr_json_put_int(m, o, "in_stream", c->left_in_stream);
    return o;
}

static json_t *codes(struct tr_json_maker *m, const struct tr_class_tally *c)
{
    json_t *o = tr_json_object(m);
    for (size_t i = 0; i < c->n_codes; i++)
        tr_json_put_int(m, o, c->codes[i].name, c->codes[i].n);
    return o;
}

static json_t *times(struct tr_json_maker *m, const struct tr_class_tally *c)
{
    json_t *o = tr_json_object(m);
    tr_json_put(m, o, "ttft", tr_json_summary(m, &c->ttft));
    tr_json_put(m, o, "ttft_sent", tr_json_summary(m, &c->ttft_sent));
    tr_json_put(m, o, "gap", tr_json_summary(m, &c->gap));
    tr_json_put(m, o, "e2e", tr_json_summary(m, &c->e2e));
    return o;
}

static json_t *class_object(struct tr_json_maker *m, const struct tr_class_tally *c)
{
    json_t *o = tr_json_object(m);
    tr_json_put_int(m, o, "requests", c->n);
    tr_json_put(m, o, "outcomes", outcomes(m, c));
    tr_json_put(m, o, "abandoned", abandoned(m, c));
    tr_json_put_int(m, o, "without_retry_after", c->without_retry_after);
    tr_json_put(m, o, "errors", codes(m, c));
    tr_json_put_int(m, o, "late", c->late);
    tr_json_put_int(m, o, "prompt_tokens", (uint64_t)c->usage.prompt);
    tr_json_put_int(m, o, "cached_tokens", (uint64_t)c->usage.cached);
    tr_json_put_int(m, o, "completion_tokens", (uint64_t)c->usage.completion);
    tr_json_put_int(m, o, "usage", c->usage_requests);
    tr_json_put(m, o, "tok_s", json_real(c->tok_s));
    tr_json_put_int(m, o, "content_events", c->content_events);
    tr_json_put_int(m, o, "prompts_off", c->prompts_off);
    tr_json_put_int(m, o, "lengths_off", c->lengths_off);
    tr_json_put_int(m, o, "late_cuts", c->late_cuts);
    tr_json_put(m, o, "ms", times(m, c));
    tr_json_put(m, o, "rate", tr_json_summary(m, &c->rate));
    return o;
}

static json_t *classes(struct tr_json_maker *m, const struct tr_tally *t)
{
    json_t *o = tr_json_object(m);
    for (unsigned i = 0; i < t->run->trace->n_classes; i++)
        tr_json_put(m, o, t->classes[i].name, class_object(m, &t->classes[i]));
    return o;
}

static json_t *timeline(struct tr_json_maker *m, const struct tr_run *run)
{
    json_t *list = json_array();
    m->bad |= !list;
    for (size_t i = 0; i < run->n_ticks; i++) {
        json_t *o = tr_json_object(m);
        tr_json_put(m, o, "t", tr_json_ms(run->ticks[i].t_s));
        for (int k = 0; k < TR_LEVELS; k++)
            tr_json_put(m, o, tr_level_name(k), real(tr_level_of(&run->ticks[i], k)));
        m->bad |= json_array_append_new(list, o);
    }
    return list;
}

static json_t *concurrency(struct tr_json_maker *m, const struct tr_tally *t)
{
    json_t *o = tr_json_object(m);
    for (int k = 0; k < TR_LEVELS; k++) {
        const struct tr_level *v = &t->levels[k];
        json_t *one = tr_json_object(m);
        tr_json_put(m, one, "mean", v->n ? tr_json_ms(v->mean) : json_null());
        tr_json_put(m, one, "max", v->n ? json_real(v->max) : json_null());
        tr_json_put(m, o, tr_level_name(k), one);
    }
    return o;
}

static json_t *counters(struct tr_json_maker *m, const struct tr_tally *t)
{
    json_t *o = tr_json_object(m);
    for (int i = 0; i < TR_COUNTERS; i++)
        tr_json_put(m, o, tr_counter_name((enum tr_counter)i), real(t->counters[i]));
    return o;
}

static json_t *since_due(const struct tr_run_record *r, uint64_t at_ns)
{
    return at_ns ? tr_json_ms((double)(at_ns - r->due_ns) / 1e6) : json_null();
}

static json_t *stream(struct tr_json_maker *m, const struct tr_run *run, size_t i)
{
    const struct tr_run_record *r = &run->records[i];
    const struct tr_trace_entry *e = &run->trace->e[i];
    json_t *o = tr_json_object(m);
    char id[128];
    tr_run_request_id(run, i, id, sizeof(id));
    tr_json_put_int(m, o, "line", e->line);
    tr_json_put_text(m, o, "class", run->trace->classes[e->class_id]);
    tr_json_put_text(m, o, "id", id);
    tr_json_put_text(m, o, "outcome", tr_fate_name(r->fate));
    tr_json_put_text(m, o, "detail", r->rec.detail);
    tr_json_put(m, o, "http_status",
                r->rec.http_status ? json_integer(r->rec.http_status) : json_null());
    tr_json_put(m, o, "at_s", tr_json_ms((double)(r->due_ns - run->start_ns) / 1e9));
    tr_json_put(m, o, "late_ms", since_due(r, r->rec.start_ns));
    tr_json_put(m, o, "ttft_ms", since_due(r, r->rec.first_ns));
    tr_json_put(m, o, "e2e_ms", since_due(r, r->rec.end_ns));
    tr_json_put(m, o, "prompt_tokens",
                r->rec.has_usage ? json_integer(r->rec.usage.prompt) : json_null());
    tr_json_put(m, o, "completion_tokens",
                r->rec.has_usage ? json_integer(r->rec.usage.completion) : json_null());
    tr_json_put_int(m, o, "content_events", r->rec.content_events);
    return o;
}

static json_t *one_run(struct tr_json_maker *m, const struct tr_tally *t)
{
    const struct tr_run *run = t->run;
    json_t *o = tr_json_object(m), *streams = json_array();
    tr_json_put(m, o, "abandon", json_boolean(run->abandon));
    tr_json_put(m, o, "interrupted", json_boolean(run->interrupted));
    tr_json_put(m, o, "wall_s", json_real(t->wall_s));
    tr_json_put_int(m, o, "late", run->late);
    tr_json_put(m, o, "late_max_ms", tr_json_ms((double)run->late_max_ns / 1e6));
    tr_json_put(m, o, "replay_delay_max_ms", tr_json_ms((double)run->delay_max_ns / 1e6));
    tr_json_put(m, o, "all", class_object(m, &t->all));
    tr_json_put(m, o, "classes", classes(m, t));
    tr_json_put(m, o, "concurrency", concurrency(m, t));
    tr_json_put(m, o, "timeline", timeline(m, run));
    tr_json_put(m, o, "server", tr_json_server_hists(m, &t->server));
    tr_json_put_text(m, o, "server_note", t->server.note);
    tr_json_put(m, o, "counters", counters(m, t));
    for (size_t i = 0; i < run->trace->n; i++)
        m->bad |= json_array_append_new(streams, stream(m, run, i));
    tr_json_put(m, o, "streams", streams);
    return o;
}

int tr_replay_report_json(const struct tr_replay_report *r, FILE *out)
{
    struct tr_json_maker m = {0};
    json_t *o = tr_json_object(&m), *runs = json_array(), *ignored = json_array();
    tr_json_put_text(&m, o, "replay", "tokenring.replay.v1");
    tr_json_put_text(&m, o, "url", r->opts->to.url_text);
    tr_json_put_text(&m, o, "model", r->model);
    tr_json_put_text(&m, o, "trace", r->opts->trace);
    tr_json_put(&m, o, "speed", json_real(r->opts->speed));
    tr_json_put_int(&m, o, "requests", r->trace->n);
    tr_json_put(&m, o, "exact_prompts", json_boolean(r->exact_prompts));
    for (unsigned i = 0; i < r->trace->n_unknown; i++)
        m.bad |= json_array_append_new(ignored, json_string(r->trace->unknown[i]));
    tr_json_put(&m, o, "ignored_fields", ignored);
    for (int i = 0; i < r->n_runs; i++)
        m.bad |= json_array_append_new(runs, one_run(&m, r->runs[i]));
    tr_json_put(&m, o, "runs", runs);
    return tr_json_write(&m, o, out);
}
