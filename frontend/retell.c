/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/retell.c - see retell.h. */
#include "frontend/retell.h"

static void begin(struct tr_retell *r, const struct tr_fe *fe, const uint32_t *ids, uint64_t n)
{
    *r = (struct tr_retell){.text = fe->text, .parts = fe->parts, .ids = ids, .n = n};
}

void tr_retell_answer(struct tr_retell *r, const struct tr_fe *fe, const struct tr_ask *a,
                      const uint32_t *ids, uint64_t n)
{
    begin(r, fe, ids, n);
    tr_ask_scan(a, &r->scan);
    r->splits = tr_ask_splits(a);
    r->hides = a->reasoning_hidden;
    if (r->splits)
        tr_ask_split(a, &r->split);
}

void tr_retell_prompt(struct tr_retell *r, const struct tr_fe *fe, const struct tr_ask *a,
                      const uint32_t *ids, uint64_t n)
{
    begin(r, fe, ids, n);
    tr_scan_init(&r->scan, fe->vocab, NULL, a->skip_special);
    tr_detok_begins(&r->scan.detok);
}

static void give_parts(const struct tr_retell *r, tr_retell_take *take, void *arg)
{
    for (uint32_t i = 0; i < r->parts->n; i++) {
        const struct tr_part *p = &r->parts->part[i];
        if (p->kind != TR_PART_REASONING || !r->hides)
            take(arg, p, r->parts->text + p->at);
    }
}

static void give(struct tr_retell *r, size_t len, tr_retell_take *take, void *arg)
{
    struct tr_part whole = {.kind = TR_PART_TEXT, .len = (uint32_t)len};

    if (r->splits) {
        tr_split_push(&r->split, r->text, len, r->parts);
        give_parts(r, take, arg);
    } else if (len) {
        take(arg, &whole, r->text);
    }
}

bool tr_retell_step(struct tr_retell *r, tr_retell_take *take, void *arg)
{
    size_t len = 0;

    if (r->at < r->n && r->scan.stop < 0) {
        if (tr_scan_push(&r->scan, (int32_t)r->ids[r->at++], r->text, &len) >= 0)
            give(r, len, take, arg);
        return true;
    }
    if (r->flushed)
        return false;
    if (r->scan.stop < 0) {
        tr_scan_flush(&r->scan, r->text, &len);
        give(r, len, take, arg);
    }
    if (r->splits) {
        tr_split_flush(&r->split, r->parts);
        give_parts(r, take, arg);
    }
    r->flushed = true;
    return true;
}

static void add_text(void *arg, const struct tr_part *part, const char *text)
{
    if (part->kind == TR_PART_TEXT)
        tr_emit_str_piece(arg, text, part->len);
}

bool tr_retell(struct tr_retell *r, struct tr_emit *e, size_t upto, uint64_t *budget)
{
    while (r->at < r->n && r->scan.stop < 0) {
        if (!*budget || e->len >= upto)
            return false;
        --*budget;
        tr_retell_step(r, add_text, e);
    }
    tr_retell_step(r, add_text, e);
    return true;
}
