/* SPDX-License-Identifier: Apache-2.0 */
/* What the keys say of RoPE.  That the angles are those of other implementations is seen on whole
 * models (tests/golden/tiny). */
#include "engine/rope_spec.h"

#include "testlib/gguf_write.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_ROT = 64, N_CTX = 4096 };

struct key {
    const char *suffix;
    double value;
};

/* A type (NULL: not said) and up to six more keys, which end with a NULL suffix. */
static int read_keys(const char *type, const struct key *more, struct tr_rope_spec *s,
                     struct tr_errbuf *err)
{
    char key[TR_KEY_MAX];
    size_t len;
    struct tr_gw *w = tr_gw_new(3);
    struct tr_keys k = {.path = "m.gguf", .arch = "llama", .err = err};
    if (type)
        tr_gw_str(w, "llama.rope.scaling.type", type);
    for (; more && more->suffix; more++) {
        tr_key(&k, more->suffix, key);
        if (strstr(more->suffix, "length"))
            tr_gw_u32(w, key, (uint32_t)more->value);
        else
            tr_gw_f32(w, key, (float)more->value);
    }
    uint8_t *bytes = tr_gw_finish(w, &len);
    struct tr_gguf *g = tr_gguf_parse(bytes, len, "m.gguf", err);
    cr_assert(ne(ptr, g, NULL), "%s", err->msg);
    k.g = g;
    *s = (struct tr_rope_spec){0};
    int r = tr_rope_spec_read(s, &k, N_CTX);
    tr_gguf_close(g);
    free(bytes);
    return r;
}

#define KEYS(...) ((const struct key[]){__VA_ARGS__, {NULL, 0}})

static void freqs_of(const char *type, const struct key *more, double *freq, double *amplitude)
{
    struct tr_errbuf err = {""};
    struct tr_rope_spec s;
    cr_assert(eq(int, read_keys(type, more, &s, &err), 0), "%s", err.msg);
    tr_rope_spec_freqs(&s, N_ROT, NULL, freq);
    *amplitude = s.amplitude;
}

static void refused(const char *type, const struct key *more, const char *want)
{
    struct tr_errbuf err = {""};
    struct tr_rope_spec s;
    cr_expect(lt(int, read_keys(type, more, &s, &err), 0), "accepted: %s", want);
    cr_expect(strstr(err.msg, want) != NULL, "wanted \"%s\" in \"%s\"", want, err.msg);
}

Test(rope_spec, without_scaling_angles_fall_from_one_to_near_one_over_the_base)
{
    double freq[N_ROT / 2], amplitude;
    freqs_of(NULL, NULL, freq, &amplitude);
    cr_expect(freq[0] == 1 && amplitude == 1);
    for (int i = 0; i < N_ROT / 2; i++)
        cr_expect(fabs(freq[i] * pow(10000, 2.0 * i / N_ROT) - 1) < 1e-12);
    /* "none" means none, whatever else is said. */
    double same[N_ROT / 2];
    freqs_of("none", KEYS({"rope.scaling.factor", 4}), same, &amplitude);
    cr_expect(memcmp(freq, same, sizeof(freq)) == 0);
}

Test(rope_spec, linear_divides_all_angles_by_either_key)
{
    double plain[N_ROT / 2], a[N_ROT / 2], b[N_ROT / 2], c[N_ROT / 2], amplitude;
    freqs_of(NULL, NULL, plain, &amplitude);
    freqs_of("linear", KEYS({"rope.scaling.factor", 4}), a, &amplitude);
    freqs_of(NULL, KEYS({"rope.scale_linear", 4}), b, &amplitude);
    freqs_of(NULL, KEYS({"rope.scale_linear", 9}, {"rope.scaling.factor", 4}), c, &amplitude);
    for (int i = 0; i < N_ROT / 2; i++)
        cr_expect(a[i] * 4 == plain[i] && b[i] == a[i] && c[i] == a[i]);
    cr_expect(amplitude == 1);
    freqs_of(NULL, KEYS({"rope.scale_linear", 0}), a, &amplitude);
    cr_expect(memcmp(a, plain, sizeof(a)) == 0, "0 is written where there is none");
}

Test(rope_spec, yarn_divides_slow_pairs_and_leaves_fast_ones)
{
    double plain[N_ROT / 2], f[N_ROT / 2], amplitude;
    freqs_of(NULL, NULL, plain, &amplitude);
    freqs_of("yarn",
             KEYS({"rope.scaling.factor", 4}, {"rope.scaling.original_context_length", 1024}), f,
             &amplitude);
    cr_expect(f[0] == plain[0] && fabs(f[N_ROT / 2 - 1] * 4 / plain[N_ROT / 2 - 1] - 1) < 1e-12);
    for (int i = 1; i < N_ROT / 2; i++)
        cr_expect(f[i] / plain[i] <= f[i - 1] / plain[i - 1] + 1e-12, "the ramp only falls");
    cr_expect(fabs(amplitude - (1 + 0.1 * log(4))) < 1e-12);
    freqs_of("yarn",
             KEYS({"rope.scaling.factor", 4}, {"rope.scaling.yarn_attn_factor", 1.5},
                  {"rope.scaling.attn_factor", 2}),
             f, &amplitude);
    cr_expect(fabs(amplitude - 3) < 1e-6);
}

Test(rope_spec, yarn_ramp_has_its_ends_where_the_keys_say)
{
    double wide[N_ROT / 2], narrow[N_ROT / 2], amplitude;
    freqs_of("yarn", KEYS({"rope.scaling.factor", 4}), wide, &amplitude);
    freqs_of("yarn",
             KEYS({"rope.scaling.factor", 4}, {"rope.scaling.yarn_beta_fast", 8},
                  {"rope.scaling.yarn_beta_slow", 4}),
             narrow, &amplitude);
    int differ = 0;
    for (int i = 0; i < N_ROT / 2; i++)
        differ += wide[i] != narrow[i];
    cr_expect(differ > 4 && differ < N_ROT / 2 - 4);
}

Test(rope_spec, factors_of_the_file_divide_each_pair)
{
    struct tr_errbuf err = {""};
    struct tr_rope_spec s;
    float factors[N_ROT / 2];
    double freq[N_ROT / 2];
    for (int i = 0; i < N_ROT / 2; i++)
        factors[i] = (float)(1 + i);
    cr_assert(eq(int, read_keys(NULL, NULL, &s, &err), 0));
    tr_rope_spec_freqs(&s, N_ROT, factors, freq);
    for (int i = 0; i < N_ROT / 2; i++)
        cr_expect(fabs(freq[i] * (1 + i) * pow(10000, 2.0 * i / N_ROT) - 1) < 1e-12);
}

Test(rope_spec, what_is_unclear_is_refused)
{
    refused("dynamic", NULL, "RoPE scaling \"dynamic\" is not implemented");
    refused("linear", KEYS({"rope.scaling.factor", -2}), "key llama.rope.scaling.factor must be");
    refused("linear", KEYS({"rope.scaling.alpha", 2}), "key llama.rope.scaling.alpha (2)");
    refused("yarn", KEYS({"rope.scaling.yarn_ext_factor", 0.5}), "yarn_ext_factor (0.5)");
    refused("yarn", KEYS({"rope.scaling.yarn_log_multiplier", 1}), "yarn_log_multiplier (1)");
    refused("yarn", KEYS({"rope.scaling.yarn_beta_fast", 0}), "yarn_beta_fast must be above 0");
    refused("longrope", NULL, "original_context_length is missing");
    refused("longrope", KEYS({"rope.scaling.original_context_length", 1024}),
            "attn_factor is missing");
    refused("longrope",
            KEYS({"rope.scaling.original_context_length", 4096}, {"rope.scaling.factor", 2}),
            "longrope with one more factor (2)");
    refused(NULL, KEYS({"rope.freq_base", 0}), "key llama.rope.freq_base must be above 0");
}
