/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_sort.c - a stable merge sort that can fail: comparing values may be an error. */
#include "text/jinja_priv.h"

#include <string.h>

/* Merges from[a, m) and from[m, z) into to[a, z). */
static bool merge(struct tr_jctx *c, const size_t *from, size_t *to, size_t a, size_t m, size_t z,
                  struct tr_jv *const *keys, bool reverse)
{
    size_t l = a;
    size_t r = m;
    for (size_t k = a; k < z; k++) {
        bool right = l == m;
        if (l < m && r < z) {
            const struct tr_jv *x = keys[from[l]];
            const struct tr_jv *y = keys[from[r]];
            int less = reverse ? tr_jless(c, "<", x, y) : tr_jless(c, "<", y, x);
            if (less < 0)
                return false;
            right = less;
        }
        to[k] = right ? from[r++] : from[l++];
    }
    return true;
}

bool tr_jsort(struct tr_jctx *c, size_t *order, struct tr_jv *const *keys, size_t n, bool reverse)
{
    size_t *other = tr_jalloc_n(c, n, sizeof *other);
    size_t *from = order;
    size_t *to = other;
    if (!other)
        return false;
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t a = 0; a < n; a += 2 * run) {
            size_t m = a + run < n ? a + run : n;
            size_t z = a + 2 * run < n ? a + 2 * run : n;
            if (!merge(c, from, to, a, m, z, keys, reverse))
                return false;
        }
        size_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != order)
        memcpy(order, from, n * sizeof *order);
    return true;
}
