/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_uni.h - what Python's str says about characters: classes and case.
 *
 * A "character" is as tr_jchar gives it: a code point, or negative for an invalid byte, which is in
 * no class and has no case. */
#ifndef TR_TEXT_JINJA_UNI_H
#define TR_TEXT_JINJA_UNI_H

#include "text/jinja_priv.h"

bool tr_juni_space(int32_t ch);     /* str.isspace */
bool tr_juni_alpha(int32_t ch);     /* str.isalpha */
bool tr_juni_decimal(int32_t ch);   /* str.isdecimal */
bool tr_juni_digit(int32_t ch);     /* str.isdigit */
bool tr_juni_alnum(int32_t ch);     /* str.isalnum */
bool tr_juni_printable(int32_t ch); /* str.isprintable */
bool tr_juni_upper(int32_t ch);     /* an uppercase letter */
bool tr_juni_lower(int32_t ch);     /* a lowercase letter */
bool tr_juni_title(int32_t ch);     /* a titlecase letter */

enum tr_juni_case {
    TR_JUNI_UPPER,
    TR_JUNI_LOWER,
    TR_JUNI_CAPITAL,
    TR_JUNI_TITLE,
    TR_JUNI_SWAP,
    TR_JUNI_FOLD
};

/* str.upper, lower, capitalize, title, swapcase, casefold: full mappings, so the length may change. */
struct tr_jv *tr_juni_map(struct tr_jctx *c, struct tr_jstr s, enum tr_juni_case how);

/* Appends the upper- or titlecase form of one character. */
void tr_juni_add(struct tr_jbuf *b, int32_t ch, const char *raw, size_t n, enum tr_juni_case how,
                 bool user);

/* Encodes a code point; returns its length. */
size_t tr_juni_encode(int32_t ch, char out[4]);

#endif
