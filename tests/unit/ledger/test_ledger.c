/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger's process, with the queues of a service played by the test. */
#include "ledger/ledger.h"

#include "ledger/sink.h"
#include "ledger/spool.h"
#include "shm/stat.h"
#include "shm/stream_id.h"
#include "testlib/shm_rig.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RAND = 4711, TRIES = 60000, SPINS = 2000000000 };

static struct shm_rig r;
static char folder[64], path[96], spool[96];
static pid_t pid;
static struct tr_ledger_config config;

static void setup(void)
{
    shm_rig_open(&r, 4, 1);
    snprintf(folder, sizeof(folder), "/tmp/tokenring-ledger-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/ledger.db", folder);
    snprintf(spool, sizeof(spool), "%s/ledger.db.spool", folder);
    config = (struct tr_ledger_config){
        .address = path, .spool = "", .spool_max = 1 << 20, .model = "sim"};
}

static void teardown(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
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
    config.parent_pid = getppid();
    _exit(tr_ledger_main(&r.s, &config));
}

static void end_ledger(void)
{
    int status;
    kill(pid, SIGTERM);
    waitpid(pid, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", (unsigned)status);
}

static void kill_ledger(void)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
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

static int count_row(void *arg, const struct tr_row_whole *w)
{
    uint64_t *n = arg;
    n[0]++;
    n[1] += w->delivered;
    return 0;
}

/* Rows in the database; [1]: of them with a delivery. */
static uint64_t *rows(void)
{
    static uint64_t n[2];
    struct tr_errbuf err = {""};
    struct tr_sink *k = NULL;
    n[0] = n[1] = 0;
    if (tr_sink_sqlite.open(&k, path, true, &err))
        return n;
    cr_assert_eq(tr_sink_sqlite.each(k, NULL, count_row, n, &err), 0, "%s", err.msg);
    tr_sink_sqlite.close(k);
    return n;
}

static void count_entry(void *arg, const struct tr_entry *e)
{
    *(uint64_t *)arg += e->kind == TR_ENTRY_BILL;
}

static uint64_t spooled(void)
{
    uint64_t n = 0;
    struct tr_spool_reader reader = {.entry = count_entry, .arg = &n};
    cr_assert_eq(tr_spool_each(spool, true, &reader, NULL), 0);
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

/* Somebody else writes to the database, and does not end. */
static sqlite3 *hold_database(void)
{
    sqlite3 *db = NULL;
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 60000);
    cr_assert_eq(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    return db;
}

Test(ledger, a_group_that_was_written_but_not_confirmed_makes_no_second_row)
{
    /* Written before the crash: 1, which stands in the queue still. */
    struct tr_spool *p = NULL;
    struct tr_bill b;
    struct tr_entry e;
    queue(1);
    queue(3);
    cr_assert_eq(tr_bill_peek(&r.s, 0, &b), 0);
    tr_row_of_bill(&b, "sim", &e);
    cr_assert_eq(tr_spool_open(&p, spool, 0, NULL), 0);
    cr_assert_eq(tr_spool_add(p, &e), 0);
    cr_assert_eq(tr_spool_commit(p, true), 0);
    tr_spool_close(p);
    start_ledger();
    cr_assert(is_durable(2));
    end_ledger();
    cr_expect_eq(rows()[0], 2, "none is missing, and none there twice");
    cr_expect_eq(rows_told(), 2);
    cr_expect_eq(spooled(), 0, "the spool is empty after a good end");
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
    cr_expect_eq(rows()[0], 1, "none is written again");
}

Test(ledger, a_locked_database_delays_nobody_and_gets_all_rows_later)
{
    start_ledger();
    queue(0);
    cr_assert(is_durable(1));
    sqlite3 *other = hold_database();
    for (uint32_t i = 1; i <= 300; i++) {
        queue(i);
        cr_assert(is_durable(1 + i));
    }
    cr_expect_leq(rows()[0], 1, "it is locked");
    cr_expect_geq(spooled(), 300);
    kill_ledger(); /* and the next one finds them in the spool */
    sqlite3_close(other);
    start_ledger();
    queue(301);
    cr_assert(is_durable(302));
    end_ledger();
    cr_expect_eq(rows()[0], 302);
    cr_expect_eq(spooled(), 0);
}

Test(ledger, a_full_spool_lets_records_wait_and_none_is_lost)
{
    config.spool_max = 64 << 10;
    start_ledger();
    queue(0);
    cr_assert(is_durable(1));
    sqlite3 *other = hold_database();
    for (uint32_t i = 1; i < 1000; i++)
        queue(i);
    /* Until there is no room for another record; the last one can then not be taken. */
    while (atomic_load(&r.s.stat[TR_STAT_LEDGER]->value[TR_STAT_LEDGER_SPOOL_BYTES]) < 63 << 10)
        usleep(1000);
    uint64_t seen = atomic_load(&r.s.ledger->durable);
    cr_expect(seen > 10 && seen < 900, "%d", (int)seen);
    sqlite3_close(other);
    cr_expect(is_durable(1000));
    end_ledger();
    cr_expect_eq(rows()[0], 1000);
}

Test(ledger, with_durability_none_a_record_is_done_when_it_is_taken)
{
    config.durability = TR_DURABLE_NONE;
    start_ledger();
    for (uint32_t i = 0; i < 50; i++)
        queue(i);
    cr_expect(is_durable(50));
    end_ledger();
    cr_expect_eq(rows()[0], 50);
}

Test(ledger, what_is_not_a_ledger_is_refused_and_left_as_it_is)
{
    int status;
    FILE *f = fopen(path, "w");
    fputs("{\"a\":\"file of somebody\"}\n", f);
    fclose(f);
    start_ledger();
    waitpid(pid, &status, 0);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %#x", (unsigned)status);
    struct stat st;
    cr_expect(stat(path, &st) == 0 && st.st_size == 25);
}

Test(ledger, delivery_records_without_end_keep_nobody_waiting_and_fill_no_disk)
{
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
    cr_expect_eq(rows()[0], 1);
    struct stat st;
    cr_expect(stat(path, &st) == 0 && st.st_size < 4 << 20);
}

static int in_table(const char *question)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_prepare_v2(db, question, -1, &st, NULL), SQLITE_OK);
    cr_assert_eq(sqlite3_step(st), SQLITE_ROW);
    int n = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return n;
}

/* Streams that were held when the ledger was killed are reported to one that has billed nothing. */
Test(ledger, every_slot_may_have_a_delivery_of_what_a_former_process_billed)
{
    const uint32_t n = TR_DELIVERY_CAP + r.s.config.n_slots;
    start_ledger();
    tr_role = TR_ROLE_FRONTEND;
    for (uint32_t i = 0, tries = 0; i < n && tries < TRIES; tries++) {
        struct tr_delivery d = {.gen = i + 1, .stream_rand = RAND};
        if (tr_delivery_push(&r.s, &d) == 0)
            i++;
        else
            usleep(1000);
    }
    end_ledger();
    cr_expect_eq(in_table("SELECT count(*) FROM early"), (int)n);
}
