/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api.c - what every POST that starts work has in common, and the table of routes. */
#include "frontend/api.h"

#include "base/assert.h"
#include "base/clock.h"
#include "frontend/access.h"
#include "frontend/key.h"
#include "frontend/idempotency.h"
#include "frontend/page.h"
#include "frontend/params.h"
#include "frontend/plain.h"
#include "frontend/task.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tr_api_refuse(struct tr_fe *fe, struct tr_exchange *x, const struct tr_fault *f)
{
    tr_stat_add(fe->stat, TR_STAT_REFUSED_INVALID, 1);
    tr_exchange_error(x, f->err, f->message[0] ? f->message : NULL, f->param[0] ? f->param : NULL);
}

void tr_api_reply(struct tr_fe *fe, struct tr_exchange *x)
{
    if (fe->json.failed)
        tr_exchange_error(x, TR_ERR_INTERNAL, NULL, NULL);
    else
        tr_exchange_reply(x, 200, "application/json", fe->json.buf, fe->json.len);
}

void tr_api_reply_made(struct tr_task *t, struct tr_fe *fe, struct tr_exchange *x)
{
    (void)fe;
    if (t->out.failed) {
        tr_exchange_error(x, TR_ERR_INTERNAL, NULL, NULL);
        return;
    }
    tr_exchange_reply_give(x, 200, "application/json", t->out.buf, t->out.len);
    t->out.buf = NULL; /* given */
    tr_emit_init(&t->out);
}

void tr_api_usage(struct tr_emit *e, const struct tr_usage *u)
{
    tr_emit_key(e, "usage");
    tr_emit_obj(e);
    tr_emit_ku64(e, "prompt_tokens", u->prompt);
    tr_emit_ku64(e, "completion_tokens", u->completion);
    tr_emit_ku64(e, "total_tokens", u->prompt + u->completion);
    tr_emit_key(e, "prompt_tokens_details");
    tr_emit_obj(e);
    tr_emit_ku64(e, "cached_tokens", u->cached);
    tr_emit_obj_end(e);
    tr_emit_obj_end(e);
}

void tr_api_key(const struct tr_http_request *rq, char key[TR_KEY_BYTES])
{
    memset(key, 0, TR_KEY_BYTES);
    if (rq->key)
        memcpy(key, rq->key->name, TR_KEY_BYTES);
}

static const struct tr_dialect *const dialects[TR_APIS] = {
#define X(id, name) [TR_API_##id] = &tr_dialect_##name,
#include "frontend/dialects.def"
#undef X
};

const char *tr_dialect_word(unsigned api)
{
    static const char *const words[TR_APIS] = {
#define X(id, name) [TR_API_##id] = #name,
#include "frontend/dialects.def"
#undef X
    };

    return api < TR_APIS ? words[api] : NULL;
}

const struct tr_dialect *tr_dialect_of(unsigned api)
{
    return api < TR_APIS ? dialects[api] : NULL;
}

void tr_api_ask(struct tr_exchange *x, const struct tr_http_request *rq, struct tr_fe *fe,
                const struct tr_dialect *dialect, int (*make)(struct tr_task *t))
{
    struct tr_task *t = tr_task_new(fe, x, rq);

    if (!t)
        return;
    t->dialect = dialect;
    t->make = make;
    t->answer = tr_api_reply_made;
    tr_task_run(t);
}

/* ---- headers that change the request ---- */

static int read_timeout(const struct tr_http_request *rq, struct tr_ask *a, struct tr_fault *f)
{
    struct tr_slice v = tr_http_field(rq->http, "x-request-timeout");
    char buf[32], *end;

    if (!v.p)
        return 0;
    snprintf(buf, sizeof(buf), "%.*s", (int)(v.len < sizeof(buf) ? v.len : 0), v.p);
    double seconds = strtod(buf, &end); /* which also takes hexadecimal numbers */
    if (end == buf || *end || strspn(buf, "0123456789.eE+-") != v.len ||
        !(seconds > 0 && seconds < 1e9))
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "X-Request-Timeout",
                            "X-Request-Timeout must be a number of seconds larger than 0.");
    uint64_t ns = (uint64_t)(seconds * 1e9) + 1;
    if (!a->timeout_ns || ns < a->timeout_ns)
        a->timeout_ns = ns;
    return 0;
}

static int read_headers(const struct tr_http_request *rq, struct tr_ask *a, struct tr_fault *f)
{
    struct tr_slice resume = tr_http_field(rq->http, "x-tokenring-resume");

    if (resume.p && !(resume.len == 1 && (resume.p[0] == '0' || resume.p[0] == '1')))
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "X-Tokenring-Resume",
                            "X-Tokenring-Resume must be 0 or 1.");
    a->resume_header = resume.p && resume.p[0] == '1';
    return read_timeout(rq, a, f);
}

/* ---- POST ---- */

/* The fault was found in the translation: its param is what the client called it.  -EINVAL. */
static int name_back(struct tr_task *t)
{
    char theirs[sizeof(t->fault.param)];

    tr_fields_theirs(t->dialect->fields, t->dialect->n_fields, t->fault.param, theirs,
                     sizeof(theirs));
    memcpy(t->fault.param, theirs, sizeof(theirs));
    if (t->dialect->inner_names)
        t->dialect->inner_names(t->fault.param);
    return -EINVAL;
}

/* As far as it takes to tell nonsense (400): not rendered, not encoded. */
static int make_less(struct tr_task *t)
{
    if (tr_ask_parse(t->ask, &t->fault))
        return -EINVAL;
    if (tr_ask_translate(t->ask, t->dialect, &t->fault))
        return -EINVAL;
    if (tr_params_read(t->ask, t->dialect->api, &t->fault))
        return name_back(t);
    t->ask->stage.parsed_ns = tr_now_ns();
    return 0;
}

static int make_rest(struct tr_task *t)
{
    return tr_ask_encode(t->ask, &t->fault) ? name_back(t) : 0;
}

int tr_api_make(struct tr_task *t)
{
    return make_less(t) ? -EINVAL : make_rest(t);
}

static int make_nothing(struct tr_task *t)
{
    (void)t;
    return 0;
}

static void start(struct tr_task *t, struct tr_fe *fe, struct tr_exchange *x)
{
    struct tr_ask *a = t->ask;

    t->ask = NULL;
    tr_stream_start(fe, x, a, t->dialect, t->frame);
}

static void refuse(struct tr_task *t, struct tr_fe *fe, struct tr_exchange *x)
{
    if (!tr_idempotency_answer(fe, x, t->ask, t->dialect, t->frame))
        tr_stream_refuse(fe, x, t->refusal);
}

void tr_api_post(struct tr_exchange *x, const struct tr_http_request *rq, struct tr_fe *fe,
                 const struct tr_dialect *dialect, enum tr_frame frame)
{
    struct tr_task *t = tr_task_new(fe, x, rq);

    if (!t)
        return;
    struct tr_ask *a = t->ask;
    a->plain = frame != TR_JSON && frame != TR_PROTO && tr_plain_wanted(rq) &&
               tr_plain_dialect(dialect->api);
    t->dialect = a->plain ? tr_plain_dialect(dialect->api) : dialect;
    t->frame = a->plain ? TR_TEXT : frame;
    t->make = tr_api_make;
    t->answer = start;
    snprintf(a->request_id, sizeof(a->request_id), "%s", rq->request_id);
    tr_api_key(rq, a->key);
    a->who = rq->key;
    a->arrival_ns = rq->arrived_ns;
    if (x->access) {
        a->trace = x->access->trace;
        x->access->dialect = tr_dialect_word(t->dialect->api);
    }
    a->created = (uint64_t)tr_wall_of_ns(rq->arrived_ns);
    a->timeout_ns = fe->cfg->timeout_ns;
    bool is_long = tr_task_is_long(t);
    bool good = read_headers(rq, a, &t->fault) == 0 &&
                tr_idempotency_read(rq, dialect->api, t->frame, a, &t->fault) == 0;
    if (good && !is_long) {
        good = make_less(t) == 0;
        t->make = make_rest;
    }
    if (!good) {
        tr_api_refuse(fe, x, &t->fault);
        tr_task_free(t);
        return;
    }
    t->refusal = tr_admit_look(fe);
    if (t->refusal) { /* said before the work of encoding */
        t->make = is_long ? make_less : make_nothing;
        t->answer = refuse;
    }
    tr_task_run(t);
}

/* ---- routes ---- */

static const struct tr_route others[] = {
    {.method = TR_HTTP_GET, .pattern = "/", .handler = tr_page_get, .flags = TR_ROUTE_OPEN},
    {.method = TR_HTTP_GET, .pattern = "/v1/models", .handler = tr_api_models},
    {.method = TR_HTTP_GET, .pattern = "/v1/models/{id*}", .handler = tr_api_model},
    {.method = TR_HTTP_POST, .pattern = "/tokenize", .handler = tr_api_tokenize},
    {.method = TR_HTTP_POST, .pattern = "/detokenize", .handler = tr_api_detokenize},
    {.method = TR_HTTP_GET, .pattern = "/health", .handler = tr_api_health, .flags = TR_ROUTE_OPEN},
    {.method = TR_HTTP_GET, .pattern = "/readyz", .handler = tr_api_health, .flags = TR_ROUTE_OPEN},
    {.method = TR_HTTP_GET,
     .pattern = "/v2/health/ready",
     .handler = tr_api_health,
     .flags = TR_ROUTE_OPEN},
    {.method = TR_HTTP_GET, .pattern = "/ping", .handler = tr_api_health, .flags = TR_ROUTE_OPEN},
    {.method = TR_HTTP_GET, .pattern = "/livez", .handler = tr_api_livez, .flags = TR_ROUTE_OPEN},
    {.method = TR_HTTP_GET,
     .pattern = "/v2/health/live",
     .handler = tr_api_livez,
     .flags = TR_ROUTE_OPEN},
    {.method = TR_HTTP_GET,
     .pattern = "/startupz",
     .handler = tr_api_startupz,
     .flags = TR_ROUTE_OPEN},
    {.method = TR_HTTP_GET,
     .pattern = "/version",
     .handler = tr_api_version,
     .flags = TR_ROUTE_OPEN},
    {.method = TR_HTTP_GET,
     .pattern = "/server_info",
     .handler = tr_api_server_info,
     .flags = TR_ROUTE_OPEN},
    {.method = TR_HTTP_GET,
     .pattern = "/get_server_info",
     .handler = tr_api_server_info,
     .flags = TR_ROUTE_OPEN},
    {.method = TR_HTTP_GET,
     .pattern = "/model_info",
     .handler = tr_api_model_info,
     .flags = TR_ROUTE_OPEN},
    {.method = TR_HTTP_GET,
     .pattern = "/get_model_info",
     .handler = tr_api_model_info,
     .flags = TR_ROUTE_OPEN},
    {.method = TR_HTTP_GET,
     .pattern = "/metrics",
     .handler = tr_api_metrics,
     .flags = TR_ROUTE_OPEN},
    {.method = TR_HTTP_GET,
     .pattern = "/debug/streams",
     .handler = tr_api_debug_streams,
     .flags = TR_ROUTE_ADMIN},
};

enum { MOST_ROUTES = 96 };

static size_t put_routes(struct tr_route *to, size_t n, const struct tr_route *r, size_t n_r)
{
    TR_ASSERT(n + n_r <= MOST_ROUTES);
    for (size_t i = 0; i < n_r; i++)
        to[n + i] = r[i];
    return n + n_r;
}

/* Written once, before anything is served. */
const struct tr_route *tr_api_routes(size_t *n)
{
    static struct tr_route all[MOST_ROUTES];

    *n = put_routes(all, 0, others, sizeof(others) / sizeof(others[0]));
    for (unsigned i = 0; i < TR_APIS; i++)
        *n = put_routes(all, *n, dialects[i]->routes, dialects[i]->n_routes);
    return all;
}
