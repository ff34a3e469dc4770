/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/pieces.h - the bytes of all tokens as one sorted trie, in a flat image.
 *
 * Made once from a vocabulary, which this folder does not know, by a process that may allocate; read by
 * the engine from memory it cannot write.  Opening checks all that readers rely on, in linear time.
 *
 * Tokens of kind text lie at the node their bytes lead to.  Control tokens have no bytes here: only token
 * edges of a program reach them.  Those that end an answer are listed.
 *
 * Format, native byte order (it never leaves the machine), aligned to 8:
 *   header   struct tr_gpieces_head
 *   nodes    (n_nodes + 1) * struct tr_gpiece: depth first, children by byte; node 0 is the root
 *   ids      n_ids * u32: tokens of the nodes in the order of the nodes
 *   eog      n_eog * u32, ascending */
#ifndef TR_GRAMMAR_PIECES_H
#define TR_GRAMMAR_PIECES_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* Longest token in bytes, and the most tokens. */
#define TR_GPIECE_MAX 1024
#define TR_GPIECES_VOCAB_MAX (1u << 24)

enum tr_gpiece_kind { TR_GPIECE_TEXT, TR_GPIECE_CONTROL, TR_GPIECE_EOG };

struct tr_gpiece_of {
    const void *bytes; /* of TR_GPIECE_TEXT */
    size_t len;
    enum tr_gpiece_kind kind;
};

/* What id is.  A text of no bytes or of more than TR_GPIECE_MAX can never be sampled. */
typedef struct tr_gpiece_of tr_gpiece_fn(void *arg, uint32_t id);

struct tr_gpieces_head {
    uint32_t magic, version;
    uint64_t len;
    uint32_t n_vocab, n_nodes, n_ids, n_eog;
    uint32_t max_len, reserved; /* bytes of the longest token */
};

/* The subtree of node v is [v, skip); its first child is v + 1, if v + 1 < skip, and the skip of a child is
 * its next sibling.  Tokens at v: ids[first .. first of v + 1). */
struct tr_gpiece {
    uint32_t skip;
    uint32_t first_byte; /* first id index | byte that leads here << 24 */
    uint64_t
        below; /* classes of all bytes on the ways down from here, TR_GPIECE_BROKEN, and height */
};

struct tr_gpieces {
    const struct tr_gpiece *nodes;
    const uint32_t *ids, *eog;
    uint32_t n_vocab, n_nodes, n_ids, n_eog, max_len;
};

/* Makes the image: memory of malloc that the caller frees.  0, -ENOMEM or -E2BIG. */
int tr_gpieces_build(uint32_t n_vocab, tr_gpiece_fn *of, void *arg, void **image, size_t *len);

/* 0, or -EINVAL and a sentence.  `image` is borrowed, aligned to 8, and stays as it is. */
int tr_gpieces_open(struct tr_gpieces *v, const void *image, size_t len, struct tr_errbuf *err);

static inline uint32_t tr_gpiece_first(const struct tr_gpiece *n)
{
    return n->first_byte & 0xffffff;
}

static inline uint8_t tr_gpiece_byte(const struct tr_gpiece *n)
{
    return (uint8_t)(n->first_byte >> 24);
}

/* Classes of bytes, below 64: each ASCII punctuation mark is one, as are blanks, digits, upper case, lower
 * case, and the kinds of bytes of UTF-8. */
extern const uint8_t tr_gpiece_class[256];

/* The classes of bytes from 0x80 on, and of those below. */
#define TR_GPIECE_HIGH ((UINT64_C(1) << 54) - (UINT64_C(1) << 43))
#define TR_GPIECE_ASCII ((UINT64_C(1) << 43) - 1)
/* Not a class: some way down from here, begun between characters, is not UTF-8. */
#define TR_GPIECE_BROKEN (UINT64_C(1) << 63)

/* Nor these: the longest way down, in bytes; the largest value stands for more, too. */
#define TR_GPIECE_HEIGHT 56
#define TR_GPIECE_HEIGHT_MAX 127u

static inline uint32_t tr_gpiece_height(const struct tr_gpiece *n)
{
    return n->below >> TR_GPIECE_HEIGHT & TR_GPIECE_HEIGHT_MAX;
}

/* What must be accepted: classes, and TR_GPIECE_BROKEN, which nothing accepts. */
static inline uint64_t tr_gpiece_needs(const struct tr_gpiece *n)
{
    return n->below & ~((uint64_t)TR_GPIECE_HEIGHT_MAX << TR_GPIECE_HEIGHT);
}

/* UTF-8 as eight states (The Unicode Standard, table 3-7).  TR_GUTF8_NONE: `byte` cannot follow. */
enum tr_gutf8 {
    TR_GUTF8_BETWEEN, /* characters */
    TR_GUTF8_LAST,    /* one of 80..BF ends it */
    TR_GUTF8_TWO,     /* two more */
    TR_GUTF8_E0,
    TR_GUTF8_ED,
    TR_GUTF8_THREE,
    TR_GUTF8_F0,
    TR_GUTF8_F4,
    TR_GUTF8_NONE,
};

enum tr_gutf8 tr_gutf8_next(enum tr_gutf8 at, uint8_t byte);

#endif
