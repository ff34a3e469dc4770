/* SPDX-License-Identifier: Apache-2.0 */
/* text/encode.h - text to token ids.
 *
 * Path: http > [tokens] > subq > engine > step > ring > detok > event > frame > socket
 *
 * The text is first cut at control tokens (where they are wanted) and at user-defined tokens, the
 * leftmost and then the longest first; what lies between is brought to NFC where the model's own tokeniser does
 * that (text/nfc.h), and goes through the pre-tokeniser (text/pretok.h) and byte-level BPE (text/bpe.h), or through SentencePiece's BPE (text/spm.h), or, for
 * the sim vocabulary, longest match.
 *
 * Any bytes are accepted.  NUL is a byte like others.  To byte-level BPE, bytes that are not UTF-8 are
 * words of their own, one word for each run of them; a byte for which the vocabulary has no piece is left
 * out without a trace, as the reference tokenisers do: U+0004 in SmolLM2 gives no ids.
 *
 * User-defined tokens (GGUF type 4) are text with an id of their own: they are matched in
 * all text, also in what a user typed.  Control tokens are matched only outside it.
 *
 * No BOS is added.  There are at most as many ids as bytes, and one more for each blank that is added
 * in front (tr_vocab_space_prefix); three times as many of text that NFC makes longer.  Time is n log n in the
 * length of the text; memory is at most about 32 bytes for each byte of the longest word, and where text is
 * brought to NFC a copy of it, given back before the return.  Any thread. */
#ifndef TR_TEXT_ENCODE_H
#define TR_TEXT_ENCODE_H

#include "text/span.h"
#include "text/vocab.h"

/* Longest text, in bytes (positions are 32-bit inside). */
#define TR_ENCODE_TEXT_MAX ((size_t)1 << 30)

/* Ids of `text` into ids[cap]; *n becomes the number of ids.  Control tokens are recognised in the
 * whole text if parse_special, else nowhere.
 *
 * 0; -ENOSPC if cap was too small: *n is the full count then too, and the first cap ids are
 * right (cap 0 with ids NULL just counts); -E2BIG if the text is longer than
 * TR_ENCODE_TEXT_MAX or the pattern matcher reached its limits; -ENOMEM.  On -E2BIG and -ENOMEM
 * *n is unchanged. */
int tr_encode(const struct tr_vocab *v, const char *text, size_t len, bool parse_special,
              int32_t *ids, size_t cap, size_t *n);

/* The same, with control tokens recognised only where they do not overlap any of user[n_user]:
 * what a user typed never becomes a control token.  Spans are ascending and disjoint, empty
 * ones are ignored; they may touch.  Span borders do not cut words: text is encoded as if it
 * had been written in one piece. */
int tr_encode_spans(const struct tr_vocab *v, const char *text, size_t len,
                    const struct tr_span *user, size_t n_user, int32_t *ids, size_t cap, size_t *n);

/* How many ids a text has at least, from its length (0: that is not known); tells without encoding that it
 * is too long. */
size_t tr_encode_least(const struct tr_vocab *v, const char *text, size_t len);

#endif
