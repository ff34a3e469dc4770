/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/regex_nfa.h - a regular expression as an automaton with choices; between regex_nfa.c, which
 * draws it, and regex.c, which makes it deterministic. */
#ifndef TR_GRAMMAR_REGEX_NFA_H
#define TR_GRAMMAR_REGEX_NFA_H

#include "grammar/regex_tree.h"

enum tr_rn_kind {
    TR_RN_CHAR,  /* takes a character of set number `set`, goes to `to` */
    TR_RN_FORK,  /* goes to `to` and to `or_to` */
    TR_RN_BEGIN, /* goes to `to` where the text begins */
    TR_RN_END,   /* goes to `to` where the text ends */
    TR_RN_REST,  /* the pattern has occurred: whatever follows is good */
    TR_RN_MATCH  /* the text is good if it ends here */
};

#define TR_RN_NONE UINT32_MAX

struct tr_rn_part {
    enum tr_rn_kind kind;
    uint32_t set;
    uint32_t to, or_to; /* or TR_RN_NONE */
};

struct tr_rn {
    struct tr_rn_part *part; /* [TR_RE_PARTS] at most */
    uint32_t n, cap;
    const struct tr_cset **set; /* different ones */
    uint32_t n_sets;
    uint32_t start;
};

/* False: a bound of w, or of this file. */
bool tr_rn_draw(struct tr_gbudget *w, const struct tr_re *t, enum tr_re_place place,
                struct tr_rn *out);

#endif
