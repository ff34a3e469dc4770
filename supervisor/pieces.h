/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/pieces.h - the vocabulary as engines need it for answers that obey a grammar
 * (grammar/pieces.h): made once, where the vocabulary is read anyway, into a sealed memfd that nobody can
 * change. */
#ifndef TR_SUPERVISOR_PIECES_H
#define TR_SUPERVISOR_PIECES_H

#include "base/err.h"

#include <stdint.h>

struct tr_vocab;

struct tr_pieces {
    int fd; /* the caller's */
    uint64_t bytes;
    uint64_t ns; /* that it took */
};

/* eog[0, n_eog): the tokens at which engines end an answer.  0, or -errno and a sentence. */
int tr_pieces_make(struct tr_pieces *p, const struct tr_vocab *v, const uint32_t *eog,
                   uint32_t n_eog, struct tr_errbuf *err);

#endif
