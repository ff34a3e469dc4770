/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/carrier.c - see carrier.h. */
#include "frontend/carrier.h"

#include "base/clock.h"
#include "frontend/access.h"
#include "frontend/conn_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uuid/uuid.h>

#define SECOND 1000000000ull

enum {
    BODY_FIRST_BYTES = 64 << 10,
    BODY_BYTES_PER_S = 1 << 10, /* a body that comes slower than this ... */
    BODY_PAUSES = 10            /* ... has so many times the longest pause in all */
};

void tr_carrier_id(const struct tr_http *h, char id[TR_CARRIER_ID_BYTES + 1])
{
    struct tr_slice v = tr_http_field(h, "x-request-id");
    bool good = v.len > 0 && v.len <= TR_CARRIER_ID_BYTES;
    for (size_t i = 0; good && i < v.len; i++)
        good = v.p[i] > 0x20 && v.p[i] < 0x7f;
    if (good) {
        memcpy(id, v.p, v.len);
        id[v.len] = '\0';
        return;
    }
    uuid_t u;
    uuid_generate_random(u);
    uuid_unparse_lower(u, id);
}

/* ---- refusals ---------------------------------------------------------------------------- */

/* The fields a browser asks to send are granted as it names them (x-stainless-* cannot be said by
 * a pattern), if they look like names. */
static const char *granted_fields(const struct tr_http *h, char *buf, size_t cap)
{
    struct tr_slice v = tr_http_field(h, "access-control-request-headers");
    bool good = v.len > 0 && v.len < cap;
    for (size_t i = 0; good && i < v.len; i++)
        good = v.p[i] > ' ' ? v.p[i] < 0x7f && v.p[i] != '"' : v.p[i] == ' ';
    if (!good)
        return "authorization, content-type, accept, x-api-key, api-key, x-request-id, "
               "x-request-timeout, x-tokenring-resume, last-event-id, idempotency-key, "
               "anthropic-version, anthropic-beta, openai-organization, openai-project, "
               "traceparent, tracestate, "
               "x-stainless-arch, x-stainless-lang, x-stainless-os, "
               "x-stainless-package-version, x-stainless-retry-count, x-stainless-runtime, "
               "x-stainless-runtime-version, x-stainless-timeout, x-stainless-read-timeout, "
               "x-stainless-helper-method";
    memcpy(buf, v.p, v.len);
    buf[v.len] = '\0';
    return buf;
}

/* Needs no key: a browser sends none with it. */
static void preflight(const struct tr_httpd *d, struct tr_exchange *x, const struct tr_http *h,
                      unsigned allow)
{
    char methods[96], fields[1024];
    tr_route_allow(allow, methods);
    tr_exchange_header(x, "Allow", methods);
    if (d->lim->cors) {
        tr_exchange_header(x, "Access-Control-Allow-Methods", methods);
        tr_exchange_header(x, "Access-Control-Allow-Headers",
                           granted_fields(h, fields, sizeof(fields)));
        tr_exchange_header(x, "Access-Control-Max-Age", "600");
    }
    tr_exchange_reply(x, 204, NULL, NULL, 0);
}

static void no_route(struct tr_exchange *x, unsigned allow)
{
    char buf[96];
    if (allow) {
        tr_route_allow(allow, buf);
        tr_exchange_header(x, "Allow", buf);
    }
    tr_exchange_error(x, allow ? TR_ERR_METHOD : TR_ERR_NOT_FOUND, NULL, NULL);
}

/* Many clients say no type.  For a page it would be a way to send a body that its browser does not ask
 * about first (Fetch, "CORS-safelisted"): a blob without a type. */
static enum tr_err bad_type(const struct tr_http *h, const char **why)
{
    struct tr_slice type = tr_http_field(h, "content-type");
    if (type.len == 0 && tr_http_field(h, "origin").p) {
        *why = "A page must say Content-Type: application/json.";
        return TR_ERR_MEDIA_TYPE;
    }
    return tr_route_json_type(type) ? TR_OK : TR_ERR_MEDIA_TYPE;
}

/* The order is that of what a client may know: what this is, who asks, how much. */
bool tr_carrier_refuses(struct tr_httpd *d, struct tr_exchange *x, struct tr_http_request *rq,
                        bool overfull, bool *keep)
{
    const struct tr_http *h = rq->http;
    const char *why = NULL;
    enum tr_err e = TR_OK;
    unsigned allow;
    tr_route_prepare(x, d->ops.routes, d->ops.n_routes, h->path);
    if (overfull) {
        *keep = false;
        d->stats->turned_away++;
        tr_exchange_error(x, TR_ERR_CONNECTIONS, NULL, NULL);
        return true;
    }
    if (h->refuse != TR_OK || h->method == TR_HTTP_OTHER) {
        tr_exchange_error(x, h->refuse != TR_OK ? h->refuse : TR_ERR_NOT_IMPLEMENTED, NULL, NULL);
        return true;
    }
    rq->route =
        tr_route_find(d->ops.routes, d->ops.n_routes, h->method, h->path, &rq->id_param, &allow);
    if (h->method == TR_HTTP_OPTIONS && (allow || (h->path.len == 1 && h->path.p[0] == '*'))) {
        preflight(d, x, h, allow);
        return true;
    }
    if (!rq->route) {
        no_route(x, allow);
        return true;
    }
    tr_access_route(x, rq->route);
    if (d->ops.check && !(rq->route->flags & TR_ROUTE_OPEN))
        e = d->ops.check(d->ops.ctx, x, rq, &why);
    tr_access_key(x->access, rq->key);
    if (e == TR_OK && h->content_length > d->lim->max_body)
        e = TR_ERR_BODY_TOO_LARGE;
    if (e == TR_OK && h->has_body)
        e = bad_type(h, &why);
    if (e == TR_ERR_DRAINING) /* also in the turn before tr_httpd_drain */
        *keep = false;
    if (e != TR_OK)
        tr_exchange_error(x, e, why, NULL);
    return e != TR_OK;
}

/* ---- bodies ------------------------------------------------------------------------------ */

/* A small body always has its place; the large ones share theirs, so that many clients who each send
 * all but the last byte do not take all memory. */
static bool body_room(struct tr_httpd *d, struct tr_body *b, const struct tr_http *h, size_t need)
{
    if (need <= b->cap)
        return true;
    size_t cap = b->cap ? b->cap * 2 : BODY_FIRST_BYTES;
    while (cap < need)
        cap *= 2;
    if (!h->chunked && cap > h->content_length)
        cap = (size_t)h->content_length;
    if (cap > BODY_FIRST_BYTES && d->stats->body_bytes + cap - b->cap > d->lim->max_bodies)
        return false;
    char *p = realloc(b->p, cap);
    if (!p)
        return false;
    d->stats->body_bytes += cap - b->cap;
    b->p = p;
    b->cap = cap;
    return true;
}

enum tr_err tr_carrier_body(struct tr_httpd *d, struct tr_body *b, const struct tr_http *h,
                            struct tr_slice piece, const char **why)
{
    *why = NULL;
    if (piece.len > d->lim->max_body - b->len)
        return TR_ERR_BODY_TOO_LARGE;
    if (!body_room(d, b, h, b->len + piece.len)) {
        d->stats->turned_away++;
        *why = "Too many large bodies are on their way; try again soon.";
        return TR_ERR_OVERLOADED;
    }
    memcpy(b->p + b->len, piece.p, piece.len);
    b->len += piece.len;
    return TR_OK;
}

char *tr_carrier_body_take(struct tr_httpd *d, struct tr_body *b)
{
    char *p = b->p;
    d->stats->body_bytes -= b->cap;
    *b = (struct tr_body){0};
    return p;
}

uint64_t tr_carrier_body_deadline(const struct tr_http_limits *l, uint64_t body_ns,
                                  uint64_t piece_ns, uint64_t seen)
{
    uint64_t pause = l->body_timeout_ns;
    uint64_t idle = piece_ns + pause;
    uint64_t all = body_ns + BODY_PAUSES * pause + seen / BODY_BYTES_PER_S * SECOND;
    return !pause ? 0 : idle < all ? idle : all;
}

/* ---- heads of answers -------------------------------------------------------------------- */

static void put(struct tr_emit *t, const char *s)
{
    tr_emit_bytes(t, s, strlen(s));
}

void tr_carrier_field(struct tr_emit *t, const char *name, const char *value)
{
    put(t, name);
    put(t, ": ");
    put(t, value);
    put(t, "\r\n");
}

static void date_field(struct tr_emit *t)
{
    char buf[40];
    time_t now = (time_t)tr_wall_s();
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(buf, sizeof(buf), "%a, %d %b %Y %H:%M:%S GMT", &tm);
    tr_carrier_field(t, "Date", buf);
}

/* Also on errors: a page of that origin could not read them otherwise. */
static void cors_fields(struct tr_emit *t, const char *origin)
{
    if (!origin)
        return;
    tr_carrier_field(t, "Access-Control-Allow-Origin", origin);
    if (strcmp(origin, "*") != 0)
        tr_carrier_field(t, "Vary", "Origin");
    tr_carrier_field(t, "Access-Control-Expose-Headers",
                     "x-request-id, request-id, x-tokenring-stream, retry-after, x-should-retry, "
                     "idempotency-replayed, "
                     "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
                     "x-ratelimit-reset-requests, x-ratelimit-limit-tokens, "
                     "x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens");
}

void tr_carrier_fields(struct tr_emit *t, const struct tr_http_limits *l, const char *type,
                       const char *request_id, const struct tr_head_extra *extra)
{
    date_field(t);
    if (type)
        tr_carrier_field(t, "Content-Type", type);
    tr_carrier_field(t, "X-Request-Id", request_id);
    cors_fields(t, l->cors);
    tr_emit_bytes(t, extra->lines, extra->len);
}

void tr_carrier_stream_fields(struct tr_emit *t)
{
    tr_carrier_field(t, "Cache-Control", "no-cache, no-transform");
    tr_carrier_field(t, "X-Accel-Buffering", "no");
    tr_carrier_field(t, "Incremental", "?1");
}

int tr_carrier_extra(struct tr_head_extra *e, const char *name, const char *value)
{
    size_t n = strlen(name), v = strlen(value);
    if (n == 0 || strpbrk(name, "\r\n: ") || strpbrk(value, "\r\n"))
        return -EINVAL;
    if (e->len + n + v + 4 > TR_CARRIER_EXTRA_BYTES)
        return -E2BIG;
    if (!e->lines)
        e->lines = malloc(TR_CARRIER_EXTRA_BYTES + 1);
    if (!e->lines)
        return -ENOMEM;
    e->len += (size_t)snprintf(e->lines + e->len, TR_CARRIER_EXTRA_BYTES + 1 - e->len, "%s: %s\r\n",
                               name, value);
    return 0;
}

void tr_carrier_extra_drop(struct tr_head_extra *e)
{
    free(e->lines);
    *e = (struct tr_head_extra){0};
}
