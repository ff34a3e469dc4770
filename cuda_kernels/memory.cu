/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/memory.cu - memory of the device and of the host, and copies between them (cpu_kernels/ops.h).
 *
 * What is taken is taken at the start; passes copy a plan of some kilobytes up and token ids down, both from
 * page-locked memory, in order with their kernels. */
#include "cuda_kernels/dev.cuh"

#include <string.h>

static const size_t SLICE = 64 << 20; /* of weights, between two signs of life */

static void *take(struct tr_dev *dev, size_t len)
{
    void *mem = NULL;
    if (dev->error != cudaSuccess || cudaMalloc(&mem, len) != cudaSuccess) {
        (void)cudaGetLastError(); /* the caller says what was too much */
        return NULL;
    }
    return mem;
}

void *tr_cuda_take(struct tr_dev *dev, size_t len, bool)
{
    void *mem = take(dev, len);
    if (mem)
        tr_cuda_note(dev, cudaMemsetAsync(mem, 0, len, dev->stream), "clearing memory");
    return mem;
}

void tr_cuda_give(struct tr_dev *, void *mem, size_t)
{
    (void)cudaFree(mem);
}

void *tr_cuda_take_host(struct tr_dev *dev, size_t len)
{
    void *mem = NULL;
    if (dev->error != cudaSuccess ||
        cudaHostAlloc(&mem, len, cudaHostAllocDefault) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    memset(mem, 0, len);
    return mem;
}

void tr_cuda_give_host(struct tr_dev *, void *mem, size_t)
{
    if (mem)
        (void)cudaFreeHost(mem);
}

const void *tr_cuda_resident(struct tr_dev *dev, const void *mem, size_t len)
{
    char *there = (char *)take(dev, len);
    for (size_t at = 0; there && at < len; at += SLICE) {
        size_t n = len - at < SLICE ? len - at : SLICE;
        /* In order with operations: cudaMemcpy's stream is another one, which they do not wait for, and it may
         * come back while the last part of pageable memory is still on its way. */
        tr_cuda_note(dev,
                     cudaMemcpyAsync(there + at, (const char *)mem + at, n, cudaMemcpyHostToDevice,
                                     dev->stream),
                     "loading weights");
        tr_cuda_note(dev, cudaStreamSynchronize(dev->stream), "loading weights");
        if (dev->beat)
            dev->beat(dev->beat_arg);
    }
    return there;
}

void tr_cuda_evict(struct tr_dev *dev, const void *mem, size_t len)
{
    tr_cuda_give(dev, (void *)(uintptr_t)mem, len);
}

void tr_cuda_upload(struct tr_dev *dev, void *to, const void *from, size_t len)
{
    if (len)
        tr_cuda_note(dev, cudaMemcpyAsync(to, from, len, cudaMemcpyHostToDevice, dev->stream),
                     "an upload");
}

void tr_cuda_download(struct tr_dev *dev, void *to, const void *from, size_t len)
{
    if (len)
        tr_cuda_note(dev, cudaMemcpyAsync(to, from, len, cudaMemcpyDeviceToHost, dev->stream),
                     "a download");
    tr_cuda_note(dev, cudaStreamSynchronize(dev->stream), "a pass");
}
