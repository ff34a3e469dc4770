/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger's process, with the queues of a service played by the test. */
#include "ledger/ledger.h"

#include "shm/stat.h"
#include "shm/stream_id.h"
#include "testlib/shm_rig.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RAND = 4711, TRIES = 60000, SPINS = 2000000000 };

static struct shm_rig r;
static char path[64];
static pid_t pid;

static void setup(void)
{
    shm_rig_open(&r, 4, 1);
    snprintf(path, sizeof(path), "/tmp/tokenring-ledger-%d", (int)getpid());
}

static void teardown(void)
{
    char deliveries[80];
    snprintf(deliveries, sizeof(deliveries), "%s.delivery", path);
    unlink(path);
    unlink(deliveries);
    shm_rig_close(&r);
}

TestSuite(ledger, .init = setup, .fini = teardown, .timeout = 120);

static void start_ledger(void)
{
    fflush(NULL);
    pid = fork();
    if (pid != 0)
        return;
    tr_role = TR_ROLE_LEDGER;
    struct tr_ledger_config c = {.path = path, .model = "sim", .parent_pid = getppid()};
    _exit(tr_ledger_main(&r.s, &c));
}

static void end_ledger(void)
{
    int status;
    kill(pid, SIGTERM);
    waitpid(pid, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", (unsigned)status);
}

static void queue(uint32_t slot)
{
    struct tr_bill b = {.slot = slot,
                        .gen = 1,
                        .stream_rand = RAND,
                        .owner_area = TR_MAX_AREAS,
                        .choices = 1,
                        .state = TR_COMPLETED,
                        .finish = TR_FINISH_EOG,
                        .last_token = UINT32_MAX};
    tr_role = TR_ROLE_ENGINE;
    cr_assert_eq(tr_bill_push(&r.s, &b, NULL), 0);
}

/* Lines of the file that contain `what`. */
static uint64_t lines_with(const char *name, const char *what)
{
    char line[4096];
    uint64_t n = 0;
    FILE *f = fopen(name, "r");
    while (f && fgets(line, sizeof(line), f))
        n += strstr(line, what) != NULL;
    if (f)
        fclose(f);
    return n;
}

static bool is_durable(uint64_t upto)
{
    for (int i = 0; i < TRIES; i++) {
        if (atomic_load(&r.s.ledger->durable) >= upto)
            return true;
        usleep(1000);
    }
    return false;
}

static uint64_t rows_told(void)
{
    return atomic_load(&r.s.stat[TR_STAT_LEDGER]->value[TR_STAT_LEDGER_ROWS]);
}

Test(ledger, a_row_is_known_by_its_whole_stream_id)
{
    char id[TR_STREAM_ID_BYTES];
    FILE *f = fopen(path, "w");
    /* Written before the crash: slot 1, and slot 2 whose frontend chose the random bits of slot 3. */
    for (uint32_t slot = 1; slot <= 2; slot++) {
        tr_stream_id_format((struct tr_stream_id){slot, 1, RAND}, id);
        fprintf(f, "{\"stream_id\":\"%s\"}\n", id);
    }
    fclose(f);
    queue(1); /* written, not confirmed */
    queue(3);
    start_ledger();
    cr_assert(is_durable(2));
    end_ledger();
    cr_expect_eq(lines_with(path, "\"tr-1-1-"), 1, "no row twice");
    cr_expect_eq(lines_with(path, "\"tr-3-1-"), 1, "none is missing");
    cr_expect_eq(rows_told(), 2, "those that a killed process wrote count, too");
}

Test(ledger, what_a_killed_process_confirmed_in_part_is_confirmed)
{
    for (uint32_t slot = 1; slot <= 2; slot++)
        queue(slot);
    atomic_store(&r.s.ledger->bill_head, 2); /* written; `durable` was not yet */
    start_ledger();
    cr_assert(is_durable(2));
    queue(3);
    cr_assert(is_durable(3));
    end_ledger();
    cr_expect_eq(rows_told(), 3);
    cr_expect_eq(lines_with(path, "stream_id"), 1, "none is written again");
}

Test(ledger, delivery_records_without_end_keep_nobody_waiting_and_fill_no_disk)
{
    char deliveries[80];
    snprintf(deliveries, sizeof(deliveries), "%s.delivery", path);
    start_ledger();
    uint64_t done = 0;
    for (uint64_t i = 0; i < SPINS && done < 20; i++) {
        uint64_t head = atomic_load(&r.s.ledger->delivery_head[0]);
        atomic_store(&r.s.area[0]->delivery_tail, head + TR_DELIVERY_CAP);
        if (atomic_load(&r.s.ledger->durable) == done) {
            queue(1);
            done++;
        }
    }
    /* What stands in the queue at the end is taken before the ledger goes. */
    cr_expect(is_durable(20));
    end_ledger();
    cr_expect_geq(atomic_load(&r.s.ledger->delivery_head[0]), 2 * TR_DELIVERY_CAP);
    cr_expect_leq(lines_with(deliveries, "request_id"), TR_DELIVERY_CAP);
}
