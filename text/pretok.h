/* SPDX-License-Identifier: Apache-2.0 */
/* text/pretok.h - cuts text into the words that byte-level BPE works on.
 *
 * A table from the names in tokenizer.ggml.pre to patterns, run by PCRE2 (compiled to machine code
 * where that is possible).  The patterns are our own files', never a client's.  They describe what
 * the tokenisers of the models do: GPT-2's rules; SmolLM's, which are the same after each digit
 * has been set apart; those of Llama 3 and Qwen 2.  Blank means the property White_Space, written
 * out, because PCRE2's \s also takes U+180E.
 *
 * Qwen 2's own tokeniser brings text to the normal form NFC first; a GGUF file does not say so, and
 * it is not done here (nor in llama.cpp): decomposed text gives other, equally decodable ids.
 *
 * Letters and numbers are those of PCRE2's Unicode tables (14 in release 10.42): newer ones count as
 * marks, which gives other ids than a newer reference, never other text.
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

/* Whether a word that is a piece by itself is never put together by merges (Llama 3). */
bool tr_pretok_ignore_merges(const struct tr_pretok *p);

/* Scratch memory of one encoding.  NULL when memory has run out. */
struct tr_pretok_run *tr_pretok_run_new(const struct tr_pretok *p);
void tr_pretok_run_free(struct tr_pretok_run *r); /* NULL is fine */

/* The end of the word that starts at text[pos] (pos < len); text is valid UTF-8 and pos on a
 * character.  The words of a text are its concatenation.  0 and *end > pos; -E2BIG if the matcher
 * reached its limits, -ENOMEM. */
int tr_pretok_next(const struct tr_pretok *p, struct tr_pretok_run *r, const char *text, size_t len,
                   size_t pos, size_t *end);

#endif
