/* SPDX-License-Identifier: Apache-2.0 */
#include "text/jinja_eval.h"

#include "text/jinja_lex.h"

#include <string.h>

struct tr_jscope *tr_jscope_new(struct tr_jctx *c, struct tr_jscope *parent)
{
    struct tr_jscope *s = tr_jalloc(c, sizeof *s);
    if (s)
        s->parent = parent;
    return s;
}

bool tr_jscope_set(struct tr_jctx *c, struct tr_jscope *s, struct tr_jstr name, struct tr_jv *v)
{
    if (!v)
        return false;
    for (size_t i = 0; i < s->n; i++) {
        if (tr_jstr_eq(s->var[i].name, name)) {
            s->var[i].v = v;
            return true;
        }
    }
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 4;
        struct tr_jvar *grown = tr_jalloc_n(c, cap, sizeof *grown);
        if (!grown)
            return false;
        if (s->n)
            memcpy(grown, s->var, s->n * sizeof *grown);
        s->var = grown;
        s->cap = cap;
    }
    s->var[s->n++] = (struct tr_jvar){name, v};
    return true;
}

struct tr_jv *tr_jscope_get(const struct tr_jscope *s, struct tr_jstr name)
{
    for (; s; s = s->parent)
        for (size_t i = 0; i < s->n; i++)
            if (tr_jstr_eq(s->var[i].name, name))
                return s->var[i].v;
    return NULL;
}

static struct tr_jv *eval_name(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jctx *c = e->c;
    struct tr_jv *v = tr_jscope_get(e->scope, n->str);
    if (v)
        return v;
    v = tr_jdict_get_str(c, &c->vars->d, n->str.p, n->str.len);
    if (v || c->err)
        return v;
    const struct tr_jbuiltin *row = tr_jbuiltin_find(tr_jglobals, n->str);
    if (!row)
        return tr_jnew_missing(c, NULL, tr_jnew_str(c, n->str));
    if (!row->fn)
        return tr_jfail(c, TR_JERR_UNSUPPORTED, "the global '%s' is not supported", row->name);
    v = tr_jnew(c, TR_JV_FUNC);
    if (v)
        v->func.row = row;
    return v;
}

static struct tr_jv *eval_items(struct tr_jev *e, const struct tr_jn *n, enum tr_jtype type)
{
    struct tr_jv *out = tr_jnew_list(e->c, type, 0);
    if (!out)
        return NULL;
    for (const struct tr_jn *i = n->a; i; i = i->next)
        if (!tr_jlist_add(e->c, &out->l, tr_jev_expr(e, i)))
            return NULL;
    return out;
}

static struct tr_jv *eval_dict(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jv *out = tr_jnew(e->c, TR_JV_DICT);
    if (!out)
        return NULL;
    for (const struct tr_jn *i = n->a; i; i = i->next) {
        struct tr_jv *k = tr_jev_expr(e, i->a);
        struct tr_jv *v = k ? tr_jev_expr(e, i->b) : NULL;
        if (!tr_jdict_set(e->c, &out->d, k, v))
            return NULL;
    }
    return out;
}

static struct tr_jv *eval_cond(struct tr_jev *e, const struct tr_jn *n)
{
    const struct tr_jv *test = tr_jev_expr(e, n->a);
    if (!test)
        return NULL;
    if (tr_jtruth(test))
        return tr_jev_expr(e, n->b);
    if (n->c)
        return tr_jev_expr(e, n->c);
    return tr_jnew_undef(e->c, "the inline if-expression evaluated to false and no else section "
                               "was defined");
}

static struct tr_jv *eval_logic(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jv *a = tr_jev_expr(e, n->a);
    if (!a || tr_jtruth(a) == (n->kind == TR_JN_OR))
        return a;
    return tr_jev_expr(e, n->b);
}

static int compare(struct tr_jctx *c, int op, struct tr_jv *a, struct tr_jv *b)
{
    int r;
    switch (op) {
    case TR_JT_EQ:
        return tr_jequal(c, a, b);
    case TR_JT_NE:
        r = tr_jequal(c, a, b);
        return r < 0 ? r : !r;
    case '<':
        return tr_jless(c, "<", a, b);
    case '>':
        return tr_jless(c, ">", a, b);
    case TR_JT_LE:
        return tr_jless(c, "<=", a, b);
    case TR_JT_GE:
        return tr_jless(c, ">=", a, b);
    case TR_JN_IN:
        return tr_jcontains(c, b, a);
    default:
        r = tr_jcontains(c, b, a);
        return r < 0 ? r : !r;
    }
}

/* a < b < c: each operand is evaluated once, and only as far as needed. */
static struct tr_jv *eval_compare(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jv *left = tr_jev_expr(e, n->a);
    int r = 1;
    for (const struct tr_jn *i = n->b; i && left && r == 1; i = i->next) {
        struct tr_jv *right = tr_jev_expr(e, i->a);
        if (!right)
            return NULL;
        r = compare(e->c, i->op, left, right);
        left = right;
    }
    return !left || r < 0 ? NULL : tr_jbool(e->c, r);
}

static struct tr_jv *eval_concat(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jbuf b;
    tr_jbuf_init(&b, e->c);
    for (const struct tr_jn *i = n->a; i; i = i->next) {
        const struct tr_jv *v = tr_jev_expr(e, i);
        if (!v)
            return NULL;
        tr_jbuf_add_value(&b, v);
    }
    return tr_jbuf_value(&b);
}

static struct tr_jv *eval_item(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jv *part[3] = {0};
    struct tr_jv *o = tr_jev_expr(e, n->a);
    if (!o)
        return NULL;
    if (n->b->kind != TR_JN_SLICE) {
        struct tr_jv *key = tr_jev_expr(e, n->b);
        return key ? tr_jgetitem(e->c, o, key) : NULL;
    }
    const struct tr_jn *src[3] = {n->b->a, n->b->b, n->b->c};
    for (int i = 0; i < 3; i++) {
        if (!src[i])
            continue;
        part[i] = tr_jev_expr(e, src[i]);
        if (!part[i])
            return NULL;
    }
    return tr_jslice(e->c, o, part);
}

static bool add_kw(struct tr_jctx *c, struct tr_jargs *a, struct tr_jstr name, struct tr_jv *v)
{
    for (size_t i = 0; i < a->n_kw; i++) {
        if (tr_jstr_eq(a->kw[i], name)) {
            tr_jfail(c, TR_JERR_RUNTIME, "a keyword argument is given twice");
            return false;
        }
    }
    a->kw[a->n_kw] = name;
    a->kwv[a->n_kw++] = v;
    return true;
}

static bool room_kw(struct tr_jctx *c, struct tr_jargs *a, size_t more)
{
    struct tr_jstr *kw = tr_jalloc_n(c, a->n_kw + more, sizeof *kw);
    struct tr_jv **kwv = tr_jalloc_n(c, a->n_kw + more, sizeof(void *));
    if (!kw || !kwv)
        return false;
    if (a->n_kw) {
        memcpy(kw, a->kw, a->n_kw * sizeof *kw);
        memcpy(kwv, a->kwv, a->n_kw * sizeof(void *));
    }
    a->kw = kw;
    a->kwv = kwv;
    return true;
}

static bool spread_dict(struct tr_jctx *c, struct tr_jargs *a, const struct tr_jv *d, size_t more)
{
    if (d->type != TR_JV_DICT) {
        tr_jfail(c, TR_JERR_RUNTIME, "argument after ** must be a mapping, not %s",
                 tr_jtype_name(d));
        return false;
    }
    if (!tr_jstep(c, d->d.n * (d->d.n + 1)) || !room_kw(c, a, d->d.n + more))
        return false;
    for (size_t i = 0; i < d->d.n; i++) {
        if (d->d.k[i]->type != TR_JV_STR) {
            tr_jfail(c, TR_JERR_RUNTIME, "keywords must be strings");
            return false;
        }
        if (!add_kw(c, a, d->d.k[i]->s, d->d.v[i]))
            return false;
    }
    return true;
}

/* Evaluates the ARG nodes from `n` on; leaves room for `more_kw` further keywords. */
bool tr_jev_args(struct tr_jev *e, const struct tr_jn *n, struct tr_jargs *a, size_t more_kw)
{
    struct tr_jlist pos = {0};
    struct tr_jlist star;
    size_t n_kw = more_kw;
    *a = (struct tr_jargs){0};
    for (const struct tr_jn *i = n; i; i = i->next)
        n_kw += i->op == TR_JN_KW;
    if (n_kw && !room_kw(e->c, a, n_kw))
        return false;
    for (; n; n = n->next) {
        struct tr_jv *v = tr_jev_expr(e, n->a);
        bool good = v != NULL;
        if (good && n->op == TR_JN_POS)
            good = tr_jlist_add(e->c, &pos, v);
        else if (good && n->op == TR_JN_KW)
            good = add_kw(e->c, a, n->str, v);
        else if (good && n->op == TR_JN_STARSTAR)
            good = spread_dict(e->c, a, v, more_kw);
        else if (good && (good = tr_jiterate(e->c, v, &star)))
            for (size_t i = 0; good && i < star.n; i++)
                good = tr_jlist_add(e->c, &pos, star.v[i]);
        if (!good)
            return false;
    }
    a->pos = pos.v;
    a->n = pos.n;
    return true;
}

/* Filters that mean the same on Markup and keep or drop its mark as markupsafe does. */
static bool takes_markup(const struct tr_jbuiltin *row)
{
    static const char *const names[] = {"safe",  "escape",  "e", "tojson", "string", "length",
                                        "count", "default", "d", "trim",   "upper",  "lower"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(row->name, names[i]))
            return true;
    return false;
}

/* The function of a filter or test node.  It can be missing inside an if statement only. */
static const struct tr_jbuiltin *row_of(struct tr_jev *e, const struct tr_jn *n, const char *what)
{
    if (n->row && n->row->fn)
        return n->row;
    int len = n->str.len > 100 ? 100 : (int)n->str.len;
    if (n->row)
        return tr_jfail(e->c, TR_JERR_UNSUPPORTED, "the %s '%.*s' is not supported", what, len,
                        n->str.p);
    return tr_jfail(e->c, TR_JERR_RUNTIME, "No %s named '%.*s' found.", what, len, n->str.p);
}

struct tr_jv *tr_jev_filter(struct tr_jev *e, const struct tr_jn *n, struct tr_jv *block)
{
    struct tr_jv *saved = e->block;
    e->block = block;
    struct tr_jv *v = tr_jev_expr(e, n);
    e->block = saved;
    return v;
}

static struct tr_jv *eval_filter(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jargs a;
    struct tr_jv *v = n->a ? tr_jev_expr(e, n->a) : e->block;
    const struct tr_jbuiltin *row = v ? row_of(e, n, "filter") : NULL;
    if (!row || !tr_jev_args(e, n->b, &a, 0))
        return NULL;
    if (v->type == TR_JV_STR && v->s.markup && !takes_markup(row))
        return tr_jfail(e->c, TR_JERR_UNSUPPORTED, "the filter '%s' on Markup is not supported",
                        row->name);
    return tr_jcall_row(e->c, row, v, &a);
}

static struct tr_jv *eval_test(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jargs a;
    struct tr_jv *v = tr_jev_expr(e, n->a);
    const struct tr_jbuiltin *row = v ? row_of(e, n, "test") : NULL;
    if (!row || !tr_jev_args(e, n->b, &a, 0))
        return NULL;
    const struct tr_jv *r = tr_jcall_row(e->c, row, v, &a);
    return r ? tr_jbool(e->c, tr_jtruth(r) != n->flag) : NULL;
}

struct tr_jv *tr_jcall(struct tr_jctx *c, struct tr_jv *f, const struct tr_jargs *a)
{
    switch (f->type) {
    case TR_JV_FUNC:
        if (f->func.self && f->func.self->type == TR_JV_STR && f->func.self->s.markup)
            return tr_jfail(c, TR_JERR_UNSUPPORTED, "the method '%s' of Markup is not supported",
                            f->func.row->name);
        return tr_jcall_row(c, f->func.row, f->func.self, a);
    case TR_JV_MACRO:
        return tr_jexec_macro(c, f, a);
    case TR_JV_LOOP:
        return tr_jexec_loop(c, f, a);
    case TR_JV_UNDEF:
        return tr_jfail_undef(c, f);
    default:
        return tr_jfail(c, TR_JERR_RUNTIME, "'%s' object is not callable", tr_jtype_name(f));
    }
}

static struct tr_jv *eval_call(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jargs a;
    struct tr_jv *f = tr_jev_expr(e, n->a);
    if (!f || !tr_jev_args(e, n->b, &a, 0))
        return NULL;
    return tr_jcall(e->c, f, &a);
}

static struct tr_jv *eval_not(struct tr_jev *e, const struct tr_jn *n)
{
    const struct tr_jv *a = tr_jev_expr(e, n->a);
    return a ? tr_jbool(e->c, !tr_jtruth(a)) : NULL;
}

static struct tr_jv *eval_bin(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jv *a = tr_jev_expr(e, n->a);
    struct tr_jv *b = a ? tr_jev_expr(e, n->b) : NULL;
    return b ? tr_jarith(e->c, n->op, a, b) : NULL;
}

static struct tr_jv *eval(struct tr_jev *e, const struct tr_jn *n)
{
    struct tr_jv *v;
    switch (n->kind) {
    case TR_JN_CONST:
        return n->val;
    case TR_JN_NAME:
        return eval_name(e, n);
    case TR_JN_LIST:
        return eval_items(e, n, TR_JV_LIST);
    case TR_JN_TUPLE:
        return eval_items(e, n, TR_JV_TUPLE);
    case TR_JN_DICT:
        return eval_dict(e, n);
    case TR_JN_COND:
        return eval_cond(e, n);
    case TR_JN_AND:
    case TR_JN_OR:
        return eval_logic(e, n);
    case TR_JN_NOT:
        return eval_not(e, n);
    case TR_JN_SIGN:
        v = tr_jev_expr(e, n->a);
        return v ? tr_jnegate(e->c, v, n->op == '-') : NULL;
    case TR_JN_BIN:
        return eval_bin(e, n);
    case TR_JN_CONCAT:
        return eval_concat(e, n);
    case TR_JN_COMPARE:
        return eval_compare(e, n);
    case TR_JN_FILTER:
        return eval_filter(e, n);
    case TR_JN_TEST:
        return eval_test(e, n);
    case TR_JN_ATTR:
        v = tr_jev_expr(e, n->a);
        return v ? tr_jgetattr(e->c, v, n->str) : NULL;
    case TR_JN_ITEM:
        return eval_item(e, n);
    case TR_JN_CALL:
        return eval_call(e, n);
    default:
        return tr_jfail(e->c, TR_JERR_UNSUPPORTED, "this expression is not supported");
    }
}

struct tr_jv *tr_jev_expr(struct tr_jev *e, const struct tr_jn *n)
{
    if (e->c->err || !tr_jstep(e->c, 1) || !tr_jenter(e->c))
        return NULL;
    e->c->line = n->line;
    struct tr_jv *v = eval(e, n);
    tr_jleave(e->c);
    return e->c->err ? NULL : v;
}
