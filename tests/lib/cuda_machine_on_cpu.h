/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/cuda_machine_on_cpu.h - the device behind cuda_runtime_on_cpu.h: its memory, its streams of work,
 * launches, and its failures.
 *
 * A stream is a list of work.  Work given to an eager stream (tr_cuda::lazy is false, as at first) is done at
 * once; to a lazy one when somebody waits for it or asks whether it is done: then a host that changes what the
 * device still reads, or reads what it has not written yet, shows.  A stream that is being captured notes its
 * work and does none; a graph does what was noted, each time it is launched.
 *
 * Memory of the device holds 0xa5 when it is new.  Without sanitizers it lies in pages of its own that nobody
 * may touch while no work is done (tr_cuda::machine->guard), so a host that reads or writes it dies; with ASan
 * it comes from malloc, and its ends are seen.
 *
 * The machine (struct machine) says what device there is and which calls fail: the call after `skip` others of
 * its kind, `times` times, with a code of CUDA's.  A kernel's code (an error that a device keeps, is_kept) is
 * the answer of every call from then on.  The environment variable TOKENRING_CUDA_ON_CPU names a file that
 * holds one struct machine and is mapped shared, so that a test of whole services can change it at any time
 * (tests/system/69_cuda.py has its layout); or it is "strict": guard and lazy.
 *
 * One host thread. */
#ifndef TR_TESTS_CUDA_MACHINE_ON_CPU_H
#define TR_TESTS_CUDA_MACHINE_ON_CPU_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <map>
#include <sys/mman.h>
#include <tuple>
#include <unistd.h>
#include <vector>

/* As driver_types.h of CUDA numbers them. */
enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorDevicesUnavailable = 46,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorECCUncorrectable = 214,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorLaunchTimeout = 702,
    cudaErrorAssert = 710,
    cudaErrorHardwareStackError = 714,
    cudaErrorIllegalInstruction = 715,
    cudaErrorMisalignedAddress = 716,
    cudaErrorInvalidAddressSpace = 717,
    cudaErrorInvalidPc = 718,
    cudaErrorLaunchFailure = 719,
    cudaErrorSystemDriverMismatch = 803,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorUnknown = 999,
};

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault,
};
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed,
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone,
    cudaStreamCaptureStatusActive,
    cudaStreamCaptureStatusInvalidated,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
enum {
    cudaStreamDefault = 0,
    cudaStreamNonBlocking = 1,
    cudaEventDefault = 0,
    cudaEventBlockingSync = 1,
    cudaEventDisableTiming = 2,
    cudaHostAllocDefault = 0,
    cudaDeviceScheduleAuto = 0,
    cudaDeviceScheduleSpin = 1,
    cudaDeviceScheduleYield = 2,
    cudaDeviceScheduleBlockingSync = 4,
};

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int major, minor, multiProcessorCount, l2CacheSize, ECCEnabled;
};

namespace tr_cuda
{

typedef std::function<void()> work;

/* What can be told to fail. */
enum call {
    CALL_NONE,
    CALL_COUNT,  /* cudaGetDeviceCount */
    CALL_MALLOC, /* cudaMalloc */
    CALL_HOST,   /* cudaHostAlloc */
    CALL_COPY,   /* a copy or memset, when it is done */
    CALL_LAUNCH, /* a kernel, when it runs */
    CALL_GRAPH,  /* a launch of a graph, when it runs */
    CALL_INSTANTIATE,
    CALL_SYNC, /* waiting, asking whether all is done */
    CALLS
};

/* All fields are a test's to write, but for the last three. */
struct machine {
    uint32_t n_devices, major, minor, n_sm;
    uint64_t memory; /* of the device, in bytes */
    uint32_t guard;  /* the host may not touch it */
    uint32_t lazy;   /* streams do their work when they are waited for */
    uint32_t hang;   /* nothing is ever done */
    uint32_t fail;   /* enum call */
    uint32_t code;   /* cudaError_t */
    uint32_t skip;   /* counted down to 0 first */
    uint32_t times;  /* counted down to 0: then no call fails */
    uint32_t fired;  /* how many have failed */
    uint64_t calls[CALLS];
};

inline machine own = {1, 9, 0, 4, (uint64_t)1 << 34, 0, 0, 0, 0, 0, 0, 0, 0, {}};

/* The file of the environment, which a device's process opens at its first call, or `own`. */
inline machine *the_machine()
{
    const char *path = getenv("TOKENRING_CUDA_ON_CPU");
    if (!path || !*path)
        return &own;
    if (strcmp(path, "strict") == 0) {
        own.guard = own.lazy = 1;
        return &own;
    }
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *p = fd < 0 ? MAP_FAILED
                     : mmap(nullptr, sizeof(machine), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "cuda_on_cpu: cannot map %s\n", path);
        abort();
    }
    close(fd);
    return (machine *)p;
}
inline machine *here()
{
    static machine *m = the_machine();
    return m;
}

/* ---- errors ---- */

inline cudaError_t kept; /* the device's end */
inline cudaError_t last; /* for cudaGetLastError */

/* Whether a device answers everything with it from then on, until its process has ended. */
inline bool is_kept(cudaError_t e)
{
    return e == cudaErrorECCUncorrectable ||
           (e >= cudaErrorIllegalAddress && e <= cudaErrorLaunchFailure &&
            e != cudaErrorLaunchOutOfResources) ||
           e == cudaErrorUnknown;
}

inline cudaError_t note(cudaError_t e)
{
    if (e != cudaSuccess)
        last = e; /* cudaErrorNotReady, too: it hides one that nobody has asked for */
    if (is_kept(e))
        kept = e;
    return e;
}

/* A call of this kind is made: success, or the code that was asked for. */
inline cudaError_t called(call c)
{
    machine *m = here();
    __atomic_fetch_add(&m->calls[c], 1, __ATOMIC_RELAXED);
    if (kept != cudaSuccess)
        return note(kept);
    if (m->fail != (uint32_t)c || m->times == 0)
        return cudaSuccess;
    if (m->skip > 0) {
        m->skip--;
        return cudaSuccess;
    }
    m->times--;
    m->fired++;
    return note((cudaError_t)m->code);
}

/* ---- memory ---- */

struct area {
    size_t len, mapped; /* mapped 0: malloc's */
};
inline std::map<char *, area> areas;
inline uint64_t used;
inline unsigned touching; /* work that is being done, one within another */

inline void protect(bool closed)
{
    if (here()->guard)
        for (auto &a : areas)
            if (a.second.mapped)
                mprotect(a.first, a.second.mapped, closed ? PROT_NONE : PROT_READ | PROT_WRITE);
}
/* While one lives the device's memory can be touched. */
struct opened {
    opened()
    {
        if (touching++ == 0)
            protect(false);
    }
    ~opened()
    {
        if (--touching == 0)
            protect(true);
    }
};

inline cudaError_t take(void **p, size_t len)
{
    enum { WHOLE = 4096 };
    *p = nullptr;
    cudaError_t e = called(CALL_MALLOC);
    if (e != cudaSuccess)
        return e;
    if (len == 0)
        return cudaSuccess;
    if (used + len > here()->memory)
        return note(cudaErrorMemoryAllocation);
#ifdef __SANITIZE_ADDRESS__
    size_t mapped = 0;
    char *mem = (char *)aligned_alloc(256, (len + 255) / 256 * 256);
#else
    size_t mapped = (len + WHOLE - 1) / WHOLE * WHOLE;
    char *mem =
        (char *)mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mem = mem == (char *)MAP_FAILED ? nullptr : mem;
#endif
    if (!mem)
        return note(cudaErrorMemoryAllocation);
    memset(mem, 0xa5, len);
    areas[mem] = {len, mapped};
    used += len;
    if (mapped && here()->guard && !touching)
        mprotect(mem, mapped, PROT_NONE);
    *p = mem;
    return cudaSuccess;
}

inline cudaError_t give(void *p)
{
    auto a = areas.find((char *)p);
    if (!p)
        return cudaSuccess;
    if (a == areas.end()) {
        fprintf(stderr, "cuda_on_cpu: cudaFree of what cudaMalloc did not give\n");
        abort();
    }
    used -= a->second.len;
    if (a->second.mapped)
        munmap(p, a->second.mapped);
    else
        free(p);
    areas.erase(a);
    return cudaSuccess;
}

} // namespace tr_cuda

/* ---- streams, events, graphs ---- */

struct tr_cuda_graph {
    std::vector<tr_cuda::work> work;
};
struct tr_cuda_graph_exec {
    std::vector<tr_cuda::work> work;
};
struct tr_cuda_stream {
    std::vector<tr_cuda::work> waiting; /* from `first` on */
    size_t first;
    uint64_t given, over; /* pieces of work so far */
    tr_cuda_graph *notes; /* being captured */
    bool spoilt;          /* by a call that has no place in a capture */
};
struct tr_cuda_event {
    tr_cuda_stream *stream; /* NULL: never recorded */
    uint64_t after;
    double at_ms;
};
typedef tr_cuda_stream *cudaStream_t;
typedef tr_cuda_event *cudaEvent_t;
typedef tr_cuda_graph *cudaGraph_t;
typedef tr_cuda_graph_exec *cudaGraphExec_t;

namespace tr_cuda
{

inline std::vector<tr_cuda_stream *> streams;
inline tr_cuda_stream none; /* the default stream */

inline tr_cuda_stream *of(tr_cuda_stream *s)
{
    return s ? s : &none;
}

/* Up to the piece of work with this number. */
inline void drain(tr_cuda_stream *s, uint64_t to)
{
    if (s->over >= to)
        return;
    opened o;
    while (s->over < to && s->first < s->waiting.size()) {
        work w = std::move(s->waiting[s->first++]);
        s->over++;
        if (kept == cudaSuccess)
            w();
    }
    if (s->first == s->waiting.size()) {
        s->waiting.clear();
        s->first = 0;
    }
}

inline void submit(tr_cuda_stream *s, work w)
{
    s = of(s);
    if (s->notes) {
        s->notes->work.push_back(std::move(w));
        return;
    }
    s->given++;
    s->waiting.push_back(std::move(w));
    if (!here()->lazy && !here()->hang)
        drain(s, s->given);
}

/* A call that waits, or makes memory, has no place in a capture: it fails, and the capture with it. */
inline cudaError_t outside_captures()
{
    bool any = false;
    for (tr_cuda_stream *s : streams)
        if (s->notes)
            any = s->spoilt = true;
    return any ? note(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

inline cudaError_t wait_for(tr_cuda_stream *s, uint64_t to)
{
    cudaError_t e = outside_captures();
    if (e == cudaSuccess)
        e = called(CALL_SYNC);
    if (e != cudaSuccess)
        return e;
    while (here()->hang && s->over < to)
        usleep(10000);
    drain(s, to);
    return kept == cudaSuccess ? cudaSuccess : note(kept);
}

/* The first question is always too early where streams are lazy. */
inline cudaError_t ask(tr_cuda_stream *s, uint64_t to)
{
    cudaError_t e = called(CALL_SYNC);
    if (e != cudaSuccess)
        return e;
    if (s->over >= to)
        return cudaSuccess;
    note(cudaErrorNotReady);
    if (!here()->hang)
        drain(s, to);
    return kept == cudaSuccess ? cudaErrorNotReady : note(kept);
}

/* ---- launches of kernels ---- */

inline std::map<const void *, size_t> &shared_limits()
{
    static std::map<const void *, size_t> all;
    return all;
}

enum { SHARED_PLAIN = 48 << 10, SHARED_MAX = 227 << 10 };

/* TR_LAUNCH (cuda_kernels/port.cuh).  Arguments are copied now, as on a device. */
template <class... P, class... A>
void enqueue(tr_cuda_stream *s, void (*kernel)(P...), dim3 grid, dim3 bdim, size_t bytes, A... args)
{
    auto limit = shared_limits().find((const void *)kernel);
    size_t most = limit == shared_limits().end() ? (size_t)SHARED_PLAIN : limit->second;
    if (bytes > most || bdim.x * bdim.y * bdim.z > MAX_THREADS || !grid.x || !grid.y || !grid.z ||
        grid.y > 65535 || grid.z > 65535) {
        fprintf(stderr,
                "cuda_on_cpu: a launch of (%u, %u, %u) blocks of %u threads with %zu bytes of "
                "shared memory\n",
                grid.x, grid.y, grid.z, bdim.x * bdim.y * bdim.z, bytes);
        abort();
    }
    std::tuple<P...> held(args...);
    /* A launch that is none shows at once, not when it runs. */
    bool now = here()->fail == CALL_LAUNCH && !is_kept((cudaError_t)here()->code);
    if (now && called(CALL_LAUNCH) != cudaSuccess)
        return;
    submit(s, [kernel, grid, bdim, bytes, held, now] {
        if (now || called(CALL_LAUNCH) == cudaSuccess)
            launch(grid, bdim, bytes, [&] { std::apply(kernel, held); });
    });
}

inline cudaError_t copy(void *to, const void *from, size_t n, tr_cuda_stream *s)
{
    if (kept != cudaSuccess)
        return note(kept);
    submit(s, [to, from, n] {
        if (called(CALL_COPY) == cudaSuccess)
            memmove(to, from, n);
    });
    return cudaSuccess;
}
inline cudaError_t set(void *to, int value, size_t n, tr_cuda_stream *s)
{
    if (kept != cudaSuccess)
        return note(kept);
    submit(s, [to, value, n] {
        if (called(CALL_COPY) == cudaSuccess)
            memset(to, value, n);
    });
    return cudaSuccess;
}

} // namespace tr_cuda

#endif
