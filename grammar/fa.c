/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/fa.c - see fa.h.  The maker; fa_ops.c makes automata with it. */
#include "grammar/fa.h"
#include "base/assert.h"

#include <errno.h>
#include <string.h>

/* ---- what a compilation may use ---- */

void tr_gbudget_init(struct tr_gbudget *w)
{
    *w = (struct tr_gbudget){.steps_left = TR_GBUDGET_STEPS};
    tr_arena_init(&w->arena, TR_GBUDGET_BYTES);
}

void tr_gbudget_fini(struct tr_gbudget *w)
{
    tr_arena_fini(&w->arena);
}

bool tr_gbudget_step(struct tr_gbudget *w, uint64_t n)
{
    if (n > w->steps_left) {
        w->steps_left = 0;
        w->too_large = true;
        return false;
    }
    w->steps_left -= n;
    return true;
}

void *tr_gbudget_alloc(struct tr_gbudget *w, size_t size)
{
    /* Memory has to be cleared, which is work, too. */
    if (!tr_gbudget_step(w, size / 256))
        return NULL;
    void *p = tr_arena_alloc(&w->arena, size);
    if (!p && !w->arena.no_memory)
        w->too_large = true;
    return p;
}

int tr_gbudget_why(const struct tr_gbudget *w)
{
    return w->arena.no_memory ? -ENOMEM : -E2BIG;
}

/* ---- the maker ---- */

struct made {
    const void *key;
    uint32_t key_len;
    uint32_t hash;
    uint32_t first; /* of its edges */
    bool final;
};

struct tr_fa_maker {
    struct tr_gbudget *w;
    struct made *s;
    uint32_t n, cap;
    uint32_t *table; /* state + 1 by hash; a power of two, at most half full */
    uint32_t mask;
    struct tr_fa_edge *e;
    uint32_t n_edges, cap_edges;
    uint32_t opened; /* states whose first edge is known */
    bool failed;
};

struct tr_fa_maker *tr_fa_new(struct tr_gbudget *w)
{
    struct tr_fa_maker *m = tr_gbudget_alloc(w, sizeof *m);
    if (!m)
        return NULL;
    *m = (struct tr_fa_maker){.w = w, .cap = 32, .mask = 63, .cap_edges = 64};
    m->s = tr_gbudget_alloc(w, m->cap * sizeof *m->s);
    m->table = tr_gbudget_alloc(w, (m->mask + 1) * sizeof *m->table);
    m->e = tr_gbudget_alloc(w, m->cap_edges * sizeof *m->e);
    return m->s && m->table && m->e ? m : NULL;
}

static uint32_t hash(const void *key, size_t len)
{
    const uint8_t *p = key;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return (uint32_t)(h ^ (h >> 32));
}

static bool grow(struct tr_fa_maker *m)
{
    uint32_t cap = m->cap * 2;
    uint32_t mask = cap * 2 - 1;
    struct made *s = tr_gbudget_alloc(m->w, cap * sizeof *s);
    uint32_t *table = tr_gbudget_alloc(m->w, (mask + 1) * sizeof *table);
    if (!s || !table)
        return false;
    memcpy(s, m->s, m->n * sizeof *s);
    for (uint32_t i = 0; i < m->n; i++) {
        uint32_t at = s[i].hash & mask;
        while (table[at])
            at = (at + 1) & mask;
        table[at] = i + 1;
    }
    m->s = s;
    m->table = table;
    m->cap = cap;
    m->mask = mask;
    return true;
}

uint32_t tr_fa_state(struct tr_fa_maker *m, const void *key, size_t len)
{
    uint32_t h = hash(key, len);
    uint32_t at = h & m->mask;
    if (m->failed || !tr_gbudget_step(m->w, 1 + len / 8))
        goto fail;
    /* Keys that meet on purpose cost no more than the budget of steps. */
    for (; m->table[at]; at = (at + 1) & m->mask) {
        const struct made *s = &m->s[m->table[at] - 1];
        if (s->hash == h && s->key_len == len && memcmp(s->key, key, len) == 0)
            return m->table[at] - 1;
        if (!tr_gbudget_step(m->w, 1))
            goto fail;
    }
    if (m->n >= TR_FA_STATES) {
        m->w->too_large = true;
        goto fail;
    }
    void *copy = tr_gbudget_alloc(m->w, len);
    if (!copy)
        goto fail;
    memcpy(copy, key, len);
    m->table[at] = m->n + 1;
    m->s[m->n++] = (struct made){.key = copy, .key_len = (uint32_t)len, .hash = h};
    if (m->n == m->cap && !grow(m))
        goto fail;
    return m->n - 1;
fail:
    m->failed = true;
    return UINT32_MAX;
}

uint32_t tr_fa_count(const struct tr_fa_maker *m)
{
    return m->failed ? 0 : m->n;
}

const void *tr_fa_key(const struct tr_fa_maker *m, uint32_t state, size_t *len)
{
    *len = m->s[state].key_len;
    return m->s[state].key;
}

void tr_fa_final(struct tr_fa_maker *m, uint32_t state)
{
    if (!m->failed)
        m->s[state].final = true;
}

/* Edges of all states below s are known; s begins to get its own. */
static void open_states(struct tr_fa_maker *m, uint32_t s)
{
    while (m->opened <= s && m->opened < m->n)
        m->s[m->opened++].first = m->n_edges;
}

void tr_fa_edge(struct tr_fa_maker *m, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to)
{
    if (m->failed || to == UINT32_MAX || !tr_gbudget_step(m->w, 1)) {
        m->failed = true;
        return;
    }
    open_states(m, from);
    TR_ASSERT(m->e);
    struct tr_fa_edge *last = m->n_edges ? &m->e[m->n_edges - 1] : NULL;
    if (last && m->n_edges > m->s[from].first && last->to == to && last->hi + 1 == lo) {
        last->hi = hi;
        return;
    }
    if (m->n_edges == m->cap_edges) {
        struct tr_fa_edge *e = tr_gbudget_alloc(m->w, 2 * m->cap_edges * sizeof *e);
        if (!e) {
            m->failed = true;
            return;
        }
        memcpy(e, m->e, m->n_edges * sizeof *e);
        m->e = e;
        m->cap_edges *= 2;
    }
    m->e[m->n_edges++] = (struct tr_fa_edge){lo, hi, to};
}

/* ---- the automaton: states that lead to no end are left out ---- */

static uint32_t last_edge(const struct tr_fa_maker *m, uint32_t s)
{
    return s + 1 < m->n ? m->s[s + 1].first : m->n_edges;
}

/* live[s]: an end can be reached from s.  Walks the edges backwards. */
static bool find_live(struct tr_fa_maker *m, uint8_t *live)
{
    uint32_t *head = tr_gbudget_alloc(m->w, m->n * sizeof *head); /* edge + 1 */
    uint32_t *next = tr_gbudget_alloc(m->w, m->n_edges * sizeof *next);
    uint32_t *from = tr_gbudget_alloc(m->w, m->n_edges * sizeof *from);
    uint32_t *todo = tr_gbudget_alloc(m->w, m->n * sizeof *todo);
    if (!head || !next || !from || !todo || !tr_gbudget_step(m->w, m->n + m->n_edges))
        return false;
    uint32_t n_todo = 0;
    for (uint32_t s = 0; s < m->n; s++) {
        for (uint32_t i = m->s[s].first; i < last_edge(m, s); i++) {
            from[i] = s;
            next[i] = head[m->e[i].to];
            head[m->e[i].to] = i + 1;
        }
        if (m->s[s].final) {
            live[s] = 1;
            todo[n_todo++] = s;
        }
    }
    while (n_todo) {
        uint32_t s = todo[--n_todo];
        for (uint32_t i = head[s]; i; i = next[i - 1]) {
            if (!live[from[i - 1]]) {
                live[from[i - 1]] = 1;
                todo[n_todo++] = from[i - 1];
            }
        }
    }
    return true;
}

static const struct tr_fa *keep_live(struct tr_fa_maker *m, const uint8_t *live)
{
    uint32_t *name = tr_gbudget_alloc(m->w, m->n * sizeof *name);
    struct tr_fa *a = tr_gbudget_alloc(m->w, sizeof *a);
    uint32_t *first = tr_gbudget_alloc(m->w, ((size_t)m->n + 1) * sizeof *first);
    uint8_t *final = tr_gbudget_alloc(m->w, m->n);
    if (!name || !a || !first || !final)
        return NULL;
    uint32_t n = 0;
    uint32_t n_edges = 0;
    for (uint32_t s = 0; s < m->n; s++)
        if (live[s])
            name[s] = n++;
    if (!live[0]) /* no text at all */
        n = 0;
    for (uint32_t s = 0; s < m->n && n; s++) {
        uint32_t end = last_edge(m, s);
        if (!live[s])
            continue;
        first[name[s]] = n_edges;
        final[name[s]] = m->s[s].final;
        /* In place: an edge never moves up. */
        for (uint32_t i = m->s[s].first; i < end; i++)
            if (live[m->e[i].to])
                m->e[n_edges++] = (struct tr_fa_edge){m->e[i].lo, m->e[i].hi, name[m->e[i].to]};
    }
    first[n] = n_edges;
    *a = (struct tr_fa){.n = n, .first = first, .e = m->e, .final = final};
    return a;
}

const struct tr_fa *tr_fa_finish(struct tr_fa_maker *m)
{
    if (!m || m->failed || !m->n)
        return NULL;
    open_states(m, m->n - 1);
    uint8_t *live = tr_gbudget_alloc(m->w, m->n);
    if (!live || !find_live(m, live))
        return NULL;
    return keep_live(m, live);
}
