/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/sink.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64], path[96];
static struct tr_sink *k;
static struct tr_errbuf err;
static struct tr_row_whole got[64];
static int n_got;

static const struct tr_sink_ops *const ops = &tr_sink_sqlite;

static void setup(void)
{
    snprintf(dir, sizeof(dir), "/tmp/tr-sqlite-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/ledger ?#%%41.db", dir);
    err.msg[0] = '\0';
}

static void teardown(void)
{
    char command[96];
    if (k)
        ops->close(k);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
}

TestSuite(sqlite, .init = setup, .fini = teardown);

static void open_it(void)
{
    cr_assert_eq(ops->open(&k, path, false, &err), 0, "%s", err.msg);
}

static void close_it(void)
{
    ops->close(k);
    k = NULL;
}

static struct tr_entry bill(int number)
{
    struct tr_entry e = {.kind = TR_ENTRY_BILL,
                         .bill = {.request_id = "r",
                                  .key = "k",
                                  .model = "m",
                                  .status = "completed",
                                  .reason = "stop",
                                  .choices = 2,
                                  .prompt_tokens = 3,
                                  .cached_tokens = 4,
                                  .completion_tokens = 5,
                                  .overrun_tokens = 6,
                                  .last_token = -1}};
    snprintf(e.bill.stream_id, sizeof(e.bill.stream_id), "tr-%x-1-%016x", (unsigned)number, 7u);
    e.bill.created_us = 1000 - number;
    return e;
}

static struct tr_entry delivery(int number)
{
    struct tr_entry e = {.kind = TR_ENTRY_DELIVERY, .delivery = {"", 11, 12, 13}};
    snprintf(e.delivery.stream_id, sizeof(e.delivery.stream_id), "tr-%x-1-%016x", (unsigned)number,
             7u);
    return e;
}

static void apply(const struct tr_entry *e, size_t n)
{
    cr_assert_eq(ops->apply(k, e, n, &err), 0, "%s", err.msg);
}

static void apply_one(struct tr_entry e)
{
    apply(&e, 1);
}

static int note(void *arg, const struct tr_row_whole *r)
{
    got[n_got++] = *r;
    return arg && n_got == *(int *)arg ? 7 : 0;
}

static void read_all(const struct tr_sink_filter *f)
{
    n_got = 0;
    cr_assert_eq(ops->each(k, f, note, NULL, &err), 0, "%s", err.msg);
}

static int64_t number_of(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *s = NULL;
    cr_assert_eq(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
    cr_assert_eq(sqlite3_step(s), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return n;
}

static sqlite3 *other(void)
{
    sqlite3 *db = NULL;
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    return db;
}

static void by_hand(const char *sql)
{
    sqlite3 *db = other();
    cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

Test(sqlite, a_row_comes_back_as_it_was)
{
    struct tr_entry e = bill(1);
    memset(e.bill.request_id, 'x', sizeof(e.bill.request_id) - 1);
    strcpy(e.bill.key, "'; DROP TABLE request; --");
    strcpy(e.bill.model, "caf\xc3\xa9");
    e.bill.created_us = 1796041097584944;
    e.bill.first_token_us = 1796041097584945;
    e.bill.finished_us = INT64_MAX;
    e.bill.last_token = 0;
    open_it();
    apply_one(e);
    read_all(NULL);
    cr_assert_eq(n_got, 1);
    cr_expect_str_eq(got[0].bill.request_id, e.bill.request_id);
    cr_expect_str_eq(got[0].bill.key, e.bill.key);
    cr_expect_str_eq(got[0].bill.model, e.bill.model);
    cr_expect_str_eq(got[0].bill.stream_id, e.bill.stream_id);
    cr_expect_str_eq(got[0].bill.status, "completed");
    cr_expect_str_eq(got[0].bill.reason, "stop");
    cr_expect_arr_eq(&got[0].bill.created_us, &e.bill.created_us, 11 * sizeof(int64_t));
    cr_expect(!got[0].delivered);
    apply_one(delivery(1));
    read_all(NULL);
    cr_expect(got[0].delivered && got[0].delivery.first_byte_us == 11 &&
              got[0].delivery.delivered_tokens == 12 && got[0].delivery.closed_us == 13);
}

Test(sqlite, whatever_is_applied_twice_and_in_whatever_order_makes_one_row_each)
{
    struct tr_entry a[] = {delivery(1), bill(2), delivery(2), bill(1), bill(1), delivery(1)};
    struct tr_entry changed = bill(2), late = delivery(2);
    open_it();
    apply(a, 1); /* before its request, in a transaction of its own */
    apply(a + 1, 5);
    apply(a, 6);
    changed.bill.completion_tokens = 99;
    late.delivery.delivered_tokens = 99;
    apply_one(changed);
    apply_one(late);
    read_all(NULL);
    cr_assert_eq(n_got, 2);
    for (int i = 0; i < 2; i++)
        cr_expect(got[i].delivered && got[i].delivery.delivered_tokens == 12 &&
                      got[i].bill.completion_tokens == 5,
                  "what is there is not changed");
    sqlite3 *db = other();
    cr_expect_eq(number_of(db, "SELECT count(*) FROM early"), 0);
    sqlite3_close(db);
}

Test(sqlite, rows_come_in_order_and_by_filter)
{
    open_it();
    for (int i = 0; i < 5; i++)
        apply_one(bill(i));
    struct tr_entry same = bill(9);
    same.bill.created_us = 1000;
    strcpy(same.bill.key, "other");
    strcpy(same.bill.status, "error");
    apply_one(same);
    read_all(NULL);
    cr_assert_eq(n_got, 6);
    for (int i = 1; i < 6; i++)
        cr_expect(got[i - 1].bill.created_us < got[i].bill.created_us ||
                  strcmp(got[i - 1].bill.stream_id, got[i].bill.stream_id) < 0);
    read_all(&(struct tr_sink_filter){.key = "other"});
    cr_expect(n_got == 1 && got[0].bill.created_us == 1000);
    read_all(&(struct tr_sink_filter){.status = "completed", .model = "m"});
    cr_expect_eq(n_got, 5);
    read_all(&(struct tr_sink_filter){.model = "none"});
    cr_expect_eq(n_got, 0);
    read_all(&(struct tr_sink_filter){.from_us = 997, .until_us = 999});
    cr_expect(n_got == 2 && got[0].bill.created_us == 997 && got[1].bill.created_us == 998);
    int stop = 2;
    n_got = 0;
    cr_expect_eq(ops->each(k, NULL, note, &stop, &err), 7, "the caller may end it");
    cr_expect_eq(n_got, 2);
}

Test(sqlite, a_locked_database_refuses_all_of_a_group_and_takes_it_later)
{
    struct tr_entry e[] = {bill(1), delivery(1), bill(2)};
    open_it();
    sqlite3 *db = other();
    cr_assert_eq(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    cr_expect_eq(ops->apply(k, e, 3, &err), -EAGAIN);
    cr_expect(strstr(err.msg, "locked") && strstr(err.msg, path), "%s", err.msg);
    read_all(NULL); /* readers do not mind */
    cr_expect_eq(n_got, 0);
    struct tr_sink *reader = NULL;
    cr_expect_eq(ops->open(&reader, path, true, &err), 0);
    ops->close(reader);
    sqlite3_close(db);
    apply(e, 3);
    read_all(NULL);
    cr_expect_eq(n_got, 2);
}

Test(sqlite, a_database_without_room_keeps_all_or_nothing)
{
    struct tr_entry e[32];
    for (int i = 0; i < 32; i++)
        e[i] = bill(i);
    open_it();
    apply(e, 1);
    sqlite3 *db = other();
    cr_assert_eq(number_of(db, "PRAGMA page_count"), 4);
    sqlite3_close(db);
    close_it();
    /* The limit of pages is a matter of a connection: a trigger says the same of all. */
    by_hand("CREATE TRIGGER full BEFORE INSERT ON request WHEN (SELECT count(*) FROM request) > 9 "
            "BEGIN SELECT RAISE(ABORT, 'no room'); END");
    open_it();
    cr_expect_eq(ops->apply(k, e, 32, &err), -EAGAIN);
    cr_expect(strstr(err.msg, "no room"), "%s", err.msg);
    read_all(NULL);
    cr_expect_eq(n_got, 1);
    by_hand("DROP TRIGGER full");
    apply(e, 32);
    read_all(NULL);
    cr_expect_eq(n_got, 32);
}

Test(sqlite, a_second_writer_is_refused_and_readers_are_not)
{
    struct tr_sink *second = NULL;
    open_it();
    apply_one(bill(1));
    cr_expect_eq(ops->open(&second, path, false, &err), -EBUSY);
    cr_expect(strstr(err.msg, "in use by another service"), "%s", err.msg);
    cr_expect_null(second);
    apply_one(bill(2)); /* the refused one has not taken our locks with it */
    cr_assert_eq(ops->open(&second, path, true, &err), 0);
    n_got = 0;
    cr_expect_eq(ops->each(second, NULL, note, NULL, &err), 0);
    cr_expect_eq(n_got, 2);
    ops->close(second);
}

Test(sqlite, what_was_committed_is_there_after_a_crash)
{
    open_it();
    apply_one(bill(1));
    pid_t pid = fork();
    if (!pid) { /* as if by kill -9: the log is left beside the file */
        char command[512];
        snprintf(command, sizeof(command), "cp '%s' '%s2'; cp '%s-wal' '%s2-wal'", path, path, path,
                 path);
        _exit(system(command) != 0);
    }
    int status;
    waitpid(pid, &status, 0);
    cr_assert_eq(status, 0);
    close_it();
    strcat(path, "2");
    open_it();
    read_all(NULL);
    cr_expect_eq(n_got, 1);
}

/* ---- whose file it is ---- */

static uint8_t before[65536], after[65536];

static ssize_t load(uint8_t *to)
{
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, to, sizeof(before));
    close(fd);
    return n;
}

static void refused(const char *word)
{
    ssize_t n = load(before);
    cr_expect_eq(ops->open(&k, path, false, &err), -EINVAL);
    cr_expect(strstr(err.msg, word) && strstr(err.msg, path), "%s", err.msg);
    cr_expect_eq(ops->open(&k, path, true, &err), -EINVAL);
    cr_expect_null(k);
    cr_expect(load(after) == n && memcmp(before, after, (size_t)n) == 0, "left as it is");
    char log[128];
    snprintf(log, sizeof(log), "%s-wal", path);
    cr_expect(access(log, F_OK) < 0, "and nothing beside it");
}

Test(sqlite, what_is_not_a_ledger_is_refused_and_left_as_it_is)
{
    FILE *f = fopen(path, "w");
    fputs("{\"request_id\": \"a line of something else\"}\n", f);
    fclose(f);
    refused("no SQLite database");
    cr_assert_eq(unlink(path), 0);
    by_hand("CREATE TABLE request (a)");
    refused("another SQLite database");
    cr_assert_eq(unlink(path), 0);
    by_hand("PRAGMA application_id = 5; CREATE TABLE x (a)");
    refused("another SQLite database");
    snprintf(path, sizeof(path), "%s", dir);
    cr_expect_eq(ops->open(&k, path, false, &err), -EINVAL);
    cr_expect(strstr(err.msg, "not a regular file"), "%s", err.msg);
    snprintf(path, sizeof(path), "/nonexistent/x.db");
    cr_expect_eq(ops->open(&k, path, false, &err), -ENOENT);
    cr_expect(strstr(err.msg, "/nonexistent/x.db"), "%s", err.msg);
}

Test(sqlite, a_newer_schema_is_refused)
{
    open_it();
    close_it();
    by_hand("PRAGMA journal_mode = DELETE; PRAGMA user_version = 1000");
    refused("newer version");
}

Test(sqlite, an_older_schema_is_brought_up_to_date_with_its_rows)
{
    open_it();
    apply_one(bill(1));
    close_it();
    by_hand("DROP INDEX request_created; PRAGMA user_version = 1");
    cr_assert_eq(ops->open(&k, path, true, &err), 0, "readers take it as it is: %s", err.msg);
    read_all(NULL);
    cr_expect_eq(n_got, 1);
    close_it();
    sqlite3 *db = other();
    cr_expect_eq(number_of(db, "PRAGMA user_version"), 1);
    sqlite3_close(db);
    open_it();
    read_all(NULL);
    cr_expect_eq(n_got, 1);
    db = other();
    cr_expect_eq(number_of(db, "PRAGMA user_version"), 2);
    cr_expect_eq(number_of(db, "SELECT count(*) FROM sqlite_master WHERE name = 'request_created'"),
                 1);
    sqlite3_close(db);
}

Test(sqlite, an_empty_file_becomes_one_and_a_missing_one_is_none_to_readers)
{
    cr_expect_eq(ops->open(&k, path, true, &err), -ENOENT);
    cr_expect(access(path, F_OK) < 0, "nor does asking make one");
    close(open(path, O_CREAT | O_WRONLY, 0600));
    cr_expect_eq(ops->open(&k, path, true, &err), -ENOENT);
    open_it();
    apply_one(bill(1));
    read_all(NULL);
    cr_expect_eq(n_got, 1);
}

static int rows_in(const char *file)
{
    struct tr_sink *r = NULL;
    cr_assert_eq(ops->open(&r, file, true, &err), 0, "%s", err.msg);
    n_got = 0;
    cr_assert_eq(ops->each(r, NULL, note, NULL, &err), 0, "%s", err.msg);
    ops->close(r);
    return n_got;
}

Test(sqlite, a_file_that_was_moved_is_made_whole_and_a_new_one_takes_what_comes)
{
    const struct tr_entry second = bill(2);
    char moved[128];
    snprintf(moved, sizeof(moved), "%s/moved.db", dir);
    open_it();
    apply_one(bill(1));
    cr_assert_eq(rename(path, moved), 0);
    cr_expect_eq(ops->apply(k, &second, 1, &err), -EAGAIN, "it is not let go of");
    cr_expect(strstr(err.msg, "moved or removed"), "%s", err.msg);
    apply(&second, 1);
    cr_expect_eq(rows_in(moved), 1);
    cr_expect_eq(rows_in(path), 1);
}

Test(sqlite, a_file_that_was_moved_is_made_whole_at_the_end_too)
{
    char moved[128];
    snprintf(moved, sizeof(moved), "%s/moved.db", dir);
    open_it();
    apply_one(bill(1));
    cr_assert_eq(rename(path, moved), 0);
    close_it();
    cr_expect_eq(rows_in(moved), 1);
}

Test(sqlite, where_another_file_has_taken_the_place_records_wait)
{
    const struct tr_entry second = bill(2);
    open_it();
    apply_one(bill(1));
    cr_assert_eq(unlink(path), 0);
    by_hand("CREATE TABLE request (a)");
    for (int i = 0; i < 3; i++)
        cr_expect_eq(ops->apply(k, &second, 1, &err), -EAGAIN);
    cr_expect(strstr(err.msg, "another SQLite database"), "%s", err.msg);
    cr_assert_eq(unlink(path), 0);
    apply(&second, 1);
    cr_expect_eq(rows_in(path), 1);
}

/* What SQLite reads into a name would lose every record at the end of the service. */
Test(sqlite, every_name_is_that_of_a_file)
{
    static const char *const name[] = {":memory:", "file:x.db",
                                       "file::memory:", "file:y?mode=memory"};
    cr_assert_eq(chdir(dir), 0);
    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
        snprintf(path, sizeof(path), "%s", name[i]);
        open_it();
        apply_one(bill(1));
        close_it();
        struct stat st;
        cr_expect(stat(path, &st) == 0 && st.st_size > 0, "%s", path);
        cr_assert_eq(ops->open(&k, path, true, &err), 0, "%s", err.msg);
        read_all(NULL);
        cr_expect_eq(n_got, 1, "%s", path);
        close_it();
    }
    cr_assert_eq(chdir("/"), 0);
}

Test(sqlite, a_name_that_begins_with_two_slashes_is_read_at_rest_too)
{
    open_it();
    apply_one(bill(1));
    close_it();
    memmove(path + 1, path, strlen(path) + 1);
    cr_assert_eq(ops->open(&k, path, true, &err), 0, "%s", err.msg);
    read_all(NULL);
    cr_expect_eq(n_got, 1);
}

Test(sqlite, an_address_that_cannot_be_meant_is_refused_and_not_repeated)
{
    static const char *const wrong[] = {"", "postgre://u:secret@h/d", "sqlite:///x.db"};
    static const char *const right[] = {"x.db", "a:b", "postgres://", "postgresql://h/d"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cr_expect_eq(tr_sink_check_address(wrong[i], &err), -EINVAL, "%s", wrong[i]);
        cr_expect_null(strstr(err.msg, "secret"));
    }
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++)
        cr_expect_eq(tr_sink_check_address(right[i], &err), 0, "%s", right[i]);
}

Test(sqlite, a_file_in_a_folder_that_cannot_be_written_can_be_read)
{
    open_it();
    apply_one(bill(1));
    close_it();
    cr_assert(chmod(dir, 0555) == 0 && chmod(path, 0444) == 0);
    if (geteuid() == 0)
        cr_assert_eq(seteuid(65534), 0);
    int ret = ops->open(&k, path, true, &err);
    cr_expect_eq(ret, 0, "%s", err.msg);
    if (!ret)
        read_all(NULL);
    cr_expect_eq(n_got, 1);
    if (getuid() == 0)
        cr_assert_eq(seteuid(0), 0);
    chmod(dir, 0755);
}
