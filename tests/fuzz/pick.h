/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/pick.h - choices out of the fuzzer's bytes, for drivers that make their own texts.
 * When the bytes are used up every choice is 0, so a generator whose choice 0 is the plain one ends. */
#ifndef TR_TESTS_FUZZ_PICK_H
#define TR_TESTS_FUZZ_PICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pick {
    const uint8_t *p;
    size_t n;
};

/* One of 0 .. n-1; n up to 65536. */
static inline uint32_t pick(struct pick *k, uint32_t n)
{
    uint32_t v = 0;
    for (uint32_t room = 1; room < n && k->n; room *= 256, k->n--)
        v = v << 8 | *k->p++;
    return n ? v % n : 0;
}

#define PICK(k, table) ((table)[pick((k), sizeof(table) / sizeof((table)[0]))])

#endif
