/* SPDX-License-Identifier: Apache-2.0 */
/* text/bpe.h - byte-level byte-pair encoding of one word.
 *
 * The word's bytes are pieces; of all neighbours that a merge joins, the pair with the lowest rank
 * is joined first, the leftmost of equals, until none is left (Sennrich et al., "Neural machine
 * translation of rare words with subword units", 2016; over bytes as in GPT-2).  Bytes without
 * a piece are left out before, so that their neighbours meet.
 *
 * Pairs wait in a heap and pieces hang in a list, so a word of n bytes takes n log n steps, not
 * n²: 200,000 equal letters are one word.  (Equal bytes are even joined in groups, see bpe.c.)
 *
 * GPT-2's alphabet: a GGUF file writes each byte of a piece as a printable character, those
 * that are none as U+0100 and up in order. */
#ifndef TR_TEXT_BPE_H
#define TR_TEXT_BPE_H

#include "text/ids.h"
#include "text/pairs.h"
#include "text/vocab.h"

struct tr_bpe;

/* Scratch memory of one encoding; zero is the start. */
struct tr_bpe_run {
    struct tr_bpe_sym *sym;
    size_t cap; /* symbols there is room for */
    struct tr_pairs pairs;
};

/* Reads the merges.  If ignore_merges, a word that is a piece is that piece, whatever the merges
 * would make.  Marks TR_PIECE_WHOLE in v.  NULL and a sentence on any fault.  Keeps v, which must
 * outlive it. */
struct tr_bpe *tr_bpe_open(struct tr_vocab *v, struct tr_gguf_array merges, bool ignore_merges,
                           struct tr_errbuf *err);
void tr_bpe_close(struct tr_bpe *b); /* NULL is fine */

/* How many bytes of a text are not left out, for a vocabulary may lack some. */
size_t tr_bpe_kept(const struct tr_bpe *b, const char *text, size_t len);

/* Appends the ids of one word of any bytes.  0 or -ENOMEM; len < 2^31. */
int tr_bpe_word(const struct tr_bpe *b, struct tr_bpe_run *run, const char *word, size_t len,
                struct tr_ids *out);

void tr_bpe_run_fini(struct tr_bpe_run *run);

/* From GPT-2's alphabet to bytes: writes at most len bytes to out and returns how many, or -1 if the
 * text has a character that is not in the alphabet. */
ptrdiff_t tr_bpe_unmap(const char *text, size_t len, char *out);

#endif
