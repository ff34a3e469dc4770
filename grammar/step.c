/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/step.c - see step.h. */
#include "grammar/step.h"

struct look {
    const struct tr_gprog *p;
    struct tr_gframes *f;
    struct tr_ghead *out;
    uint32_t n_todo, n_out;
    struct tr_ghead todo[TR_GRAM_LOOK];
};

static bool has(const struct tr_ghead *h, uint32_t n, uint32_t state, uint32_t node)
{
    for (uint32_t i = 0; i < n; i++)
        if (h[i].state == state && h[i].node == node)
            return true;
    return false;
}

/* Entries of a list that are compared at the cost of one unit of work. */
#define SCANNED 8u

static void look_at(struct look *l, uint32_t state, uint32_t node)
{
    l->f->work += l->n_todo / SCANNED;
    if (has(l->todo, l->n_todo, state, node))
        return;
    if (l->n_todo == TR_GRAM_LOOK)
        l->f->overflow = true;
    else
        l->todo[l->n_todo++] = (struct tr_ghead){(uint16_t)state, (uint16_t)node};
}

static inline void returned(struct tr_gframes *f, uint32_t node)
{
    if (node < f->lowest)
        f->lowest = (uint16_t)node;
}

/* A rule that can only end where it stands is left at once. */
struct tr_ghead tr_gstep_settle(const struct tr_gprog *p, struct tr_gframes *f, uint32_t state,
                                uint32_t node)
{
    while (tr_gstate_is_end(p, state)) {
        returned(f, node);
        if (node == 0)
            return (struct tr_ghead){TR_GRAM_OVER, 0};
        state = f->node[node].state;
        node = f->node[node].parent;
    }
    return (struct tr_ghead){(uint16_t)state, (uint16_t)node};
}

/* A head after its byte. */
static void arrive(struct look *l, uint32_t state, uint32_t node)
{
    struct tr_ghead h = tr_gstep_settle(l->p, l->f, state, node);

    l->f->work += l->n_out / SCANNED;
    if (has(l->out, l->n_out, h.state, h.node))
        return;
    if (l->n_out == TR_GRAM_HEADS)
        l->f->overflow = true;
    else
        l->out[l->n_out++] = h;
}

/* The frame (state, parent): the same stack is always the same node.  Newest first: its like, if there is
 * one, was mostly opened within the same token. */
static uint32_t frame(struct tr_gframes *f, uint32_t state, uint32_t parent)
{
    uint16_t depth = (uint16_t)(f->node[parent].depth + 1);

    if (depth > f->deepest)
        f->deepest = depth;
    f->work += (f->n - parent) / 4;
    for (uint32_t i = f->n; i-- > parent + 1;)
        if (f->node[i].state == state && f->node[i].parent == parent)
            return i;
    if (f->n == f->max) {
        f->overflow = true;
        return 0;
    }
    f->node[f->n] = (struct tr_gframe){(uint16_t)state, (uint16_t)parent, depth};
    return f->n++;
}

/* Opens a call that returns to `to`.  In last place there is nothing to return to. */
static void call(struct look *l, uint32_t rule, uint32_t to, uint32_t node)
{
    if (!tr_gstate_is_end(l->p, to)) {
        if (l->f->node[node].depth >= TR_GRAM_DEPTH) {
            l->f->dropped = true;
            return;
        }
        node = frame(l->f, to, node);
        if (node == 0)
            return;
    }
    look_at(l, tr_grule_start(l->p, rule), node);
}

/* A final state is left. */
static void leave(struct look *l, const struct tr_gstate *s, uint32_t node)
{
    if (!s->final)
        return;
    returned(l->f, node);
    if (node != 0)
        look_at(l, l->f->node[node].state, l->f->node[node].parent);
}

/* The edge that takes `byte`, or NULL. */
static const uint8_t *byte_edge(const struct tr_gstate *s, uint8_t byte)
{
    uint32_t lo = 0, hi = s->n_bytes;

    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        const uint8_t *e = s->edge + (size_t)mid * TR_GEDGE_SIZE;
        if (byte < e[0])
            hi = mid;
        else if (byte > e[1])
            lo = mid + 1;
        else
            return e;
    }
    return NULL;
}

static void bytes(struct look *l, const struct tr_gstate *s, uint8_t byte, uint32_t node)
{
    const uint8_t *own = byte_edge(s, byte);
    const uint8_t *e = s->edge + (size_t)s->n_bytes * TR_GEDGE_SIZE;

    if (own)
        arrive(l, tr_g_u16(own + 2), node);
    for (uint32_t k = 0; k < s->n_calls && !l->f->overflow; k++, e += TR_GEDGE_SIZE)
        if (tr_grule_begins(l->p, tr_g_u16(e), byte))
            call(l, tr_g_u16(e), tr_g_u16(e + 2), node);
}

static void tokens(struct look *l, const struct tr_gstate *s, uint32_t id, uint32_t node)
{
    const uint8_t *e = s->edge + (size_t)s->n_bytes * TR_GEDGE_SIZE;

    for (uint32_t k = 0; k < s->n_calls && !l->f->overflow; k++, e += TR_GEDGE_SIZE)
        if (tr_grule_begins_token(l->p, tr_g_u16(e)))
            call(l, tr_g_u16(e), tr_g_u16(e + 2), node);
    for (uint32_t k = 0; k < s->n_tokens; k++, e += TR_GEDGE_SIZE)
        if (tr_g_u32(l->p->tokens + (size_t)tr_g_u16(e) * TR_GTOKEN_SIZE) == id)
            arrive(l, tr_g_u16(e + 2), node);
}

static void begin(struct look *l, const struct tr_gprog *p, struct tr_gframes *f,
                  const struct tr_ghead *in, uint32_t n_in, struct tr_ghead *out)
{
    l->p = p;
    l->f = f;
    l->out = out;
    l->n_todo = l->n_out = 0;
    for (uint32_t i = 0; i < n_in; i++)
        if (in[i].state != TR_GRAM_OVER)
            l->todo[l->n_todo++] = in[i];
}

/* The state that is looked at next, and what that costs. */
static struct tr_gstate next_state(const struct look *l, uint32_t i)
{
    struct tr_gstate s = tr_gstate_at(l->p, l->todo[i].state);

    l->f->work += 4u + s.n_calls / 4u + s.n_tokens / 4u;
    return s;
}

uint32_t tr_gstep_byte(const struct tr_gprog *p, struct tr_gframes *f, const struct tr_ghead *in,
                       uint32_t n_in, uint8_t byte, struct tr_ghead *out)
{
    struct look l;

    begin(&l, p, f, in, n_in, out);
    for (uint32_t i = 0; i < l.n_todo && !f->overflow; i++) {
        struct tr_gstate s = next_state(&l, i);
        bytes(&l, &s, byte, l.todo[i].node);
        leave(&l, &s, l.todo[i].node);
    }
    return f->overflow ? 0 : l.n_out;
}

uint32_t tr_gstep_token(const struct tr_gprog *p, struct tr_gframes *f, const struct tr_ghead *in,
                        uint32_t n_in, uint32_t id, struct tr_ghead *out)
{
    struct look l;

    begin(&l, p, f, in, n_in, out);
    for (uint32_t i = 0; i < l.n_todo && !f->overflow; i++) {
        struct tr_gstate s = next_state(&l, i);
        tokens(&l, &s, id, l.todo[i].node);
        leave(&l, &s, l.todo[i].node);
    }
    return f->overflow ? 0 : l.n_out;
}

struct tr_ghead tr_gstep_return(const struct tr_gprog *p, struct tr_gframes *f, uint32_t node)
{
    returned(f, node);
    return node == 0 ? (struct tr_ghead){TR_GRAM_OVER, 0}
                     : tr_gstep_settle(p, f, f->node[node].state, f->node[node].parent);
}

bool tr_gstep_may_end(const struct tr_gprog *p, struct tr_gframes *f, const struct tr_ghead *in,
                      uint32_t n_in)
{
    for (uint32_t i = 0; i < n_in; i++) {
        uint32_t state = in[i].state, node = in[i].node;
        while (state != TR_GRAM_OVER && tr_gstate_at(p, state).final) {
            f->work++;
            returned(f, node);
            if (node == 0)
                state = TR_GRAM_OVER;
            else
                state = f->node[node].state, node = f->node[node].parent;
        }
        if (state == TR_GRAM_OVER)
            return true;
    }
    return false;
}
