/* SPDX-License-Identifier: Apache-2.0 */
/* text/vocab_priv.h - what a vocabulary is made of; for the files of text/ that build one or encode
 * with it. */
#ifndef TR_TEXT_VOCAB_PRIV_H
#define TR_TEXT_VOCAB_PRIV_H

#include "text/index.h"
#include "text/trie.h"
#include "text/vocab.h"

enum {
    TR_PIECE_CONTROL = 1, /* has a meaning, no text */
    TR_PIECE_USER = 2,    /* user-defined: matched in all text */
    TR_PIECE_UNUSED = 4,  /* never produced by encoding */
    TR_PIECE_EOG = 8,
    TR_PIECE_RAW = 16,   /* written as no text is: outside the alphabet of byte-level BPE, or with a
                            plain blank where SentencePiece has U+2581 */
    TR_PIECE_WHOLE = 32, /* byte-level BPE: encoding its bytes as one word gives this id */
    TR_PIECE_BYTE = 64   /* SentencePiece: one byte of a character that is no piece */
};

/* Pieces that joining neighbours may produce have none of these. */
#define TR_PIECE_NOT_JOINED                                                                        \
    (TR_PIECE_CONTROL | TR_PIECE_USER | TR_PIECE_UNUSED | TR_PIECE_RAW | TR_PIECE_BYTE)

struct tr_vocab {
    const char *model; /* static storage */
    uint32_t size;
    char *blob;     /* all pieces, one after the other */
    uint32_t *off;  /* [size + 1], piece id is blob[off[id], off[id + 1]) */
    uint8_t *flags; /* [size], TR_PIECE_* */
    size_t longest; /* piece, in bytes */
    int32_t bos;
    int32_t eos;
    int32_t unk;
    bool add_bos;
    char *chat_template; /* or NULL */
    size_t chat_template_len;

    struct tr_trie control; /* control tokens */
    struct tr_trie user;    /* user-defined tokens */
    struct tr_trie pieces;  /* sim only: what longest match chooses from */
    struct tr_bpe *bpe;     /* byte-level BPE, with pretok */
    struct tr_pretok *pretok;
    struct tr_nfc *nfc; /* NULL: text is cut as it is */
    struct tr_spm *spm; /* SentencePiece; neither: longest match over `pieces` */
};

/* A vocabulary of n pieces with `bytes` bytes in all: arrays are there, all is zero, ids are -1.  NULL
 * when memory has run out. */
struct tr_vocab *tr_vocab_new(const char *model, uint32_t n, size_t bytes);

/* Marks well-known end tokens and builds `control`, `user` and `longest` from blob, off and flags.
 * 0 or -ENOMEM. */
int tr_vocab_seal(struct tr_vocab *v);

#endif
