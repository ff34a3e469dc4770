/* SPDX-License-Identifier: Apache-2.0 */
/* What long prompts that wait cost the engine with the prefix cache: processor time of a step with 32
 * running streams, while prompts of 4,000 tokens wait for KV blocks that those hold.  There is room for
 * them in a step, so the plan is told each time what the cache has of each.  The scheduler, shared memory
 * and the sim backend in one process with a reader that keeps up; no sockets.
 *
 *     cmake --build BUILD --target bench_waiting && BUILD/tests/bench_waiting [WAITING] */
#include "enginerig/engine_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    RUNNING = 32,
    STEPS = 200,
    PROMPT = 4000,
    SHARED = 2000, /* of it the same in all */
    BLOCKS = 800,  /* for the running streams, and fewer left than a prompt needs */
};

static struct tr_engine_rig r;

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct tr_rig_req submit(uint32_t len, uint32_t shared, uint32_t own)
{
    static uint32_t ids[PROMPT];
    struct tr_rig_ask a = tr_rig_ask();
    for (uint32_t i = 0; i < len; i++)
        ids[i] = 1 + (i < shared ? i : i * 7 + own * 31) % 60;
    a.prompt = ids;
    a.prompt_len = len;
    a.params.max_tokens = 300;
    a.params.flags |= TR_REQ_IGNORE_EOS;
    return tr_rig_submit(&r, &a);
}

/* Microseconds of a turn, its readers' work not counted. */
static double turn_us(const struct tr_rig_req *q, uint32_t turns)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < turns; i++) {
        for (uint32_t k = 0; k < RUNNING; k++)
            tr_rig_read_all(&r, &q[k]);
        uint64_t began = cpu_ns();
        tr_rig_turn(&r);
        sum += cpu_ns() - began;
    }
    return (double)sum / turns / 1e3;
}

static void measure(enum tr_prefix_cache cache, uint32_t waiting, uint32_t shared)
{
    struct tr_engine_rig_config c = {
        .shm = {.n_slots = 256, .n_admit = 192, .max_seqs = 128, .n_ctx = PROMPT + 320},
        .sched = {.prefix_cache = cache, .prefill_chunk = 512},
        .kv_blocks = BLOCKS};
    struct tr_rig_req q[RUNNING];
    tr_engine_rig_open(&r, &c);
    for (uint32_t i = 0; i < RUNNING; i++) {
        q[i] = submit(i ? 300 : SHARED, i ? 0 : SHARED, i);
        tr_rig_turn(&r);
    }
    turn_us(q, 20);
    for (uint32_t i = 0; i < waiting; i++)
        submit(PROMPT, shared, RUNNING + i);
    double first = turn_us(q, 1), then = turn_us(q, STEPS);
    printf("%-5s %4u of %u tokens known: %llu running, %llu waiting; the first step %.1f us, then "
           "%.2f us\n",
           cache == TR_PREFIX_ON ? "on," : "off,", shared, PROMPT,
           (unsigned long long)tr_rig_stat(&r, TR_STAT_RUNNING),
           (unsigned long long)tr_rig_stat(&r, TR_STAT_WAITING), first, then);
    tr_engine_rig_close(&r);
}

int main(int argc, char **argv)
{
    uint32_t waiting = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 64;
    for (int round = 0; round < 3; round++) {
        for (int cache = 0; cache < 2; cache++) {
            measure(cache ? TR_PREFIX_ON : TR_PREFIX_OFF, 0, 0);
            measure(cache ? TR_PREFIX_ON : TR_PREFIX_OFF, waiting, 0);
            measure(cache ? TR_PREFIX_ON : TR_PREFIX_OFF, waiting, SHARED);
        }
    }
    return 0;
}
