/* SPDX-License-Identifier: Apache-2.0 */
/* text/pretok.h - cuts text into the words that byte-level BPE works on, as the rule says that the file names
 * (text/pretok_rules.h).
 *
 * The patterns are run by PCRE2, compiled to machine code where that is possible.  They are our own, never a
 * client's.  Letters and numbers are those of PCRE2's Unicode tables (14 in release 10.42): newer ones count
 * as marks, which gives other ids than a newer reference, never other text.
 *
 * Compiled once, then only read; each encoding brings its own run.  Any thread. */
#ifndef TR_TEXT_PRETOK_H
#define TR_TEXT_PRETOK_H

#include "base/err.h"
#include "base/gguf.h"

#include <stdbool.h>
#include <stddef.h>

struct tr_pretok;

/* NULL and a sentence that names the tokeniser if it is unknown.  Without jit, or where machine
 * code cannot be made, patterns are interpreted: the same words, more slowly. */
struct tr_pretok *tr_pretok_open(struct tr_str name, bool jit, struct tr_errbuf *err);
void tr_pretok_close(struct tr_pretok *p); /* NULL is fine */

unsigned tr_pretok_flags(const struct tr_pretok *p); /* TR_PRETOK_* of text/pretok_rules.h */

/* Scratch memory of one encoding.  NULL when memory has run out. */
struct tr_pretok_run *tr_pretok_run_new(const struct tr_pretok *p);
void tr_pretok_run_free(struct tr_pretok_run *r); /* NULL is fine */

/* The end of the word that starts at text[pos] (pos < len).  The words of a text are asked for from its
 * beginning, pos 0, one after the other: they are its concatenation.  The text is valid UTF-8; a word of
 * "falcon" may end within a character.  0 and *end > pos; -E2BIG if the matcher reached its limits,
 * -ENOMEM. */
int tr_pretok_next(const struct tr_pretok *p, struct tr_pretok_run *r, const char *text, size_t len,
                   size_t pos, size_t *end);

#endif
