/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/cpu.c - the device of the CPU and its table of operations. */
#include "cpu_kernels/dev.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void parallel(struct tr_dev *dev, uint32_t n, void (*fn)(void *arg, uint32_t i), void *arg)
{
    tr_cpu_flush(dev);
    tr_threads_for(dev->threads, n, fn, arg);
}

static bool errand(struct tr_dev *dev, void (*fn)(void *arg, uint64_t what), void *arg,
                   uint64_t what)
{
    return tr_threads_errand(dev->threads, fn, arg, what);
}

static const struct tr_kernels *kernels_of(enum tr_cpu_level level)
{
#if defined(__x86_64__)
    if (level == TR_CPU_AVX512)
        return &tr_kernels_avx512;
    if (level == TR_CPU_AVX512_PLAIN)
        return &tr_kernels_avx512_plain;
    if (level == TR_CPU_AVX2)
        return &tr_kernels_avx2;
#endif
    (void)level;
    return &tr_kernels_generic;
}

static void cpu_close(struct tr_dev *dev)
{
    if (!dev)
        return;
    tr_threads_stop(dev->threads);
    tr_attend_room_free(dev->attend);
    free(dev);
}

struct tr_dev *tr_cpu_open(const struct tr_cpu_config *c, struct tr_errbuf *err)
{
    struct tr_dev *dev = calloc(1, sizeof *dev);
    if (!dev || !(dev->attend = tr_attend_room_new())) {
        cpu_close(dev);
        tr_errf(err, -ENOMEM, "no memory for the CPU backend");
        return NULL;
    }
    dev->math = c->math;
    dev->k = kernels_of(tr_cpu_level_find(c->level_max));
    dev->threads = tr_threads_start(c->n_threads, err);
    if (!dev->threads || (c->math == TR_OPS_BLAS && tr_blas_load(&dev->blas, c->n_threads, err))) {
        cpu_close(dev);
        return NULL;
    }
    /* Last: OpenBLAS's threads may run wherever the caller might before. */
    int pinned = c->pin_threads ? tr_threads_pin(dev->threads) : 0;
    if (pinned) {
        tr_errf(err, pinned, "cannot bind threads to processors: %s", strerror(-pinned));
        cpu_close(dev);
        return NULL;
    }
    return dev;
}

const struct tr_ops tr_ops_cpu = {
    .name = "cpu",
    .take = tr_cpu_take,
    .give = tr_cpu_give,
    .take_host = tr_cpu_take_host,
    .give_host = tr_cpu_give,
    .resident = tr_cpu_resident,
    .evict = tr_cpu_evict,
    .upload = tr_cpu_upload,
    .download = tr_cpu_download,
    .mat_bytes = tr_cpu_mat_bytes,
    .mat_prepare = tr_cpu_mat_prepare,
    .mat_adopt = tr_cpu_mat_adopt,
    .embed = tr_cpu_embed,
    .act_bytes = tr_cpu_act_bytes,
    .act_init = tr_cpu_act_init,
    .act_set = tr_cpu_act_set,
    .matmul = tr_cpu_matmul,
    .matmul_n = tr_cpu_matmul_n,
    .rms_norm = tr_cpu_rms_norm,
    .add_rms_norm = tr_cpu_add_rms_norm,
    .norm_add_rms_norm = tr_cpu_norm_add_rms_norm,
    .head_norm = tr_cpu_head_norm,
    .add = tr_cpu_add,
    .add_bias = tr_cpu_add_bias,
    .scale = tr_cpu_scale,
    .silu_mul = tr_cpu_silu_mul,
    .gelu_mul = tr_cpu_gelu_mul,
    .rope = tr_cpu_rope,
    .kv_write = tr_cpu_kv_write,
    .attention = tr_cpu_attention,
    .gather = tr_cpu_gather,
    .note_ids = tr_cpu_note_ids,
    .defer = tr_cpu_defer,
    .parallel = parallel,
    .errand = errand,
    .close = cpu_close,
};
