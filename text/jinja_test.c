/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_test.c - the tests behind `is`. */
#include "text/jinja_priv.h"
#include "text/jinja_uni.h"

#include <string.h>

#define TEST(name)                                                                                 \
    static struct tr_jv *name(struct tr_jctx *c, struct tr_jv *v, const struct tr_jargs *a)

TEST(is_boolean)
{
    (void)a;
    return tr_jbool(c, v->type == TR_JV_BOOL);
}

TEST(is_callable)
{
    (void)a;
    return tr_jbool(c, v->type == TR_JV_FUNC || v->type == TR_JV_MACRO || v->type == TR_JV_LOOP ||
                           v->type == TR_JV_UNDEF);
}

TEST(is_defined)
{
    (void)a;
    return tr_jbool(c, v->type != TR_JV_UNDEF);
}

TEST(is_undefined)
{
    (void)a;
    return tr_jbool(c, v->type == TR_JV_UNDEF);
}

static struct tr_jv *remainder_is(struct tr_jctx *c, struct tr_jv *v, struct tr_jv *by,
                                  int64_t want)
{
    struct tr_jv *rest = by ? tr_jarith(c, '%', v, by) : NULL;
    struct tr_jv w = {.type = TR_JV_INT, .i = want};
    return rest ? tr_jbool(c, tr_jequal(c, rest, &w) == 1) : NULL;
}

TEST(is_divisibleby)
{
    return remainder_is(c, v, a->pos[0], 0);
}

TEST(is_even)
{
    (void)a;
    return remainder_is(c, v, tr_jnew_int(c, 2), 0);
}

TEST(is_odd)
{
    (void)a;
    return remainder_is(c, v, tr_jnew_int(c, 2), 1);
}

static struct tr_jv *answer(struct tr_jctx *c, int r)
{
    return r < 0 ? NULL : tr_jbool(c, r != 0);
}

TEST(is_eq)
{
    return answer(c, tr_jequal(c, v, a->pos[0]));
}

TEST(is_ne)
{
    int r = tr_jequal(c, v, a->pos[0]);
    return answer(c, r < 0 ? r : !r);
}

TEST(is_lt)
{
    return answer(c, tr_jless(c, "<", v, a->pos[0]));
}

TEST(is_le)
{
    return answer(c, tr_jless(c, "<=", v, a->pos[0]));
}

TEST(is_gt)
{
    return answer(c, tr_jless(c, ">", v, a->pos[0]));
}

TEST(is_ge)
{
    return answer(c, tr_jless(c, ">=", v, a->pos[0]));
}

TEST(is_in)
{
    return answer(c, tr_jcontains(c, a->pos[0], v));
}

TEST(is_escaped)
{
    (void)a;
    return tr_jbool(c, v->type == TR_JV_STR && v->s.markup);
}

TEST(is_true)
{
    (void)a;
    return tr_jbool(c, v->type == TR_JV_BOOL && v->b);
}

TEST(is_false)
{
    (void)a;
    return tr_jbool(c, v->type == TR_JV_BOOL && !v->b);
}

TEST(is_float)
{
    (void)a;
    return tr_jbool(c, v->type == TR_JV_FLOAT);
}

TEST(is_integer)
{
    (void)a;
    return tr_jbool(c, v->type == TR_JV_INT || v->type == TR_JV_BIG);
}

TEST(is_number)
{
    (void)a;
    return tr_jbool(c, tr_jis_number(v) || v->type == TR_JV_BIG);
}

TEST(is_none)
{
    (void)a;
    return tr_jbool(c, v->type == TR_JV_NONE);
}

TEST(is_string)
{
    (void)a;
    return tr_jbool(c, v->type == TR_JV_STR);
}

TEST(is_mapping)
{
    (void)a;
    return tr_jbool(c, v->type == TR_JV_DICT);
}

TEST(is_iterable)
{
    (void)a;
    switch (v->type) {
    case TR_JV_UNDEF:
    case TR_JV_STR:
    case TR_JV_LIST:
    case TR_JV_TUPLE:
    case TR_JV_DICT:
    case TR_JV_VIEW:
    case TR_JV_RANGE:
    case TR_JV_GEN:
    case TR_JV_LOOP:
        return tr_jbool(c, true);
    default:
        return tr_jbool(c, false);
    }
}

TEST(is_sequence)
{
    (void)a;
    switch (v->type) {
    case TR_JV_UNDEF: /* it has a length and can be subscripted, in vain */
    case TR_JV_STR:
    case TR_JV_LIST:
    case TR_JV_TUPLE:
    case TR_JV_DICT:
    case TR_JV_RANGE:
        return tr_jbool(c, true);
    default:
        return tr_jbool(c, false);
    }
}

/* all cased letters are of one case, and there is one */
static struct tr_jv *is_case(struct tr_jctx *c, struct tr_jv *v, bool upper)
{
    struct tr_jv *s = tr_jto_str(c, v);
    bool any = false;
    size_t n;
    if (!s || !tr_jstep_bytes(c, s->s.len))
        return NULL;
    for (size_t i = 0; i < s->s.len; i += n) {
        int32_t ch = tr_jchar(s->s, i, &n);
        if (tr_juni_title(ch) || (upper ? tr_juni_lower(ch) : tr_juni_upper(ch)))
            return tr_jbool(c, false);
        any = any || (upper ? tr_juni_upper(ch) : tr_juni_lower(ch));
    }
    return tr_jbool(c, any);
}

TEST(is_lower)
{
    (void)a;
    return is_case(c, v, false);
}

TEST(is_upper)
{
    (void)a;
    return is_case(c, v, true);
}

/* Identity.  Of equal numbers and strings Python itself keeps one object or two, depending on where
 * they come from; only what is certain is answered. */
TEST(is_sameas)
{
    const struct tr_jv *o = a->pos[0];
    if (v == o)
        return tr_jbool(c, true);
    if (v->type != o->type)
        return tr_jbool(c, false);
    if (v->type == TR_JV_BOOL)
        return tr_jbool(c, v->b == o->b);
    if (v->type == TR_JV_INT && (v->i != o->i || (v->i >= -5 && v->i <= 256)))
        return tr_jbool(c, v->i == o->i);
    if (v->type == TR_JV_STR && (!tr_jstr_eq(v->s, o->s) || (!v->s.n_user && !o->s.n_user)))
        return tr_jbool(c, tr_jstr_eq(v->s, o->s));
    if (v->type == TR_JV_LIST || v->type == TR_JV_DICT)
        return tr_jbool(c, false);
    return tr_jfail(c, TR_JERR_UNSUPPORTED, "'sameas' between two %s is not supported",
                    tr_jtype_name(v));
}

TEST(is_filter)
{
    (void)a;
    return tr_jbool(c, v->type == TR_JV_STR && tr_jfilter_find(v->s));
}

TEST(is_test)
{
    (void)a;
    return tr_jbool(c, v->type == TR_JV_STR && tr_jtest_find(v->s));
}

const struct tr_jbuiltin tr_jtests[] = {
    {"boolean", is_boolean, "", 0},
    {"callable", is_callable, "", 0},
    {"defined", is_defined, "", 0},
    {"undefined", is_undefined, "", 0},
    {"divisibleby", is_divisibleby, "num", 1},
    {"even", is_even, "", 0},
    {"odd", is_odd, "", 0},
    {"eq", is_eq, "b", 1},
    {"equalto", is_eq, "b", 1},
    {"==", is_eq, "b", 1},
    {"ne", is_ne, "b", 1},
    {"!=", is_ne, "b", 1},
    {"lt", is_lt, "b", 1},
    {"lessthan", is_lt, "b", 1},
    {"<", is_lt, "b", 1},
    {"le", is_le, "b", 1},
    {"<=", is_le, "b", 1},
    {"gt", is_gt, "b", 1},
    {"greaterthan", is_gt, "b", 1},
    {">", is_gt, "b", 1},
    {"ge", is_ge, "b", 1},
    {">=", is_ge, "b", 1},
    {"in", is_in, "seq", 1},
    {"escaped", is_escaped, "", 0},
    {"true", is_true, "", 0},
    {"false", is_false, "", 0},
    {"float", is_float, "", 0},
    {"integer", is_integer, "", 0},
    {"number", is_number, "", 0},
    {"none", is_none, "", 0},
    {"string", is_string, "", 0},
    {"mapping", is_mapping, "", 0},
    {"iterable", is_iterable, "", 0},
    {"sequence", is_sequence, "", 0},
    {"lower", is_lower, "", 0},
    {"upper", is_upper, "", 0},
    {"sameas", is_sameas, "other", 1},
    {"filter", is_filter, "", 0},
    {"test", is_test, "", 0},
    {0},
};
