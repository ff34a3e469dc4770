/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int reader, writer, saved;

/* Standard error becomes one end of `fds`; the log is told. */
static void capture(int fds[2])
{
    saved = dup(STDERR_FILENO);
    reader = fds[0];
    writer = fds[1];
    dup2(writer, STDERR_FILENO);
    tr_log_init("test", false);
}

static void release(void)
{
    dup2(saved, STDERR_FILENO);
}

static size_t drain(char *buf, size_t cap)
{
    size_t len = 0;
    ssize_t n;

    fcntl(reader, F_SETFL, O_NONBLOCK);
    while (len < cap && (n = read(reader, buf + len, cap - len)) > 0)
        len += (size_t)n;
    return len;
}

static char got[4 << 20];

/* Whole lines only, and none of them waits: Criterion's timeout would tell. */
static void flood(int fds[2])
{
    char word[1500];

    capture(fds);
    memset(word, 'x', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    for (int i = 0; i < 2000; i++)
        tr_log(TR_LOG_INFO, "%d %s end", i, word);
    release();
    size_t len = drain(got, sizeof(got) - 1);
    got[len] = '\0';
    cr_expect(len > 1500 && got[len - 1] == '\n');
    for (char *p = got, *nl; (nl = strchr(p, '\n')); p = nl + 1) {
        *nl = '\0';
        cr_expect(strlen(p) > 1500 && strcmp(nl - 4, " end") == 0, "%.60s", p);
    }
    cr_expect_null(strstr(got, " 1999 x"), "what found no room is dropped");
    size_t lines = 0;
    for (size_t i = 0; i < len; i++)
        lines += got[i] == '\0';
    cr_expect_eq(lines + tr_log_dropped(), 2000, "and counted: %zu + %llu", lines,
                 (unsigned long long)tr_log_dropped());
}

Test(log, a_full_pipe_drops_lines, .timeout = 20)
{
    int fds[2];
    cr_assert_eq(pipe(fds), 0);
    flood(fds);
    cr_expect_eq(fcntl(writer, F_GETFL) & O_NONBLOCK, 0, "the others' end is as it was");
}

Test(log, a_full_socket_drops_lines, .timeout = 20)
{
    int fds[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    flood(fds);
}

Test(log, lines_above_the_limit_are_not_written)
{
    int fds[2];
    cr_assert_eq(pipe(fds), 0);
    capture(fds);
    tr_log_limit(TR_LOG_WARN);
    cr_expect(tr_log_on(TR_LOG_ERROR) && tr_log_on(TR_LOG_WARN) && !tr_log_on(TR_LOG_INFO));
    tr_log(TR_LOG_WARN, "this\none");
    tr_log(TR_LOG_INFO, "not this one");
    release();
    got[drain(got, sizeof(got) - 1)] = '\0';
    cr_expect(strstr(got, "warn  test: this?one\n") && !strstr(got, "not this one"), "%s", got);
}

Test(log, an_object_is_the_message_of_a_text_line_and_part_of_one_of_json)
{
    static char long_one[TR_LOG_MEMBERS_BYTES + 1];
    int fds[2];

    cr_assert_eq(pipe(fds), 0);
    capture(fds);
    memset(long_one, ' ', sizeof(long_one));
    tr_log_object(TR_LOG_INFO, "access", "\"a\":1", 5);
    tr_log_object(TR_LOG_DEBUG, "access", "\"b\":1", 5);
    tr_log_object(TR_LOG_INFO, "access", long_one, sizeof(long_one));
    cr_expect_eq(tr_log_dropped(), 1, "half an object is none");
    tr_log_init("test", true);
    tr_log_object(TR_LOG_INFO, "access", long_one, sizeof(long_one) - 1);
    tr_log_object(TR_LOG_INFO, "access", "\"c\":1", 5);
    release();
    got[drain(got, sizeof(got) - 1)] = '\0';
    cr_expect_not_null(strstr(got, "Z info  test: access {\"a\":1}\n"));
    cr_expect_null(strstr(got, "\"b\""));
    cr_expect_not_null(strstr(got, "  }\n{\"time\":\"2"), "the longest one is whole");
    cr_expect_not_null(strstr(got, "\"process\":\"test\",\"msg\":\"access\",\"c\":1}\n"));
}
