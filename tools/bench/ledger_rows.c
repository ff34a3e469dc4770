/* SPDX-License-Identifier: Apache-2.0 */
/* What the ledger process takes: records pushed into its queue as an engine would, without engine and
 * frontends.  One line of JSON.
 *
 *     cmake --build BUILD --target bench_ledger && BUILD/tests/bench_ledger ADDRESS SPOOL MODE [ROWS]
 *
 * MODE: power, process or none.  Rows a second: as fast as the queue takes them, until the last one is
 * durable, and until the last one is in the database.  Waits: from the push of a record to the look that
 * finds it durable, one record at a time and 32 at once, a thousand times each. */
#include "base/clock.h"
#include "ledger/ledger.h"
#include "shm/stat.h"
#include "testlib/shm_rig.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WAITS = 1000, AT_ONCE = 32, LOOK_US = 20, GAP_US = 1000 };

static struct shm_rig r;
static uint64_t pushed, waits[WAITS];

static void nap_us(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static void push(void)
{
    struct tr_bill b = {.request_id = "5e7c0798-36a7-426f-a353-85219267a196",
                        .key = "a-key",
                        .slot = (uint32_t)(pushed % 384),
                        .gen = (uint32_t)(pushed / 384),
                        .owner_area = TR_MAX_AREAS,
                        .choices = 1,
                        .stream_rand = pushed * 0x9e3779b97f4a7c15u + tr_now_ns(),
                        .arrival_ns = tr_now_ns(),
                        .first_token_ns = tr_now_ns(),
                        .finished_ns = tr_now_ns(),
                        .prompt_tokens = 31,
                        .completion_tokens = 200,
                        .last_token = 42,
                        .state = TR_COMPLETED,
                        .finish = TR_FINISH_EOG};
    while (tr_bill_push(&r.s, &b, NULL))
        nap_us(LOOK_US);
    pushed++;
}

static void until_durable(void)
{
    while (tr_bill_n_durable(&r.s) < pushed)
        nap_us(LOOK_US);
}

static void until_stored(void)
{
    const struct tr_stat *stat = r.s.stat[TR_STAT_LEDGER];
    while (atomic_load_explicit(&stat->value[TR_STAT_LEDGER_STORED], memory_order_relaxed) < pushed)
        nap_us(1000);
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void measure_waits(int at_once)
{
    for (int i = 0; i < WAITS; i++) {
        uint64_t began = tr_now_ns();
        for (int k = 0; k < at_once; k++)
            push();
        until_durable();
        waits[i] = tr_now_ns() - began;
        nap_us(GAP_US);
    }
    qsort(waits, WAITS, sizeof(waits[0]), by_size);
    enum { P50 = WAITS / 2, P99 = WAITS * 99 / 100 };
    printf(", \"wait_%d_us\": {\"p50\": %.0f, \"p99\": %.0f}", at_once, (double)waits[P50] / 1e3,
           (double)waits[P99] / 1e3);
}

static void measure_rate(uint64_t rows)
{
    uint64_t began = tr_now_ns(), upto = pushed + rows;
    while (pushed < upto)
        push();
    until_durable();
    uint64_t durable = tr_now_ns();
    until_stored();
    uint64_t stored = tr_now_ns();
    printf("\"rows\": %llu, \"durable_per_s\": %.0f, \"stored_per_s\": %.0f",
           (unsigned long long)rows, (double)rows * 1e9 / (double)(durable - began),
           (double)rows * 1e9 / (double)(stored - began));
}

static int mode_of(const char *word)
{
    static const char *const words[] = {"power", "process", "none"};
    for (int i = 0; i < 3; i++)
        if (strcmp(word, words[i]) == 0)
            return i;
    return -1;
}

int main(int argc, char **argv)
{
    struct tr_ledger_config c = {.spool_max = 1 << 30, .model = "sim", .parent_pid = getpid()};
    int mode = argc > 3 ? mode_of(argv[3]) : -1, status = 1;
    if (mode < 0) {
        fprintf(stderr, "usage: bench_ledger ADDRESS SPOOL power|process|none [ROWS]\n");
        return 2;
    }
    c.address = argv[1];
    c.spool = argv[2];
    c.durability = (enum tr_durability)mode;
    shm_rig_open(&r, 4, 1);
    pid_t pid = fork();
    if (!pid) {
        tr_role = TR_ROLE_LEDGER;
        _exit(tr_ledger_main(&r.s, &c));
    }
    tr_role = TR_ROLE_ENGINE;
    push(); /* the start is not measured */
    until_stored();
    printf("{");
    measure_rate(argc > 4 ? strtoull(argv[4], NULL, 10) : 100000);
    measure_waits(1);
    measure_waits(AT_ONCE);
    printf("}\n");
    kill(pid, SIGTERM);
    waitpid(pid, &status, 0);
    return status != 0;
}
