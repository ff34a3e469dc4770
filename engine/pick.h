/* SPDX-License-Identifier: Apache-2.0 */
/* engine/pick.h - what is asked for of rows of logits, and what is answered: by the host, or by a backend
 * that samples by itself (backend.h: pick, collect).
 *
 * Path: http > tokens > subq > engine > [step] > ring > detok > event > socket */
#ifndef TR_ENGINE_PICK_H
#define TR_ENGINE_PICK_H

#include "engine/sample.h"

/* A token of a row of logits of the last forward pass: sampled as engine/sample.h says, or, if `echo`,
 * known and only looked up.  The history in.ids and in.drafts is what the rows of its sequence brought into
 * the KV blocks up to this one: a device may read it there. */
struct tr_pick {
    uint32_t out; /* row of the logits; rising from one pick to the next, some may be left out */
    bool echo;
    uint32_t id; /* with echo */
    bool wants_lp;
    struct tr_sample_in in; /* with echo, in.params->n_top alone counts */
};

struct tr_picked {
    uint32_t id;     /* or TR_NO_TOKEN */
    struct tr_lp lp; /* if it was wanted */
};

/* By the host, which sets the meaning: `logits` [n_vocab] are those of row p->out, and are changed; `row` names
 * the scratch, as in tr_sample. */
void tr_pick_by_host(struct tr_sampler *s, uint32_t row, float *logits, const struct tr_pick *p,
                     struct tr_picked *out);

#endif
