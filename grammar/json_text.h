/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/json_text.h - how JSON is written by a model that is held to a grammar.
 *
 * Of the texts of RFC 8259 those are allowed that a model would write and that come to an end:
 *   blanks    one space, or a line end and up to TR_JSON_INDENT spaces or tabs; behind { [ and , and
 *             before ] and }.  Behind : at most one space.  None anywhere else, none around the value.
 *   strings   free ones: all characters and all escapes, \u with whole surrogate pairs.  Keys, and
 *             strings that must obey a pattern or be one of some, have one way to be written: as they
 *             are; \" \\ \b \f \n \r \t, and \u00XX for other control characters.
 *   numbers   up to 18 digits, 18 behind the point, an exponent of two: all of them are finite as a
 *             double, and integers fit 64 bits.
 *   nesting   as deep as TR_GRAM_DEPTH lets it (match.h).
 *
 * One writer serves one builder; it makes each rule once, when it is first asked for. */
#ifndef TR_GRAMMAR_JSON_TEXT_H
#define TR_GRAMMAR_JSON_TEXT_H

#include "grammar/build.h"
#include "grammar/cset.h"
#include "grammar/fa.h"

#include <stddef.h>

enum { TR_JSON_INDENT = 20, TR_JSON_DIGITS = 18, TR_JSON_FRACTION = 18 };

/* All TR_G_NONE at first but b. */
struct tr_gjson {
    struct tr_gbuild *b;
    tr_gnode blank, string, chars, integer, number, value, object, array;
};

tr_gnode tr_gj_blank(struct tr_gjson *j);   /* the blanks that may stand behind {, or nothing */
tr_gnode tr_gj_string(struct tr_gjson *j);  /* any string */
tr_gnode tr_gj_chars(struct tr_gjson *j);   /* one character of a free string */
tr_gnode tr_gj_integer(struct tr_gjson *j); /* without fraction and exponent */
tr_gnode tr_gj_number(struct tr_gjson *j);
tr_gnode tr_gj_value(struct tr_gjson *j); /* anything */
tr_gnode tr_gj_object(struct tr_gjson *j);
tr_gnode tr_gj_array(struct tr_gjson *j);

/* The characters of a set, each as it is written in a string that has one way to be written. */
tr_gnode tr_gj_set(struct tr_gbuild *b, const struct tr_cset *set);
/* The string s[0, n), which is UTF-8, with its quotes. */
tr_gnode tr_gj_literal(struct tr_gbudget *w, struct tr_gbuild *b, const char *s, size_t n);

/* json_object: any object. */
tr_gnode tr_gjson_object(struct tr_gbuild *b);

#endif
