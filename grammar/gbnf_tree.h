/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/gbnf_tree.h - a grammar as trees, one a rule; between gbnf_parse.c and gbnf.c. */
#ifndef TR_GRAMMAR_GBNF_TREE_H
#define TR_GRAMMAR_GBNF_TREE_H

#include "grammar/cset.h"
#include "grammar/fa.h"
#include "grammar/gbnf.h"

enum tr_gb_kind {
    TR_GB_TEXT,   /* `text` */
    TR_GB_SET,    /* one character of `set` */
    TR_GB_REF,    /* rule number `rule` */
    TR_GB_SEQ,    /* the children one after another; none: the empty text */
    TR_GB_ALT,    /* one of the children */
    TR_GB_REPEAT, /* the child, min to max times (UINT32_MAX: no bound) */
};

struct tr_gb {
    enum tr_gb_kind kind;
    uint32_t line;
    uint32_t min, max, rule;
    const char *text; /* UTF-8 */
    size_t len;
    const struct tr_cset *set;
    struct tr_gb *child, *next;
};

struct tr_gb_rule {
    const char *name;
    size_t len;
    uint32_t line;      /* where it is defined, or first used */
    struct tr_gb *body; /* NULL: not defined */
};

struct tr_gb_rules {
    struct tr_gbudget *w;
    struct tr_fa_maker *names; /* numbers the rules by their names */
    struct tr_gb_rule *rule;   /* [TR_FA_STATES] */
    uint32_t n;
};

/* Reads the text into g, whose w is set; 0, or a fault with a sentence. */
int tr_gb_parse(struct tr_gb_rules *g, const char *text, size_t len, struct tr_errbuf *err);

#endif
