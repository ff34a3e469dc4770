/* SPDX-License-Identifier: Apache-2.0 */
/* text/spm.h - byte-pair encoding by scores, as SentencePiece does it (models "llama" in GGUF:
 * Gemma, Llama 2, Mistral).
 *
 * The characters of a text are pieces; of all neighbours whose join is a piece too, the one with
 * the highest score is made first, the leftmost of equals, until there is none (Kudo and Richardson,
 * "SentencePiece", 2018; its type BPE).  A character that is no piece in the end becomes the byte tokens
 * of its bytes, or, in a vocabulary that lacks one of them, the unknown token, one for a run of
 * such characters.  Nothing is normalised but blanks:
 *
 *   - U+2581 is how a file writes a blank.  Pieces are kept with blanks, and U+2581 in a text is a blank
 *     too: the reference cannot tell them apart either.
 *   - add_space_prefix (tokenizer.ggml.add_space_prefix, true if the file is silent): a text starts
 *     with a blank that nobody wrote, so that its first word is a word like others.  A text starts
 *     where encoding starts and after each control token.
 *   - remove_extra_whitespaces: blanks at both ends are dropped, several in a row are one.
 *
 * Control, unknown and user-defined pieces are never made by joining; neither are unused ones, through
 * which SentencePiece would pass on its way to longer pieces (no known file needs it).
 *
 * There are no words by rule, but hardly a piece has a blank behind anything else ("> </" is Gemma's only
 * one): where no piece of the vocabulary has this byte before a blank, no join can cross, and what
 * lies between is joined by itself, as if the text had been in one piece.  A word of n bytes takes n log n
 * steps. */
#ifndef TR_TEXT_SPM_H
#define TR_TEXT_SPM_H

#include "text/ids.h"
#include "text/pairs.h"
#include "text/vocab.h"

struct tr_spm;

/* What the file says about blanks. */
struct tr_spm_rules {
    bool space_prefix;
    bool squeeze; /* remove_extra_whitespaces */
};

/* Scratch memory and place of one encoding; zero is the start. */
struct tr_spm_run {
    char *text; /* with blanks as the pieces have them */
    size_t text_cap;
    struct tr_spm_sym *sym;
    size_t cap; /* symbols there is room for */
    struct tr_pairs pairs;
    bool inside;  /* the text has begun: no blank is added */
    bool unknown; /* the last id was the unknown token */
};

/* Reads the scores.  NULL and a sentence on any fault.  Keeps v, which must outlive it. */
struct tr_spm *tr_spm_open(const struct tr_vocab *v, struct tr_gguf_array scores,
                           struct tr_spm_rules rules, struct tr_errbuf *err);
void tr_spm_close(struct tr_spm *s); /* NULL is fine */

struct tr_spm_rules tr_spm_rules(const struct tr_spm *s);

/* Whether all of any text comes back from its ids, but for how blanks were written: the vocabulary has every
 * byte, and none are dropped. */
bool tr_spm_keeps_all(const struct tr_spm *s);

/* Appends the ids of text[0, len), any bytes, between two special tokens.  `ends`: the text ends
 * behind it, for it is the last or a control token comes next.  0 or -ENOMEM; len < 2^31. */
int tr_spm_text(const struct tr_spm *s, struct tr_spm_run *run, const char *text, size_t len,
                bool ends, struct tr_ids *out);

/* A special token comes next (the caller appends it).  Before a user-defined one at the start of a text the
 * blank that is added stands alone.  0 or -ENOMEM. */
int tr_spm_special(const struct tr_spm *s, struct tr_spm_run *run, bool control,
                   struct tr_ids *out);

void tr_spm_run_fini(struct tr_spm_run *run);

/* From the text of a piece in the file: writes at most len bytes to out, with blanks for U+2581, and returns
 * how many. */
size_t tr_spm_unmap(const char *text, size_t len, char *out);

/* The byte that "<0x0A>" stands for, -1 if it is not written so. */
int tr_spm_byte(const char *text, size_t len);

#endif
