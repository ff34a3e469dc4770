/* SPDX-License-Identifier: Apache-2.0 */
/* text/split_head.c - from the opening of a call to its arguments.  See split.h. */
#include "text/split_priv.h"

static bool held_ends_with(const struct tr_split *s, size_t from, const char *word)
{
    size_t n = strlen(word);

    return s->n_held >= from + n && memcmp(s->held + s->n_held - n, word, n) == 0;
}

void tr_split_begin_head(struct tr_split *s, bool by_marker)
{
    s->mode = HEAD;
    s->head = H_BEGIN;
    s->by_marker = by_marker;
    s->inside = true;
    s->list = false;
    s->n_name = 0;
}

static bool good_name(const char *p, size_t n)
{
    if (n == 0 || n > TR_SPLIT_NAME)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)p[i] < 0x20 || p[i] == '"' || p[i] == '\\')
            return false;
    return true;
}

/* The name is held[from, to), without blanks around it. */
static bool take_name(struct tr_split *s, size_t from, size_t to)
{
    while (from < to && is_blank(s->held[from]))
        from++;
    while (to > from && is_blank(s->held[to - 1]))
        to--;
    s->name = (uint16_t)from;
    s->n_name = (uint16_t)(to - from);
    return good_name(s->held + from, to - from);
}

static void begin_call(struct tr_split *s, struct tr_parts *out)
{
    s->n_blanks = 0;
    s->edge = EDGE_NONE;
    tr_split_add(s, out, TR_PART_CALL, s->held + s->name, s->n_name);
    s->n_held = 0;
    s->n_name = 0;
}

static void begin_args(struct tr_split *s, struct tr_parts *out)
{
    begin_call(s, out);
    tr_split_add(s, out, TR_PART_ARGS, "{", 1);
    s->mode = ARGS;
    s->depth = 1;
    s->in_string = s->escaped = false;
}

static bool key_is(const struct tr_split *s, const char *word)
{
    size_t n = strlen(word);

    return s->n_held - 1u - s->word == n && memcmp(s->held + s->word, word, n) == 0;
}

/* The members of an object before its arguments.  False: it is no call. */
static bool head_object(struct tr_split *s, char b, struct tr_parts *out)
{
    switch (s->head) {
    case H_MEMBER:
        s->word = s->n_held;
        s->head = H_KEY;
        return b == '"';
    case H_KEY:
        if (b == '"') {
            s->is_name = key_is(s, "name");
            s->is_args = key_is(s, "arguments") || key_is(s, "parameters");
            s->head = H_COLON;
        }
        return b != '\\';
    case H_COLON:
        s->head = H_VALUE;
        return b == ':';
    case H_VALUE:
        if (b == '{' && s->is_args && s->n_name) {
            begin_args(s, out);
            return true;
        }
        s->word = s->n_held;
        s->head = H_STRING;
        return b == '"' && !s->is_args;
    case H_STRING:
        if (b == '"') {
            s->head = H_COMMA;
            return !s->is_name || take_name(s, s->word, s->n_held - 1u);
        }
        return b != '\\';
    default: /* H_COMMA */
        /* By itself it may be data: only a marker says that it is a call. */
        if (b == '}' && s->n_name && s->by_marker) {
            begin_call(s, out);
            tr_split_add(s, out, TR_PART_ARGS, "{}", 2);
            tr_split_end_call(s, out);
            s->mode = AFTER;
            return true;
        }
        s->head = H_MEMBER;
        return b == ',';
    }
}

/* A name that stands by itself. */
static bool head_name(struct tr_split *s, char b, struct tr_parts *out)
{
    const struct tr_tool_syntax *t = s->tools;

    if (s->head == H_ARGS) {
        if (b == '{')
            begin_args(s, out);
        return b == '{' || is_blank(b);
    }
    if (s->head == H_FENCE) {
        if (!held_ends_with(s, s->word, t->fence))
            return true;
        s->head = H_ARGS;
        return take_name(s, s->word, s->n_held - strlen(t->fence));
    }
    if (b == '{' && !t->fence) {
        if (!take_name(s, s->word, s->n_held - 1u))
            return false;
        begin_args(s, out);
        return true;
    }
    if (!held_ends_with(s, s->word, t->sep))
        return true;
    size_t end = s->n_held - strlen(t->sep);
    if (t->fence) {
        s->word = s->n_held;
        s->head = H_FENCE;
        return true;
    }
    /* Another marker may stand between: [CALL_ID] and what it names. */
    const char *other = memchr(s->held + s->word, '[', end - s->word);
    s->head = H_ARGS;
    return take_name(s, s->word, other ? (size_t)(other - s->held) : end);
}

/* The first byte behind an opening, a comma or another call. */
static bool head_begin(struct tr_split *s, char b)
{
    const struct tr_tool_syntax *t = s->tools;

    if (is_blank(b))
        return true;
    s->n_name = 0;
    if (t->next) {
        s->objects = false;
        s->word = (uint16_t)(s->n_held - 1);
        s->head = H_MARKER;
        return b == *t->next;
    }
    if (b == '[' && !s->list && (s->by_marker || t->bare_list)) {
        s->list = true;
        return true;
    }
    s->objects = b == '{';
    if (s->objects) {
        s->head = H_MEMBER;
        return true;
    }
    s->word = (uint16_t)(s->n_held - 1);
    s->head = H_NAME;
    return t->sep != NULL;
}

static bool head_marker(struct tr_split *s)
{
    int m = match(s->tools->next, s->held + s->word, s->n_held - s->word);

    if (m == IS) {
        s->word = s->n_held;
        s->head = H_NAME;
    }
    return m != NO;
}

void tr_split_head(struct tr_split *s, char b, struct tr_parts *out)
{
    bool good;

    hold(s, b);
    if (s->head == H_BEGIN)
        good = head_begin(s, b);
    else if (s->head == H_MARKER)
        good = head_marker(s);
    else if (s->head >= H_NAME)
        good = head_name(s, b, out);
    else if (is_blank(b) && s->head != H_KEY && s->head != H_STRING)
        good = true;
    else
        good = head_object(s, b, out);
    if (!good || s->n_held == TR_SPLIT_HELD)
        tr_split_to_text(s, 1, out);
}
