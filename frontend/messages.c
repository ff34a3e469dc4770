/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/messages.c - see messages.h. */
#include "frontend/messages.h"

#include <errno.h>
#include <string.h>

static int bad(const struct tr_json_doc *doc, const struct tr_json *v, struct tr_fault *f,
               const char *why)
{
    char param[sizeof(f->param)];

    tr_json_param(doc, v, param, sizeof(param));
    return tr_fault_set(f, TR_ERR_BAD_PARAM, param, "%s", why);
}

/* The text of one content part, or NULL and *f. */
static const struct tr_json *part_text(const struct tr_json_doc *doc, const struct tr_json *part,
                                       struct tr_fault *f)
{
    const struct tr_json *type = TR_JSON_GET(part, "type"), *text;

    if (tr_json_is(part, TR_JSON_STRING))
        return part;
    if (!tr_json_is(part, TR_JSON_OBJECT) || !tr_json_is(type, TR_JSON_STRING)) {
        bad(doc, part, f, "A content part must be an object with a type.");
        return NULL;
    }
    if (TR_JSON_EQ(type, "text") || TR_JSON_EQ(type, "input_text") ||
        TR_JSON_EQ(type, "output_text"))
        text = TR_JSON_GET(part, "text");
    else if (TR_JSON_EQ(type, "refusal"))
        text = TR_JSON_GET(part, "refusal");
    else {
        bad(doc, type, f, "Only text is supported as content of a message.");
        f->err = TR_ERR_UNSUPPORTED_PARAM;
        return NULL;
    }
    if (!tr_json_is(text, TR_JSON_STRING)) {
        bad(doc, part, f, "A text part must have a text that is a string.");
        return NULL;
    }
    return text;
}

static int check_content(const struct tr_json_doc *doc, const struct tr_json *m,
                         const struct tr_json *role, struct tr_fault *f)
{
    const struct tr_json *c = TR_JSON_GET(m, "content");

    if (!c || c->type == TR_JSON_NULL) {
        if (TR_JSON_EQ(role, "assistant"))
            return 0;
        return bad(doc, c ? c : m, f, "A message needs content: a string or an array of parts.");
    }
    if (c->type == TR_JSON_STRING)
        return 0;
    if (c->type != TR_JSON_ARRAY)
        return bad(doc, c, f, "content must be a string or an array of parts.");
    for (struct tr_json_it it = tr_json_iter(c); tr_json_step(&it);)
        if (!part_text(doc, it.val, f))
            return -EINVAL;
    return 0;
}

int tr_messages_check(const struct tr_json_doc *doc, const struct tr_json *messages,
                      struct tr_fault *f)
{
    for (struct tr_json_it it = tr_json_iter(messages); tr_json_step(&it);) {
        const struct tr_json *role = TR_JSON_GET(it.val, "role");
        if (it.val->type != TR_JSON_OBJECT)
            return bad(doc, it.val, f, "A message must be an object.");
        if (!role || role->type != TR_JSON_STRING)
            return bad(doc, role ? role : it.val, f, "A message needs a role that is a string.");
        if (role->len == 0 || role->len > 64)
            return bad(doc, role, f, "A role has 1 to 64 bytes.");
        if (check_content(doc, it.val, role, f))
            return -EINVAL;
    }
    return 0;
}

/* One level of the document at a time; the parser's depth limit bounds the recursion. */
struct tr_jv *tr_messages_value(struct tr_jctx *ctx, const struct tr_json_doc *doc,
                                const struct tr_json *v)
{
    struct tr_jv *out;
    size_t len;

    switch ((enum tr_json_type)v->type) {
    case TR_JSON_NULL:
        return tr_jv_none(ctx);
    case TR_JSON_BOOL:
        return tr_jv_bool(ctx, v->u.b);
    case TR_JSON_STRING:
        return tr_jv_str(ctx, v->u.s, v->len, true);
    case TR_JSON_NUMBER:
        if (v->num == TR_JSON_INT)
            return tr_jv_int(ctx, v->u.i);
        if (v->num == TR_JSON_UINT) {
            const char *text = tr_json_number_text(doc, v, &len);
            return tr_jv_int_text(ctx, text, len);
        }
        return tr_jv_float(ctx, v->u.d);
    case TR_JSON_ARRAY:
        out = tr_jv_list(ctx);
        for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
            if (tr_jv_append(ctx, out, tr_messages_value(ctx, doc, it.val)))
                return NULL;
        return out;
    case TR_JSON_OBJECT:
        out = tr_jv_dict(ctx);
        for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
            if (tr_jv_set(ctx, out, it.key->u.s, it.key->len, true,
                          tr_messages_value(ctx, doc, it.val)))
                return NULL;
        return out;
    }
    return NULL;
}

/* The texts of all parts, joined. */
static struct tr_jv *join_parts(struct tr_jctx *ctx, const struct tr_json_doc *doc,
                                const struct tr_json *parts)
{
    struct tr_fault ignored;
    size_t len = 0;

    for (struct tr_json_it it = tr_json_iter(parts); tr_json_step(&it);)
        len += (size_t)part_text(doc, it.val, &ignored)->len + 1;
    char *buf = tr_jctx_alloc(ctx, len + 1);
    if (!buf)
        return NULL;
    len = 0;
    for (struct tr_json_it it = tr_json_iter(parts); tr_json_step(&it);) {
        const struct tr_json *t = part_text(doc, it.val, &ignored);
        if (it.index)
            buf[len++] = '\n';
        memcpy(buf + len, t->u.s, t->len);
        len += t->len;
    }
    return tr_jv_str(ctx, buf, len, true);
}

static struct tr_jv *read_message(struct tr_jctx *ctx, const struct tr_json_doc *doc,
                                  const struct tr_json *m)
{
    struct tr_jv *d = tr_jv_dict(ctx);
    bool has_content = false;

    for (struct tr_json_it it = tr_json_iter(m); tr_json_step(&it);) {
        struct tr_jv *v;
        if (TR_JSON_EQ(it.key, "content")) {
            has_content = true;
            if (it.val->type == TR_JSON_NULL)
                v = tr_jv_str(ctx, "", 0, true);
            else if (it.val->type == TR_JSON_ARRAY)
                v = join_parts(ctx, doc, it.val);
            else
                v = tr_messages_value(ctx, doc, it.val);
        } else if (TR_JSON_EQ(it.key, "role") && TR_JSON_EQ(it.val, "developer")) {
            v = tr_jv_str(ctx, "system", 6, true);
        } else if (it.val->type == TR_JSON_NULL) {
            continue;
        } else {
            v = tr_messages_value(ctx, doc, it.val);
        }
        if (tr_jv_set(ctx, d, it.key->u.s, it.key->len, true, v))
            return NULL;
    }
    if (!has_content && tr_jv_set(ctx, d, "content", 7, false, tr_jv_str(ctx, "", 0, true)))
        return NULL;
    return d;
}

struct tr_jv *tr_messages_read(struct tr_jctx *ctx, const struct tr_json_doc *doc,
                               const struct tr_json *messages, struct tr_fault *f)
{
    if (tr_messages_check(doc, messages, f))
        return NULL;
    struct tr_jv *list = tr_jv_list(ctx);
    for (struct tr_json_it it = tr_json_iter(messages); tr_json_step(&it);) {
        if (tr_jv_append(ctx, list, read_message(ctx, doc, it.val))) {
            tr_fault_set(f, TR_ERR_BAD_PARAM, "messages", "The messages are too large.");
            return NULL;
        }
    }
    return list;
}
