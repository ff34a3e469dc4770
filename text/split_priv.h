/* SPDX-License-Identifier: Apache-2.0 */
/* text/split_priv.h - the machine of text/split.c, and its part in split_head.c. */
#ifndef TR_TEXT_SPLIT_PRIV_H
#define TR_TEXT_SPLIT_PRIV_H

#include "text/split.h"

#include <string.h>

enum {
    TEXT,   /* held: what may become an opening */
    REASON, /* held: line ends, and what may become the closing */
    HEAD,   /* from an opening, or a brace, to the arguments; held: all of it */
    ARGS,
    REST, /* behind the arguments, in the object that holds them */
    AFTER /* behind a call; held: what may belong to the format */
};

/* HEAD: what is expected. */
enum {
    H_BEGIN,  /* the next call's marker, a bracket, a brace, or a name */
    H_MARKER, /* the rest of the next call's marker */
    H_MEMBER, /* a key, or the end of the object */
    H_KEY,
    H_COLON,
    H_VALUE,
    H_STRING,
    H_COMMA,
    H_NAME,  /* up to the separator */
    H_FENCE, /* behind a type: the name, up to the fence */
    H_ARGS   /* their brace */
};

/* What stands before the next text. */
enum { EDGE_NONE, EDGE_START, EDGE_CALL, EDGE_REASON, EDGE_REASON_BEGINS };

static inline bool is_blank(char b)
{
    return b == ' ' || b == '\t' || b == '\n' || b == '\r';
}

static inline void hold(struct tr_split *s, char b)
{
    s->held[s->n_held++] = b;
}

enum { NO, BEGINS, IS };

/* Whether p[0, n) is a word or begins it. */
static inline int match(const char *word, const char *p, size_t n)
{
    if (!word || !*word)
        return NO;
    size_t len = strlen(word);
    if (n > len || memcmp(word, p, n) != 0)
        return NO;
    return n == len ? IS : BEGINS;
}

void tr_split_add(const struct tr_split *s, struct tr_parts *out, enum tr_part_kind kind,
                  const char *text, size_t len);

/* Text, behind the blanks that were held before it. */
void tr_split_add_text(struct tr_split *s, struct tr_parts *out, const char *text, size_t len);

void tr_split_step(struct tr_split *s, char b, struct tr_parts *out);

/* What is held is read anew as text: the first `sure` bytes are no beginning of anything. */
void tr_split_to_text(struct tr_split *s, size_t sure, struct tr_parts *out);

/* A call has ended. */
void tr_split_end_call(struct tr_split *s, struct tr_parts *out);

/* ---- split_head.c ---- */

/* What is held is an opening, or nothing and a brace comes. */
void tr_split_begin_head(struct tr_split *s, bool by_marker);
void tr_split_head(struct tr_split *s, char b, struct tr_parts *out);

#endif
