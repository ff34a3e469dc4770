/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_expr.c - parses expressions, with Jinja's precedences: from loose to tight
 *   x if y else z | or | and | not | comparisons | + - | ~ | * / // % | ** | unary | postfix, filters
 * A sign binds tighter than ** and looser than nothing: filters apply to the signed value. */
#include "text/jinja_parser.h"

#include <string.h>

static struct tr_jn *parse_or(struct tr_jparser *p);
static struct tr_jn *parse_not(struct tr_jparser *p);
static struct tr_jn *parse_sum(struct tr_jparser *p);
static struct tr_jn *parse_unary(struct tr_jparser *p, bool filters);
static struct tr_jn *parse_postfix(struct tr_jparser *p, struct tr_jn *n);
static struct tr_jn *parse_suffixes(struct tr_jparser *p, struct tr_jn *n);
static bool parse_args(struct tr_jparser *p, struct tr_jn **out);

static struct tr_jn *node2(struct tr_jparser *p, enum tr_jn_kind kind, struct tr_jn *a,
                           struct tr_jn *b)
{
    struct tr_jn *n = a && b ? tr_jp_node(p, kind) : NULL;
    if (n) {
        n->a = a;
        n->b = b;
    }
    return n;
}

static struct tr_jn *parse_cond(struct tr_jparser *p)
{
    struct tr_jn *n = parse_or(p);
    while (n && tr_jp_skip_name(p, "if")) {
        struct tr_jn *test = parse_or(p);
        struct tr_jn *cond = node2(p, TR_JN_COND, test, n);
        if (!cond)
            return NULL;
        if (tr_jp_skip_name(p, "else")) {
            cond->c = tr_jp_expr(p, true);
            if (!cond->c)
                return NULL;
        }
        n = cond;
    }
    return n;
}

struct tr_jn *tr_jp_expr(struct tr_jparser *p, bool with_cond)
{
    if (!tr_jenter(p->c))
        return NULL;
    struct tr_jn *n = with_cond ? parse_cond(p) : parse_or(p);
    tr_jleave(p->c);
    return n;
}

static struct tr_jn *parse_and(struct tr_jparser *p)
{
    struct tr_jn *n = parse_not(p);
    while (n && tr_jp_skip_name(p, "and"))
        n = node2(p, TR_JN_AND, n, parse_not(p));
    return n;
}

static struct tr_jn *parse_or(struct tr_jparser *p)
{
    struct tr_jn *n = parse_and(p);
    while (n && tr_jp_skip_name(p, "or"))
        n = node2(p, TR_JN_OR, n, parse_and(p));
    return n;
}

/* The comparison operator here, skipped; 0 if there is none. */
static int compare_op(struct tr_jparser *p)
{
    int kind = p->t->kind;
    switch (kind) {
    case TR_JT_EQ:
    case TR_JT_NE:
    case TR_JT_LE:
    case TR_JT_GE:
    case '<':
    case '>':
        p->t++;
        return kind;
    default:
        break;
    }
    if (tr_jp_skip_name(p, "in"))
        return TR_JN_IN;
    if (tr_jp_name_is(p, "not") && p->t[1].kind == TR_JT_NAME && tr_jstr_is(p->t[1].s, "in")) {
        p->t += 2;
        return TR_JN_NOT_IN;
    }
    return 0;
}

static struct tr_jn *parse_compare(struct tr_jparser *p)
{
    struct tr_jn *first = parse_sum(p);
    struct tr_jn_list ops;
    int op;
    tr_jp_list_init(&ops);
    while (first && (op = compare_op(p))) {
        struct tr_jn *operand = tr_jp_node(p, TR_JN_OPERAND);
        if (!operand)
            return NULL;
        operand->op = op;
        operand->a = parse_sum(p);
        if (!operand->a)
            return NULL;
        tr_jp_list_add(&ops, operand);
    }
    return first && ops.first ? node2(p, TR_JN_COMPARE, first, ops.first) : first;
}

static struct tr_jn *parse_not(struct tr_jparser *p)
{
    if (!tr_jp_skip_name(p, "not"))
        return parse_compare(p);
    if (!tr_jenter(p->c))
        return NULL;
    struct tr_jn *a = parse_not(p);
    tr_jleave(p->c);
    return node2(p, TR_JN_NOT, a, a);
}

static struct tr_jn *bin(struct tr_jparser *p, int op, struct tr_jn *a, struct tr_jn *b)
{
    struct tr_jn *n = node2(p, TR_JN_BIN, a, b);
    if (n)
        n->op = op;
    return n;
}

static struct tr_jn *parse_pow(struct tr_jparser *p)
{
    struct tr_jn *n = parse_unary(p, true);
    while (n && tr_jp_skip(p, TR_JT_POW))
        n = bin(p, TR_JT_POW, n, parse_unary(p, true));
    return n;
}

static struct tr_jn *parse_product(struct tr_jparser *p)
{
    struct tr_jn *n = parse_pow(p);
    while (n && (p->t->kind == '*' || p->t->kind == '/' || p->t->kind == TR_JT_FLOORDIV ||
                 p->t->kind == '%')) {
        int op = p->t++->kind;
        n = bin(p, op, n, parse_pow(p));
    }
    return n;
}

static struct tr_jn *parse_concat(struct tr_jparser *p)
{
    struct tr_jn_list items;
    tr_jp_list_init(&items);
    do {
        if (!tr_jp_list_add(&items, parse_product(p)))
            return NULL;
    } while (tr_jp_skip(p, '~'));
    if (!items.first->next)
        return items.first;
    struct tr_jn *n = tr_jp_node(p, TR_JN_CONCAT);
    if (n)
        n->a = items.first;
    return n;
}

static struct tr_jn *parse_sum(struct tr_jparser *p)
{
    struct tr_jn *n = parse_concat(p);
    while (n && (p->t->kind == '+' || p->t->kind == '-')) {
        int op = p->t++->kind;
        n = bin(p, op, n, parse_concat(p));
    }
    return n;
}

static struct tr_jn *parse_unary(struct tr_jparser *p, bool filters)
{
    struct tr_jn *n;
    if (!tr_jenter(p->c))
        return NULL;
    if (p->t->kind == '-' || p->t->kind == '+') {
        int op = p->t++->kind;
        struct tr_jn *a = parse_unary(p, false);
        n = node2(p, TR_JN_SIGN, a, a);
        if (n)
            n->op = op;
    } else {
        n = tr_jp_primary(p);
    }
    n = n ? parse_postfix(p, n) : NULL;
    n = n && filters ? parse_suffixes(p, n) : n;
    tr_jleave(p->c);
    return n;
}

static struct tr_jn *constant(struct tr_jparser *p, struct tr_jv *v)
{
    struct tr_jn *n = v ? tr_jp_node(p, TR_JN_CONST) : NULL;
    if (n)
        n->val = v;
    return n;
}

static struct tr_jn *parse_name(struct tr_jparser *p)
{
    struct tr_jstr s = p->t->s;
    struct tr_jn *n;
    if (tr_jstr_is(s, "true") || tr_jstr_is(s, "True"))
        n = constant(p, tr_jbool(p->c, true));
    else if (tr_jstr_is(s, "false") || tr_jstr_is(s, "False"))
        n = constant(p, tr_jbool(p->c, false));
    else if (tr_jstr_is(s, "none") || tr_jstr_is(s, "None"))
        n = constant(p, tr_jv_none(p->c));
    else
        n = tr_jp_node(p, TR_JN_NAME);
    if (!n)
        return NULL;
    n->str = s;
    p->uses |= tr_jstr_is(s, "varargs") ? TR_JN_VARARGS : 0;
    p->uses |= tr_jstr_is(s, "kwargs") ? TR_JN_KWARGS : 0;
    p->uses |= tr_jstr_is(s, "caller") ? TR_JN_CALLS : 0;
    p->t++;
    return n;
}

/* Adjacent strings are one. */
static struct tr_jn *parse_string(struct tr_jparser *p)
{
    struct tr_jstr s = p->t->s;
    if (p->t[1].kind == TR_JT_STRING) {
        struct tr_jbuf b;
        tr_jbuf_init(&b, p->c);
        for (const struct tr_jtok *t = p->t; t->kind == TR_JT_STRING; t++)
            tr_jbuf_add_str(&b, t->s);
        s = tr_jbuf_str(&b);
    }
    struct tr_jn *n = constant(p, tr_jnew_str(p->c, s));
    while (p->t->kind == TR_JT_STRING)
        p->t++;
    return n;
}

static struct tr_jn *parse_list(struct tr_jparser *p)
{
    struct tr_jn *n = tr_jp_node(p, TR_JN_LIST);
    struct tr_jn_list items;
    tr_jp_list_init(&items);
    p->t++;
    while (n && p->t->kind != ']') {
        if (items.first && !tr_jp_expect(p, ',', "','"))
            return NULL;
        if (p->t->kind == ']')
            break;
        if (!tr_jp_list_add(&items, tr_jp_expr(p, true)))
            return NULL;
    }
    if (!n || !tr_jp_expect(p, ']', "']'"))
        return NULL;
    n->a = items.first;
    return n;
}

static struct tr_jn *parse_dict(struct tr_jparser *p)
{
    struct tr_jn *n = tr_jp_node(p, TR_JN_DICT);
    struct tr_jn_list items;
    tr_jp_list_init(&items);
    p->t++;
    while (n && p->t->kind != '}') {
        if (items.first && !tr_jp_expect(p, ',', "','"))
            return NULL;
        if (p->t->kind == '}')
            break;
        struct tr_jn *key = tr_jp_expr(p, true);
        if (!key || !tr_jp_expect(p, ':', "':'"))
            return NULL;
        if (!tr_jp_list_add(&items, node2(p, TR_JN_PAIR, key, tr_jp_expr(p, true))))
            return NULL;
    }
    if (!n || !tr_jp_expect(p, '}', "'}'"))
        return NULL;
    n->a = items.first;
    return n;
}

struct tr_jn *tr_jp_primary(struct tr_jparser *p)
{
    struct tr_jn *n;
    switch (p->t->kind) {
    case TR_JT_NAME:
        return parse_name(p);
    case TR_JT_STRING:
        return parse_string(p);
    case TR_JT_INT:
    case TR_JT_FLOAT:
        return constant(p, p->t++->num);
    case '(':
        p->t++;
        n = tr_jp_tuple(p, true, true, NULL);
        return n && tr_jp_expect(p, ')', "')'") ? n : NULL;
    case '[':
        return parse_list(p);
    case '{':
        return parse_dict(p);
    default:
        return tr_jp_fail(p, "an expression was expected");
    }
}

static bool tuple_ends(const struct tr_jparser *p, const char *end)
{
    int k = p->t->kind;
    return k == TR_JT_VAR_END || k == TR_JT_BLOCK_END || k == ')' || (end && tr_jp_name_is(p, end));
}

struct tr_jn *tr_jp_tuple(struct tr_jparser *p, bool with_cond, bool parens, const char *end)
{
    struct tr_jn_list items;
    bool tuple = false;
    tr_jp_list_init(&items);
    for (;;) {
        if (items.first && !tr_jp_skip(p, ','))
            break;
        tuple = items.first != NULL;
        if (tuple_ends(p, end))
            break;
        if (!tr_jp_list_add(&items, tr_jp_expr(p, with_cond)))
            return NULL;
        if (p->t->kind != ',')
            break;
    }
    if (!tuple && items.first)
        return items.first;
    if (!items.first && !parens)
        return tr_jp_fail(p, "an expression was expected");
    struct tr_jn *n = tr_jp_node(p, TR_JN_TUPLE);
    if (n)
        n->a = items.first;
    return n;
}

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
            n = node2(p, TR_JN_ATTR, of, of);
            if (n)
                n->str = p->t->s;
            p->t++;
            return n;
        }
        if (p->t->kind != TR_JT_INT)
            return tr_jp_fail(p, "a name or a number was expected after '.'");
        return node2(p, TR_JN_ITEM, of, constant(p, p->t++->num));
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
        return node2(p, TR_JN_ITEM, of, items.first);
    n = tr_jp_node(p, TR_JN_TUPLE);
    if (n)
        n->a = items.first;
    for (const struct tr_jn *i = items.first; i; i = i->next)
        if (i->kind == TR_JN_SLICE)
            return tr_jp_fail(p, "a slice inside a tuple is not supported");
    return node2(p, TR_JN_ITEM, of, n);
}

static struct tr_jn *parse_call(struct tr_jparser *p, struct tr_jn *f)
{
    struct tr_jn *n = node2(p, TR_JN_CALL, f, f);
    return n && parse_args(p, &n->b) ? n : NULL;
}

static struct tr_jn *parse_postfix(struct tr_jparser *p, struct tr_jn *n)
{
    while (n && (p->t->kind == '.' || p->t->kind == '[' || p->t->kind == '('))
        n = p->t->kind == '(' ? parse_call(p, n) : parse_subscript(p, n);
    return n;
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
    value = value ? parse_postfix(p, value) : NULL;
    if (!arg || !value)
        return NULL;
    arg->op = TR_JN_POS;
    arg->a = value;
    n->b = arg;
    return n;
}

/* Filters, tests and calls behind a value. */
static struct tr_jn *parse_suffixes(struct tr_jparser *p, struct tr_jn *n)
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
