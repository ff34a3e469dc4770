/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/open.cu - the device: which one, whether it will do, and its first error. */
#include "cuda_kernels/dev.cuh"
#include "cuda_kernels/cuda.h"

extern "C" {
#include "cpu_kernels/threads.h"
}

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAJOR = 8 }; /* compute capability 8.0: asynchronous copies, int8 tiles of m16n8k32 */

/* ---- opening ---- */

static int refuse(cudaError_t e, struct tr_errbuf *err)
{
    int driver = 0, ours = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&ours);
    if (e == cudaErrorInsufficientDriver && driver == 0)
        return tr_errf(err, -ENODEV,
                       "--backend cuda: there is no NVIDIA driver; install one, or serve with "
                       "--backend cpu");
    if (e == cudaErrorInsufficientDriver)
        return tr_errf(err, -ENODEV,
                       "--backend cuda: the NVIDIA driver is for CUDA %d.%d, this build needs "
                       "%d.%d; install a newer one, or serve with --backend cpu",
                       driver / 1000, driver % 1000 / 10, ours / 1000, ours % 1000 / 10);
    if (e == cudaErrorNoDevice)
        return tr_errf(err, -ENODEV,
                       "--backend cuda: no GPU is to be seen; look at nvidia-smi, "
                       "CUDA_VISIBLE_DEVICES and what the container or unit may open, or serve "
                       "with --backend cpu");
    return tr_errf(err, -EIO, "--backend cuda: the GPU cannot be used: %s (%s)",
                   cudaGetErrorString(e), cudaGetErrorName(e));
}

static int look_at(struct tr_dev *dev, struct tr_errbuf *err)
{
    cudaDeviceProp p;
    int n = 0;
    /* All kernels are loaded now: later nothing is opened, and no first launch waits for it. */
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaSuccess)
        e = cudaSetDevice(0);
    if (e == cudaSuccess)
        e = cudaGetDeviceProperties(&p, 0);
    if (e != cudaSuccess)
        return refuse(e, err);
    if (p.major < MAJOR)
        return tr_errf(err, -ENODEV,
                       "--backend cuda: %s has compute capability %d.%d, and %d.0 is the least; "
                       "serve with --backend cpu",
                       p.name, p.major, p.minor, MAJOR);
    memcpy(dev->name, p.name, sizeof(dev->name) - 1);
    dev->major = p.major;
    dev->minor = p.minor;
    dev->n_sm = p.multiProcessorCount;
    dev->shared_most = p.sharedMemPerBlockOptin;
    e = cudaStreamCreateWithFlags(&dev->stream, cudaStreamNonBlocking);
    return e == cudaSuccess ? 0 : refuse(e, err);
}

struct tr_dev *tr_cuda_open(const struct tr_cuda_config *c, struct tr_errbuf *err)
{
    struct tr_dev *dev = (struct tr_dev *)calloc(1, sizeof(*dev));
    if (!dev) {
        tr_errf(err, -ENOMEM, "no memory");
        return NULL;
    }
    dev->exact = c->exact;
    dev->beat = c->beat;
    dev->beat_arg = c->beat_arg;
    if (look_at(dev, err) < 0) {
        free(dev);
        return NULL;
    }
    dev->threads = tr_threads_start(c->n_threads, err);
    if (!dev->threads) {
        tr_cuda_close(dev);
        return NULL;
    }
    return dev;
}

void tr_cuda_facts(const struct tr_dev *dev, struct tr_cuda_facts *f)
{
    size_t left = 0, all = 0;
    (void)cudaMemGetInfo(&left, &all);
    *f = {};
    memcpy(f->name, dev->name, sizeof(f->name));
    f->major = dev->major;
    f->minor = dev->minor;
    f->n_sm = dev->n_sm;
    f->memory = all;
    f->free = left;
}

void tr_cuda_close(struct tr_dev *dev)
{
    if (!dev)
        return;
    tr_cuda_forget_passes(dev);
    tr_cuda_give(dev, dev->attend_room, dev->attend_room_len);
    (void)cudaStreamDestroy(dev->stream);
    tr_threads_stop(dev->threads);
    free(dev);
}

/* ---- errors ---- */

void tr_cuda_note(struct tr_dev *dev, cudaError_t e, const char *what)
{
    if (e == cudaSuccess || e == cudaErrorNotReady || dev->error != cudaSuccess)
        return;
    dev->error = e;
    dev->error_in = what;
}

/* What a kernel does to a device by itself.  A device that is gone can look so, too; then the next
 * engine does not find it. */
static bool is_fault(cudaError_t e)
{
    switch (e) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
        return true;
    default:
        return false;
    }
}

enum tr_cuda_state tr_cuda_ask(struct tr_dev *dev, struct tr_errbuf *err)
{
    /* Of a launch that was none, as its numbers were wrong.  First: cudaErrorNotReady takes its place. */
    tr_cuda_note(dev, cudaGetLastError(), "a launch");
    cudaError_t e = dev->error == cudaSuccess ? cudaStreamQuery(dev->stream) : dev->error;
    if (e == cudaErrorNotReady)
        return TR_CUDA_BUSY;
    tr_cuda_note(dev, e, "a pass");
    if (dev->error == cudaSuccess)
        return TR_CUDA_DONE;
    tr_errf(err, -EIO, "the GPU (%s) has failed: %s (%s) in %s", dev->name,
            cudaGetErrorString(dev->error), cudaGetErrorName(dev->error), dev->error_in);
    return is_fault(dev->error) ? TR_CUDA_FAULT : TR_CUDA_LOST;
}
