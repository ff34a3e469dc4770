/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/schema_array.c - arrays under their keywords; see schema_priv.h.  State i of the automaton: i
 * elements have been written. */
#include "grammar/schema_priv.h"

/* The demand on element i. */
static struct tr_demand *element(struct tr_sc *c, const struct tr_demand *d, uint32_t i)
{
    struct tr_draft x = {.n = 0};
    for (uint32_t k = 0; k < d->n; k++) {
        const struct tr_json *schema = d->part[k].schema;
        const struct tr_json *prefix = TR_JSON_GET(schema, "prefixItems");
        const struct tr_json *v = TR_JSON_GET(schema, "items");
        if (prefix && i < prefix->len) {
            struct tr_json_it it = tr_json_iter(prefix);
            while (tr_json_step(&it) && it.index < i)
                ;
            v = it.val;
        }
        if (!tr_gbudget_step(&c->w, 1 + i))
            return tr_sc_full(c, schema), NULL;
        if (v && !tr_sc_add(c, &x, v))
            return NULL;
    }
    return tr_sc_demand(c, &x);
}

struct bounds {
    uint32_t prefix;   /* elements that have a schema of their own */
    uint32_t min, max; /* UINT32_MAX: none */
};

static struct bounds measure(const struct tr_demand *d, const struct tr_spec *s)
{
    struct bounds m = {.min = s->min_items, .max = s->max_items};
    bool open = false;
    for (uint32_t k = 0; k < d->n; k++) {
        const struct tr_json *prefix = TR_JSON_GET(d->part[k].schema, "prefixItems");
        if (prefix && prefix->len > m.prefix)
            m.prefix = prefix->len;
        open |= TR_JSON_GET(d->part[k].schema, "items") != NULL;
    }
    /* Where only the first elements are described, no others are written. */
    if (m.prefix && !open && m.min <= m.prefix && m.max > m.prefix)
        m.max = m.prefix;
    return m;
}

struct drawing {
    struct tr_sc *c;
    struct tr_garrow *e;
    uint8_t *final;
    uint32_t n, n_edges;
};

static void edge(struct drawing *g, uint32_t from, uint32_t to, tr_gnode on)
{
    g->e[g->n_edges++] = (struct tr_garrow){from, to, on};
}

/* States: 0 nothing, 1 the end, 2 + i: behind i elements.  Two edges at most leave each of the latter. */
static tr_gnode draw(struct tr_sc *c, const struct tr_demand *d, struct bounds m, bool *never)
{
    /* The state in which one element is like the next. */
    uint32_t last = m.max != UINT32_MAX ? m.max : m.min > m.prefix ? m.min : m.prefix;
    if (m.max == UINT32_MAX && !last)
        last = 1;
    struct drawing g = {.c = c, .n = last + 3};
    g.e = tr_gbudget_alloc(&c->w, (2 * (size_t)last + 6) * sizeof *g.e);
    g.final = tr_gbudget_alloc(&c->w, g.n);
    if (!g.e || !g.final)
        return tr_sc_full(c, NULL), TR_G_NONE;
    tr_gnode blank = tr_gj_blank(&c->j);
    tr_gnode comma = TR_SC_SEQ(c, tr_sc_text(c, ",", 1), blank);
    tr_gnode close = TR_SC_SEQ(c, blank, tr_sc_text(c, "]", 1));
    struct tr_demand *rest = NULL;
    tr_gnode again = TR_G_NONE;
    g.final[1] = 1;
    edge(&g, 0, 2, tr_sc_text(c, "[", 1));
    for (uint32_t i = 0; i <= last; i++) {
        if (i >= m.min)
            edge(&g, 2 + i, 1, close);
        if (i == m.max)
            break;
        struct tr_demand *one = rest ? rest : element(c, d, i);
        tr_gnode value = rest ? again : one ? tr_sc_value(c, one) : TR_G_NONE;
        if (value == TR_G_NONE)
            return tr_sc_full(c, NULL), TR_G_NONE;
        if (one->never) {
            *never = i < m.min;
            break;
        }
        if (i >= m.prefix && !rest) {
            rest = one;
            again = value;
            if (last > i + 1) { /* many copies else */
                again = tr_g_rule(c->b);
                tr_g_define(c->b, again, value);
                value = again;
            }
        }
        edge(&g, 2 + i, 2 + (i < last ? i + 1 : last), TR_SC_SEQ(c, i ? comma : blank, value));
    }
    return tr_g_fsm(c->b, g.n, g.e, g.n_edges, g.final);
}

tr_gnode tr_sc_array(struct tr_sc *c, const struct tr_demand *d, const struct tr_spec *s,
                     bool *never)
{
    *never = s->min_items > s->max_items;
    if (*never)
        return tr_g_never(c->b);
    if (!s->array_words)
        return tr_gj_array(&c->j);
    return draw(c, d, measure(d, s), never);
}
