/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/bitmap.h"

/* Release: the bit of the word is seen by whoever takes its bit here; pairs with take_summary. */
static void mark_summary(const struct tr_bitmap *b, uint32_t w)
{
    atomic_fetch_or_explicit(&b->sums[w / 64], 1ull << (w % 64), memory_order_release);
}

void tr_bitmap_add(const struct tr_bitmap *b, uint32_t w, uint64_t bits)
{
    /* Release: what the bits are about is visible to whoever takes them; pairs with take_word. */
    atomic_fetch_or_explicit(&b->words[w], bits, memory_order_release);
    mark_summary(b, w);
}

static void take_word(const struct tr_bitmap *b, uint32_t w, void (*fn)(void *, uint32_t),
                      void *arg)
{
    /* Acquire: pairs with the release in tr_bitmap_add. */
    uint64_t bits = atomic_exchange_explicit(&b->words[w], 0, memory_order_acquire);
    while (bits) {
        uint32_t slot = w * 64 + (uint32_t)__builtin_ctzll(bits);
        bits &= bits - 1;
        if (slot < b->n_slots)
            fn(arg, slot);
    }
}

static uint64_t take_summary(_Atomic uint64_t *sum)
{
    /* A look first: the exchange would take the line from the other side every time.  Relaxed: who
     * must not miss an addition has fenced before (shm/bell.h). */
    if (!atomic_load_explicit(sum, memory_order_relaxed))
        return 0;
    /* Acquire: pairs with mark_summary. */
    return atomic_exchange_explicit(sum, 0, memory_order_acquire);
}

void tr_bitmap_take(const struct tr_bitmap *b, void (*fn)(void *, uint32_t), void *arg)
{
    for (uint32_t i = 0; i < b->n_sums; i++) {
        uint64_t bits = take_summary(&b->sums[i]);
        while (bits) {
            uint32_t w = i * 64 + (uint32_t)__builtin_ctzll(bits);
            bits &= bits - 1;
            if (w < b->n_words)
                take_word(b, w, fn, arg);
        }
    }
}
