/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/sections.c - see sections.h. */
#include "frontend/sections.h"

#include "base/assert.h"

#include <stdlib.h>

void tr_sections_fini(struct tr_sections *s)
{
    tr_emit_fini(&s->text);
    free(s->at);
    *s = (struct tr_sections){0};
}

/* NULL: no memory. */
static struct tr_section *add(struct tr_sections *s)
{
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? 2 * s->cap : 4;
        struct tr_section *p = realloc(s->at, cap * sizeof(*p));
        if (!p)
            return NULL;
        s->at = p;
        s->cap = cap;
    }
    return &s->at[s->n++];
}

static void take(void *arg, const struct tr_part *p, const char *text)
{
    struct tr_sections *s = arg;
    struct tr_section *last = s->n ? &s->at[s->n - 1] : NULL;

    if (s->failed)
        return;
    if (p->kind == TR_PART_CALL_DONE) {
        TR_ASSERT(last && last->kind == TR_PART_CALL);
        last->done = true;
        s->calls++;
        return;
    }
    if (p->kind != TR_PART_ARGS && (!last || last->kind != p->kind || p->kind == TR_PART_CALL)) {
        last = add(s);
        if (!last) {
            s->failed = true;
            return;
        }
        *last = (struct tr_section){.kind = p->kind, .call = p->call, .begin = s->text.len};
        last->name = last->begin;
    }
    TR_ASSERT(last);
    tr_emit_str_piece(&s->text, text, p->len);
    s->failed |= s->text.failed;
    if (p->kind == TR_PART_CALL)
        last->name_end = last->begin = s->text.len;
    last->end = s->text.len;
}

bool tr_sections_make(struct tr_sections *s, struct tr_retell *r, uint64_t *budget)
{
    while (*budget && tr_retell_step(r, take, s))
        --*budget;
    return r->flushed;
}

bool tr_sections_have(const struct tr_sections *s, enum tr_part_kind kind)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->at[i].kind == kind)
            return true;
    return false;
}

static void put(const struct tr_sections *s, size_t begin, size_t end, struct tr_emit *e)
{
    e->failed |= s->failed;
    if (end > begin)
        tr_emit_bytes(e, s->text.buf + begin, end - begin);
}

void tr_sections_joined(const struct tr_sections *s, enum tr_part_kind kind, struct tr_emit *e)
{
    tr_emit_str_open(e);
    for (uint32_t i = 0; i < s->n; i++)
        if (s->at[i].kind == kind)
            put(s, s->at[i].begin, s->at[i].end, e);
    tr_emit_str_close(e);
    e->failed |= s->failed;
}

static void put_string(const struct tr_sections *s, size_t begin, size_t end, struct tr_emit *e)
{
    tr_emit_str_open(e);
    put(s, begin, end, e);
    tr_emit_str_close(e);
}

void tr_sections_text(const struct tr_sections *s, uint32_t i, struct tr_emit *e)
{
    put_string(s, s->at[i].begin, s->at[i].end, e);
}

void tr_sections_name(const struct tr_sections *s, uint32_t i, struct tr_emit *e)
{
    put_string(s, s->at[i].name, s->at[i].name_end, e);
}
