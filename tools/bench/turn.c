/* SPDX-License-Identifier: Apache-2.0 */
/* What parked and ended requests cost the engine: processor time of a step with 32 running streams,
 * alone and beside thousands that wait for their reader.  The scheduler, shared memory and the sim
 * backend in one process with a reader that keeps up; no sockets.
 *
 *     cmake --build BUILD --target bench_turn && BUILD/tests/bench_turn [SLOTS PARKED ENDED] */
#include "enginerig/engine_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RUNNING = 32, STEPS = 200, ROUNDS = 3 };

static struct tr_engine_rig r;

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct tr_rig_req submit(uint32_t max_tokens)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q;
    a.params.max_tokens = max_tokens;
    a.params.flags |= TR_REQ_IGNORE_EOS;
    while (tr_rig_submit_group(&r, &a, 1, &q))
        tr_rig_turn(&r); /* no open slot: somebody has to park or end first */
    return q;
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

static uint32_t arg_of(int argc, char **argv, int i, uint32_t otherwise)
{
    return argc > i ? (uint32_t)strtoul(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    uint32_t slots = arg_of(argc, argv, 1, 10000), parked = arg_of(argc, argv, 2, 9000);
    uint32_t ended = arg_of(argc, argv, 3, 0);
    struct tr_engine_rig_config c = {
        .shm = {.n_slots = slots, .n_admit = 64, .max_seqs = RUNNING, .n_ctx = 1024, .window = 16},
        .sched = {.prefill_chunk = 256},
        .backend = {.kv_bytes = (uint64_t)slots * 2 * TR_KV_BLOCK * sizeof(uint32_t)}};
    struct tr_rig_req q[RUNNING];
    if (slots < parked + ended + 128) {
        fprintf(stderr, "%u slots are too few\n", slots);
        return 1;
    }
    tr_engine_rig_open(&r, &c);
    for (uint32_t i = 0; i < ended; i++)
        submit(2);
    for (uint32_t i = 0; i < parked; i++)
        submit(1000);
    tr_rig_run(&r, NULL, 0);
    for (uint32_t i = 0; i < RUNNING; i++)
        q[i] = submit(1000);
    turn_us(q, 20);
    printf("%llu parked, %llu ended, %llu running; a step:",
           (unsigned long long)tr_rig_stat(&r, TR_STAT_PARKED),
           (unsigned long long)tr_rig_stat(&r, TR_STAT_SLOTS_ENDED),
           (unsigned long long)tr_rig_stat(&r, TR_STAT_RUNNING));
    for (uint32_t i = 0; i < ROUNDS; i++)
        printf(" %.1f us", turn_us(q, STEPS));
    printf("\n");
    tr_engine_rig_close(&r);
    return 0;
}
