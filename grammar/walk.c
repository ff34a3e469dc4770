/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/walk.c - see walk.h. */
#include "grammar/walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SETS 2048
#define HEADS_ALL 16384
#define FRAMES 16384 /* besides those that are there */
#define TABLE 4096   /* of sets by hash; a power of two above SETS */

/* What a transition says before a set's number. */
enum { UNKNOWN = 0, DEAD = 1, FIRST_SET = 2 };
#define LOOSE UINT32_MAX /* a set that found no room and lies on the path */

struct set {
    uint32_t first, hash;
    uint16_t n;
    bool ends, over, accept_known;
    uint64_t accept;  /* classes of bytes, with all of UTF-8's, that lead back here */
    uint32_t back_of; /* UTF-8 from here was seen to lead back to that set ... */
    uint8_t back_at;  /* ... in these states */
};

/* A place on the way down the trie. */
struct place {
    uint32_t end; /* of the subtree */
    uint32_t set; /* or LOOSE */
    uint16_t n;
    bool ends;
    struct tr_ghead loose[TR_GRAM_HEADS];
};

struct tr_gwalk_memo {
    struct set sets[SETS];
    uint16_t next[SETS][256];
    struct tr_ghead heads[HEADS_ALL];
    uint32_t n_sets, n_heads;
    uint16_t table[TABLE]; /* set + 1 */
    struct tr_gframe frames[TR_GRAM_NODES + FRAMES];
    struct place path[TR_GPIECE_MAX + 2];
};

int tr_gwalk_open(struct tr_gwalk *w, const struct tr_gpieces *pieces)
{
    *w = (struct tr_gwalk){.pieces = pieces, .allowed = UINT64_MAX};
    w->memo = calloc(1, sizeof(*w->memo));
    w->leaves = malloc(TR_GWALK_LEAVES * sizeof(*w->leaves));
    if (w->memo && w->leaves && tr_gruns_open(&w->runs) == 0 &&
        tr_gspans_open(&w->spans, pieces) == 0)
        return 0;
    tr_gwalk_close(w);
    return -ENOMEM;
}

void tr_gwalk_close(struct tr_gwalk *w)
{
    free(w->memo);
    tr_gspans_close(&w->spans);
    free(w->leaves);
    tr_gruns_close(&w->runs);
    *w = (struct tr_gwalk){0};
}

void tr_gwalk_begin(struct tr_gwalk *w, const struct tr_gprog *p, const struct tr_gframe *frames,
                    uint32_t n, bool want_leaves, uint64_t budget)
{
    struct tr_gwalk_memo *m = w->memo;

    w->p = p;
    tr_gruns_of(&w->runs, p);
    w->f = (struct tr_gframes){.node = m->frames, .n = n ? n : 1};
    w->f.max = w->f.n + FRAMES; /* as many for a deep stack as for a shallow one */
    w->f.lowest = UINT16_MAX;
    if (n)
        memcpy(m->frames, frames, n * sizeof(*frames));
    else
        m->frames[0] = (struct tr_gframe){.state = TR_GRAM_OVER};
    tr_gspans_clear(&w->spans);
    w->n_leaves = 0;
    w->want_leaves = want_leaves;
    w->many_leaves = w->failed = w->left_off = false;
    w->budget = budget;
    memset(m->table, 0, sizeof(m->table));
    m->n_sets = m->n_heads = 0;
}

/* ---- sets ---- */

static uint32_t hash_of(const struct tr_ghead *h, uint32_t n)
{
    uint64_t x = n;

    for (uint32_t i = 0; i < n; i++)
        x = (x ^ (h[i].state | (uint64_t)h[i].node << 16)) * 0xff51afd7ed558ccdu, x ^= x >> 29;
    return (uint32_t)x;
}

/* The number of the set h[0, n), or LOOSE without room for a new one. */
static uint32_t intern(struct tr_gwalk *w, const struct tr_ghead *h, uint32_t n)
{
    struct tr_gwalk_memo *m = w->memo;
    uint32_t hash = hash_of(h, n), at = hash % TABLE;

    for (; m->table[at]; at = (at + 1) % TABLE) {
        const struct set *s = &m->sets[m->table[at] - 1];
        if (s->hash == hash && s->n == n && memcmp(m->heads + s->first, h, n * sizeof(*h)) == 0)
            return m->table[at] - 1u;
    }
    if (m->n_sets == SETS || n > HEADS_ALL - m->n_heads)
        return LOOSE;
    struct set *s = &m->sets[m->n_sets];
    *s = (struct set){.first = m->n_heads, .hash = hash, .n = (uint16_t)n, .back_of = LOOSE};
    s->ends = w->want_leaves && tr_gstep_may_end(w->p, &w->f, h, n);
    s->over = n == 1 && h[0].state == TR_GRAM_OVER;
    memcpy(m->heads + s->first, h, n * sizeof(*h));
    m->n_heads += n;
    memset(m->next[m->n_sets], 0, sizeof(m->next[0]));
    m->table[at] = (uint16_t)(m->n_sets + 1);
    return m->n_sets++;
}

/* One byte from h[0, n).  A text that no longer can be followed is not allowed, as for the matcher. */
static uint32_t step(struct tr_gwalk *w, const struct tr_ghead *h, uint32_t n, uint8_t byte,
                     struct tr_ghead *out)
{
    uint32_t k = tr_gstep_byte(w->p, &w->f, h, n, byte, out);

    if (w->f.overflow) {
        w->failed = w->failed || w->f.n == w->f.max;
        w->f.overflow = false;
    }
    return k;
}

/* Where `byte` leads from set s: DEAD, FIRST_SET + a set, or UNKNOWN if that one is loose: `out` then has its
 * *n heads. */
static uint32_t next_of(struct tr_gwalk *w, uint32_t s, uint8_t byte, struct tr_ghead *out,
                        uint32_t *n)
{
    struct tr_gwalk_memo *m = w->memo;
    uint32_t to = m->next[s][byte];

    if (to != UNKNOWN)
        return to;
    *n = step(w, m->heads + m->sets[s].first, m->sets[s].n, byte, out);
    to = *n ? intern(w, out, *n) : LOOSE;
    if (*n && to == LOOSE)
        return UNKNOWN;
    return m->next[s][byte] = (uint16_t)(*n ? FIRST_SET + to : DEAD);
}

/* ---- sets that lead back to themselves ---- */

/* All that UTF-8 allows from `set` at `at` leads to `back` with the end of the character. */
static bool leads_back(struct tr_gwalk *w, uint32_t back, uint32_t set, enum tr_gutf8 at)
{
    struct tr_ghead out[TR_GRAM_HEADS];
    struct set *s = &w->memo->sets[set];
    uint32_t n;

    if (s->back_of == back && s->back_at >> at & 1)
        return true;
    for (uint32_t b = 0x80; b < 0xf5; b++) {
        enum tr_gutf8 to = tr_gutf8_next(at, (uint8_t)b);
        if (to == TR_GUTF8_NONE)
            continue;
        uint32_t k = next_of(w, set, (uint8_t)b, out, &n);
        if (k < FIRST_SET)
            return false;
        k -= FIRST_SET;
        if (to == TR_GUTF8_BETWEEN ? k != back : !leads_back(w, back, k, to))
            return false;
    }
    if (s->back_of != back)
        s->back_at = 0;
    s->back_of = back;
    s->back_at |= (uint8_t)(1u << at);
    return true;
}

static void find_accept(struct tr_gwalk *w, uint32_t set)
{
    struct tr_ghead out[TR_GRAM_HEADS];
    struct set *s = &w->memo->sets[set];
    uint64_t not = 0;
    uint32_t n;

    s->accept_known = true;
    for (uint32_t b = 0; b < 0x80; b++)
        if (next_of(w, set, (uint8_t)b, out, &n) != FIRST_SET + set)
            not |= UINT64_C(1) << tr_gpiece_class[b];
    s->accept = TR_GPIECE_ASCII & ~not ;
    if (s->accept && leads_back(w, set, set, TR_GUTF8_BETWEEN))
        s->accept |= TR_GPIECE_HIGH;
}

/* Runs tell as much, sooner. */
static bool has_run(struct tr_gwalk *w, uint32_t set)
{
    const struct set *s = &w->memo->sets[set];

    return s->n == 1 && !s->over &&
           tr_grun_at(&w->runs, w->p, w->memo->heads[s->first].state)->accept != 0;
}

/* ---- the walk ---- */

/* Goes from `from` over `byte` to `to`.  False: that way is not allowed. */
static bool go(struct tr_gwalk *w, const struct place *from, uint8_t byte, struct place *to)
{
    struct tr_gwalk_memo *m = w->memo;
    uint32_t n = 0, next = UNKNOWN;

    if (from->set != LOOSE) {
        next = next_of(w, from->set, byte, to->loose, &n);
    } else {
        n = step(w, from->loose, from->n, byte, to->loose);
        uint32_t set = n ? intern(w, to->loose, n) : LOOSE;
        if (n == 0 || set != LOOSE)
            next = n ? FIRST_SET + set : DEAD;
    }
    if (next == DEAD)
        return false;
    if (next == UNKNOWN) {
        to->set = LOOSE;
        to->n = (uint16_t)n;
        to->ends = w->want_leaves && tr_gstep_may_end(w->p, &w->f, to->loose, n);
        return true;
    }
    to->set = next - FIRST_SET;
    to->ends = m->sets[to->set].ends;
    if (to->set == from->set && !m->sets[to->set].accept_known && !has_run(w, to->set))
        find_accept(w, to->set);
    return true;
}

/* The tokens at nodes [from, end). */
static void take(struct tr_gwalk *w, uint32_t from, uint32_t end)
{
    const struct tr_gpiece *nodes = w->pieces->nodes;

    tr_gspans_add(&w->spans, tr_gpiece_first(&nodes[from]), tr_gpiece_first(&nodes[end]));
}

static void may_leave(struct tr_gwalk *w, uint32_t v)
{
    if (w->n_leaves == TR_GWALK_LEAVES)
        w->many_leaves = true;
    else
        w->leaves[w->n_leaves++] = v;
}

/* From one head, all of v's subtree is allowed since runs follow each other as far down as it goes. */
static bool runs_on(struct tr_gwalk *w, const struct tr_gpiece *v, struct tr_ghead h)
{
    uint32_t height = tr_gpiece_height(v);
    uint64_t needs = tr_gpiece_needs(v);
    uint16_t deepest = w->f.deepest;

    for (uint32_t i = 0; i < height; i++) {
        const struct tr_grun *r = tr_grun_at(&w->runs, w->p, h.state);
        uint32_t depth = w->f.node[h.node].depth + (uint32_t)r->call;
        w->f.work++;
        if (needs & ~r->accept || depth > TR_GRAM_DEPTH)
            return false;
        if (depth > deepest)
            deepest = (uint16_t)depth;
        if (r->to == h.state)
            break;
        h = tr_gstep_settle(w->p, &w->f, r->to, h.node);
        if (h.state == TR_GRAM_OVER)
            return false;
        if (i + 1 == height && height == TR_GPIECE_HEIGHT_MAX)
            return false;
    }
    w->f.deepest = deepest;
    return true;
}

/* All of v's subtree is allowed, and the rule is not left in it. */
static bool takes_all(struct tr_gwalk *w, uint32_t v, const struct place *at)
{
    const struct tr_gpiece *n = &w->pieces->nodes[v];
    struct tr_ghead h = at->loose[0];
    uint32_t n_heads = at->n;

    if (at->ends)
        return false;
    if (at->set != LOOSE) {
        const struct set *s = &w->memo->sets[at->set];
        if (s->accept_known && (tr_gpiece_needs(n) & ~s->accept) == 0)
            return true;
        h = w->memo->heads[s->first];
        n_heads = s->n;
    }
    return n_heads == 1 && h.state != TR_GRAM_OVER && runs_on(w, n, h);
}

bool tr_gwalk_must_stop(struct tr_gwalk *w)
{
    /* Relaxed: it only hurries. */
    w->left_off = w->left_off || w->f.work > w->allowed ||
                  (w->stop && atomic_load_explicit(w->stop, memory_order_relaxed));
    return w->left_off;
}

/* One more node.  Who is out of budget is not left off: it would never come to an end. */
static bool may_go_on(struct tr_gwalk *w)
{
    if (w->failed)
        return false;
    w->failed = ++w->f.work > w->budget || tr_gwalk_must_stop(w);
    return !w->failed;
}

void tr_gwalk_below(struct tr_gwalk *w, uint32_t top, struct tr_ghead head)
{
    const struct tr_gpiece *nodes = w->pieces->nodes;
    struct place *path = w->memo->path;
    uint32_t depth = 0, v = top + 1;

    path[0].end = nodes[top].skip;
    path[0].set = intern(w, &head, 1);
    path[0].n = 1;
    path[0].loose[0] = head;
    while (v < path[0].end) {
        while (v == path[depth].end)
            depth--;
        w->walked++;
        if (!may_go_on(w))
            return;
        struct place *at = &path[depth + 1];
        if (!go(w, &path[depth], tr_gpiece_byte(&nodes[v]), at)) {
            v = nodes[v].skip;
            continue;
        }
        bool inner = nodes[v].skip > v + 1;
        if (inner && takes_all(w, v, at)) {
            take(w, v, nodes[v].skip);
            v = nodes[v].skip;
            continue;
        }
        take(w, v, v + 1);
        if (inner && at->ends)
            may_leave(w, v);
        if (inner && at->set != LOOSE && w->memo->sets[at->set].over) {
            v = nodes[v].skip;
            continue;
        }
        if (inner)
            path[++depth].end = nodes[v].skip;
        v++;
    }
}
