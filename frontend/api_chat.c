/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_chat.c - POST /v1/chat/completions: the shapes of OpenAI's chat completions.
 *
 * A stream is, for each choice, a chunk with the role just before its first content, chunks of
 * content, a chunk with the finish_reason; then the usage chunk if it was asked for; then [DONE].
 * The role waits for the content so that a client that takes the first chunk for the first token
 * does not measure the queue.  A failure is an error chunk and no finish_reason. */
#include "frontend/api_openai.h"

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

/* Up to the text of a delta, the same for all of a choice. */
static void begin_delta(struct tr_stream *s, uint32_t choice)
{
    struct tr_emit_piece *head = &s->choice[choice].delta_head;

    if (head->buf) {
        tr_emit_begin(&s->fe->json, head);
        return;
    }
    begin_chunk(s);
    begin_choice(&s->fe->json, choice);
    tr_emit_key(&s->fe->json, "content");
    tr_emit_keep(&s->fe->json, head);
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

static void role(struct tr_stream *s, uint32_t choice)
{
    if (s->choice[choice].begun || !tr_stream_count(s, 1))
        return;
    begin_chunk(s);
    begin_choice(&s->fe->json, choice);
    tr_emit_kstr(&s->fe->json, "role", "assistant");
    tr_emit_kstr(&s->fe->json, "content", "");
    end_choice(s, NULL, NULL);
}

static void chat_event(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_emit *e = &s->fe->json;

    switch (ev->type) {
    case TR_EV_STARTED:
    case TR_EV_QUEUED:
    case TR_EV_PREFILL:
        return;
    case TR_EV_DELTA:
        role(s, ev->choice);
        if (!tr_stream_count(s, ev->members))
            return;
        begin_delta(s, ev->choice);
        tr_emit_strn(e, ev->text, ev->text_len);
        end_choice(s, NULL, ev);
        return;
    case TR_EV_FINISH:
        role(s, ev->choice);
        if (!tr_stream_count(s, 1))
            return;
        begin_chunk(s);
        begin_choice(e, ev->choice);
        end_choice(s, ev->length ? "length" : "stop", NULL);
        return;
    case TR_EV_USAGE:
    case TR_EV_FAIL:
    case TR_EV_END:
        tr_openai_end(s, ev, CHUNK);
        return;
    }
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
        tr_emit_key(e, "content");
        tr_whole_text(s, k, e);
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
                                           .event = chat_event,
                                           .body = chat_body,
                                           .routes = routes,
                                           .n_routes = sizeof(routes) / sizeof(routes[0])};
