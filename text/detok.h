/* SPDX-License-Identifier: Apache-2.0 */
/* text/detok.h - token ids to text, one at a time.
 *
 * Path: http > tokens > subq > engine > step > ring > [detok] > event > frame > socket
 *
 * The bytes of the tokens are joined and read as UTF-8 (base/utf8.h): text comes out as soon as it
 * is certain, bytes that can never become valid as U+FFFD at once, and only the beginning of an
 * unfinished character is held.  So no character is ever sent by halves or taken back.
 *
 * The state is plain and small: copy it by assignment, go back to a copy at will. */
#ifndef TR_TEXT_DETOK_H
#define TR_TEXT_DETOK_H

#include "base/utf8.h"
#include "text/vocab.h"

struct tr_detok {
    const struct tr_vocab *vocab; /* borrowed, outlives this */
    struct tr_utf8 utf8;
    bool skip_special; /* control tokens add no bytes; a character may be completed across one */
    bool begins;       /* the blank of the first token is the tokeniser's own */
};

/* Most bytes one token can add. */
#define TR_DETOK_TEXT_MAX TR_UTF8_OUT_MAX(TR_VOCAB_PIECE_MAX)

void tr_detok_init(struct tr_detok *d, const struct tr_vocab *v, bool skip_special);

/* Before the first push: the ids are a text from its beginning, not an answer that goes on from one.  The
 * blank that encoding put in front (tr_vocab_space_prefix) is left out. */
void tr_detok_begins(struct tr_detok *d);

/* Takes one id; writes what is certain now to out (room for TR_DETOK_TEXT_MAX) and its
 * length to *len.  0, or -EINVAL for an id outside the vocabulary (ids come from another process);
 * state and *len are unchanged then. */
int tr_detok_push(struct tr_detok *d, int32_t id, char *out, size_t *len);

/* No more ids come: an unfinished character becomes U+FFFD.  Returns the bytes written. */
size_t tr_detok_flush(struct tr_detok *d, char out[TR_UTF8_FLUSH_MAX]);

/* True while bytes are held back. */
static inline bool tr_detok_held(const struct tr_detok *d)
{
    return d->utf8.n != 0;
}

#endif
