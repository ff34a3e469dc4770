/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/literals.c - any bytes until, or without, some literals: the automaton of Aho and Corasick. */
#include "grammar/build_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct trie {
    uint32_t (*next)[256]; /* [n][256]; 0: none (the root is nobody's child) */
    uint32_t *fail;        /* [n] the longest proper end of a node's text that is a node */
    uint32_t *queue;       /* [n] by depth */
    bool *whole;           /* [n] a literal ends here */
    uint32_t n;
};

static void plant(struct trie *t, const uint8_t *p, uint32_t n)
{
    uint32_t v = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (!t->next[v][p[i]])
            t->next[v][p[i]] = t->n++;
        v = t->next[v][p[i]];
    }
    t->whole[v] = true;
}

/* Makes `next` whole: where every byte leads, from every node. */
static void close(struct trie *t)
{
    uint32_t n = 0;

    t->queue[n++] = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = t->queue[i];
        for (uint32_t c = 0; c < 256; c++) {
            uint32_t w = t->next[v][c], f = v ? t->next[t->fail[v]][c] : 0;
            if (!w) {
                t->next[v][c] = f;
                continue;
            }
            t->fail[w] = f;
            t->whole[w] = t->whole[w] || t->whole[f];
            t->queue[n++] = w;
        }
    }
}

/* Node v's edges, equal ones joined.  state[]: of nodes; what completes a literal leads to `done`, or with
 * UINT32_MAX nowhere. */
static void edges(struct tr_gbuild *b, const struct trie *t, uint32_t v, uint32_t first,
                  uint32_t done)
{
    for (uint32_t c = 0, end; c < 256; c = end) {
        uint32_t w = t->next[v][c];
        for (end = c + 1; end < 256 && t->next[v][end] == w;)
            end++;
        struct tr_gnfa_edge e = {.kind = TR_GE_BYTE, .lo = (uint8_t)c, .hi = (uint8_t)(end - 1)};
        e.to = t->whole[w] ? done : first + w;
        if (e.to != UINT32_MAX)
            tr_gnfa_edge(b, first + v, e);
    }
}

static void make(struct tr_gbuild *b, struct trie *t, uint32_t at, uint32_t n, bool until,
                 uint32_t from, uint32_t to)
{
    const uint32_t *w = tr_gwords(b) + at;
    uint32_t first = b->nfa.n;

    t->n = 1;
    for (uint32_t i = 0; i < n; i++)
        plant(t, (const uint8_t *)b->bytes.p + w[2 * i], w[2 * i + 1]);
    if (!tr_gwork(b, 256 * t->n))
        return;
    close(t);
    for (uint32_t v = 0; v < t->n; v++)
        tr_gnfa_state(b);
    tr_gnfa_edge(b, from, (struct tr_gnfa_edge){.kind = TR_GE_EPS, .to = first});
    for (uint32_t v = 0; v < t->n && !b->failed; v++) {
        if (t->whole[v])
            continue;
        edges(b, t, v, first, until ? to : UINT32_MAX);
        if (!until)
            tr_gnfa_edge(b, first + v, (struct tr_gnfa_edge){.kind = TR_GE_EPS, .to = to});
    }
}

void tr_gnfa_literals(struct tr_gbuild *b, uint32_t at, uint32_t n, bool until, uint32_t from,
                      uint32_t to)
{
    struct trie t = {0};
    size_t nodes = 1;

    for (uint32_t i = 0; i < n; i++)
        nodes += tr_gwords(b)[at + 2 * i + 1];
    if (nodes > 4096) {
        tr_gfail(b, -E2BIG, "literals that a text ends with have %zu bytes in all", nodes - 1);
        return;
    }
    t.next = calloc(nodes, sizeof(*t.next));
    t.fail = calloc(nodes, sizeof(*t.fail));
    t.queue = calloc(nodes, sizeof(*t.queue));
    t.whole = calloc(nodes, sizeof(*t.whole));
    if (t.next && t.fail && t.queue && t.whole)
        make(b, &t, at, n, until, from, to);
    else
        tr_gfail(b, -ENOMEM, "no memory");
    free(t.next);
    free(t.fail);
    free(t.queue);
    free(t.whole);
}
