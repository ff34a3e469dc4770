/* SPDX-License-Identifier: Apache-2.0 */
/* text/stop.h - stop strings, found in a stream without showing any part of them.
 *
 * The strings of a request are compiled once into a set, which never changes and may be shared by
 * all its choices and cursors.  The state of a stream is one number: the node of an automaton
 * (Aho and Corasick, "Efficient string matching", 1975), that is the longest suffix of the text
 * so far that is a prefix of a stop string.  That suffix is what must be held back, and it can be
 * read from the set: nothing else has to be remembered.  Copy the state by assignment.
 *
 * The match is the one that ends first, as if bytes came one at a time, and the longest of those
 * that end there.  The result does not depend on how the text was cut. */
#ifndef TR_TEXT_STOP_H
#define TR_TEXT_STOP_H

#include "base/gguf.h" /* struct tr_str */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TR_STOP_STRINGS_MAX 32 /* strings in a set */
#define TR_STOP_LEN_MAX 1024   /* bytes in a string */

struct tr_stopset;

/* Compiles n strings (copied).  0; -EINVAL if n is 0 or more than TR_STOP_STRINGS_MAX, or a string
 * is empty, longer than TR_STOP_LEN_MAX or no valid UTF-8; -ENOMEM. */
int tr_stopset_open(const struct tr_str *strings, size_t n, struct tr_stopset **out);
void tr_stopset_close(struct tr_stopset *s); /* NULL is fine */

size_t tr_stopset_n(const struct tr_stopset *s); /* strings in it */

/* String i as it was given; borrowed until tr_stopset_close. */
struct tr_str tr_stopset_at(const struct tr_stopset *s, size_t i);

/* Where a stream stands.  0 is the start. */
typedef uint16_t tr_stop_state;

/* The text that is held back in `state`: a proper prefix of a stop string, borrowed from the set. */
struct tr_str tr_stop_held(const struct tr_stopset *s, tr_stop_state state);

/* Takes text[0, len) up to the first match.  Returns -1 if there was none; *state then tells what is
 * held of (held before + text).  Else the index of the string that matched (the lowest, if it was given
 * twice); *used is the number of bytes up to its end, and *state stands at it: do not go on. */
int tr_stop_push(const struct tr_stopset *s, tr_stop_state *state, const char *text, size_t len,
                 size_t *used);

#endif
