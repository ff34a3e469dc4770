/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/graph.cu - passes that are recorded once and started with one call (cpu_kernels/ops.h, replay).
 *
 * A pass of a decoding batch is some hundred launches, each of which costs the host microseconds: as many as its
 * kernels run for where the batch is small.  A graph of it costs one.  Passes are kept by the power of two that
 * their rows fit into, so nine graphs serve every batch up to 256; the rows that are too many are not there.
 * Larger batches have kernels that are long enough, and passes with chunks of prompts are each of another shape:
 * these are launched one by one. */
#include "cuda_kernels/dev.cuh"
#include "cuda_kernels/cuda.h"

#include <errno.h>

static_assert((int)TR_CUDA_ROWS == (int)TR_CUDA_PASSES - 1, "a place for each number of rows");

uint32_t tr_cuda_bucket(const struct tr_dev *, uint32_t n_rows)
{
    uint32_t n = 1;
    while (n < n_rows)
        n *= 2;
    return n <= TR_CUDA_ROWS ? n : 0;
}

bool tr_cuda_replay(struct tr_dev *dev, uint32_t n_rows)
{
    if (n_rows > TR_CUDA_ROWS)
        return false;
    if (dev->passes[n_rows]) {
        if (!dev->opening)
            tr_cuda_note(dev, cudaGraphLaunch(dev->passes[n_rows], dev->stream), "starting a pass");
        return true;
    }
    if (dev->opening && dev->error == cudaSuccess) {
        tr_cuda_note(dev, cudaStreamBeginCapture(dev->stream, cudaStreamCaptureModeThreadLocal),
                     "recording a pass");
        dev->recording = dev->error == cudaSuccess ? n_rows : 0;
    }
    return false;
}

void tr_cuda_record_pass(struct tr_dev *dev)
{
    cudaGraph_t graph = NULL;
    if (!dev->recording)
        return;
    cudaGraphExec_t *pass = &dev->passes[dev->recording];
    dev->recording = 0;
    cudaError_t e = cudaStreamEndCapture(dev->stream, &graph);
    if (e == cudaSuccess)
        e = cudaGraphInstantiate(pass, graph, 0);
    if (e == cudaSuccess)
        e = cudaGraphUpload(*pass, dev->stream);
    if (graph)
        (void)cudaGraphDestroy(graph);
    tr_cuda_note(dev, e, "recording a pass");
}

void tr_cuda_record_begin(struct tr_dev *dev)
{
    dev->opening = true;
}

int tr_cuda_record_end(struct tr_dev *dev, struct tr_errbuf *err)
{
    dev->opening = false;
    tr_cuda_note(dev, cudaStreamSynchronize(dev->stream), "recording a pass");
    if (dev->error == cudaErrorMemoryAllocation)
        return tr_errf(err, -ENOMEM,
                       "the GPU has no memory left for recorded passes: give KV blocks less "
                       "(--kv-memory)");
    enum tr_cuda_state state = tr_cuda_ask(dev, err);
    return state == TR_CUDA_DONE || state == TR_CUDA_BUSY ? 0 : -EIO;
}

void tr_cuda_forget_passes(struct tr_dev *dev)
{
    for (uint32_t i = 0; i < TR_CUDA_PASSES; i++)
        if (dev->passes[i])
            (void)cudaGraphExecDestroy(dev->passes[i]);
}
