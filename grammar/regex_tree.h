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

/* Lookaheads in front of the whole pattern: what has to follow there, or must not. */
struct tr_re_look {
    struct tr_re *tree;
    bool absent;
};

struct tr_re_pattern {
    struct tr_re *tree; /* without the lookaheads */
    struct tr_re_look look[TR_RE_LOOKS];
    unsigned n_looks;
};

/* 0, or -EINVAL, -E2BIG or -ENOMEM with a sentence.  Trees lie in w's arena. */
int tr_re_parse(struct tr_gbudget *w, const char *text, size_t len, enum tr_re_place place,
                struct tr_re_pattern *out, struct tr_errbuf *err);

#endif
