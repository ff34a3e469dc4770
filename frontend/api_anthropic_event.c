/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_anthropic_event.c - the events and the body of an answer of Anthropic's Messages, and the shape
 * of its errors.
 *
 * A stream is message_start, then for each block content_block_start, a content_block_delta for each delta
 * and content_block_stop; then message_delta with the stop reason and the usage, and message_stop.  Blocks
 * are text, thinking and calls (tool_use), as they come; an answer of nothing has none.  A failure is one event `error`, whatever came before.  message_start waits for the first
 * content: by then it is known how much of the prompt was cached, and clients take its counts as they
 * are.
 *
 * Usage: input_tokens are those of the prompt that were computed, cache_read_input_tokens those that were
 * not; together they are the prompt, as in Anthropic's own. */
#include "frontend/api_anthropic.h"

#include "frontend/api.h"
#include "frontend/call_id.h"
#include "frontend/sections.h"

#include <stdio.h>
#include <string.h>

/* ---- errors ---- */

static const char *error_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 408:
    case 504:
        return "timeout_error";
    case 503:
        return "overloaded_error";
    default:
        return status < 500 ? "invalid_request_error" : "api_error";
    }
}

/* The field first, as there is no member for it. */
static void error_message(struct tr_emit *e, const char *message, const char *param)
{
    bool named = !param || strncmp(message, param, strlen(param)) == 0;

    tr_emit_key(e, "message");
    tr_emit_str_open(e);
    if (!named) {
        tr_emit_str_piece(e, param, strlen(param));
        tr_emit_str_piece(e, ": ", 2);
    }
    tr_emit_str_piece(e, message, strlen(message));
    tr_emit_str_close(e);
}

/* All of it but its last brace. */
static void open_error(struct tr_emit *e, const struct tr_problem *p)
{
    const struct tr_err_info *i = tr_err_info(p->err);

    tr_emit_obj(e);
    tr_emit_kstr(e, "type", "error");
    tr_emit_key(e, "error");
    tr_emit_obj(e);
    tr_emit_kstr(e, "type", error_type(i->status));
    error_message(e, p->message, p->param);
    tr_emit_key(e, "details");
    tr_emit_obj(e);
    tr_emit_kstr(e, "error_code", i->code);
    if (p->param)
        tr_emit_kstr(e, "param", p->param);
    tr_emit_obj_end(e);
    tr_emit_obj_end(e);
    tr_emit_kstr(e, "request_id", p->request_id);
}

void tr_anthropic_error(struct tr_emit *e, const struct tr_problem *p)
{
    open_error(e, p);
    tr_emit_obj_end(e);
}

/* ---- pieces of a message ---- */

static const char *stop_reason(const struct tr_stream *s)
{
    const struct tr_choice *ch = &s->choice[0];

    if (*tr_choice_finish(s, ch) == 't')
        return "tool_use";
    if (tr_choice_stop(s, ch).p)
        return "stop_sequence";
    if (*tr_choice_finish(s, ch) != 'l')
        return "end_turn";
    return tr_choice_is_full(s, ch) ? "model_context_window_exceeded" : "max_tokens";
}

/* Why it stopped; `s` NULL: it has not yet. */
static void emit_stop(struct tr_emit *e, const struct tr_stream *s)
{
    struct tr_str stop = s ? tr_choice_stop(s, &s->choice[0]) : (struct tr_str){0};

    tr_emit_kstr(e, "stop_reason", s ? stop_reason(s) : NULL);
    if (stop.p)
        tr_emit_kstrn(e, "stop_sequence", stop.p, stop.len);
    else
        tr_emit_knull(e, "stop_sequence");
    tr_emit_knull(e, "stop_details");
    tr_emit_knull(e, "container");
}

static void emit_counts(struct tr_emit *e, const struct tr_stream *s, bool ended)
{
    struct tr_usage u = tr_stream_usage(s);

    tr_emit_ku64(e, "input_tokens", u.prompt > u.cached ? u.prompt - u.cached : 0);
    tr_emit_ku64(e, "cache_creation_input_tokens", 0);
    tr_emit_ku64(e, "cache_read_input_tokens", u.cached);
    tr_emit_ku64(e, "output_tokens", ended ? u.completion : 0);
    tr_emit_knull(e, "output_tokens_details");
    tr_emit_knull(e, "server_tool_use");
}

/* The type has the member; some clients take null in it, some want it, and none minds an empty one. */
static void no_citations(struct tr_emit *e)
{
    tr_emit_key(e, "citations");
    tr_emit_arr(e);
    tr_emit_arr_end(e);
}

static void open_message(struct tr_emit *e, const struct tr_stream *s)
{
    tr_emit_obj(e);
    tr_emit_kstr(e, "id", s->id);
    tr_emit_kstr(e, "type", "message");
    tr_emit_kstr(e, "role", "assistant");
    tr_emit_kstr(e, "model", s->fe->cfg->served_name);
    tr_emit_key(e, "content");
    tr_emit_arr(e);
}

static void close_message(struct tr_emit *e, const struct tr_stream *s, bool ended)
{
    tr_emit_arr_end(e);
    emit_stop(e, ended ? s : NULL);
    tr_emit_key(e, "usage");
    tr_emit_obj(e);
    emit_counts(e, s, ended);
    tr_emit_knull(e, "cache_creation");
    tr_emit_knull(e, "inference_geo");
    tr_emit_knull(e, "service_tier");
    tr_emit_obj_end(e);
    tr_emit_obj_end(e);
}

/* ---- events ---- */

static void begin(struct tr_stream *s, const char *type)
{
    struct tr_emit *e = &s->fe->json;

    tr_emit_reset(e);
    tr_emit_obj(e);
    tr_emit_kstr(e, "type", type);
}

/* Closes it and sends it; for a stream that can be resumed, with where its reader is. */
static void send_event(struct tr_stream *s, const char *type)
{
    struct tr_emit *e = &s->fe->json;
    char cursor[TR_STREAM_ID_BYTES + 24];

    if (s->ask->params.flags & TR_REQ_RESUMABLE) {
        snprintf(cursor, sizeof(cursor), "%s:%llu", s->stream_id,
                 (unsigned long long)(s->number - 1));
        tr_emit_key(e, "tokenring");
        tr_emit_obj(e);
        tr_emit_kstr(e, "cursor", cursor);
        tr_emit_obj_end(e);
    }
    tr_emit_obj_end(e);
    tr_stream_frame(s, type, -1);
}

static void begin_block_event(struct tr_stream *s, const char *type)
{
    begin(s, type);
    tr_emit_ku64(&s->fe->json, "index", s->choice[0].blocks - 1);
}

static void message_start(struct tr_stream *s)
{
    struct tr_emit *e = &s->fe->json;

    if (!tr_stream_count(s, 1))
        return;
    begin(s, "message_start");
    tr_emit_key(e, "message");
    open_message(e, s);
    close_message(e, s, false);
    send_event(s, "message_start");
}

/* ---- blocks ---- */

static void text_block(struct tr_emit *e)
{
    tr_emit_kstr(e, "type", "text");
    tr_emit_kstr(e, "text", "");
    no_citations(e);
}

static void thinking_block(struct tr_emit *e)
{
    tr_emit_kstr(e, "type", "thinking");
    tr_emit_kstr(e, "thinking", "");
    tr_emit_kstr(e, "signature", "");
}

/* Up to its name, whose value is the caller's. */
static void open_call(struct tr_emit *e, const struct tr_stream *s, uint32_t call)
{
    char id[TR_CALL_ID_BYTES];

    tr_call_id(s->name, s->ask->tool_format, 0, call, "toolu_", id);
    tr_emit_kstr(e, "type", "tool_use");
    tr_emit_kstr(e, "id", id);
    tr_emit_key(e, "caller"); /* the model, as there is no other */
    tr_emit_raw(e, "{\"type\":\"direct\"}", 17);
    tr_emit_key(e, "name");
}

static void block_stop(struct tr_stream *s)
{
    struct tr_choice *ch = &s->choice[0];

    if (!ch->block_open)
        return;
    ch->block_open = false;
    if (!tr_stream_count(s, 1))
        return;
    begin_block_event(s, "content_block_stop");
    send_event(s, "content_block_stop");
}

/* Begins the block that the event belongs to, unless it is open. */
static void block_start(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_choice *ch = &s->choice[0];
    struct tr_emit *e = &s->fe->json;

    if (ch->block_open && ch->block == ev->type)
        return;
    block_stop(s);
    ch->block_open = true;
    ch->block = ev->type;
    ch->blocks++;
    if (!tr_stream_count(s, 1))
        return;
    begin_block_event(s, "content_block_start");
    tr_emit_key(e, "content_block");
    tr_emit_obj(e);
    if (ev->type == TR_EV_CALL) {
        open_call(e, s, ev->call);
        tr_emit_strn(e, ev->text, ev->text_len);
        tr_emit_key(e, "input");
        tr_emit_raw(e, "{}", 2);
    } else if (ev->type == TR_EV_REASONING) {
        thinking_block(e);
    } else {
        text_block(e);
    }
    tr_emit_obj_end(e);
    send_event(s, "content_block_start");
}

/* Up to the text, the same for all deltas of a block. */
static void begin_delta(struct tr_stream *s, const struct tr_event *ev)
{
    static const char *const type[] = {[TR_EV_DELTA] = "text_delta",
                                       [TR_EV_REASONING] = "thinking_delta",
                                       [TR_EV_CALL_ARGS] = "input_json_delta"};
    static const char *const key[] = {
        [TR_EV_DELTA] = "text", [TR_EV_REASONING] = "thinking", [TR_EV_CALL_ARGS] = "partial_json"};
    struct tr_emit *e = &s->fe->json;

    begin_block_event(s, "content_block_delta");
    tr_emit_key(e, "delta");
    tr_emit_obj(e);
    tr_emit_kstr(e, "type", type[ev->type]);
    tr_emit_key(e, key[ev->type]);
}

static void block_delta(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_emit *e = &s->fe->json;

    if (ev->type != TR_EV_CALL_ARGS)
        block_start(s, ev);
    if (!tr_stream_count(s, ev->members))
        return;
    /* A text may come in two blocks, so the call is none to know them by: the block is. */
    struct tr_event as = *ev;
    as.call = s->choice[0].blocks;
    if (!tr_stream_begin_again(s, &as)) {
        begin_delta(s, ev);
        tr_stream_keep_begin(s, &as);
    }
    tr_emit_strn(e, ev->text, ev->text_len);
    tr_emit_obj_end(e);
    send_event(s, "content_block_delta");
}

static void content(struct tr_stream *s, const struct tr_event *ev)
{
    if (!s->choice[0].begun)
        message_start(s);
    if (ev->type == TR_EV_CALL)
        block_start(s, ev);
    else if (ev->type == TR_EV_CALL_DONE)
        block_stop(s);
    else
        block_delta(s, ev);
}

static void message_delta(struct tr_stream *s)
{
    struct tr_emit *e = &s->fe->json;

    if (!tr_stream_count(s, 1))
        return;
    begin(s, "message_delta");
    tr_emit_key(e, "delta");
    tr_emit_obj(e);
    emit_stop(e, s);
    tr_emit_obj_end(e);
    tr_emit_key(e, "usage");
    tr_emit_obj(e);
    emit_counts(e, s, true);
    tr_emit_obj_end(e);
    send_event(s, "message_delta");
}

static void message_stop(struct tr_stream *s)
{
    if (!tr_stream_count(s, 1))
        return;
    begin(s, "message_stop");
    send_event(s, "message_stop");
}

static void error_event(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_problem p = {.err = ev->err,
                           .message = tr_err_info(ev->err)->sentence,
                           .request_id = s->ask->request_id};

    if (!tr_stream_count(s, 1))
        return;
    tr_emit_reset(&s->fe->json);
    open_error(&s->fe->json, &p);
    send_event(s, "error");
}

void tr_anthropic_event(struct tr_stream *s, const struct tr_event *ev)
{
    switch (ev->type) {
    case TR_EV_STARTED:
    case TR_EV_QUEUED:
    case TR_EV_PREFILL:
        return;
    case TR_EV_DELTA:
    case TR_EV_REASONING:
    case TR_EV_CALL:
    case TR_EV_CALL_ARGS:
    case TR_EV_CALL_DONE:
        content(s, ev);
        return;
    case TR_EV_FINISH:
        if (!s->choice[0].begun)
            message_start(s);
        block_stop(s);
        return;
    case TR_EV_USAGE:
        if (!ev->err)
            message_delta(s);
        return;
    case TR_EV_END:
        message_stop(s);
        return;
    case TR_EV_FAIL:
        error_event(s, ev);
        return;
    }
}

/* The arguments as the object that they are, in the model's own words: they may be nested deeper than the emitter
 * goes.  A call that was cut has none. */
static void input(struct tr_emit *e, const struct tr_sections *w, uint32_t i)
{
    struct tr_json_fault ignored;
    struct tr_json_doc *quoted = NULL, *doc = NULL;
    const struct tr_json *said = NULL;
    struct tr_emit text;

    tr_emit_init(&text);
    tr_sections_text(w, i, &text);
    if (w->at[i].done && !text.failed)
        quoted = tr_json_parse(text.buf, text.len, &ignored);
    if (quoted)
        said = tr_json_root(quoted);
    if (said)
        doc = tr_json_parse(said->u.s, said->len, &ignored);
    tr_emit_key(e, "input");
    if (doc)
        tr_emit_raw(e, said->u.s, said->len);
    else
        tr_emit_raw(e, "{}", 2);
    tr_json_free(doc);
    tr_json_free(quoted);
    tr_emit_fini(&text);
}

static void section(struct tr_stream *s, struct tr_emit *e, const struct tr_sections *w, uint32_t i)
{
    tr_emit_obj(e);
    if (w->at[i].kind == TR_PART_CALL) {
        open_call(e, s, w->at[i].call);
        tr_sections_name(w, i, e);
        input(e, w, i);
    } else if (w->at[i].kind == TR_PART_REASONING) {
        tr_emit_kstr(e, "type", "thinking");
        tr_emit_key(e, "thinking");
        tr_sections_text(w, i, e);
        tr_emit_kstr(e, "signature", "");
    } else {
        tr_emit_kstr(e, "type", "text");
        tr_emit_key(e, "text");
        tr_sections_text(w, i, e);
        no_citations(e);
    }
    tr_emit_obj_end(e);
}

void tr_anthropic_answer(struct tr_stream *s, struct tr_emit *e)
{
    const struct tr_sections *w = tr_whole_sections(s, 0);

    open_message(e, s);
    for (uint32_t i = 0; i < w->n; i++)
        section(s, e, w, i);
    close_message(e, s, true);
}
