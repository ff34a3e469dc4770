/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/tools_prompt.c - see tools_prompt.h. */
#include "frontend/tools_prompt.h"

#include "base/emit.h"
#include "frontend/messages_priv.h"
#include "frontend/tools.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What is being written. */
struct writer {
    const struct tr_messages *m;
    const struct tr_chat_traits *traits;
    const struct tr_tool_writing *w;
    struct tr_emit *e;
    struct tr_emit part; /* JSON that goes into a string */
};

static const struct tr_json *calls_of(const struct tr_json *message)
{
    const struct tr_json *v = TR_JSON_GET(message, "tool_calls");

    return tr_json_is(v, TR_JSON_ARRAY) && v->len ? v : NULL;
}

bool tr_tools_prompt_wanted(const struct tr_messages *m, const struct tr_chat_traits *t)
{
    if (m->tools && !t->shows_tools)
        return true;
    for (struct tr_json_it it = tr_json_iter(m->messages); tr_json_step(&it);)
        if ((!t->shows_calls && calls_of(it.val)) ||
            (!t->shows_results && TR_JSON_EQ(TR_JSON_GET(it.val, "role"), "tool")))
            return true;
    return false;
}

/* ---- texts, within a string that is open ---- */

static void put(struct writer *w, const char *text)
{
    tr_emit_str_piece(w->e, text, strlen(text));
}

static void put_json(struct writer *w, const struct tr_json *v)
{
    tr_emit_reset(&w->part);
    tr_emit_json(&w->part, w->m->doc, v);
    tr_emit_str_piece(w->e, w->part.buf, w->part.len);
    w->e->failed |= w->part.failed;
}

static void put_tools(struct writer *w)
{
    put(w, "You can call functions. They are:\n");
    for (struct tr_json_it it = tr_json_iter(w->m->tools); tr_json_step(&it);) {
        const struct tr_json *fn = TR_JSON_GET(it.val, "function");
        put_json(w, fn ? fn : it.val);
        put(w, "\n");
    }
    put(w,
        "To call one, answer with nothing but this, with its name and with arguments that obey its "
        "parameters:\n");
    put(w, w->w->one_begin);
    put(w, w->w->name_before);
    put(w, "NAME");
    put(w, w->w->name_after);
    put(w, "{\"PARAMETER\": VALUE}");
    put(w, w->w->args_after);
    put(w, w->w->one_end);
}

static void put_call(struct writer *w, const struct tr_json *call)
{
    const struct tr_json *fn = TR_JSON_GET(call, "function"), *name = TR_JSON_GET(fn, "name"),
                         *args = TR_JSON_GET(fn, "arguments");

    put(w, w->w->name_before);
    if (name)
        tr_emit_str_piece(w->e, name->u.s, name->len);
    put(w, w->w->name_after);
    if (tr_json_is(args, TR_JSON_STRING) && args->len)
        tr_emit_str_piece(w->e, args->u.s, args->len);
    else if (tr_json_is(args, TR_JSON_OBJECT))
        put_json(w, args);
    else
        put(w, "{}");
    put(w, w->w->args_after);
}

static void put_calls(struct writer *w, const struct tr_json *calls)
{
    put(w, calls->len > 1 ? w->w->begin : w->w->one_begin);
    for (struct tr_json_it it = tr_json_iter(calls); tr_json_step(&it);) {
        if (it.index)
            put(w, w->w->sep);
        put_call(w, it.val);
    }
    put(w, calls->len > 1 ? w->w->end : w->w->one_end);
}

/* The texts of a content, joined as messages.h says. */
static void put_content(struct writer *w, const struct tr_json *v)
{
    if (tr_json_is(v, TR_JSON_STRING))
        tr_emit_str_piece(w->e, v->u.s, v->len);
    else
        for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) {
            const struct tr_json *text = tr_messages_part(it.val);
            if (it.index)
                put(w, "\n");
            tr_emit_str_piece(w->e, text->u.s, text->len);
        }
}

static bool is_blank(const struct tr_json *content)
{
    return !content || content->type == TR_JSON_NULL || content->len == 0;
}

/* ---- messages ---- */

static void tools_message(struct writer *w)
{
    tr_emit_obj(w->e);
    tr_emit_kstr(w->e, "role", "system");
    tr_emit_key(w->e, "content");
    tr_emit_str_open(w->e);
    put_tools(w);
    tr_emit_str_close(w->e);
    tr_emit_obj_end(w->e);
}

/* All but content and calls, which are written by `message`. */
static void others(struct writer *w, const struct tr_json *m, bool result)
{
    for (struct tr_json_it it = tr_json_iter(m); tr_json_step(&it);) {
        if (TR_JSON_EQ(it.key, "content") || TR_JSON_EQ(it.key, "tool_calls") ||
            (result && (TR_JSON_EQ(it.key, "role") || TR_JSON_EQ(it.key, "tool_call_id"))))
            continue;
        tr_emit_keyn(w->e, it.key->u.s, it.key->len);
        tr_emit_json(w->e, w->m->doc, it.val);
    }
}

static void message(struct writer *w, const struct tr_json *m, bool with_tools)
{
    const struct tr_json *content = TR_JSON_GET(m, "content"), *calls = calls_of(m);
    bool result = !w->traits->shows_results && TR_JSON_EQ(TR_JSON_GET(m, "role"), "tool");
    bool as_text = calls && !w->traits->shows_calls;

    if (!with_tools && !result && !as_text) {
        tr_emit_json(w->e, w->m->doc, m);
        return;
    }
    tr_emit_obj(w->e);
    if (result)
        tr_emit_kstr(w->e, "role", "user");
    others(w, m, result);
    tr_emit_key(w->e, "content");
    tr_emit_str_open(w->e);
    if (result)
        put(w, "The function answers:\n");
    put_content(w, content);
    if (!is_blank(content) && (with_tools || as_text))
        put(w, with_tools ? "\n\n" : "\n");
    if (with_tools)
        put_tools(w);
    if (as_text)
        put_calls(w, calls);
    tr_emit_str_close(w->e);
    if (calls && !as_text) {
        tr_emit_key(w->e, "tool_calls");
        tr_emit_json(w->e, w->m->doc, calls);
    }
    tr_emit_obj_end(w->e);
}

static void messages(struct writer *w)
{
    bool tools = w->m->tools && !w->traits->shows_tools;

    tr_emit_key(w->e, "messages");
    tr_emit_arr(w->e);
    for (struct tr_json_it it = tr_json_iter(w->m->messages); tr_json_step(&it);) {
        const struct tr_json *role = TR_JSON_GET(it.val, "role");
        bool system = TR_JSON_EQ(role, "system") || TR_JSON_EQ(role, "developer");
        if (tools && !system)
            tools_message(w);
        message(w, it.val, tools && system);
        tools = false;
    }
    tr_emit_arr_end(w->e);
}

/* ---- all of it ---- */

static void copy(struct writer *w, const char *key, const struct tr_json *v)
{
    if (!v)
        return;
    tr_emit_key(w->e, key);
    tr_emit_json(w->e, w->m->doc, v);
}

static const struct tr_json *member(const struct tr_json_doc *doc, const char *key)
{
    return tr_json_get(tr_json_root(doc), key, strlen(key));
}

/* The field that is nested too deeply to be copied, or NULL. */
static const char *too_deep(const struct tr_messages *m)
{
    if (!tr_emit_may_copy(m->messages))
        return "messages";
    if (m->tools && !tr_emit_may_copy(m->tools))
        return "tools";
    if (m->args && !tr_emit_may_copy(m->args))
        return "chat_template_kwargs";
    return m->documents && !tr_emit_may_copy(m->documents) ? "documents" : NULL;
}

int tr_tools_prompt(struct tr_messages *m, const struct tr_chat_traits *t,
                    enum tr_tool_format format, struct tr_json_doc **doc, char **text,
                    struct tr_fault *f)
{
    struct tr_emit out;
    struct tr_json_fault jf;
    struct writer w = {.m = m,
                       .traits = t,
                       .w = &tr_tool_syntax[format ? format : TR_TOOLS_JSON].write,
                       .e = &out};

    if (tr_messages_check(m->doc, m->messages, m->continue_final, f))
        return -EINVAL;
    const char *deep = too_deep(m);
    if (deep)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, deep, "This is nested too deeply.");
    tr_emit_init(&out);
    tr_emit_init(&w.part);
    tr_emit_obj(&out);
    messages(&w);
    copy(&w, "tools", m->tools);
    copy(&w, "documents", m->documents);
    copy(&w, "chat_template_kwargs", m->args);
    copy(&w, "reasoning_effort", m->effort);
    tr_emit_obj_end(&out);
    tr_emit_fini(&w.part);
    *doc = out.failed ? NULL : tr_json_parse(out.buf, out.len, &jf);
    if (!*doc) {
        tr_emit_fini(&out);
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "messages", "The messages are too large.");
    }
    *text = out.buf; /* the document borrows it */
    m->doc = *doc;
    m->messages = member(*doc, "messages");
    m->tools = member(*doc, "tools");
    m->documents = member(*doc, "documents");
    m->args = member(*doc, "chat_template_kwargs");
    m->effort = member(*doc, "reasoning_effort");
    return 0;
}
