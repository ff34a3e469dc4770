/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_anthropic_turns.c - the messages of Anthropic's Messages as those of chat completions.
 *
 *   system        a message of the role system, before all others
 *   text          a part of its message
 *   tool_use      a tool call of the assistant's message
 *   tool_result   a message of the role tool, in its place among the others
 *   thinking      reasoning_content of the assistant's message
 *
 * The arguments of a tool call stay an object, which is what templates read. */
#include "frontend/api_anthropic.h"

#include <errno.h>

static void text_part(struct tr_anthropic *w, const struct tr_json *text)
{
    tr_emit_obj(w->e);
    tr_emit_kstr(w->e, "type", "text");
    tr_emit_kstrn(w->e, "text", text->u.s, text->len);
    tr_emit_obj_end(w->e);
}

/* ---- blocks ---- */

/* The type of a content block, NULL after refusing it. */
static const struct tr_json *type_of(struct tr_anthropic *w, const struct tr_json *block)
{
    const struct tr_json *type = TR_JSON_GET(block, "type");

    if (tr_json_is(block, TR_JSON_OBJECT) && tr_json_is(type, TR_JSON_STRING))
        return type;
    tr_anthropic_bad(w, block, "A content block must be an object with a type.");
    return NULL;
}

/* The text of a block that can only be one of text, NULL after refusing it. */
static const struct tr_json *text_of(struct tr_anthropic *w, const struct tr_json *block)
{
    const struct tr_json *type = type_of(w, block);

    if (type && !TR_JSON_EQ(type, "text")) {
        tr_anthropic_unsupported(w, type, "Only text is supported here.");
        return NULL;
    }
    return type ? tr_anthropic_string(w, block, "text") : NULL;
}

/* A string or blocks of text as the value of `content`. */
static int text_content(struct tr_anthropic *w, const struct tr_json *v)
{
    tr_emit_key(w->e, "content");
    if (!v) {
        tr_emit_str(w->e, "");
        return 0;
    }
    if (v->type == TR_JSON_STRING) {
        tr_emit_strn(w->e, v->u.s, v->len);
        return 0;
    }
    if (v->type != TR_JSON_ARRAY)
        return tr_anthropic_bad(w, v, "content must be a string or an array of content blocks.");
    tr_emit_arr(w->e);
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) {
        const struct tr_json *text = text_of(w, it.val);
        if (!text)
            return -EINVAL;
        text_part(w, text);
    }
    tr_emit_arr_end(w->e);
    return 0;
}

/* ---- messages ---- */

static void begin_message(struct tr_anthropic *w, const char *role)
{
    tr_emit_obj(w->e);
    tr_emit_kstr(w->e, "role", role);
}

static void end_message(struct tr_anthropic *w)
{
    tr_emit_obj_end(w->e);
}

static int plain_message(struct tr_anthropic *w, const char *role, const struct tr_json *content)
{
    begin_message(w, role);
    if (text_content(w, content))
        return -EINVAL;
    end_message(w);
    return 0;
}

static int tool_message(struct tr_anthropic *w, const struct tr_json *block)
{
    const struct tr_json *id = tr_anthropic_string(w, block, "tool_use_id");

    if (!id)
        return -EINVAL;
    begin_message(w, "tool");
    tr_emit_kstrn(w->e, "tool_call_id", id->u.s, id->len);
    if (text_content(w, tr_anthropic_get(block, "content")))
        return -EINVAL;
    end_message(w);
    return 0;
}

/* Texts that follow each other are one message; each tool's result is one of its own. */
static int user_blocks(struct tr_anthropic *w, const struct tr_json *blocks)
{
    bool open = false;

    for (struct tr_json_it it = tr_json_iter(blocks); tr_json_step(&it);) {
        const struct tr_json *type = type_of(w, it.val), *text;
        if (!type)
            return -EINVAL;
        bool result = TR_JSON_EQ(type, "tool_result");
        if (open && result) {
            tr_emit_arr_end(w->e);
            end_message(w);
            open = false;
        }
        if (result && tool_message(w, it.val))
            return -EINVAL;
        if (result)
            continue;
        if (!(text = text_of(w, it.val)))
            return -EINVAL;
        if (!open) {
            begin_message(w, "user");
            tr_emit_key(w->e, "content");
            tr_emit_arr(w->e);
            open = true;
        }
        text_part(w, text);
    }
    if (open) {
        tr_emit_arr_end(w->e);
        end_message(w);
    }
    return 0;
}

static int tool_call(struct tr_anthropic *w, const struct tr_json *block)
{
    const struct tr_json *id = tr_anthropic_string(w, block, "id"), *name = NULL, *input = NULL;

    if (!id || !(name = tr_anthropic_string(w, block, "name")))
        return -EINVAL;
    input = TR_JSON_GET(block, "input");
    if (!tr_json_is(input, TR_JSON_OBJECT))
        return tr_anthropic_bad(w, input ? input : block,
                                "A tool_use block needs an input that is an object.");
    tr_emit_obj(w->e);
    tr_emit_kstrn(w->e, "id", id->u.s, id->len);
    tr_emit_kstr(w->e, "type", "function");
    tr_emit_key(w->e, "function");
    tr_emit_obj(w->e);
    tr_emit_kstrn(w->e, "name", name->u.s, name->len);
    if (tr_anthropic_copy(w, "arguments", input))
        return -EINVAL;
    tr_emit_obj_end(w->e);
    tr_emit_obj_end(w->e);
    return 0;
}

/* What of an assistant's blocks goes to one member of its message: texts, reasoning or tool calls. */
enum kind { TEXT, THINKING, TOOL_USE, NOTHING, REFUSED };

static enum kind kind_of(struct tr_anthropic *w, const struct tr_json *block)
{
    const struct tr_json *type = type_of(w, block);

    if (!type)
        return REFUSED;
    if (TR_JSON_EQ(type, "text"))
        return TEXT;
    if (TR_JSON_EQ(type, "thinking"))
        return THINKING;
    if (TR_JSON_EQ(type, "tool_use"))
        return TOOL_USE;
    if (TR_JSON_EQ(type, "redacted_thinking")) /* only its maker can read it */
        return NOTHING;
    tr_anthropic_unsupported(w, type,
                             "A message of the assistant holds text, thinking and tool_use.");
    return REFUSED;
}

static int count_kinds(struct tr_anthropic *w, const struct tr_json *blocks,
                       uint32_t n[NOTHING + 1])
{
    for (struct tr_json_it it = tr_json_iter(blocks); tr_json_step(&it);) {
        enum kind k = kind_of(w, it.val);
        if (k == REFUSED)
            return -EINVAL;
        n[k]++;
    }
    return 0;
}

static int write_kind(struct tr_anthropic *w, const struct tr_json *blocks, enum kind k)
{
    uint32_t n = 0;

    for (struct tr_json_it it = tr_json_iter(blocks); tr_json_step(&it);) {
        const struct tr_json *s;
        if (kind_of(w, it.val) != k)
            continue;
        if (k == TOOL_USE) {
            if (tool_call(w, it.val))
                return -EINVAL;
            continue;
        }
        if (!(s = tr_anthropic_string(w, it.val, k == TEXT ? "text" : "thinking")))
            return -EINVAL;
        if (k == TEXT) {
            text_part(w, s);
            continue;
        }
        if (n++)
            tr_emit_str_piece(w->e, "\n", 1);
        tr_emit_str_piece(w->e, s->u.s, s->len);
    }
    return 0;
}

static int assistant_blocks(struct tr_anthropic *w, const struct tr_json *blocks)
{
    uint32_t n[NOTHING + 1] = {0};

    if (count_kinds(w, blocks, n))
        return -EINVAL;
    begin_message(w, "assistant");
    tr_emit_key(w->e, "content");
    tr_emit_arr(w->e);
    if (write_kind(w, blocks, TEXT))
        return -EINVAL;
    tr_emit_arr_end(w->e);
    if (n[THINKING]) {
        tr_emit_key(w->e, "reasoning_content");
        tr_emit_str_open(w->e);
        if (write_kind(w, blocks, THINKING))
            return -EINVAL;
        tr_emit_str_close(w->e);
    }
    if (n[TOOL_USE]) {
        tr_emit_key(w->e, "tool_calls");
        tr_emit_arr(w->e);
        if (write_kind(w, blocks, TOOL_USE))
            return -EINVAL;
        tr_emit_arr_end(w->e);
    }
    end_message(w);
    return 0;
}

static int message(struct tr_anthropic *w, const struct tr_json *m)
{
    const struct tr_json *role = TR_JSON_GET(m, "role"), *content = tr_anthropic_get(m, "content");

    if (m->type != TR_JSON_OBJECT)
        return tr_anthropic_bad(w, m, "A message must be an object.");
    bool user = TR_JSON_EQ(role, "user"), assistant = TR_JSON_EQ(role, "assistant");
    if (!user && !assistant && !TR_JSON_EQ(role, "system"))
        return tr_anthropic_bad(w, role ? role : m,
                                "The role of a message is user, assistant or system.");
    if (!content)
        return tr_anthropic_bad(w, m,
                                "A message needs content: a string or an array of content blocks.");
    bool blocks = content->type == TR_JSON_ARRAY && content->len;
    if (user && blocks)
        return user_blocks(w, content);
    if (assistant && blocks)
        return assistant_blocks(w, content);
    return plain_message(w, user ? "user" : assistant ? "assistant" : "system", content);
}

int tr_anthropic_turns(struct tr_anthropic *w, const struct tr_json *list,
                       const struct tr_json *system)
{
    const struct tr_json *last = NULL;

    if (!list)
        return tr_fault_set(w->f, TR_ERR_BAD_PARAM, "messages", "messages is required.");
    if (list->type != TR_JSON_ARRAY || list->len == 0)
        return tr_anthropic_bad(w, list, "messages must be an array with at least one message.");
    if (system && system->type != TR_JSON_STRING && system->type != TR_JSON_ARRAY)
        return tr_anthropic_bad(w, system, "system must be a string or an array of text blocks.");
    tr_emit_key(w->e, "messages");
    tr_emit_arr(w->e);
    if (system && system->len && plain_message(w, "system", system))
        return -EINVAL;
    for (struct tr_json_it it = tr_json_iter(list); tr_json_step(&it);) {
        if (message(w, it.val))
            return -EINVAL;
        last = TR_JSON_GET(it.val, "role");
    }
    tr_emit_arr_end(w->e);
    if (TR_JSON_EQ(last, "assistant"))
        return tr_anthropic_unsupported(
            w, last,
            "An answer cannot be continued: the last message must not be "
            "the assistant's.");
    return 0;
}
