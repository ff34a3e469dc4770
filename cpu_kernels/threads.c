/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/threads.c - a small pool that shares out the tasks of one operation at a time. */
#include "cpu_kernels/threads.h"

#include "base/assert.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* `gate` is one word: two flags, the number of the operation (a few bits of it) and the number of
 * workers inside.  The caller fills in the operation, opens the gate, works, shuts the gate and
 * waits until nobody is inside; only then may it touch the operation again.  A worker enters by
 * raising the number while the gate is open, so it can never meet a half-written operation, nor be
 * missed.  When it has left, it waits for another operation's number: should that number come
 * round again while it slept, it only sleeps through one operation. */
#define GATE_OPEN 0x80000000U
#define GATE_QUIT 0x40000000U
#define GATE_OP 0x3FFFFC00U
#define GATE_OP_ONE 0x00000400U
#define GATE_INSIDE 0x000003FFU

_Static_assert(TR_THREADS_MAX <= GATE_INSIDE, "all workers may be inside");

/* Looks before sleeping.  A pause is 10..150 cycles, so this is about 10..100 microseconds: the
 * serial work between two operations of a decode step fits in, an idle engine sleeps at once. */
enum { SPINS = 1500 };

struct tr_threads {
    _Alignas(64) _Atomic uint32_t gate; /* see above; futex of workers and of the caller */
    _Atomic uint32_t sleepers;          /* workers in, or on their way into, the futex */
    _Atomic uint32_t caller_sleeps;     /* the caller waits for the last one to leave */
    _Alignas(64) _Atomic uint32_t next; /* first task nobody has taken */
    _Alignas(64) uint32_t n;            /* the operation: written while the gate is shut */
    void (*fn)(void *arg, uint32_t i);
    void *arg;
    uint32_t op; /* its number, in the bits of GATE_OP */
    uint32_t n_threads;
    uint32_t n_workers; /* really started */
    pthread_t workers[];
};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t expected)
{
    /* Returns at once if *word has changed; may return early: all callers look again. */
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void take_tasks(struct tr_threads *t)
{
    for (;;) {
        /* Relaxed: the gate orders the operation's fields; this only shares out numbers.  It
         * cannot wrap: each thread overshoots n once, and n is below 2^31. */
        uint32_t i = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
        if (i >= t->n)
            return;
        t->fn(t->arg, i);
    }
}

static bool wanted(uint32_t w, uint32_t done_op)
{
    return (w & GATE_QUIT) || ((w & GATE_OPEN) && (w & GATE_OP) != done_op);
}

/* Waits until the gate is open for another operation than done_op, or the pool ends; returns the
 * word that says so. */
static uint32_t await_gate(struct tr_threads *t, uint32_t done_op)
{
    uint32_t w;
    for (int i = 0; i < SPINS; i++) {
        w = atomic_load_explicit(&t->gate, memory_order_relaxed);
        if (wanted(w, done_op))
            return w;
        pause_cpu();
    }
    /* Announce, then look: the caller opens, then looks for sleepers.  Both sequentially
     * consistent, so one of the two sees the other. */
    atomic_fetch_add_explicit(&t->sleepers, 1, memory_order_seq_cst);
    while (!wanted(w = atomic_load_explicit(&t->gate, memory_order_seq_cst), done_op))
        futex_wait(&t->gate, w);
    atomic_fetch_sub_explicit(&t->sleepers, 1, memory_order_relaxed);
    return w;
}

/* One more inside, unless the gate was shut meanwhile.  Returns the word seen on entering. */
static uint32_t enter(struct tr_threads *t, uint32_t w)
{
    while (w & GATE_OPEN) {
        /* Acquire: the operation's fields are as the caller wrote them before it opened. */
        if (atomic_compare_exchange_weak_explicit(&t->gate, &w, w + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return w;
    }
    return 0;
}

static void leave(struct tr_threads *t)
{
    /* Release: what the tasks wrote is whole before the caller sees us gone.  Sequentially
     * consistent because of caller_sleeps, as in await_gate. */
    uint32_t w = atomic_fetch_sub_explicit(&t->gate, 1, memory_order_seq_cst) - 1;
    if ((w & (GATE_OPEN | GATE_INSIDE)) == 0 &&
        atomic_load_explicit(&t->caller_sleeps, memory_order_seq_cst))
        futex_wake_all(&t->gate);
}

static void *worker(void *arg)
{
    struct tr_threads *t = arg;
    uint32_t done_op = 0; /* of no operation: the caller starts with one */
    for (;;) {
        uint32_t w = await_gate(t, done_op);
        if (w & GATE_QUIT)
            return NULL;
        w = enter(t, w);
        if (!w)
            continue;
        take_tasks(t);
        leave(t);
        done_op = w & GATE_OP;
    }
}

static void await_empty(struct tr_threads *t)
{
    /* Acquire: pairs with leave. */
    for (int i = 0; i < SPINS; i++) {
        if (!(atomic_load_explicit(&t->gate, memory_order_acquire) & GATE_INSIDE))
            return;
        pause_cpu();
    }
    atomic_store_explicit(&t->caller_sleeps, 1, memory_order_seq_cst);
    uint32_t w;
    while ((w = atomic_load_explicit(&t->gate, memory_order_seq_cst)) & GATE_INSIDE)
        futex_wait(&t->gate, w);
    atomic_store_explicit(&t->caller_sleeps, 0, memory_order_relaxed);
}

void tr_threads_for(struct tr_threads *t, uint32_t n, void (*fn)(void *arg, uint32_t i), void *arg)
{
    TR_ASSERT(n < 0x7FFFFFFFU);
    if (t->n_workers == 0 || n <= 1) {
        for (uint32_t i = 0; i < n; i++)
            fn(arg, i);
        return;
    }
    t->n = n;
    t->fn = fn;
    t->arg = arg;
    atomic_store_explicit(&t->next, 0, memory_order_relaxed);
    t->op = (t->op + GATE_OP_ONE) & GATE_OP;
    /* Publishes the fields above to whoever enters; sequentially consistent with `sleepers`. */
    atomic_store_explicit(&t->gate, GATE_OPEN | t->op, memory_order_seq_cst);
    if (atomic_load_explicit(&t->sleepers, memory_order_seq_cst) != 0)
        futex_wake_all(&t->gate);
    take_tasks(t);
    atomic_fetch_and_explicit(&t->gate, ~GATE_OPEN, memory_order_acq_rel);
    await_empty(t);
}

/* Workers take no signals: those are the business of the process's first thread. */
static int start_worker(struct tr_threads *t, uint32_t i)
{
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&t->workers[i], NULL, worker, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

struct tr_threads *tr_threads_start(uint32_t n, struct tr_errbuf *err)
{
    if (n < 1 || n > TR_THREADS_MAX) {
        tr_errf(err, -EINVAL, "%u threads: it must be 1 to %d", n, TR_THREADS_MAX);
        return NULL;
    }
    size_t bytes = sizeof(struct tr_threads) + (n - 1) * sizeof(pthread_t);
    struct tr_threads *t = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!t) {
        tr_errf(err, -ENOMEM, "no memory for a pool of %u threads", n);
        return NULL;
    }
    memset(t, 0, bytes);
    t->n_threads = n;
    for (uint32_t i = 0; i + 1 < n; i++) {
        int rc = start_worker(t, i);
        if (rc) {
            tr_errf(err, -rc, "cannot start thread %u of %u: %s", i + 2, n, strerror(rc));
            tr_threads_stop(t);
            return NULL;
        }
        t->n_workers++;
    }
    return t;
}

void tr_threads_stop(struct tr_threads *t)
{
    if (!t)
        return;
    atomic_fetch_or_explicit(&t->gate, GATE_QUIT, memory_order_seq_cst);
    futex_wake_all(&t->gate);
    for (uint32_t i = 0; i < t->n_workers; i++)
        pthread_join(t->workers[i], NULL);
    free(t);
}

uint32_t tr_threads_count(const struct tr_threads *t)
{
    return t->n_threads;
}
