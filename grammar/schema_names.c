/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/schema_names.c - propertyNames: the keys that an object may have; see schema_priv.h. */
#include "grammar/schema_priv.h"

/* The strings that a list of values, or one value, leaves. */
static const struct tr_fa *listed(struct tr_sc *c, const struct tr_demand *d,
                                  const struct tr_spec *s)
{
    uint32_t n = s->only_const ? 1 : s->only->len;
    struct tr_fa_word *w = tr_gbudget_alloc(&c->w, n * sizeof *w);
    if (!w)
        return NULL;
    struct tr_json_it it = tr_json_iter(s->only);
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!s->only_const)
            (void)tr_json_step(&it);
        const struct tr_json *v = s->only_const ? s->only : it.val;
        if (tr_json_is(v, TR_JSON_STRING) && tr_sc_allows(c, d, s, v))
            w[k++] = (struct tr_fa_word){v->u.s, v->len};
    }
    return c->ret ? NULL : tr_fa_words(&c->w, w, k);
}

/* The strings that obey a schema; *any: all do. */
static const struct tr_fa *strings(struct tr_sc *c, const struct tr_json *schema, bool *any)
{
    struct tr_draft x = {.n = 0};
    if (!tr_sc_add(c, &x, schema))
        return NULL;
    struct tr_demand *d = tr_sc_demand(c, &x);
    const struct tr_spec *s = d ? tr_sc_spec(c, d) : NULL;
    if (!s)
        return NULL;
    if (s->anyof || s->oneof)
        return tr_sc_refuse(c, schema, "anyOf and oneOf in propertyNames are not supported"), NULL;
    if (d->never || !(s->types & TR_SC_STRING))
        return tr_fa_words(&c->w, NULL, 0);
    if (s->only)
        return listed(c, d, s);
    *any = !s->text && !s->min_len && s->max_len == UINT32_MAX;
    const struct tr_fa *a = tr_fa_length(&c->w, s->min_len, s->max_len);
    return s->text ? tr_fa_and(&c->w, a, s->text) : a;
}

bool tr_sc_names(struct tr_sc *c, const struct tr_demand *d, const struct tr_fa **names)
{
    *names = NULL;
    for (uint32_t i = 0; i < d->n; i++) {
        const struct tr_json *schema = TR_JSON_GET(d->part[i].schema, "propertyNames");
        if (!schema)
            continue;
        bool any = false;
        const struct tr_fa *a = strings(c, schema, &any);
        if (any)
            continue;
        *names = *names ? tr_fa_and(&c->w, *names, a) : a;
        if (!*names)
            return tr_sc_full(c, schema);
    }
    return true;
}
