/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_exec.c - runs statements. */
#include "text/jinja_eval.h"

#include <string.h>

static enum tr_jflow flow_of(bool good)
{
    return good ? TR_JFLOW_NEXT : TR_JFLOW_ERROR;
}

/* Runs a body in a scope of its own. */
static enum tr_jflow exec_inner(struct tr_jev *e, const struct tr_jn *body)
{
    struct tr_jscope *saved = e->scope;
    struct tr_jscope *scope = tr_jscope_new(e->c, saved);
    if (!scope)
        return TR_JFLOW_ERROR;
    e->scope = scope;
    enum tr_jflow flow = tr_jexec(e, body);
    e->scope = saved;
    return flow;
}

/* The output of a body, in a scope of its own.  break and continue pass through. */
static enum tr_jflow capture(struct tr_jev *e, const struct tr_jn *body, struct tr_jv **out)
{
    struct tr_jbuf *saved = e->out;
    struct tr_jbuf b;
    tr_jbuf_init(&b, e->c);
    e->out = &b;
    enum tr_jflow flow = exec_inner(e, body);
    e->out = saved;
    *out = flow == TR_JFLOW_ERROR ? NULL : tr_jbuf_value(&b);
    return *out ? flow : TR_JFLOW_ERROR;
}

static bool print(struct tr_jev *e, const struct tr_jv *v)
{
    if (v)
        tr_jbuf_add_value(e->out, v);
    return v && !e->out->bad && !e->c->err;
}

static bool assign_ns(struct tr_jev *e, const struct tr_jn *target, struct tr_jv *v)
{
    const struct tr_jn name = {.kind = TR_JN_NAME, .str = target->str, .line = target->line};
    struct tr_jv *ns = tr_jev_expr(e, &name);
    if (!ns)
        return false;
    if (ns->type != TR_JV_NS) {
        tr_jfail(e->c, TR_JERR_RUNTIME, "cannot assign attribute on non-namespace object");
        return false;
    }
    if (target->str2.p[0] == '_') {
        tr_jfail(e->c, TR_JERR_SECURITY, "a namespace cannot store underscore-prefixed attributes");
        return false;
    }
    return tr_jdict_set(e->c, &ns->d, tr_jnew_str(e->c, target->str2), v);
}

static bool assign(struct tr_jev *e, const struct tr_jn *target, struct tr_jv *v)
{
    struct tr_jlist l;
    size_t i = 0;
    if (!v)
        return false;
    if (target->kind == TR_JN_NAME)
        return tr_jscope_set(e->c, e->scope, target->str, v);
    if (target->kind == TR_JN_NSREF)
        return assign_ns(e, target, v);
    if (!tr_jiterate(e->c, v, &l) || !tr_jenter(e->c))
        return false;
    bool good = true;
    for (const struct tr_jn *t = target->a; good && t; t = t->next, i++) {
        if (i >= l.n)
            tr_jfail(e->c, TR_JERR_RUNTIME, "not enough values to unpack (got %zu)", l.n);
        good = i < l.n && assign(e, t, l.v[i]);
    }
    tr_jleave(e->c);
    if (good && i < l.n)
        tr_jfail(e->c, TR_JERR_RUNTIME, "too many values to unpack (expected %zu)", i);
    return good && i == l.n;
}

static enum tr_jflow exec_if(struct tr_jev *e, const struct tr_jn *n)
{
    for (const struct tr_jn *b = n->a; b; b = b->next) {
        const struct tr_jv *test = b->a ? tr_jev_expr(e, b->a) : NULL;
        if (b->a && !test)
            return TR_JFLOW_ERROR;
        if (!test || tr_jtruth(test))
            return tr_jexec(e, b->b);
    }
    return TR_JFLOW_NEXT;
}

/* The items that pass the loop's condition. */
static bool filter_items(struct tr_jev *e, const struct tr_jn *n, struct tr_jlist *items)
{
    struct tr_jlist out = {0};
    struct tr_jscope *saved = e->scope;
    struct tr_jscope *scope = tr_jscope_new(e->c, saved);
    bool good = scope != NULL;
    e->scope = scope;
    for (size_t i = 0; good && i < items->n; i++) {
        const struct tr_jv *test = assign(e, n->a, items->v[i]) ? tr_jev_expr(e, n->e) : NULL;
        good = test && (!tr_jtruth(test) || tr_jlist_add(e->c, &out, items->v[i]));
    }
    e->scope = saved;
    *items = out;
    return good;
}

static struct tr_jv *new_loop(struct tr_jev *e, const struct tr_jn *n, struct tr_jlist items,
                              size_t depth0)
{
    struct tr_jv *v = tr_jnew(e->c, TR_JV_LOOP);
    struct tr_jloop *l = tr_jalloc(e->c, sizeof *l);
    if (!v || !l)
        return NULL;
    l->items = items;
    l->depth0 = depth0;
    l->node = n->flag ? n : NULL;
    l->outside = e->scope;
    v->loop = l;
    return v;
}

static enum tr_jflow exec_turn(struct tr_jev *e, const struct tr_jn *n, struct tr_jv *loop)
{
    if (!assign(e, n->a, loop->loop->items.v[loop->loop->i]) ||
        !tr_jscope_set(e->c, e->scope, tr_jstr_of("loop"), loop))
        return TR_JFLOW_ERROR;
    return tr_jexec(e, n->c);
}

static enum tr_jflow run_loop(struct tr_jev *e, const struct tr_jn *n, struct tr_jv *over,
                              size_t depth0)
{
    struct tr_jlist items;
    struct tr_jscope *outside = e->scope;
    if (!tr_jiterate(e->c, over, &items) || (n->e && !filter_items(e, n, &items)))
        return TR_JFLOW_ERROR;
    if (!items.n)
        return exec_inner(e, n->d);
    struct tr_jv *loop = new_loop(e, n, items, depth0);
    if (!loop)
        return TR_JFLOW_ERROR;
    enum tr_jflow flow = TR_JFLOW_NEXT;
    size_t closures = e->c->closures;
    struct tr_jscope *scope = NULL;
    for (size_t i = 0; i < items.n && flow == TR_JFLOW_NEXT; i++) {
        /* A scope can be used again unless a macro was defined in it. */
        if (!scope || e->c->closures != closures)
            scope = tr_jscope_new(e->c, outside);
        closures = e->c->closures;
        if (!scope)
            return TR_JFLOW_ERROR;
        scope->n = 0;
        e->scope = scope;
        loop->loop->i = i;
        flow = exec_turn(e, n, loop);
        e->scope = outside;
        if (flow == TR_JFLOW_CONTINUE)
            flow = TR_JFLOW_NEXT;
    }
    return flow == TR_JFLOW_BREAK ? TR_JFLOW_NEXT : flow;
}

static enum tr_jflow exec_for(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jv *over = tr_jev_expr(e, n->b);
    return over ? run_loop(e, n, over, 0) : TR_JFLOW_ERROR;
}

struct tr_jv *tr_jexec_loop(struct tr_jctx *c, struct tr_jv *loop, const struct tr_jargs *a)
{
    struct tr_jbuf b;
    struct tr_jev e = {.c = c, .scope = loop->loop->outside, .out = &b};
    if (!loop->loop->node)
        return tr_jfail(c, TR_JERR_RUNTIME,
                        "The loop must have the 'recursive' marker to be called "
                        "recursively.");
    if (a->n != 1 || a->n_kw)
        return tr_jfail(c, TR_JERR_RUNTIME, "loop() takes one argument");
    tr_jbuf_init(&b, c);
    if (!tr_jenter(c))
        return NULL;
    enum tr_jflow flow = run_loop(&e, loop->loop->node, a->pos[0], loop->loop->depth0 + 1);
    tr_jleave(c);
    return flow == TR_JFLOW_ERROR ? NULL : tr_jbuf_value(&b);
}

static enum tr_jflow exec_setblock(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jv *v;
    enum tr_jflow flow = capture(e, n->c, &v);
    if (flow != TR_JFLOW_NEXT)
        return flow;
    if (n->b)
        v = tr_jev_filter(e, n->b, v);
    return flow_of(assign(e, n->a, v));
}

static enum tr_jflow exec_filtered(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jv *v;
    enum tr_jflow flow = capture(e, n->b, &v);
    if (flow != TR_JFLOW_NEXT)
        return flow;
    v = tr_jev_filter(e, n->a, v);
    if (v && v->type != TR_JV_STR) {
        tr_jfail(e->c, TR_JERR_RUNTIME, "a filter block must give a str, not %s", tr_jtype_name(v));
        return TR_JFLOW_ERROR;
    }
    return flow_of(print(e, v));
}

/* The values are evaluated outside of the new scope. */
static enum tr_jflow exec_with(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jscope *saved = e->scope;
    struct tr_jscope *scope = tr_jscope_new(e->c, saved);
    bool good = scope != NULL;
    for (const struct tr_jn *p = n->a; good && p; p = p->next)
        good = tr_jscope_set(e->c, scope, p->a->str, tr_jev_expr(e, p->b));
    if (!good)
        return TR_JFLOW_ERROR;
    e->scope = scope;
    enum tr_jflow flow = tr_jexec(e, n->b);
    e->scope = saved;
    return flow;
}

static struct tr_jv *new_macro(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jv *m = tr_jnew(e->c, TR_JV_MACRO);
    if (m) {
        m->macro.node = n;
        m->macro.scope = e->scope;
        e->c->closures++;
    }
    return m;
}

static enum tr_jflow exec_callblock(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jargs a;
    struct tr_jv *f = tr_jev_expr(e, n->c->a);
    struct tr_jv *caller = f ? new_macro(e, n) : NULL;
    if (!caller || !tr_jev_args(e, n->c->b, &a, 1))
        return TR_JFLOW_ERROR;
    a.kw[a.n_kw] = tr_jstr_of("caller");
    a.kwv[a.n_kw++] = caller;
    return flow_of(print(e, tr_jcall(e->c, f, &a)));
}

/* Takes a keyword argument out of `a`, or NULL. */
static struct tr_jv *pop_kw(struct tr_jargs *a, struct tr_jstr name)
{
    for (size_t i = 0; i < a->n_kw; i++) {
        if (!tr_jstr_eq(a->kw[i], name))
            continue;
        struct tr_jv *v = a->kwv[i];
        for (size_t k = i + 1; k < a->n_kw; k++) {
            a->kw[k - 1] = a->kw[k];
            a->kwv[k - 1] = a->kwv[k];
        }
        a->n_kw--;
        return v;
    }
    return NULL;
}

/* varargs and kwargs, if the macro looks at them; else nothing may be left over. */
static bool bind_rest(struct tr_jev *e, const struct tr_jn *n, const struct tr_jargs *a,
                      size_t used)
{
    struct tr_jctx *c = e->c;
    if (n->op & TR_JN_KWARGS) {
        struct tr_jv *kw = tr_jnew(c, TR_JV_DICT);
        for (size_t i = 0; kw && i < a->n_kw; i++)
            if (!tr_jdict_set(c, &kw->d, tr_jnew_str(c, a->kw[i]), a->kwv[i]))
                return false;
        if (!tr_jscope_set(c, e->scope, tr_jstr_of("kwargs"), kw))
            return false;
    } else if (a->n_kw) {
        tr_jfail(c, TR_JERR_RUNTIME, "macro takes no keyword argument '%.*s'",
                 (int)(a->kw[0].len > 60 ? 60 : a->kw[0].len), a->kw[0].p);
        return false;
    }
    if (n->op & TR_JN_VARARGS) {
        struct tr_jv *rest = tr_jnew_list(c, TR_JV_TUPLE, a->n - used);
        for (size_t i = used; rest && i < a->n; i++)
            rest->l.v[rest->l.n++] = a->pos[i];
        return tr_jscope_set(c, e->scope, tr_jstr_of("varargs"), rest);
    }
    if (used < a->n)
        tr_jfail(c, TR_JERR_RUNTIME, "macro takes not more than %zu argument(s)", used);
    return used == a->n;
}

static struct tr_jv *absent_param(struct tr_jev *e, const struct tr_jn *p)
{
    struct tr_jbuf b;
    if (p->a)
        return tr_jev_expr(e, p->a);
    tr_jbuf_init(&b, e->c);
    tr_jbuf_puts(&b, "parameter '");
    tr_jbuf_add_str(&b, p->str);
    tr_jbuf_puts(&b, "' was not provided");
    tr_jbuf_add(&b, "", 1, false);
    return b.bad ? NULL : tr_jnew_undef(e->c, b.p);
}

static bool bind(struct tr_jev *e, const struct tr_jn *n, struct tr_jargs *a)
{
    size_t i = 0;
    if (n->op & TR_JN_CALLS) {
        struct tr_jv *caller = pop_kw(a, tr_jstr_of("caller"));
        if (!caller)
            caller = tr_jnew_undef(e->c, "No caller defined");
        if (!tr_jscope_set(e->c, e->scope, tr_jstr_of("caller"), caller))
            return false;
    }
    for (const struct tr_jn *p = n->a; p; p = p->next, i++) {
        struct tr_jv *v = i < a->n ? a->pos[i] : pop_kw(a, p->str);
        if (!tr_jscope_set(e->c, e->scope, p->str, v ? v : absent_param(e, p)))
            return false;
    }
    return bind_rest(e, n, a, i < a->n ? i : a->n);
}

struct tr_jv *tr_jexec_macro(struct tr_jctx *c, struct tr_jv *m, const struct tr_jargs *args)
{
    const struct tr_jn *n = m->macro.node;
    struct tr_jbuf b;
    struct tr_jargs a = *args;
    struct tr_jev e = {.c = c, .scope = tr_jscope_new(c, m->macro.scope), .out = &b};
    tr_jbuf_init(&b, c);
    if (!e.scope || !tr_jenter(c))
        return NULL;
    bool good = bind(&e, n, &a) && tr_jexec(&e, n->b) != TR_JFLOW_ERROR;
    tr_jleave(c);
    return good ? tr_jbuf_value(&b) : NULL;
}

static enum tr_jflow exec_data(struct tr_jev *e, const struct tr_jn *n)
{
    tr_jbuf_add_str(e->out, n->str);
    return flow_of(!e->out->bad);
}

static enum tr_jflow exec_one(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jv *v;
    switch (n->kind) {
    case TR_JN_DATA:
        return exec_data(e, n);
    case TR_JN_PRINT:
        return flow_of(print(e, tr_jev_expr(e, n->a)));
    case TR_JN_IF:
        return exec_if(e, n);
    case TR_JN_FOR:
        return exec_for(e, n);
    case TR_JN_SET:
        return flow_of(assign(e, n->a, tr_jev_expr(e, n->b)));
    case TR_JN_SETBLOCK:
        return exec_setblock(e, n);
    case TR_JN_WITH:
        return exec_with(e, n);
    case TR_JN_MACRO:
        v = new_macro(e, n);
        return flow_of(tr_jscope_set(e->c, e->scope, n->str, v));
    case TR_JN_CALLER:
        return exec_callblock(e, n);
    case TR_JN_FILTERED:
        return exec_filtered(e, n);
    case TR_JN_SCOPE:
        return exec_inner(e, n->b);
    case TR_JN_BREAK:
        return TR_JFLOW_BREAK;
    case TR_JN_CONTINUE:
        return TR_JFLOW_CONTINUE;
    default:
        tr_jfail(e->c, TR_JERR_UNSUPPORTED, "this statement is not supported");
        return TR_JFLOW_ERROR;
    }
}

enum tr_jflow tr_jexec(struct tr_jev *e, const struct tr_jn *body)
{
    enum tr_jflow flow = TR_JFLOW_NEXT;
    if (!tr_jenter(e->c))
        return TR_JFLOW_ERROR;
    for (const struct tr_jn *n = body; n && flow == TR_JFLOW_NEXT; n = n->next) {
        e->c->line = n->line;
        flow = flow_of(tr_jstep(e->c, 1));
        if (flow == TR_JFLOW_NEXT)
            flow = exec_one(e, n);
        if (e->out->len > e->c->lim.output) {
            tr_jfail(e->c, TR_JERR_LIMIT, "the rendered text is too long");
            flow = TR_JFLOW_ERROR;
        }
    }
    tr_jleave(e->c);
    return e->c->err ? TR_JFLOW_ERROR : flow;
}
