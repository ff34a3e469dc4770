/* SPDX-License-Identifier: Apache-2.0 */
/* text/split.c - see split.h.  One byte at a time: a small machine in six modes. */
#include "text/split_priv.h"

#include "base/assert.h"

#include <string.h>

/* ---- parts ---- */

void tr_split_add(const struct tr_split *s, struct tr_parts *out, enum tr_part_kind kind,
                  const char *text, size_t len)
{
    bool joins = kind == TR_PART_TEXT || kind == TR_PART_REASONING || kind == TR_PART_ARGS;
    struct tr_part *p = out->n ? &out->part[out->n - 1] : NULL;

    if (!p || !joins || p->kind != kind) {
        TR_ASSERT(out->n < TR_PARTS_MAX);
        p = &out->part[out->n++];
        *p = (struct tr_part){.kind = kind, .call = s->calls, .at = out->len};
    }
    TR_ASSERT(len <= sizeof(out->text) - out->len);
    memcpy(out->text + out->len, text, len);
    out->len += (uint32_t)len;
    p->len += (uint32_t)len;
}

static void add_blanks(struct tr_split *s, struct tr_parts *out)
{
    if (s->n_blanks && s->edge != EDGE_REASON)
        tr_split_add(s, out, TR_PART_TEXT, s->blanks, s->n_blanks);
    s->n_blanks = 0;
    s->edge = EDGE_NONE;
}

void tr_split_add_text(struct tr_split *s, struct tr_parts *out, const char *text, size_t len)
{
    add_blanks(s, out);
    tr_split_add(s, out, TR_PART_TEXT, text, len);
}

/* ---- what is held ---- */

static void drop(struct tr_split *s, size_t n)
{
    s->n_held = (uint16_t)(s->n_held - n);
    memmove(s->held, s->held + n, s->n_held);
}

static int match_opening(const struct tr_split *s, const char *p, size_t n)
{
    int best = NO;

    for (size_t i = 0; i < 2; i++) {
        int m = match(s->tools->open[i], p, n);
        best = m > best ? m : best;
    }
    return best;
}

void tr_split_to_text(struct tr_split *s, size_t sure, struct tr_parts *out)
{
    char again[TR_SPLIT_HELD];
    size_t n = s->n_held;

    memcpy(again, s->held, n);
    s->n_held = 0;
    s->mode = TEXT;
    if (sure)
        tr_split_add_text(s, out, again, sure);
    for (size_t i = sure; i < n; i++)
        tr_split_step(s, again[i], out);
}

/* ---- text and reasoning ---- */

static void text(struct tr_split *s, char b, struct tr_parts *out)
{
    if (s->edge && !s->n_held) {
        if (is_blank(b) && s->n_blanks < TR_SPLIT_BLANKS) {
            s->blanks[s->n_blanks++] = b;
            return;
        }
        bool brace = (b == '{' && s->tools->bare) || (b == '[' && s->tools->bare_list);
        if (brace && s->edge != EDGE_CALL) {
            tr_split_begin_head(s, false);
            tr_split_head(s, b, out);
            return;
        }
    }
    hold(s, b);
    while (s->n_held) {
        int call = match_opening(s, s->held, s->n_held);
        bool may_think = s->edge || s->reasoning->anywhere;
        int think = may_think ? match(s->reasoning->open, s->held, s->n_held) : NO;
        if (call == IS) {
            tr_split_begin_head(s, true);
            return;
        }
        if (think == IS) {
            s->n_held = s->n_blanks = 0;
            s->mode = REASON;
            s->edge = EDGE_REASON_BEGINS;
            return;
        }
        if (call == BEGINS || think == BEGINS)
            return;
        tr_split_add_text(s, out, s->held, 1);
        drop(s, 1);
    }
}

static void reason(struct tr_split *s, char b, struct tr_parts *out)
{
    if (s->edge == EDGE_REASON_BEGINS && !s->n_held && is_blank(b))
        return;
    hold(s, b);
    while (s->n_held) {
        size_t ends = 0;
        while (ends < s->n_held && ends < TR_SPLIT_BLANKS && s->held[ends] == '\n')
            ends++;
        const char *rest = s->held + ends;
        int m = match(s->reasoning->close, rest, s->n_held - ends);
        if (m == IS) {
            s->n_held = 0;
            s->mode = TEXT;
            s->edge = EDGE_REASON;
            return;
        }
        if (m == BEGINS)
            return;
        s->edge = EDGE_NONE;
        tr_split_add(s, out, TR_PART_REASONING, s->held, 1);
        drop(s, 1);
    }
}

/* ---- arguments and what follows them ---- */

void tr_split_end_call(struct tr_split *s, struct tr_parts *out)
{
    tr_split_add(s, out, TR_PART_CALL_DONE, "", 0);
    s->calls++;
    s->edge = EDGE_CALL;
}

/* One byte of JSON; true when it closed the outermost of the braces that are open. */
static bool json_ends(struct tr_split *s, char b)
{
    if (s->in_string) {
        if (s->escaped)
            s->escaped = false;
        else if (b == '\\')
            s->escaped = true;
        else if (b == '"')
            s->in_string = false;
        return false;
    }
    if (b == '"')
        s->in_string = true;
    else if (b == '{' || b == '[')
        s->depth++;
    else if (b == '}' || b == ']')
        return --s->depth == 0;
    return false;
}

static void args(struct tr_split *s, char b, struct tr_parts *out)
{
    tr_split_add(s, out, TR_PART_ARGS, &b, 1);
    if (!json_ends(s, b))
        return;
    tr_split_end_call(s, out);
    s->mode = s->objects ? REST : AFTER;
    s->depth = 1;
}

/* What is held behind a call belongs to the format (or may), or it is text. */
static void after(struct tr_split *s, char b, struct tr_parts *out)
{
    const struct tr_tool_syntax *t = s->tools;
    size_t skip = 0;

    hold(s, b);
    while (skip < s->n_held && is_blank(s->held[skip]))
        skip++;
    const char *p = s->held + skip;
    size_t n = s->n_held - skip;
    if (n == 0 && s->n_held < TR_SPLIT_BLANKS)
        return;
    if (n == 0) {
        tr_split_to_text(s, 0, out);
        return;
    }
    const char *ends = t->args_end;
    while (ends && is_blank(*ends))
        ends++;
    int end = match(ends, p, n), next = match(t->next, p, n), close = match(t->close, p, n);
    bool many = s->inside && s->objects && (s->list || t->close || t->bare);
    if (end == IS) {
        s->n_held = 0;
    } else if (next == IS) {
        tr_split_begin_head(s, true);
        s->word = s->n_held;
        s->head = H_NAME;
    } else if (close == IS && s->inside) {
        s->n_held = 0;
        s->inside = false;
    } else if (many && n == 1 && (*p == ',' || *p == ';' || *p == '{')) {
        bool list = s->list;
        tr_split_begin_head(s, s->by_marker);
        s->list = list;
        s->head = *p == '{' ? H_MEMBER : H_BEGIN;
    } else if (s->list && n == 1 && *p == ']') {
        s->n_held = 0;
        s->list = false;
        s->inside = t->close != NULL;
    } else if (end != BEGINS && next != BEGINS && !(close == BEGINS && s->inside)) {
        tr_split_to_text(s, 0, out);
    }
}

void tr_split_step(struct tr_split *s, char b, struct tr_parts *out)
{
    switch (s->mode) {
    case TEXT:
        text(s, b, out);
        return;
    case REASON:
        reason(s, b, out);
        return;
    case HEAD:
        tr_split_head(s, b, out);
        return;
    case ARGS:
        args(s, b, out);
        return;
    case REST:
        if (json_ends(s, b))
            s->mode = AFTER;
        return;
    default:
        after(s, b, out);
    }
}

void tr_split_init(struct tr_split *s, enum tr_tool_format tools,
                   enum tr_reasoning_format reasoning, bool open)
{
    *s = (struct tr_split){.tools = &tr_tool_syntax[tools],
                           .reasoning = &tr_reasoning_syntax[reasoning],
                           .mode = open && reasoning ? REASON : TEXT,
                           .edge = open && reasoning ? EDGE_REASON_BEGINS : EDGE_START};
}

void tr_split_push(struct tr_split *s, const char *text, size_t len, struct tr_parts *out)
{
    out->n = out->len = 0;
    for (size_t i = 0; i < len; i++)
        tr_split_step(s, text[i], out);
}

void tr_split_flush(struct tr_split *s, struct tr_parts *out)
{
    out->n = out->len = 0;
    if (s->mode == REASON && s->n_held)
        tr_split_add(s, out, TR_PART_REASONING, s->held, s->n_held);
    else if ((s->mode == TEXT || (s->mode == HEAD && !s->by_marker && !s->calls)) && s->n_held)
        tr_split_add_text(s, out, s->held, s->n_held);
    else if (s->mode == TEXT && s->edge == EDGE_START)
        add_blanks(s, out);
    s->n_held = s->n_blanks = 0;
}
