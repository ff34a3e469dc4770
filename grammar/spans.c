/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/spans.c - see spans.h. */
#include "grammar/spans.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int tr_gspans_open(struct tr_gspans *s, const struct tr_gpieces *pieces)
{
    /* Spans that do not touch are at most half as many as there are ids: always room for one more, once they
     * are joined. */
    *s = (struct tr_gspans){.pieces = pieces, .max = pieces->n_ids + 2, .sorted = true};
    s->words = ((size_t)pieces->n_vocab + 31) / 32;
    s->at = malloc((size_t)s->max * sizeof(*s->at));
    s->all = calloc(s->words + 1, sizeof(*s->all));
    if (!s->at || !s->all) {
        tr_gspans_close(s);
        return -ENOMEM;
    }
    tr_gmask_add(s->all, pieces->ids, pieces->n_ids);
    return 0;
}

void tr_gspans_close(struct tr_gspans *s)
{
    free(s->at);
    free(s->all);
    *s = (struct tr_gspans){0};
}

void tr_gspans_clear(struct tr_gspans *s)
{
    s->n = s->n_ids = 0;
    s->sorted = true;
}

static int by_from(const void *va, const void *vb)
{
    const struct tr_gspan *a = va, *b = vb;
    return a->from < b->from ? -1 : a->from > b->from;
}

static void join(struct tr_gspans *s)
{
    uint32_t k = 0;

    qsort(s->at, s->n, sizeof(*s->at), by_from);
    for (uint32_t i = 1; i < s->n; i++) {
        if (s->at[i].from > s->at[k].end)
            s->at[++k] = s->at[i];
        else if (s->at[i].end > s->at[k].end)
            s->at[k].end = s->at[i].end;
    }
    s->n = s->n ? k + 1 : 0;
    s->sorted = true;
    s->n_ids = 0;
    for (uint32_t i = 0; i < s->n; i++)
        s->n_ids += s->at[i].end - s->at[i].from;
}

void tr_gspans_add(struct tr_gspans *s, uint32_t from, uint32_t end)
{
    if (from == end)
        return;
    /* Counted too often, ids must not overflow. */
    if (s->n == s->max || s->n_ids > UINT32_MAX - (end - from))
        join(s);
    s->n_ids += end - from;
    if (s->n && s->at[s->n - 1].end == from) {
        s->at[s->n - 1].end = end;
        return;
    }
    if (s->n && from < s->at[s->n - 1].end)
        s->sorted = false;
    s->at[s->n++] = (struct tr_gspan){from, end};
}

void tr_gspans_ids(const struct tr_gspans *s, uint32_t *ids)
{
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t n = s->at[i].end - s->at[i].from;
        memcpy(ids, s->pieces->ids + s->at[i].from, n * sizeof(*ids));
        ids += n;
    }
}

void tr_gspans_add_bits(const struct tr_gspans *s, uint32_t *mask)
{
    for (uint32_t i = 0; i < s->n; i++)
        tr_gmask_add(mask, s->pieces->ids + s->at[i].from, s->at[i].end - s->at[i].from);
}

static void take_away(const struct tr_gspans *s, uint32_t from, uint32_t end, uint32_t *mask)
{
    for (uint32_t i = from; i < end; i++)
        mask[s->pieces->ids[i] / 32] &= ~(1u << s->pieces->ids[i] % 32);
}

void tr_gspans_set(const struct tr_gspans *s, uint32_t *mask)
{
    uint32_t from = 0;

    if (!s->sorted || s->n_ids < s->pieces->n_ids / 2) {
        memset(mask, 0, s->words * sizeof(*mask));
        tr_gspans_add_bits(s, mask);
        return;
    }
    /* Most of them: all but the gaps. */
    memcpy(mask, s->all, s->words * sizeof(*mask));
    for (uint32_t i = 0; i < s->n; i++) {
        take_away(s, from, s->at[i].from, mask);
        from = s->at[i].end;
    }
    take_away(s, from, s->pieces->n_ids, mask);
}
