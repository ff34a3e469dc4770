/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/ops_cuda.cu - the table of operations (cpu_kernels/ops.h), as this folder fills it. */
#include "cuda_kernels/cuda.h"
#include "cuda_kernels/dev.cuh"

extern "C" {
#include "cpu_kernels/threads.h"
}

/* All work goes to one stream: nothing waits that could be done together. */
static void defer(struct tr_dev *, bool)
{
}

static void parallel(struct tr_dev *dev, uint32_t n, void (*fn)(void *arg, uint32_t i), void *arg)
{
    tr_threads_for(dev->threads, n, fn, arg);
}

/* Threads of the host sleep while the device works: none looks for work at the very moment. */
static bool errand(struct tr_dev *, void (*)(void *arg, uint64_t what), void *, uint64_t)
{
    return false;
}

extern "C" const struct tr_ops tr_ops_cuda = {
    .name = "cuda",
    .apart = true,
    .take = tr_cuda_take,
    .give = tr_cuda_give,
    .take_host = tr_cuda_take_host,
    .give_host = tr_cuda_give_host,
    .resident = tr_cuda_resident,
    .evict = tr_cuda_evict,
    .upload = tr_cuda_upload,
    .download = tr_cuda_download,
    .bucket = tr_cuda_bucket,
    .replay = tr_cuda_replay,
    .record_end = tr_cuda_record_pass,
    .mat_bytes = tr_cuda_mat_bytes,
    .mat_prepare = tr_cuda_mat_prepare,
    .mat_adopt = tr_cuda_mat_adopt,
    .embed = tr_cuda_embed,
    .act_bytes = tr_cuda_act_bytes,
    .act_init = tr_cuda_act_init,
    .act_set = tr_cuda_act_set,
    .matmul = tr_cuda_matmul,
    .matmul_n = tr_cuda_matmul_n,
    .rms_norm = tr_cuda_rms_norm,
    .add_rms_norm = tr_cuda_add_rms_norm,
    .norm_add_rms_norm = tr_cuda_norm_add_rms_norm,
    .head_norm = tr_cuda_head_norm,
    .add = tr_cuda_add,
    .add_bias = tr_cuda_add_bias,
    .scale = tr_cuda_scale,
    .silu_mul = tr_cuda_silu_mul,
    .gelu_mul = tr_cuda_gelu_mul,
    .rope = tr_cuda_rope,
    .kv_write = tr_cuda_kv_write,
    .attention = tr_cuda_attention,
    .gather = tr_cuda_gather,
    .note_ids = tr_cuda_note_ids,
    .defer = defer,
    .parallel = parallel,
    .errand = errand,
    .close = tr_cuda_close,
};
