/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/file.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[64];
static struct tr_lines f;

static void setup(void)
{
    snprintf(path, sizeof(path), "/tmp/tr-ledger-XXXXXX");
    close(mkstemp(path));
    cr_assert_eq(tr_lines_open(&f, path, NULL), 0);
}

static void teardown(void)
{
    tr_lines_close(&f);
    unlink(path);
}

TestSuite(file, .init = setup, .fini = teardown);

static void write_raw(const char *text)
{
    FILE *o = fopen(path, "a");
    fputs(text, o);
    fclose(o);
}

static long size_now(void)
{
    struct stat st;
    return stat(path, &st) ? -1 : (long)st.st_size;
}

static void reopen(void)
{
    tr_lines_close(&f);
    cr_assert_eq(tr_lines_open(&f, path, NULL), 0);
}

static void collect(void *arg, const char *line, size_t len)
{
    char *out = arg;
    strncat(out, line, len);
    strcat(out, "|");
}

Test(file, a_group_is_written_at_once_and_found_again)
{
    char got[64] = "";
    cr_assert_eq(tr_lines_add(&f, "one\n", 4), 0);
    cr_assert_eq(tr_lines_add(&f, "two\n", 4), 0);
    cr_assert_eq(size_now(), 0, "nothing before the commit");
    cr_assert_eq(tr_lines_commit(&f), 0);
    reopen();
    cr_assert_eq(tr_lines_tail(&f, 1000, collect, got), 0);
    cr_assert_str_eq(got, "one|two|");
}

Test(file, a_torn_line_is_cut_off_and_told)
{
    write_raw("whole\nto");
    reopen();
    cr_assert_eq(f.torn, 2);
    cr_assert_eq(size_now(), 6);
    write_raw("x");
    reopen();
    cr_assert_eq(f.torn, 1);
}

Test(file, the_tail_starts_at_a_whole_line)
{
    char got[64] = "";
    write_raw("first line\nsecond\nthird\n");
    reopen();
    cr_assert_eq(tr_lines_tail(&f, 15, collect, got), 0);
    cr_assert_str_eq(got, "second|third|");
}

Test(file, a_second_service_is_refused)
{
    struct tr_lines other;
    struct tr_errbuf err = {""};
    cr_assert_eq(tr_lines_open(&other, path, &err), -EBUSY);
    cr_assert(strstr(err.msg, path));
}

Test(file, what_is_no_file_is_refused)
{
    struct tr_lines other;
    struct tr_errbuf err;
    cr_assert_lt(tr_lines_open(&other, "/tmp", &err), 0);
    cr_assert_lt(tr_lines_open(&other, "/nonexistent/x", &err), 0);
}

Test(file, a_write_that_fails_half_way_is_taken_back_and_tried_again)
{
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit old, small = {.rlim_cur = 10, .rlim_max = RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    cr_assert_eq(tr_lines_add(&f, "12345\n", 6), 0);
    cr_assert_eq(tr_lines_commit(&f), 0);
    cr_assert_eq(tr_lines_add(&f, "123456789\n", 10), 0);
    setrlimit(RLIMIT_FSIZE, &small);
    int ret = tr_lines_commit(&f);
    setrlimit(RLIMIT_FSIZE, &old);
    cr_assert_lt(ret, 0);
    cr_assert_eq(size_now(), 6, "back to whole lines");
    cr_assert_eq(tr_lines_commit(&f), 0);
    cr_assert_eq(size_now(), 16);
}
