/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/keys.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

enum { PATH_SHOWN = 160 };

const char *tr_key(const struct tr_keys *k, const char *suffix, char key[TR_KEY_MAX])
{
    snprintf(key, TR_KEY_MAX, "%s.%s", k->arch, suffix);
    return key;
}

int tr_keys_refuse(const struct tr_keys *k, const char *fmt, ...)
{
    char why[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    tr_errf(k->err, -EINVAL, "%.*s: %s", PATH_SHOWN, k->path, why);
    return -EINVAL;
}

int tr_keys_u32(const struct tr_keys *k, const char *suffix, uint32_t max, const uint32_t *fallback,
                uint32_t *out)
{
    char key[TR_KEY_MAX];
    uint64_t v = 0;
    int r = tr_gguf_u64(k->g, tr_key(k, suffix, key), &v);
    if (r == -ENOENT && fallback) {
        *out = *fallback;
        return 0;
    }
    if (r == -ENOENT)
        return tr_keys_refuse(k, "key %s is missing", key);
    if (r < 0)
        return tr_keys_refuse(k, "key %s is not one non-negative integer", key);
    if (v < 1 || v > max)
        return tr_keys_refuse(k, "key %s must be 1..%" PRIu32 ", not %" PRIu64, key, max, v);
    *out = (uint32_t)v;
    return 0;
}

int tr_keys_f64(const struct tr_keys *k, const char *suffix, double fallback, double *out)
{
    char key[TR_KEY_MAX];
    double v = fallback;
    int r = tr_gguf_f64(k->g, tr_key(k, suffix, key), &v);
    if (r == -ENOENT && fallback == 0)
        return tr_keys_refuse(k, "key %s is missing", key);
    if (r == -EINVAL)
        return tr_keys_refuse(k, "key %s is not one number", key);
    if (!isfinite(v) || v <= 0)
        return tr_keys_refuse(k, "key %s must be above 0 and finite, not %g", key, v);
    *out = v;
    return 0;
}
