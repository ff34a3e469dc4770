/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api.c - what every POST that starts work has in common, and the table of routes. */
#include "frontend/api.h"

#include "base/clock.h"
#include "frontend/params.h"
#include "frontend/task.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tr_api_refuse(struct tr_fe *fe, struct tr_conn *c, const struct tr_fault *f)
{
    tr_stat_add(fe->stat, TR_STAT_REFUSED_INVALID, 1);
    tr_conn_error(c, f->err, f->message[0] ? f->message : NULL, f->param[0] ? f->param : NULL);
}

void tr_api_reply(struct tr_fe *fe, struct tr_conn *c)
{
    if (fe->json.failed)
        tr_conn_error(c, TR_ERR_INTERNAL, NULL, NULL);
    else
        tr_conn_reply(c, 200, "application/json", fe->json.buf, fe->json.len);
}

void tr_api_reply_made(struct tr_task *t, struct tr_fe *fe, struct tr_conn *c)
{
    (void)fe;
    if (t->out.failed) {
        tr_conn_error(c, TR_ERR_INTERNAL, NULL, NULL);
        return;
    }
    tr_conn_reply_give(c, 200, "application/json", t->out.buf, t->out.len);
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
    (void)rq;
    memset(key, 0, TR_KEY_BYTES);
}

const struct tr_dialect *tr_dialect_of(unsigned api)
{
    static const struct tr_dialect *const of[] = {[TR_API_CHAT] = &tr_dialect_chat,
                                                  [TR_API_COMPLETIONS] = &tr_dialect_completions,
                                                  [TR_API_NATIVE] = &tr_dialect_native};

    return api < sizeof(of) / sizeof(of[0]) ? of[api] : NULL;
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

/* As far as it takes to tell nonsense (400): not rendered, not encoded. */
static int make_less(struct tr_task *t)
{
    return tr_ask_parse(t->ask, &t->fault) || tr_params_read(t->ask, t->api, &t->fault) ? -EINVAL
                                                                                        : 0;
}

static int make(struct tr_task *t)
{
    return make_less(t) || tr_ask_encode(t->ask, &t->fault) ? -EINVAL : 0;
}

static int make_rest(struct tr_task *t)
{
    return tr_ask_encode(t->ask, &t->fault);
}

static int make_nothing(struct tr_task *t)
{
    (void)t;
    return 0;
}

static void start(struct tr_task *t, struct tr_fe *fe, struct tr_conn *c)
{
    struct tr_ask *a = t->ask;

    t->ask = NULL;
    tr_stream_start(fe, c, a, t->dialect, t->frame);
}

static void refuse(struct tr_task *t, struct tr_fe *fe, struct tr_conn *c)
{
    tr_stream_refuse(fe, c, t->refusal);
}

void tr_api_post(struct tr_conn *c, const struct tr_http_request *rq, struct tr_fe *fe,
                 enum tr_api api, const struct tr_dialect *dialect, enum tr_frame frame)
{
    struct tr_task *t = tr_task_new(fe, c, rq);

    if (!t)
        return;
    struct tr_ask *a = t->ask;
    t->api = api;
    t->dialect = dialect;
    t->frame = frame;
    t->make = make;
    t->answer = start;
    snprintf(a->request_id, sizeof(a->request_id), "%s", rq->request_id);
    tr_api_key(rq, a->key);
    a->arrival_ns = rq->arrived_ns;
    a->created = (uint64_t)tr_wall_of_ns(rq->arrived_ns);
    a->timeout_ns = fe->cfg->timeout_ns;
    bool is_long = tr_task_is_long(t), good = read_headers(rq, a, &t->fault) == 0;
    if (good && !is_long) {
        good = make_less(t) == 0;
        t->make = make_rest;
    }
    if (!good) {
        tr_api_refuse(fe, c, &t->fault);
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

const struct tr_route tr_api_routes[] = {
    {TR_HTTP_POST, "/v1/chat/completions", tr_api_chat, 0},
    {TR_HTTP_POST, "/v1/completions", tr_api_completions, 0},
    {TR_HTTP_POST, "/v1/streams", tr_api_native, 0},
    {TR_HTTP_GET, "/v1/streams/{id}", tr_api_resume, 0},
    {TR_HTTP_DELETE, "/v1/streams/{id}", tr_api_native_delete, 0},
    {TR_HTTP_GET, "/v1/models", tr_api_models, 0},
    {TR_HTTP_GET, "/v1/models/{id*}", tr_api_model, 0},
    {TR_HTTP_POST, "/tokenize", tr_api_tokenize, 0},
    {TR_HTTP_POST, "/detokenize", tr_api_detokenize, 0},
    {TR_HTTP_GET, "/health", tr_api_health, TR_ROUTE_OPEN},
    {TR_HTTP_GET, "/readyz", tr_api_health, TR_ROUTE_OPEN},
    {TR_HTTP_GET, "/v2/health/ready", tr_api_health, TR_ROUTE_OPEN},
    {TR_HTTP_GET, "/ping", tr_api_health, TR_ROUTE_OPEN},
    {TR_HTTP_GET, "/livez", tr_api_livez, TR_ROUTE_OPEN},
    {TR_HTTP_GET, "/v2/health/live", tr_api_livez, TR_ROUTE_OPEN},
    {TR_HTTP_GET, "/startupz", tr_api_startupz, TR_ROUTE_OPEN},
    {TR_HTTP_GET, "/version", tr_api_version, TR_ROUTE_OPEN},
    {TR_HTTP_GET, "/server_info", tr_api_server_info, TR_ROUTE_OPEN},
    {TR_HTTP_GET, "/get_server_info", tr_api_server_info, TR_ROUTE_OPEN},
    {TR_HTTP_GET, "/model_info", tr_api_model_info, TR_ROUTE_OPEN},
    {TR_HTTP_GET, "/get_model_info", tr_api_model_info, TR_ROUTE_OPEN},
    {TR_HTTP_GET, "/metrics", tr_api_metrics, TR_ROUTE_OPEN},
};
const size_t tr_api_n_routes = sizeof(tr_api_routes) / sizeof(tr_api_routes[0]);
