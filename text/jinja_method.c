/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_method.c - methods of list, tuple, dict and loop; those of str are in
 * jinja_method_str.c. */
#include "text/jinja_priv.h"

#define FN(name)                                                                                   \
    static struct tr_jv *name(struct tr_jctx *c, struct tr_jv *self, const struct tr_jargs *a)

FN(l_count)
{
    int64_t n = 0;
    for (size_t i = 0; i < self->l.n; i++) {
        int r = tr_jequal(c, self->l.v[i], a->pos[0]);
        if (r < 0)
            return NULL;
        n += r;
    }
    return tr_jnew_int(c, n);
}

FN(l_index)
{
    for (size_t i = 0; i < self->l.n; i++) {
        int r = tr_jequal(c, self->l.v[i], a->pos[0]);
        if (r)
            return r < 0 ? NULL : tr_jnew_int(c, (int64_t)i);
    }
    return tr_jfail(c, TR_JERR_RUNTIME, "the value is not in the %s", tr_jtype_name(self));
}

FN(l_copy)
{
    (void)c;
    (void)a;
    return self; /* nothing can change it, so a copy cannot be told apart */
}

const struct tr_jbuiltin tr_jmethods_list[] = {
    {"count", l_count, "value", 1}, {"index", l_index, "value", 1}, {"copy", l_copy, "", 0}, {0}};
const struct tr_jbuiltin tr_jmethods_tuple[] = {
    {"count", l_count, "value", 1}, {"index", l_index, "value", 1}, {0}};

FN(d_get)
{
    struct tr_jv *v = tr_jdict_get(c, &self->d, a->pos[0]);
    if (v || c->err)
        return v;
    return a->pos[1] ? a->pos[1] : &c->none;
}

static struct tr_jv *view(struct tr_jctx *c, const struct tr_jv *d, enum tr_jview kind)
{
    struct tr_jv *v = tr_jnew(c, TR_JV_VIEW);
    if (v) {
        v->view.d = &d->d;
        v->view.kind = kind;
        v->user = d->user;
    }
    return v;
}

FN(d_keys)
{
    (void)a;
    return view(c, self, TR_JVIEW_KEYS);
}

FN(d_values)
{
    (void)a;
    return view(c, self, TR_JVIEW_VALUES);
}

FN(d_items)
{
    (void)a;
    return view(c, self, TR_JVIEW_ITEMS);
}

const struct tr_jbuiltin tr_jmethods_dict[] = {{"get", d_get, "key default", 1},
                                               {"keys", d_keys, "", 0},
                                               {"values", d_values, "", 0},
                                               {"items", d_items, "", 0},
                                               {"copy", l_copy, "", 0},
                                               {"fromkeys", NULL, "", 0},
                                               {0}};

FN(loop_cycle)
{
    if (!a->n)
        return tr_jfail(c, TR_JERR_RUNTIME, "no items for cycling given");
    return a->pos[self->loop->i % a->n];
}

FN(loop_changed)
{
    struct tr_jloop *l = self->loop;
    struct tr_jv *now = tr_jnew_list(c, TR_JV_TUPLE, a->n);
    if (!now)
        return NULL;
    for (size_t i = 0; i < a->n; i++)
        now->l.v[now->l.n++] = a->pos[i];
    int same = l->changed ? tr_jequal(c, l->changed, now) : 0;
    if (same < 0)
        return NULL;
    l->changed = now;
    return tr_jbool(c, !same);
}

const struct tr_jbuiltin tr_jmethods_loop[] = {
    {"cycle", loop_cycle, "*", 0}, {"changed", loop_changed, "*", 0}, {0}};
