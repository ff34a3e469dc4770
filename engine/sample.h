/* SPDX-License-Identifier: Apache-2.0 */
/* engine/sample.h - from logits to the next token, and to log-probabilities.
 *
 * Path: http > tokens > subq > engine > [step] > ring > detok > event > socket
 *
 * In this order, each step on what the one before left:
 *   1  logit_bias is added
 *   2  repetition penalty r on ids in prompt or output: logit > 0 ? logit / r : logit * r; then
 *      minus frequency * count in the output, minus presence if in the output
 *   3  masks: end-of-turn ids with ignore_eos; they and stop ids before min_tokens; ids that the
 *      grammar of the answer does not allow (constrain.h)
 *   4  temperature below TR_GREEDY_BELOW: the largest logit, ties to the lowest id; done
 *   5  logits / temperature; top_k: all that reach the k-th largest (ties stay)
 *   6  top_p: in falling order, a token stays if the sum of those before it is < top_p of the whole
 *   7  min_p: a token stays with p >= min_p * max p
 *   8  one draw: u in [0, 1) picks by running sum, in falling order (ties by rising id) when there
 *      was a cut, by rising id when there was none
 * Falling order is that of the logits, ties by rising id.  Arithmetic: float for whole-vocabulary sums,
 * double for everything that is cut, touched or drawn; exponentials are base/exp.h's, sums are made as
 * engine/dist.h says.  What is cut is decided by the sums in falling order alone, so how the largest
 * logits are searched does not matter: a device searches otherwise and gives the same bits
 * (cuda_kernels/sample.h).  Logarithms are taken of results only.
 *
 * Everything is a function of one row: which thread does it, and what else is in the batch, does
 * not matter (DESIGN N5).
 *
 * Log-probabilities are those of the model: log-softmax of the raw logits, before bias, penalties,
 * masks and temperature, with a grammar as without.  A forced token (bias 100) therefore has the small but finite value the
 * model gave it.  What is not finite in the logits is reported as TR_LOGPROB_MIN. */
#ifndef TR_ENGINE_SAMPLE_H
#define TR_ENGINE_SAMPLE_H

#include "engine/dist.h"
#include "shm/extra.h"
#include "shm/lpring.h"
#include "shm/request.h"

#include <stddef.h>

/* Where a distribution at that temperature no longer differs from its maximum for any two logits
 * worth telling apart; 1 / temperature stays an ordinary number. */
#define TR_GREEDY_BELOW 1e-3
#define TR_LOGPROB_MIN (-9999.0F)

/* With a mask: no id that it allows is left. */
#define TR_NO_TOKEN UINT32_MAX

struct tr_sample_in {
    const struct tr_params *params; /* validated */
    const struct tr_extra *extra;   /* NULL: neither bias nor stop ids */
    const uint32_t *ids;            /* [prompt_len + n_out - n_drafts] */
    uint32_t prompt_len, n_out;
    const uint32_t *drafts; /* [n_drafts], the last of the n_out: they are not in `ids` */
    uint32_t n_drafts;
    const uint32_t *eog; /* [n_eog] */
    uint32_t n_eog;
    const uint32_t *mask; /* [(n_vocab + 31) / 32]: bit set, the grammar allows it; NULL: all are */
};

struct tr_sampler;

/* Scratch for `rows` rows at a time; *bytes (may be NULL) is their address space, touched only as
 * far as it is used.  NULL without memory. */
struct tr_sampler *tr_sampler_new(uint32_t rows, uint32_t n_vocab, uint32_t n_ctx, uint64_t *bytes);
void tr_sampler_free(struct tr_sampler *s); /* NULL is fine */

/* The next token, or TR_NO_TOKEN.  Any thread; `row` names the scratch, one call at a time for each.  `logits`
 * [n_vocab] are changed.  With lp, *lp is filled for the token that was chosen. */
uint32_t tr_sample(struct tr_sampler *s, uint32_t row, float *logits, const struct tr_sample_in *in,
                   struct tr_lp *lp);

/* *lp for a token that is known (an echoed prompt). */
void tr_sample_logprob(struct tr_sampler *s, uint32_t row, const float *logits, uint32_t id,
                       uint32_t n_top, struct tr_lp *lp);

/* The logarithm of the sum of all exponentials, where those of (logit - max) sum up to `sum`; and the
 * log-probability of a logit.  The one place where they are taken, whoever summed up. */
double tr_sample_lse(float max, double sum);
float tr_sample_logprob_at(float logit, double lse);

/* The distribution that tr_sample draws from: ids with a probability above 0 into out [n_vocab]
 * (v is the probability); returns how many, 0 where tr_sample says TR_NO_TOKEN. */
uint32_t tr_sample_probs(struct tr_sampler *s, uint32_t row, float *logits,
                         const struct tr_sample_in *in, struct tr_cand *out);

/* The random draw for output token `index` of choice `choice`: uniform in [0, 1), 53 bits.  The
 * three numbers pass one after the other through the finaliser of SplitMix64 (Steele, Lea, Flood
 * 2014), a bijection of 64 bits with full avalanche: no state, so any token can be drawn again. */
double tr_sample_draw(uint64_t seed, uint32_t choice, uint32_t index);

#endif
