/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_lex.h - cuts a template into tokens.
 *
 * Whitespace control is settled here: `-` and `+` signs, trim_blocks (a newline after a block tag
 * goes) and lstrip_blocks (blanks before a block tag that starts its line go).  Newlines become
 * \n and one newline at the very end of the template goes, as in Jinja. */
#ifndef TR_TEXT_JINJA_LEX_H
#define TR_TEXT_JINJA_LEX_H

#include "text/jinja_priv.h"

/* Operators of one character are that character. */
enum tr_jtok_kind {
    TR_JT_EOF = 256,
    TR_JT_DATA,
    TR_JT_VAR_BEGIN,
    TR_JT_VAR_END,
    TR_JT_BLOCK_BEGIN,
    TR_JT_BLOCK_END,
    TR_JT_NAME,
    TR_JT_STRING,
    TR_JT_INT,
    TR_JT_FLOAT,
    TR_JT_POW,      /* ** */
    TR_JT_FLOORDIV, /* // */
    TR_JT_EQ,
    TR_JT_NE,
    TR_JT_LE,
    TR_JT_GE,
};

struct tr_jtok {
    int kind;
    uint32_t line;
    struct tr_jstr s;  /* DATA, NAME; STRING with its escapes resolved */
    struct tr_jv *num; /* INT, FLOAT */
};

/* All tokens, the last one is TR_JT_EOF; in the context's memory.  NULL with an error noted. */
const struct tr_jtok *tr_jlex(struct tr_jctx *c, const char *src, size_t len);

#endif
