/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_oip.c - the Open Inference Protocol as a dialect: responses of ModelInfer and
 * ModelStreamInfer.  Requests are read in oip.c, and carried by grpc_infer.c.
 *
 * A stream is a response for each delta, the first with the stream's id, and one that is the last: it has
 * an empty text, the reason and the counts, so a client that stops at the flag has lost nothing.  An answer that is not streamed is one
 * response with all of it, or, if the client wants an empty last one, its text and then the rest. */
#include "frontend/api.h"
#include "frontend/fields.h"
#include "frontend/grpc.h"
#include "frontend/oip.h"

static struct tr_oip_reply reply_of(const struct tr_stream *s)
{
    const struct tr_grpc_answer *a = tr_grpc_answer_of(s->x);

    return (struct tr_oip_reply){.model = s->fe->cfg->served_name,
                                 .id = a->id,
                                 .wants = a->wants,
                                 .in_stream = a->in_stream};
}

static void add_text(struct tr_oip_reply *r, const char *text, size_t len)
{
    r->has_text = true;
    r->text = text;
    r->text_len = len;
}

static void add_usage(const struct tr_stream *s, struct tr_oip_reply *r)
{
    struct tr_usage u = tr_stream_usage(s);

    r->has_usage = true;
    r->prompt_tokens = u.prompt;
    r->completion_tokens = u.completion;
}

static void add_end(const struct tr_stream *s, struct tr_oip_reply *r)
{
    r->last = true;
    r->finish = tr_choice_finish(s, &s->choice[0]);
    add_usage(s, r);
}

static void send_reply(struct tr_stream *s, const struct tr_oip_reply *r)
{
    tr_emit_reset(&s->fe->frame);
    tr_oip_reply(&s->fe->frame, r);
    tr_stream_write_frame(s);
}

static void oip_event(struct tr_stream *s, const struct tr_event *ev)
{
    if (!s->x || !tr_stream_count(s, ev->members))
        return;
    struct tr_oip_reply r = reply_of(s);
    switch (ev->type) {
    case TR_EV_STARTED:
    case TR_EV_QUEUED:
    case TR_EV_PREFILL:
    case TR_EV_REASONING: /* none: all of an answer is text */
    case TR_EV_CALL:
    case TR_EV_CALL_ARGS:
    case TR_EV_CALL_DONE:
    case TR_EV_FINISH:
    case TR_EV_USAGE:
        return;
    case TR_EV_DELTA:
        add_text(&r, ev->text, ev->text_len);
        r.stream_id = s->choice[0].begun ? NULL : s->stream_id;
        break;
    case TR_EV_END:
        add_text(&r, "", 0);
        add_end(s, &r);
        break;
    case TR_EV_FAIL:
        r.last = true;
        r.error = tr_err_info(ev->err)->sentence;
        r.code = tr_err_info(ev->err)->code;
        add_usage(s, &r);
        break;
    }
    send_reply(s, &r);
}

/* The text is kept as JSON has it. */
static void put_whole(struct tr_stream *s, struct tr_emit *e, const char *text, size_t len)
{
    struct tr_oip_reply r = reply_of(s);

    add_text(&r, text, len);
    if (tr_grpc_answer_of(s->x)->empty_final && r.in_stream) {
        tr_oip_reply(e, &r);
        add_text(&r, "", 0);
    }
    add_end(s, &r);
    tr_oip_reply(e, &r);
}

static void oip_body(struct tr_stream *s, struct tr_emit *e)
{
    struct tr_json_fault fault;
    struct tr_json_doc *doc = NULL;
    struct tr_emit quoted;

    tr_emit_init(&quoted);
    tr_whole_text(s, 0, &quoted);
    if (!quoted.failed)
        doc = tr_json_parse(quoted.buf, quoted.len, &fault);
    if (doc)
        put_whole(s, e, tr_json_root(doc)->u.s, tr_json_root(doc)->len);
    else
        e->failed = true;
    tr_json_free(doc);
    tr_emit_fini(&quoted);
}

/* What a client calls what it gives as tensors; the rest has the names of completions. */
static const struct tr_field_row names[] = {
    {.theirs = "text_input", .ours = "prompt"},
    {.theirs = "model_name", .ours = "model"},
};

const struct tr_dialect tr_dialect_oip = {
    .api = TR_API_OIP,
    .id_prefix = "oip-",
    .frame = TR_PROTO,
    .event = oip_event,
    .body = oip_body,
    .fields = names,
    .n_fields = sizeof(names) / sizeof(names[0]),
};
