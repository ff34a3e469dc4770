/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/match.c - see match.h. */
#include "grammar/match.h"

#include "grammar/step.h"

#include <string.h>

_Static_assert(sizeof(struct tr_gmatch) <= 8192, "one for each sequence");

void tr_gmatch_start(struct tr_gmatch *m, const struct tr_gprog *p)
{
    memset(m, 0, sizeof(*m));
    m->fresh = true;
    m->n_heads = 1;
    m->heads[0] = (struct tr_ghead){(uint16_t)p->start, 0};
    m->n_nodes = 1;
    m->nodes[0].state = TR_GRAM_OVER;
}

/* Frames under way: those of `m`, which may move when room is made. */
static struct tr_gframes frames(struct tr_gmatch *m)
{
    return (struct tr_gframes){.node = m->nodes, .n = m->n_nodes, .max = TR_GRAM_NODES};
}

/* Forgets frames that no head needs.  The order stays, so parents stay below. */
static void compact(struct tr_gframes *f, struct tr_ghead *a, uint32_t n_a, struct tr_ghead *b,
                    uint32_t n_b)
{
    uint16_t moved[TR_GRAM_NODES] = {0};
    uint32_t n = 1;

    for (uint32_t i = 0; i < n_a; i++)
        moved[a[i].node] = 1;
    for (uint32_t i = 0; i < n_b; i++)
        moved[b[i].node] = 1;
    for (uint32_t i = f->n - 1; i > 0; i--)
        if (moved[i])
            moved[f->node[i].parent] = 1;
    moved[0] = 0;
    for (uint32_t i = 1; i < f->n; i++) {
        if (!moved[i])
            continue;
        f->node[n] = f->node[i];
        f->node[n].parent = moved[f->node[i].parent];
        moved[i] = (uint16_t)n++;
    }
    f->n = n;
    for (uint32_t i = 0; i < n_a; i++)
        a[i].node = moved[a[i].node];
    for (uint32_t i = 0; i < n_b; i++)
        b[i].node = moved[b[i].node];
}

/* The heads `h` are the matcher's from now on. */
static bool take(struct tr_gmatch *m, struct tr_gframes *f, const struct tr_ghead *h, uint32_t n)
{
    m->n_heads = (uint16_t)n;
    memcpy(m->heads, h, n * sizeof(*h));
    compact(f, m->heads, n, NULL, 0);
    m->n_nodes = (uint16_t)f->n;
    m->fresh = false;
    m->overflow = false;
    return true;
}

/* The matcher is as it was; frames that were opened in vain are forgotten. */
static bool refuse(struct tr_gmatch *m, struct tr_gframes *f)
{
    compact(f, m->heads, m->n_heads, NULL, 0);
    m->n_nodes = (uint16_t)f->n;
    m->overflow = f->overflow;
    return false;
}

bool tr_gmatch_bytes(struct tr_gmatch *m, const struct tr_gprog *p, const void *bytes, size_t n)
{
    struct tr_ghead now[2][TR_GRAM_HEADS];
    struct tr_gframes f = frames(m);
    uint32_t n_now = m->n_heads;
    const uint8_t *s = bytes;

    if (n == 0)
        return true;
    memcpy(now[0], m->heads, n_now * sizeof(now[0][0]));
    for (size_t i = 0; i < n; i++) {
        struct tr_ghead *from = now[i % 2], *to = now[(i + 1) % 2];
        uint32_t k = tr_gstep_byte(p, &f, from, n_now, s[i], to);
        if (k == 0 && f.overflow && f.n == f.max) { /* once more, with room */
            compact(&f, m->heads, m->n_heads, from, n_now);
            f.overflow = false;
            k = tr_gstep_byte(p, &f, from, n_now, s[i], to);
        }
        if (k == 0)
            return refuse(m, &f);
        n_now = k;
    }
    return take(m, &f, now[n % 2], n_now);
}

bool tr_gmatch_token(struct tr_gmatch *m, const struct tr_gprog *p, uint32_t id)
{
    struct tr_ghead to[TR_GRAM_HEADS];
    struct tr_gframes f = frames(m);
    uint32_t n = tr_gstep_token(p, &f, m->heads, m->n_heads, id, to);

    return n ? take(m, &f, to, n) : refuse(m, &f);
}

bool tr_gmatch_may_end(const struct tr_gmatch *m, const struct tr_gprog *p)
{
    struct tr_gframes f = {.node = (struct tr_gframe *)m->nodes, .n = m->n_nodes};

    return (m->fresh && p->empty) || tr_gstep_may_end(p, &f, m->heads, m->n_heads);
}

bool tr_gmatch_is_over(const struct tr_gmatch *m, const struct tr_gprog *p)
{
    /* Only the program of the empty text has a start without a way on. */
    struct tr_gstate s = tr_gstate_at(p, p->start);
    if (m->fresh && p->empty)
        return s.n_bytes + s.n_calls + s.n_tokens == 0;
    for (uint32_t i = 0; i < m->n_heads; i++)
        if (m->heads[i].state != TR_GRAM_OVER)
            return false;
    return true;
}
