/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/schema_string.c - strings and numbers under their keywords; see schema_priv.h. */
#include "grammar/schema_priv.h"

enum { BLOCK = 128 };

/* Exactly n times what `unit` is.  In blocks of blocks, so that a large count has few states. */
static tr_gnode exactly(struct tr_gbuild *b, tr_gnode unit, uint32_t n)
{
    if (n <= 2 * BLOCK)
        return tr_g_repeat(b, unit, n, n);
    tr_gnode block = tr_g_rule(b);
    tr_g_define(b, block, tr_g_repeat(b, unit, BLOCK, BLOCK));
    const tr_gnode v[] = {exactly(b, block, n / BLOCK), tr_g_repeat(b, unit, n % BLOCK, n % BLOCK)};
    return tr_g_seq(b, v, 2);
}

/* At most n times: whole blocks, then what is left of one block and the rest. */
static tr_gnode at_most(struct tr_gbuild *b, tr_gnode unit, uint32_t n)
{
    if (n <= 2 * BLOCK)
        return tr_g_repeat(b, unit, 0, n);
    tr_gnode block = tr_g_rule(b);
    tr_g_define(b, block, tr_g_repeat(b, unit, BLOCK, BLOCK));
    const tr_gnode v[] = {at_most(b, block, n / BLOCK - 1),
                          tr_g_repeat(b, unit, 0, BLOCK + n % BLOCK)};
    return tr_g_seq(b, v, 2);
}

static tr_gnode quoted(struct tr_sc *c, tr_gnode n)
{
    return TR_SC_SEQ(c, tr_sc_text(c, "\"", 1), n, tr_sc_text(c, "\"", 1));
}

static tr_gnode counted(struct tr_sc *c, const struct tr_spec *s)
{
    tr_gnode unit = tr_gj_chars(&c->j);
    tr_gnode more = s->max_len == UINT32_MAX ? tr_g_repeat(c->b, unit, 0, TR_G_INF)
                                             : at_most(c->b, unit, s->max_len - s->min_len);
    return quoted(c, TR_SC_SEQ(c, exactly(c->b, unit, s->min_len), more));
}

tr_gnode tr_sc_string(struct tr_sc *c, const struct tr_spec *s, bool *never)
{
    *never = s->min_len > s->max_len;
    if (*never)
        return tr_g_never(c->b);
    bool any_length = !s->min_len && s->max_len == UINT32_MAX;
    if (!s->text)
        return any_length ? tr_gj_string(&c->j) : counted(c, s);
    const struct tr_fa *a = s->text;
    if (!any_length)
        a = tr_fa_and(&c->w, a, tr_fa_length(&c->w, s->min_len, s->max_len));
    if (!a)
        return tr_sc_full(c, NULL), TR_G_NONE;
    *never = !a->n;
    return quoted(c, tr_fa_node(&c->w, c->b, a, tr_gj_set));
}

tr_gnode tr_sc_number(struct tr_sc *c, const struct tr_spec *s, bool *never)
{
    bool whole = !(s->types & TR_SC_FRACTION);
    *never = false;
    if (!s->bounded)
        return whole ? tr_gj_integer(&c->j) : tr_gj_number(&c->j);
    struct tr_drange r = s->num;
    r.whole = whole;
    const struct tr_fa *a = tr_dec_fa(&c->w, &r);
    if (!a)
        return tr_sc_full(c, NULL), TR_G_NONE;
    *never = !a->n;
    return tr_fa_node(&c->w, c->b, a, tr_fa_plain);
}
