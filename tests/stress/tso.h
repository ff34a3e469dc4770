/* SPDX-License-Identifier: Apache-2.0 */
/* tests/stress/tso.h - C11 atomics on a simulated machine that delays stores.
 *
 * Included before everything else (-include) when a file of shm/ is compiled for
 * tests/stress/handshake.c: its atomic operations then go to the simulator in tso.c.  There a store
 * waits in its thread's buffer, which drains one by one, at any later moment; only a full fence and
 * a read-modify-write wait until it is empty.  That is total store order, the least that every
 * machine we run on permits, and just what a seq_cst fence is for: two threads that each store and
 * then load another's word may both miss it. */
#ifndef TR_TESTS_TSO_H
#define TR_TESTS_TSO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- called by the code under test; outside of tso_explore they act on memory at once ---- */
uint64_t tso_load(const volatile void *p, size_t size);
void tso_store(volatile void *p, size_t size, uint64_t v);
uint64_t tso_exchange(volatile void *p, size_t size, uint64_t v);
uint64_t tso_fetch_or(volatile void *p, size_t size, uint64_t v);
void tso_fence(memory_order order);

/* ---- called by the test ---- */
struct tso_case {
    void (*setup)(void); /* before each run; words as they are at the start */
    void (*thread[2])(void);
    bool (*good)(void); /* after each run: whether what it ended in is allowed */
};

/* Runs the two threads in every order of their atomic operations and of the drains between them.
 * Number of runs; *ret_bad is how many of them ended in what is not allowed. */
uint64_t tso_explore(const struct tso_case *c, uint64_t *ret_bad);

/* The type of a word without its _Atomic. */
#define TSO_VALUE(p) __typeof__((void)0, *(p))

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_fetch_or_explicit
#undef atomic_thread_fence
#define atomic_load_explicit(p, order) ((TSO_VALUE(p))tso_load((p), sizeof(*(p))))
#define atomic_store_explicit(p, v, order) tso_store((p), sizeof(*(p)), (uint64_t)(v))
#define atomic_exchange_explicit(p, v, order)                                                      \
    ((TSO_VALUE(p))tso_exchange((p), sizeof(*(p)), (uint64_t)(v)))
#define atomic_fetch_or_explicit(p, v, order)                                                      \
    ((TSO_VALUE(p))tso_fetch_or((p), sizeof(*(p)), (uint64_t)(v)))
#define atomic_thread_fence(order) tso_fence(order)

#endif
