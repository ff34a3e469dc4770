/* SPDX-License-Identifier: Apache-2.0 */
/* shm/bitmap.h - a set of slots in shared memory: one process adds, another takes all there is.
 *
 * A bit for each slot, and above it a summary: a bit for each word.  Adding sets the word's bit, then
 * the summary's; taking exchanges the summary, then the words it names.  So an addition is never
 * missed: it is found by the taking under way or by the next one.  A slot may be found twice, and a
 * summary bit may stand for an empty word; both are harmless.  Taking costs what was added, not the
 * number of slots.
 *
 * Both processes may write both levels, so each takes what it finds as input: nothing beyond n_slots
 * is ever handed out, and a partner that clears or sets bits at random delays or repeats its own
 * news and no more. */
#ifndef TR_SHM_BITMAP_H
#define TR_SHM_BITMAP_H

#include <stdatomic.h>
#include <stdint.h>

/* Where one lies; made anew for each use from the layout, never stored in shared memory. */
struct tr_bitmap {
    _Atomic uint64_t *sums;  /* summary words, then the words */
    _Atomic uint64_t *words; /* [n_words] */
    uint32_t n_sums, n_words, n_slots;
};

/* Adds the slots `bits` of word w.  Release: what was written before is seen by whoever takes them. */
void tr_bitmap_add(const struct tr_bitmap *b, uint32_t w, uint64_t bits);

/* Calls fn(arg, slot) for every slot added since the last call.  Acquire. */
void tr_bitmap_take(const struct tr_bitmap *b, void (*fn)(void *arg, uint32_t slot), void *arg);

#endif
