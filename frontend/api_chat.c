/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_chat.c - POST /v1/chat/completions: the shapes of OpenAI's chat completions.
 *
 * A stream is, for each choice, a chunk with the role just before its first content, chunks of
 * content, a chunk with the finish_reason; then the usage chunk if it was asked for; then [DONE].
 * The role waits for the content so that a client that takes the first chunk for the first token
 * does not measure the queue.  A failure is an error chunk and no finish_reason.
 *
 * What is thought is reasoning_content beside the content.  A call is a chunk with its index, id and name,
 * and chunks with pieces of its arguments; nothing tells that it is complete but what follows. */
#include "frontend/api_openai.h"
#include "frontend/call_id.h"
#include "frontend/sections.h"

static const char CHUNK[] = "chat.completion.chunk";

static void begin_chunk(struct tr_stream *s)
{
    struct tr_emit *e = &s->fe->json;

    tr_emit_reset(e);
    tr_openai_open(s, e, CHUNK);
}

static void begin_choice(struct tr_emit *e, uint32_t index)
{
    tr_emit_obj(e);
    tr_emit_ku64(e, "index", index);
    tr_emit_key(e, "delta");
    tr_emit_obj(e);
}

/* Up to the text of an event that has some. */
static void begin_delta(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_emit *e = &s->fe->json;

    if (tr_stream_begin_again(s, ev))
        return;
    begin_chunk(s);
    begin_choice(e, ev->choice);
    if (ev->type == TR_EV_CALL_ARGS) {
        tr_emit_key(e, "tool_calls");
        tr_emit_arr(e);
        tr_emit_obj(e);
        tr_emit_ku64(e, "index", ev->call);
        tr_emit_key(e, "function");
        tr_emit_obj(e);
        tr_emit_key(e, "arguments");
    } else {
        tr_emit_key(e, ev->type == TR_EV_REASONING ? "reasoning_content" : "content");
    }
    tr_stream_keep_begin(s, ev);
}

/* After the delta's members: closes it, the choice and the chunk, and sends. */
static void end_choice(struct tr_stream *s, const char *finish, const struct tr_event *ev)
{
    struct tr_emit *e = &s->fe->json;

    if (!finish && !(ev && ev->lp)) {
        tr_emit_bytes(e, "}", 1);
        tr_openai_send_plain(s);
        return;
    }

    tr_emit_obj_end(e);
    tr_emit_key(e, "logprobs");
    if (ev && ev->lp)
        tr_lp_emit_chat(e, tr_stream_lp_style(s), ev->lp, ev->n_lp);
    else
        tr_emit_null(e);
    tr_openai_send(s, finish);
}

/* A message that begins with a call has no content, unless some comes. */
static void role(struct tr_stream *s, uint32_t choice, bool content)
{
    if (s->choice[choice].begun || !tr_stream_count(s, 1))
        return;
    begin_chunk(s);
    begin_choice(&s->fe->json, choice);
    tr_emit_kstr(&s->fe->json, "role", "assistant");
    tr_emit_kstr(&s->fe->json, "content", content ? "" : NULL);
    end_choice(s, NULL, NULL);
}

static void delta(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_emit *e = &s->fe->json;

    role(s, ev->choice, ev->type != TR_EV_CALL_ARGS);
    if (!tr_stream_count(s, ev->members))
        return;
    begin_delta(s, ev);
    tr_emit_strn(e, ev->text, ev->text_len);
    if (ev->type == TR_EV_CALL_ARGS) {
        tr_emit_obj_end(e);
        tr_emit_obj_end(e);
        tr_emit_arr_end(e);
    }
    end_choice(s, NULL, ev);
}

/* Up to the value of its name; what is before that is the caller's. */
static void open_call(struct tr_stream *s, struct tr_emit *e, uint32_t choice, uint32_t call)
{
    char id[TR_CALL_ID_BYTES];

    tr_call_id(s->name, s->ask->tool_format, choice, call, "call_", id);
    tr_emit_kstr(e, "id", id);
    tr_emit_kstr(e, "type", "function");
    tr_emit_key(e, "function");
    tr_emit_obj(e);
    tr_emit_key(e, "name");
}

static void close_call(struct tr_emit *e)
{
    tr_emit_obj_end(e);
    tr_emit_obj_end(e);
}

static void call(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_emit *e = &s->fe->json;

    role(s, ev->choice, false);
    if (!tr_stream_count(s, ev->members))
        return;
    begin_chunk(s);
    begin_choice(e, ev->choice);
    tr_emit_key(e, "tool_calls");
    tr_emit_arr(e);
    tr_emit_obj(e);
    tr_emit_ku64(e, "index", ev->call);
    open_call(s, e, ev->choice, ev->call);
    tr_emit_strn(e, ev->text, ev->text_len);
    tr_emit_kstr(e, "arguments", "");
    close_call(e);
    tr_emit_arr_end(e);
    end_choice(s, NULL, ev);
}

static void chat_event(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_emit *e = &s->fe->json;

    switch (ev->type) {
    case TR_EV_STARTED:
    case TR_EV_QUEUED:
    case TR_EV_PREFILL:
    case TR_EV_CALL_DONE:
        return;
    case TR_EV_DELTA:
    case TR_EV_REASONING:
    case TR_EV_CALL_ARGS:
        delta(s, ev);
        return;
    case TR_EV_CALL:
        call(s, ev);
        return;
    case TR_EV_FINISH:
        role(s, ev->choice, true);
        if (!tr_stream_count(s, 1))
            return;
        begin_chunk(s);
        begin_choice(e, ev->choice);
        end_choice(s, tr_event_finish(ev), NULL);
        return;
    case TR_EV_USAGE:
    case TR_EV_FAIL:
    case TR_EV_END:
        tr_openai_end(s, ev, CHUNK);
        return;
    }
}

/* A message of calls alone has no content. */
static void content(struct tr_stream *s, struct tr_emit *e, uint32_t choice)
{
    const struct tr_sections *w = tr_whole_sections(s, choice);

    tr_emit_key(e, "content");
    if (tr_sections_have(w, TR_PART_CALL) && !tr_sections_have(w, TR_PART_TEXT))
        tr_emit_null(e);
    else
        tr_whole_text(s, choice, e);
    if (!tr_sections_have(w, TR_PART_REASONING))
        return;
    tr_emit_key(e, "reasoning_content");
    tr_sections_joined(w, TR_PART_REASONING, e);
}

static void calls(struct tr_stream *s, struct tr_emit *e, uint32_t choice)
{
    const struct tr_sections *w = tr_whole_sections(s, choice);

    if (!tr_sections_have(w, TR_PART_CALL))
        return;
    tr_emit_key(e, "tool_calls");
    tr_emit_arr(e);
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->at[i].kind != TR_PART_CALL)
            continue;
        tr_emit_obj(e);
        open_call(s, e, choice, w->at[i].call);
        tr_sections_name(w, i, e);
        tr_emit_key(e, "arguments");
        tr_sections_text(w, i, e);
        close_call(e);
    }
    tr_emit_arr_end(e);
}

static void chat_body(struct tr_stream *s, struct tr_emit *e)
{
    tr_openai_open(s, e, "chat.completion");
    for (uint32_t k = 0; k < s->n; k++) {
        tr_emit_obj(e);
        tr_emit_ku64(e, "index", k);
        tr_emit_key(e, "message");
        tr_emit_obj(e);
        tr_emit_kstr(e, "role", "assistant");
        content(s, e, k);
        calls(s, e, k);
        tr_emit_knull(e, "refusal");
        tr_emit_key(e, "annotations");
        tr_emit_arr(e);
        tr_emit_arr_end(e);
        tr_emit_obj_end(e);
        tr_openai_close_choice(s, e, &s->choice[k]);
    }
    tr_openai_close(s, e);
}

static void post(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    tr_api_post(x, rq, ctx, &tr_dialect_chat, TR_SSE_BARE);
}

static const struct tr_route routes[] = {
    {.method = TR_HTTP_POST, .pattern = "/v1/chat/completions", .handler = post}};

const struct tr_dialect tr_dialect_chat = {.api = TR_API_CHAT,
                                           .id_prefix = "chatcmpl-",
                                           .frame = TR_SSE_BARE,
                                           .splits = true,
                                           .event = chat_event,
                                           .body = chat_body,
                                           .routes = routes,
                                           .n_routes = sizeof(routes) / sizeof(routes[0])};
