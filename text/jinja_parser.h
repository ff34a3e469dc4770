/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_parser.h - what the parts of the parser share: statements (jinja_parse.c), expressions
 * (jinja_expr.c) and what stands behind a value (jinja_suffix.c).
 *
 * Functions that give a node say NULL after noting an error. */
#ifndef TR_TEXT_JINJA_PARSER_H
#define TR_TEXT_JINJA_PARSER_H

#include "text/jinja_ast.h"
#include "text/jinja_lex.h"

struct tr_jparser {
    struct tr_jctx *c;
    const struct tr_jtok *t; /* current token; the last one is TR_JT_EOF */
    unsigned loops;          /* open loops in this function */
    unsigned ifs;            /* open if statements */
    int uses;                /* enum tr_jn_uses of the macro being parsed */
};

/* A list under construction. */
struct tr_jn_list {
    struct tr_jn *first;
    struct tr_jn **tail;
};

void tr_jp_list_init(struct tr_jn_list *l);
bool tr_jp_list_add(struct tr_jn_list *l, struct tr_jn *n);

struct tr_jn *tr_jp_node(struct tr_jparser *p, enum tr_jn_kind kind);
void *tr_jp_fail(struct tr_jparser *p, const char *what);
bool tr_jp_name_is(const struct tr_jparser *p, const char *name);
bool tr_jp_skip_name(struct tr_jparser *p, const char *name);
bool tr_jp_skip(struct tr_jparser *p, int kind);
bool tr_jp_expect(struct tr_jparser *p, int kind, const char *what);

/* A node over a and b; NULL if one of them is. */
struct tr_jn *tr_jp_node2(struct tr_jparser *p, enum tr_jn_kind kind, struct tr_jn *a,
                          struct tr_jn *b);
struct tr_jn *tr_jp_const(struct tr_jparser *p, struct tr_jv *v);

struct tr_jn *tr_jp_expr(struct tr_jparser *p, bool with_cond);
struct tr_jn *tr_jp_primary(struct tr_jparser *p);
/* a, b, ...: one expression or a tuple; `end` is a name that ends it, or NULL. */
struct tr_jn *tr_jp_tuple(struct tr_jparser *p, bool with_cond, bool parens, const char *end);
/* Attributes, subscripts and calls behind a value. */
struct tr_jn *tr_jp_postfix(struct tr_jparser *p, struct tr_jn *n);
/* Filters, tests and calls behind a value. */
struct tr_jn *tr_jp_suffixes(struct tr_jparser *p, struct tr_jn *n);
/* A chain of filters; with `operand` NULL it starts at a filter's name. */
struct tr_jn *tr_jp_filters(struct tr_jparser *p, struct tr_jn *operand);
/* What may be assigned to.  `ns`: also name.attribute. */
struct tr_jn *tr_jp_target(struct tr_jparser *p, bool ns, const char *end);
struct tr_jn *tr_jp_target_name(struct tr_jparser *p);

#endif
