/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator behind tso.h: two coroutines, left before each atomic operation, and a store buffer
 * for each.  A run is the list of what was chosen each time; the next run takes the last choice that
 * has another option, and so through all. */
#include "tso.h"

#include "shm/role.h"

#include <stdlib.h>
#include <ucontext.h>

enum { MAX_STORES = 32, MAX_DEPTH = 256, N_THREADS = 2, STACK_BYTES = 1 << 18 };

struct store {
    volatile void *p;
    size_t size;
    uint64_t v;
};

struct thread {
    struct store buf[MAX_STORES]; /* oldest first */
    uint32_t n;
    bool done;
    enum tr_role role;
    ucontext_t at; /* before its next operation */
    char *stack;
    void (*run)(void);
};

static struct thread threads[N_THREADS], *self; /* self: the one that runs; NULL: the test */
static ucontext_t machine;

/* ---- memory ---- */

static uint64_t mem_load(const volatile void *p, size_t size)
{
    return size == 8 ? __atomic_load_n((const volatile uint64_t *)p, __ATOMIC_SEQ_CST)
                     : __atomic_load_n((const volatile uint32_t *)p, __ATOMIC_SEQ_CST);
}

static void mem_store(struct store s)
{
    if (s.size == 8)
        __atomic_store_n((volatile uint64_t *)s.p, s.v, __ATOMIC_SEQ_CST);
    else
        __atomic_store_n((volatile uint32_t *)s.p, (uint32_t)s.v, __ATOMIC_SEQ_CST);
}

static void drain_one(struct thread *t)
{
    mem_store(t->buf[0]);
    t->n--;
    for (uint32_t i = 0; i < t->n; i++)
        t->buf[i] = t->buf[i + 1];
}

static void drain(struct thread *t)
{
    while (t && t->n)
        drain_one(t);
}

/* ---- operations ---- */

/* The other thread, or a drain, may come before what follows. */
static void hand_over(void)
{
    if (self)
        swapcontext(&self->at, &machine);
}

uint64_t tso_load(const volatile void *p, size_t size)
{
    hand_over();
    for (uint32_t i = self ? self->n : 0; i-- > 0;)
        if (self->buf[i].p == p)
            return self->buf[i].v;
    return mem_load(p, size);
}

void tso_store(volatile void *p, size_t size, uint64_t v)
{
    struct store s = {p, size, v};
    hand_over();
    if (!self) {
        mem_store(s);
        return;
    }
    if (self->n == MAX_STORES)
        abort();
    self->buf[self->n++] = s;
}

uint64_t tso_exchange(volatile void *p, size_t size, uint64_t v)
{
    hand_over();
    drain(self);
    uint64_t old = mem_load(p, size);
    mem_store((struct store){p, size, v});
    return old;
}

uint64_t tso_fetch_or(volatile void *p, size_t size, uint64_t v)
{
    hand_over();
    drain(self);
    uint64_t old = mem_load(p, size);
    mem_store((struct store){p, size, old | v});
    return old;
}

void tso_fence(memory_order order)
{
    hand_over();
    if (order == memory_order_seq_cst)
        drain(self);
}

/* ---- exploring ---- */

static struct {
    uint8_t taken, of;
} path[MAX_DEPTH];
static uint32_t path_len, at;

/* One of `n` options: as the path says, the first one behind its end. */
static uint32_t choose(uint32_t n)
{
    if (at == MAX_DEPTH)
        abort();
    if (at == path_len) {
        path[path_len].taken = 0;
        path[path_len++].of = (uint8_t)n;
    }
    return path[at++].taken;
}

/* The next path in order; false after the last. */
static bool next_path(void)
{
    while (path_len && path[path_len - 1].taken + 1 == path[path_len - 1].of)
        path_len--;
    if (path_len)
        path[path_len - 1].taken++;
    return path_len > 0;
}

static void run_thread(void)
{
    self->run();
    self->done = true;
}

/* What comes before the next operation belongs to the one before it: nobody else sees it. */
static void step(struct thread *t)
{
    self = t;
    tr_role = t->role;
    swapcontext(&machine, &t->at);
    t->role = tr_role;
    self = NULL;
}

static void start(struct thread *t, void (*run)(void))
{
    t->n = 0;
    t->done = false;
    t->role = TR_ROLE_NONE;
    t->run = run;
    getcontext(&t->at);
    t->at.uc_stack.ss_sp = t->stack;
    t->at.uc_stack.ss_size = STACK_BYTES;
    t->at.uc_link = &machine;
    makecontext(&t->at, run_thread, 0);
    step(t); /* up to its first operation */
}

/* One move of the machine: a thread's next operation, or the oldest store of a thread reaches
 * memory.  False when both threads have ended. */
static bool move(void)
{
    struct {
        struct thread *t;
        void (*what)(struct thread *);
    } options[2 * N_THREADS];
    uint32_t n = 0;
    for (struct thread *t = threads; t < threads + N_THREADS; t++) {
        if (!t->done) {
            options[n].t = t;
            options[n++].what = step;
        }
    }
    if (!n)
        return false;
    for (struct thread *t = threads; t < threads + N_THREADS; t++) {
        if (t->n) {
            options[n].t = t;
            options[n++].what = drain_one;
        }
    }
    uint32_t i = choose(n);
    options[i].what(options[i].t);
    return true;
}

static void run_once(const struct tso_case *c)
{
    at = 0;
    for (int i = 0; i < N_THREADS; i++)
        start(&threads[i], c->thread[i]);
    while (move())
        ;
    for (int i = 0; i < N_THREADS; i++)
        drain(&threads[i]);
}

uint64_t tso_explore(const struct tso_case *c, uint64_t *ret_bad)
{
    uint64_t runs = 0;
    *ret_bad = 0;
    path_len = 0;
    for (int i = 0; i < N_THREADS; i++)
        if (!(threads[i].stack = malloc(STACK_BYTES)))
            abort();
    do {
        c->setup();
        run_once(c);
        runs++;
        *ret_bad += !c->good();
    } while (next_path());
    for (int i = 0; i < N_THREADS; i++)
        free(threads[i].stack);
    return runs;
}
