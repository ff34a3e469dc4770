/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_resume.c - GET /v1/streams/{id}: a reader comes (back) to a resumable stream.
 *
 * Where he stands is the header Last-Event-ID, "<stream id>:<number>" or the number alone, or ?after=N; the
 * header wins, for a browser that reconnects by itself sends the URL it had and the newer position in
 * the header.  ?format= chooses the dialect, whose numbers are meant. */
#include "frontend/api.h"
#include "frontend/find.h"
#include "frontend/hold.h"
#include "frontend/resume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ARG_BYTES = 64 };

/* ---- what is asked for ---- */

int tr_api_read_number(const char *text, size_t len, int64_t *out)
{
    char buf[20];

    if (len == 0 || len >= sizeof(buf) - 1)
        return -EINVAL;
    memcpy(buf, text, len);
    buf[len] = '\0';
    if (strspn(buf, "0123456789") != len)
        return -EINVAL;
    *out = (int64_t)strtoull(buf, NULL, 10); /* 18 digits fit */
    return 0;
}

/* "<stream id>:<number>" of this stream, or the number. */
static int read_event_id(struct tr_slice v, struct tr_stream_id id, int64_t *after)
{
    const char *colon = memchr(v.p, ':', v.len);
    struct tr_stream_id of;

    if (!colon)
        return tr_api_read_number(v.p, v.len, after);
    size_t n = (size_t)(colon - v.p);
    if (tr_stream_id_parse(v.p, n, &of) || of.slot != id.slot || of.gen != id.gen ||
        of.rand != id.rand)
        return -EINVAL;
    return tr_api_read_number(colon + 1, v.len - n - 1, after);
}

static int read_position(const struct tr_http_request *rq, struct tr_stream_id id, int64_t *after,
                         struct tr_fault *f)
{
    struct tr_slice v = tr_http_field(rq->http, "last-event-id");
    char buf[ARG_BYTES];

    *after = -1;
    if (v.p && v.len) {
        if (read_event_id(v, id, after) == 0)
            return 0;
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "Last-Event-ID",
                            "Last-Event-ID must be an event's id of this stream, or its number.");
    }
    int len = tr_http_query(rq->http, "after", buf, sizeof(buf));
    if (len == -ENOENT || (len >= 0 && tr_api_read_number(buf, (size_t)len, after) == 0))
        return 0;
    return tr_fault_set(f, TR_ERR_BAD_PARAM, "after",
                        "after must be the number of an event of this stream.");
}

static int read_format(const struct tr_http_request *rq, struct tr_reader *r, struct tr_fault *f)
{
    static const char *const name[TR_APIS] = {
#define X(id, name) [TR_API_##id] = #name,
#include "frontend/dialects.def"
#undef X
    };
    char buf[ARG_BYTES];
    int len = tr_http_query(rq->http, "format", buf, sizeof(buf));
    unsigned api = TR_API_NATIVE;

    if (len != -ENOENT)
        for (api = 0; api < TR_APIS; api++)
            if (len > 0 && strcmp(buf, name[api]) == 0)
                break;
    r->dialect = tr_dialect_of(api);
    if (!r->dialect)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "format",
                            "format must be the name of a dialect, such as native or chat.");
    r->frame = api == TR_API_NATIVE ? tr_api_native_frame(rq) : r->dialect->frame;
    return 0;
}

/* ---- the answer ---- */

static void refuse(struct tr_exchange *x, enum tr_err e)
{
    tr_exchange_error(x, e, e == TR_ERR_NOT_FOUND ? "No stream of this id can be resumed." : NULL,
                      NULL);
}

/* The dialects of messages and of a prompt are not the same answer, and others are for what was asked in
 * their words. */
static bool fits(const struct tr_stream *s, const struct tr_reader *r)
{
    enum tr_api as = r->dialect->api;

    if (as == TR_API_CHAT || as == TR_API_COMPLETIONS)
        return s->ask->chat == (as == TR_API_CHAT);
    return as == TR_API_NATIVE || as == s->ask->api;
}

static void give(struct tr_stream *s, const struct tr_reader *r, bool head_only)
{
    if (!fits(s, r))
        tr_exchange_error(
            r->x, TR_ERR_BAD_PARAM,
            "This stream cannot be read in this format: completions is for a prompt, chat for "
            "messages, others for what was asked in their words.",
            "format");
    else if (head_only)
        tr_exchange_reply(r->x, 200, tr_frame_content_type(r->frame), NULL, 0);
    else if (s->hold.taking)
        tr_resume_wait(s, r);
    else
        tr_resume_give(s, r);
}

void tr_api_resume_as(struct tr_fe *fe, const struct tr_http_request *rq, struct tr_stream_id id,
                      const struct tr_reader *r)
{
    bool head_only = rq->http->method == TR_HTTP_HEAD_METHOD;
    struct tr_exchange *x = r->x;
    char key[TR_KEY_BYTES];
    enum tr_err e;

    tr_api_key(rq, key);
    struct tr_stream *s = tr_find_stream(fe, id, key, &e);
    if (!s && e == TR_OK && head_only) {
        tr_exchange_reply(x, 200, tr_frame_content_type(r->frame), NULL, 0);
        return;
    }
    if (!s && e == TR_OK) {
        s = tr_hold_ask(fe, id);
        if (!s && !tr_find_stream(fe, id, key, &e) && e == TR_OK)
            e = TR_ERR_INTERNAL; /* it is there: there is no memory, or it makes no sense */
    }
    if (s)
        give(s, r, head_only);
    else
        refuse(x, e);
}

void tr_api_resume(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    struct tr_reader r = {.x = x};
    struct tr_fe *fe = ctx;
    struct tr_stream_id id;
    struct tr_fault fault;

    if (tr_stream_id_parse(rq->id_param.p, rq->id_param.len, &id) ||
        id.slot >= fe->shm->config.n_slots)
        refuse(x, TR_ERR_NOT_FOUND);
    else if (read_position(rq, id, &r.after, &fault) || read_format(rq, &r, &fault))
        tr_api_refuse(fe, x, &fault);
    else
        tr_api_resume_as(fe, rq, id, &r);
}
