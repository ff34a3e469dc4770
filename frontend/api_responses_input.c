/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_responses_input.c - input items as the messages of chat completions.
 *
 * A function_call joins the assistant's message before it, or begins one; its output is a message of the
 * role tool; a reasoning item is the reasoning_content of the assistant's message that follows it. */
#include "frontend/api_responses.h"

#include <errno.h>
#include <string.h>

/* The message that is being written. */
enum open_message {
    NONE,
    ASSISTANT, /* an assistant's, which calls may join */
    CALLS      /* the same, in its array of calls */
};

struct writer {
    enum open_message open;
    const struct tr_json *reasoning; /* the item before this one, or NULL */
};

static void close_message(struct tr_emit *e, struct writer *w)
{
    if (w->open == CALLS)
        tr_emit_arr_end(e);
    if (w->open != NONE)
        tr_emit_obj_end(e);
    w->open = NONE;
}

static void open_message(struct tr_emit *e, struct writer *w, const char *role, size_t len)
{
    close_message(e, w);
    tr_emit_obj(e);
    tr_emit_kstrn(e, "role", role, len);
}

/* The texts of an array of parts, with a line end between; how many there are. */
static uint32_t texts(struct tr_emit *e, const struct tr_json *parts)
{
    uint32_t n = 0;

    for (struct tr_json_it it = tr_json_iter(parts); tr_json_step(&it);) {
        const struct tr_json *text = TR_JSON_GET(it.val, "text");
        if (!tr_json_is(text, TR_JSON_STRING))
            continue;
        if (e && n)
            tr_emit_str_piece(e, "\n", 1);
        if (e)
            tr_emit_str_piece(e, text->u.s, text->len);
        n++;
    }
    return n;
}

/* A reasoning item that has a text; one that only its maker can read has none. */
static bool is_thought(const struct tr_json *item)
{
    return TR_JSON_EQ(TR_JSON_GET(item, "type"), "reasoning") &&
           (texts(NULL, TR_JSON_GET(item, "content")) || texts(NULL, TR_JSON_GET(item, "summary")));
}

/* Of the assistant's message that has just been opened: what was thought before it, or a summary of that. */
static void reasoning(struct tr_emit *e, const struct tr_json *item)
{
    const struct tr_json *parts = TR_JSON_GET(item, "content");

    if (!item)
        return;
    if (!texts(NULL, parts))
        parts = TR_JSON_GET(item, "summary");
    tr_emit_key(e, "reasoning_content");
    tr_emit_str_open(e);
    texts(e, parts);
    tr_emit_str_close(e);
}

/* The text of a part; NULL after a fault. */
static const struct tr_json *part_text(const struct tr_responses_in *t, const struct tr_json *part)
{
    const struct tr_json *type = TR_JSON_GET(part, "type"), *text;

    if (!tr_json_is(part, TR_JSON_OBJECT) || !tr_json_is(type, TR_JSON_STRING)) {
        tr_responses_bad(t, part, "A content part must be an object with a type.");
        return NULL;
    }
    if (TR_JSON_EQ(type, "refusal")) {
        text = TR_JSON_GET(part, "refusal");
    } else if (TR_JSON_EQ(type, "input_text") || TR_JSON_EQ(type, "output_text") ||
               TR_JSON_EQ(type, "text")) {
        text = TR_JSON_GET(part, "text");
    } else {
        tr_responses_unsupported(t, type, "Only text is supported as content.");
        return NULL;
    }
    if (tr_json_is(text, TR_JSON_STRING))
        return text;
    tr_responses_bad(t, part, "A text part must have a text that is a string.");
    return NULL;
}

/* A string, or an array of parts of text. */
static int content(const struct tr_responses_in *t, const struct tr_json *item, const char *name)
{
    const struct tr_json *v = tr_json_get(item, name, strlen(name));
    struct tr_emit *e = t->out;

    if (!v || (v->type != TR_JSON_STRING && v->type != TR_JSON_ARRAY))
        return tr_responses_bad(t, v ? v : item,
                                "This item needs content: a string or an array of text parts.");
    tr_emit_key(e, "content");
    if (v->type == TR_JSON_STRING) {
        tr_emit_strn(e, v->u.s, v->len);
        return 0;
    }
    tr_emit_arr(e);
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) {
        const struct tr_json *text = part_text(t, it.val);
        if (!text)
            return -EINVAL;
        tr_emit_obj(e);
        tr_emit_kstr(e, "type", "text");
        tr_emit_kstrn(e, "text", text->u.s, text->len);
        tr_emit_obj_end(e);
    }
    tr_emit_arr_end(e);
    return 0;
}

static int message(const struct tr_responses_in *t, const struct tr_json *item, struct writer *w)
{
    const struct tr_json *role = TR_JSON_GET(item, "role");
    bool assistant = TR_JSON_EQ(role, "assistant");

    if (!assistant && !TR_JSON_EQ(role, "user") && !TR_JSON_EQ(role, "system") &&
        !TR_JSON_EQ(role, "developer"))
        return tr_responses_bad(t, role ? role : item,
                                "A message has the role user, assistant, system or developer.");
    open_message(t->out, w, role->u.s, role->len);
    if (assistant)
        reasoning(t->out, w->reasoning);
    if (content(t, item, "content"))
        return -EINVAL;
    if (assistant)
        w->open = ASSISTANT;
    else
        tr_emit_obj_end(t->out);
    return 0;
}

/* A string member that an item must have. */
static const struct tr_json *need(const struct tr_responses_in *t, const struct tr_json *item,
                                  const char *name)
{
    const struct tr_json *v = tr_json_get(item, name, strlen(name));

    if (tr_json_is(v, TR_JSON_STRING))
        return v;
    char param[sizeof(t->f->param)];
    tr_json_param(t->doc, v ? v : item, param, sizeof(param));
    tr_fault_set(t->f, TR_ERR_BAD_PARAM, param, "This item needs a %s that is a string.", name);
    return NULL;
}

static int function_call(const struct tr_responses_in *t, const struct tr_json *item,
                         struct writer *w)
{
    const struct tr_json *id = need(t, item, "call_id");
    const struct tr_json *name = id ? need(t, item, "name") : NULL;
    const struct tr_json *args = name ? need(t, item, "arguments") : NULL;
    struct tr_emit *e = t->out;

    if (!args)
        return -EINVAL;
    if (w->open == NONE || w->reasoning) {
        open_message(e, w, "assistant", 9);
        tr_emit_knull(e, "content");
        reasoning(e, w->reasoning);
        w->open = ASSISTANT;
    }
    if (w->open == ASSISTANT) {
        tr_emit_key(e, "tool_calls");
        tr_emit_arr(e);
        w->open = CALLS;
    }
    tr_emit_obj(e);
    tr_emit_kstrn(e, "id", id->u.s, id->len);
    tr_emit_kstr(e, "type", "function");
    tr_emit_key(e, "function");
    tr_emit_obj(e);
    tr_emit_kstrn(e, "name", name->u.s, name->len);
    tr_emit_kstrn(e, "arguments", args->u.s, args->len);
    tr_emit_obj_end(e);
    tr_emit_obj_end(e);
    return 0;
}

static int call_output(const struct tr_responses_in *t, const struct tr_json *item,
                       struct writer *w)
{
    const struct tr_json *id = need(t, item, "call_id");

    if (!id)
        return -EINVAL;
    open_message(t->out, w, "tool", 4);
    tr_emit_kstrn(t->out, "tool_call_id", id->u.s, id->len);
    if (content(t, item, "output"))
        return -EINVAL;
    tr_emit_obj_end(t->out);
    return 0;
}

static int input_item(const struct tr_responses_in *t, const struct tr_json *item, struct writer *w)
{
    const struct tr_json *type = TR_JSON_GET(item, "type");

    if (item->type != TR_JSON_OBJECT)
        return tr_responses_bad(t, item, "An input item must be an object.");
    if (!type || type->type == TR_JSON_NULL || TR_JSON_EQ(type, "message"))
        return message(t, item, w);
    if (TR_JSON_EQ(type, "function_call"))
        return function_call(t, item, w);
    if (TR_JSON_EQ(type, "function_call_output"))
        return call_output(t, item, w);
    if (TR_JSON_EQ(type, "reasoning"))
        return 0; /* it is told of with the next one */
    if (TR_JSON_EQ(type, "item_reference"))
        return tr_responses_unsupported(t, item, "Items are not stored: send the item itself.");
    return tr_responses_unsupported(t, type, "Input items of this type are not supported.");
}

int tr_responses_messages(const struct tr_responses_in *t)
{
    const struct tr_json *input = tr_responses_field(t, "input"),
                         *say = tr_responses_field(t, "instructions");
    struct writer w = {.open = NONE};
    struct tr_emit *e = t->out;

    if (!input)
        return tr_fault_set(t->f, TR_ERR_BAD_PARAM, "input", "input is required.");
    if (input->type != TR_JSON_STRING && (input->type != TR_JSON_ARRAY || input->len == 0))
        return tr_responses_bad(t, input,
                                "input must be a string or an array with at least one item.");
    tr_emit_key(e, "messages");
    tr_emit_arr(e);
    if (say && say->len) {
        open_message(e, &w, "system", 6);
        tr_emit_kstrn(e, "content", say->u.s, say->len);
        tr_emit_obj_end(e);
    }
    if (input->type == TR_JSON_STRING) {
        open_message(e, &w, "user", 4);
        tr_emit_kstrn(e, "content", input->u.s, input->len);
        tr_emit_obj_end(e);
    }
    for (struct tr_json_it it = tr_json_iter(input); tr_json_step(&it);) {
        if (input_item(t, it.val, &w))
            return -EINVAL;
        w.reasoning = is_thought(it.val) ? it.val : NULL;
    }
    close_message(e, &w);
    tr_emit_arr_end(e);
    return 0;
}
