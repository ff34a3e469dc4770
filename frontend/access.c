/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/access.c - see access.h. */
#include "frontend/access.h"

#include "base/clock.h"
#include "base/hex.h"
#include "base/log.h"
#include "frontend/key.h"
#include "frontend/route.h"
#include "frontend/traceparent.h"

#include <arpa/inet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { RETRY_DIGITS = 4, PATIENCE_BYTES = 12 };

/* ---- the beginning ---- */

/* What a client's library says of itself: digits, or nothing. */
static int read_retry(const struct tr_http *h)
{
    struct tr_slice v = tr_http_field(h, "x-stainless-retry-count");
    int n = 0;

    if (v.len == 0 || v.len > RETRY_DIGITS)
        return -1;
    for (size_t i = 0; i < v.len; i++) {
        if (v.p[i] < '0' || v.p[i] > '9')
            return -1;
        n = 10 * n + (v.p[i] - '0');
    }
    return n;
}

static double read_patience(const struct tr_http *h)
{
    struct tr_slice v = tr_http_field(h, "x-stainless-read-timeout");
    char text[PATIENCE_BYTES + 1];

    if (v.len == 0 || v.len > PATIENCE_BYTES)
        return -1;
    memcpy(text, v.p, v.len);
    text[v.len] = '\0';
    return strspn(text, "0123456789.") == v.len && *text != '.' ? strtod(text, NULL) : -1;
}

struct tr_access *tr_access_new(struct tr_access_log *log, const struct tr_http *h,
                                const char *carrier, const struct tr_peer *peer,
                                uint64_t arrived_ns)
{
    struct tr_access *a = log ? calloc(1, sizeof(*a)) : NULL;

    if (!a)
        return NULL;
    a->log = log;
    a->carrier = carrier;
    a->arrived_ns = arrived_ns;
    a->status = -1;
    a->retry = h ? read_retry(h) : -1;
    a->patience_s = h ? read_patience(h) : -1;
    if (h) {
        a->at[TR_AT_HEAD] = tr_now_ns();
        a->method = tr_http_method_name(h->method);
    }
    if (peer)
        a->peer = *peer;
    tr_trace_begin(h, &a->trace);
    return a;
}

void tr_access_begin(struct tr_exchange *x, struct tr_access_log *log, const struct tr_http *h,
                     const char *carrier, const struct tr_peer *peer, uint64_t arrived_ns)
{
    free(x->access);
    x->access = tr_access_new(log, h, carrier, peer, arrived_ns);
    if (x->access)
        x->access->before = tr_exchange_accepted(x);
}

void tr_access_route(struct tr_exchange *x, const struct tr_route *route)
{
    if (!x->access)
        return;
    x->access->route = route->pattern;
    x->access->quiet = (route->flags & TR_ROUTE_OPEN) != 0;
}

void tr_access_key(struct tr_access *a, const struct tr_key *key)
{
    if (a && key)
        memcpy(a->key, key->name, sizeof(a->key));
}

void tr_access_at(struct tr_exchange *x, enum tr_access_stage stage, uint64_t ns)
{
    if (x->access && !x->access->at[stage])
        x->access->at[stage] = ns;
}

/* ---- the line ---- */

static void put_peer(struct tr_emit *e, const struct tr_peer *p)
{
    static const uint8_t v4_in_v6[12] = {[10] = 0xff, [11] = 0xff};
    const uint8_t *addr = p->addr;
    int family = p->family;
    char text[INET6_ADDRSTRLEN];

    if (family == AF_INET6 && memcmp(addr, v4_in_v6, sizeof(v4_in_v6)) == 0) {
        family = AF_INET;
        addr += sizeof(v4_in_v6);
    }
    tr_emit_kstr(e, "peer", family && inet_ntop(family, addr, text, sizeof(text)) ? text : NULL);
    tr_emit_key(e, "peer_port");
    if (family)
        tr_emit_u64(e, p->port);
    else
        tr_emit_null(e);
}

static void put_text(struct tr_emit *e, const char *key, const char *s)
{
    tr_emit_kstr(e, key, s && *s ? s : NULL);
}

static void put_number(struct tr_emit *e, const char *key, bool known, uint64_t v)
{
    if (known)
        tr_emit_ku64(e, key, v);
    else
        tr_emit_knull(e, key);
}

static void put_id(struct tr_emit *e, const char *key, const uint8_t *id, size_t n)
{
    static const uint8_t none[TR_TRACE_ID];
    char hex[2 * TR_TRACE_ID + 1];

    tr_hex_format(id, n, hex);
    tr_emit_kstr(e, key, memcmp(id, none, n) ? hex : NULL);
}

static void put_arrival(struct tr_emit *e, uint64_t ns)
{
    double at = tr_wall_of_ns(ns), whole = floor(at);
    time_t sec = (time_t)whole;
    char text[40];
    struct tm tm;

    gmtime_r(&sec, &tm);
    size_t n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + n, sizeof(text) - n, ".%06dZ", (int)((at - whole) * 1e6));
    tr_emit_kstr(e, "arrived", text);
}

/* Milliseconds since the arrival, to the microsecond. */
static void put_stages(struct tr_emit *e, const struct tr_access *a)
{
    static const char *const names[] = {
#define X(id, name) [TR_AT_##id] = (name),
#include "frontend/access.def"
#undef X
    };
    char text[32];

    tr_emit_key(e, "ms");
    tr_emit_obj(e);
    for (unsigned i = 0; i < TR_AT_COUNT; i++) {
        tr_emit_key(e, names[i]);
        if (a->at[i] < a->arrived_ns || !a->at[i]) {
            tr_emit_null(e);
            continue;
        }
        uint64_t us = (a->at[i] - a->arrived_ns) / 1000;
        int n = snprintf(text, sizeof(text), "%llu.%03u", (unsigned long long)(us / 1000),
                         (unsigned)(us % 1000));
        tr_emit_raw(e, text, (size_t)n);
    }
    tr_emit_obj_end(e);
}

static void put_line(struct tr_emit *e, const struct tr_access *a, uint64_t acked)
{
    /* An error in its place has none of them, and no answer has none. */
    bool all = a->in_one_piece && a->status == 200 && acked >= a->wait.upto;
    uint64_t delivered = all ? a->completion : tr_receipt_tokens(&a->receipt, acked);

    tr_emit_reset(e);
    tr_emit_obj(e);
    put_text(e, "request_id", a->request_id);
    put_id(e, "trace_id", a->trace.trace_id, TR_TRACE_ID);
    put_id(e, "span_id", a->trace.span_id, TR_SPAN_ID);
    put_id(e, "parent_id", a->trace.parent_id, TR_SPAN_ID);
    put_text(e, "key", a->key);
    put_text(e, "method", a->method);
    put_text(e, "route", a->route);
    put_text(e, "dialect", a->dialect);
    tr_emit_key(e, "streamed");
    if (a->dialect)
        tr_emit_bool(e, a->streamed);
    else
        tr_emit_null(e);
    put_text(e, "carrier", a->carrier);
    put_number(e, "status", a->status >= 0, (uint64_t)a->status);
    put_text(e, "end", a->end);
    put_text(e, "reason", a->reason);
    put_text(e, "stream", a->stream_id);
    put_number(e, "prompt_tokens", a->counted, a->prompt);
    put_number(e, "cached_tokens", a->counted, a->cached);
    put_number(e, "completion_tokens", a->counted, a->completion);
    put_number(e, "delivered_tokens", a->counted, delivered);
    tr_emit_ku64(e, "bytes", a->bytes);
    put_number(e, "retry", a->retry >= 0, (uint64_t)a->retry);
    tr_emit_key(e, "read_timeout_s");
    tr_emit_f64(e, a->patience_s >= 0 ? a->patience_s : NAN);
    if (a->log->addresses)
        put_peer(e, &a->peer);
    put_arrival(e, a->arrived_ns);
    put_stages(e, a);
    tr_emit_obj_end(e);
}

void tr_access_write(struct tr_access *a, uint64_t acked)
{
    enum tr_log_level level = a->quiet ? TR_LOG_DEBUG : TR_LOG_INFO;
    struct tr_emit *e = &a->log->json;

    if (a->log->lines && tr_log_on(level)) {
        a->at[TR_AT_CLOSED] = tr_now_ns();
        put_line(e, a, acked);
        if (!e->failed)
            tr_log_object(level, "access", e->buf + 1, e->len - 2);
    }
    free(a);
}

/* ---- the end ---- */

static void on_delivered(struct tr_delivered *d, uint64_t acked)
{
    ((struct tr_access *)d)->log->waiting--;
    tr_access_write((struct tr_access *)d, acked);
}

static struct tr_access *take(struct tr_exchange *x)
{
    struct tr_access *a = x->access;

    x->access = NULL;
    if (x->request_id)
        snprintf(a->request_id, sizeof(a->request_id), "%s", x->request_id);
    a->bytes = tr_exchange_accepted(x) - a->before;
    return a;
}

void tr_access_answer(struct tr_exchange *x, int status)
{
    struct tr_access *a = x->access;

    if (a->status < 0)
        a->status = status;
    if (!a->end)
        a->end = status < 400 ? "answered" : "refused";
}

void tr_access_streams(struct tr_exchange *x)
{
    x->access->status = 200;
}

void tr_access_error(struct tr_exchange *x, enum tr_err e)
{
    const struct tr_err_info *i = tr_err_info(e);

    if (!x->access->end)
        x->access->reason = i->code;
    tr_access_answer(x, i->status);
}

/* A carrier that is gone already has nobody to wait for: it tells at once. */
void tr_access_over(struct tr_exchange *x, bool whole)
{
    struct tr_access *a = take(x);

    if (whole)
        a->at[TR_AT_TERMINAL] = tr_now_ns();
    a->wait.upto = tr_exchange_accepted(x);
    a->wait.done = on_delivered;
    if (a->log->waiting == TR_ACCESS_WAITING) {
        tr_access_write(a, tr_exchange_acked(x));
        return;
    }
    a->log->waiting++;
    tr_exchange_deliver(x, &a->wait);
}

void tr_access_gone(struct tr_exchange *x, enum tr_gone why)
{
    static const enum tr_err err[] = {[TR_GONE_RESET] = TR_ERR_CLIENT_GONE,
                                      [TR_GONE_SLOW] = TR_ERR_SLOW_CLIENT,
                                      [TR_GONE_SHUT] = TR_ERR_DRAIN_LIMIT};

    if (!x->access)
        return;
    uint64_t acked = tr_exchange_acked(x);
    struct tr_access *a = take(x);
    a->wait.upto = UINT64_MAX;
    if (!a->end) {
        a->end = a->status == 101 ? "closed" : "aborted";
        a->reason = tr_err_info(err[why])->code;
    }
    tr_access_write(a, acked);
}

void tr_access_log_fini(struct tr_access_log *l)
{
    tr_emit_fini(&l->json);
}
