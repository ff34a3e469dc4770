/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_completions.c - POST /v1/completions: the shapes of OpenAI's completions.
 *
 * Chunks of a stream have the shape of the whole answer.  Choices are numbered prompt * n + k. */
#include "frontend/api_openai.h"

static const char OBJECT[] = "text_completion";

/* Up to the text, the same for all chunks of a choice. */
static void begin_chunk(struct tr_stream *s, uint32_t choice)
{
    struct tr_emit_piece *head = &s->choice[choice].delta_head;
    struct tr_emit *e = &s->fe->json;

    if (head->buf) {
        tr_emit_begin(e, head);
        return;
    }
    tr_emit_reset(e);
    tr_openai_open(s, e, OBJECT);
    tr_emit_obj(e);
    tr_emit_ku64(e, "index", choice);
    tr_emit_key(e, "text");
    tr_emit_keep(e, head);
}

static void chunk(struct tr_stream *s, const struct tr_event *ev, const char *finish)
{
    struct tr_emit *e = &s->fe->json;

    if (!tr_stream_count(s, ev->members))
        return;
    begin_chunk(s, ev->choice);
    tr_emit_strn(e, ev->text ? ev->text : "", ev->text_len);
    if (!finish && !ev->lp) {
        tr_openai_send_plain(s);
        return;
    }
    tr_emit_key(e, "logprobs");
    if (ev->lp)
        tr_lp_emit_completions(e, tr_stream_lp_style(s), ev->lp, ev->n_lp);
    else
        tr_emit_null(e);
    tr_openai_send(s, finish);
}

static void completions_event(struct tr_stream *s, const struct tr_event *ev)
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
        chunk(s, ev, NULL);
        return;
    case TR_EV_FINISH:
        chunk(s, ev, ev->length ? "length" : "stop");
        return;
    case TR_EV_USAGE:
    case TR_EV_FAIL:
    case TR_EV_END:
        tr_openai_end(s, ev, OBJECT);
        return;
    }
}

static void completions_body(struct tr_stream *s, struct tr_emit *e)
{
    tr_openai_open(s, e, OBJECT);
    for (uint32_t k = 0; k < s->n; k++) {
        tr_emit_obj(e);
        tr_emit_ku64(e, "index", k);
        tr_emit_key(e, "text");
        tr_whole_text(s, k, e);
        tr_openai_close_choice(s, e, &s->choice[k]);
    }
    tr_openai_close(s, e);
}

static void post(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    tr_api_post(x, rq, ctx, &tr_dialect_completions, TR_SSE_BARE);
}

static const struct tr_route routes[] = {
    {.method = TR_HTTP_POST, .pattern = "/v1/completions", .handler = post}};

const struct tr_dialect tr_dialect_completions = {.api = TR_API_COMPLETIONS,
                                                  .id_prefix = "cmpl-",
                                                  .frame = TR_SSE_BARE,
                                                  .event = completions_event,
                                                  .body = completions_body,
                                                  .routes = routes,
                                                  .n_routes = sizeof(routes) / sizeof(routes[0])};
