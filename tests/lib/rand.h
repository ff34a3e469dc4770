/* SPDX-License-Identifier: Apache-2.0 */
/* testlib/rand.h - numbers for generated inputs: a small generator, the same everywhere. */
#ifndef TR_TESTLIB_RAND_H
#define TR_TESTLIB_RAND_H

#include <stdint.h>

static inline uint32_t tiny_rand(uint64_t *s)
{
    *s = *s * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(*s >> 33);
}

#endif
