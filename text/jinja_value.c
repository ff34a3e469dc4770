/* SPDX-License-Identifier: Apache-2.0 */
#include "text/jinja_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct tr_jctx *tr_jctx_open(const struct tr_jlimits *limits)
{
    struct tr_jctx *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    if (limits)
        c->lim = *limits;
    if (!c->lim.memory)
        c->lim.memory = (size_t)256 << 20;
    if (!c->lim.output)
        c->lim.output = (size_t)32 << 20;
    if (!c->lim.steps)
        c->lim.steps = 20 * 1000 * 1000;
    if (!c->lim.depth)
        c->lim.depth = 500;
    tr_arena_init(&c->arena, c->lim.memory);
    /* A failure leaves 0, which costs only the protection against colliding keys. */
    if (getrandom(&c->seed, sizeof c->seed, GRND_NONBLOCK) < 0)
        c->seed = 0;
    c->none.type = TR_JV_NONE;
    c->yes = (struct tr_jv){.type = TR_JV_BOOL, .b = true};
    c->no = (struct tr_jv){.type = TR_JV_BOOL, .b = false};
    return c;
}

void tr_jctx_close(struct tr_jctx *ctx)
{
    if (!ctx)
        return;
    tr_arena_fini(&ctx->arena);
    free(ctx);
}

bool tr_jctx_no_memory(const struct tr_jctx *ctx)
{
    return ctx->arena.no_memory;
}

void tr_jctx_set_now(struct tr_jctx *ctx, const struct tm *now)
{
    ctx->now = *now;
    ctx->now_set = true;
}

void *tr_jctx_alloc(struct tr_jctx *ctx, size_t size)
{
    return tr_jalloc(ctx, size);
}

void *tr_jfail(struct tr_jctx *c, enum tr_jerr e, const char *fmt, ...)
{
    if (c->err)
        return NULL;
    c->err = e;
    va_list ap;
    va_start(ap, fmt);
    /* The analyzer of clang 14 does not see va_start. */
    tr_sentence(c->msg, sizeof c->msg, fmt, ap); // NOLINT(clang-analyzer-valist.Uninitialized)
    va_end(ap);
    return NULL;
}

bool tr_jstep(struct tr_jctx *c, uint64_t n)
{
    if (n > c->lim.steps - c->steps) {
        tr_jfail(c, TR_JERR_LIMIT, "the template takes too many steps");
        return false;
    }
    c->steps += n;
    return true;
}

bool tr_jstep_bytes(struct tr_jctx *c, size_t n)
{
    return tr_jstep(c, n / 16 + 1);
}

bool tr_jenter(struct tr_jctx *c)
{
    if (c->depth >= c->lim.depth) {
        tr_jfail(c, TR_JERR_LIMIT, "the template or its data are nested too deeply");
        return false;
    }
    c->depth++;
    return true;
}

void tr_jleave(struct tr_jctx *c)
{
    c->depth--;
}

void *tr_jalloc(struct tr_jctx *c, size_t size)
{
    void *p = tr_arena_alloc(&c->arena, size);
    return p ? p : tr_jfail(c, TR_JERR_LIMIT, "the template takes too much memory");
}

void *tr_jalloc_n(struct tr_jctx *c, size_t n, size_t size)
{
    size_t all;
    if (__builtin_mul_overflow(n, size, &all))
        return tr_jfail(c, TR_JERR_LIMIT, "the template takes too much memory");
    return tr_jalloc(c, all);
}

struct tr_jv *tr_jnew(struct tr_jctx *c, enum tr_jtype type)
{
    struct tr_jv *v = tr_jalloc(c, sizeof *v);
    if (v)
        v->type = type;
    return v;
}

struct tr_jv *tr_jnew_str(struct tr_jctx *c, struct tr_jstr s)
{
    struct tr_jv *v = tr_jnew(c, TR_JV_STR);
    if (v)
        v->s = s;
    return v;
}

struct tr_jv *tr_jnew_cstr(struct tr_jctx *c, const char *s)
{
    return tr_jnew_str(c, tr_jstr_of(s));
}

struct tr_jv *tr_jnew_int(struct tr_jctx *c, int64_t i)
{
    struct tr_jv *v = tr_jnew(c, TR_JV_INT);
    if (v)
        v->i = i;
    return v;
}

struct tr_jv *tr_jnew_float(struct tr_jctx *c, double f)
{
    struct tr_jv *v = tr_jnew(c, TR_JV_FLOAT);
    if (v)
        v->f = f;
    return v;
}

struct tr_jv *tr_jnew_list(struct tr_jctx *c, enum tr_jtype type, size_t cap)
{
    struct tr_jv *v = tr_jnew(c, type);
    if (!v || !cap)
        return v;
    v->l.v = tr_jalloc_n(c, cap, sizeof(void *));
    v->l.cap = cap;
    return v->l.v ? v : NULL;
}

struct tr_jv *tr_jnew_gen(struct tr_jctx *c, const char *type_name, struct tr_jlist l)
{
    struct tr_jv *v = tr_jnew(c, TR_JV_GEN);
    if (v) {
        v->gen.l = l;
        v->gen.type_name = type_name;
    }
    return v;
}

struct tr_jv *tr_jnew_undef(struct tr_jctx *c, const char *hint)
{
    struct tr_jv *v = tr_jnew(c, TR_JV_UNDEF);
    if (v)
        v->undef.hint = hint;
    return v;
}

struct tr_jv *tr_jnew_missing(struct tr_jctx *c, const struct tr_jv *owner, struct tr_jv *key)
{
    struct tr_jv *v = tr_jnew(c, TR_JV_UNDEF);
    if (v) {
        v->undef.owner = owner ? tr_jtype_name(owner) : NULL;
        v->undef.key = key;
    }
    return v;
}

struct tr_jv *tr_jbool(struct tr_jctx *c, bool v)
{
    return v ? &c->yes : &c->no;
}

/* Digits to a value: 64 bits if they fit, else the digits themselves. */
struct tr_jv *tr_jint_text(struct tr_jctx *c, struct tr_jstr s)
{
    bool minus = s.len && s.p[0] == '-';
    size_t i = minus;
    while (i + 1 < s.len && s.p[i] == '0')
        i++;
    int64_t n = 0;
    for (size_t k = i; k < s.len; k++) {
        int digit = s.p[k] - '0';
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_sub_overflow(n, digit, &n))
            goto big;
    }
    if (minus)
        return tr_jnew_int(c, n);
    if (n == INT64_MIN)
        goto big;
    return tr_jnew_int(c, -n);
big:;
    struct tr_jv *v = tr_jnew(c, TR_JV_BIG);
    if (v)
        v->s = s;
    return v;
}

bool tr_jlist_add(struct tr_jctx *c, struct tr_jlist *l, struct tr_jv *v)
{
    if (!v)
        return false;
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 4;
        struct tr_jv **grown = tr_jalloc_n(c, cap, sizeof(void *));
        if (!grown)
            return false;
        if (l->n)
            memcpy(grown, l->v, l->n * sizeof(void *));
        l->v = grown;
        l->cap = cap;
    }
    l->v[l->n++] = v;
    return true;
}

const char *tr_jtype_name(const struct tr_jv *v)
{
    switch (v->type) {
    case TR_JV_UNDEF:
        return "Undefined";
    case TR_JV_NONE:
        return "NoneType";
    case TR_JV_BOOL:
        return "bool";
    case TR_JV_INT:
    case TR_JV_BIG:
        return "int";
    case TR_JV_FLOAT:
        return "float";
    case TR_JV_STR:
        return v->s.markup ? "Markup" : "str";
    case TR_JV_LIST:
        return "list";
    case TR_JV_TUPLE:
        return "tuple";
    case TR_JV_DICT:
        return "dict";
    case TR_JV_VIEW:
        return v->view.kind == TR_JVIEW_KEYS     ? "dict_keys"
               : v->view.kind == TR_JVIEW_VALUES ? "dict_values"
                                                 : "dict_items";
    case TR_JV_RANGE:
        return "range";
    case TR_JV_GEN:
        return v->gen.type_name;
    case TR_JV_FUNC:
        return "function";
    case TR_JV_MACRO:
        return "Macro";
    case TR_JV_NS:
        return "Namespace";
    case TR_JV_LOOP:
        return "LoopContext";
    }
    return "object";
}

void *tr_jfail_undef(struct tr_jctx *c, const struct tr_jv *u)
{
    const struct tr_jv *key = u->undef.key;
    if (u->undef.hint)
        return tr_jfail(c, TR_JERR_UNDEFINED, "%s", u->undef.hint);
    if (!key)
        return tr_jfail(c, TR_JERR_UNDEFINED, "a value is undefined");
    bool named = key->type == TR_JV_STR;
    struct tr_jbuf b;
    tr_jbuf_init(&b, c);
    tr_jbuf_add_repr(&b, key);
    struct tr_jstr k = tr_jbuf_str(&b);
    int n = k.len > 200 ? 200 : (int)k.len;
    if (c->err)
        return NULL;
    if (u->undef.unsafe)
        return tr_jfail(c, TR_JERR_SECURITY, "access to attribute %.*s of '%s' object is unsafe.",
                        n, k.p, u->undef.owner);
    if (!u->undef.owner)
        return tr_jfail(c, TR_JERR_UNDEFINED, "%.*s is undefined", n, k.p);
    if (!named)
        return tr_jfail(c, TR_JERR_UNDEFINED, "%s object has no element %.*s", u->undef.owner, n,
                        k.p);
    return tr_jfail(c, TR_JERR_UNDEFINED, "'%s object' has no attribute %.*s", u->undef.owner, n,
                    k.p);
}

/* ---- the caller's constructors ---- */

struct tr_jv *tr_jv_str(struct tr_jctx *ctx, const char *p, size_t len, bool user)
{
    struct tr_jstr s = {.p = p, .len = len};
    if (user && len) {
        struct tr_span *span = tr_jalloc(ctx, sizeof *span);
        if (!span)
            return NULL;
        *span = (struct tr_span){0, len};
        s.user = span;
        s.n_user = 1;
    }
    return tr_jnew_str(ctx, s);
}

static struct tr_jv *as_user(struct tr_jv *v)
{
    if (v)
        v->user = true;
    return v;
}

struct tr_jv *tr_jv_int(struct tr_jctx *ctx, int64_t v)
{
    return as_user(tr_jnew_int(ctx, v));
}

struct tr_jv *tr_jv_float(struct tr_jctx *ctx, double v)
{
    return as_user(tr_jnew_float(ctx, v));
}

struct tr_jv *tr_jv_bool(struct tr_jctx *ctx, bool v)
{
    return tr_jbool(ctx, v);
}

struct tr_jv *tr_jv_none(struct tr_jctx *ctx)
{
    return &ctx->none;
}

struct tr_jv *tr_jv_int_text(struct tr_jctx *ctx, const char *p, size_t len)
{
    size_t i = len && p[0] == '-';
    if (i == len || (p[i] == '0' && len > i + 1))
        return NULL;
    for (size_t k = i; k < len; k++)
        if (p[k] < '0' || p[k] > '9')
            return NULL;
    return as_user(tr_jint_text(ctx, (struct tr_jstr){.p = p, .len = len}));
}

struct tr_jv *tr_jv_list(struct tr_jctx *ctx)
{
    return as_user(tr_jnew(ctx, TR_JV_LIST));
}

int tr_jv_append(struct tr_jctx *ctx, struct tr_jv *list, struct tr_jv *item)
{
    if (!list || !item || list->type != TR_JV_LIST)
        return -ENOMEM;
    return tr_jlist_add(ctx, &list->l, item) ? 0 : -ENOMEM;
}

struct tr_jv *tr_jv_dict(struct tr_jctx *ctx)
{
    return as_user(tr_jnew(ctx, TR_JV_DICT));
}

int tr_jv_set(struct tr_jctx *ctx, struct tr_jv *dict, const char *key, size_t key_len,
              bool key_user, struct tr_jv *value)
{
    struct tr_jv *k = tr_jv_str(ctx, key, key_len, key_user);
    if (!dict || !k || !value || dict->type != TR_JV_DICT)
        return -ENOMEM;
    return tr_jdict_set(ctx, &dict->d, k, value) ? 0 : -ENOMEM;
}
