/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/scc.c - strongly connected components after Tarjan, with a stack of its own. */
#include "grammar/build_priv.h"

#include <string.h>

struct scc {
    const uint32_t *first, *adj;
    uint32_t *comp, *low, *next, *path,
        *open; /* next: the edge to go on with; 0 in low: not seen */
    uint32_t n_path, n_open, seen, n_comp;
};

static void enter(struct scc *s, uint32_t v)
{
    s->low[v] = ++s->seen;
    s->next[v] = s->first[v];
    s->path[s->n_path++] = v;
    s->open[s->n_open++] = v;
}

/* v is done, its index was `index`. */
static void leave(struct scc *s, uint32_t v, uint32_t index)
{
    if (s->low[v] == index) {
        uint32_t w;
        do {
            w = s->open[--s->n_open];
            s->comp[w] = s->n_comp;
            s->low[w] = UINT32_MAX; /* no longer open */
        } while (w != v);
        s->n_comp++;
    }
    s->n_path--;
    if (s->n_path) {
        uint32_t up = s->path[s->n_path - 1];
        if (s->low[v] < s->low[up])
            s->low[up] = s->low[v];
    }
}

uint32_t tr_gscc(uint32_t n, const uint32_t *first, const uint32_t *adj, uint32_t *comp,
                 uint32_t *scratch)
{
    struct scc s = {.first = first, .adj = adj, .comp = comp, .low = scratch};
    s.next = scratch + n;
    s.path = scratch + 2 * (size_t)n;
    s.open = scratch + 3 * (size_t)n;
    uint32_t *index = comp; /* until its component is known */

    memset(s.low, 0, n * sizeof(uint32_t));
    for (uint32_t root = 0; root < n; root++) {
        if (s.low[root])
            continue;
        enter(&s, root);
        index[root] = s.seen;
        while (s.n_path) {
            uint32_t v = s.path[s.n_path - 1];
            if (s.next[v] == first[v + 1]) {
                leave(&s, v, index[v]);
                continue;
            }
            uint32_t w = adj[s.next[v]++];
            if (s.low[w] == 0) {
                enter(&s, w);
                index[w] = s.seen;
            } else if (s.low[w] != UINT32_MAX && index[w] < s.low[v]) {
                s.low[v] = index[w];
            }
        }
    }
    return s.n_comp;
}
