/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/sse.h"

#include <errno.h>
#include <string.h>

const char *tr_frame_content_type(enum tr_frame f)
{
    return f == TR_TEXT     ? "text/plain; charset=utf-8"
           : f == TR_NDJSON ? "application/x-ndjson"
                            : "text/event-stream; charset=utf-8";
}

static void put(struct tr_emit *e, const char *s)
{
    tr_emit_bytes(e, s, strlen(s));
}

static void line(struct tr_emit *e, const char *field, const char *value)
{
    put(e, field);
    put(e, value);
    put(e, "\n");
}

static bool one_line(const char *s, size_t len)
{
    return !len || (!memchr(s, '\n', len) && !memchr(s, '\r', len) && !memchr(s, '\0', len));
}

int tr_frame_event(struct tr_emit *e, enum tr_frame f, const char *id, const char *type,
                   const char *json, size_t len)
{
    if (!one_line(json, len) || (id && !one_line(id, strlen(id))) ||
        (type && !one_line(type, strlen(type))))
        return -EINVAL;
    if (f == TR_SSE_NATIVE && id)
        line(e, "id: ", id);
    if ((f == TR_SSE_NATIVE || f == TR_SSE_TYPED) && type)
        line(e, "event: ", type);
    if (f == TR_JSON) {
        tr_emit_bytes(e, json, len);
        return e->failed ? -ENOMEM : 0;
    }
    if (f != TR_NDJSON)
        put(e, "data: ");
    tr_emit_bytes(e, json, len);
    put(e, f == TR_NDJSON ? "\n" : "\n\n");
    return e->failed ? -ENOMEM : 0;
}

void tr_frame_done(struct tr_emit *e, enum tr_frame f)
{
    if (f == TR_SSE_BARE || f == TR_SSE_TYPED)
        put(e, "data: [DONE]\n\n");
}

void tr_frame_keepalive(struct tr_emit *e, enum tr_frame f)
{
    if (f == TR_PROTO || f == TR_TEXT)
        return;
    if (f == TR_JSON)
        put(e, "{\"type\":\"keepalive\"}");
    else if (f == TR_NDJSON)
        put(e, "{\"type\":\"keepalive\"}\n");
    else
        put(e, f == TR_SSE_NATIVE ? ": keepalive\n" : ": keepalive\n\n");
}

void tr_frame_ping(struct tr_emit *e)
{
    put(e, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
}
