/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/run.h - states from which most characters lead to one next state: texts, counted or not.  Private to
 * grammar/.
 *
 * In a text of at most 200 characters every position is a state of its own, and each allows the same tokens
 * but for those that would be too long.  A *run* says that all bytes of some classes (grammar/pieces.h), or
 * all characters of UTF-8, lead from a state to one and the same next state; a subtree of the trie that is no
 * higher than there are runs after each other is allowed as a whole.  A pure function of the program,
 * remembered while the program stays the same. */
#ifndef TR_GRAMMAR_RUN_H
#define TR_GRAMMAR_RUN_H

#include "grammar/image.h"

struct tr_grun {
    uint64_t accept; /* classes of bytes; of those from 0x80 on, all or none */
    uint32_t stamp;
    uint16_t to;
    bool call; /* through a rule of one character: a frame is opened for it */
};

struct tr_gruns {
    struct tr_grun *of_state; /* [TR_GRAM_STATES_MAX] */
    struct tr_grun *of_rule;  /* [TR_GRAM_RULES_MAX] characters that are a whole text of the rule */
    uint32_t stamp;           /* entries of another one are of another program */
    uint8_t digest[TR_GDIGEST];
};

/* 0 or -ENOMEM. */
int tr_gruns_open(struct tr_gruns *r);
void tr_gruns_close(struct tr_gruns *r);

/* What follows is about this program. */
void tr_gruns_of(struct tr_gruns *r, const struct tr_gprog *p);

/* accept is 0 if there is none. */
const struct tr_grun *tr_grun_at(struct tr_gruns *r, const struct tr_gprog *p, uint32_t state);

#endif
