/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_ast.h - the parsed template: a tree of nodes, immutable once parsed.
 *
 * Lists of nodes are linked by `next`.  What the fields hold depends on the kind. */
#ifndef TR_TEXT_JINJA_AST_H
#define TR_TEXT_JINJA_AST_H

#include "text/jinja_priv.h"

enum tr_jn_kind {
    /* expressions */
    TR_JN_CONST,   /* val */
    TR_JN_NAME,    /* str */
    TR_JN_LIST,    /* a: items */
    TR_JN_TUPLE,   /* a: items */
    TR_JN_DICT,    /* a: PAIRs */
    TR_JN_PAIR,    /* a: key or target, b: value */
    TR_JN_COND,    /* a: test, b: then, c: else or NULL */
    TR_JN_AND,     /* a, b */
    TR_JN_OR,      /* a, b */
    TR_JN_NOT,     /* a */
    TR_JN_SIGN,    /* a; op '-' or '+' */
    TR_JN_BIN,     /* a, b; op: character or enum tr_jtok_kind */
    TR_JN_CONCAT,  /* a: items */
    TR_JN_COMPARE, /* a: first, b: OPERANDs */
    TR_JN_OPERAND, /* a; op: token kind, or enum tr_jn_in */
    TR_JN_FILTER,  /* a: operand, or NULL at the start of a block's chain; b: ARGs; row, str */
    TR_JN_TEST,    /* a: operand, b: ARGs; row, str; flag: negated */
    TR_JN_ATTR,    /* a, str */
    TR_JN_ITEM,    /* a, b: key, perhaps a SLICE */
    TR_JN_SLICE,   /* a, b, c: each may be NULL */
    TR_JN_CALL,    /* a, b: ARGs */
    TR_JN_ARG,     /* a; op: enum tr_jn_arg, str: keyword */
    TR_JN_NSREF,   /* str: name, str2: attribute; a target only */
    /* statements */
    TR_JN_DATA,     /* str */
    TR_JN_PRINT,    /* a */
    TR_JN_IF,       /* a: BRANCHes */
    TR_JN_BRANCH,   /* a: test or NULL (else), b: body */
    TR_JN_FOR,      /* a: target, b: iterable, c: body, d: else, e: condition; flag: recursive */
    TR_JN_SET,      /* a: target, b: value */
    TR_JN_SETBLOCK, /* a: target, b: filter chain or NULL, c: body */
    TR_JN_WITH,     /* a: PAIRs, b: body */
    TR_JN_MACRO,    /* str: name; a: PARAMs, b: body; op: enum tr_jn_uses */
    TR_JN_PARAM,    /* str, a: default or NULL */
    TR_JN_CALLER,   /* c: the call; else as MACRO */
    TR_JN_FILTERED, /* a: filter chain, b: body */
    TR_JN_SCOPE,    /* b: body */
    TR_JN_BREAK,
    TR_JN_CONTINUE,
};

enum tr_jn_in { TR_JN_IN = 1, TR_JN_NOT_IN };
enum tr_jn_arg { TR_JN_POS, TR_JN_KW, TR_JN_STAR, TR_JN_STARSTAR };
enum tr_jn_uses { TR_JN_VARARGS = 1, TR_JN_KWARGS = 2, TR_JN_CALLS = 4 };

struct tr_jn {
    enum tr_jn_kind kind;
    int op;
    uint32_t line;
    bool flag;
    struct tr_jstr str;
    struct tr_jstr str2;
    struct tr_jv *val;
    const struct tr_jbuiltin *row;
    struct tr_jn *a, *b, *c, *d, *e;
    struct tr_jn *next;
};

/* The statements of a template, in the context's memory (NULL with no error noted: none).  Faults
 * are noted in the context, with their line. */
struct tr_jn *tr_jparse(struct tr_jctx *c, const char *src, size_t len);

#endif
