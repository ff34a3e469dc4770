/* SPDX-License-Identifier: Apache-2.0 */
/* text/vocab.h - the vocabulary of a model: ids, the bytes they stand for, what they mean.
 *
 * Made once in a frontend, before its worker threads start, from a GGUF file (or the built-in
 * vocabulary of the sim backend); immutable from then on, so any thread may read it.  It copies
 * all it needs: the file may be closed afterwards.
 *
 * The file is input.  Checked: the arrays of tokens, types and scores have one length, ids of
 * special tokens lie in the vocabulary, pieces are at most TR_VOCAB_PIECE_MAX bytes, both halves of
 * each merge and their join are pieces, scores are numbers, byte tokens are written as such.  A
 * tokenizer.ggml.model other than "gpt2" (byte-level BPE) and "llama" (SentencePiece's BPE) or an unknown
 * tokenizer.ggml.pre of byte-level BPE is refused by name.
 *
 * Keys and token types: the GGUF specification in the ggml repository (docs/gguf.md). */
#ifndef TR_TEXT_VOCAB_H
#define TR_TEXT_VOCAB_H

#include "base/err.h"
#include "base/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest piece, in bytes.  Bounds what one token can add to a stream. */
#define TR_VOCAB_PIECE_MAX 1024

struct tr_vocab;

/* NULL and a sentence in `err` on any fault. */
struct tr_vocab *tr_vocab_open(const struct tr_gguf *g, struct tr_errbuf *err);

/* The vocabulary of base/sim_vocab.def.  NULL only when memory has run out. */
struct tr_vocab *tr_vocab_sim(void);

void tr_vocab_close(struct tr_vocab *v); /* NULL is fine */

uint32_t tr_vocab_size(const struct tr_vocab *v);

/* tokenizer.ggml.model: "gpt2" or "llama"; or "sim". */
const char *tr_vocab_model(const struct tr_vocab *v);

/* The raw bytes id stands for; a control token gives its name.  Not ended by NUL, may be no valid
 * UTF-8 by itself.  Borrowed until tr_vocab_close.  NULL and length 0 for an id out of range. */
const char *tr_vocab_bytes(const struct tr_vocab *v, int32_t id, size_t *len);

/* Control token (GGUF types "control" and "unknown"): has a meaning, not a text.  An id out of
 * range is none. */
bool tr_vocab_is_control(const struct tr_vocab *v, int32_t id);

/* Ends an answer: the ids the file names (eos, eot, eom) and tokens with well-known names such
 * as <|im_end|>, <|endoftext|>, <|eot_id|>, <end_of_turn>. */
bool tr_vocab_is_eog(const struct tr_vocab *v, int32_t id);

/* All tokens for which tr_vocab_is_eog holds, ascending; returns how many there are, writes at most
 * cap.  For the engine, which knows no vocabulary. */
size_t tr_vocab_eog_ids(const struct tr_vocab *v, int32_t *ids, size_t cap);

/* -1 if the file names none. */
int32_t tr_vocab_bos(const struct tr_vocab *v);
int32_t tr_vocab_eos(const struct tr_vocab *v);

/* Whether a plain prompt wants a BOS in front: tokenizer.ggml.add_bos_token, if absent true for "llama" and
 * some pre-tokenisers (text/pretok_rules.h); false if there is no BOS.  Encoding never adds one: the caller
 * does. */
bool tr_vocab_add_bos(const struct tr_vocab *v);

/* Whether encoding begins a text with a blank that nobody wrote, which decoding takes away again
 * (text/spm.h). */
bool tr_vocab_space_prefix(const struct tr_vocab *v);

/* tokenizer.chat_template, valid UTF-8 and ended by NUL beyond *len, or NULL if the file has none. */
const char *tr_vocab_chat_template(const struct tr_vocab *v, size_t *len);

/* The id whose bytes are exactly these (the lowest, if several), or -1.  Looks at all of them: for start
 * and tests. */
int32_t tr_vocab_find(const struct tr_vocab *v, const char *bytes, size_t len);

#endif
