/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_parse.c - parses statements; expressions are in jinja_expr.c. */
#include "text/jinja_parser.h"

#include <string.h>

static bool parse_body(struct tr_jparser *p, const char *const ends[], struct tr_jn **out);
static struct tr_jn *parse_statement(struct tr_jparser *p);

struct tr_jn *tr_jparse(struct tr_jctx *c, const char *src, size_t len)
{
    struct tr_jparser p = {.c = c, .t = tr_jlex(c, src, len)};
    struct tr_jn *body;
    if (!p.t || !parse_body(&p, NULL, &body))
        return NULL;
    return body;
}

void tr_jp_list_init(struct tr_jn_list *l)
{
    l->first = NULL;
    l->tail = &l->first;
}

bool tr_jp_list_add(struct tr_jn_list *l, struct tr_jn *n)
{
    if (!n)
        return false;
    *l->tail = n;
    l->tail = &n->next;
    return true;
}

struct tr_jn *tr_jp_node(struct tr_jparser *p, enum tr_jn_kind kind)
{
    struct tr_jn *n = tr_jalloc(p->c, sizeof *n);
    if (n) {
        n->kind = kind;
        n->line = p->t->line;
    }
    return n;
}

void *tr_jp_fail(struct tr_jparser *p, const char *what)
{
    return tr_jfail(p->c, TR_JERR_SYNTAX, "line %u: %s", p->t->line, what);
}

bool tr_jp_name_is(const struct tr_jparser *p, const char *name)
{
    return p->t->kind == TR_JT_NAME && tr_jstr_is(p->t->s, name);
}

bool tr_jp_skip_name(struct tr_jparser *p, const char *name)
{
    bool is = tr_jp_name_is(p, name);
    p->t += is;
    return is;
}

bool tr_jp_skip(struct tr_jparser *p, int kind)
{
    bool is = p->t->kind == kind;
    p->t += is;
    return is;
}

bool tr_jp_expect(struct tr_jparser *p, int kind, const char *what)
{
    if (tr_jp_skip(p, kind))
        return true;
    tr_jfail(p->c, TR_JERR_SYNTAX, "line %u: expected %s", p->t->line, what);
    return false;
}

static bool end_of_tag(struct tr_jparser *p)
{
    return tr_jp_expect(p, TR_JT_BLOCK_END, "the end of the tag");
}

static bool is_one_of(const struct tr_jparser *p, const char *const names[])
{
    for (size_t i = 0; names[i]; i++)
        if (tr_jp_name_is(p, names[i]))
            return true;
    return false;
}

/* One node of a body; NULL with nothing noted at its end (`{%` skipped, at the end's name). */
static struct tr_jn *parse_piece(struct tr_jparser *p, const char *const ends[])
{
    struct tr_jn *n;
    switch (p->t->kind) {
    case TR_JT_DATA:
        n = tr_jp_node(p, TR_JN_DATA);
        if (n)
            n->str = p->t->s;
        p->t++;
        return n;
    case TR_JT_VAR_BEGIN:
        n = tr_jp_node(p, TR_JN_PRINT);
        p->t++;
        if (!n)
            return NULL;
        n->a = tr_jp_tuple(p, true, false, NULL);
        return n->a && tr_jp_expect(p, TR_JT_VAR_END, "the end of the print statement") ? n : NULL;
    case TR_JT_BLOCK_BEGIN:
        p->t++;
        if (ends && is_one_of(p, ends))
            return NULL;
        n = parse_statement(p);
        return n && end_of_tag(p) ? n : NULL;
    default:
        if (ends)
            return tr_jfail(p->c, TR_JERR_SYNTAX,
                            "line %u: Unexpected end of template. Jinja was looking for '%s'.",
                            p->t->line, ends[0]);
        return NULL;
    }
}

/* Statements up to one of the end tags (then at its name), or to the end of the template. */
static bool parse_body(struct tr_jparser *p, const char *const ends[], struct tr_jn **out)
{
    struct tr_jn_list body;
    tr_jp_list_init(&body);
    *out = NULL;
    if (!tr_jenter(p->c))
        return false;
    while (tr_jp_list_add(&body, parse_piece(p, ends)))
        ;
    tr_jleave(p->c);
    *out = body.first;
    return !p->c->err;
}

/* The end of an opening tag, the body, and the name of its only end tag. */
static bool parse_block(struct tr_jparser *p, const char *end, struct tr_jn **out)
{
    const char *ends[] = {end, NULL};
    if (!end_of_tag(p) || !parse_body(p, ends, out))
        return false;
    p->t++;
    return true;
}

static bool is_target(struct tr_jparser *p, const struct tr_jn *n)
{
    if (n->kind == TR_JN_NAME || n->kind == TR_JN_NSREF)
        return true;
    if (n->kind != TR_JN_TUPLE)
        return false;
    if (!tr_jenter(p->c))
        return false;
    bool good = true;
    for (const struct tr_jn *i = n->a; i && good; i = i->next)
        good = is_target(p, i);
    tr_jleave(p->c);
    return good;
}

static struct tr_jn *parse_target_part(struct tr_jparser *p, bool ns)
{
    if (!ns || p->t->kind != TR_JT_NAME || p->t[1].kind != '.' || p->t[2].kind != TR_JT_NAME)
        return tr_jp_primary(p);
    struct tr_jn *n = tr_jp_node(p, TR_JN_NSREF);
    if (n) {
        n->str = p->t[0].s;
        n->str2 = p->t[2].s;
    }
    p->t += 3;
    return n;
}

struct tr_jn *tr_jp_target(struct tr_jparser *p, bool ns, const char *end)
{
    struct tr_jn_list items;
    struct tr_jn *n;
    bool tuple = false;
    tr_jp_list_init(&items);
    do {
        bool over =
            p->t->kind == TR_JT_BLOCK_END || p->t->kind == '=' || (end && tr_jp_name_is(p, end));
        if (items.first && over)
            break;
        if (!tr_jp_list_add(&items, parse_target_part(p, ns)))
            return NULL;
        tuple = tuple || p->t->kind == ',';
    } while (tr_jp_skip(p, ','));
    n = items.first;
    if (tuple) {
        n = tr_jp_node(p, TR_JN_TUPLE);
        if (n)
            n->a = items.first;
    }
    if (n && !is_target(p, n))
        return tr_jp_fail(p, "this cannot be assigned to");
    return n;
}

struct tr_jn *tr_jp_target_name(struct tr_jparser *p)
{
    if (p->t->kind != TR_JT_NAME)
        return tr_jp_fail(p, "a name was expected");
    struct tr_jn *n = tr_jp_primary(p);
    return n && n->kind != TR_JN_NAME ? tr_jp_fail(p, "this cannot be assigned to") : n;
}

static struct tr_jn *parse_if(struct tr_jparser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const last[] = {"endif", NULL};
    struct tr_jn *n = tr_jp_node(p, TR_JN_IF);
    struct tr_jn_list branches;
    bool is_else = false;
    tr_jp_list_init(&branches);
    p->ifs++;
    while (n && !tr_jp_skip_name(p, "endif")) {
        struct tr_jn *branch = tr_jp_node(p, TR_JN_BRANCH);
        is_else = tr_jp_name_is(p, "else");
        p->t++;
        if (!branch)
            return NULL;
        if (!is_else && !(branch->a = tr_jp_tuple(p, false, false, NULL)))
            return NULL;
        if (!end_of_tag(p) || !parse_body(p, is_else ? last : ends, &branch->b))
            return NULL;
        tr_jp_list_add(&branches, branch);
    }
    p->ifs--;
    if (n)
        n->a = branches.first;
    return n;
}

static struct tr_jn *parse_for(struct tr_jparser *p)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    struct tr_jn *n = tr_jp_node(p, TR_JN_FOR);
    p->t++;
    if (!n || !(n->a = tr_jp_target(p, false, "in")))
        return NULL;
    if (!tr_jp_skip_name(p, "in"))
        return tr_jp_fail(p, "expected 'in'");
    n->b = tr_jp_tuple(p, false, false, "recursive");
    if (!n->b)
        return NULL;
    if (tr_jp_skip_name(p, "if") && !(n->e = tr_jp_expr(p, true)))
        return NULL;
    n->flag = tr_jp_skip_name(p, "recursive");
    p->loops++;
    bool good = end_of_tag(p) && parse_body(p, ends, &n->c);
    p->loops--;
    if (!good)
        return NULL;
    if (tr_jp_skip_name(p, "else"))
        return parse_block(p, "endfor", &n->d) ? n : NULL;
    p->t++;
    return n;
}

static struct tr_jn *parse_set(struct tr_jparser *p)
{
    struct tr_jn *n = tr_jp_node(p, TR_JN_SET);
    p->t++;
    if (!n || !(n->a = tr_jp_target(p, true, NULL)))
        return NULL;
    if (tr_jp_skip(p, '=')) {
        n->b = tr_jp_tuple(p, true, false, NULL);
        return n->b ? n : NULL;
    }
    n->kind = TR_JN_SETBLOCK;
    if (tr_jp_skip(p, '|') && !(n->b = tr_jp_filters(p, NULL)))
        return NULL;
    return parse_block(p, "endset", &n->c) ? n : NULL;
}

static struct tr_jn *parse_with(struct tr_jparser *p)
{
    struct tr_jn *n = tr_jp_node(p, TR_JN_WITH);
    struct tr_jn_list pairs;
    tr_jp_list_init(&pairs);
    p->t++;
    while (n && p->t->kind != TR_JT_BLOCK_END) {
        if (pairs.first && !tr_jp_expect(p, ',', "','"))
            return NULL;
        struct tr_jn *pair = tr_jp_node(p, TR_JN_PAIR);
        if (!pair || !(pair->a = tr_jp_target_name(p)) || !tr_jp_expect(p, '=', "'='") ||
            !(pair->b = tr_jp_expr(p, true)))
            return NULL;
        tr_jp_list_add(&pairs, pair);
    }
    if (!n)
        return NULL;
    n->a = pairs.first;
    return parse_block(p, "endwith", &n->b) ? n : NULL;
}

/* (a, b=1, ...) of a macro or a call block. */
static bool parse_signature(struct tr_jparser *p, struct tr_jn **out)
{
    struct tr_jn_list params;
    bool defaults = false;
    tr_jp_list_init(&params);
    if (!tr_jp_expect(p, '(', "'('"))
        return false;
    while (p->t->kind != ')') {
        if (params.first && !tr_jp_expect(p, ',', "','"))
            return false;
        struct tr_jn *param = tr_jp_target_name(p);
        if (!param)
            return false;
        param->kind = TR_JN_PARAM;
        if (tr_jp_skip(p, '=')) {
            defaults = true;
            param->a = tr_jp_expr(p, true);
            if (!param->a)
                return false;
        } else if (defaults) {
            return tr_jp_fail(p, "non-default argument follows default argument");
        }
        tr_jp_list_add(&params, param);
    }
    p->t++;
    *out = params.first;
    return true;
}

/* A body that is a function of its own: no loop of the outside can be left from it. */
static bool parse_function(struct tr_jparser *p, const char *end, struct tr_jn *n)
{
    unsigned loops = p->loops;
    int uses = p->uses;
    p->loops = 0;
    p->uses = 0;
    bool good = parse_block(p, end, &n->b);
    n->op = p->uses;
    p->loops = loops;
    p->uses |= uses;
    return good;
}

static struct tr_jn *parse_macro(struct tr_jparser *p)
{
    struct tr_jn *n = tr_jp_node(p, TR_JN_MACRO);
    p->t++;
    struct tr_jn *name = tr_jp_target_name(p);
    if (!n || !name)
        return NULL;
    n->str = name->str;
    return parse_signature(p, &n->a) && parse_function(p, "endmacro", n) ? n : NULL;
}

static struct tr_jn *parse_callblock(struct tr_jparser *p)
{
    struct tr_jn *n = tr_jp_node(p, TR_JN_CALLER);
    p->t++;
    if (!n || (p->t->kind == '(' && !parse_signature(p, &n->a)))
        return NULL;
    n->c = tr_jp_expr(p, true);
    if (!n->c)
        return NULL;
    if (n->c->kind != TR_JN_CALL)
        return tr_jp_fail(p, "expected a call");
    n->str = tr_jstr_of("caller");
    return parse_function(p, "endcall", n) ? n : NULL;
}

static struct tr_jn *parse_filtered(struct tr_jparser *p)
{
    struct tr_jn *n = tr_jp_node(p, TR_JN_FILTERED);
    p->t++;
    if (!n || !(n->a = tr_jp_filters(p, NULL)))
        return NULL;
    return parse_block(p, "endfilter", &n->b) ? n : NULL;
}

static struct tr_jn *parse_generation(struct tr_jparser *p)
{
    struct tr_jn *n = tr_jp_node(p, TR_JN_SCOPE);
    p->t++;
    return n && parse_function(p, "endgeneration", n) ? n : NULL;
}

static struct tr_jn *parse_print(struct tr_jparser *p)
{
    struct tr_jn_list items;
    tr_jp_list_init(&items);
    p->t++;
    struct tr_jn *n = tr_jp_node(p, TR_JN_PRINT);
    if (!n || !(n->a = tr_jp_expr(p, true)))
        return NULL;
    return p->t->kind == ','
               ? tr_jfail(p->c, TR_JERR_UNSUPPORTED,
                          "line %u: a print tag with several values is not supported", n->line)
               : n;
}

static struct tr_jn *parse_jump(struct tr_jparser *p)
{
    bool is_break = tr_jp_name_is(p, "break");
    struct tr_jn *n = tr_jp_node(p, is_break ? TR_JN_BREAK : TR_JN_CONTINUE);
    if (!p->loops)
        return tr_jp_fail(p, is_break ? "'break' outside loop" : "'continue' outside loop");
    p->t++;
    return n;
}

static struct tr_jn *parse_statement(struct tr_jparser *p)
{
    static const struct {
        const char *name;
        struct tr_jn *(*parse)(struct tr_jparser *p);
    } tags[] = {
        {"if", parse_if},           {"for", parse_for},
        {"set", parse_set},         {"with", parse_with},
        {"macro", parse_macro},     {"call", parse_callblock},
        {"filter", parse_filtered}, {"generation", parse_generation},
        {"print", parse_print},     {"break", parse_jump},
        {"continue", parse_jump},
    };
    static const char *const known[] = {"block", "extends",    "include", "import",
                                        "from",  "autoescape", NULL};
    if (p->t->kind != TR_JT_NAME)
        return tr_jp_fail(p, "a tag name was expected");
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
        if (tr_jp_name_is(p, tags[i].name))
            return tags[i].parse(p);
    int n = p->t->s.len > 100 ? 100 : (int)p->t->s.len;
    if (is_one_of(p, known))
        return tr_jfail(p->c, TR_JERR_UNSUPPORTED, "line %u: the tag '%.*s' is not supported",
                        p->t->line, n, p->t->s.p);
    return tr_jfail(p->c, TR_JERR_SYNTAX, "line %u: Encountered unknown tag '%.*s'.", p->t->line, n,
                    p->t->s.p);
}
