/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/regex.h - regular expressions, as JSON Schema means them (ECMA-262), as automata.
 *
 * Taken:    literals, `.` (all but line ends), classes [a-z] [^...], \d \D \w \W \s \S (those of
 *           ECMA-262: digits and words are ASCII), \t \n \r \f \v \0 \cX \xHH \uHHHH \u{H...}, groups
 *           (...), (?:...), (?<name>...), |, ?, *, +, {m}, {m,}, {m,n}, each with a lazy ? that means
 *           nothing here, ^ and $ anywhere; lookahead (?=...) and (?!...) in front of the whole pattern,
 *           behind a ^ where the pattern may occur anywhere.
 * Refused,  each by its name: lookahead elsewhere, lookbehind, back references, possessive and atomic groups,
 *           \b and \B, flags in the pattern, \p{...}, POSIX classes, escapes that ECMA-262 does not know.
 *
 * Bounded: groups nest TR_RE_DEPTH deep, counts go to TR_RE_COUNT, what they make of the pattern to
 * TR_RE_PARTS, the automaton to TR_FA_STATES.
 *
 * Pure, any thread. */
#ifndef TR_GRAMMAR_REGEX_H
#define TR_GRAMMAR_REGEX_H

#include "base/err.h"
#include "grammar/build.h"
#include "grammar/fa.h"

#include <stddef.h>

enum {
    TR_RE_DEPTH = 100,
    TR_RE_COUNT = 10000,
    TR_RE_PARTS = 50000,
    TR_RE_SETS = 1024,
    TR_RE_LOOKS = 8
};

enum tr_re_place {
    TR_RE_WHOLE, /* the pattern describes the whole text */
    TR_RE_SEARCH /* it has to occur in the text, as `pattern` of JSON Schema */
};

/* The automaton of the texts that obey the pattern text[0, len), or NULL with a sentence in err and
 * *ret: -EINVAL refused, -E2BIG a bound, -ENOMEM. */
const struct tr_fa *tr_re_fa(struct tr_gbudget *w, const char *text, size_t len,
                             enum tr_re_place place, int *ret, struct tr_errbuf *err);

/* For an answer that is one text which obeys the pattern as a whole: 0 and *out, or what tr_re_fa says. */
int tr_gregex(struct tr_gbuild *b, const char *pattern, size_t len, tr_gnode *out,
              struct tr_errbuf *err);

#endif
