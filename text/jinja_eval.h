/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_eval.h - the evaluator: statements are in jinja_exec.c, expressions in jinja_eval.c.
 *
 * Scopes follow Jinja: loops, macros, call, filter, with and set blocks open one, if does not;
 * assignments go to the innermost, look-ups from there outwards, then to the variables of the
 * rendering, then to the global functions. */
#ifndef TR_TEXT_JINJA_EVAL_H
#define TR_TEXT_JINJA_EVAL_H

#include "text/jinja_ast.h"

struct tr_jvar {
    struct tr_jstr name;
    struct tr_jv *v;
};

struct tr_jscope {
    struct tr_jscope *parent;
    struct tr_jvar *var;
    size_t n;
    size_t cap;
};

enum tr_jflow { TR_JFLOW_NEXT, TR_JFLOW_BREAK, TR_JFLOW_CONTINUE, TR_JFLOW_ERROR };

struct tr_jev {
    struct tr_jctx *c;
    struct tr_jscope *scope;
    struct tr_jbuf *out;
    struct tr_jv *block; /* operand of a filter chain without one */
};

/* NULL with an error noted. */
struct tr_jv *tr_jev_expr(struct tr_jev *e, const struct tr_jn *n);
struct tr_jv *tr_jev_filter(struct tr_jev *e, const struct tr_jn *n, struct tr_jv *block);
bool tr_jev_args(struct tr_jev *e, const struct tr_jn *n, struct tr_jargs *a, size_t more_kw);

struct tr_jscope *tr_jscope_new(struct tr_jctx *c, struct tr_jscope *parent);
bool tr_jscope_set(struct tr_jctx *c, struct tr_jscope *s, struct tr_jstr name, struct tr_jv *v);
struct tr_jv *tr_jscope_get(const struct tr_jscope *s, struct tr_jstr name); /* or NULL */

/* Runs a list of statements. */
enum tr_jflow tr_jexec(struct tr_jev *e, const struct tr_jn *body);
/* Calls a macro or the body of a call block; and loop(...) of a recursive loop. */
struct tr_jv *tr_jexec_macro(struct tr_jctx *c, struct tr_jv *m, const struct tr_jargs *a);
struct tr_jv *tr_jexec_loop(struct tr_jctx *c, struct tr_jv *loop, const struct tr_jargs *a);

#endif
