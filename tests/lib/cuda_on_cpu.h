/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/cuda_on_cpu.h - enough of CUDA to run kernels on a CPU, for tests of their logic.
 *
 * A .cu file of cuda_kernels/ that is compiled as C++17 with this header in CUDA's place runs its kernels
 * one block after the other, on one thread.  The threads of a block are fibers, which give way where those
 * of a device would meet:
 *
 *   __syncthreads                  all threads of the block that have not returned
 *   shuffles, votes, sums, mma     the lanes of the mask; also __syncwarp
 *
 * Between meetings a fiber runs alone, in the order of lanes, or backwards (tr_cuda::backwards).  So what
 * needs a meeting and has none gives another result in one of the orders, and a thread that waits for others
 * that never come (they returned, or wait elsewhere) ends the program with a sentence that says who waits
 * where.  A copy by cp.async is done when it is waited for or at once, now the one, now the other: so what reads
 * it early, or still reads what was in its place, gives another result.
 *
 * Memory of the device is memory from malloc, so ASan sees every access; shared memory is static, one block
 * at a time has it, and holds 0xff (as a float NaN) when a block begins.  Floats are IEEE (-ffp-contract=off): what nvcc does
 * with -fmad=false -prec-div=true -prec-sqrt=true -ftz=false.
 *
 * Not there: textures, clusters, launches from a kernel, what streams do at the same time, and lanes that lose step in ways no meeting shows.
 *
 * One host thread. */
#ifndef TR_TESTS_CUDA_ON_CPU_H
#define TR_TESTS_CUDA_ON_CPU_H

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z)
    {
    }
};

struct alignas(8) float2 {
    float x, y;
};
inline float2 make_float2(float x, float y)
{
    return {x, y};
}
struct alignas(16) float4 {
    float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};

/* Saves what a call must keep on the stack, notes the stack in *from and goes on with another one. */
extern "C" void tr_cuda_switch(void **from, void *to);

#if defined(__x86_64__)
asm(R"(
.text
.weak tr_cuda_switch
.hidden tr_cuda_switch
.type tr_cuda_switch, @function
tr_cuda_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size tr_cuda_switch, . - tr_cuda_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.weak tr_cuda_switch
.hidden tr_cuda_switch
.type tr_cuda_switch, %function
tr_cuda_switch:
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size tr_cuda_switch, . - tr_cuda_switch
)");
#else
#error "tr_cuda_switch is written for x86-64 and aarch64"
#endif

namespace tr_cuda
{

enum { WARP = 32, MAX_THREADS = 1024, STACK_BYTES = 256 << 10, MEETINGS = 8 };

inline bool backwards; /* the order in which fibers run between meetings */

struct fiber {
    void *sp;
    char *stack;
    void *fake; /* ASan's stack of variables that have left their function */
    dim3 tid;
    const char *waits; /* in what; NULL: it runs */
    bool over;
    struct copy {
        void *to;
        const void *from;
        unsigned bytes;
    };
    std::vector<std::vector<copy>>
        copies; /* groups of cp.async that are committed; the last one is open */
};

/* Lanes of a warp that do something together. */
struct meeting {
    const char *what; /* NULL: nobody is there */
    uint32_t mask, came;
    void *arg[WARP];
};

struct block {
    dim3 bid, bdim, gdim;
    unsigned n, n_over, n_arrived, now;
    uint32_t warps;                     /* with lanes that can run */
    uint32_t lanes[MAX_THREADS / WARP]; /* that can */
    meeting at[MAX_THREADS / WARP][MEETINGS];
    fiber f[MAX_THREADS];
    fiber host;
    std::function<void()> body;
    std::vector<char> dynamic; /* shared memory whose size the launch says */
};

inline block *b; /* that runs */

struct shared {
    void *p;
    size_t n;
};
inline std::vector<shared> &shareds()
{
    static std::vector<shared> all;
    return all;
}
struct shared_note {
    shared_note(void *p, size_t n)
    {
        shareds().push_back({p, n});
        memset(p, 0xff, n);
    }
};

/* ---- who runs ---- */

inline const void *host_bottom; /* ASan wants to know where the stack lies that is gone on with */
inline size_t host_size;

inline void go(fiber *from, fiber *to)
{
#ifdef __SANITIZE_ADDRESS__
    bool host = to == &b->host;
    __sanitizer_start_switch_fiber(&from->fake, host ? host_bottom : to->stack,
                                   host ? host_size : (size_t)STACK_BYTES);
#endif
    tr_cuda_switch(&from->sp, to->sp);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#endif
}

inline void set_runs(unsigned t, bool on)
{
    uint32_t bit = 1u << t % WARP, &lanes = b->lanes[t / WARP];
    lanes = on ? lanes | bit : lanes & ~bit;
    b->warps = lanes ? b->warps | 1u << t / WARP : b->warps & ~(1u << t / WARP);
}

[[noreturn]] inline void stuck()
{
    fprintf(stderr, "cuda_on_cpu: block (%u, %u, %u) does not go on:\n", b->bid.x, b->bid.y,
            b->bid.z);
    for (unsigned t = 0; t < b->n; t++)
        if (!b->f[t].over)
            fprintf(stderr, "  thread %u waits in %s\n", t, b->f[t].waits);
    if (b->n_over)
        fprintf(stderr, "  %u threads have returned\n", b->n_over);
    abort();
}

/* The member of `set` that comes after `i`, round and round; i need not be one. */
inline unsigned next_of(uint32_t set, unsigned i)
{
    uint32_t above = i < WARP - 1 ? set & ~0u << (i + 1) : 0, below = set & ~(~0u << i);
    if (backwards)
        return 31 - (unsigned)__builtin_clz(below ? below : set);
    return (unsigned)__builtin_ctz(above ? above : set);
}

/* The next that can run: of the same warp, else of another one; the host when all are over. */
inline void give_way()
{
    unsigned t = b->now, w = t / WARP;
    fiber *from = &b->f[t];
    if (b->n_over == b->n) {
        go(from, &b->host);
        return;
    }
    if (!b->warps)
        stuck();
    bool same = b->lanes[w];
    if (!same)
        w = next_of(b->warps, w);
    b->now = w * WARP + next_of(b->lanes[w], same ? t % WARP : backwards ? 0 : WARP - 1);
    if (b->now != t)
        go(from, &b->f[b->now]);
}

inline void block_arrived()
{
    if (b->n_arrived == 0 || b->n_arrived < b->n - b->n_over)
        return;
    b->n_arrived = 0;
    for (unsigned t = 0; t < b->n; t++)
        if (!b->f[t].over) {
            b->f[t].waits = nullptr;
            set_runs(t, true);
        }
}

inline void sync_threads()
{
    unsigned t = b->now;
    b->n_arrived++;
    b->f[t].waits = "__syncthreads";
    set_runs(t, false);
    block_arrived();
    give_way();
}

/* The lanes of the mask meet; fn sees what each has brought and may write to it, once, before any goes on.
 * Lanes that are not in the mask have NULL. */
inline void meet(const char *what, uint32_t mask, void *arg,
                 void (*fn)(void *const arg[WARP], uint32_t mask))
{
    unsigned t = b->now, w = t / WARP, lane = t % WARP;
    meeting *m = nullptr;
    if (b->n - w * WARP < WARP)
        mask &= (1u << (b->n - w * WARP)) - 1; /* the last warp may be short */
    if (!(mask >> lane & 1)) {
        fprintf(stderr, "cuda_on_cpu: thread %u is not in its own mask %08x of %s\n", t, mask,
                what);
        abort();
    }
    for (meeting &k : b->at[w])
        if (k.what && k.mask == mask && !(k.came >> lane & 1) && strcmp(k.what, what) == 0)
            m = &k;
    for (meeting &k : b->at[w])
        if (!m && !k.what) {
            k = {what, mask, 0, {}};
            m = &k;
        }
    if (!m)
        stuck();
    m->came |= 1u << lane;
    m->arg[lane] = arg;
    if (m->came == mask) {
        fn(m->arg, mask);
        m->what = nullptr;
        for (unsigned l = 0; l < WARP; l++)
            if (mask >> l & 1) {
                b->f[w * WARP + l].waits = nullptr;
                set_runs(w * WARP + l, true);
            }
        return;
    }
    b->f[t].waits = what;
    set_runs(t, false);
    give_way();
}

/* ---- a launch ---- */

/* A thread runs the body of one block after the other. */
[[noreturn]] inline void thread_main()
{
#ifdef __SANITIZE_ADDRESS__
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (!host_bottom) /* the first of all was started by the host */
        host_bottom = bottom, host_size = size;
#endif
    for (;;) {
        unsigned t = b->now;
        b->body();
        b->f[t].over = true;
        b->n_over++;
        set_runs(t, false);
        block_arrived();
        give_way();
    }
}

inline void make_fiber(fiber *f)
{
    if (f->stack)
        return;
    f->stack = (char *)aligned_alloc(64, STACK_BYTES);
    if (!f->stack)
        abort();
    void **top = (void **)(void *)(f->stack + STACK_BYTES);
#if defined(__x86_64__)
    *--top =
        nullptr; /* where thread_main would return to; keeps the stack aligned as after a call */
    *--top = (void *)thread_main;
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
#else
    top -= 20;
    memset((void *)top, 0, 20 * sizeof(*top));
    top[11] = (void *)thread_main;
#endif
    f->sp = top;
}

inline void run_block(dim3 bid)
{
    for (shared &s : shareds())
        memset(s.p, 0xff, s.n);
    if (!b->dynamic.empty())
        memset(b->dynamic.data(), 0xff, b->dynamic.size());
    b->bid = bid;
    b->n_over = b->n_arrived = 0;
    b->warps = 0;
    for (unsigned t = 0; t < b->n; t++) {
        fiber *f = &b->f[t];
        make_fiber(f);
        f->over = false;
        f->waits = nullptr;
        f->copies.clear();
        f->tid = dim3(t % b->bdim.x, t / b->bdim.x % b->bdim.y, t / (b->bdim.x * b->bdim.y));
        set_runs(t, true);
    }
    b->now = backwards ? b->n - 1 : 0;
    go(&b->host, &b->f[b->now]);
    for (auto &warp : b->at)
        for (meeting &m : warp)
            m.what = nullptr;
}

inline void launch(dim3 grid, dim3 bdim, size_t shared_bytes, const std::function<void()> &body)
{
    static block the;
    the.n = bdim.x * bdim.y * bdim.z;
    if (the.n == 0 || the.n > MAX_THREADS || b) {
        fprintf(stderr, "cuda_on_cpu: a launch of %u threads%s\n", the.n,
                b ? " from a kernel" : "");
        abort();
    }
    b = &the;
    b->bdim = bdim;
    b->gdim = grid;
    b->body = body;
    b->dynamic.resize(shared_bytes);
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++)
                run_block(dim3(x, y, z));
    b = nullptr;
}

/* ---- what lanes do together ---- */

struct swap_arg {
    uint64_t value, got;
    unsigned from; /* a lane */
};
inline void do_swap(void *const arg[WARP], uint32_t mask)
{
    for (unsigned l = 0; l < WARP; l++)
        if (mask >> l & 1) {
            swap_arg *a = (swap_arg *)arg[l];
            const swap_arg *from = a->from < WARP ? (const swap_arg *)arg[a->from] : nullptr;
            a->got =
                from ? from->value : 0xa5a5a5a5a5a5a5a5u; /* a lane that is not there: anything */
        }
}
template <class T> T swap(const char *what, uint32_t mask, T v, unsigned from)
{
    static_assert(sizeof(T) <= 8);
    swap_arg a = {0, 0, from};
    memcpy(&a.value, &v, sizeof(v));
    meet(what, mask, &a, do_swap);
    memcpy(&v, &a.got, sizeof(v));
    return v;
}

inline void do_vote(void *const arg[WARP], uint32_t mask)
{
    uint64_t set = 0;
    for (unsigned l = 0; l < WARP; l++)
        set |= (uint64_t)(mask >> l & 1 && *(uint64_t *)arg[l]) << l;
    for (unsigned l = 0; l < WARP; l++)
        if (mask >> l & 1)
            *(uint64_t *)arg[l] = set | (uint64_t)mask << 32;
}
/* Who says yes, and above that who was asked. */
inline uint64_t vote(const char *what, uint32_t mask, bool yes)
{
    uint64_t v = yes;
    meet(what, mask, &v, do_vote);
    return v;
}

inline void do_nothing(void *const[WARP], uint32_t)
{
}

/* ---- copies into shared memory that are waited for ---- */

inline uint32_t n_copies; /* counts, in an order that looks like none */

inline void copy_begin(void *to, const void *from, unsigned bytes)
{
    if ((uintptr_t)to % bytes || (uintptr_t)from % bytes) {
        fprintf(stderr, "cuda_on_cpu: a copy of %u bytes from %p to %p\n", bytes, from, to);
        abort();
    }
    auto &c = b->f[b->now].copies;
    if (c.empty())
        c.emplace_back();
    n_copies = n_copies * 1664525u + 1013904223u;
    if (n_copies >> 31)
        memcpy(to, from, bytes);
    else
        c.back().push_back({to, from, bytes});
}
inline void copy_commit()
{
    auto &c = b->f[b->now].copies;
    if (c.empty())
        c.emplace_back();
    c.emplace_back();
}
/* Until at most n groups are under way. */
inline void copy_wait(unsigned n)
{
    auto &c = b->f[b->now].copies;
    while (c.size() > n + 1) {
        for (auto &k : c.front())
            memcpy(k.to, k.from, k.bytes);
        c.erase(c.begin());
    }
}

} // namespace tr_cuda

/* ---- by CUDA's names ---- */

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define threadIdx (tr_cuda::b->f[tr_cuda::b->now].tid)
#define blockIdx (tr_cuda::b->bid)
#define blockDim (tr_cuda::b->bdim)
#define gridDim (tr_cuda::b->gdim)

inline void __syncthreads()
{
    tr_cuda::sync_threads();
}
inline void __syncwarp(uint32_t mask = ~0u)
{
    char nothing;
    tr_cuda::meet("__syncwarp", mask, &nothing, tr_cuda::do_nothing);
}
inline unsigned tr_cuda_lane()
{
    return tr_cuda::b->now % tr_cuda::WARP;
}
template <class T> T __shfl_sync(uint32_t mask, T v, int from, int width = 32)
{
    unsigned l = tr_cuda_lane(), first = l & ~((unsigned)width - 1);
    return tr_cuda::swap("__shfl_sync", mask, v, first + ((unsigned)from & ((unsigned)width - 1)));
}
template <class T> T __shfl_xor_sync(uint32_t mask, T v, int with, int width = 32)
{
    unsigned l = tr_cuda_lane(), from = l ^ (unsigned)with;
    return tr_cuda::swap("__shfl_xor_sync", mask, v,
                         from / (unsigned)width > l / (unsigned)width ? l : from);
}
template <class T> T __shfl_down_sync(uint32_t mask, T v, unsigned by, int width = 32)
{
    unsigned l = tr_cuda_lane(), from = l + by;
    return tr_cuda::swap("__shfl_down_sync", mask, v,
                         from / (unsigned)width == l / (unsigned)width ? from : l);
}
template <class T> T __shfl_up_sync(uint32_t mask, T v, unsigned by, int width = 32)
{
    unsigned l = tr_cuda_lane();
    return tr_cuda::swap("__shfl_up_sync", mask, v, l % (unsigned)width >= by ? l - by : l);
}
inline uint32_t __ballot_sync(uint32_t mask, int yes)
{
    return (uint32_t)tr_cuda::vote("__ballot_sync", mask, yes);
}
inline int __any_sync(uint32_t mask, int yes)
{
    return (uint32_t)tr_cuda::vote("__any_sync", mask, yes) != 0;
}
inline int __all_sync(uint32_t mask, int yes)
{
    uint64_t v = tr_cuda::vote("__all_sync", mask, yes);
    return (uint32_t)v == v >> 32;
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
template <class T> T atomicAdd(T *p, T v)
{
    T old = *p;
    *p = old + v;
    return old;
}
template <class T> T atomicMax(T *p, T v)
{
    T old = *p;
    *p = v > old ? v : old;
    return old;
}
template <class T> T atomicMin(T *p, T v)
{
    T old = *p;
    *p = v < old ? v : old;
    return old;
}
template <class T> T atomicOr(T *p, T v)
{
    T old = *p;
    *p = old | v;
    return old;
}
template <class T> T atomicCAS(T *p, T want, T v)
{
    T old = *p;
    if (old == want)
        *p = v;
    return old;
}

#endif
