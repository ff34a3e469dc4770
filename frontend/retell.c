/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/retell.c - see retell.h. */
#include "frontend/retell.h"

static void begin(struct tr_retell *r, const struct tr_fe *fe, const uint32_t *ids, uint64_t n)
{
    *r = (struct tr_retell){.text = fe->text, .ids = ids, .n = n};
}

void tr_retell_answer(struct tr_retell *r, const struct tr_fe *fe, const struct tr_ask *a,
                      const uint32_t *ids, uint64_t n)
{
    begin(r, fe, ids, n);
    tr_scan_init(&r->scan, fe->vocab, a->stops, a->skip_special);
    r->scan.include_stop = a->include_stop;
}

void tr_retell_prompt(struct tr_retell *r, const struct tr_fe *fe, const struct tr_ask *a,
                      const uint32_t *ids, uint64_t n)
{
    begin(r, fe, ids, n);
    tr_scan_init(&r->scan, fe->vocab, NULL, a->skip_special);
    tr_detok_begins(&r->scan.detok);
}

bool tr_retell(struct tr_retell *r, struct tr_emit *e, size_t upto, uint64_t *budget)
{
    size_t len;

    while (r->at < r->n && r->scan.stop < 0) {
        if (!*budget || e->len >= upto)
            return false;
        --*budget;
        if (tr_scan_push(&r->scan, (int32_t)r->ids[r->at++], r->text, &len) >= 0)
            tr_emit_str_piece(e, r->text, len);
    }
    if (r->scan.stop < 0 && !r->flushed) {
        tr_scan_flush(&r->scan, r->text, &len);
        tr_emit_str_piece(e, r->text, len);
    }
    r->flushed = true;
    return true;
}
