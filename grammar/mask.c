/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/mask.c - see mask.h.
 *
 * What a head (a state with a stack) allows is put together from two parts.  Its *own* part is what the rule
 * of the state takes, calls that it opens included, whatever lies below on the stack; and the nodes of the
 * trie at which the rule may be over.  It is found by one walk of the whole trie.  The *whole* adds what
 * follows those nodes when the stack goes on, which are short walks; its key has the frames that they
 * looked at.  A state that is final adds the head that its frame returns to, and so on down the stack.
 *
 * A rule that may be over almost anywhere (free text) has no useful own part: then the whole is walked
 * at once ("direct"), and covers what follows the rule as well. */
#include "grammar/mask.h"

#include "base/assert.h"
#include "grammar/store.h"
#include "grammar/walk.h"

#include <stdlib.h>
#include <string.h>

/* Frames that a key can have. */
#define KEY_FRAMES 24

enum { KIND_OWN = 1, KIND_WHOLE = 2 };

struct key {
    uint32_t n;
    uint8_t b[1 + (TR_GDIGEST + 4) * (1 + KEY_FRAMES) + 1];
};

struct tr_gmasks {
    struct tr_gpieces pieces;
    struct tr_gwalk walk;
    struct tr_gstore store;
    struct tr_gmasks_stats stats;
    uint32_t words;
    uint32_t *dense; /* [words] being put together */
    struct tr_gframe chain[TR_GRAM_DEPTH + 1];
};

/* One call of tr_gmasks_fill. */
struct fill {
    struct tr_gmasks *c;
    const struct tr_gprog *p;
    const struct tr_gmatch *m;
    uint32_t *mask;
    bool blank; /* nothing was written to mask yet */
    bool failed;
    bool left_off;
    uint64_t cost;
};

struct tr_gmasks *tr_gmasks_open(const struct tr_gpieces *pieces, size_t cache_bytes)
{
    struct tr_gmasks *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->pieces = *pieces;
    c->words = (uint32_t)tr_gmask_words(pieces->n_vocab);
    c->dense = malloc((c->words + 1) * sizeof(uint32_t));

    /* The largest entry: a mask, all leaves, the longest key. */
    size_t least = 4 * (((size_t)c->words + TR_GWALK_LEAVES) * 4 + 2048);
    if (c->dense && tr_gwalk_open(&c->walk, &c->pieces) == 0 &&
        tr_gstore_open(&c->store, cache_bytes, least) == 0)
        return c;
    tr_gmasks_close(c);
    return NULL;
}

void tr_gmasks_close(struct tr_gmasks *c)
{
    if (!c)
        return;
    tr_gwalk_close(&c->walk);
    tr_gstore_close(&c->store);
    free(c->dense);

    free(c);
}

/* ---- keys ---- */

static void key_state(struct key *k, const struct tr_gprog *p, uint32_t state)
{
    uint32_t g = tr_gstate_group(p, state);
    const uint8_t *group = tr_ggroup_at(p, g);

    memcpy(k->b + k->n, group + 8, TR_GDIGEST);
    tr_g_put32(k->b + k->n + TR_GDIGEST, state - tr_g_u32(group + 4));
    k->n += TR_GDIGEST + 4;
}

static struct key key_of(const struct tr_gprog *p, uint8_t kind, uint32_t state)
{
    struct key k = {.n = 1};

    k.b[0] = kind;
    key_state(&k, p, state);
    return k;
}

/* The key of a result that depends on `looked` frames of the stack `node`; one more than it has is the bottom. */
static struct key key_with(const struct fill *f, struct tr_ghead h, uint32_t looked)
{
    struct key k = key_of(f->p, KIND_WHOLE, h.state);
    uint32_t node = h.node, n = f->m->nodes[node].depth;

    for (uint32_t i = 0; i < looked && i < n; i++) {
        key_state(&k, f->p, f->m->nodes[node].state);
        node = f->m->nodes[node].parent;
    }
    k.b[k.n++] = looked > n;
    return k;
}

/* The stack of a head by itself, frame i at depth i: what a walk does then depends on nothing else. */
static void take_chain(const struct fill *f, uint32_t node)
{
    struct tr_gframe *chain = f->c->chain;

    for (uint32_t d = f->m->nodes[node].depth + 1u; d-- > 0; node = f->m->nodes[node].parent)
        chain[d] =
            (struct tr_gframe){f->m->nodes[node].state, (uint16_t)(d ? d - 1 : 0), (uint16_t)d};
}

/* ---- results ---- */

static uint32_t clamp(uint64_t work)
{
    return work < TR_GMASK_WORK ? (uint32_t)work : TR_GMASK_WORK;
}

/* From now on the mask is written to. */
static void begin_mask(struct fill *f)
{
    if (f->blank)
        memset(f->mask, 0, f->c->words * sizeof(*f->mask));
    f->blank = false;
}

static void add_ids(struct fill *f, const uint32_t *ids, uint32_t n)
{
    begin_mask(f);
    tr_gmask_add(f->mask, ids, n);
}

/* An entry's tokens. */
static void add_entry(struct fill *f, const struct tr_gentry *e)
{
    f->cost += e->cost;
    f->failed = f->failed || e->failed;
    if (e->n_ids != TR_GENTRY_DENSE) {
        add_ids(f, e->data, e->n_ids);
    } else if (f->blank) {
        memcpy(f->mask, e->data, f->c->words * sizeof(*f->mask));
        f->blank = false;
    } else {
        for (uint32_t i = 0; i < f->c->words; i++)
            f->mask[i] |= e->data[i];
    }
}

/* c->dense becomes the mask of `own` (or none) and the walk. */
static void put_together(struct tr_gmasks *c, const struct tr_gentry *own)
{
    const struct tr_gspans *spans = &c->walk.spans;

    if (!own) {
        tr_gspans_set(spans, c->dense);
        return;
    }
    if (own->n_ids == TR_GENTRY_DENSE) {
        memcpy(c->dense, own->data, c->words * sizeof(*c->dense));
    } else {
        memset(c->dense, 0, c->words * sizeof(*c->dense));
        tr_gmask_add(c->dense, own->data, own->n_ids);
    }
    tr_gspans_add_bits(spans, c->dense);
}

/* Remembers tokens of `own` (or none) and of the walk, and n_leaves of `leaves`. */
static struct tr_gentry *remember(struct tr_gmasks *c, const struct key *k,
                                  const struct tr_gentry *own, const uint32_t *leaves,
                                  uint32_t n_leaves)
{
    const struct tr_gwalk *w = &c->walk;
    uint32_t n_own = own ? own->n_ids : 0;
    bool dense = n_own >= c->words || w->spans.n_ids >= c->words - n_own;
    uint32_t words = dense ? c->words : n_own + w->spans.n_ids;

    /* `own` may be gone once there is a new entry. */
    if (dense)
        put_together(c, own);
    else if (n_own)
        memcpy(c->dense, own->data, n_own * sizeof(*c->dense));
    struct tr_gentry *e = tr_gstore_add(&c->store, k->b, k->n, (size_t)words + n_leaves);
    TR_ASSERT(e); /* tr_gmasks_open saw to the room */
    memcpy(e->data, c->dense, (dense ? c->words : n_own) * sizeof(*c->dense));
    if (!dense)
        tr_gspans_ids(&w->spans, e->data + n_own);
    if (n_leaves)
        memcpy(e->data + words, leaves, n_leaves * sizeof(*leaves));
    e->n_ids = dense ? TR_GENTRY_DENSE : words;
    e->n_leaves = n_leaves;
    e->reach = w->f.deepest;
    e->cost = clamp(w->f.work);
    e->failed = w->failed;
    return e;
}

/* A unit has been walked.  False: it was left off, nothing of it counts. */
static bool is_walked(struct fill *f)
{
    struct tr_gwalk *w = &f->c->walk;

    w->allowed -= w->f.work < w->allowed ? w->f.work : w->allowed;
    f->left_off = w->left_off;
    return !w->left_off;
}

/* The own part of a state; NULL: left off. */
static struct tr_gentry *own_part(struct fill *f, uint32_t state)
{
    struct tr_gmasks *c = f->c;
    struct tr_gwalk *w = &c->walk;
    struct key k = key_of(f->p, KIND_OWN, state);
    struct tr_gentry *e = tr_gstore_find(&c->store, k.b, k.n);

    if (e) {
        c->stats.hits++;
        return e;
    }
    c->stats.misses++;
    tr_gwalk_begin(w, f->p, NULL, 0, true, TR_GMASK_WORK);
    tr_gwalk_below(w, 0, (struct tr_ghead){(uint16_t)state, 0});
    if (!is_walked(f))
        return NULL;
    bool direct = !w->failed && (w->many_leaves || w->f.dropped);
    if (direct) {
        tr_gspans_clear(&w->spans);
        w->n_leaves = 0;
    }
    e = remember(c, &k, NULL, w->leaves, w->n_leaves);
    e->direct = direct;
    return e;
}

/* A remembered whole that holds for this head. */
static const struct tr_gentry *find_whole(struct fill *f, const struct tr_gentry *own,
                                          struct tr_ghead h)
{
    uint32_t depth = f->m->nodes[h.node].depth;

    for (uint32_t k = 0; k <= depth + 1 && k <= KEY_FRAMES; k++) {
        if (!(own->looked >> k & 1))
            continue;
        struct key key = key_with(f, h, k);
        const struct tr_gentry *e = tr_gstore_find(&f->c->store, key.b, key.n);
        if (e)
            return e;
    }
    return NULL;
}

/* Walks what is missing to the whole.  `own` may be gone afterwards. */
static void walk_whole(struct fill *f, struct tr_gentry *own, struct tr_ghead h, bool direct,
                       bool store)
{
    struct tr_gmasks *c = f->c;
    struct tr_gwalk *w = &c->walk;
    uint32_t depth = f->m->nodes[h.node].depth, n = own->n_leaves;

    take_chain(f, h.node);
    /* Both parts together. */
    tr_gwalk_begin(w, f->p, c->chain, depth + 1, false, TR_GMASK_WORK - own->cost);
    if (direct) {
        tr_gwalk_below(w, 0, (struct tr_ghead){h.state, (uint16_t)depth});
    } else {
        const uint32_t *leaves =
            own->data + (own->n_ids == TR_GENTRY_DENSE ? c->words : own->n_ids);
        struct tr_ghead next = tr_gstep_return(f->p, &w->f, depth);
        for (uint32_t i = 0; i < n && next.state != TR_GRAM_OVER; i++)
            tr_gwalk_below(w, leaves[i], next);
    }
    if (!is_walked(f))
        return;
    /* Frames from the top to the lowest one that was returned to. */
    uint32_t looked = w->f.lowest > depth ? 0 : depth + 1 - w->f.lowest;
    uint16_t reach = w->f.deepest > depth ? (uint16_t)(w->f.deepest - depth) : 0;
    w->f.deepest = !direct && own->reach > reach ? own->reach : reach;
    w->f.work += own->cost;
    if (!store || w->f.dropped || looked > KEY_FRAMES) {
        if (!direct)
            add_entry(f, own);
        begin_mask(f);
        tr_gspans_add_bits(&w->spans, f->mask);
        f->cost += clamp(w->f.work);
        f->failed = f->failed || w->failed;
        return;
    }
    own->looked |= 1u << looked;
    struct key k = key_with(f, h, looked);
    struct tr_gentry *e = remember(c, &k, direct ? NULL : own, NULL, 0);
    e->direct = direct;
    add_entry(f, e);
}

/* What one head allows before its rule is left.  False: and after it, too. */
static bool add_head(struct fill *f, struct tr_ghead h)
{
    struct tr_gentry *own = own_part(f, h.state);
    if (!own)
        return false;
    uint32_t depth = f->m->nodes[h.node].depth;
    bool deep = depth + own->reach > TR_GRAM_DEPTH;
    bool direct = own->direct || deep;

    if (own->failed || (own->n_leaves == 0 && !direct)) {
        add_entry(f, own);
        return true;
    }
    const struct tr_gentry *e = deep ? NULL : find_whole(f, own, h);
    if (e && depth + e->reach <= TR_GRAM_DEPTH) {
        f->c->stats.hits++;
        direct = e->direct;
        add_entry(f, e);
    } else {
        f->c->stats.misses++;
        walk_whole(f, own, h, direct, !deep && !e);
    }
    return !direct;
}

static void add_tokens(struct fill *f)
{
    struct tr_gmasks *c = f->c;
    struct tr_ghead out[TR_GRAM_HEADS];
    uint64_t budget = TR_GMASK_WORK - f->cost;

    tr_gwalk_begin(&c->walk, f->p, f->m->nodes, f->m->n_nodes, false, 0);
    for (uint32_t i = 0; i < f->p->n_tokens && c->walk.f.work <= budget; i++) {
        uint32_t id = tr_g_u32(f->p->tokens + (size_t)i * TR_GTOKEN_SIZE);
        c->walk.f.work++;
        /* A token that has bytes is taken by them. */
        if (id < c->pieces.n_vocab && !(c->walk.spans.all[id / 32] >> id % 32 & 1) &&
            tr_gstep_token(f->p, &c->walk.f, f->m->heads, f->m->n_heads, id, out))
            add_ids(f, &id, 1);
        c->walk.f.overflow = false;
        if (tr_gwalk_must_stop(&c->walk))
            break;
    }
    if (is_walked(f))
        f->cost += clamp(c->walk.f.work);
}

static void take_away(uint32_t *mask, const uint32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        mask[ids[i] / 32] &= ~(1u << ids[i] % 32);
}

static bool any(const uint32_t *mask, uint32_t words)
{
    uint32_t or = 0;

    for (uint32_t i = 0; i < words; i++)
        or |= mask[i];
    return or != 0;
}

static bool is_too_much(const struct fill *f)
{
    return f->failed || f->cost > TR_GMASK_WORK;
}

/* The tokens that have bytes. */
static void add_heads(struct fill *f)
{
    const struct tr_gprog *p = f->p;
    const struct tr_gmatch *m = f->m;

    for (uint32_t i = 0; i < m->n_heads; i++) {
        struct tr_ghead h = m->heads[i];
        /* Only what was counted says when to stop, not what was remembered. */
        while (h.state != TR_GRAM_OVER && !is_too_much(f) && !f->left_off) {
            bool below = tr_gstate_is_end(p, h.state) || add_head(f, h);
            if (!below || !tr_gstate_at(p, h.state).final || h.node == 0)
                break;
            h = (struct tr_ghead){m->nodes[h.node].state, m->nodes[h.node].parent};
        }
    }
}

/* False: left off. */
static bool fill(struct fill *f, bool *some)
{
    struct tr_gmasks *c = f->c;
    const struct tr_gprog *p = f->p;
    const struct tr_gmatch *m = f->m;
    uint32_t *mask = f->mask;

    c->stats.fills++;
    add_heads(f);
    if (p->n_tokens && !is_too_much(f) && !f->left_off)
        add_tokens(f);
    if (f->left_off)
        return false;
    if (tr_gmatch_may_end(m, p))
        add_ids(f, c->pieces.eog, c->pieces.n_eog);
    else if (!f->blank) /* a token edge does not end an answer */
        take_away(mask, c->pieces.eog, c->pieces.n_eog);
    if (f->blank || is_too_much(f)) {
        memset(mask, 0, c->words * sizeof(*mask));
        *some = false;
    } else {
        *some = any(mask, c->words);
    }
    return true;
}

bool tr_gmasks_try(struct tr_gmasks *c, const struct tr_gprog *p, const struct tr_gmatch *m,
                   uint32_t *mask, uint64_t *allowed, const atomic_bool *stop, bool *some)
{
    struct fill f = {.c = c, .p = p, .m = m, .mask = mask, .blank = true};

    c->walk.allowed = *allowed;
    c->walk.stop = stop;
    bool made = fill(&f, some);
    *allowed = c->walk.allowed;
    c->walk.allowed = UINT64_MAX;
    c->walk.stop = NULL;
    return made;
}

bool tr_gmasks_fill(struct tr_gmasks *c, const struct tr_gprog *p, const struct tr_gmatch *m,
                    uint32_t *mask)
{
    struct fill f = {.c = c, .p = p, .m = m, .mask = mask, .blank = true};
    bool some = false;

    (void)fill(&f, &some); /* nothing stops it but the bound */
    return some;
}

void tr_gmasks_stats(const struct tr_gmasks *c, struct tr_gmasks_stats *s)
{
    *s = c->stats;
    s->walked = c->walk.walked;
    s->dropped = c->store.dropped;
}
