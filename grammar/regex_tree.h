/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/regex_tree.h - a regular expression as a tree; between regex_parse.c and regex.c. */
#ifndef TR_GRAMMAR_REGEX_TREE_H
#define TR_GRAMMAR_REGEX_TREE_H

#include "grammar/regex.h"

enum tr_re_kind {
    TR_RE_SET,    /* one character of `set` */
    TR_RE_SEQ,    /* the children one after another; none: the empty text */
    TR_RE_ALT,    /* one of the children */
    TR_RE_REPEAT, /* the child, min to max times (UINT32_MAX: no bound) */
    TR_RE_BEGIN,  /* ^ */
    TR_RE_END     /* $ */
};

struct tr_re {
    enum tr_re_kind kind;
    uint32_t min, max;
    const struct tr_cset *set;
    struct tr_re *child; /* first */
    struct tr_re *next;  /* brother */
};

/* The tree, in w's arena, or NULL with a sentence and *ret. */
struct tr_re *tr_re_parse(struct tr_gbudget *w, const char *text, size_t len, int *ret,
                          struct tr_errbuf *err);

#endif
