/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/grpc.c - the methods that are known, and health.  See grpc.h. */
#include "frontend/grpc_priv.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

/* ---- short answers ---- */

/* The one message of an answer, then the end. */
static void answer(struct tr_grpc_call *c, const struct tr_emit *out)
{
    if (out->failed) {
        tr_grpc_call_end(c, TR_GRPC_RESOURCE_EXHAUSTED, "Out of memory.");
        return;
    }
    tr_grpc_call_write(c, out->buf, out->len);
    tr_grpc_call_end(c, TR_GRPC_OK, NULL);
}

static void answer_bool(struct tr_grpc_call *c, bool v)
{
    struct tr_emit out;

    tr_emit_init(&out);
    tr_oip_bool(&out, v);
    answer(c, &out);
    tr_emit_fini(&out);
}

static void bad_message(struct tr_grpc_call *c, int rc)
{
    if (rc == -ENOMEM)
        tr_grpc_call_end(c, TR_GRPC_RESOURCE_EXHAUSTED, "Out of memory.");
    else
        tr_grpc_call_end(c, TR_GRPC_INVALID_ARGUMENT, "The message is not that of this method.");
}

static void server_live(struct tr_grpc_call *c, char *msg, uint32_t len)
{
    (void)len;
    free(msg);
    answer_bool(c, true);
}

static void server_ready(struct tr_grpc_call *c, char *msg, uint32_t len)
{
    (void)len;
    free(msg);
    answer_bool(c, tr_fe_ready(c->g->fe) == TR_OK);
}

static void server_metadata(struct tr_grpc_call *c, char *msg, uint32_t len)
{
    struct tr_emit out;

    (void)len;
    free(msg);
    tr_emit_init(&out);
    tr_oip_server_metadata(&out, c->g->fe->cfg->version);
    answer(c, &out);
    tr_emit_fini(&out);
}

/* Whether the message names what is served here; -EINVAL, -ENOMEM. */
static int names_model(struct tr_grpc_call *c, const char *msg, uint32_t len, bool *ours)
{
    const struct tr_frontend_config *cfg = c->g->fe->cfg;
    char *name, *version;
    int rc = tr_oip_read_name(msg, len, &name, &version);

    if (rc)
        return rc;
    *ours = tr_oip_version_is_ours(version) &&
            (strcmp(name, cfg->served_name) == 0 ||
             (cfg->model_stem && strcmp(name, cfg->model_stem) == 0));
    free(name);
    free(version);
    return 0;
}

static void model_ready(struct tr_grpc_call *c, char *msg, uint32_t len)
{
    bool ours;
    int rc = names_model(c, msg, len, &ours);

    free(msg);
    if (rc)
        bad_message(c, rc);
    else
        answer_bool(c, ours && tr_fe_ready(c->g->fe) == TR_OK);
}

static void model_metadata(struct tr_grpc_call *c, char *msg, uint32_t len)
{
    struct tr_emit out;
    bool ours;
    int rc = names_model(c, msg, len, &ours);

    free(msg);
    if (rc) {
        bad_message(c, rc);
        return;
    }
    if (!ours) {
        tr_grpc_call_end(c, TR_GRPC_NOT_FOUND, tr_err_info(TR_ERR_MODEL_NOT_FOUND)->sentence);
        return;
    }
    tr_emit_init(&out);
    tr_oip_model_metadata(&out, c->g->fe->cfg->served_name);
    answer(c, &out);
    tr_emit_fini(&out);
}

/* ---- health ---- */

static const char inference[] = "inference.GRPCInferenceService";

static enum tr_health health_of(const struct tr_grpc *g)
{
    return tr_fe_ready(g->fe) == TR_OK && !g->leaving ? TR_HEALTH_SERVING : TR_HEALTH_NOT_SERVING;
}

static void tell_health(struct tr_grpc_call *c, enum tr_health h)
{
    struct tr_emit out;

    tr_emit_init(&out);
    tr_oip_health(&out, h);
    if (!out.failed)
        tr_grpc_call_write(c, out.buf, out.len);
    c->told = h;
    tr_emit_fini(&out);
}

/* Whether the message names the whole server or a service of it; -EINVAL, -ENOMEM. */
static int names_service(const char *msg, uint32_t len, bool *ours)
{
    char *service;
    int rc = tr_oip_read_service(msg, len, &service);

    if (rc)
        return rc;
    *ours = !*service || strcmp(service, inference) == 0;
    free(service);
    return 0;
}

static void health_check(struct tr_grpc_call *c, char *msg, uint32_t len)
{
    bool ours;
    int rc = names_service(msg, len, &ours);

    free(msg);
    if (rc) {
        bad_message(c, rc);
    } else if (!ours) {
        tr_grpc_call_end(c, TR_GRPC_NOT_FOUND, "This service is not known here.");
    } else {
        tell_health(c, health_of(c->g));
        tr_grpc_call_end(c, TR_GRPC_OK, NULL);
    }
}

static void health_watch(struct tr_grpc_call *c, char *msg, uint32_t len)
{
    bool ours;
    int rc = names_service(msg, len, &ours);

    free(msg);
    if (rc)
        bad_message(c, rc);
    else
        tell_health(c, ours ? health_of(c->g) : TR_HEALTH_SERVICE_UNKNOWN);
}

/* ---- methods ---- */

static const struct tr_grpc_method methods[] = {
    {.path = "/inference.GRPCInferenceService/ModelStreamInfer",
     .in_stream = true,
     .keyed = true,
     .message = tr_grpc_infer},
    {.path = "/inference.GRPCInferenceService/ModelInfer", .keyed = true, .message = tr_grpc_infer},
    {.path = "/inference.GRPCInferenceService/ServerLive", .message = server_live},
    {.path = "/inference.GRPCInferenceService/ServerReady", .message = server_ready},
    {.path = "/inference.GRPCInferenceService/ModelReady", .message = model_ready},
    {.path = "/inference.GRPCInferenceService/ServerMetadata", .message = server_metadata},
    {.path = "/inference.GRPCInferenceService/ModelMetadata", .message = model_metadata},
    {.path = "/grpc.health.v1.Health/Check", .message = health_check},
    {.path = "/grpc.health.v1.Health/Watch", .message = health_watch},
};

const struct tr_grpc_method *tr_grpc_find_method(struct tr_slice path)
{
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (strlen(methods[i].path) == path.len && memcmp(methods[i].path, path.p, path.len) == 0)
            return &methods[i];
    return NULL;
}

/* ---- life ---- */

static void on_reap(evutil_socket_t fd, short what, void *arg)
{
    struct tr_grpc *g = arg;

    (void)fd;
    (void)what;
    tr_grpc_free_requests(&g->dead);
}

struct tr_grpc *tr_grpc_new(struct tr_fe *fe, struct tr_httpd *d)
{
    struct tr_grpc *g = calloc(1, sizeof(*g));

    if (!g)
        return NULL;
    g->fe = fe;
    TAILQ_INIT(&g->calls);
    TAILQ_INIT(&g->receiving);
    TAILQ_INIT(&g->dead);
    g->reap = event_new(fe->base, -1, 0, on_reap, g);
    if (!g->reap) {
        free(g);
        return NULL;
    }
    tr_h2_serve(d, &tr_grpc_service, g);
    return g;
}

void tr_grpc_free(struct tr_grpc *g)
{
    if (!g)
        return;
    tr_grpc_free_requests(&g->dead);
    event_free(g->reap);
    free(g);
}

void tr_grpc_tick(struct tr_grpc *g)
{
    struct tr_grpc_call *c;
    bool leave = g->fe->drain >= TR_DRAIN_CLOSED || g->fe->retires;

    tr_grpc_calls_look(g);
    g->leaving = leave;
    enum tr_health h = health_of(g);
    if (!leave && h == g->health)
        return;
    g->health = h;
    TAILQ_FOREACH(c, &g->calls, link)
    {
        if (c->ended)
            continue;
        if (c->told && c->told != TR_HEALTH_SERVICE_UNKNOWN && c->told != h)
            tell_health(c, h);
        c->leaving = leave;
        if (leave)
            tr_grpc_call_look(c);
    }
}
