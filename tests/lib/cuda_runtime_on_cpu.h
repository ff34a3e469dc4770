/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/cuda_runtime_on_cpu.h - the part of the CUDA runtime that tokenring calls, by its names.
 *
 * Memory of the device is memory from malloc, and all that is begun is over when the call returns. */
#ifndef TR_TESTS_CUDA_RUNTIME_ON_CPU_H
#define TR_TESTS_CUDA_RUNTIME_ON_CPU_H

#include <cstdlib>
#include <cstring>

enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 };
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice
};

typedef struct tr_cuda_stream *cudaStream_t;

inline cudaError_t cudaMalloc(void **p, size_t n)
{
    *p = aligned_alloc(256, (n + 255) / 256 * 256);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaFree(void *p)
{
    free(p);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind)
{
    memcpy(to, from, n);
    return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize()
{
    return cudaSuccess;
}
inline cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}

#endif
