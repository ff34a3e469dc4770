/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/threads.c - a small pool that shares out the work of one operation at a time. */
#include "cpu_kernels/threads.h"

#include "base/assert.h"
#include "base/clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
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

/* An errand: none, to be had, or being read by who has taken it. */
enum { ERRAND_NONE, ERRAND_OFFERED, ERRAND_TAKEN };

/* How often the caller looks whether somebody has taken it: one who looks for work does at once. */
enum { ERRAND_LOOKS = 16 };

/* How long is looked before sleeping: the serial work between two operations of a decode step fits
 * in, an idle engine sleeps at once. */
enum { SPIN_NS = 50000 };

/* A worker that was off its core for longer than this while the caller waited for it is left out;
 * a page fault or an interrupt is shorter, a turn of another process longer.  For how long, at
 * first and at most, and what counts as happening again at once. */
enum { LATE_NS = 400000, OUT_MIN_NS = 8000000, OUT_MAX_NS = 512000000, AGAIN_FACTOR = 8 };

/* A share of the operation: first in the high half, end in the low one. */
struct share {
    _Alignas(64) _Atomic uint64_t range;
};

struct worker {
    _Alignas(64) _Atomic uint32_t out; /* left out; its futex */
    _Atomic uint32_t inside;           /* for the caller to see whom it waits for */
    _Atomic uint64_t left_ns;          /* when it left, if the caller was waiting asleep */
    struct tr_threads *pool;
    uint32_t share; /* which one is its own; the caller's, written while the gate is shut */
    /* The caller's alone: */
    uint32_t was_inside;
    uint64_t cpu_ns;   /* that it had used when the waiting began */
    uint64_t until_ns; /* it is left out until then */
    uint64_t back_ns;  /* when it was let in again */
    uint64_t out_ns;   /* how long it was left out last time */
    pthread_t thread;
};

struct tr_threads {
    _Alignas(64) _Atomic uint32_t gate;          /* see above; futex of workers and of the caller */
    _Atomic uint32_t sleepers;                   /* workers in, or on their way into, the futex */
    _Atomic uint32_t caller_sleeps;              /* the caller waits for the last one to leave */
    _Atomic uint32_t errand;                     /* one of ERRAND_: the next three */
    void (*errand_fn)(void *arg, uint64_t what); /* the caller's while it is NONE */
    void *errand_arg;
    uint64_t errand_what;
    _Alignas(64) uint32_t grain; /* the operation: written while the gate is shut */
    uint32_t n_shares;
    void (*fn)(void *arg, uint32_t first, uint32_t end);
    void *arg;
    /* The caller's alone: */
    uint32_t op; /* its number, in the bits of GATE_OP */
    uint32_t n_threads;
    uint32_t n_workers; /* really started */
    uint32_t n_out;     /* of them, left out */
    uint32_t spins;     /* looks in SPIN_NS; set before the workers start */
    uint64_t left_out;
    struct share *shares;    /* [n_threads] */
    struct worker workers[]; /* [n_threads - 1] */
};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
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

/* One half of the handshake with a sleeper: after it has opened or left, a thread looks whether it
 * must wake somebody; the other announces itself, then looks once more.  All of it sequentially
 * consistent, so that one of the two sees the other. */
static bool sleeps(_Atomic uint32_t *who)
{
    return atomic_load_explicit(who, memory_order_seq_cst) != 0;
}

static void announce(_Atomic uint32_t *who)
{
    atomic_fetch_add_explicit(who, 1, memory_order_seq_cst);
}

/* --- sharing out --- */

static uint64_t range_of(uint32_t first, uint32_t end)
{
    return (uint64_t)first << 32 | end;
}

/* A chunk of a share into [*first, *end); false if nothing is left of it.  Its owner takes a
 * quarter from the front, so that it reads on where it was; others take half from the end. */
static bool take(struct share *s, bool own, uint32_t grain, uint32_t *first, uint32_t *end)
{
    /* Relaxed: the gate orders the operation's fields; this only shares out numbers. */
    uint64_t r = atomic_load_explicit(&s->range, memory_order_relaxed);
    for (;;) {
        uint32_t a = (uint32_t)(r >> 32), b = (uint32_t)r;
        if (a >= b)
            return false;
        uint32_t n = (b - a + (own ? 3 : 1)) / (own ? 4 : 2);
        n = n < grain ? grain : n;
        /* What would be left is less than a chunk: it is taken along. */
        n = b - a < n + (grain + 1) / 2 ? b - a : n;
        *first = own ? a : b - n;
        *end = *first + n;
        uint64_t rest = own ? range_of(a + n, b) : range_of(a, b - n);
        if (atomic_compare_exchange_weak_explicit(&s->range, &r, rest, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    }
}

static void work(struct tr_threads *t, uint32_t mine)
{
    uint32_t first, end;
    for (uint32_t i = 0; i < t->n_shares; i++) {
        struct share *s = &t->shares[(mine + i) % t->n_shares];
        while (take(s, i == 0, t->grain, &first, &end))
            t->fn(t->arg, first, end);
    }
}

/* --- workers --- */

static bool wanted(uint32_t w, uint32_t done_op)
{
    return (w & GATE_QUIT) || ((w & GATE_OPEN) && (w & GATE_OP) != done_op);
}

static void run_errand(struct tr_threads *t)
{
    uint32_t offered = ERRAND_OFFERED;
    /* Acquire, pairs with the offer: what is to be done, and what the caller wrote before.  Relaxed
     * if somebody else has it, since nothing is read then. */
    if (!atomic_compare_exchange_strong_explicit(&t->errand, &offered, ERRAND_TAKEN,
                                                 memory_order_acquire, memory_order_relaxed))
        return;
    void (*fn)(void *arg, uint64_t what) = t->errand_fn;
    void *arg = t->errand_arg;
    uint64_t what = t->errand_what;
    /* Release, pairs with the first look of tr_threads_errand: it has been read, the caller may
     * write the next one. */
    atomic_store_explicit(&t->errand, ERRAND_NONE, memory_order_release);
    fn(arg, what);
}

/* Waits until the gate is open for another operation than done_op, or the pool ends; returns the
 * word that says so. */
static uint32_t await_gate(struct tr_threads *t, uint32_t done_op)
{
    uint32_t w;
    for (uint32_t i = 0; i < t->spins; i++) {
        w = atomic_load_explicit(&t->gate, memory_order_relaxed);
        if (wanted(w, done_op))
            return w;
        /* Relaxed: run_errand looks again, in the order that counts. */
        if (atomic_load_explicit(&t->errand, memory_order_relaxed) == ERRAND_OFFERED)
            run_errand(t);
        pause_cpu();
    }
    announce(&t->sleepers);
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

static void leave(struct worker *me)
{
    struct tr_threads *t = me->pool;
    /* Relaxed: a hint.  If it is missed the caller thinks us on time. */
    if (atomic_load_explicit(&t->caller_sleeps, memory_order_relaxed))
        atomic_store_explicit(&me->left_ns, tr_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&me->inside, 0, memory_order_relaxed);
    /* Release: what the tasks wrote is whole before the caller sees us gone.  More, because of
     * `sleeps`. */
    uint32_t w = atomic_fetch_sub_explicit(&t->gate, 1, memory_order_seq_cst) - 1;
    if ((w & (GATE_OPEN | GATE_INSIDE)) == 0 && sleeps(&t->caller_sleeps))
        futex_wake_all(&t->gate);
}

static void *worker(void *arg)
{
    struct worker *me = arg;
    struct tr_threads *t = me->pool;
    uint32_t done_op = 0; /* of no operation: the caller starts with one */
    for (;;) {
        uint32_t w = await_gate(t, done_op);
        if (w & GATE_QUIT)
            return NULL;
        /* Relaxed: should we enter all the same, only time is lost. */
        while (atomic_load_explicit(&me->out, memory_order_relaxed))
            futex_wait(&me->out, 1);
        w = enter(t, w);
        if (!w)
            continue;
        atomic_store_explicit(&me->inside, 1, memory_order_relaxed);
        work(t, me->share);
        leave(me);
        done_op = w & GATE_OP;
    }
}

/* --- who is left out --- */

/* Processor time of a thread; 0 if the kernel does not tell. */
static uint64_t cpu_ns(pthread_t thread)
{
    clockid_t c;
    struct timespec s;
    if (pthread_getcpuclockid(thread, &c) != 0 || clock_gettime(c, &s) != 0)
        return 0;
    return (uint64_t)s.tv_sec * 1000000000U + (uint64_t)s.tv_nsec;
}

static void let_in(struct tr_threads *t, struct worker *w, uint64_t now)
{
    w->back_ns = now;
    t->n_out--;
    atomic_store_explicit(&w->out, 0, memory_order_relaxed);
    futex_wake_all(&w->out);
}

static void leave_out(struct tr_threads *t, struct worker *w, uint64_t now)
{
    bool again = w->out_ns && now - w->back_ns < AGAIN_FACTOR * w->out_ns;
    w->out_ns = again ? 2 * w->out_ns : OUT_MIN_NS;
    w->out_ns = w->out_ns < OUT_MAX_NS ? w->out_ns : OUT_MAX_NS;
    w->until_ns = now + w->out_ns;
    atomic_store_explicit(&w->out, 1, memory_order_relaxed);
    t->n_out++;
    t->left_out++;
}

/* Lets in again whose time is up.  Only looked at while somebody is out. */
static void let_back_in(struct tr_threads *t)
{
    uint64_t now = tr_now_ns();
    for (uint32_t i = 0; i < t->n_workers; i++) {
        struct worker *w = &t->workers[i];
        if (atomic_load_explicit(&w->out, memory_order_relaxed) && now >= w->until_ns)
            let_in(t, w, now);
    }
}

/* Notes whom the caller is about to wait for, and what they had used of their processors. */
static void note_waiting(struct tr_threads *t)
{
    for (uint32_t i = 0; i < t->n_workers; i++) {
        struct worker *w = &t->workers[i];
        w->was_inside = atomic_load_explicit(&w->inside, memory_order_relaxed);
        atomic_store_explicit(&w->left_ns, 0, memory_order_relaxed);
        if (w->was_inside)
            w->cpu_ns = cpu_ns(w->thread);
    }
}

/* All have left since `began_ns`.  Who had no processor for too much of that time is left out; who
 * worked all the time just had a long chunk. */
static void judge(struct tr_threads *t, uint64_t began_ns)
{
    uint64_t now = tr_now_ns();
    for (uint32_t i = 0; i < t->n_workers; i++) {
        struct worker *w = &t->workers[i];
        uint64_t left = atomic_load_explicit(&w->left_ns, memory_order_relaxed);
        if (!w->was_inside || !w->cpu_ns || left < began_ns + LATE_NS ||
            atomic_load_explicit(&w->out, memory_order_relaxed))
            continue;
        uint64_t used = cpu_ns(w->thread) - w->cpu_ns;
        if (left - began_ns > used + LATE_NS)
            leave_out(t, w, now);
    }
}

/* --- the caller --- */

static void await_empty(struct tr_threads *t)
{
    /* Acquire: pairs with leave. */
    for (uint32_t i = 0; i < t->spins; i++) {
        if (!(atomic_load_explicit(&t->gate, memory_order_acquire) & GATE_INSIDE))
            return;
        pause_cpu();
    }
    uint64_t began = tr_now_ns();
    note_waiting(t);
    announce(&t->caller_sleeps);
    uint32_t w;
    while ((w = atomic_load_explicit(&t->gate, memory_order_seq_cst)) & GATE_INSIDE)
        futex_wait(&t->gate, w);
    atomic_store_explicit(&t->caller_sleeps, 0, memory_order_relaxed);
    judge(t, began);
}

/* Share 0 is the caller's; each worker that is not left out has one of its own. */
static void share_out(struct tr_threads *t, uint32_t n)
{
    uint32_t k = 1;
    t->n_shares = t->n_threads - t->n_out;
    for (uint32_t i = 0; i < t->n_workers; i++) {
        struct worker *w = &t->workers[i];
        bool out = atomic_load_explicit(&w->out, memory_order_relaxed);
        w->share = out ? 0 : k++;
    }
    for (uint32_t i = 0; i < t->n_shares; i++) {
        uint32_t first = (uint32_t)((uint64_t)n * i / t->n_shares);
        uint32_t end = (uint32_t)((uint64_t)n * (i + 1) / t->n_shares);
        atomic_store_explicit(&t->shares[i].range, range_of(first, end), memory_order_relaxed);
    }
}

void tr_threads_ranges(struct tr_threads *t, uint32_t n, uint32_t grain,
                       void (*fn)(void *arg, uint32_t first, uint32_t end), void *arg)
{
    if (n == 0)
        return;
    if (t->n_out)
        let_back_in(t);
    if (t->n_workers == t->n_out || n <= grain) {
        fn(arg, 0, n);
        return;
    }
    t->grain = grain ? grain : 1;
    t->fn = fn;
    t->arg = arg;
    share_out(t, n);
    t->op = (t->op + GATE_OP_ONE) & GATE_OP;
    /* Release: the fields above, for whoever enters.  More, because of `sleeps`. */
    atomic_store_explicit(&t->gate, GATE_OPEN | t->op, memory_order_seq_cst);
    if (sleeps(&t->sleepers))
        futex_wake_all(&t->gate);
    work(t, 0);
    /* Relaxed: nobody new comes in; what those inside write is waited for in await_empty. */
    atomic_fetch_and_explicit(&t->gate, ~GATE_OPEN, memory_order_relaxed);
    await_empty(t);
}

bool tr_threads_errand(struct tr_threads *t, void (*fn)(void *arg, uint64_t what), void *arg,
                       uint64_t what)
{
    /* Acquire, pairs with the release in run_errand: whoever took the last one has read it. */
    if (!t->spins || t->n_workers == t->n_out ||
        atomic_load_explicit(&t->errand, memory_order_acquire) != ERRAND_NONE)
        return false;
    t->errand_fn = fn;
    t->errand_arg = arg;
    t->errand_what = what;
    /* Release, pairs with the acquire in run_errand: the three above, and what was written before. */
    atomic_store_explicit(&t->errand, ERRAND_OFFERED, memory_order_release);
    for (int i = 0; i < ERRAND_LOOKS; i++) {
        /* Relaxed: that it has been taken is all that is learnt. */
        if (atomic_load_explicit(&t->errand, memory_order_relaxed) != ERRAND_OFFERED)
            return true;
        pause_cpu();
    }
    uint32_t offered = ERRAND_OFFERED;
    /* Relaxed: whether it was taken back or has been taken, nothing of another thread's is read. */
    return !atomic_compare_exchange_strong_explicit(&t->errand, &offered, ERRAND_NONE,
                                                    memory_order_relaxed, memory_order_relaxed);
}

struct each {
    void (*fn)(void *arg, uint32_t i);
    void *arg;
};

static void each_of(void *arg, uint32_t first, uint32_t end)
{
    const struct each *e = arg;
    for (uint32_t i = first; i < end; i++)
        e->fn(e->arg, i);
}

void tr_threads_for(struct tr_threads *t, uint32_t n, void (*fn)(void *arg, uint32_t i), void *arg)
{
    struct each e = {.fn = fn, .arg = arg};
    tr_threads_ranges(t, n, 1, each_of, &e);
}

/* --- the pool --- */

/* Looks that fit in SPIN_NS: a pause takes 10..150 cycles.  The shortest of a few measurements is
 * the one that nothing interrupted. */
static uint32_t count_spins(uint32_t n_threads)
{
    enum { PAUSES = 200, TRIES = 5 };
    cpu_set_t set;
    /* Without a processor for each, who looks keeps another from working. */
    if (sched_getaffinity(0, sizeof(set), &set) == 0 && (uint32_t)CPU_COUNT(&set) < n_threads)
        return 0;
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        uint64_t begin = tr_now_ns();
        for (int k = 0; k < PAUSES; k++)
            pause_cpu();
        uint64_t ns = tr_now_ns() - begin;
        best = ns < best ? ns : best;
    }
    return (uint32_t)(SPIN_NS * (uint64_t)PAUSES / (best + 1)) + 1;
}

/* Workers take no signals: those are the business of the process's first thread. */
static int start_worker(struct tr_threads *t, struct worker *w)
{
    sigset_t all;
    sigset_t old;
    w->pool = t;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&w->thread, NULL, worker, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

struct tr_threads *tr_threads_start(uint32_t n, struct tr_errbuf *err)
{
    if (n < 1 || n > TR_THREADS_MAX) {
        tr_errf(err, -EINVAL, "%u threads: it must be 1 to %d", n, TR_THREADS_MAX);
        return NULL;
    }
    size_t head = sizeof(struct tr_threads) + (n - 1) * sizeof(struct worker);
    size_t bytes = head + n * sizeof(struct share);
    struct tr_threads *t = aligned_alloc(64, bytes);
    if (!t) {
        tr_errf(err, -ENOMEM, "no memory for a pool of %u threads", n);
        return NULL;
    }
    memset(t, 0, bytes);
    t->shares = (struct share *)(void *)((uint8_t *)t + head);
    t->n_threads = n;
    t->spins = count_spins(n);
    for (uint32_t i = 0; i + 1 < n; i++) {
        int rc = start_worker(t, &t->workers[i]);
        if (rc) {
            tr_errf(err, -rc, "cannot start thread %u of %u: %s", i + 2, n, strerror(rc));
            tr_threads_stop(t);
            return NULL;
        }
        t->n_workers++;
    }
    return t;
}

int tr_threads_pin(struct tr_threads *t)
{
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof(all), &all) != 0)
        return -errno;
    size_t cpu = CPU_SETSIZE - 1;
    for (uint32_t i = 0; i < t->n_threads; i++) {
        do
            cpu = (cpu + 1) % CPU_SETSIZE;
        while (!CPU_ISSET(cpu, &all));
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        int rc = pthread_setaffinity_np(i ? t->workers[i - 1].thread : pthread_self(), sizeof(one),
                                        &one);
        if (rc)
            return -rc;
    }
    return 0;
}

void tr_threads_stop(struct tr_threads *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i < t->n_workers; i++)
        if (atomic_load_explicit(&t->workers[i].out, memory_order_relaxed))
            let_in(t, &t->workers[i], 0);
    atomic_fetch_or_explicit(&t->gate, GATE_QUIT, memory_order_seq_cst);
    futex_wake_all(&t->gate);
    for (uint32_t i = 0; i < t->n_workers; i++)
        pthread_join(t->workers[i].thread, NULL);
    free(t);
}

uint32_t tr_threads_count(const struct tr_threads *t)
{
    return t->n_threads;
}

uint64_t tr_threads_left_out(const struct tr_threads *t)
{
    return t->left_out;
}
