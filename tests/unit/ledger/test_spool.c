/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/spool.h"

#include "ledger/frame.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 2000 };

static char dir[64];
static struct tr_spool *p;
static struct tr_entry got[MOST];
static int n_got, n_bad;
static struct tr_spool_bad bad[16];

static void setup(void)
{
    char parent[48] = "/tmp/tr-spool-XXXXXX";
    cr_assert_not_null(mkdtemp(parent));
    snprintf(dir, sizeof(dir), "%s/x.spool", parent);
    cr_assert_eq(tr_spool_open(&p, dir, 0, NULL), 0);
}

static void teardown(void)
{
    char command[96];
    tr_spool_close(p);
    snprintf(command, sizeof(command), "rm -rf $(dirname %s)", dir);
    cr_assert_eq(system(command), 0);
}

/* Of the folder: segments are synced by fdatasync. */
static int n_synced;

int fsync(int fd)
{
    n_synced++;
    return (int)syscall(SYS_fsync, fd);
}

TestSuite(spool, .init = setup, .fini = teardown);

static struct tr_entry entry(int number)
{
    struct tr_entry e = {.kind = TR_ENTRY_BILL, .bill.prompt_tokens = number};
    snprintf(e.bill.stream_id, sizeof(e.bill.stream_id), "tr-%x-1-%016x", (unsigned)number, 7u);
    snprintf(e.bill.request_id, sizeof(e.bill.request_id), "request %d", number);
    return e;
}

static void write_some(int from, int n)
{
    for (int i = from; i < from + n; i++) {
        struct tr_entry e = entry(i);
        cr_assert_eq(tr_spool_add(p, &e), 0);
    }
    cr_assert_eq(tr_spool_commit(p, true), 0);
}

static void reopen(uint64_t max)
{
    tr_spool_close(p);
    p = NULL;
    cr_assert_eq(tr_spool_open(&p, dir, max, NULL), 0);
}

static void on_bad(void *arg, const struct tr_spool_bad *b)
{
    (void)arg;
    if (n_bad < 16)
        bad[n_bad] = *b;
    n_bad++;
}

static void on_entry(void *arg, const struct tr_entry *e)
{
    (void)arg;
    if (n_got < MOST)
        got[n_got] = *e;
    n_got++;
}

/* As the sink thread does: all there is, `max` at a time. */
static void take_all(int max)
{
    struct tr_spool_place upto;
    n_got = n_bad = 0;
    for (int n; (n = tr_spool_take(p, got + n_got, max, &upto, on_bad, NULL)) != 0; n_got += n) {
        cr_assert(n > 0 && n_got + n <= MOST);
        tr_spool_done(p, upto);
    }
}

/* As another process does. */
static void read_all(bool live)
{
    struct tr_spool_reader r = {on_entry, on_bad, NULL};
    n_got = n_bad = 0;
    cr_assert_eq(tr_spool_each(dir, live, &r, NULL), 0);
}

static int files(const char *ending)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        const char *dot = strrchr(e->d_name, '.');
        n += dot && strcmp(dot + 1, ending) == 0;
    }
    closedir(d);
    return n;
}

static void path_of(int number, char out[128])
{
    snprintf(out, 128, "%s/%016x.spool", dir, number);
}

Test(spool, what_was_committed_is_taken_in_its_order_and_once)
{
    write_some(0, 100);
    write_some(100, 3);
    take_all(7);
    cr_assert_eq(n_got, 103);
    for (int i = 0; i < n_got; i++)
        cr_expect_eq(got[i].bill.prompt_tokens, i);
    take_all(7);
    cr_expect(n_got == 0 && n_bad == 0);
    cr_expect(tr_spool_is_empty(p));
}

Test(spool, nothing_is_there_before_the_commit)
{
    struct tr_entry e = entry(1);
    cr_assert_eq(tr_spool_add(p, &e), 0);
    read_all(true);
    cr_expect_eq(n_got, 0);
    take_all(8);
    cr_expect_eq(n_got, 0);
}

Test(spool, what_was_not_done_is_taken_again_also_by_the_next_process)
{
    struct tr_spool_place upto;
    write_some(0, 10);
    cr_assert_eq(tr_spool_take(p, got, 4, &upto, on_bad, NULL), 4);
    cr_assert_eq(tr_spool_take(p, got, 100, &upto, on_bad, NULL), 10, "the same again, and more");
    reopen(0);
    write_some(10, 5);
    take_all(100);
    cr_expect_eq(n_got, 15);
    reopen(0);
    take_all(100);
    cr_expect_eq(n_got, 0, "all of it was done");
    cr_expect_eq(files("spool"), 0);
}

Test(spool, a_segment_goes_when_all_of_it_is_done)
{
    reopen(128 << 10);
    for (int i = 0; i < 200; i++) /* a segment is an eighth of the limit */
        write_some(i, 1);
    cr_expect_geq(files("spool"), 3);
    take_all(16);
    cr_expect_eq(n_got, 200);
    cr_expect_leq(files("spool"), 1, "but the one that is written to");
    cr_expect(tr_spool_trim(p, 0) || files("spool") == 0);
    take_all(16);
    cr_expect_eq(files("spool"), 0);
    cr_expect_eq(tr_spool_bytes(p), 0);
}

Test(spool, a_full_one_refuses_and_takes_more_when_there_is_room)
{
    struct tr_entry e = entry(0);
    reopen(64 << 10);
    int n = 0, more = 0;
    for (; n < MOST && tr_spool_add(p, &e) == 0; n++)
        if (n % 5 == 4)
            cr_assert_eq(tr_spool_commit(p, false), 0);
    cr_assert(n > 100 && n < MOST);
    cr_expect_eq(tr_spool_add(p, &e), -ENOSPC);
    cr_assert_eq(tr_spool_commit(p, false), 0);
    cr_expect_leq(tr_spool_bytes(p), 64 << 10);
    take_all(100);
    cr_expect_eq(n_got, n);
    for (; more < MOST && tr_spool_add(p, &e) == 0; more++)
        ;
    cr_expect_geq(more, n / 2);
    tr_spool_unlimited(p);
    cr_expect_eq(tr_spool_add(p, &e), 0);
}

Test(spool, a_group_has_a_largest_size)
{
    struct tr_entry e = entry(0);
    int n = 0;
    while (n < 100000 && tr_spool_add(p, &e) == 0)
        n++;
    cr_assert(n > 1000 && n < 100000);
    cr_expect_eq(tr_spool_add(p, &e), -ENOMEM);
    cr_assert_eq(tr_spool_commit(p, false), 0);
    cr_expect_eq(tr_spool_add(p, &e), 0);
}

Test(spool, a_second_process_is_refused_until_the_first_is_gone)
{
    struct tr_spool *other = NULL;
    struct tr_errbuf err = {""};
    cr_expect(tr_spool_is_live(dir));
    cr_assert_eq(tr_spool_open(&other, dir, 0, &err), -EBUSY);
    cr_expect(strstr(err.msg, "in use by another service") && strstr(err.msg, dir), "%s", err.msg);
    tr_spool_close(p);
    p = NULL;
    cr_expect(!tr_spool_is_live(dir));
    cr_assert_eq(tr_spool_open(&other, dir, 0, &err), 0);
    tr_spool_close(other);
}

Test(spool, places_that_cannot_be_used_are_refused_with_a_sentence)
{
    struct tr_spool *other = NULL;
    struct tr_errbuf err = {""};
    cr_expect_eq(tr_spool_open(&other, "/nonexistent/x", 0, &err), -ENOENT);
    cr_expect(strstr(err.msg, "/nonexistent/x"));
    cr_expect_eq(tr_spool_open(&other, "/etc/passwd", 0, &err), -ENOTDIR);
    cr_expect_null(other);
}

Test(spool, a_write_that_fails_half_way_is_taken_back_and_tried_again)
{
    struct rlimit old, small;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    write_some(0, 2);
    small = old;
    small.rlim_cur = tr_spool_bytes(p) + 100;
    struct tr_entry e = entry(2);
    cr_assert_eq(tr_spool_add(p, &e), 0);
    setrlimit(RLIMIT_FSIZE, &small);
    int first = tr_spool_commit(p, true), second = tr_spool_commit(p, true);
    setrlimit(RLIMIT_FSIZE, &old);
    cr_expect(first == -EFBIG && second == -EFBIG, "%d, %d", first, second);
    read_all(false);
    cr_expect(n_got == 2 && n_bad == 0, "back to whole frames");
    cr_assert_eq(tr_spool_commit(p, true), 0);
    read_all(false);
    cr_expect(n_got == 3 && n_bad == 0);
}

/* ---- damage ---- */

static uint8_t image[4096];

static size_t load(const char *path)
{
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, image, sizeof(image));
    close(fd);
    cr_assert(n > 0 && n < (ssize_t)sizeof(image));
    return (size_t)n;
}

static void store(const char *path, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert_eq(write(fd, image, n), (ssize_t)n);
    close(fd);
}

Test(spool, a_cut_at_any_byte_leaves_all_that_was_before_it, .timeout = 60)
{
    char path[128];
    path_of(1, path);
    write_some(0, 5);
    size_t n = load(path), each = n / 5;
    cr_assert_eq(each * 5, n, "frames of one size");
    for (size_t cut = 0; cut <= n; cut++) {
        tr_spool_close(p);
        store(path, cut);
        cr_assert_eq(tr_spool_open(&p, dir, 0, NULL), 0);
        read_all(false);
        cr_expect(n_got == (int)(cut / each) && n_bad == (cut % each != 0), "cut at %zu: %d, %d",
                  cut, n_got, n_bad);
        cr_expect(!n_bad || (bad[0].fault == TR_SPOOL_TORN && bad[0].len == cut % each));
        take_all(3);
        cr_expect(n_got == (int)(cut / each) && n_bad == (cut % each != 0), "cut at %zu: %d, %d",
                  cut, n_got, n_bad);
        cr_expect(files("spool") == 0 && files("bad") == 0, "a torn end is nothing to keep");
    }
}

Test(spool, a_flip_of_any_byte_costs_one_record_and_sets_the_segment_aside, .timeout = 60)
{
    char path[128], aside[128];
    path_of(1, path);
    snprintf(aside, sizeof(aside), "%s/%016x.bad", dir, 1);
    write_some(0, 5);
    size_t n = load(path), each = n / 5;
    for (size_t at = 0; at < n; at++) {
        tr_spool_close(p);
        image[at] ^= 0x41;
        store(path, n);
        image[at] ^= 0x41;
        unlink(aside);
        cr_assert_eq(tr_spool_open(&p, dir, 0, NULL), 0);
        take_all(2);
        cr_expect(n_got == 4 && n_bad == 1, "byte %zu: %d, %d", at, n_got, n_bad);
        cr_expect(bad[0].fault == TR_SPOOL_DAMAGED && bad[0].at == at / each * each &&
                  bad[0].len == each);
        for (int i = 0; i < n_got; i++)
            cr_expect_eq(got[i].bill.prompt_tokens, i + (i >= (int)(at / each)));
        cr_expect_eq(access(aside, F_OK), 0);
        read_all(false);
        cr_expect(n_got == 4 && n_bad == 1, "what is set aside can still be read");
    }
}

Test(spool, a_piece_lost_before_the_last_record_is_damage_and_no_torn_end)
{
    char path[128];
    struct tr_entry last = {.kind = TR_ENTRY_DELIVERY};
    path_of(1, path);
    write_some(0, 3);
    size_t each = load(path) / 3;
    snprintf(last.delivery.stream_id, sizeof(last.delivery.stream_id), "tr-1-1-%016x", 7u);
    cr_assert_eq(tr_spool_add(p, &last), 0);
    cr_assert_eq(tr_spool_commit(p, true), 0);
    size_t n = load(path), lost = n - 3 * each + 1; /* more than the last one is long */
    cr_assert_lt(lost, each - TR_FRAME_HEAD);
    tr_spool_close(p);
    memmove(image + 3 * each - lost, image + 3 * each, n - 3 * each);
    store(path, n - lost);
    cr_assert_eq(tr_spool_open(&p, dir, 0, NULL), 0);
    take_all(10);
    cr_expect(n_got == 3 && n_bad == 1, "%d, %d", n_got, n_bad);
    cr_expect(bad[0].fault == TR_SPOOL_DAMAGED && bad[0].at == 2 * each &&
              bad[0].len == each - lost);
    cr_expect_eq(files("bad"), 1, "kept");
}

Test(spool, the_name_of_a_segment_is_as_durable_as_what_is_in_it)
{
    struct tr_entry e = entry(1);
    cr_assert_eq(tr_spool_add(p, &e), 0);
    n_synced = 0;
    cr_assert_eq(tr_spool_commit(p, false), 0);
    cr_expect_eq(n_synced, 0);
    write_some(2, 1);
    cr_expect_eq(n_synced, 1, "though an earlier group of it need not have been");
    write_some(3, 1);
    cr_expect_eq(n_synced, 1, "once");
}

Test(spool, a_new_segment_never_has_the_name_of_one_that_was_set_aside)
{
    char path[128];
    write_some(0, 3);
    path_of(1, path);
    size_t n = load(path);
    tr_spool_close(p);
    image[30] ^= 1;
    store(path, n);
    cr_assert_eq(tr_spool_open(&p, dir, 0, NULL), 0);
    take_all(10);
    reopen(0);
    write_some(10, 1);
    path_of(2, path);
    cr_expect_eq(access(path, F_OK), 0);
    read_all(true);
    cr_expect_eq(n_got, 3);
}

Test(spool, a_record_of_another_version_is_told_and_kept)
{
    char path[128];
    static const uint8_t other[] = {0x81, 0xa4, 'k', 'i', 'n', 'd', 9};
    struct tr_spool_reader r = {on_entry, on_bad, NULL};
    write_some(0, 2);
    path_of(1, path);
    tr_spool_close(p);
    size_t n = load(path);
    n += tr_frame_put(other, sizeof(other), image + n);
    store(path, n);
    n_got = n_bad = 0;
    tr_spool_scan(image, n, true, "x", 0, &r);
    cr_expect(n_got == 2 && n_bad == 1 && bad[0].fault == TR_SPOOL_UNKNOWN);
    cr_assert_eq(tr_spool_open(&p, dir, 0, NULL), 0);
    take_all(10);
    cr_expect(n_got == 2 && n_bad == 1);
    cr_expect_eq(files("bad"), 1);
}

Test(spool, a_segment_that_somebody_removed_or_cut_is_told_and_passed_over)
{
    char path[128];
    write_some(0, 5);
    reopen(0);
    path_of(1, path);
    cr_assert_eq(unlink(path), 0);
    write_some(5, 5);
    take_all(10);
    cr_expect(n_got == 5 && n_bad == 1, "%d, %d", n_got, n_bad);
    reopen(0);
    write_some(10, 5);
    reopen(0);
    struct stat st;
    path_of(1, path);
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(truncate(path, st.st_size - 5), 0);
    take_all(10);
    cr_expect(n_got == 4 && n_bad == 1, "%d, %d", n_got, n_bad);
    cr_expect(tr_spool_is_empty(p));
}

Test(spool, files_of_others_are_left_alone)
{
    char path[128];
    tr_spool_close(p);
    snprintf(path, sizeof(path), "%s/notes.spool", dir);
    image[0] = 'x';
    store(path, 1);
    snprintf(path, sizeof(path), "%s/000000000000000A.spool", dir);
    store(path, 1);
    cr_assert_eq(tr_spool_open(&p, dir, 0, NULL), 0);
    write_some(0, 2);
    take_all(10);
    cr_expect(n_got == 2 && n_bad == 0);
    cr_expect_geq(files("spool"), 2);
    read_all(true);
    cr_expect_eq(n_bad, 0);
}

/* ---- while it is written ---- */

Test(spool, a_reader_beside_the_writer_sees_whole_records_only, .timeout = 60)
{
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        /* The lock is of the open file, which we share: it stays held. */
        for (int i = 0; i < 300; i++)
            write_some(i * 3, 3);
        _exit(0);
    }
    int status, last = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        read_all(true);
        cr_assert(n_bad == 0 && n_got >= last, "%d bad, %d after %d", n_bad, n_got, last);
        last = n_got;
    }
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    read_all(true);
    cr_expect(n_got == 900 && n_bad == 0);
}

Test(spool, where_it_is)
{
    char out[64];
    cr_assert_eq(tr_spool_place("a/ledger.db", "", out, sizeof(out)), 0);
    cr_expect_str_eq(out, "a/ledger.db.spool");
    cr_assert_eq(tr_spool_place("a/ledger.db", "b", out, sizeof(out)), 0);
    cr_expect_str_eq(out, "b");
    unsetenv("STATE_DIRECTORY");
    cr_assert_eq(tr_spool_place("postgresql://h/d", NULL, out, sizeof(out)), 0);
    cr_expect_str_eq(out, "tokenring-ledger.spool");
    setenv("STATE_DIRECTORY", "/var/lib/a:/var/lib/b", 1);
    cr_assert_eq(tr_spool_place("postgres://h/d", "", out, sizeof(out)), 0);
    cr_expect_str_eq(out, "/var/lib/a/ledger.spool");
    cr_expect_eq(tr_spool_place("a/ledger.db", "", out, 8), -ENAMETOOLONG);
}
