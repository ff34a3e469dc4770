/* SPDX-License-Identifier: Apache-2.0 */
/* How long a device would wait for its host between two steps, and what the host does while the device
 * works: the scheduler and shared memory in one process, behind them a backend that takes a step for done and
 * answers every pick with the same token.  So this is all of the host's work but the launches themselves.
 *
 *     cmake --build BUILD --target bench_gap && BUILD/tests/bench_gap [RUNNING] */
#include "enginerig/engine_rig.h"

#include "base/clock.h"
#include "base/sim_vocab.h"
#include "engine/pick.h"

#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 400, ROUNDS = 3, MOST = 1024 };

struct tr_backend {
    uint64_t launched, collected;  /* when the host was given back its time, last */
    uint64_t gap_ns, meanwhile_ns; /* sums */
};

static struct tr_engine_rig r;
static struct tr_backend device;

static struct tr_backend *null_open(const struct tr_backend_config *c, struct tr_backend_info *info,
                                    struct tr_errbuf *err)
{
    (void)err;
    uint32_t per_seq = c->n_ctx / TR_KV_BLOCK + 1;
    *info = (struct tr_backend_info){.n_vocab = TR_SIM_VOCAB_SIZE,
                                     .n_ctx = c->n_ctx,
                                     .n_kv_blocks = c->max_seqs * per_seq,
                                     .kv_block_bytes = 1};
    return &device;
}

static void null_forward(struct tr_backend *b, const struct tr_batch *batch, float *logits,
                         void (*beat)(void *), void *arg)
{
    (void)batch;
    (void)logits;
    (void)beat;
    (void)arg;
    uint64_t now = tr_now_ns();
    b->gap_ns += now - b->collected;
    b->launched = tr_now_ns();
}

static void null_pick(struct tr_backend *b, const struct tr_pick *p, uint32_t n)
{
    (void)b;
    (void)p;
    (void)n;
}

static void null_collect(struct tr_backend *b, struct tr_picked *out, uint32_t n,
                         void (*beat)(void *), void *arg)
{
    (void)beat;
    (void)arg;
    b->meanwhile_ns += tr_now_ns() - b->launched;
    for (uint32_t i = 0; i < n; i++)
        out[i].id = TR_SIM_TEXT;
    b->collected = tr_now_ns();
}

static void null_close(struct tr_backend *b)
{
    (void)b;
}

static const struct tr_backend_ops null_device = {.name = "null",
                                                  .open = null_open,
                                                  .forward = null_forward,
                                                  .pick = null_pick,
                                                  .collect = null_collect,
                                                  .close = null_close};

static void measure(const struct tr_rig_req *q, uint32_t n, uint32_t steps)
{
    device.gap_ns = device.meanwhile_ns = 0;
    device.collected = tr_now_ns();
    for (uint32_t i = 0; i < steps; i++) {
        uint64_t began = tr_now_ns();
        for (uint32_t k = 0; k < n; k++)
            tr_rig_read_all(&r, &q[k]); /* the frontends' work */
        device.collected += tr_now_ns() - began;
        tr_rig_turn(&r);
    }
    printf("  a device waits %.1f us, meanwhile %.1f us\n", (double)device.gap_ns / steps / 1e3,
           (double)device.meanwhile_ns / steps / 1e3);
}

int main(int argc, char **argv)
{
    static struct tr_rig_req q[MOST];
    uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 256;
    if (n < 1 || n > MOST)
        return 1;
    struct tr_engine_rig_config c = {.ops = &null_device,
                                     .shm = {.n_slots = 4 * n + 64,
                                             .n_admit = n + 64,
                                             .max_seqs = n,
                                             .n_ctx = 4096,
                                             .window = 256},
                                     .sched = {.prefill_chunk = 512}};
    tr_engine_rig_open(&r, &c);
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 4000;
    for (uint32_t i = 0; i < n; i++)
        q[i] = tr_rig_submit(&r, &a);
    measure(q, n, 50);
    printf("%llu running; of a step:\n", (unsigned long long)tr_rig_stat(&r, TR_STAT_RUNNING));
    for (uint32_t i = 0; i < ROUNDS; i++)
        measure(q, n, STEPS);
    tr_engine_rig_close(&r);
    return 0;
}
