/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/rope_spec.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The type's name is missing in files older than it: a factor was then always linear. */
static int read_type(struct tr_rope_spec *s, const struct tr_keys *k)
{
    static const char *const names[] = {"none", "linear", "yarn", "longrope"};
    char key[TR_KEY_MAX];
    struct tr_str v;
    int r = tr_gguf_str(k->g, tr_key(k, "rope.scaling.type", key), &v);
    s->scaling = TR_ROPE_LINEAR;
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return tr_keys_refuse(k, "key %s is not a string", key);
    for (unsigned i = 0; i < 4; i++)
        if (strlen(names[i]) == v.len && memcmp(names[i], v.p, v.len) == 0) {
            s->scaling = (enum tr_rope_scaling)i;
            return 0;
        }
    return tr_keys_refuse(k, "key %s: RoPE scaling \"%.*s\" is not implemented", key,
                          (int)(v.len < 40 ? v.len : 40), v.p);
}

/* 0 is written where there is no factor. */
static int read_factor(struct tr_rope_spec *s, const struct tr_keys *k)
{
    static const char *const suffixes[] = {"rope.scaling.factor", "rope.scale_linear"};
    char key[TR_KEY_MAX];
    double v = 0;
    for (int i = 0; i < 2; i++) {
        int r = tr_gguf_f64(k->g, tr_key(k, suffixes[i], key), &v);
        if (r == -EINVAL)
            return tr_keys_refuse(k, "key %s is not one number", key);
        if (r == 0)
            break;
    }
    if (!isfinite(v) || v < 0)
        return tr_keys_refuse(k, "key %s must be above 0 and finite, not %g", key, v);
    s->factor = v > 0 ? v : 1;
    return 0;
}

/* The growth of cosines and sines that goes with a factor. */
static double growth(double factor)
{
    return factor > 1 ? 1 + 0.1 * log(factor) : 1;
}

static int read_yarn(struct tr_rope_spec *s, const struct tr_keys *k)
{
    char key[TR_KEY_MAX];
    double ext = 1, log_mul = 0;
    if (tr_gguf_f64(k->g, tr_key(k, "rope.scaling.yarn_log_multiplier", key), &log_mul) == 0 &&
        log_mul != 0)
        return tr_keys_refuse(k, "key %s (%g) is not implemented", key, log_mul);
    if (tr_gguf_f64(k->g, tr_key(k, "rope.scaling.yarn_ext_factor", key), &ext) == 0 && ext != 1)
        return tr_keys_refuse(k, "key %s (%g) is not implemented", key, ext);
    if (tr_keys_f64(k, "rope.scaling.yarn_beta_fast", 32, &s->beta_fast) < 0 ||
        tr_keys_f64(k, "rope.scaling.yarn_beta_slow", 1, &s->beta_slow) < 0 ||
        tr_keys_f64(k, "rope.scaling.yarn_attn_factor", growth(s->factor), &s->amplitude) < 0)
        return -EINVAL;
    return 0;
}

/* Without its amplitude a longrope file leaves open which of two was meant: none, or the one that
 * follows from the lengths. */
static int check_longrope(const struct tr_rope_spec *s, const struct tr_keys *k, uint32_t n_ctx)
{
    char key[TR_KEY_MAX];
    double v;
    uint64_t len;
    if (tr_gguf_u64(k->g, tr_key(k, "rope.scaling.original_context_length", key), &len) < 0)
        return tr_keys_refuse(k, "key %s is missing, which longrope needs", key);
    if (n_ctx > s->n_ctx_orig &&
        tr_gguf_f64(k->g, tr_key(k, "rope.scaling.attn_factor", key), &v) < 0)
        return tr_keys_refuse(k, "key %s is missing, which longrope needs", key);
    if (s->factor != 1)
        return tr_keys_refuse(k, "longrope with one more factor (%g) is not implemented",
                              s->factor);
    return 0;
}

int tr_rope_spec_read(struct tr_rope_spec *s, const struct tr_keys *k, uint32_t n_ctx)
{
    char key[TR_KEY_MAX];
    double attn, alpha = 0;
    s->amplitude = 1;
    if (read_type(s, k) < 0 || read_factor(s, k) < 0 ||
        tr_keys_f64(k, "rope.freq_base", 10000, &s->base) < 0 ||
        tr_keys_f64(k, "rope.scaling.attn_factor", 1, &attn) < 0 ||
        tr_keys_u32(k, "rope.scaling.original_context_length", UINT32_MAX, &n_ctx, &s->n_ctx_orig) <
            0 ||
        (s->scaling == TR_ROPE_YARN && read_yarn(s, k) < 0) ||
        (s->scaling == TR_ROPE_LONG && check_longrope(s, k, n_ctx) < 0))
        return -EINVAL;
    if (tr_gguf_f64(k->g, tr_key(k, "rope.scaling.alpha", key), &alpha) == 0 && alpha != 0)
        return tr_keys_refuse(k, "key %s (%g) is not implemented", key, alpha);
    s->amplitude *= attn;
    if (s->scaling == TR_ROPE_PLAIN)
        s->factor = 1;
    return 0;
}

/* The pair, as a real number, that makes `turns` turns in the original context. */
static double pair_of_turns(const struct tr_rope_spec *s, uint32_t n_rot, double turns)
{
    return n_rot * log(s->n_ctx_orig / (turns * 2 * M_PI)) / (2 * log(s->base));
}

void tr_rope_spec_freqs(const struct tr_rope_spec *s, uint32_t n_rot, const float *factors,
                        double *freq)
{
    double low = 0, high = 0;
    if (s->scaling == TR_ROPE_YARN) {
        low = fmax(floor(pair_of_turns(s, n_rot, s->beta_fast)), 0);
        high = fmin(ceil(pair_of_turns(s, n_rot, s->beta_slow)), n_rot - 1);
    }
    for (uint32_t i = 0; i < n_rot / 2; i++) {
        double own = pow(s->base, -2.0 * i / n_rot) / (factors ? (double)factors[i] : 1);
        double stretched = own / s->factor;
        if (s->scaling == TR_ROPE_YARN) {
            double ramp = fmin(fmax((i - low) / fmax(high - low, 0.001), 0), 1);
            freq[i] = own * (1 - ramp) + stretched * ramp;
        } else {
            freq[i] = stretched;
        }
    }
}
