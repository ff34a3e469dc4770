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

#include <stddef.h>
#include <stdint.h>

/* What a tile asks for: `step` bytes with every 32 elements of K. */
struct ahead {
    uintptr_t at;
    size_t step;
};

static inline void ask(struct ahead *next)
{
    for (size_t i = 0; i < next->step; i += 64)
        __builtin_prefetch((const void *)(next->at + i)); // NOLINT(performance-no-int-to-ptr)
    next->at += next->step;
}

/* Tile i of n asks for its part of the `bytes` bytes behind `end`. */
static inline struct ahead ahead_of(const uint8_t *end, size_t bytes, uint32_t dim, uint32_t i,
                                    uint32_t n)
{
    size_t blocks = (dim + (size_t)31) / 32;
    size_t step = (bytes / blocks / n + 64) / 64 * 64;
    size_t from = i * step * blocks;
    return (struct ahead){(uintptr_t)end + from, from < bytes ? step : 0};
}

#endif
