/* SPDX-License-Identifier: Apache-2.0 */
/* testlib/sim_pieces.h - what the tokens of the sim vocabulary are to a grammar, for tr_gpieces_build. */
#ifndef TR_TESTLIB_SIM_PIECES_H
#define TR_TESTLIB_SIM_PIECES_H

#include "base/sim_vocab.h"
#include "grammar/pieces.h"

static inline struct tr_gpiece_of sim_piece(void *arg, uint32_t id)
{
    static const struct {
        const char *bytes;
        size_t len;
        bool control;
    } vocab[] = {
#define X(type, text) {text, sizeof(text) - 1, (type) == TR_SIM_CONTROL},
#include "base/sim_vocab.def"
#undef X
    };

    (void)arg;
    if (id == TR_SIM_EOS || id == TR_SIM_IM_END)
        return (struct tr_gpiece_of){.kind = TR_GPIECE_EOG};
    if (vocab[id].control)
        return (struct tr_gpiece_of){.kind = TR_GPIECE_CONTROL};
    return (struct tr_gpiece_of){vocab[id].bytes, vocab[id].len, TR_GPIECE_TEXT};
}

#endif
