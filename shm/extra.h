/* SPDX-License-Identifier: Apache-2.0 */
/* shm/extra.h - the variable part of a request: msgpack, packed by the frontend with msgpack-c,
 * read by the engine with a bounded reader that allocates nothing and trusts nothing.
 *
 * Format: map { "bias": [id, f64, id, f64, ...], "stop": [id, ...] }; unknown keys are an error. */
#ifndef TR_SHM_EXTRA_H
#define TR_SHM_EXTRA_H

#include <stddef.h>
#include <stdint.h>

enum { TR_MAX_BIAS = 1024, TR_MAX_STOP_IDS = 64 };

struct tr_bias {
    uint32_t id;
    float value; /* added to the logit, [-100, 100] */
};

struct tr_extra {
    uint32_t n_bias, n_stop;
    struct tr_bias bias[TR_MAX_BIAS];
    uint32_t stop_ids[TR_MAX_STOP_IDS];
};

/* Frontend.  Bytes written to `out`, or -ENOSPC. */
int tr_extra_pack(const struct tr_extra *e, uint8_t *out, size_t cap);

/* Engine.  0, or -EINVAL for anything but the format above: counts, ids >= n_vocab, values out of
 * range or not finite, bytes left over.  *e is then undefined. */
int tr_extra_unpack(const uint8_t *in, size_t len, uint32_t n_vocab, struct tr_extra *e);

#endif
