/* SPDX-License-Identifier: Apache-2.0 */
/* The `cuda` backend: cuda_kernels/, a model and a forward pass behind engine/backend.h.
 *
 * A pass is put on the device's stream and comes back at once; `collect` waits for it, with a sign of
 * life for as long as a pass may take: PATIENCE_NS.  After that there is none, and the supervisor deals with an
 * engine that stands still.
 *
 * A device that fails ends the engine, after a sentence: its context answers nothing more, and the next
 * engine has a new one and the weights, packed, from the same memory (engine/weights.h).  Where a kernel
 * went astray the end is that of a crash, so that the requests of the pass are suspects like those of a
 * pass on the CPU (engine/suspect.c); whatever else befalls a device is nobody's fault, and the end is an
 * exit. */
#include "engine/backend.h"

#include "base/clock.h"
#include "base/gguf.h"
#include "base/log.h"
#include "cuda_kernels/cuda.h"
#include "engine/backend_plan.h"
#include "engine/errand.h"
#include "engine/pick_cuda.h"
#include "engine/sched.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull
enum { RESERVE = 32 }; /* part of the device's memory left to the driver, graphs and fragments */
static const uint64_t PATIENCE_NS = 30000 * MS;
static const uint64_t BEAT_NS = 50 * MS;
static const uint64_t SPIN_NS = 200 * 1000; /* then it asks with pauses between */
static const uint64_t PAUSE_NS = 20 * 1000;

struct tr_backend {
    struct tr_dev *dev;
    struct tr_model *model;
    struct tr_forward *forward;
    struct tr_errand *errand;
    struct tr_pick_cuda *picks;
    uint64_t began_ns; /* the pass that is under way */
};

/* ---- memory ---- */

static struct tr_cuda_shape shape_of(const struct tr_model *m, const struct tr_forward_config *fc)
{
    return (struct tr_cuda_shape){.n_ctx = fc->n_ctx,
                                  .max_rows = fc->max_rows,
                                  .n_head = m->hp.n_head,
                                  .n_head_kv = m->hp.n_head_kv,
                                  .head_dim = m->hp.head_dim};
}

static struct tr_pick_cuda_config picks_of(const struct tr_model *m,
                                           const struct tr_forward_config *fc)
{
    return (struct tr_pick_cuda_config){
        .n_vocab = m->hp.n_vocab, .n_ctx = fc->n_ctx, .max_out = fc->max_out, .n_eog = TR_MAX_EOG};
}

/* Memory of the device that passes and picks work in. */
static uint64_t scratch_bytes(const struct tr_backend *b, const struct tr_forward_config *fc)
{
    struct tr_cuda_shape shape = shape_of(b->model, fc);
    struct tr_pick_cuda_config picks = picks_of(b->model, fc);
    return tr_forward_measure(b->model, &tr_ops_cuda, b->dev, fc) +
           tr_cuda_room_bytes(b->dev, &shape) + tr_pick_cuda_bytes(&picks);
}

/* What is left for KV blocks when everything else that a pass needs is there. */
static uint64_t left_for_kv(const struct tr_backend *b, const struct tr_backend_config *c,
                            struct tr_forward_config *fc)
{
    struct tr_cuda_facts f;
    tr_cuda_facts(b->dev, &f);
    fc->n_ctx = c->n_ctx && c->n_ctx < b->model->hp.n_ctx ? c->n_ctx : b->model->hp.n_ctx;
    uint64_t needs = scratch_bytes(b, fc) + f.memory / RESERVE;
    return f.free > needs ? f.free - needs : 0;
}

static double mb(uint64_t bytes)
{
    return (double)bytes / 1e6;
}

static int plan_memory(const struct tr_backend *b, const struct tr_backend_config *c,
                       struct tr_forward_config *fc, struct tr_errbuf *err)
{
    uint64_t left = left_for_kv(b, c, fc);
    uint64_t block = tr_plan_block_bytes(b->model, fc);
    uint64_t context = (fc->n_ctx + TR_KV_BLOCK - 1) / TR_KV_BLOCK * block;
    if (c->kv_bytes > left)
        return tr_errf(err, -ENOMEM,
                       "--kv-memory of %.1f MB: the GPU has %.1f MB left for KV blocks beside "
                       "weights and scratch",
                       mb(c->kv_bytes), mb(left));
    if (!c->kv_bytes && left < context)
        return tr_errf(err, -ENOMEM,
                       "the GPU has %.1f MB left for KV blocks beside weights and scratch, and one "
                       "context of %" PRIu32
                       " tokens takes %.1f MB: lower --ctx-size, --max-seqs or "
                       "--prefill-chunk, or use a smaller --kv-type",
                       mb(left), fc->n_ctx, mb(context));
    return tr_plan_kv(b->model, c, left, fc, err);
}

/* Before minutes of packing: a model that does not fit is refused. */
static int weights_fit(const struct tr_backend *b, const struct tr_gguf *g, const char *path,
                       struct tr_errbuf *err)
{
    struct tr_cuda_facts f;
    struct tr_model *m = tr_model_measure(g, path, &tr_ops_cuda, b->dev, err);
    if (!m)
        return -EINVAL;
    uint64_t needs = m->weights_len;
    tr_model_free(m);
    tr_cuda_facts(b->dev, &f);
    if (needs <= f.free)
        return 0;
    return tr_errf(err, -ENOMEM,
                   "the weights take %.1f MB, and the GPU (%s) has %.1f MB free of %.1f: take a "
                   "smaller model or quantisation, or end what else uses the GPU",
                   mb(needs), f.name, mb(f.free), mb(f.memory));
}

/* ---- open and close ---- */

/* Exact kernels are taken by whoever insists (cuda_kernels/cuda.h). */
static bool cuda_deterministic(const struct tr_backend_config *c)
{
    return c->deterministic;
}

static void describe(const struct tr_backend *b, const struct tr_backend_config *c,
                     const struct tr_forward_config *fc, struct tr_backend_info *info)
{
    char how[96];
    struct tr_cuda_facts f;
    tr_cuda_facts(b->dev, &f);
    snprintf(how, sizeof(how), "cuda %.32s, %d SMs, %.0f MB of %.0f free", f.name, f.n_sm,
             mb(f.free), mb(f.memory));
    tr_plan_describe(b->model, fc, scratch_bytes(b, fc), how, cuda_deterministic(c), info);
}

static void cuda_close(struct tr_backend *b)
{
    if (!b)
        return;
    tr_errand_close(b->errand);
    tr_pick_cuda_close(b->picks);
    tr_forward_close(b->forward);
    tr_model_free(b->model);
    tr_ops_cuda.close(b->dev);
    free(b);
}

/* Everything that a pass needs, once the model is there. */
static int make_ready(struct tr_backend *b, const struct tr_backend_config *c,
                      struct tr_backend_info *info, struct tr_errbuf *err)
{
    struct tr_forward_config fc = {.kv_type = c->kv_type,
                                   .max_rows = c->max_rows,
                                   .max_out = c->max_out < c->max_rows ? c->max_out : c->max_rows,
                                   .max_seqs = c->max_seqs,
                                   .ids = true};
    int ret = plan_memory(b, c, &fc, err);
    struct tr_cuda_shape shape = shape_of(b->model, &fc);
    if (ret < 0 || (ret = tr_cuda_take_room(b->dev, &shape, err)) < 0)
        return ret;
    b->forward = tr_forward_open(b->model, &tr_ops_cuda, b->dev, &fc, err);
    if (!b->forward)
        return -ENOMEM;
    struct tr_pick_cuda_config picks = picks_of(b->model, &fc);
    b->picks = tr_pick_cuda_open(&tr_ops_cuda, b->dev, &picks);
    if (!b->picks)
        return tr_errf(err, -ENOMEM,
                       "no memory for the sampler: %" PRIu64 " bytes of the GPU, %" PRIu64
                       " page-locked",
                       tr_pick_cuda_bytes(&picks), tr_pick_cuda_host_bytes(&picks));
    tr_cuda_record_begin(b->dev);
    tr_forward_record(b->forward);
    ret = tr_cuda_record_end(b->dev, err);
    if (ret < 0)
        return ret;
    describe(b, c, &fc, info);
    return 0;
}

static struct tr_backend *cuda_open(const struct tr_backend_config *c, struct tr_backend_info *info,
                                    struct tr_errbuf *err)
{
    struct tr_gguf *g = NULL;
    struct tr_backend *b = NULL;
    if (tr_plan_check(c, "cuda", err) < 0 || !(g = tr_gguf_open(c->model_path, err)))
        return NULL;
    b = calloc(1, sizeof(*b));
    if (!b) {
        tr_errf(err, -ENOMEM, "no memory");
        goto failed;
    }
    b->dev = tr_cuda_open(&(struct tr_cuda_config){.exact = c->deterministic,
                                                   .n_threads = c->n_threads,
                                                   .beat = c->beat,
                                                   .beat_arg = c->beat_arg},
                          err);
    if (!b->dev || weights_fit(b, g, c->model_path, err) < 0)
        goto failed;
    b->model = tr_model_load(g, c->model_path, c->weights_fd, &tr_ops_cuda, b->dev, c->beat,
                             c->beat_arg, err);
    if (c->weights_fd > 0)
        close(c->weights_fd);
    if (!b->model || make_ready(b, c, info, err) < 0)
        goto failed;
    b->errand = tr_errand_open();
    if (!b->errand) {
        tr_errf(err, -ENOMEM, "no thread for errands");
        goto failed;
    }
    tr_gguf_close(g);
    /* Pauses of microseconds are not rounded up to the tenth of a millisecond that is usual. */
    (void)prctl(PR_SET_TIMERSLACK, 1000);
    return b;
failed:
    tr_gguf_close(g);
    cuda_close(b);
    return NULL;
}

/* ---- passes ---- */

static void end(enum tr_cuda_state state, const struct tr_errbuf *err)
{
    tr_log(TR_LOG_ERROR, "%s: this engine ends", err->msg);
    if (state == TR_CUDA_FAULT)
        abort();
    _exit(1);
}

static void wait_for_pass(struct tr_backend *b, void (*beat)(void *), void *arg)
{
    struct tr_errbuf err;
    uint64_t from = tr_now_ns(), told = from;
    enum tr_cuda_state state;
    while ((state = tr_cuda_ask(b->dev, &err)) == TR_CUDA_BUSY) {
        uint64_t now = tr_now_ns();
        if (now - told >= BEAT_NS && now - b->began_ns < PATIENCE_NS) {
            told = now;
            if (beat)
                beat(arg);
        }
        if (now - from >= SPIN_NS)
            nanosleep(&(struct timespec){.tv_nsec = (long)PAUSE_NS}, NULL);
    }
    if (state != TR_CUDA_DONE)
        end(state, &err);
}

static void cuda_forward(struct tr_backend *b, const struct tr_batch *batch, float *logits,
                         void (*beat)(void *), void *arg)
{
    b->began_ns = tr_now_ns();
    tr_forward_run(b->forward, batch, logits, beat, arg);
    if (logits)
        wait_for_pass(b, beat, arg);
}

static void cuda_pick(struct tr_backend *b, const struct tr_pick *p, uint32_t n)
{
    struct tr_forward_out out = tr_forward_out(b->forward);
    struct tr_cuda_logits from = {.x = out.logits, .places = out.places, .kv = out.kv};
    tr_pick_cuda_send(b->picks, &from, p, n);
}

static void cuda_collect(struct tr_backend *b, struct tr_picked *out, uint32_t n,
                         void (*beat)(void *), void *arg)
{
    wait_for_pass(b, beat, arg);
    if (n)
        tr_pick_cuda_read(b->picks, out, n);
}

static void cuda_parallel(struct tr_backend *b, uint32_t n, void (*fn)(void *, uint32_t), void *arg)
{
    tr_ops_cuda.parallel(b->dev, n, fn, arg);
}

static bool cuda_errand(struct tr_backend *b, void (*fn)(void *, uint64_t), void *arg,
                        uint64_t what)
{
    return tr_errand_give(b->errand, fn, arg, what);
}

const struct tr_backend_ops tr_backend_cuda = {
    .name = "cuda",
    .deterministic = cuda_deterministic,
    .open = cuda_open,
    .forward = cuda_forward,
    .pick = cuda_pick,
    .collect = cuda_collect,
    .parallel = cuda_parallel,
    .errand = cuda_errand,
    .close = cuda_close,
};
