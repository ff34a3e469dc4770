/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/exchange.c - see exchange.h. */
#include "frontend/exchange.h"

#include "base/assert.h"
#include "base/emit.h"

#include <stdarg.h>
#include <stdio.h>

void tr_exchange_bind(struct tr_exchange *x, const struct tr_owner_ops *ops, void *owner)
{
    TR_ASSERT(!x->owner_ops);
    x->owner_ops = ops;
    x->owner = owner;
    if (x->ops->bound)
        x->ops->bound(x);
}

void tr_exchange_unbind(struct tr_exchange *x)
{
    x->owner_ops = NULL;
    x->owner = NULL;
}

/* ---- errors ---- */

void tr_error_body_openai(struct tr_emit *e, const struct tr_problem *p)
{
    const struct tr_err_info *info = tr_err_info(p->err);

    tr_emit_obj(e);
    tr_emit_key(e, "error");
    tr_emit_obj(e);
    tr_emit_kstr(e, "message", p->message);
    tr_emit_kstr(e, "type", info->type);
    tr_emit_kstr(e, "param", p->param);
    tr_emit_kstr(e, "code", info->code);
    tr_emit_obj_end(e);
    tr_emit_obj_end(e);
}

static void reply_problem(struct tr_exchange *x, const struct tr_problem *p)
{
    const struct tr_err_info *info = tr_err_info(p->err);
    struct tr_emit j;
    char wait[12];

    if (info->status == 503 || info->status == 429) {
        snprintf(wait, sizeof(wait), "%u", x->retry_s ? x->retry_s : 1);
        tr_exchange_header(x, "Retry-After", wait);
    }
    x->retry_s = 0;
    if (info->status == 401)
        tr_exchange_header(x, "WWW-Authenticate", "Bearer");
    tr_emit_init(&j);
    (x->error_body ? x->error_body : tr_error_body_openai)(&j, p);
    if (j.failed)
        tr_exchange_stream_abort(x, true);
    else
        tr_exchange_reply(x, info->status, "application/json", j.buf, j.len);
    tr_emit_fini(&j);
}

void tr_exchange_error(struct tr_exchange *x, enum tr_err e, const char *message, const char *param)
{
    struct tr_problem p = {.err = e,
                           .message = message ? message : tr_err_info(e)->sentence,
                           .param = param,
                           .request_id = x->request_id ? x->request_id : ""};

    if (x->access)
        tr_access_error(x, e);
    if (x->ops->error)
        x->ops->error(x, &p);
    else
        reply_problem(x, &p);
    if (x->access)
        tr_access_over(x, true);
}

void tr_exchange_errorf(struct tr_exchange *x, enum tr_err e, const char *param, const char *fmt,
                        ...)
{
    char message[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    tr_exchange_error(x, e, message, param);
}
