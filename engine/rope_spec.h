/* SPDX-License-Identifier: Apache-2.0 */
/* engine/rope_spec.h - by how much a model turns its queries and keys per position: the base, and
 * the way its angles are stretched for contexts longer than it was first trained with.
 *
 * GGUF files carry five ways.  In each, pair i of n_rot/2 turns by base^(-2i/n_rot) per position,
 * divided by a factor of its own where the file has the tensor for it (Llama 3's scaling is nothing
 * but that: rope_freqs.weight), and then:
 *   linear    all angles are divided by one factor
 *   yarn      slow pairs are divided, fast ones are not, with a ramp between; cosines and sines grow
 *             by 1 + 0.1 ln(factor).  Peng et al., https://arxiv.org/abs/2309.00071
 *   longrope  two tensors of factors: one for contexts up to the original length, one for longer
 *             ones.  Ding et al., https://arxiv.org/abs/2402.13753
 * The longrope pair is chosen by the context that is served, not by the length of a sequence: K is
 * stored turned, so a choice that changed on the way would not agree with what is stored. */
#ifndef TR_ENGINE_ROPE_SPEC_H
#define TR_ENGINE_ROPE_SPEC_H

#include "engine/keys.h"

enum tr_rope_scaling { TR_ROPE_PLAIN, TR_ROPE_LINEAR, TR_ROPE_YARN, TR_ROPE_LONG };

struct tr_rope_spec {
    enum tr_rope_scaling scaling;
    double base;
    double factor; /* by which angles are divided (linear, yarn) */
    double beta_fast,
        beta_slow;       /* yarn: turns in the original context where the ramp begins, ends */
    uint32_t n_ctx_orig; /* yarn, longrope: context of the first training */
    double amplitude;    /* of cosines and sines */
};

/* Reads the keys.  n_ctx is what the model was trained for.  0, or -EINVAL and a sentence. */
int tr_rope_spec_read(struct tr_rope_spec *s, const struct tr_keys *k, uint32_t n_ctx);

/* freq[i], n_rot/2 of them: the angle of pair i per position.  `factors` [n_rot/2]: what the file
 * divides each by, or NULL. */
void tr_rope_spec_freqs(const struct tr_rope_spec *s, uint32_t n_rot, const float *factors,
                        double *freq);

#endif
