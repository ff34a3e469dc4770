/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_responses_event.c - the events of a response, and its body when it is not streamed.
 *
 *   created (queued)   queued   in_progress
 *   for each item: output_item.added   content_part.added   deltas
 *   for each item: the .done of its text   content_part.done   output_item.done
 *   completed or incomplete   [DONE]
 *
 * Items are what is thought, messages and calls, which have no content part; an answer of nothing is one
 * message.  Every response goes through the queue, so the numbers do not depend on how long: in_progress
 * comes when work on the prompt is seen, or with what needs it.  A failure is in_progress if that is still
 * due, error, failed, [DONE].
 *
 * What is done holds whole texts.  All of it comes when the answer has ended, made from the ring in pieces,
 * as the connection takes them, and never stands in memory; an event that is short is one write. */
#include "frontend/api_responses.h"
#include "frontend/sections.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN_PROGRESS = 2 /* the event with this number */ };

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

static void item_place(struct tr_stream *s, const struct tr_response_item *it)
{
    char id[TR_RESPONSE_ID_BYTES];

    tr_response_item_id(s->id, it, id);
    tr_emit_kstr(&s->fe->json, "item_id", id);
    tr_emit_ku64(&s->fe->json, "output_index", it->index);
    if (it->kind != TR_PART_CALL)
        tr_emit_ku64(&s->fe->json, "content_index", 0);
}

static struct tr_response_who who_of(const struct tr_stream *s)
{
    return (struct tr_response_who){.id = s->id, .name = s->name, .format = s->ask->tool_format};
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

/* ---- items ---- */

/* The one that is open. */
static struct tr_response_item open_of(const struct tr_stream *s, uint32_t call)
{
    static const enum tr_part_kind kind[] = {[TR_EV_DELTA] = TR_PART_TEXT,
                                             [TR_EV_REASONING] = TR_PART_REASONING,
                                             [TR_EV_CALL] = TR_PART_CALL};
    const struct tr_choice *ch = &s->choice[0];

    return (struct tr_response_item){
        .kind = kind[ch->block], .index = ch->blocks - 1, .call = call};
}

static void logprobs(struct tr_stream *s, const struct tr_event *ev)
{
    tr_emit_key(&s->fe->json, "logprobs");
    if (ev->lp)
        tr_lp_emit_items(&s->fe->json, tr_stream_lp_style(s), ev->lp, ev->n_lp);
    else
        tr_emit_raw(&s->fe->json, "[]", 2);
}

static void item_added(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_response_item it = open_of(s, ev->call);
    struct tr_response_who who = who_of(s);
    struct tr_emit *e = &s->fe->json;

    if (!tr_stream_count(s, 1))
        return;
    begin(s, "response.output_item.added");
    tr_emit_ku64(e, "output_index", it.index);
    tr_emit_key(e, "item");
    tr_response_item_empty(e, &who, &it, ev->text, ev->text_len);
    if (ev->type == TR_EV_CALL && ev->lp)
        logprobs(s, ev);
    end(s, "response.output_item.added");
}

static void part_added(struct tr_stream *s)
{
    struct tr_response_item it = open_of(s, 0);
    struct tr_emit *e = &s->fe->json;

    if (!tr_stream_count(s, 1))
        return;
    begin(s, "response.content_part.added");
    item_place(s, &it);
    tr_emit_key(e, "part");
    tr_response_part_open(e, it.kind);
    tr_emit_str(e, "");
    tr_response_part_close(e, it.kind, NULL);
    end(s, "response.content_part.added");
}

/* Begins the item that the event belongs to, unless it is the last one. */
static void open_item(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_choice *ch = &s->choice[0];

    in_progress(s);
    if (ch->blocks && ch->block == ev->type && ev->type != TR_EV_CALL)
        return;
    ch->blocks++;
    ch->block = ev->type;
    item_added(s, ev);
    if (ev->type != TR_EV_CALL)
        part_added(s);
}

static const char *delta_type(const struct tr_stream *s)
{
    switch (s->choice[0].block) {
    case TR_EV_CALL:
        return "response.function_call_arguments.delta";
    case TR_EV_REASONING:
        return "response.reasoning_text.delta";
    default:
        return "response.output_text.delta";
    }
}

/* Up to the text of a delta, the same for all of an item. */
static void begin_delta(struct tr_stream *s, const char *type)
{
    struct tr_choice *ch = &s->choice[0];
    struct tr_event as = {.type = ch->block, .call = ch->blocks};
    struct tr_response_item it = open_of(s, 0);

    if (tr_stream_begin_again(s, &as))
        return;
    begin(s, type);
    item_place(s, &it);
    tr_emit_key(&s->fe->json, "delta");
    tr_stream_keep_begin(s, &as);
}

/* Of the item that is open, whatever it is: entries without text may be of another kind, and begin none. */
static void delta(struct tr_stream *s, const struct tr_event *ev)
{
    const struct tr_choice *ch = &s->choice[0];
    bool silent = !ev->text_len && tr_ask_splits(s->ask);

    in_progress(s);
    if (!silent && ev->type != TR_EV_CALL_ARGS)
        open_item(s, ev);
    if (!tr_stream_count(s, ev->members) || !ch->blocks)
        return;
    const char *type = delta_type(s);
    begin_delta(s, type);
    tr_emit_strn(&s->fe->json, ev->text, ev->text_len);
    if (ev->lp || ch->block == TR_EV_DELTA)
        logprobs(s, ev);
    end(s, type);
}

/* ---- what repeats it ---- */

enum closing_event { TEXT_DONE, PART_DONE, ITEM_DONE, RESPONSE_DONE, CLOSING_EVENTS };

struct closing {
    enum closing_event event;     /* of the item, or RESPONSE_DONE */
    bool begun;                   /* its beginning has been written */
    bool walking;                 /* `at` stands somewhere */
    bool found;                   /* what `item` is */
    struct tr_response_walk at;   /* before the token with which it begins */
    struct tr_response_item item; /* its index counts them */
    struct tr_response_writer out;
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

/* The same for a value that is due there. */
static size_t value_hole(struct tr_emit *e)
{
    e->comma |= 1ull << e->depth;
    return e->len;
}

static const char *done_type(const struct closing *c, bool length)
{
    switch (c->event) {
    case TEXT_DONE:
        return c->item.kind == TR_PART_CALL        ? "response.function_call_arguments.done"
               : c->item.kind == TR_PART_REASONING ? "response.reasoning_text.done"
                                                   : "response.output_text.done";
    case PART_DONE:
        return "response.content_part.done";
    case ITEM_DONE:
        return "response.output_item.done";
    default:
        return length ? "response.incomplete" : "response.completed";
    }
}

static size_t text_done(struct tr_stream *s, const struct closing *c)
{
    bool call = c->item.kind == TR_PART_CALL;
    struct tr_emit *e = &s->fe->json;

    item_place(s, &c->item);
    if (call)
        tr_emit_kstrn(e, "name", c->item.name, c->item.name_len);
    tr_emit_key(e, call ? "arguments" : "text");
    size_t at = hole(e);
    if (c->item.kind == TR_PART_TEXT) {
        tr_emit_key(e, "logprobs");
        tr_emit_raw(e, "[]", 2);
    }
    return at;
}

static size_t part_done(struct tr_stream *s, const struct closing *c)
{
    struct tr_emit *e = &s->fe->json;

    item_place(s, &c->item);
    tr_emit_key(e, "part");
    tr_response_part_open(e, c->item.kind);
    size_t at = hole(e);
    tr_response_part_close(e, c->item.kind, NULL);
    return at;
}

static size_t item_done(struct tr_stream *s, const struct closing *c)
{
    tr_emit_ku64(&s->fe->json, "output_index", c->item.index);
    tr_emit_key(&s->fe->json, "item");
    return value_hole(&s->fe->json);
}

static size_t response_done(struct tr_stream *s, bool length)
{
    struct tr_response r = response_of(s, tr_response_end(TR_OK, length));
    struct tr_emit *e = &s->fe->json;

    tr_emit_key(e, "response");
    tr_response_open(e, &r);
    size_t at = value_hole(e);
    tr_response_close(e, &r);
    return at;
}

/* Writes the event into fe->json without what is made in pieces; where that goes. */
static size_t closing_event(struct tr_stream *s, const struct closing *c, const char *type)
{
    size_t at = 0;

    begin(s, type);
    number(s);
    switch (c->event) {
    case TEXT_DONE:
        at = text_done(s, c);
        break;
    case PART_DONE:
        at = part_done(s, c);
        break;
    case ITEM_DONE:
        at = item_done(s, c);
        break;
    default:
        at = response_done(s, by_length(s));
    }
    tr_emit_obj_end(&s->fe->json);
    return at;
}

/* ---- which item is next ---- */

struct finder {
    struct tr_response_walk walk;
    uint32_t item;
    struct tr_response_item found;
};

static void take(void *arg, const struct tr_part *p, const char *text)
{
    struct finder *f = arg;

    if (tr_response_note(&f->walk, p, text) && f->walk.it.index == f->item)
        f->found = f->walk.it;
}

static void find_first(struct tr_stream *s, struct closing *c)
{
    const struct tr_choice *ch = &s->choice[0];

    tr_retell_answer(&c->at.tell, s->fe, s->ask, tr_choice_output(s, ch), ch->text_end);
    c->walking = true;
}

/* Goes on to where the item begins.  False: the turn's tokens are used. */
static bool find(struct tr_stream *s, struct closing *c)
{
    struct finder f = {.walk = c->at, .item = c->item.index};

    while (f.walk.n <= f.item) {
        c->at = f.walk;
        if (!s->fe->whole_left)
            return false;
        s->fe->whole_left--;
        if (tr_retell_step(&f.walk.tell, take, &f))
            continue;
        /* There are no more; if there was none at all there is an empty message. */
        f.found = (struct tr_response_item){.kind = TR_PART_TEXT, .index = f.item};
        if (f.item)
            c->event = RESPONSE_DONE;
        break;
    }
    c->item = f.found;
    c->found = true;
    return true;
}

static void next(struct closing *c)
{
    bool call = c->item.kind == TR_PART_CALL;

    c->event = c->event == TEXT_DONE && call ? ITEM_DONE : c->event + 1;
    if (c->event != RESPONSE_DONE)
        return;
    c->event = TEXT_DONE;
    c->item.index++;
    c->found = false;
}

/* ---- pieces ---- */

static void begin_writing(struct tr_stream *s, struct closing *c)
{
    static const enum tr_response_form form[] = {TR_RESPONSE_TEXT, TR_RESPONSE_TEXT,
                                                 TR_RESPONSE_ITEM, TR_RESPONSE_ALL};
    struct tr_response_walk all = {0};

    if (c->event == RESPONSE_DONE) {
        const struct tr_choice *ch = &s->choice[0];
        tr_retell_answer(&all.tell, s->fe, s->ask, tr_choice_output(s, ch), ch->text_end);
    }
    tr_response_write_begin(&c->out, c->event == RESPONSE_DONE ? &all : &c->at, form[c->event],
                            c->item.index, by_length(s));
    c->begun = true;
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

/* The next piece of the event, or all of it.  True: it is complete. */
static bool write_piece(struct tr_stream *s, struct closing *c)
{
    struct tr_emit *f = &s->fe->frame, *e = &s->fe->json;
    struct tr_response_who who = who_of(s);
    const char *type = done_type(c, by_length(s));
    size_t at = 0;
    bool first = !c->begun;

    tr_emit_reset(f);
    if (first) {
        begin_writing(s, c);
        at = closing_event(s, c, type);
        put(f, "event: ");
        put(f, type);
        put(f, "\ndata: ");
        tr_emit_bytes(f, e->buf, at);
    }
    bool whole = tr_response_write(&c->out, &who, f, f->len + TR_EVENT_TEXT, &s->fe->whole_left);
    if (whole) {
        if (!first)
            at = closing_event(s, c, type);
        tr_emit_bytes(f, e->buf + at, e->len - at);
        put(f, "\n\n");
        c->begun = false;
    }
    f->failed |= e->failed;
    return whole;
}

/* Whether the ring is still that of this stream, after it was read. */
static bool is_mine(const struct tr_stream *s)
{
    const struct tr_choice *ch = &s->choice[0];

    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&tr_ring_at(s->fe->shm, ch->slot)->gen, memory_order_relaxed) ==
           ch->gen;
}

/* One piece.  LATER: there may be more of it. */
static enum tr_closing close_step(struct tr_stream *s, struct closing *c)
{
    bool over = c->event == RESPONSE_DONE, whole = true;

    if (c->begun || tr_stream_count(s, 1)) {
        whole = write_piece(s, c);
        if (!is_mine(s))
            return TR_CLOSING_LOST;
        if (s->fe->frame.failed) { /* no memory: the rest would not fit to what was written */
            s->failure = TR_ERR_INTERNAL;
            return s->in_event ? TR_CLOSING_LOST : TR_CLOSING_DONE;
        }
        tr_stream_write_frame(s);
        s->in_event = c->begun;
    }
    if (whole && over)
        c->event = CLOSING_EVENTS;
    else if (whole)
        next(c);
    return TR_CLOSING_LATER;
}

enum tr_closing tr_responses_close(struct tr_stream *s)
{
    struct closing *c = s->closing ? s->closing : calloc(1, sizeof(*c));

    s->closing = c;
    if (!c) {
        s->failure = TR_ERR_INTERNAL;
        return TR_CLOSING_DONE;
    }
    if (!s->choice[0].blocks)
        open_item(s, &(struct tr_event){.type = TR_EV_DELTA, .text = ""});
    if (!c->walking)
        find_first(s, c);
    while (c->event < CLOSING_EVENTS) {
        if (!has_room(s))
            return TR_CLOSING_LATER;
        if (!s->fe->whole_left) {
            tr_stream_due(s);
            return TR_CLOSING_LATER;
        }
        if (!c->found) {
            find(s, c);
            if (!is_mine(s))
                return TR_CLOSING_LOST;
            continue;
        }
        enum tr_closing rc = close_step(s, c);
        if (rc != TR_CLOSING_LATER)
            return rc;
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
    case TR_EV_REASONING:
    case TR_EV_CALL_ARGS:
        delta(s, ev);
        return;
    case TR_EV_CALL:
        open_item(s, ev);
        return;
    case TR_EV_QUEUED:
    case TR_EV_CALL_DONE: /* said when all of the answer is there */
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
    struct tr_response_who who = who_of(s);

    tr_response_open(e, &r);
    tr_response_items_put(e, &who, tr_whole_sections(s, 0), by_length(s),
                          s->ask->logprobs ? &s->choice[0].lp_text : NULL);
    tr_response_close(e, &r);
}
