/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/messages.c - see messages.h.  What may stand in a message is checked in messages_check.c. */
#include "frontend/messages_priv.h"

#include "base/emit.h"
#include "text/vocab.h"

#include <errno.h>
#include <string.h>

/* What is the same for all messages of a request. */
struct reader {
    struct tr_jctx *ctx;
    const struct tr_json_doc *doc;
    const struct tr_chat_traits *traits;
};

/* ---- any value ---- */

static const char *keep(struct tr_jctx *ctx, const char *p, size_t len, bool copied)
{
    char *copy = copied ? tr_jctx_alloc(ctx, len + 1) : NULL;

    if (copy)
        memcpy(copy, p, len);
    return copied ? copy : p;
}

static struct tr_jv *text_value(struct tr_jctx *ctx, const struct tr_json *v, bool copied)
{
    const char *p = keep(ctx, v->u.s, v->len, copied);

    return p ? tr_jv_str(ctx, p, v->len, true) : NULL;
}

static struct tr_jv *number_value(struct tr_jctx *ctx, const struct tr_json_doc *doc,
                                  const struct tr_json *v, bool copied)
{
    size_t len;

    if (v->num == TR_JSON_INT)
        return tr_jv_int(ctx, v->u.i);
    if (v->num != TR_JSON_UINT)
        return tr_jv_float(ctx, v->u.d);
    const char *text = tr_json_number_text(doc, v, &len);
    text = keep(ctx, text, len, copied);
    return text ? tr_jv_int_text(ctx, text, len) : NULL;
}

/* One level of the document at a time; the parser's depth limit bounds the recursion. */
struct tr_jv *tr_messages_value(struct tr_jctx *ctx, const struct tr_json_doc *doc,
                                const struct tr_json *v, bool copied)
{
    struct tr_jv *out;

    switch ((enum tr_json_type)v->type) {
    case TR_JSON_NULL:
        return tr_jv_none(ctx);
    case TR_JSON_BOOL:
        return tr_jv_bool(ctx, v->u.b);
    case TR_JSON_STRING:
        return text_value(ctx, v, copied);
    case TR_JSON_NUMBER:
        return number_value(ctx, doc, v, copied);
    case TR_JSON_ARRAY:
        out = tr_jv_list(ctx);
        for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
            if (tr_jv_append(ctx, out, tr_messages_value(ctx, doc, it.val, copied)))
                return NULL;
        return out;
    case TR_JSON_OBJECT:
        out = tr_jv_dict(ctx);
        for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) {
            const char *key = keep(ctx, it.key->u.s, it.key->len, copied);
            if (!key || tr_jv_set(ctx, out, key, it.key->len, true,
                                  tr_messages_value(ctx, doc, it.val, copied)))
                return NULL;
        }
        return out;
    }
    return NULL;
}

/* ---- content ---- */

/* The tag of tr_chat_continue where the message is continued. */
static struct tr_jv *string(struct reader *r, const char *p, size_t len, bool continued)
{
    size_t more = sizeof(TR_CHAT_CONTINUE) - 1;

    if (!continued)
        return tr_jv_str(r->ctx, p, len, true);
    char *buf = tr_jctx_alloc(r->ctx, len + more);
    if (!buf)
        return NULL;
    memcpy(buf, p, len);
    memcpy(buf + len, TR_CHAT_CONTINUE, more);
    return tr_jv_str(r->ctx, buf, len + more, true);
}

/* The texts of all parts, joined. */
static struct tr_jv *join_parts(struct reader *r, const struct tr_json *parts, bool continued)
{
    size_t len = 0;

    for (struct tr_json_it it = tr_json_iter(parts); tr_json_step(&it);)
        len += (size_t)tr_messages_part(it.val)->len + 1;
    char *buf = tr_jctx_alloc(r->ctx, len + 1);
    if (!buf)
        return NULL;
    len = 0;
    for (struct tr_json_it it = tr_json_iter(parts); tr_json_step(&it);) {
        const struct tr_json *t = tr_messages_part(it.val);
        if (it.index)
            buf[len++] = '\n';
        memcpy(buf + len, t->u.s, t->len);
        len += t->len;
    }
    return string(r, buf, len, continued);
}

static int add_part(struct reader *r, struct tr_jv *list, const char *p, size_t len, bool continued)
{
    struct tr_jv *part = tr_jv_dict(r->ctx);

    if (tr_jv_set(r->ctx, part, "type", 4, false, tr_jv_str(r->ctx, "text", 4, false)) ||
        tr_jv_set(r->ctx, part, "text", 4, false, string(r, p, len, continued)))
        return -ENOMEM;
    return tr_jv_append(r->ctx, list, part);
}

/* A string or parts as a list of parts. */
static struct tr_jv *list_parts(struct reader *r, const struct tr_json *v, bool continued)
{
    struct tr_jv *list = tr_jv_list(r->ctx);

    if (v->type == TR_JSON_STRING)
        return add_part(r, list, v->u.s, v->len, continued) ? NULL : list;
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) {
        const struct tr_json *t = tr_messages_part(it.val);
        if (add_part(r, list, t->u.s, t->len, continued && it.left == 0))
            return NULL;
    }
    return list;
}

static enum tr_chat_content wanted(const struct reader *r, const struct tr_json *role)
{
    if (TR_JSON_EQ(role, "assistant"))
        return r->traits->content[TR_CHAT_ASSISTANT];
    if (TR_JSON_EQ(role, "system") || TR_JSON_EQ(role, "developer"))
        return r->traits->content[TR_CHAT_SYSTEM];
    if (TR_JSON_EQ(role, "tool"))
        return r->traits->content[TR_CHAT_TOOL];
    return r->traits->content[TR_CHAT_USER];
}

static struct tr_jv *content(struct reader *r, const struct tr_json *role, const struct tr_json *v,
                             bool continued)
{
    enum tr_chat_content form = wanted(r, role);

    if (form == TR_CHAT_PARTS || (form == TR_CHAT_EITHER && v->type == TR_JSON_ARRAY))
        return list_parts(r, v, continued);
    if (v->type == TR_JSON_ARRAY)
        return join_parts(r, v, continued);
    return string(r, v->u.s, v->len, continued);
}

/* ---- tool calls ---- */

/* The arguments of a call, checked before: an object or its text. */
static struct tr_jv *arguments(struct reader *r, const struct tr_json *v)
{
    struct tr_json_fault ignored;
    struct tr_jv *out = NULL;
    bool text = r->traits->text_arguments;

    if (v->type == TR_JSON_STRING && v->len == 0) /* some clients send none so */
        return text ? tr_jv_str(r->ctx, "{}", 2, false) : tr_jv_dict(r->ctx);
    if ((v->type == TR_JSON_STRING) == text)
        return tr_messages_value(r->ctx, r->doc, v, false);
    if (text) {
        struct tr_emit e;
        tr_emit_init(&e);
        tr_emit_json(&e, r->doc, v);
        const char *p = e.failed ? NULL : keep(r->ctx, e.buf, e.len, true);
        out = p ? tr_jv_str(r->ctx, p, e.len, true) : NULL;
        tr_emit_fini(&e);
        return out;
    }
    struct tr_json_doc *doc = tr_json_parse(v->u.s, v->len, &ignored);
    if (doc)
        out = tr_messages_value(r->ctx, doc, tr_json_root(doc), true);
    tr_json_free(doc);
    return out;
}

static struct tr_jv *function(struct reader *r, const struct tr_json *v)
{
    struct tr_jv *d = tr_jv_dict(r->ctx);

    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
        if (tr_jv_set(r->ctx, d, it.key->u.s, it.key->len, true,
                      TR_JSON_EQ(it.key, "arguments")
                          ? arguments(r, it.val)
                          : tr_messages_value(r->ctx, r->doc, it.val, false)))
            return NULL;
    if (!TR_JSON_GET(v, "arguments") &&
        tr_jv_set(r->ctx, d, "arguments", 9, false,
                  r->traits->text_arguments ? tr_jv_str(r->ctx, "{}", 2, false)
                                            : tr_jv_dict(r->ctx)))
        return NULL;
    return d;
}

static struct tr_jv *calls(struct reader *r, const struct tr_json *v)
{
    struct tr_jv *list = tr_jv_list(r->ctx);

    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) {
        struct tr_jv *call = tr_jv_dict(r->ctx);
        for (struct tr_json_it m = tr_json_iter(it.val); tr_json_step(&m);)
            if (tr_jv_set(r->ctx, call, m.key->u.s, m.key->len, true,
                          TR_JSON_EQ(m.key, "function")
                              ? function(r, m.val)
                              : tr_messages_value(r->ctx, r->doc, m.val, false)))
                return NULL;
        if (tr_jv_append(r->ctx, list, call))
            return NULL;
    }
    return list;
}

/* ---- a message ---- */

static int put(struct reader *r, struct tr_jv *d, const char *key, struct tr_jv *v)
{
    return tr_jv_set(r->ctx, d, key, strlen(key), false, v);
}

/* A message without content. */
static int blank(struct reader *r, struct tr_jv *d, bool has_calls)
{
    enum tr_chat_blank how = has_calls ? r->traits->blank : TR_CHAT_EMPTY;

    if (how == TR_CHAT_ABSENT)
        return 0;
    if (how == TR_CHAT_NONE)
        return put(r, d, "content", tr_jv_none(r->ctx));
    if (has_calls && r->traits->content[TR_CHAT_ASSISTANT] == TR_CHAT_PARTS)
        return put(r, d, "content", tr_jv_list(r->ctx));
    return put(r, d, "content", tr_jv_str(r->ctx, "", 0, true));
}

static int reasoning(struct reader *r, struct tr_jv *d, const struct tr_json *m)
{
    const struct tr_json *v = TR_JSON_GET(m, "reasoning_content");

    if (!tr_json_is(v, TR_JSON_STRING))
        v = TR_JSON_GET(m, "thinking");
    if (!tr_json_is(v, TR_JSON_STRING))
        v = TR_JSON_GET(m, "reasoning");
    if (!tr_json_is(v, TR_JSON_STRING))
        return 0;
    if (!tr_json_is(TR_JSON_GET(m, "thinking"), TR_JSON_STRING) &&
        put(r, d, "thinking", text_value(r->ctx, v, false)))
        return -ENOMEM;
    return put(r, d, "reasoning_content", text_value(r->ctx, v, false));
}

static struct tr_jv *member(struct reader *r, const struct tr_json *m, const struct tr_json *key,
                            const struct tr_json *v, bool continued)
{
    const struct tr_json *role = TR_JSON_GET(m, "role");

    if (TR_JSON_EQ(key, "content"))
        return content(r, role, v, continued);
    if (TR_JSON_EQ(key, "role") && TR_JSON_EQ(role, "developer"))
        return tr_jv_str(r->ctx, "system", 6, true);
    if (TR_JSON_EQ(key, "tool_calls"))
        return calls(r, v);
    return tr_messages_value(r->ctx, r->doc, v, false);
}

static struct tr_jv *message(struct reader *r, const struct tr_json *m, bool continued)
{
    const struct tr_json *c = TR_JSON_GET(m, "content"), *tc = TR_JSON_GET(m, "tool_calls");
    struct tr_jv *d = tr_jv_dict(r->ctx);

    for (struct tr_json_it it = tr_json_iter(m); tr_json_step(&it);) {
        if (it.val->type == TR_JSON_NULL || (it.val == tc && tc->len == 0))
            continue;
        if (tr_jv_set(r->ctx, d, it.key->u.s, it.key->len, true,
                      member(r, m, it.key, it.val, continued)))
            return NULL;
    }
    if ((!c || c->type == TR_JSON_NULL) && blank(r, d, tc && tc->len))
        return NULL;
    return reasoning(r, d, m) ? NULL : d;
}

struct tr_jv *tr_messages_read(struct tr_jctx *ctx, const struct tr_json_doc *doc,
                               const struct tr_json *messages, const struct tr_chat_traits *traits,
                               bool continued, struct tr_fault *f)
{
    struct reader r = {ctx, doc, traits};

    if (tr_messages_check(doc, messages, continued, f))
        return NULL;
    struct tr_jv *list = tr_jv_list(ctx);
    for (struct tr_json_it it = tr_json_iter(messages); tr_json_step(&it);) {
        if (tr_jv_append(ctx, list, message(&r, it.val, continued && it.left == 0))) {
            tr_fault_set(f, TR_ERR_BAD_PARAM, "messages", "The messages are too large.");
            return NULL;
        }
    }
    return list;
}

/* ---- all that a template sees ---- */

static struct tr_jv *token_text(struct tr_jctx *ctx, const struct tr_vocab *v, int32_t id)
{
    size_t len = 0;
    const char *p = id >= 0 ? tr_vocab_bytes(v, id, &len) : NULL;

    return tr_jv_str(ctx, p ? p : "", len, false);
}

static struct tr_jv *value_or_none(struct tr_jctx *ctx, const struct tr_messages *m,
                                   const struct tr_json *v)
{
    return v ? tr_messages_value(ctx, m->doc, v, false) : tr_jv_none(ctx);
}

static struct tr_jv *variables(const struct tr_messages *m, const struct tr_chat_traits *traits,
                               const struct tr_vocab *vocab, struct tr_jctx *ctx,
                               struct tr_fault *f)
{
    struct tr_jv *d = tr_jv_dict(ctx), *list;
    int rc = 0;

    if (tr_messages_check_args(m->doc, m->args, f))
        return NULL;
    list = tr_messages_read(ctx, m->doc, m->messages, traits, m->continue_final, f);
    if (!list)
        return NULL;
    if (m->effort)
        rc |= tr_jv_set(ctx, d, "reasoning_effort", 16, false,
                        tr_messages_value(ctx, m->doc, m->effort, false));
    for (struct tr_json_it it = tr_json_iter(m->args); tr_json_step(&it);)
        rc |= tr_jv_set(ctx, d, it.key->u.s, it.key->len, true,
                        tr_messages_value(ctx, m->doc, it.val, false));
    rc |= tr_jv_set(ctx, d, "messages", 8, false, list);
    rc |= tr_jv_set(ctx, d, "tools", 5, false, value_or_none(ctx, m, m->tools));
    rc |= tr_jv_set(ctx, d, "documents", 9, false, value_or_none(ctx, m, m->documents));
    rc |= tr_jv_set(ctx, d, "add_generation_prompt", 21, false,
                    tr_jv_bool(ctx, m->generation_prompt && !m->continue_final));
    rc |= tr_jv_set(ctx, d, "bos_token", 9, false, token_text(ctx, vocab, tr_vocab_bos(vocab)));
    rc |= tr_jv_set(ctx, d, "eos_token", 9, false, token_text(ctx, vocab, tr_vocab_eos(vocab)));
    if (rc) {
        tr_fault_set(f, TR_ERR_BAD_PARAM, "messages", "The messages are too large.");
        return NULL;
    }
    return d;
}

const struct tr_json *tr_messages_final(const struct tr_json *messages)
{
    const struct tr_json *content = NULL, *last = NULL;

    for (struct tr_json_it it = tr_json_iter(messages); tr_json_step(&it);)
        content = TR_JSON_GET(it.val, "content");
    for (struct tr_json_it it = tr_json_iter(content); tr_json_step(&it);)
        last = tr_messages_part(it.val);
    return last ? last : content;
}

int tr_messages_render(const struct tr_messages *m, const struct tr_chat *chat,
                       const struct tr_chat_traits *traits, const struct tr_vocab *vocab,
                       struct tr_jctx *ctx, struct tr_chat_text *out, struct tr_fault *f)
{
    struct tr_errbuf why;
    struct tr_jv *vars = variables(m, traits, vocab, ctx, f);

    if (!vars)
        return -EINVAL;
    if (tr_chat_render(chat, ctx, vars, out, &why))
        return tr_fault_set(f, TR_ERR_TEMPLATE, "messages", "%s", why.msg);
    if (!m->continue_final)
        return 0;
    const struct tr_json *text = tr_messages_final(m->messages);
    int rc = tr_chat_continue(ctx, out, text->u.s, text->len);
    if (rc == -ENOENT)
        return tr_fault_set(f, TR_ERR_TEMPLATE, "continue_final_message",
                            "The chat template does not print the last message as it is, so it "
                            "cannot be continued.");
    return rc ? tr_fault_set(f, TR_ERR_BAD_PARAM, "messages", "The messages are too large.") : 0;
}
