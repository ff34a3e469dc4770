/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/spans.h - sets of tokens as spans in the order of the trie, where subtrees lie together.  Private to
 * grammar/. */
#ifndef TR_GRAMMAR_SPANS_H
#define TR_GRAMMAR_SPANS_H

#include "grammar/pieces.h"

#include <stdbool.h>

struct tr_gspan {
    uint32_t from, end; /* indices in pieces->ids */
};

struct tr_gspans {
    const struct tr_gpieces *pieces;
    struct tr_gspan *at; /* [max] */
    uint32_t n, max;
    uint32_t n_ids; /* in all spans; one may be in several while not `sorted` */
    bool sorted;    /* ascending, disjoint */
    uint32_t *all;  /* the mask of all tokens of the trie */
    size_t words;   /* of a mask */
};

/* 0 or -ENOMEM.  `pieces` is borrowed. */
int tr_gspans_open(struct tr_gspans *s, const struct tr_gpieces *pieces);
void tr_gspans_close(struct tr_gspans *s);

void tr_gspans_clear(struct tr_gspans *s);
void tr_gspans_add(struct tr_gspans *s, uint32_t from, uint32_t end);

/* The tokens' ids: n_ids of them. */
void tr_gspans_ids(const struct tr_gspans *s, uint32_t *ids);

/* Their bits; others become 0 (set) or stay (add). */
void tr_gspans_set(const struct tr_gspans *s, uint32_t *mask);
void tr_gspans_add_bits(const struct tr_gspans *s, uint32_t *mask);

static inline void tr_gmask_add(uint32_t *mask, const uint32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        mask[ids[i] / 32] |= 1u << ids[i] % 32;
}

#endif
