/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_expr.c - parses expressions, with Jinja's precedences: from loose to tight
 *   x if y else z | or | and | not | comparisons | + - | ~ | * / // % | ** | unary | postfix, filters
 * A sign binds tighter than ** and looser than nothing: filters apply to the signed value.  What
 * stands behind a value (postfix, filters, tests) is in jinja_suffix.c. */
#include "text/jinja_parser.h"

static struct tr_jn *parse_or(struct tr_jparser *p);
static struct tr_jn *parse_not(struct tr_jparser *p);
static struct tr_jn *parse_sum(struct tr_jparser *p);
static struct tr_jn *parse_unary(struct tr_jparser *p, bool filters);

struct tr_jn *tr_jp_node2(struct tr_jparser *p, enum tr_jn_kind kind, struct tr_jn *a,
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
        struct tr_jn *cond = tr_jp_node2(p, TR_JN_COND, test, n);
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
        n = tr_jp_node2(p, TR_JN_AND, n, parse_not(p));
    return n;
}

static struct tr_jn *parse_or(struct tr_jparser *p)
{
    struct tr_jn *n = parse_and(p);
    while (n && tr_jp_skip_name(p, "or"))
        n = tr_jp_node2(p, TR_JN_OR, n, parse_and(p));
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
    return first && ops.first ? tr_jp_node2(p, TR_JN_COMPARE, first, ops.first) : first;
}

static struct tr_jn *parse_not(struct tr_jparser *p)
{
    if (!tr_jp_skip_name(p, "not"))
        return parse_compare(p);
    if (!tr_jenter(p->c))
        return NULL;
    struct tr_jn *a = parse_not(p);
    tr_jleave(p->c);
    return tr_jp_node2(p, TR_JN_NOT, a, a);
}

static struct tr_jn *bin(struct tr_jparser *p, int op, struct tr_jn *a, struct tr_jn *b)
{
    struct tr_jn *n = tr_jp_node2(p, TR_JN_BIN, a, b);
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
        n = tr_jp_node2(p, TR_JN_SIGN, a, a);
        if (n)
            n->op = op;
    } else {
        n = tr_jp_primary(p);
    }
    n = n ? tr_jp_postfix(p, n) : NULL;
    n = n && filters ? tr_jp_suffixes(p, n) : n;
    tr_jleave(p->c);
    return n;
}

struct tr_jn *tr_jp_const(struct tr_jparser *p, struct tr_jv *v)
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
        n = tr_jp_const(p, tr_jbool(p->c, true));
    else if (tr_jstr_is(s, "false") || tr_jstr_is(s, "False"))
        n = tr_jp_const(p, tr_jbool(p->c, false));
    else if (tr_jstr_is(s, "none") || tr_jstr_is(s, "None"))
        n = tr_jp_const(p, tr_jv_none(p->c));
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
    struct tr_jn *n = tr_jp_const(p, tr_jnew_str(p->c, s));
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
        if (!tr_jp_list_add(&items, tr_jp_node2(p, TR_JN_PAIR, key, tr_jp_expr(p, true))))
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
        return tr_jp_const(p, p->t++->num);
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
