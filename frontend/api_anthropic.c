/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_anthropic.c - POST /v1/messages: the shapes of Anthropic's Messages.
 *
 * A stream is message_start, then, if there is any text, content_block_start, a content_block_delta for
 * each delta and content_block_stop; then message_delta with the stop reason and the usage, and
 * message_stop.  A failure is one event `error`, whatever came before.  message_start waits for the first
 * content: by then it is known how much of the prompt was cached, and clients take its counts as they
 * are.
 *
 * Usage: input_tokens are those of the prompt that were computed, cache_read_input_tokens those that were
 * not; together they are the prompt, as in Anthropic's own. */
#include "frontend/api_anthropic.h"

#include "frontend/api.h"
#include "frontend/task.h"

#include <errno.h>
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
    tr_emit_ku64(&s->fe->json, "index", 0);
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

static void block_start(struct tr_stream *s)
{
    struct tr_emit *e = &s->fe->json;

    if (!tr_stream_count(s, 1))
        return;
    begin_block_event(s, "content_block_start");
    tr_emit_key(e, "content_block");
    tr_emit_obj(e);
    tr_emit_kstr(e, "type", "text");
    tr_emit_kstr(e, "text", "");
    no_citations(e);
    tr_emit_obj_end(e);
    send_event(s, "content_block_start");
}

/* Up to the text, the same for all deltas. */
static void begin_delta(struct tr_stream *s)
{
    struct tr_emit_piece *head = &s->choice[0].delta_head;
    struct tr_emit *e = &s->fe->json;

    if (head->buf) {
        tr_emit_begin(e, head);
        return;
    }
    begin_block_event(s, "content_block_delta");
    tr_emit_key(e, "delta");
    tr_emit_obj(e);
    tr_emit_kstr(e, "type", "text_delta");
    tr_emit_key(e, "text");
    tr_emit_keep(e, head);
}

static void block_delta(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_emit *e = &s->fe->json;

    if (!s->choice[0].begun) {
        message_start(s);
        block_start(s);
    }
    if (!tr_stream_count(s, ev->members))
        return;
    begin_delta(s);
    tr_emit_strn(e, ev->text, ev->text_len);
    tr_emit_obj_end(e);
    send_event(s, "content_block_delta");
}

/* An answer without text has no block. */
static void block_stop(struct tr_stream *s)
{
    if (!s->choice[0].begun) {
        message_start(s);
        return;
    }
    if (!tr_stream_count(s, 1))
        return;
    begin_block_event(s, "content_block_stop");
    send_event(s, "content_block_stop");
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

static void anthropic_event(struct tr_stream *s, const struct tr_event *ev)
{
    switch (ev->type) {
    case TR_EV_STARTED:
    case TR_EV_QUEUED:
    case TR_EV_PREFILL:
    case TR_EV_REASONING: /* none: all of an answer is text */
    case TR_EV_CALL:
    case TR_EV_CALL_ARGS:
    case TR_EV_CALL_DONE:
        return;
    case TR_EV_DELTA:
        block_delta(s, ev);
        return;
    case TR_EV_FINISH:
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

static void anthropic_body(struct tr_stream *s, struct tr_emit *e)
{
    open_message(e, s);
    if (!tr_whole_is_empty(s, 0)) {
        tr_emit_obj(e);
        tr_emit_kstr(e, "type", "text");
        tr_emit_key(e, "text");
        tr_whole_text(s, 0, e);
        no_citations(e);
        tr_emit_obj_end(e);
    }
    close_message(e, s, true);
}

/* ---- requests ---- */

static int translate(const struct tr_json_doc *doc, const struct tr_json *body,
                     struct tr_translation *t, struct tr_fault *f)
{
    return tr_anthropic_body(doc, body, false, &t->body, f);
}

static void post(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    tr_api_post(x, rq, ctx, &tr_dialect_anthropic, TR_SSE_TYPED);
}

const struct tr_field_row tr_anthropic_fields[] = {
    TR_FIELD_IGNORED("cache_control", "the cache needs no marks"),
    TR_FIELD("chat_template_kwargs", "chat_template_kwargs", "object", "none",
             "given to the template"),
    TR_FIELD_NEVER("container", "", "There is no code execution."),
    TR_FIELD_IGNORED("context_management", "nothing is taken out of a prompt"),
    TR_FIELD_IGNORED("diagnostics", "there are none"),
    TR_FIELD("documents", "documents", "array", "none", "given to the template"),
    TR_FIELD("frequency_penalty", "frequency_penalty", "-2 … 2", "0", "over the answer's tokens"),
    TR_FIELD("ignore_eos", "ignore_eos", "true or false", "false",
             "end-of-turn tokens are tokens like any other"),
    TR_FIELD("include_stop_str_in_output", "include_stop_str_in_output", "true or false", "false",
             "the stop sequence is shown"),
    TR_FIELD_IGNORED("inference_geo", "there is one place"),
    TR_FIELD("logit_bias", "logit_bias", "object of at most 1024 token ids to -100 … 100", "none",
             "added to the logits of these tokens"),
    TR_FIELD("max_tokens", "max_tokens", "0 …", "required",
             "the context is a limit as well, which `stop_reason` tells apart"),
    TR_FIELD_NEVER("mcp_servers", "", "Tools are not called."),
    TR_FIELD("messages", "messages", "array, not empty; the last one not the assistant's",
             "required",
             "roles `user`, `assistant` and `system`; content is a string or blocks of `text`, in "
             "the assistant's `tool_use` and `thinking`, in the user's `tool_result` as well"),
    TR_FIELD("metadata", "metadata", "object", "none", "taken and ignored"),
    TR_FIELD("min_p", "min_p", "0 … 1", "0",
             "tokens less probable than this part of the most probable one are left out"),
    TR_FIELD("min_tokens", "min_tokens", "0 … `max_tokens`", "0", "no end of turn before"),
    TR_FIELD("model", "model", "string", "required", "the served name, or the file's stem"),
    TR_FIELD("output_config", "", "object", "none", "`format`; `effort` is taken and ignored"),
    TR_FIELD("output_config.format", "response_format",
             "object of type `json_schema` with a `schema`", "none",
             "what the answer is: [structured output](structured-output.md)"),
    TR_FIELD_NEVER("output_format", "", "Its place is output_config.format."),
    TR_FIELD("presence_penalty", "presence_penalty", "-2 … 2", "0", "over the answer's tokens"),
    TR_FIELD("priority", "priority", "-32767 … 32767", "0", "lower goes first"),
    TR_FIELD("repetition_penalty", "repetition_penalty", "0.01 … 100", "1",
             "over prompt and answer"),
    TR_FIELD("seed", "seed", "64-bit integer", "drawn",
             "same seed, same tokens, whatever else runs"),
    TR_FIELD_IGNORED("service_tier", "there is one"),
    TR_FIELD("skip_special_tokens", "skip_special_tokens", "true or false", "true",
             "false shows control tokens in the text"),
    TR_FIELD_IGNORED("speed", "there is one"),
    TR_FIELD("stop_sequences", "stop", "array of at most 16 strings of 1 to 1024 bytes", "none",
             "neither it nor anything after it is shown; `stop_sequence` tells which"),
    TR_FIELD("stop_token_ids", "stop_token_ids", "at most 64 token ids", "none",
             "end the answer like an end of turn"),
    TR_FIELD("stream", "stream", "true or false", "false", "events as they come"),
    TR_FIELD("system", "", "string, or blocks of `text`", "none",
             "a message of the system before all others"),
    TR_FIELD("temperature", "temperature", "0 … 2", "1", "0 is greedy, ties to the lowest id"),
    TR_FIELD("thinking", "", "object with a `type`", "none",
             "`disabled`: templates get `enable_thinking` false; `adaptive` and `between_tools` "
             "leave it to the model; `enabled` is refused: thinking has no blocks of its own"),
    TR_FIELD("timeout_s", "timeout_s", "> 0", "none", "deadline, queue included"),
    TR_FIELD("tool_choice", "tool_choice", "object with a `type`", "none",
             "refused unless `auto` or `none`: tools are not called"),
    TR_FIELD("tools", "tools", "array", "none", "refused unless empty: tools are not called"),
    TR_FIELD("top_k", "top_k", "-1 …", "0", "so many of the most probable tokens; 0 and -1: off"),
    TR_FIELD("top_p", "top_p", "0 … 1", "1",
             "the most probable tokens that have this probability together"),
    TR_FIELD_IGNORED("user_profile_id", "there are no profiles"),
    TR_FIELD_IGNORED("workspace_id", "there are no workspaces"),
};
enum { N_FIELDS = sizeof(tr_anthropic_fields) / sizeof(tr_anthropic_fields[0]) };
const size_t tr_anthropic_n_fields = N_FIELDS;

/* ---- count_tokens ---- */

static int translate_count(const struct tr_json_doc *doc, const struct tr_json *body,
                           struct tr_translation *t, struct tr_fault *f)
{
    return tr_anthropic_body(doc, body, true, &t->body, f);
}

/* The way of a message up to its tokens, whose number is the answer, also beyond the context. */
static int make_count(struct tr_task *t)
{
    t->ask->counting = true;
    if (tr_api_make(t))
        return -EINVAL;
    tr_emit_obj(&t->out);
    tr_emit_ku64(&t->out, "input_tokens", t->ask->prompts[0].n);
    tr_emit_obj_end(&t->out);
    return 0;
}

static void count(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    static const struct tr_dialect as_counted = {.api = TR_API_ANTHROPIC,
                                                 .translate = translate_count,
                                                 .fields = tr_anthropic_fields,
                                                 .n_fields = N_FIELDS};

    tr_api_ask(x, rq, ctx, &as_counted, make_count);
}

/* ---- the dialect ---- */

static const struct tr_route routes[] = {
    {.method = TR_HTTP_POST,
     .pattern = "/v1/messages",
     .handler = post,
     .errors = tr_anthropic_error,
     .flags = TR_ROUTE_REQUEST_ID},
    {.method = TR_HTTP_POST,
     .pattern = "/v1/messages/count_tokens",
     .handler = count,
     .errors = tr_anthropic_error,
     .flags = TR_ROUTE_REQUEST_ID},
    /* Nothing is there, and that is said as a client of these routes reads it. */
    {.pattern = "/v1/messages/{id*}", .errors = tr_anthropic_error, .flags = TR_ROUTE_REQUEST_ID},
};

const struct tr_dialect tr_dialect_anthropic = {.api = TR_API_ANTHROPIC,
                                                .id_prefix = "msg_",
                                                .frame = TR_SSE_TYPED,
                                                .translate = translate,
                                                .fields = tr_anthropic_fields,
                                                .n_fields = N_FIELDS,
                                                .event = anthropic_event,
                                                .body = anthropic_body,
                                                .keepalive = tr_frame_ping,
                                                .routes = routes,
                                                .n_routes = sizeof(routes) / sizeof(routes[0])};
