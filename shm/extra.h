/* SPDX-License-Identifier: Apache-2.0 */
/* shm/extra.h - the variable part of a request: msgpack, packed by the frontend with msgpack-c,
 * read by the engine with a bounded reader that allocates nothing and trusts nothing.
 *
 * Format: map { "bias": [id, f64, id, f64, ...], "stop": [id, ...] }; unknown keys are an error.  Two
 * more may follow, in this order:
 *
 *   "view": [dialect, flags, created, timeout_ns, [text, ...], kept]
 *   "grammar": bytes
 *
 * A resumable request has a view: all that another frontend needs besides the ring to go on with its
 * answer.  The engine checks its bounds and does not look at it.  The grammar is what the answer must
 * obey, as grammar/program.h has it; what is in it is checked by whoever opens it. */
#ifndef TR_SHM_EXTRA_H
#define TR_SHM_EXTRA_H

#include "base/gguf.h" /* struct tr_str */

#include <stddef.h>
#include <stdint.h>

enum {
    TR_MAX_BIAS = 1024,
    TR_MAX_STOP_IDS = 64,
    TR_VIEW_STOPS = 16,         /* stop strings */
    TR_VIEW_STOP_BYTES = 1024,  /* in one */
    TR_VIEW_KEPT_BYTES = 32768, /* what a dialect keeps of the request, to tell it again */
    TR_GRAMMAR_BYTES = 262144   /* a compiled grammar */
};

struct tr_bias {
    uint32_t id;
    float value; /* added to the logit, [-100, 100] */
};

struct tr_extra {
    uint32_t n_bias, n_stop;
    struct tr_bias bias[TR_MAX_BIAS];
    uint32_t stop_ids[TR_MAX_STOP_IDS];
    const uint8_t *grammar; /* [grammar_len], borrowed: from the bytes it was read from */
    uint32_t grammar_len;   /* 0: none, <= TR_GRAMMAR_BYTES */
};

enum {
    TR_VIEW_CHAT = 1u << 0, /* messages, not prompt */
    TR_VIEW_USAGE = 1u << 1,
    TR_VIEW_ECHO = 1u << 2,
    TR_VIEW_SKIP_SPECIAL = 1u << 3,
    TR_VIEW_INCLUDE_STOP = 1u << 4,
    TR_VIEW_TOKEN_IDS = 1u << 5,
    TR_VIEW_REASONING_OPEN = 1u << 6,
    TR_VIEW_REASONING_HIDDEN = 1u << 7,
    /* From these bits on, numbers of the frontend's formats, TR_VIEW_FORMATS at most. */
    TR_VIEW_TOOLS = 8,
    TR_VIEW_REASONING = 12,
    TR_VIEW_FORMATS = 15,
    TR_VIEW_FLAGS = (1u << 16) - 1
};

struct tr_view {
    uint32_t dialect; /* enum tr_api of the frontend, < 256 */
    uint32_t flags;   /* TR_VIEW_* */
    uint64_t created; /* wall clock, seconds */
    uint64_t timeout_ns;
    uint32_t n_stop;
    struct tr_str stop[TR_VIEW_STOPS]; /* any bytes, 1 .. TR_VIEW_STOP_BYTES of them */
    struct tr_str kept;                /* any bytes, 0 .. TR_VIEW_KEPT_BYTES of them */
};

/* Frontend.  Bytes written to `out`, or -ENOSPC.  TR_EXTRA_BYTES hold the largest of both. */
int tr_extra_pack(const struct tr_extra *e, uint8_t *out, size_t cap);
int tr_extra_pack_view(const struct tr_extra *e, const struct tr_view *v, uint8_t *out, size_t cap);

/* Frontend.  The view and the rest of what lies in a ring; *v borrows its texts from `in`.  0, or
 * -EINVAL as tr_extra_unpack, -ENOENT if there is no view. */
int tr_extra_view(const uint8_t *in, size_t len, uint32_t n_vocab, struct tr_extra *e,
                  struct tr_view *v);

/* Engine.  0, or -EINVAL for anything but the format above: counts, ids >= n_vocab, values out of
 * range or not finite, bytes left over.  *e is then undefined, else its grammar is borrowed from `in`. */
int tr_extra_unpack(const uint8_t *in, size_t len, uint32_t n_vocab, struct tr_extra *e);

#endif
