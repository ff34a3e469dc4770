/* SPDX-License-Identifier: Apache-2.0 */
/* base/sim_vocab.h - ids of the vocabulary of the sim backend (base/sim_vocab.def).
 *
 * The engine, which knows no text, needs the count and what ends an answer; text/ builds the same
 * vocabulary with its bytes.  Ids never change: recorded tests contain them.
 *
 *   [0, 256)                        byte b is id b
 *   [256, 260)                      control tokens
 *   [TR_SIM_TEXT, TR_SIM_TEXT_END)  words and characters: whole valid UTF-8 in any order
 *   [TR_SIM_TEXT_END, size)         characters in pieces: first, rest, first, rest, and so on */
#ifndef TR_BASE_SIM_VOCAB_H
#define TR_BASE_SIM_VOCAB_H

enum tr_sim_piece_type { TR_SIM_NORMAL, TR_SIM_CONTROL };

enum {
    TR_SIM_VOCAB_SIZE = 0
#define X(type, bytes) +1 /* NOLINT(bugprone-macro-parentheses) */
#include "base/sim_vocab.def"
#undef X
};

enum {
    TR_SIM_BOS = 256,      /* <|bos|> */
    TR_SIM_EOS = 257,      /* <|eos|>, ends an answer */
    TR_SIM_IM_START = 258, /* <|im_start|> */
    TR_SIM_IM_END = 259,   /* <|im_end|>, ends an answer */
    TR_SIM_TEXT = 260,
    TR_SIM_TEXT_END = TR_SIM_VOCAB_SIZE - 16
};

#endif
