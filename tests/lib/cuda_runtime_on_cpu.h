/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/cuda_runtime_on_cpu.h - the part of CUDA's runtime API that cuda_kernels/ calls, by its own names,
 * over the memory of the host (cuda_machine_on_cpu.h says how that behaves).  After cuda_on_cpu.h, which runs
 * launches. */
#ifndef TR_TESTS_CUDA_RUNTIME_ON_CPU_H
#define TR_TESTS_CUDA_RUNTIME_ON_CPU_H

#include "cudalib/cuda_machine_on_cpu.h"

/* ---- devices ---- */

inline const char *cudaGetErrorName(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
        return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorECCUncorrectable:
        return "cudaErrorECCUncorrectable";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
        return "cudaErrorLaunchFailure";
    default:
        return "cudaError";
    }
}
inline const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorECCUncorrectable:
        return "uncorrectable ECC error encountered";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    default:
        return "an error";
    }
}
inline cudaError_t cudaPeekAtLastError()
{
    return tr_cuda::kept != cudaSuccess ? tr_cuda::kept : tr_cuda::last;
}
inline cudaError_t cudaGetLastError()
{
    cudaError_t e = cudaPeekAtLastError();
    tr_cuda::last = cudaSuccess;
    return e;
}
inline cudaError_t cudaGetDeviceCount(int *n)
{
    *n = (int)tr_cuda::here()->n_devices;
    cudaError_t e = tr_cuda::called(tr_cuda::CALL_COUNT);
    return e != cudaSuccess ? e : *n ? cudaSuccess : tr_cuda::note(cudaErrorNoDevice);
}
inline cudaError_t cudaSetDevice(int device)
{
    return (unsigned)device < tr_cuda::here()->n_devices ? cudaSuccess
                                                         : tr_cuda::note(cudaErrorInvalidDevice);
}
inline cudaError_t cudaSetDeviceFlags(unsigned)
{
    return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
    const tr_cuda::machine *m = tr_cuda::here();
    *p = {};
    snprintf(p->name, sizeof(p->name), "CPU in CUDA's place");
    p->totalGlobalMem = m->memory;
    p->sharedMemPerBlock = tr_cuda::SHARED_PLAIN;
    p->sharedMemPerBlockOptin = tr_cuda::SHARED_MAX;
    p->sharedMemPerMultiprocessor = 228 << 10;
    p->major = (int)m->major;
    p->minor = (int)m->minor;
    p->multiProcessorCount = (int)m->n_sm;
    p->l2CacheSize = 50 << 20;
    return cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int *v)
{
    *v = tr_cuda::here()->n_devices ? 13000 : 0;
    return cudaSuccess;
}
inline cudaError_t cudaRuntimeGetVersion(int *v)
{
    *v = 13000;
    return cudaSuccess;
}
template <class T> cudaError_t cudaFuncSetAttribute(T *kernel, cudaFuncAttribute, int value)
{
    if (value > tr_cuda::SHARED_MAX)
        return tr_cuda::note(cudaErrorInvalidValue);
    tr_cuda::shared_limits()[(const void *)kernel] = (size_t)value;
    return cudaSuccess;
}

/* ---- memory ---- */

inline cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    *total = tr_cuda::here()->memory;
    *free = *total > tr_cuda::used ? *total - tr_cuda::used : 0;
    return tr_cuda::kept;
}
template <class T> cudaError_t cudaMalloc(T **p, size_t len)
{
    cudaError_t e = tr_cuda::outside_captures();
    void *mem = nullptr;
    if (e == cudaSuccess)
        e = tr_cuda::take(&mem, len);
    *p = (T *)mem;
    return e;
}
inline cudaError_t cudaFree(void *p)
{
    return tr_cuda::give(p);
}
template <class T> cudaError_t cudaHostAlloc(T **p, size_t len, unsigned)
{
    cudaError_t e = tr_cuda::called(tr_cuda::CALL_HOST);
    *p = e == cudaSuccess ? (T *)aligned_alloc(4096, (len + 4095) / 4096 * 4096) : nullptr;
    if (e == cudaSuccess && !*p)
        e = tr_cuda::note(cudaErrorMemoryAllocation);
    if (*p)
        memset((void *)*p, 0xa5, len);
    return e;
}
template <class T> cudaError_t cudaMallocHost(T **p, size_t len)
{
    return cudaHostAlloc(p, len, cudaHostAllocDefault);
}
inline cudaError_t cudaFreeHost(void *p)
{
    free(p);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind,
                                   cudaStream_t s = nullptr)
{
    return tr_cuda::copy(to, from, n, s);
}
inline cudaError_t cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t s = nullptr)
{
    return tr_cuda::set(to, value, n, s);
}

/* ---- streams ---- */

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    *s = new tr_cuda_stream();
    tr_cuda::streams.push_back(*s);
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return cudaStreamCreateWithFlags(s, cudaStreamDefault);
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    s = tr_cuda::of(s);
    return tr_cuda::wait_for(s, s->given);
}
inline cudaError_t cudaStreamQuery(cudaStream_t s)
{
    s = tr_cuda::of(s);
    return tr_cuda::ask(s, s->given);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    tr_cuda::drain(s, s->given);
    for (auto &k : tr_cuda::streams)
        if (k == s) {
            k = tr_cuda::streams.back();
            tr_cuda::streams.pop_back();
            break;
        }
    delete s->notes;
    delete s;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize()
{
    cudaError_t e = tr_cuda::wait_for(&tr_cuda::none, tr_cuda::none.given);
    for (tr_cuda_stream *s : tr_cuda::streams)
        if (e == cudaSuccess)
            e = tr_cuda::wait_for(s, s->given);
    return e;
}
/* On the default stream: the others are non-blocking, so neither waits for the other.  What goes up from pageable
 * memory has left it when the call comes back, and may not have arrived. */
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind kind)
{
    tr_cuda_stream *s = &tr_cuda::none;
    cudaError_t e = tr_cuda::outside_captures();
    if (e != cudaSuccess)
        return e;
    if (kind != cudaMemcpyHostToDevice) {
        e = tr_cuda::copy(to, from, n, s);
        return e == cudaSuccess ? tr_cuda::wait_for(s, s->given) : e;
    }
    e = tr_cuda::called(tr_cuda::CALL_COPY);
    if (e != cudaSuccess)
        return e;
    std::vector<char> staged((const char *)from, (const char *)from + n);
    tr_cuda::submit(s, [to, staged] { memcpy(to, staged.data(), staged.size()); });
    return cudaSuccess;
}
inline cudaError_t cudaMemset(void *to, int value, size_t n)
{
    cudaError_t e = tr_cuda::outside_captures();
    return e == cudaSuccess ? tr_cuda::set(to, value, n, nullptr) : e;
}

/* ---- events ---- */

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    *e = new tr_cuda_event();
    return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, cudaEventDefault);
}
inline cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete e;
    return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s = nullptr)
{
    e->stream = tr_cuda::of(s);
    e->after = e->stream->given;
    return tr_cuda::kept;
}
inline cudaError_t cudaEventQuery(cudaEvent_t e)
{
    return e->stream ? tr_cuda::ask(e->stream, e->after) : cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    return e->stream ? tr_cuda::wait_for(e->stream, e->after) : cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned = 0)
{
    tr_cuda_stream *other = e->stream;
    uint64_t to = e->after;
    if (other && other != tr_cuda::of(s))
        tr_cuda::submit(s, [other, to] { tr_cuda::drain(other, to); });
    return tr_cuda::kept;
}

/* ---- graphs ---- */

inline cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    if (tr_cuda::kept != cudaSuccess)
        return tr_cuda::note(tr_cuda::kept);
    if (!s || s->notes)
        return tr_cuda::note(cudaErrorStreamCaptureUnsupported);
    s->notes = new tr_cuda_graph();
    s->spoilt = false;
    return cudaSuccess;
}
inline cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status)
{
    *status = !s || !s->notes ? cudaStreamCaptureStatusNone
              : s->spoilt     ? cudaStreamCaptureStatusInvalidated
                              : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    *graph = s->notes;
    s->notes = nullptr;
    if (*graph && !s->spoilt)
        return cudaSuccess;
    delete *graph;
    *graph = nullptr;
    return tr_cuda::note(cudaErrorStreamCaptureInvalidated);
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                        unsigned long long = 0)
{
    cudaError_t e = tr_cuda::called(tr_cuda::CALL_INSTANTIATE);
    *exec = e == cudaSuccess ? new tr_cuda_graph_exec{graph->work} : nullptr;
    return e;
}
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return tr_cuda::kept;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    if (tr_cuda::kept != cudaSuccess)
        return tr_cuda::note(tr_cuda::kept);
    tr_cuda::submit(s, [exec] {
        if (tr_cuda::called(tr_cuda::CALL_GRAPH) == cudaSuccess)
            for (tr_cuda::work &w : exec->work)
                if (tr_cuda::kept == cudaSuccess)
                    w();
    });
    return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}

#endif
