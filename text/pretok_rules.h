/* SPDX-License-Identifier: Apache-2.0 */
/* text/pretok_rules.h - what is known of the pre-tokenisers that files name in tokenizer.ggml.pre: a table
 * from names to patterns; for pretok.c and its tests.
 *
 * A rule is one pattern or several.  Each cuts what the one before it has left in one piece: its matches are
 * pieces, and so is what lies between two of them.  The pieces of the last are the words.
 *
 * The patterns say what the models' own tokenisers do (tokenizer.json of Hugging Face's tokenizers, which
 * searches with Oniguruma), written for PCRE2: Oniguruma's \s is the property White_Space, which PCRE2's is
 * not (it takes U+180E), so it is spelt out; and where a repetition could be tried anew from each of its
 * places, it is possessive or looks behind, which finds the same and keeps the time in proportion to the
 * text.  Names and which of them are the same rule: llama.cpp, src/llama-vocab.cpp. */
#ifndef TR_TEXT_PRETOK_RULES_H
#define TR_TEXT_PRETOK_RULES_H

#include "base/gguf.h" /* struct tr_str */

#include <stdbool.h>

enum { TR_PRETOK_STAGES = 6 };

struct tr_pretok_rule {
    const char *pattern[TR_PRETOK_STAGES]; /* NULL: no more of them */
    unsigned bytes_from; /* to this one and those after it bytes are the characters; 0: to none */
};

enum {
    TR_PRETOK_NFC = 1,   /* text is brought to the normal form NFC first */
    TR_PRETOK_WHOLE = 2, /* a word that is a piece is that piece, whatever the merges would make */
    TR_PRETOK_BOS = 4    /* a prompt begins with BOS, if the file does not say */
};

struct tr_pretok_name {
    const char *name;
    const struct tr_pretok_rule *rule;
    unsigned flags;
};

/* NULL if the name is unknown. */
const struct tr_pretok_name *tr_pretok_named(struct tr_str name);

/* Name i of all that are known, NULL beyond them. */
const struct tr_pretok_name *tr_pretok_name_at(size_t i);

#endif
