/* SPDX-License-Identifier: Apache-2.0 */
/* engine/keys.h - the keys of an architecture in a model file, read with a sentence for each fault.
 *
 * The file is input: a key is missing, of another type or out of bounds until it was read here.
 * Every function that fails says -EINVAL and has written "FILE: sentence" to `err`. */
#ifndef TR_ENGINE_KEYS_H
#define TR_ENGINE_KEYS_H

#include "base/err.h"
#include "base/gguf.h"

struct tr_keys {
    const struct tr_gguf *g;
    const char *path; /* for messages */
    const char *arch; /* the first part of a key */
    struct tr_errbuf *err;
};

enum { TR_KEY_MAX = 96 };

/* "ARCH.suffix", in `key`. */
const char *tr_key(const struct tr_keys *k, const char *suffix, char key[TR_KEY_MAX]);

/* Writes "FILE: sentence" and returns -EINVAL. */
int tr_keys_refuse(const struct tr_keys *k, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* An integer in 1..max.  Without `fallback` it must be there. */
int tr_keys_u32(const struct tr_keys *k, const char *suffix, uint32_t max, const uint32_t *fallback,
                uint32_t *out);

/* A positive finite number; without `fallback` (0) it must be there. */
int tr_keys_f64(const struct tr_keys *k, const char *suffix, double fallback, double *out);

#endif
