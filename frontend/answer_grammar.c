/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/answer_grammar.c - see answer_grammar.h. */
#include "frontend/answer_grammar.h"

#include "frontend/ask.h"
#include "grammar/json_text.h"
#include "grammar/schema.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What is being put together. */
struct composer {
    const struct tr_ask *a;
    struct tr_gbuild *b;
    struct tr_fault *f;
    const struct tr_tool_syntax *x;
    tr_gnode object; /* any JSON object */
    bool loose;      /* functions that are not strict take any object */
    bool too_large;  /* and that might help */
};

static tr_gnode pair(struct composer *c, tr_gnode first, tr_gnode second)
{
    return tr_g_seq(c->b, (tr_gnode[]){first, second}, 2);
}

static tr_gnode either(struct composer *c, tr_gnode one, tr_gnode other)
{
    return tr_g_alt(c->b, (tr_gnode[]){one, other}, 2);
}

static tr_gnode maybe(struct composer *c, tr_gnode node)
{
    return tr_g_repeat(c->b, node, 0, 1);
}

/* ---- words of the format ---- */

/* The marker that begins here and is a control token: its id, or -1. */
static int32_t token_at(const struct composer *c, const char *p, size_t *len)
{
    const struct tr_vocab *v = c->a->fe->vocab;

    for (uint32_t i = 0; i < c->a->n_markers; i++) {
        const char *name = tr_vocab_bytes(v, c->a->marker[i], len);
        if (name && strncmp(p, name, *len) == 0)
            return c->a->marker[i];
    }
    return -1;
}

/* A text in which markers that are control tokens stand as these. */
static tr_gnode word(struct composer *c, const char *text)
{
    tr_gnode out = tr_g_empty(c->b);

    while (*text) {
        size_t n = 0, len = 0;
        while (text[n] && token_at(c, text + n, &len) < 0)
            n++;
        if (n)
            out = pair(c, out, tr_g_bytes(c->b, text, n));
        text += n;
        int32_t id = *text ? token_at(c, text, &len) : -1;
        if (id < 0)
            break;
        out = pair(c, out, tr_g_token(c->b, (uint32_t)id));
        text += len;
    }
    return out;
}

/* Text without this word; NULL: any text. */
static tr_gnode free_text(struct composer *c, const char *without)
{
    struct tr_gliteral l = {without, without ? strlen(without) : 0};

    return tr_g_text_without(c->b, &l, without ? 1 : 0);
}

/* ---- a call ---- */

static tr_gnode any_object(struct composer *c)
{
    if (!c->object) {
        c->object = tr_g_rule(c->b);
        tr_g_define(c->b, c->object, tr_gjson_object(c->b));
    }
    return c->object;
}

static int refuse(struct composer *c, const struct tr_json *at, const char *why)
{
    char param[sizeof(c->f->param)];

    tr_json_param(c->a->doc, at, param, sizeof(param));
    return tr_fault_set(c->f, TR_ERR_BAD_PARAM, param, "%s.", why);
}

/* What the arguments of a function may be. */
static int arguments(struct composer *c, const struct tr_json *tool, tr_gnode *out)
{
    const struct tr_json *schema = tr_tool_parameters(tool);
    struct tr_gfault fault = {.at = NULL};

    *out = any_object(c);
    if (!schema || schema->len == 0 || (c->loose && !tr_tool_is_strict(tool)))
        return 0;
    tr_gnode node = TR_G_NONE;
    int rc = tr_gschema(c->b, c->a->doc, schema, &node, &fault);
    if (rc == -ENOMEM)
        return tr_fault_set(c->f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    c->too_large |= rc == -E2BIG;
    if (rc && tr_tool_is_strict(tool))
        return refuse(c, fault.at ? fault.at : schema, fault.why);
    if (rc == 0)
        *out = node;
    return 0;
}

/* One call of any function that may be called. */
static int one_call(struct composer *c, tr_gnode *out)
{
    const struct tr_tool_writing *w = &c->x->write;
    tr_gnode list[TR_TOOL_LIST_MAX];
    size_t n = 0;

    for (struct tr_json_it it = tr_json_iter(c->a->call.list); tr_json_step(&it);) {
        if (!tr_tools_allow(&c->a->call, it.index))
            continue;
        const struct tr_json *name = tr_tool_name(it.val);
        tr_gnode args;
        if (arguments(c, it.val, &args))
            return -EINVAL;
        tr_gnode part[] = {tr_g_bytes(c->b, name->u.s, name->len), word(c, w->name_after), args};
        list[n++] = tr_g_seq(c->b, part, 3);
    }
    tr_gnode rule = tr_g_rule(c->b);
    tr_gnode part[] = {word(c, w->name_before), tr_g_alt(c->b, list, n), word(c, w->args_after)};
    tr_g_define(c->b, rule, tr_g_seq(c->b, part, 3));
    *out = rule;
    return 0;
}

/* All that stands between text: one call, or as many as there may be. */
static tr_gnode calls(struct composer *c, tr_gnode call)
{
    const struct tr_tool_writing *w = &c->x->write;
    tr_gnode one[] = {word(c, w->one_begin), call, word(c, w->one_end)};
    tr_gnode single = tr_g_seq(c->b, one, 3);

    if (c->a->call.one)
        return single;
    tr_gnode more = tr_g_repeat(c->b, pair(c, word(c, w->sep), call), 0, TR_G_INF);
    tr_gnode many[] = {word(c, w->begin), call, more, word(c, w->end)};
    bool same = strcmp(w->begin, w->one_begin) == 0 && strcmp(w->end, w->one_end) == 0;
    tr_gnode all = tr_g_seq(c->b, many, 4);
    return same ? all : either(c, single, all);
}

/* ---- the answer ---- */

/* The word by which text becomes calls; NULL: they have none, and stand at the beginning or nowhere. */
static const char *opening(const struct composer *c)
{
    const struct tr_tool_writing *w = &c->x->write;
    const char *begin = *w->one_begin ? w->one_begin : w->name_before;

    for (int i = 0; i < 2; i++)
        if (c->x->open[i] && strncmp(begin, c->x->open[i], strlen(c->x->open[i])) == 0)
            return c->x->open[i];
    return NULL;
}

/* Text that is no call, where calls have no opening: it is empty, or begins otherwise. */
static tr_gnode other_text(struct composer *c)
{
    static const struct tr_grange not_first[] = {
        {'{', '{'}, {'[', '['}, {' ', ' '}, {'\t', '\n'}, {'\r', '\r'}};
    size_t n = sizeof(not_first) / sizeof(not_first[0]);
    tr_gnode blank = tr_g_class(c->b, not_first + 2, n - 2, false);
    tr_gnode first = tr_g_class(c->b, not_first, n, true);
    tr_gnode text = maybe(c, pair(c, first, free_text(c, NULL)));

    return pair(c, tr_g_repeat(c->b, blank, 0, 8), text);
}

static tr_gnode text_and_calls(struct composer *c, tr_gnode calls_node)
{
    const char *open = opening(c);

    if (!open)
        return either(c, calls_node, other_text(c));
    tr_gnode text = tr_g_rule(c->b);
    tr_g_define(c->b, text, free_text(c, open));
    return pair(c, text,
                tr_g_repeat(c->b, pair(c, calls_node, text), 0, c->a->call.one ? 1 : TR_G_INF));
}

static int said(struct composer *c, tr_gnode *out)
{
    const struct tr_ask *a = c->a;
    tr_gnode wish = TR_G_NONE, call;

    if (a->wish.kind && tr_ask_grammar_node(a, c->b, &wish, c->f))
        return -EINVAL;
    *out = wish;
    if (!a->call.list)
        return 0;
    if (one_call(c, &call))
        return -EINVAL;
    *out = calls(c, call);
    if (a->call.forced)
        return 0;
    *out = a->wish.kind ? either(c, *out, wish) : text_and_calls(c, *out);
    return 0;
}

/* What may be thought before that. */
static tr_gnode thought(struct composer *c)
{
    const struct tr_reasoning_syntax *r = &tr_reasoning_syntax[c->a->reasoning_format];
    static const struct tr_grange blanks[] = {{' ', ' '}, {'\t', '\n'}, {'\r', '\r'}};
    tr_gnode blank = tr_g_repeat(c->b, tr_g_class(c->b, blanks, 3, false), 0, 4);
    tr_gnode rest[] = {free_text(c, r->close), word(c, r->close), blank};
    tr_gnode ends = tr_g_seq(c->b, rest, 3);

    if (c->a->reasoning_open)
        return ends;
    return maybe(c, pair(c, blank, pair(c, word(c, r->open), ends)));
}

static int compose(struct tr_ask *a, bool loose, bool *too_large, struct tr_fault *f)
{
    struct composer c = {
        .a = a, .b = tr_gbuild_new(), .f = f, .x = &tr_tool_syntax[a->tool_format], .loose = loose};
    tr_gnode start;

    if (!c.b)
        return tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    int rc = said(&c, &start);
    if (rc == 0 && a->reasoning_format)
        start = pair(&c, thought(&c), start);
    if (rc == 0)
        rc = tr_ask_grammar_take(a, c.b, start, a->call.list ? "tools" : a->wish.field, f);
    *too_large = c.too_large || (rc && strcmp(f->param, "tools") == 0);
    tr_gbuild_free(c.b);
    return rc;
}

int tr_answer_grammar(struct tr_ask *a, struct tr_fault *f)
{
    if (!a->call.list && !a->wish.kind)
        return 0;
    bool too_large = false;
    int rc = compose(a, false, &too_large, f);
    /* Schemas that are too large together. */
    if (rc && f->err == TR_ERR_BAD_PARAM && a->call.list && too_large)
        rc = compose(a, true, &too_large, f);
    return rc;
}
