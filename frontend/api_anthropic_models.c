/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_anthropic_models.c - GET /v1/models as Anthropic's clients read it. */
#include "frontend/api_anthropic.h"

#include <errno.h>
#include <time.h>

bool tr_anthropic_asks(struct tr_exchange *x, const struct tr_http_request *rq)
{
    if (!tr_http_field(rq->http, "anthropic-version").p)
        return false;
    x->error_body = tr_anthropic_error;
    tr_exchange_header(x, "Request-Id", rq->request_id);
    return true;
}

void tr_anthropic_model(struct tr_emit *e, const struct tr_fe *fe)
{
    char date[32];
    time_t at = (time_t)fe->cfg->created_s;
    struct tm tm;

    gmtime_r(&at, &tm);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &tm);
    tr_emit_obj(e);
    tr_emit_kstr(e, "type", "model");
    tr_emit_kstr(e, "id", fe->cfg->served_name);
    tr_emit_kstr(e, "display_name", fe->cfg->served_name);
    tr_emit_kstr(e, "created_at", date);
    tr_emit_kstr(e, "lifecycle", "active");
    tr_emit_ku64(e, "max_input_tokens", fe->shm->config.n_ctx);
    tr_emit_ku64(e, "max_tokens", fe->shm->config.n_ctx);
    tr_emit_knull(e, "capabilities");
    tr_emit_knull(e, "line");
    tr_emit_knull(e, "deprecated_at");
    tr_emit_knull(e, "retires_at");
    tr_emit_obj_end(e);
}

/* One page holds the one model; there is nothing before or after it. */
void tr_anthropic_models(struct tr_emit *e, const struct tr_fe *fe,
                         const struct tr_http_request *rq)
{
    char arg[8];
    bool other = tr_http_query(rq->http, "after_id", arg, sizeof(arg)) != -ENOENT ||
                 tr_http_query(rq->http, "before_id", arg, sizeof(arg)) != -ENOENT;

    tr_emit_obj(e);
    tr_emit_key(e, "data");
    tr_emit_arr(e);
    if (!other)
        tr_anthropic_model(e, fe);
    tr_emit_arr_end(e);
    tr_emit_kbool(e, "has_more", false);
    tr_emit_kstr(e, "first_id", other ? NULL : fe->cfg->served_name);
    tr_emit_kstr(e, "last_id", other ? NULL : fe->cfg->served_name);
    tr_emit_obj_end(e);
}
