/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/span.h"

#include "base/clock.h"
#include "base/hex.h"
#include "shm/close.h"
#include "shm/stream_id.h"

#include <stdio.h>
#include <string.h>

enum { KIND_SERVER = 2, STATUS_ERROR = 2 };
/* Of `flags`: the trace's own are below; it is known whether the parent is another process's; it is. */
enum { HAS_IS_REMOTE = 0x100, IS_REMOTE = 0x200 };

bool tr_span_is_wanted(const struct tr_bill *b)
{
    static const uint8_t none[TR_TRACE_ID];
    return (b->trace.flags & TR_TRACE_SAMPLED) && memcmp(b->trace.trace_id, none, TR_TRACE_ID) != 0;
}

bool tr_span_deliver(struct tr_span *s, const struct tr_delivery *d)
{
    if (s->delivered || s->bill.slot != d->slot || s->bill.gen != d->gen ||
        s->bill.stream_rand != d->stream_rand)
        return false;
    s->delivered = true;
    s->first_byte_ns = d->first_byte_ns;
    s->closed_ns = d->closed_ns;
    s->delivered_tokens = d->delivered_tokens;
    return true;
}

/* ---- values ---- */

static void put_time(struct tr_emit *e, const char *key, int64_t origin_us, uint64_t ns)
{
    char text[24];
    uint64_t at = (uint64_t)origin_us * 1000 + ns % INT64_MAX;
    snprintf(text, sizeof(text), "%llu", (unsigned long long)at);
    tr_emit_kstr(e, key, text);
}

static void put_id(struct tr_emit *e, const char *key, const uint8_t *id, size_t n)
{
    char hex[2 * TR_TRACE_ID + 1];
    tr_hex_format(id, n, hex);
    tr_emit_kstr(e, key, hex);
}

static void open_attribute(struct tr_emit *e, const char *key)
{
    tr_emit_obj(e);
    tr_emit_kstr(e, "key", key);
    tr_emit_key(e, "value");
    tr_emit_obj(e);
}

static void close_attribute(struct tr_emit *e)
{
    tr_emit_obj_end(e);
    tr_emit_obj_end(e);
}

static void put_text(struct tr_emit *e, const char *key, const char *s)
{
    if (!*s)
        return;
    open_attribute(e, key);
    tr_emit_kstr(e, "stringValue", s);
    close_attribute(e);
}

static void put_count(struct tr_emit *e, const char *key, uint64_t v)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)(v < INT64_MAX ? v : INT64_MAX));
    open_attribute(e, key);
    tr_emit_kstr(e, "intValue", text);
    close_attribute(e);
}

static void put_double(struct tr_emit *e, const char *key, double v)
{
    open_attribute(e, key);
    tr_emit_key(e, "doubleValue");
    tr_emit_f64(e, v == v ? v : 0);
    close_attribute(e);
}

static void put_bool(struct tr_emit *e, const char *key, bool v)
{
    open_attribute(e, key);
    tr_emit_kbool(e, "boolValue", v);
    close_attribute(e);
}

/* A list of one text. */
static void put_one(struct tr_emit *e, const char *key, const char *s)
{
    open_attribute(e, key);
    tr_emit_key(e, "arrayValue");
    tr_emit_obj(e);
    tr_emit_key(e, "values");
    tr_emit_arr(e);
    tr_emit_obj(e);
    tr_emit_kstr(e, "stringValue", s);
    tr_emit_obj_end(e);
    tr_emit_arr_end(e);
    tr_emit_obj_end(e);
    close_attribute(e);
}

/* ---- a span ---- */

static const char *operation_of(const struct tr_bill *b)
{
    return b->trace.operation == TR_OPERATION_CHAT ? "chat" : "text_completion";
}

/* What the service or its owner is to be told of; a client that leaves is none. */
static bool is_fault(const struct tr_close_info *end)
{
    return end->err != TR_OK && end->err != TR_ERR_CANCELLED && end->err != TR_ERR_CLIENT_GONE;
}

static void put_request(struct tr_emit *e, const struct tr_bill *b, const char *model)
{
    put_text(e, "gen_ai.operation.name", operation_of(b));
    put_text(e, "gen_ai.provider.name", "tokenring");
    put_text(e, "gen_ai.request.model", model);
    put_text(e, "gen_ai.response.model", model);
    put_count(e, "gen_ai.request.max_tokens", b->max_tokens);
    put_double(e, "gen_ai.request.temperature", b->temperature);
    put_double(e, "gen_ai.request.top_p", b->top_p);
    if (b->top_k > 0)
        put_count(e, "gen_ai.request.top_k", (uint64_t)b->top_k);
    if (b->choices > 1)
        put_count(e, "gen_ai.request.choice.count", b->choices);
    put_bool(e, "gen_ai.request.stream", (b->flags & TR_REQ_STREAM) != 0);
}

static void put_answer(struct tr_emit *e, const struct tr_span *s, const struct tr_close_info *end)
{
    const struct tr_bill *b = &s->bill;
    char id[TR_STREAM_ID_BYTES];
    tr_stream_id_format((struct tr_stream_id){b->slot, b->gen, b->stream_rand}, id);
    put_text(e, "gen_ai.response.id", id);
    put_one(e, "gen_ai.response.finish_reasons", end->reason);
    if (s->delivered && s->first_byte_ns > b->arrival_ns)
        put_double(e, "gen_ai.response.time_to_first_chunk",
                   (double)(s->first_byte_ns - b->arrival_ns) / 1e9);
    put_count(e, "gen_ai.usage.input_tokens", b->prompt_tokens);
    put_count(e, "gen_ai.usage.output_tokens", b->completion_tokens);
    put_count(e, "gen_ai.usage.cache_read.input_tokens", b->cached_tokens);
    put_text(e, "tokenring.request_id", b->request_id);
    put_text(e, "tokenring.key", b->key);
    put_text(e, "tokenring.status", tr_state_name(end->state));
    put_count(e, "tokenring.overrun_tokens", b->overrun_tokens);
    if (s->delivered)
        put_count(e, "tokenring.delivered_tokens", s->delivered_tokens);
    if (is_fault(end))
        put_text(e, "error.type", end->reason);
}

static void put_event(struct tr_emit *e, int64_t origin_us, const char *name, uint64_t ns)
{
    if (!ns)
        return;
    tr_emit_obj(e);
    put_time(e, "timeUnixNano", origin_us, ns);
    tr_emit_kstr(e, "name", name);
    tr_emit_obj_end(e);
}

static void put_events(struct tr_emit *e, const struct tr_span *s, int64_t o)
{
    const struct tr_bill *b = &s->bill;
    tr_emit_key(e, "events");
    tr_emit_arr(e);
    put_event(e, o, "tokenring.parsed", b->stage.parsed_ns);
    put_event(e, o, "tokenring.rendered", b->stage.rendered_ns);
    put_event(e, o, "tokenring.tokenised", b->stage.encoded_ns);
    put_event(e, o, "tokenring.submitted", b->stage.submitted_ns);
    put_event(e, o, "tokenring.admitted", b->admitted_ns);
    put_event(e, o, "tokenring.started", b->started_ns);
    put_event(e, o, "tokenring.first_token", b->first_token_ns);
    put_event(e, o, "tokenring.first_byte", s->first_byte_ns);
    put_event(e, o, "tokenring.disconnect", b->disconnect_ns);
    put_event(e, o, "tokenring.cancel_acknowledged", b->cancel_ack_ns);
    put_event(e, o, "tokenring.finished", b->finished_ns);
    put_event(e, o, "tokenring.closed", s->closed_ns);
    tr_emit_arr_end(e);
}

static void put_head(struct tr_emit *e, const struct tr_span *s, const char *model, int64_t o)
{
    static const uint8_t none[TR_SPAN_ID];
    const struct tr_trace *t = &s->bill.trace;
    bool child = memcmp(t->parent_id, none, TR_SPAN_ID) != 0;
    uint64_t end = s->bill.finished_ns;
    char name[192];
    put_id(e, "traceId", t->trace_id, TR_TRACE_ID);
    put_id(e, "spanId", t->span_id, TR_SPAN_ID);
    if (child)
        put_id(e, "parentSpanId", t->parent_id, TR_SPAN_ID);
    if (t->state[0])
        tr_emit_kstr(e, "traceState", t->state);
    tr_emit_ku64(e, "flags", t->flags | HAS_IS_REMOTE | (child ? IS_REMOTE : 0u));
    snprintf(name, sizeof(name), "%s %s", operation_of(&s->bill), model);
    tr_emit_kstr(e, "name", name);
    tr_emit_ku64(e, "kind", KIND_SERVER);
    put_time(e, "startTimeUnixNano", o, s->bill.arrival_ns);
    put_time(e, "endTimeUnixNano", o, s->closed_ns > end ? s->closed_ns : end);
}

static void put_span(struct tr_emit *e, const struct tr_span *s, const char *model, int64_t o)
{
    const struct tr_bill *b = &s->bill;
    const struct tr_close_info *end = tr_close_info(tr_close_of(b->state, b->finish, b->err));
    tr_emit_obj(e);
    put_head(e, s, model, o);
    tr_emit_key(e, "attributes");
    tr_emit_arr(e);
    put_request(e, b, model);
    put_answer(e, s, end);
    tr_emit_arr_end(e);
    put_events(e, s, o);
    tr_emit_key(e, "status");
    tr_emit_obj(e);
    if (is_fault(end)) {
        tr_emit_ku64(e, "code", STATUS_ERROR);
        tr_emit_kstr(e, "message", end->words);
    }
    tr_emit_obj_end(e);
    tr_emit_obj_end(e);
}

/* ---- all of them ---- */

void tr_span_request(struct tr_emit *e, const struct tr_span *const *spans, size_t n,
                     const struct tr_span_facts *f)
{
    /* One difference of the clocks for all, so that they keep their order. */
    int64_t origin_us = (int64_t)(tr_wall_of_ns(1) * 1e6);
    tr_emit_reset(e);
    tr_emit_obj(e);
    tr_emit_key(e, "resourceSpans");
    tr_emit_arr(e);
    tr_emit_obj(e);
    tr_emit_key(e, "resource");
    tr_emit_obj(e);
    tr_emit_key(e, "attributes");
    tr_emit_arr(e);
    put_text(e, "service.name", "tokenring");
    put_text(e, "service.version", f->version);
    put_text(e, "service.instance.id", f->instance);
    tr_emit_arr_end(e);
    tr_emit_obj_end(e);
    tr_emit_key(e, "scopeSpans");
    tr_emit_arr(e);
    tr_emit_obj(e);
    tr_emit_key(e, "scope");
    tr_emit_obj(e);
    tr_emit_kstr(e, "name", "tokenring");
    tr_emit_kstr(e, "version", f->version);
    tr_emit_obj_end(e);
    tr_emit_key(e, "spans");
    tr_emit_arr(e);
    for (size_t i = 0; i < n; i++)
        put_span(e, spans[i], f->model, origin_us);
    tr_emit_arr_end(e);
    tr_emit_obj_end(e);
    tr_emit_arr_end(e);
    tr_emit_obj_end(e);
    tr_emit_arr_end(e);
    tr_emit_obj_end(e);
}
