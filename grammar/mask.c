/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/mask.c - see mask.h. */
#include "grammar/mask.h"

#include "grammar/step.h"

#include <stdlib.h>
#include <string.h>

struct tr_gmasks {
    struct tr_gpieces pieces;
    struct tr_gmasks_stats stats;
    struct tr_gmatch at[TR_GPIECE_MAX + 1]; /* by depth in the trie */
};

struct tr_gmasks *tr_gmasks_open(const struct tr_gpieces *pieces, size_t cache_bytes)
{
    struct tr_gmasks *c = calloc(1, sizeof(*c));

    (void)cache_bytes;
    if (c)
        c->pieces = *pieces;
    return c;
}

void tr_gmasks_close(struct tr_gmasks *c)
{
    free(c);
}

static inline void set(uint32_t *mask, uint32_t id)
{
    mask[id / 32] |= 1u << id % 32;
}

static void walk(struct tr_gmasks *c, const struct tr_gprog *p, uint32_t v, uint32_t depth,
                 uint32_t *mask)
{
    const struct tr_gpiece *nodes = c->pieces.nodes;

    for (uint32_t k = v + 1; k < nodes[v].skip; k = nodes[k].skip) {
        uint8_t byte = tr_gpiece_byte(&nodes[k]);
        c->at[depth + 1] = c->at[depth];
        c->stats.walked++;
        if (!tr_gmatch_bytes(&c->at[depth + 1], p, &byte, 1))
            continue;
        for (uint32_t i = tr_gpiece_first(&nodes[k]); i < tr_gpiece_first(&nodes[k + 1]); i++)
            set(mask, c->pieces.ids[i]);
        walk(c, p, k, depth + 1, mask);
    }
}

uint32_t tr_gmasks_fill(struct tr_gmasks *c, const struct tr_gprog *p, const struct tr_gmatch *m,
                        uint32_t *mask)
{
    size_t words = tr_gmask_words(c->pieces.n_vocab);
    uint32_t n = 0;

    memset(mask, 0, words * sizeof(*mask));
    c->stats.fills++;
    c->stats.walks++;
    c->at[0] = *m;
    walk(c, p, 0, 0, mask);
    for (uint32_t i = 0; i < p->n_tokens; i++) {
        uint32_t id = tr_g_u32(p->tokens + (size_t)i * TR_GTOKEN_SIZE);
        c->at[0] = *m;
        if (id < c->pieces.n_vocab && tr_gmatch_token(&c->at[0], p, id))
            set(mask, id);
    }
    if (tr_gmatch_may_end(m, p))
        for (uint32_t i = 0; i < c->pieces.n_eog; i++)
            set(mask, c->pieces.eog[i]);
    for (size_t i = 0; i < words; i++)
        n += (uint32_t)__builtin_popcount(mask[i]);
    return n;
}

void tr_gmasks_stats(const struct tr_gmasks *c, struct tr_gmasks_stats *s)
{
    *s = c->stats;
}
