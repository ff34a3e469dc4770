/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_responses_event.c - the events of a response, and its body when it is not streamed.
 *
 *   0 created (queued)   1 queued   2 in_progress   3 output_item.added   4 content_part.added
 *   5 output_text.delta ...
 *   output_text.done   content_part.done   output_item.done   completed or incomplete   [DONE]
 *
 * Every response goes through the queue, so the numbers do not depend on how long: in_progress comes
 * when work on the prompt is seen, or with what needs it.  3 and 4 come with the first delta, or with the
 * end.  A failure is in_progress if that is still due, error, failed, [DONE].
 *
 * The last four hold the whole text.  They are made from the ring in pieces, as the connection takes
 * them, and never stand in memory; one that is short is one write. */
#include "frontend/api_responses.h"
#include "frontend/retell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Events with these numbers. */
enum { IN_PROGRESS = 2, ITEM_ADDED, PART_ADDED };

static void begin(struct tr_stream *s, const char *type)
{
    struct tr_emit *e = &s->fe->json;

    tr_emit_reset(e);
    tr_emit_obj(e);
    tr_emit_kstr(e, "type", type);
}

static void number(struct tr_stream *s)
{
    tr_emit_ku64(&s->fe->json, "sequence_number", s->number - 1);
}

static void end(struct tr_stream *s, const char *type)
{
    number(s);
    tr_emit_obj_end(&s->fe->json);
    tr_stream_frame(s, type, -1);
}

static void item_place(struct tr_stream *s)
{
    char id[TR_RESPONSE_ID_BYTES];

    tr_response_item_id(s->id, id);
    tr_emit_kstr(&s->fe->json, "item_id", id);
    tr_emit_ku64(&s->fe->json, "output_index", 0);
    tr_emit_ku64(&s->fe->json, "content_index", 0);
}

static struct tr_response response_of(const struct tr_stream *s, enum tr_response_status status)
{
    return (struct tr_response){.fe = s->fe,
                                .ask = s->ask,
                                .id = s->id,
                                .status = status,
                                .completed_ns = tr_ring_at(s->fe->shm, s->name.slot)->finished_ns,
                                .usage = tr_stream_usage(s)};
}

/* ---- before the text ---- */

static void with_object(struct tr_stream *s, const char *type, const struct tr_response *r)
{
    begin(s, type);
    tr_emit_key(&s->fe->json, "response");
    tr_response_open(&s->fe->json, r);
    tr_response_close(&s->fe->json, r);
    end(s, type);
}

static void started(struct tr_stream *s)
{
    static const char *const type[] = {"response.created", "response.queued"};
    struct tr_response r = response_of(s, TR_RESPONSE_QUEUED);

    for (unsigned i = 0; i < 2; i++)
        if (tr_stream_count(s, 1))
            with_object(s, type[i], &r);
}

static void in_progress(struct tr_stream *s)
{
    if (s->number != IN_PROGRESS || !tr_stream_count(s, 1))
        return;
    struct tr_response r = response_of(s, TR_RESPONSE_IN_PROGRESS);
    with_object(s, "response.in_progress", &r);
}

static void item_added(struct tr_stream *s)
{
    struct tr_emit *e = &s->fe->json;

    if (s->number != ITEM_ADDED || !tr_stream_count(s, 1))
        return;
    begin(s, "response.output_item.added");
    tr_emit_ku64(e, "output_index", 0);
    tr_emit_key(e, "item");
    tr_response_item_empty(e, s->id);
    end(s, "response.output_item.added");
}

static void part_added(struct tr_stream *s)
{
    struct tr_emit *e = &s->fe->json;

    if (s->number != PART_ADDED || !tr_stream_count(s, 1))
        return;
    begin(s, "response.content_part.added");
    item_place(s);
    tr_emit_key(e, "part");
    tr_response_part_open(e);
    tr_emit_strn(e, "", 0);
    tr_response_part_close(e, NULL);
    end(s, "response.content_part.added");
}

static void open_text(struct tr_stream *s)
{
    in_progress(s);
    item_added(s);
    part_added(s);
}

/* ---- the text ---- */

/* Up to the text of a delta, the same for all of them. */
static void begin_delta(struct tr_stream *s)
{
    struct tr_emit_piece *head = &s->choice[0].delta_head;

    if (head->buf) {
        tr_emit_begin(&s->fe->json, head);
        return;
    }
    begin(s, "response.output_text.delta");
    item_place(s);
    tr_emit_key(&s->fe->json, "delta");
    tr_emit_keep(&s->fe->json, head);
}

static void delta(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_emit *e = &s->fe->json;

    open_text(s);
    if (!tr_stream_count(s, ev->members))
        return;
    begin_delta(s);
    tr_emit_strn(e, ev->text, ev->text_len);
    tr_emit_key(e, "logprobs");
    if (ev->lp)
        tr_lp_emit_items(e, tr_stream_lp_style(s), ev->lp, ev->n_lp);
    else
        tr_emit_raw(e, "[]", 2);
    end(s, "response.output_text.delta");
}

/* ---- what repeats it ---- */

enum closing_event { TEXT_DONE, PART_DONE, ITEM_DONE, RESPONSE_DONE, CLOSING_EVENTS };

struct closing {
    enum closing_event event;
    bool begun; /* its beginning has been written */
    struct tr_retell tell;
};

static bool by_length(const struct tr_stream *s)
{
    return *tr_choice_finish(s, &s->choice[0]) == 'l';
}

/* The place in fe->json where the text goes. */
static size_t hole(struct tr_emit *e)
{
    tr_emit_str_open(e);
    size_t at = e->len;
    tr_emit_str_close(e);
    return at;
}

static size_t item_with_hole(struct tr_stream *s, enum tr_response_status status)
{
    struct tr_emit *e = &s->fe->json;

    tr_response_item_open(e, s->id, status);
    size_t at = hole(e);
    tr_response_item_close(e, NULL);
    return at;
}

static size_t response_with_hole(struct tr_stream *s, enum tr_response_status status)
{
    struct tr_response r = response_of(s, status);
    struct tr_emit *e = &s->fe->json;

    tr_emit_key(e, "response");
    tr_response_open(e, &r);
    size_t at = item_with_hole(s, status);
    tr_response_close(e, &r);
    return at;
}

/* Writes the event into fe->json without its text; where that goes. */
static size_t closing_event(struct tr_stream *s, enum closing_event event, const char **type)
{
    bool length = by_length(s);
    enum tr_response_status status = tr_response_end(TR_OK, length);
    const char *const types[] = {"response.output_text.done", "response.content_part.done",
                                 "response.output_item.done",
                                 length ? "response.incomplete" : "response.completed"};
    struct tr_emit *e = &s->fe->json;
    size_t at = 0;

    *type = types[event];
    begin(s, *type);
    number(s);
    if (event == TEXT_DONE || event == PART_DONE)
        item_place(s);
    if (event == TEXT_DONE) {
        tr_emit_key(e, "text");
        at = hole(e);
        tr_emit_key(e, "logprobs");
        tr_emit_raw(e, "[]", 2);
    } else if (event == PART_DONE) {
        tr_emit_key(e, "part");
        tr_response_part_open(e);
        at = hole(e);
        tr_response_part_close(e, NULL);
    } else if (event == ITEM_DONE) {
        tr_emit_ku64(e, "output_index", 0);
        tr_emit_key(e, "item");
        at = item_with_hole(s, status);
    } else {
        at = response_with_hole(s, status);
    }
    tr_emit_obj_end(e);
    return at;
}

static bool has_room(struct tr_stream *s)
{
    if (tr_stream_is_past(s) || tr_exchange_room(s->x) > 0)
        return true;
    tr_exchange_flush(s->x);
    return tr_exchange_room(s->x) > 0;
}

static void put(struct tr_emit *e, const char *s)
{
    tr_emit_bytes(e, s, strlen(s));
}

/* The next piece of the event, or all of it. */
static void write_piece(struct tr_stream *s, struct closing *c)
{
    struct tr_emit *f = &s->fe->frame, *e = &s->fe->json;
    const char *type;
    size_t at = 0;
    bool first = !c->begun;

    tr_emit_reset(f);
    if (first) {
        const struct tr_choice *ch = &s->choice[0];
        tr_retell_answer(&c->tell, s->fe, s->ask, tr_choice_output(s, ch), ch->text_end);
        at = closing_event(s, c->event, &type);
        put(f, "event: ");
        put(f, type);
        put(f, "\ndata: ");
        tr_emit_bytes(f, e->buf, at);
    }
    c->begun = true;
    if (tr_retell(&c->tell, f, f->len + TR_EVENT_TEXT, &s->fe->whole_left)) {
        if (!first)
            at = closing_event(s, c->event, &type);
        tr_emit_bytes(f, e->buf + at, e->len - at);
        put(f, "\n\n");
        c->event++;
        c->begun = false;
    }
    f->failed |= e->failed;
}

/* Whether the ring is still that of this stream, after it was read. */
static bool is_mine(const struct tr_stream *s)
{
    const struct tr_choice *ch = &s->choice[0];

    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&tr_ring_at(s->fe->shm, ch->slot)->gen, memory_order_relaxed) ==
           ch->gen;
}

enum tr_closing tr_responses_close(struct tr_stream *s)
{
    struct closing *c = s->closing ? s->closing : calloc(1, sizeof(*c));

    s->closing = c;
    if (!c) {
        s->failure = TR_ERR_INTERNAL;
        return TR_CLOSING_DONE;
    }
    open_text(s);
    while (c->event < CLOSING_EVENTS) {
        if (!has_room(s))
            return TR_CLOSING_LATER;
        if (!s->fe->whole_left) {
            tr_stream_due(s);
            return TR_CLOSING_LATER;
        }
        if (!c->begun && !tr_stream_count(s, 1)) {
            c->event++;
            continue;
        }
        write_piece(s, c);
        if (!is_mine(s))
            return TR_CLOSING_LOST;
        if (s->fe->frame.failed) { /* no memory: the rest of it would not fit to what was written */
            s->failure = TR_ERR_INTERNAL;
            return s->in_event ? TR_CLOSING_LOST : TR_CLOSING_DONE;
        }
        tr_stream_write_frame(s);
        s->in_event = c->begun;
    }
    return TR_CLOSING_DONE;
}

/* ---- the end ---- */

static void failed(struct tr_stream *s, enum tr_err err)
{
    const struct tr_err_info *i = tr_err_info(err);
    struct tr_emit *e = &s->fe->json;

    in_progress(s);
    if (tr_stream_count(s, 1)) {
        begin(s, "error");
        tr_emit_kstr(e, "code", i->code);
        tr_emit_kstr(e, "message", i->sentence);
        tr_emit_knull(e, "param");
        tr_emit_key(e, "error");
        tr_emit_obj(e);
        tr_emit_kstr(e, "type", i->type);
        tr_emit_kstr(e, "code", i->code);
        tr_emit_kstr(e, "message", i->sentence);
        tr_emit_knull(e, "param");
        tr_emit_obj_end(e);
        end(s, "error");
    }
    if (!tr_stream_count(s, 1))
        return;
    struct tr_response r = response_of(s, tr_response_end(err, false));
    r.err = err;
    with_object(s, "response.failed", &r);
}

void tr_responses_event(struct tr_stream *s, const struct tr_event *ev)
{
    switch (ev->type) {
    case TR_EV_STARTED:
        started(s);
        return;
    case TR_EV_PREFILL:
        in_progress(s);
        return;
    case TR_EV_DELTA:
        delta(s, ev);
        return;
    case TR_EV_QUEUED:
    case TR_EV_REASONING: /* none: all of an answer is text */
    case TR_EV_CALL:
    case TR_EV_CALL_ARGS:
    case TR_EV_CALL_DONE:
    case TR_EV_FINISH:
    case TR_EV_USAGE:
        return;
    case TR_EV_FAIL:
        failed(s, ev->err);
        break;
    case TR_EV_END:
        break;
    }
    tr_emit_reset(&s->fe->frame);
    tr_frame_done(&s->fe->frame, s->frame);
    tr_stream_write_frame(s);
}

void tr_responses_body(struct tr_stream *s, struct tr_emit *e)
{
    enum tr_response_status status = tr_response_end(TR_OK, by_length(s));
    struct tr_response r = response_of(s, status);

    tr_response_open(e, &r);
    tr_response_item_open(e, s->id, status);
    tr_whole_text(s, 0, e);
    tr_response_item_close(e, s->ask->logprobs ? &s->choice[0].lp_text : NULL);
    tr_response_close(e, &r);
}
