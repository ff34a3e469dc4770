/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_responses_object.c - the response object, with all its keys.
 *
 * What the request said is parsed from what is kept (api_responses.h), each time an object is written; a
 * field that was not given, or that makes no sense, has its default. */
#include "frontend/api_responses.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

const char *tr_response_word(enum tr_response_status s)
{
    static const char *const word[] = {
        [TR_RESPONSE_QUEUED] = "queued",       [TR_RESPONSE_IN_PROGRESS] = "in_progress",
        [TR_RESPONSE_COMPLETED] = "completed", [TR_RESPONSE_INCOMPLETE] = "incomplete",
        [TR_RESPONSE_FAILED] = "failed",       [TR_RESPONSE_CANCELLED] = "cancelled"};

    return word[s];
}

enum tr_response_status tr_response_end(enum tr_err e, bool length)
{
    if (e == TR_ERR_CANCELLED)
        return TR_RESPONSE_CANCELLED;
    return e ? TR_RESPONSE_FAILED : length ? TR_RESPONSE_INCOMPLETE : TR_RESPONSE_COMPLETED;
}

/* ---- what is kept ---- */

/* A member of the object that is kept, if it is of that type. */
static const struct tr_json *said(const struct tr_json_doc *doc, const char *name,
                                  enum tr_json_type type)
{
    const struct tr_json *v = doc ? tr_json_get(tr_json_root(doc), name, strlen(name)) : NULL;

    return tr_json_is(v, type) ? v : NULL;
}

/* Key and value; `other` is JSON. */
static void repeat(struct tr_emit *e, const struct tr_json_doc *doc, const char *name,
                   enum tr_json_type type, const char *other)
{
    const struct tr_json *v = said(doc, name, type);

    tr_emit_key(e, name);
    if (v)
        tr_emit_json(e, doc, v);
    else
        tr_emit_raw(e, other, strlen(other));
}

/* As it was given, and the members that were not. */
static void repeat_tool(struct tr_emit *e, const struct tr_json_doc *doc, const struct tr_json *v)
{
    tr_emit_obj(e);
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) {
        tr_emit_keyn(e, it.key->u.s, it.key->len);
        tr_emit_json(e, doc, it.val);
    }
    if (!TR_JSON_GET(v, "description"))
        tr_emit_knull(e, "description");
    if (!TR_JSON_GET(v, "parameters"))
        tr_emit_knull(e, "parameters");
    if (!TR_JSON_GET(v, "strict"))
        tr_emit_kbool(e, "strict", false);
    tr_emit_obj_end(e);
}

static void repeat_tools(struct tr_emit *e, const struct tr_json_doc *doc)
{
    tr_emit_key(e, "tools");
    tr_emit_arr(e);
    for (struct tr_json_it it = tr_json_iter(said(doc, "tools", TR_JSON_ARRAY)); tr_json_step(&it);)
        if (it.val->type == TR_JSON_OBJECT)
            repeat_tool(e, doc, it.val);
    tr_emit_arr_end(e);
}

static void repeat_choice(struct tr_emit *e, const struct tr_json_doc *doc)
{
    bool object = said(doc, "tool_choice", TR_JSON_OBJECT);

    repeat(e, doc, "tool_choice", object ? TR_JSON_OBJECT : TR_JSON_STRING, "\"auto\"");
}

/* An object whose members all stand there, also those that were not given. */
static void repeat_reasoning(struct tr_emit *e, const struct tr_json_doc *doc)
{
    static const char *const members[] = {"effort", "summary"};
    const struct tr_json *o = said(doc, "reasoning", TR_JSON_OBJECT);

    tr_emit_key(e, "reasoning");
    tr_emit_obj(e);
    for (size_t i = 0; i < 2; i++) {
        const struct tr_json *v = tr_json_get(o, members[i], strlen(members[i]));
        tr_emit_key(e, members[i]);
        if (tr_json_is(v, TR_JSON_STRING))
            tr_emit_json(e, doc, v);
        else
            tr_emit_null(e);
    }
    tr_emit_obj_end(e);
}

static void repeat_text(struct tr_emit *e, const struct tr_json_doc *doc)
{
    const struct tr_json *o = said(doc, "text", TR_JSON_OBJECT);
    const struct tr_json *format = TR_JSON_GET(o, "format"), *v = TR_JSON_GET(o, "verbosity");

    tr_emit_key(e, "text");
    tr_emit_obj(e);
    tr_emit_key(e, "format");
    if (tr_json_is(format, TR_JSON_OBJECT))
        tr_emit_json(e, doc, format);
    else
        tr_emit_raw(e, "{\"type\":\"text\"}", 15);
    if (tr_json_is(v, TR_JSON_STRING)) {
        tr_emit_key(e, "verbosity");
        tr_emit_json(e, doc, v);
    }
    tr_emit_obj_end(e);
}

static void what_was_asked(struct tr_emit *e, const struct tr_response *r)
{
    const struct tr_params *p = &r->ask->params;
    struct tr_json_fault ignored;
    struct tr_json_doc *doc =
        r->ask->kept_len ? tr_json_parse(r->ask->kept, r->ask->kept_len, &ignored) : NULL;

    repeat(e, doc, "instructions", TR_JSON_STRING, "null");
    repeat_tools(e, doc);
    repeat_choice(e, doc);
    repeat(e, doc, "parallel_tool_calls", TR_JSON_BOOL, "true");
    repeat(e, doc, "max_tool_calls", TR_JSON_NUMBER, "null");
    repeat(e, doc, "max_output_tokens", TR_JSON_NUMBER, "null");
    repeat_text(e, doc);
    repeat_reasoning(e, doc);
    repeat(e, doc, "metadata", TR_JSON_OBJECT, "{}");
    repeat(e, doc, "safety_identifier", TR_JSON_STRING, "null");
    repeat(e, doc, "prompt_cache_key", TR_JSON_STRING, "null");
    tr_json_free(doc);
    tr_emit_key(e, "temperature");
    tr_emit_f64(e, p->temperature);
    tr_emit_key(e, "top_p");
    tr_emit_f64(e, p->top_p);
    tr_emit_key(e, "presence_penalty");
    tr_emit_f64(e, p->presence_penalty);
    tr_emit_key(e, "frequency_penalty");
    tr_emit_f64(e, p->frequency_penalty);
    tr_emit_ku64(e, "top_logprobs", p->n_top);
    tr_emit_kstr(e, "truncation", "disabled");
    tr_emit_kstr(e, "service_tier", "default");
    tr_emit_kbool(e, "store", false);
    tr_emit_kbool(e, "background", p->flags & TR_REQ_RESUMABLE);
    tr_emit_knull(e, "previous_response_id");
}

/* ---- what became of it ---- */

static void usage(struct tr_emit *e, const struct tr_response *r)
{
    const struct tr_usage *u = &r->usage;

    tr_emit_key(e, "usage");
    if (r->status < TR_RESPONSE_COMPLETED) {
        tr_emit_null(e);
        return;
    }
    tr_emit_obj(e);
    tr_emit_ku64(e, "input_tokens", u->prompt);
    tr_emit_key(e, "input_tokens_details");
    tr_emit_obj(e);
    tr_emit_ku64(e, "cached_tokens", u->cached);
    /* openai-python wants it; nothing is charged for it. */
    tr_emit_ku64(e, "cache_write_tokens", 0);
    tr_emit_obj_end(e);
    tr_emit_ku64(e, "output_tokens", u->completion);
    tr_emit_key(e, "output_tokens_details");
    tr_emit_obj(e);
    tr_emit_ku64(e, "reasoning_tokens", 0);
    tr_emit_obj_end(e);
    tr_emit_ku64(e, "total_tokens", u->prompt + u->completion);
    tr_emit_obj_end(e);
}

static void error(struct tr_emit *e, const struct tr_response *r)
{
    const struct tr_err_info *i = tr_err_info(r->err);

    tr_emit_key(e, "error");
    if (r->status != TR_RESPONSE_FAILED) {
        tr_emit_null(e);
        return;
    }
    /* Clients that look closely know OpenAI's few codes only; ours stands beside it. */
    tr_emit_obj(e);
    tr_emit_kstr(e, "code", "server_error");
    tr_emit_kstr(e, "message", i->sentence);
    tr_emit_key(e, "tokenring");
    tr_emit_obj(e);
    tr_emit_kstr(e, "code", i->code);
    tr_emit_obj_end(e);
    tr_emit_obj_end(e);
}

void tr_response_open(struct tr_emit *e, const struct tr_response *r)
{
    tr_emit_obj(e);
    tr_emit_kstr(e, "id", r->id);
    tr_emit_kstr(e, "object", "response");
    tr_emit_ku64(e, "created_at", r->ask->created);
    tr_emit_key(e, "completed_at");
    if (r->status == TR_RESPONSE_COMPLETED)
        tr_emit_u64(e, (uint64_t)tr_wall_of_ns(r->completed_ns));
    else
        tr_emit_null(e);
    tr_emit_kstr(e, "status", tr_response_word(r->status));
    error(e, r);
    tr_emit_key(e, "incomplete_details");
    if (r->status == TR_RESPONSE_INCOMPLETE)
        tr_emit_raw(e, "{\"reason\":\"max_output_tokens\"}", 30);
    else
        tr_emit_null(e);
    tr_emit_kstr(e, "model", r->fe->cfg->served_name);
    tr_emit_key(e, "output");
    tr_emit_arr(e);
}

void tr_response_close(struct tr_emit *e, const struct tr_response *r)
{
    tr_emit_arr_end(e);
    usage(e, r);
    what_was_asked(e, r);
    tr_emit_obj_end(e);
}
