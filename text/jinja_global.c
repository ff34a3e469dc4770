/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_global.c - the global functions. */
#include "text/jinja_priv.h"

#define FN(name)                                                                                   \
    static struct tr_jv *name(struct tr_jctx *c, struct tr_jv *self, const struct tr_jargs *a)

#define RANGE_MAX 100000 /* as the sandbox limits it */

FN(g_range)
{
    int64_t start = 0;
    int64_t stop = 0;
    int64_t step = 1;
    (void)self;
    if (!tr_jwant_int(c, a->pos[0], a->pos[1] ? &start : &stop) ||
        !tr_jwant_int(c, a->pos[1], &stop) || !tr_jwant_int(c, a->pos[2], &step))
        return NULL;
    if (!step)
        return tr_jfail(c, TR_JERR_RUNTIME, "range() arg 3 must not be zero");
    __int128 span = step > 0 ? (__int128)stop - start : (__int128)start - stop;
    __int128 stride = step > 0 ? (__int128)step : -(__int128)step;
    __int128 n = span > 0 ? (span - 1) / stride + 1 : 0;
    if (n > RANGE_MAX)
        return tr_jfail(c, TR_JERR_RUNTIME,
                        "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                        RANGE_MAX);
    struct tr_jv *v = tr_jnew(c, TR_JV_RANGE);
    if (v) {
        v->range.start = start;
        v->range.stop = stop;
        v->range.step = step;
        v->range.n = (int64_t)n;
    }
    return v;
}

static bool set_kwargs(struct tr_jctx *c, struct tr_jdict *d, const struct tr_jargs *a)
{
    for (size_t i = 0; i < a->n_kw; i++)
        if (!tr_jdict_set(c, d, tr_jnew_str(c, a->kw[i]), a->kwv[i]))
            return false;
    return true;
}

/* dict(), dict(mapping), dict(pairs), each with keywords. */
static bool fill_dict(struct tr_jctx *c, struct tr_jv *out, const struct tr_jargs *a)
{
    struct tr_jlist l = {0};
    if (a->n > 1) {
        tr_jfail(c, TR_JERR_RUNTIME, "dict expected at most 1 argument, got %zu", a->n);
        return false;
    }
    struct tr_jv *from = a->n ? a->pos[0] : NULL;
    if (from && from->type == TR_JV_DICT) {
        out->user = from->user;
        for (size_t i = 0; i < from->d.n; i++)
            if (!tr_jstep(c, 1) || !tr_jdict_set(c, &out->d, from->d.k[i], from->d.v[i]))
                return false;
    } else if (from && !tr_jiterate(c, from, &l)) {
        return false;
    }
    for (size_t i = 0; i < l.n; i++) {
        struct tr_jlist pair;
        if (!tr_jiterate(c, l.v[i], &pair))
            return false;
        if (pair.n != 2) {
            tr_jfail(c, TR_JERR_RUNTIME, "dict: a pair was expected");
            return false;
        }
        if (!tr_jdict_set(c, &out->d, pair.v[0], pair.v[1]))
            return false;
    }
    return set_kwargs(c, &out->d, a);
}

FN(g_dict)
{
    struct tr_jv *out = tr_jnew(c, TR_JV_DICT);
    (void)self;
    return out && fill_dict(c, out, a) ? out : NULL;
}

FN(g_namespace)
{
    struct tr_jv *out = tr_jnew(c, TR_JV_NS);
    (void)self;
    if (!out || !fill_dict(c, out, a))
        return NULL;
    for (size_t i = 0; i < out->d.n; i++) {
        const struct tr_jv *k = out->d.k[i];
        if (k->type == TR_JV_STR && k->s.len && k->s.p[0] == '_')
            return tr_jfail(c, TR_JERR_SECURITY,
                            "a namespace cannot store underscore-prefixed attributes");
    }
    return out;
}

FN(g_raise)
{
    (void)self;
    struct tr_jv *s = tr_jto_str(c, a->pos[0]);
    if (!s)
        return NULL;
    int n = s->s.len > sizeof c->msg ? (int)sizeof c->msg : (int)s->s.len;
    return tr_jfail(c, TR_JERR_RAISED, "%.*s", n, s->s.p);
}

FN(g_strftime)
{
    struct tr_jstr fmt = {.p = ""};
    (void)self;
    return tr_jwant_str(c, a->pos[0], &fmt) ? tr_jstrftime(c, fmt) : NULL;
}

const struct tr_jbuiltin tr_jglobals[] = {
    {"range", g_range, "start stop step", 1},
    {"dict", g_dict, "*", 0},
    {"namespace", g_namespace, "*", 0},
    {"raise_exception", g_raise, "message", 1},
    {"strftime_now", g_strftime, "format", 1},
    {"lipsum", NULL, "", 0},
    {"cycler", NULL, "", 0},
    {"joiner", NULL, "", 0},
    {0},
};
