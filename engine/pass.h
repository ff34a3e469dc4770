/* SPDX-License-Identifier: Apache-2.0 */
/* engine/pass.h - the rows of one pass as the operations read them: a small plan, one upload.
 *
 * Path: http > tokens > subq > engine > [step] > ring > detok > event > socket
 *
 * All of it is one region of the host, filled anew for every pass, and where the device is apart a region
 * of the device's, into which it is copied; else they are the same.  Where things lie in it depends on the
 * numbers of rows alone: passes of a kind can be recorded (cpu_kernels/ops.h).
 *
 * Who may call: who runs the passes (engine/forward.h).  After open nothing allocates or fails. */
#ifndef TR_ENGINE_PASS_H
#define TR_ENGINE_PASS_H

#include "cpu_kernels/ops.h"
#include "engine/backend.h"

struct tr_pass_bounds {
    uint32_t n_vocab, n_ctx, n_kv_blocks;
    uint32_t max_rows, max_out;
    uint32_t
        max_seqs; /* in a batch; where the device is not apart nothing is theirs, and it may be 0 */
};

struct tr_pass {
    const struct tr_ops *ops;
    struct tr_dev *dev;
    struct tr_pass_bounds b;
    uint8_t *host; /* where it is filled */
    uint8_t *mem;  /* where operations read it */
    size_t len;    /* of either */
    size_t used;   /* by the pass at hand */
    /* Of the pass at hand, in mem. */
    const uint32_t *tokens;           /* [n_rows] */
    const uint32_t *out_row;          /* [n_out] the row that fills these logits */
    const struct tr_place *places;    /* [n_rows] */
    const struct tr_place *out_place; /* [n_out] */
    uint32_t n_rows, n_out;           /* those that are not there are counted */
    uint32_t n_pos;                   /* positions up to the highest of a row */
};

/* Bytes of the region. */
size_t tr_pass_bytes(const struct tr_pass_bounds *b);

/* 0, or -ENOMEM and a sentence.  ops and dev must outlive it. */
int tr_pass_open(struct tr_pass *p, const struct tr_pass_bounds *b, const struct tr_ops *ops,
                 struct tr_dev *dev, struct tr_errbuf *err);
void tr_pass_close(struct tr_pass *p); /* zeroed is fine */

/* The plan of a batch, on its way to the device; the pass before is over.  With as many rows as logits
 * there may be more than in the batch, n_rows of both: these are not there (TR_NO_POS).  The batch is
 * ours: asserted. */
void tr_pass_set(struct tr_pass *p, const struct tr_batch *batch, uint32_t n_rows, uint32_t n_out);

#endif
