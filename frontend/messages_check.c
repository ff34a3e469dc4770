/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/messages_check.c - whether messages are as messages.h says; what is wrong is named by its path. */
#include "frontend/messages_priv.h"

#include <errno.h>
#include <string.h>

static int bad(const struct tr_json_doc *doc, const struct tr_json *v, struct tr_fault *f,
               const char *why)
{
    char param[sizeof(f->param)];

    tr_json_param(doc, v, param, sizeof(param));
    return tr_fault_set(f, TR_ERR_BAD_PARAM, param, "%s", why);
}

static int unsupported(const struct tr_json_doc *doc, const struct tr_json *v, struct tr_fault *f,
                       const char *why)
{
    bad(doc, v, f, why);
    f->err = TR_ERR_UNSUPPORTED_PARAM;
    return -EINVAL;
}

/* The member, or NULL if it is null or not there. */
static const struct tr_json *present(const struct tr_json *v)
{
    return v && v->type != TR_JSON_NULL ? v : NULL;
}

/* ---- content ---- */

const struct tr_json *tr_messages_part(const struct tr_json *part)
{
    if (part->type == TR_JSON_STRING)
        return part;
    return TR_JSON_EQ(TR_JSON_GET(part, "type"), "refusal") ? TR_JSON_GET(part, "refusal")
                                                            : TR_JSON_GET(part, "text");
}

static int check_part(const struct tr_json_doc *doc, const struct tr_json *part, struct tr_fault *f)
{
    const struct tr_json *type = TR_JSON_GET(part, "type");

    if (tr_json_is(part, TR_JSON_STRING))
        return 0;
    if (!tr_json_is(part, TR_JSON_OBJECT) || !tr_json_is(type, TR_JSON_STRING))
        return bad(doc, part, f, "A content part must be an object with a type.");
    if (!TR_JSON_EQ(type, "text") && !TR_JSON_EQ(type, "input_text") &&
        !TR_JSON_EQ(type, "output_text") && !TR_JSON_EQ(type, "refusal"))
        return unsupported(doc, type, f, "Only text is supported as content of a message.");
    if (!tr_json_is(tr_messages_part(part), TR_JSON_STRING))
        return bad(doc, part, f, "A text part must have a text that is a string.");
    return 0;
}

static int check_content(const struct tr_json_doc *doc, const struct tr_json *m,
                         const struct tr_json *role, struct tr_fault *f)
{
    const struct tr_json *c = TR_JSON_GET(m, "content");

    if (!present(c)) {
        if (TR_JSON_EQ(role, "assistant"))
            return 0;
        return bad(doc, c ? c : m, f, "A message needs content: a string or an array of parts.");
    }
    if (c->type == TR_JSON_STRING)
        return 0;
    if (c->type != TR_JSON_ARRAY)
        return bad(doc, c, f, "content must be a string or an array of parts.");
    for (struct tr_json_it it = tr_json_iter(c); tr_json_step(&it);)
        if (check_part(doc, it.val, f))
            return -EINVAL;
    return 0;
}

/* ---- tool calls ---- */

static int check_arguments(const struct tr_json_doc *doc, const struct tr_json *v,
                           struct tr_fault *f)
{
    struct tr_json_fault why = {.no_memory = false};

    if (!present(v) || v->type == TR_JSON_OBJECT || (v->type == TR_JSON_STRING && v->len == 0))
        return 0;
    if (v->type != TR_JSON_STRING)
        return bad(doc, v, f, "The arguments of a call must be a JSON object, or the text of one.");
    struct tr_json_doc *inner = tr_json_parse(v->u.s, v->len, &why);
    bool object = inner && tr_json_root(inner)->type == TR_JSON_OBJECT;
    tr_json_free(inner);
    if (!inner && why.no_memory)
        return tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    return object ? 0
                  : bad(doc, v, f, "The arguments of a call must be the text of a JSON object.");
}

static int check_call(const struct tr_json_doc *doc, const struct tr_json *call, struct tr_fault *f)
{
    const struct tr_json *type = present(TR_JSON_GET(call, "type")),
                         *id = present(TR_JSON_GET(call, "id")),
                         *function = TR_JSON_GET(call, "function"),
                         *name = TR_JSON_GET(function, "name");

    if (call->type != TR_JSON_OBJECT)
        return bad(doc, call, f, "A tool call must be an object.");
    if (type && !TR_JSON_EQ(type, "function"))
        return unsupported(doc, type, f, "Only calls of functions are supported.");
    if (id && id->type != TR_JSON_STRING)
        return bad(doc, id, f, "The id of a tool call must be a string.");
    if (!tr_json_is(function, TR_JSON_OBJECT))
        return bad(doc, function ? function : call, f,
                   "A tool call needs a function that is an object.");
    if (!tr_json_is(name, TR_JSON_STRING))
        return bad(doc, name ? name : function, f, "A function needs a name that is a string.");
    return check_arguments(doc, TR_JSON_GET(function, "arguments"), f);
}

static int check_calls(const struct tr_json_doc *doc, const struct tr_json *v, struct tr_fault *f)
{
    if (!v)
        return 0;
    if (v->type != TR_JSON_ARRAY)
        return bad(doc, v, f, "tool_calls must be an array.");
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
        if (check_call(doc, it.val, f))
            return -EINVAL;
    return 0;
}

/* ---- messages ---- */

static int check_strings(const struct tr_json_doc *doc, const struct tr_json *m, struct tr_fault *f)
{
    const struct tr_json *v[] = {TR_JSON_GET(m, "name"), TR_JSON_GET(m, "tool_call_id"),
                                 TR_JSON_GET(m, "reasoning_content"), TR_JSON_GET(m, "reasoning")};

    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
        if (present(v[i]) && v[i]->type != TR_JSON_STRING)
            return bad(doc, v[i], f, "This must be a string.");
    return 0;
}

static int check_message(const struct tr_json_doc *doc, const struct tr_json *m, struct tr_fault *f)
{
    const struct tr_json *role = TR_JSON_GET(m, "role");

    if (m->type != TR_JSON_OBJECT)
        return bad(doc, m, f, "A message must be an object.");
    if (!tr_json_is(role, TR_JSON_STRING))
        return bad(doc, role ? role : m, f, "A message needs a role that is a string.");
    if (role->len == 0 || role->len > 64)
        return bad(doc, role, f, "A role has 1 to 64 bytes.");
    if (check_content(doc, m, role, f) || check_strings(doc, m, f))
        return -EINVAL;
    return check_calls(doc, present(TR_JSON_GET(m, "tool_calls")), f);
}

int tr_messages_check(const struct tr_json_doc *doc, const struct tr_json *messages, bool continued,
                      struct tr_fault *f)
{
    const struct tr_json *last = NULL, *content;

    for (struct tr_json_it it = tr_json_iter(messages); tr_json_step(&it);) {
        if (check_message(doc, it.val, f))
            return -EINVAL;
        last = it.val;
    }
    content = present(TR_JSON_GET(last, "content"));
    if (continued && (!content || (content->type == TR_JSON_ARRAY && content->len == 0)))
        return bad(doc, last, f, "The last message has no content that could be continued.");
    return 0;
}

int tr_messages_check_args(const struct tr_json_doc *doc, const struct tr_json *args,
                           struct tr_fault *f)
{
    static const char *const ours[] = {"messages",  "tools",     "add_generation_prompt",
                                       "documents", "bos_token", "eos_token"};

    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        const struct tr_json *v = tr_json_get(args, ours[i], strlen(ours[i]));
        if (v)
            return bad(doc, v, f, "The server sets this variable of the template itself.");
    }
    return 0;
}
