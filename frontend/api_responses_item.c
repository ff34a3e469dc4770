/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_responses_item.c - the items of a response's output: what is thought, said and called, in the
 * order in which the model wrote it, each as JSON; and all of them in pieces out of the ring.
 *
 * An answer of nothing is one message without text. */
#include "frontend/api_responses.h"

#include "frontend/call_id.h"
#include "frontend/sections.h"

#include <stdio.h>
#include <string.h>

/* ---- one item ---- */

void tr_response_item_id(const char *id, const struct tr_response_item *it,
                         char out[TR_RESPONSE_ID_BYTES])
{
    const char *name = strchr(id, '_');
    const char *prefix = it->kind == TR_PART_CALL        ? "fc"
                         : it->kind == TR_PART_REASONING ? "rs"
                                                         : "msg";

    snprintf(out, TR_RESPONSE_ID_BYTES, "%s%s_%u", prefix, name ? name : "_", it->index);
}

static void begin(struct tr_emit *e, const struct tr_response_who *w,
                  const struct tr_response_item *it)
{
    char id[TR_RESPONSE_ID_BYTES], call[TR_CALL_ID_BYTES];

    tr_response_item_id(w->id, it, id);
    tr_emit_obj(e);
    tr_emit_kstr(e, "id", id);
    switch (it->kind) {
    case TR_PART_CALL:
        tr_call_id(w->name, w->format, 0, it->call, "call_", call);
        tr_emit_kstr(e, "type", "function_call");
        tr_emit_kstr(e, "call_id", call);
        return;
    case TR_PART_REASONING:
        tr_emit_kstr(e, "type", "reasoning");
        tr_emit_key(e, "summary");
        tr_emit_raw(e, "[]", 2);
        break;
    case TR_PART_TEXT:
    case TR_PART_ARGS:
    case TR_PART_CALL_DONE:
        tr_emit_kstr(e, "type", "message");
        tr_emit_kstr(e, "role", "assistant");
        break;
    }
    tr_emit_key(e, "content");
    tr_emit_arr(e);
}

static void end(struct tr_emit *e, enum tr_response_status status)
{
    tr_emit_kstr(e, "status", tr_response_word(status));
    tr_emit_obj_end(e);
}

void tr_response_part_open(struct tr_emit *e, enum tr_part_kind kind)
{
    tr_emit_obj(e);
    tr_emit_kstr(e, "type", kind == TR_PART_REASONING ? "reasoning_text" : "output_text");
    tr_emit_key(e, "text");
}

void tr_response_part_close(struct tr_emit *e, enum tr_part_kind kind, struct tr_lp_text *lp)
{
    if (kind != TR_PART_REASONING) {
        tr_emit_key(e, "annotations");
        tr_emit_raw(e, "[]", 2);
        tr_emit_key(e, "logprobs");
        if (lp)
            tr_lp_emit_list(e, lp);
        else
            tr_emit_raw(e, "[]", 2);
    }
    tr_emit_obj_end(e);
}

void tr_response_item_empty(struct tr_emit *e, const struct tr_response_who *w,
                            const struct tr_response_item *it, const char *name, size_t name_len)
{
    begin(e, w, it);
    if (it->kind == TR_PART_CALL) {
        tr_emit_kstrn(e, "name", name, name_len);
        tr_emit_kstr(e, "arguments", "");
    } else {
        tr_emit_arr_end(e);
    }
    end(e, TR_RESPONSE_IN_PROGRESS);
}

/* Up to the key of its text, whose value is the caller's. */
static void open_item(struct tr_emit *e, const struct tr_response_who *w,
                      const struct tr_response_item *it)
{
    begin(e, w, it);
    if (it->kind != TR_PART_CALL) {
        tr_response_part_open(e, it->kind);
        return;
    }
    if (it->name_len)
        tr_emit_kstrn(e, "name", it->name, it->name_len);
    tr_emit_key(e, "arguments");
}

static void close_item(struct tr_emit *e, const struct tr_response_item *it, bool cut,
                       struct tr_lp_text *lp)
{
    bool call = it->kind == TR_PART_CALL;

    if (!call) {
        tr_response_part_close(e, it->kind, lp);
        tr_emit_arr_end(e);
    }
    end(e, (call ? !it->done : cut) ? TR_RESPONSE_INCOMPLETE : TR_RESPONSE_COMPLETED);
}

/* ---- all of them, out of the ring ---- */

bool tr_response_note(struct tr_response_walk *k, const struct tr_part *p, const char *text)
{
    bool call = p->kind == TR_PART_CALL;

    if (p->kind == TR_PART_CALL_DONE)
        k->it.done = true;
    if (p->kind == TR_PART_CALL_DONE || p->kind == TR_PART_ARGS)
        return false;
    if (k->n && k->it.kind == p->kind && !call)
        return false;
    k->it = (struct tr_response_item){.kind = p->kind, .index = k->n++, .call = p->call};
    if (call) {
        k->it.name_len = p->len < TR_SPLIT_NAME ? p->len : TR_SPLIT_NAME;
        memcpy(k->it.name, text, k->it.name_len);
    }
    return true;
}

void tr_response_write_begin(struct tr_response_writer *w, const struct tr_response_walk *from,
                             enum tr_response_form form, uint32_t item, bool length)
{
    *w = (struct tr_response_writer){.walk = *from, .form = form, .item = item, .length = length};
}

static bool is_wanted(const struct tr_response_writer *w)
{
    return w->walk.n && (w->form == TR_RESPONSE_ALL || w->walk.it.index == w->item);
}

static void close_open(struct tr_response_writer *w, bool last)
{
    if (!w->open)
        return;
    tr_emit_str_close(w->e);
    close_item(w->e, &w->walk.it, last && w->length, NULL);
    w->open = false;
}

static void open_next(struct tr_response_writer *w)
{
    open_item(w->e, w->who, &w->walk.it);
    tr_emit_str_open(w->e);
    w->open = true;
}

/* Whether an item begins with this part. */
static bool begins(const struct tr_response_writer *w, const struct tr_part *p)
{
    struct tr_response_walk after = {.n = w->walk.n, .it.kind = w->walk.it.kind};

    return tr_response_note(&after, &(struct tr_part){.kind = p->kind}, "");
}

static void take(void *arg, const struct tr_part *p, const char *text)
{
    struct tr_response_writer *w = arg;

    if (w->over)
        return;
    if (begins(w, p)) {
        close_open(w, false);
        w->over = w->form != TR_RESPONSE_ALL && w->walk.n > w->item;
        if (w->over)
            return;
        tr_response_note(&w->walk, p, text);
        if (w->form != TR_RESPONSE_TEXT && is_wanted(w))
            open_next(w);
    } else {
        tr_response_note(&w->walk, p, text);
    }
    if (is_wanted(w) && p->kind != TR_PART_CALL)
        tr_emit_str_piece(w->e, text, p->len);
}

/* The answer is complete. */
static void finish(struct tr_response_writer *w)
{
    if (!w->walk.n && w->form != TR_RESPONSE_TEXT) {
        w->walk.it = (struct tr_response_item){.kind = TR_PART_TEXT};
        open_next(w);
    }
    close_open(w, true);
    w->over = true;
}

bool tr_response_write(struct tr_response_writer *w, const struct tr_response_who *who,
                       struct tr_emit *e, size_t upto, uint64_t *budget)
{
    w->e = e;
    w->who = who;
    e->comma = w->comma;
    e->depth = w->depth;
    while (!w->over && *budget && e->len < upto) {
        --*budget;
        if (!tr_retell_step(&w->walk.tell, take, w))
            finish(w);
    }
    w->comma = e->comma;
    w->depth = e->depth;
    w->e = NULL;
    w->who = NULL;
    return w->over;
}

/* ---- all of them, from memory ---- */

void tr_response_items_put(struct tr_emit *e, const struct tr_response_who *who,
                           const struct tr_sections *of, bool length, struct tr_lp_text *lp)
{
    struct tr_response_item it = {.kind = TR_PART_TEXT};

    for (uint32_t i = 0; i < of->n; i++) {
        it = (struct tr_response_item){
            .kind = of->at[i].kind, .index = i, .call = of->at[i].call, .done = of->at[i].done};
        begin(e, who, &it);
        if (it.kind == TR_PART_CALL) {
            tr_emit_key(e, "name");
            tr_sections_name(of, i, e);
            tr_emit_key(e, "arguments");
        } else {
            tr_response_part_open(e, it.kind);
        }
        tr_sections_text(of, i, e);
        close_item(e, &it, length && i + 1 == of->n, it.kind == TR_PART_TEXT ? lp : NULL);
        lp = it.kind == TR_PART_TEXT ? NULL : lp;
    }
    if (of->n)
        return;
    open_item(e, who, &it);
    tr_emit_str(e, "");
    close_item(e, &it, length, lp);
}
