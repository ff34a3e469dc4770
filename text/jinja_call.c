/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_call.c - calling built-in functions: arguments are put where the table says, and read. */
#include "text/jinja_priv.h"

#include <string.h>

#define PARAMS_MAX 8

const struct tr_jbuiltin *tr_jbuiltin_find(const struct tr_jbuiltin *table, struct tr_jstr name)
{
    for (; table->name; table++)
        if (tr_jstr_is(name, table->name))
            return table;
    return NULL;
}

const struct tr_jbuiltin *tr_jfilter_find(struct tr_jstr name)
{
    static const struct tr_jbuiltin *const TABLES[] = {tr_jfilters, tr_jfilters_num,
                                                       tr_jfilters_seq, tr_jfilters_key, NULL};
    const struct tr_jbuiltin *row = NULL;
    for (size_t i = 0; !row && TABLES[i]; i++)
        row = tr_jbuiltin_find(TABLES[i], name);
    return row;
}

const struct tr_jbuiltin *tr_jtest_find(struct tr_jstr name)
{
    return tr_jbuiltin_find(tr_jtests, name);
}

/* Index of a parameter in a signature, or -1. */
static int param_index(const char *sig, struct tr_jstr name)
{
    for (int i = 0; *sig; i++) {
        size_t n = strcspn(sig, " ");
        if (tr_jstr_eq((struct tr_jstr){.p = sig, .len = n}, name))
            return i;
        sig += n + (sig[n] == ' ');
    }
    return -1;
}

static size_t param_count(const char *sig)
{
    size_t n = *sig != '\0';
    for (; *sig; sig++)
        n += *sig == ' ';
    return n;
}

struct tr_jv *tr_jcall_row(struct tr_jctx *c, const struct tr_jbuiltin *row, struct tr_jv *self,
                           const struct tr_jargs *a)
{
    struct tr_jv *slot[PARAMS_MAX] = {0};
    if (!row->fn)
        return tr_jfail(c, TR_JERR_UNSUPPORTED, "'%s' is not supported", row->name);
    if (row->sig[0] == '*')
        return row->fn(c, self, a);
    size_t n = param_count(row->sig);
    if (a->n > n)
        return tr_jfail(c, TR_JERR_RUNTIME, "%s() takes %zu arguments but %zu were given",
                        row->name, n, a->n);
    for (size_t i = 0; i < a->n; i++)
        slot[i] = a->pos[i];
    for (size_t i = 0; i < a->n_kw; i++) {
        int at = param_index(row->sig, a->kw[i]);
        if (at < 0 || slot[at])
            return tr_jfail(c, TR_JERR_RUNTIME, "%s() got an unexpected keyword argument '%.*s'",
                            row->name, (int)(a->kw[i].len > 60 ? 60 : a->kw[i].len), a->kw[i].p);
        slot[at] = a->kwv[i];
    }
    for (size_t i = 0; i < row->need; i++)
        if (!slot[i])
            return tr_jfail(c, TR_JERR_RUNTIME, "%s() misses an argument", row->name);
    return row->fn(c, self, &(struct tr_jargs){.pos = slot, .n = n});
}

bool tr_jwant_str(struct tr_jctx *c, const struct tr_jv *v, struct tr_jstr *out)
{
    if (v && v->type == TR_JV_STR) {
        *out = v->s;
        return true;
    }
    if (v)
        tr_jfail(c, TR_JERR_RUNTIME, "a str argument was expected, not %s", tr_jtype_name(v));
    return !v;
}

bool tr_jwant_int(struct tr_jctx *c, const struct tr_jv *v, int64_t *out)
{
    if (!v || tr_jas_int(v, out))
        return true;
    tr_jfail(c, TR_JERR_RUNTIME, "'%s' object cannot be interpreted as an integer",
             tr_jtype_name(v));
    return false;
}

bool tr_jgiven(const struct tr_jv *v)
{
    return v && v->type != TR_JV_NONE;
}
