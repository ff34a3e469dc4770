/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/ngram.h"

#include "base/assert.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAIR = 2,        /* shortest suffix that is looked up */
    LONGEST = 16,    /* a longer one is no better */
    CHAIN = 32,      /* places that are compared in one look */
    MIN_HEADS = 256, /* chains of a place, a power of two */
    MAX_HEADS = 16384,
    CLASSES = 3 /* of suffixes: 2, 3 or 4, longer */
};

/* The share of one observation in the estimate, and where estimates begin: docs/performance.md,
 * "Speculation". */
#define RATE 0.125F
static const float first_p[CLASSES] = {0.3F, 0.5F, 0.7F};

struct place {
    uint32_t slot, gen; /* of the sequence; gen 0: nobody's */
    uint32_t n;         /* tokens in the index */
    uint64_t looked;    /* when, by `clock` */
    float p[CLASSES];
    uint32_t at; /* tokens there were at the last guess */
    uint32_t n_guess, class;
    uint32_t guess[TR_GUESS_MAX];
};

struct tr_ngram {
    uint32_t places, n_slots, n_ctx, n_heads;
    uint64_t clock;
    struct place *place; /* [places] */
    uint32_t *of;        /* [n_slots]: the place a slot had last */
    uint32_t *head;      /* [places, n_heads]: 1 + where a pair ends, the latest; 0: none */
    uint32_t *prev;      /* [places, n_ctx]: the same of the next in its chain */
};

static uint32_t heads_for(uint32_t n_ctx)
{
    uint32_t n = MIN_HEADS;
    while (n < n_ctx && n < MAX_HEADS)
        n *= 2;
    return n;
}

uint64_t tr_ngram_place_bytes(uint32_t n_ctx)
{
    return sizeof(struct place) + ((uint64_t)heads_for(n_ctx) + n_ctx) * sizeof(uint32_t);
}

struct tr_ngram *tr_ngram_new(uint32_t places, uint32_t n_slots, uint32_t n_ctx, uint64_t *bytes)
{
    struct tr_ngram *g = calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    TR_ASSERT(places > 0);
    *g = (struct tr_ngram){
        .places = places, .n_slots = n_slots, .n_ctx = n_ctx, .n_heads = heads_for(n_ctx)};
    g->place = calloc(places, sizeof(*g->place));
    g->of = calloc(n_slots, sizeof(*g->of));
    g->head = calloc((size_t)places * g->n_heads, sizeof(*g->head));
    g->prev = calloc((size_t)places * n_ctx, sizeof(*g->prev));
    if (!g->place || !g->of || !g->head || !g->prev) {
        tr_ngram_free(g);
        return NULL;
    }
    if (bytes)
        *bytes = places * tr_ngram_place_bytes(n_ctx) + n_slots * sizeof(*g->of);
    return g;
}

void tr_ngram_free(struct tr_ngram *g)
{
    if (!g)
        return;
    free(g->place);
    free(g->of);
    free(g->head);
    free(g->prev);
    free(g);
}

/* ---- places ---- */

static uint32_t oldest(const struct tr_ngram *g)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < g->places; i++)
        if (g->place[i].looked < g->place[best].looked)
            best = i;
    return best;
}

static struct place *place_of(struct tr_ngram *g, uint32_t slot, uint32_t gen)
{
    struct place *p = &g->place[g->of[slot]];
    if (p->slot != slot || p->gen != gen) {
        if (p->slot != slot || p->gen == 0)
            g->of[slot] = oldest(g);
        p = &g->place[g->of[slot]];
        *p = (struct place){.slot = slot, .gen = gen};
        memcpy(p->p, first_p, sizeof(first_p));
        memset(g->head + (size_t)g->of[slot] * g->n_heads, 0, g->n_heads * sizeof(*g->head));
    }
    p->looked = ++g->clock;
    return p;
}

/* ---- the index ---- */

static uint32_t hash(const struct tr_ngram *g, uint32_t a, uint32_t b)
{
    uint64_t h = (((uint64_t)a << 32) | b) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 40) & (g->n_heads - 1);
}

static void index_tokens(struct tr_ngram *g, struct place *p, const uint32_t *ids, uint32_t total)
{
    uint32_t *head = g->head + (size_t)g->of[p->slot] * g->n_heads;
    uint32_t *prev = g->prev + (size_t)g->of[p->slot] * g->n_ctx;
    for (uint32_t i = p->n > 0 ? p->n : 1; i < total; i++) {
        uint32_t *h = &head[hash(g, ids[i - 1], ids[i])];
        prev[i] = *h;
        *h = i + 1;
    }
    p->n = total;
}

/* How many tokens before and with `a` are those before and with `b` > a. */
static uint32_t alike(const uint32_t *ids, uint32_t a, uint32_t b)
{
    uint32_t n = 0;
    while (n <= a && n < LONGEST && ids[a - n] == ids[b - n])
        n++;
    return n;
}

/* The token behind the earlier place of the longest suffix; 0 if there is none, *len is how long. */
static uint32_t find(const struct tr_ngram *g, const struct place *p, const uint32_t *ids,
                     uint32_t total, uint32_t *len)
{
    const uint32_t *prev = g->prev + (size_t)g->of[p->slot] * g->n_ctx;
    uint32_t best = 0;
    *len = PAIR - 1;
    uint32_t at = total > 1 ? prev[total - 1] : 0;
    for (uint32_t i = 0; at && i < CHAIN && *len < LONGEST; i++, at = prev[at - 1]) {
        uint32_t n = alike(ids, at - 1, total - 1);
        if (n > *len) {
            *len = n;
            best = at;
        }
    }
    return best;
}

/* ---- what came of the last guess ---- */

static void learn(struct place *p, const uint32_t *ids, uint32_t total)
{
    float *e = &p->p[p->class];
    for (uint32_t i = 0; i < p->n_guess && p->at + i < total; i++) {
        bool right = ids[p->at + i] == p->guess[i];
        *e += RATE * ((right ? 1.0F : 0.0F) - *e);
        if (!right)
            return;
    }
}

struct tr_guess tr_ngram_look(struct tr_ngram *g, uint32_t slot, uint32_t gen, const uint32_t *ids,
                              uint32_t total)
{
    TR_ASSERT(slot < g->n_slots && gen != 0 && total <= g->n_ctx);
    struct place *p = place_of(g, slot, gen);
    TR_ASSERT(p->n <= total);
    learn(p, ids, total);
    index_tokens(g, p, ids, total);
    uint32_t len, from = find(g, p, ids, total, &len);
    p->at = total;
    p->class = len < 3 ? 0 : len < 5 ? 1 : 2;
    p->n_guess = from ? TR_GUESS_MAX : 0;
    /* What repeats with a period goes on in the guess itself. */
    for (uint32_t i = 0; i < p->n_guess; i++)
        p->guess[i] = from + i < total ? ids[from + i] : p->guess[from + i - total];
    return (struct tr_guess){.ids = p->guess, .n = p->n_guess, .p = p->p[p->class]};
}
