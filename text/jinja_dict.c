/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_dict.c - insertion-ordered dicts.
 *
 * Up to eight entries are searched in order; beyond, an index by a seeded hash, so that a request
 * with many keys costs linear time whatever the keys are. */
#include "text/jinja_priv.h"

#include <string.h>
#include <xxhash.h>

#define SCAN_MAX 8

/* Equal values must hash alike: 1, 1.0 and True are one key. */
static bool hash_of(struct tr_jctx *c, const struct tr_jv *k, uint64_t *out)
{
    double f;
    switch (k->type) {
    case TR_JV_STR:
    case TR_JV_BIG:
        *out = XXH3_64bits_withSeed(k->s.p, k->s.len, c->seed);
        return true;
    case TR_JV_NONE:
        *out = c->seed;
        return true;
    case TR_JV_BOOL:
    case TR_JV_INT:
    case TR_JV_FLOAT:
        f = tr_jas_float(k) + 0.0; /* -0.0 and 0.0 are one key */
        *out = XXH3_64bits_withSeed(&f, sizeof f, c->seed);
        return true;
    case TR_JV_TUPLE:
        *out = c->seed + k->l.n;
        if (!tr_jenter(c))
            return false;
        for (size_t i = 0; i < k->l.n; i++) {
            uint64_t h;
            if (!tr_jstep(c, 1) || !hash_of(c, k->l.v[i], &h)) {
                tr_jleave(c);
                return false;
            }
            *out = *out * 0x9E3779B97F4A7C15u + h;
        }
        tr_jleave(c);
        return true;
    case TR_JV_UNDEF:
        *out = c->seed ^ 1;
        return true;
    case TR_JV_LIST:
    case TR_JV_DICT:
        tr_jfail(c, TR_JERR_RUNTIME, "unhashable type: '%s'", tr_jtype_name(k));
        return false;
    default:
        tr_jfail(c, TR_JERR_UNSUPPORTED, "a %s as a key is not supported", tr_jtype_name(k));
        return false;
    }
}

/* The entry that holds k, or -1; *slot is where the index would take it. */
static int64_t find(struct tr_jctx *c, const struct tr_jdict *d, const struct tr_jv *k,
                    size_t *slot)
{
    uint64_t h;
    if (!hash_of(c, k, &h))
        return -1;
    if (!d->n_index) {
        for (size_t i = 0; i < d->n; i++)
            if (tr_jequal(c, d->k[i], k) == 1)
                return (int64_t)i;
        return -1;
    }
    for (size_t i = h & (d->n_index - 1);; i = (i + 1) & (d->n_index - 1)) {
        *slot = i;
        if (!d->index[i])
            return -1;
        size_t entry = d->index[i] - 1;
        if (tr_jequal(c, d->k[entry], k) == 1)
            return (int64_t)entry;
        if (c->err)
            return -1;
    }
}

static bool build_index(struct tr_jctx *c, struct tr_jdict *d, size_t n)
{
    d->index = tr_jalloc_n(c, n, sizeof *d->index);
    if (!d->index) {
        d->n_index = 0;
        return false;
    }
    d->n_index = n;
    for (size_t i = 0; i < d->n; i++) {
        uint64_t h;
        if (!hash_of(c, d->k[i], &h))
            return false;
        size_t at = h & (n - 1);
        while (d->index[at])
            at = (at + 1) & (n - 1);
        d->index[at] = (uint32_t)i + 1;
    }
    return true;
}

static bool grow(struct tr_jctx *c, struct tr_jdict *d)
{
    size_t cap = d->cap ? d->cap * 2 : 4;
    struct tr_jv **k = tr_jalloc_n(c, cap, sizeof(void *));
    struct tr_jv **v = tr_jalloc_n(c, cap, sizeof(void *));
    if (!k || !v || cap > UINT32_MAX)
        return false;
    if (d->n) {
        memcpy(k, d->k, d->n * sizeof(void *));
        memcpy(v, d->v, d->n * sizeof(void *));
    }
    d->k = k;
    d->v = v;
    d->cap = cap;
    /* At most half full, and always with an empty slot to end a search. */
    return cap <= SCAN_MAX || build_index(c, d, cap * 2);
}

bool tr_jdict_set(struct tr_jctx *c, struct tr_jdict *d, struct tr_jv *k, struct tr_jv *v)
{
    size_t slot = 0;
    if (!k || !v)
        return false;
    int64_t at = find(c, d, k, &slot);
    if (c->err)
        return false;
    if (at >= 0) {
        d->v[at] = v;
        return true;
    }
    if (d->n == d->cap) {
        if (!grow(c, d))
            return false;
        (void)find(c, d, k, &slot);
    }
    d->k[d->n] = k;
    d->v[d->n] = v;
    d->n++;
    if (d->n_index)
        d->index[slot] = (uint32_t)d->n;
    return !c->err;
}

struct tr_jv *tr_jdict_get(struct tr_jctx *c, const struct tr_jdict *d, const struct tr_jv *k)
{
    size_t slot;
    int64_t at = find(c, d, k, &slot);
    return at < 0 ? NULL : d->v[at];
}

struct tr_jv *tr_jdict_get_str(struct tr_jctx *c, const struct tr_jdict *d, const char *p,
                               size_t len)
{
    struct tr_jv k = {.type = TR_JV_STR, .s = {.p = p, .len = len}};
    return tr_jdict_get(c, d, &k);
}
