/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_openai.c - see api_openai.h. */
#include "frontend/api_openai.h"

#include <stdio.h>

void tr_openai_open(struct tr_stream *s, struct tr_emit *e, const char *object)
{
    tr_emit_obj(e);
    tr_emit_kstr(e, "id", s->id);
    tr_emit_kstr(e, "object", object);
    tr_emit_ku64(e, "created", s->created);
    tr_emit_kstr(e, "model", s->fe->cfg->served_name);
    tr_emit_key(e, "choices");
    tr_emit_arr(e);
}

void tr_openai_close_choice(struct tr_stream *s, struct tr_emit *e, struct tr_choice *ch)
{
    tr_emit_key(e, "logprobs");
    if (s->ask->logprobs)
        tr_lp_emit_text(e, s->ask->chat, &ch->lp_text);
    else
        tr_emit_null(e);
    tr_emit_kstr(e, "finish_reason", tr_choice_finish(s, ch));
    tr_emit_obj_end(e);
}

void tr_openai_close(struct tr_stream *s, struct tr_emit *e)
{
    struct tr_usage u = tr_stream_usage(s);

    tr_emit_arr_end(e);
    tr_api_usage(e, &u);
    tr_emit_obj_end(e);
}

/* The end of a chunk: for a stream that can be resumed, where its reader is. */
static void close_chunk(struct tr_stream *s)
{
    struct tr_emit *e = &s->fe->json;
    char text[TR_STREAM_ID_BYTES + 64];

    if (s->ask->params.flags & TR_REQ_RESUMABLE) {
        int n = snprintf(text, sizeof(text), ",\"tokenring\":{\"cursor\":\"%s:%llu\"}",
                         s->stream_id, (unsigned long long)(s->number - 1));
        tr_emit_bytes(e, text, (size_t)n);
    }
    tr_emit_bytes(e, "}", 1);
    tr_stream_frame(s, NULL, -1);
}

void tr_openai_send(struct tr_stream *s, const char *finish)
{
    struct tr_emit *e = &s->fe->json;

    tr_emit_kstr(e, "finish_reason", finish);
    tr_emit_obj_end(e);
    tr_emit_arr_end(e);
    if (s->ask->include_usage)
        tr_emit_knull(e, "usage");
    close_chunk(s);
}

void tr_openai_send_plain(struct tr_stream *s)
{
    static const char tail[] = ",\"logprobs\":null,\"finish_reason\":null}]",
                      usage[] = ",\"usage\":null";
    struct tr_emit *e = &s->fe->json;

    tr_emit_bytes(e, tail, sizeof(tail) - 1);
    if (s->ask->include_usage)
        tr_emit_bytes(e, usage, sizeof(usage) - 1);
    close_chunk(s);
}

static void send_usage(struct tr_stream *s, const char *object)
{
    struct tr_emit *e = &s->fe->json;
    struct tr_usage u = tr_stream_usage(s);

    if (!tr_stream_count(s, 1))
        return;
    tr_emit_reset(e);
    tr_openai_open(s, e, object);
    tr_emit_arr_end(e);
    tr_api_usage(e, &u);
    close_chunk(s);
}

static void send_error(struct tr_stream *s, enum tr_err err)
{
    const struct tr_err_info *i = tr_err_info(err);
    struct tr_emit *e = &s->fe->json;

    if (!tr_stream_count(s, 1))
        return;
    tr_emit_reset(e);
    tr_emit_obj(e);
    tr_emit_key(e, "error");
    tr_emit_obj(e);
    tr_emit_kstr(e, "message", i->sentence);
    tr_emit_kstr(e, "type", i->type);
    tr_emit_knull(e, "param");
    tr_emit_kstr(e, "code", i->code);
    tr_emit_obj_end(e);
    close_chunk(s);
}

void tr_openai_end(struct tr_stream *s, const struct tr_event *ev, const char *object)
{
    if (ev->type == TR_EV_USAGE) {
        if (s->ask->include_usage && !ev->err)
            send_usage(s, object);
        return;
    }
    if (ev->type == TR_EV_FAIL)
        send_error(s, ev->err);
    tr_emit_reset(&s->fe->frame);
    tr_frame_done(&s->fe->frame, s->frame);
    tr_stream_write_frame(s);
}
