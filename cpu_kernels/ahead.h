/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/ahead.h - weights are asked for before they are needed.
 *
 * A processor's own prefetching stops at every page and starts anew with every strip, and a tile of
 * many rows takes so long over a block that no load of the next one is in sight of it.  So the tiles
 * of a strip share out the lines of the strip that lies behind it, and ask for them on the way.
 * Asking for what is not there does no harm, so behind the last strip it is an address and no pointer.
 * It changes no number. */
#ifndef TR_CPU_KERNELS_AHEAD_H
#define TR_CPU_KERNELS_AHEAD_H

#include "cpu_kernels/kernels.h"

#include <stddef.h>
#include <stdint.h>

/* What a tile asks for: `step` bytes with every 32 elements of K. */
struct ahead {
    uintptr_t at;
    size_t step;
};

static inline void ask(struct ahead *next)
{
    /* With a constant step there is no loop: one that lies badly costs a single row a quarter. */
    if (__builtin_constant_p(next->step)) {
        TR_UNROLL
        for (size_t i = 0; i < next->step; i += 64)
            __builtin_prefetch((const void *)(next->at + i)); // NOLINT(performance-no-int-to-ptr)
    } else {
        for (size_t i = 0; i < next->step; i += 64)
            __builtin_prefetch((const void *)(next->at + i)); // NOLINT(performance-no-int-to-ptr)
    }
    next->at += next->step;
}

/* What is left of it for the tiles that come. */
struct asked {
    uintptr_t at;
    uintptr_t end;
    size_t step;
    size_t tile; /* bytes that a tile asks for */
};

/* The `bytes` bytes at `from`, in equal parts for n tiles that go over `dim` elements of K. */
static inline struct asked ask_for(const uint8_t *from, size_t bytes, uint32_t dim, uint32_t n)
{
    size_t blocks = (dim + (size_t)31) / 32;
    size_t step = (bytes / blocks / n + 64) / 64 * 64;
    return (struct asked){(uintptr_t)from, (uintptr_t)from + bytes, step, step * blocks};
}

/* The next tile's part. */
static inline struct ahead ahead_of(struct asked *a)
{
    struct ahead next = {a->at, a->at < a->end ? a->step : 0};
    a->at += a->tile;
    return next;
}

#endif
