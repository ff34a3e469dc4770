/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_suffix.c - parses what stands behind a value: attributes, subscripts, calls; filters and
 * tests. */
#include "text/jinja_parser.h"

/* One part of a subscript: an expression, or a slice. */
static struct tr_jn *parse_subscribed(struct tr_jparser *p)
{
    struct tr_jn *first = NULL;
    if (p->t->kind != ':') {
        first = tr_jp_expr(p, true);
        if (!first || p->t->kind != ':')
            return first;
    }
    struct tr_jn *n = tr_jp_node(p, TR_JN_SLICE);
    if (!n)
        return NULL;
    n->a = first;
    p->t++;
    if (p->t->kind != ':' && p->t->kind != ']' && p->t->kind != ',') {
        n->b = tr_jp_expr(p, true);
        if (!n->b)
            return NULL;
    }
    if (tr_jp_skip(p, ':') && p->t->kind != ']' && p->t->kind != ',') {
        n->c = tr_jp_expr(p, true);
        if (!n->c)
            return NULL;
    }
    return n;
}

static struct tr_jn *parse_subscript(struct tr_jparser *p, struct tr_jn *of)
{
    struct tr_jn_list items;
    struct tr_jn *n;
    if (tr_jp_skip(p, '.')) {
        if (p->t->kind == TR_JT_NAME) {
            n = tr_jp_node2(p, TR_JN_ATTR, of, of);
            if (n)
                n->str = p->t->s;
            p->t++;
            return n;
        }
        if (p->t->kind != TR_JT_INT)
            return tr_jp_fail(p, "a name or a number was expected after '.'");
        return tr_jp_node2(p, TR_JN_ITEM, of, tr_jp_const(p, p->t++->num));
    }
    p->t++;
    tr_jp_list_init(&items);
    while (p->t->kind != ']') {
        if (items.first && !tr_jp_expect(p, ',', "','"))
            return NULL;
        if (!tr_jp_list_add(&items, parse_subscribed(p)))
            return NULL;
    }
    if (!items.first)
        return tr_jp_fail(p, "a subscript was expected");
    p->t++;
    if (!items.first->next)
        return tr_jp_node2(p, TR_JN_ITEM, of, items.first);
    n = tr_jp_node(p, TR_JN_TUPLE);
    if (n)
        n->a = items.first;
    for (const struct tr_jn *i = items.first; i; i = i->next)
        if (i->kind == TR_JN_SLICE)
            return tr_jp_fail(p, "a slice inside a tuple is not supported");
    return tr_jp_node2(p, TR_JN_ITEM, of, n);
}

static struct tr_jn *parse_arg(struct tr_jparser *p, int *stage)
{
    struct tr_jn *n = tr_jp_node(p, TR_JN_ARG);
    if (!n)
        return NULL;
    n->op = TR_JN_POS;
    if (tr_jp_skip(p, '*')) {
        n->op = TR_JN_STAR;
    } else if (tr_jp_skip(p, TR_JT_POW)) {
        n->op = TR_JN_STARSTAR;
    } else if (p->t->kind == TR_JT_NAME && p->t[1].kind == '=') {
        n->op = TR_JN_KW;
        n->str = p->t->s;
        p->t += 2;
    }
    /* Positional ones first, then keywords and one *x in any order, then one **x. */
    bool fits = n->op == TR_JN_POS  ? *stage == TR_JN_POS
                : n->op == TR_JN_KW ? *stage < TR_JN_STARSTAR
                                    : *stage < n->op;
    if (!fits)
        return tr_jp_fail(p, "invalid syntax for function call expression");
    if (n->op > *stage)
        *stage = n->op;
    n->a = tr_jp_expr(p, true);
    return n->a ? n : NULL;
}

/* At '('; moves behind ')'. */
static bool parse_args(struct tr_jparser *p, struct tr_jn **out)
{
    struct tr_jn_list args;
    int stage = TR_JN_POS;
    tr_jp_list_init(&args);
    p->t++;
    while (p->t->kind != ')') {
        if (args.first && !tr_jp_expect(p, ',', "','"))
            return false;
        if (args.first && p->t->kind == ')')
            break;
        struct tr_jn *arg = parse_arg(p, &stage);
        if (!tr_jp_list_add(&args, arg))
            return false;
        for (const struct tr_jn *i = args.first; i != arg; i = i->next)
            if (arg->op == TR_JN_KW && i->op == TR_JN_KW && tr_jstr_eq(i->str, arg->str))
                return tr_jp_fail(p, "a keyword argument is repeated");
    }
    p->t++;
    *out = args.first;
    return true;
}

static struct tr_jn *parse_call(struct tr_jparser *p, struct tr_jn *f)
{
    struct tr_jn *n = tr_jp_node2(p, TR_JN_CALL, f, f);
    return n && parse_args(p, &n->b) ? n : NULL;
}

struct tr_jn *tr_jp_postfix(struct tr_jparser *p, struct tr_jn *n)
{
    while (n && (p->t->kind == '.' || p->t->kind == '[' || p->t->kind == '('))
        n = p->t->kind == '(' ? parse_call(p, n) : parse_subscript(p, n);
    return n;
}

/* A dotted name, joined. */
static bool parse_dotted(struct tr_jparser *p, struct tr_jstr *out)
{
    if (p->t->kind != TR_JT_NAME)
        return tr_jp_fail(p, "a name was expected");
    *out = p->t++->s;
    if (p->t->kind != '.')
        return true;
    struct tr_jbuf b;
    tr_jbuf_init(&b, p->c);
    tr_jbuf_add_str(&b, *out);
    while (tr_jp_skip(p, '.')) {
        if (p->t->kind != TR_JT_NAME)
            return tr_jp_fail(p, "a name was expected");
        tr_jbuf_puts(&b, ".");
        tr_jbuf_add_str(&b, p->t++->s);
    }
    *out = tr_jbuf_str(&b);
    return true;
}

/* An unknown filter or test is an error at once, except inside an if statement: as in Jinja it may
 * then stand in a branch that is never taken. */
static bool check_row(struct tr_jparser *p, const struct tr_jn *n, const char *what)
{
    if (p->ifs || (n->row && n->row->fn))
        return true;
    if (n->row)
        tr_jfail(p->c, TR_JERR_UNSUPPORTED, "line %u: the %s '%s' is not supported", n->line, what,
                 n->row->name);
    else
        tr_jfail(p->c, TR_JERR_SYNTAX, "line %u: No %s named '%.*s'.", n->line, what,
                 (int)(n->str.len > 100 ? 100 : n->str.len), n->str.p);
    return false;
}

struct tr_jn *tr_jp_filters(struct tr_jparser *p, struct tr_jn *operand)
{
    struct tr_jn *n = operand;
    bool inline_start = !operand;
    while (inline_start || p->t->kind == '|') {
        if (!inline_start)
            p->t++;
        inline_start = false;
        struct tr_jn *filter = tr_jp_node(p, TR_JN_FILTER);
        if (!filter || !parse_dotted(p, &filter->str))
            return NULL;
        filter->a = n;
        filter->row = tr_jfilter_find(filter->str);
        if (!check_row(p, filter, "filter"))
            return NULL;
        if (p->t->kind == '(' && !parse_args(p, &filter->b))
            return NULL;
        n = filter;
    }
    return n;
}

static bool test_has_arg(const struct tr_jparser *p)
{
    switch (p->t->kind) {
    case TR_JT_NAME:
        return !tr_jp_name_is(p, "else") && !tr_jp_name_is(p, "or") && !tr_jp_name_is(p, "and");
    case TR_JT_STRING:
    case TR_JT_INT:
    case TR_JT_FLOAT:
    case '[':
    case '{':
        return true;
    default:
        return false;
    }
}

static struct tr_jn *parse_test(struct tr_jparser *p, struct tr_jn *operand)
{
    struct tr_jn *n = tr_jp_node(p, TR_JN_TEST);
    p->t++;
    if (!n)
        return NULL;
    n->a = operand;
    n->flag = tr_jp_skip_name(p, "not");
    if (!parse_dotted(p, &n->str))
        return NULL;
    n->row = tr_jtest_find(n->str);
    if (!check_row(p, n, "test"))
        return NULL;
    if (p->t->kind == '(')
        return parse_args(p, &n->b) ? n : NULL;
    if (!test_has_arg(p))
        return n;
    if (tr_jp_name_is(p, "is"))
        return tr_jp_fail(p, "You cannot chain multiple tests with is");
    struct tr_jn *arg = tr_jp_node(p, TR_JN_ARG);
    struct tr_jn *value = tr_jp_primary(p);
    value = value ? tr_jp_postfix(p, value) : NULL;
    if (!arg || !value)
        return NULL;
    arg->op = TR_JN_POS;
    arg->a = value;
    n->b = arg;
    return n;
}

struct tr_jn *tr_jp_suffixes(struct tr_jparser *p, struct tr_jn *n)
{
    while (n) {
        if (p->t->kind == '|')
            n = tr_jp_filters(p, n);
        else if (tr_jp_name_is(p, "is"))
            n = parse_test(p, n);
        else if (p->t->kind == '(')
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}
