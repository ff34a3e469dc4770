/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/clock.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* One line stays below PIPE_BUF: a pipe takes it whole or not at all. */
enum { LINE_MAX_BYTES = 2048, HEAD_BYTES = 192, TAIL_BYTES = 8 };
_Static_assert(HEAD_BYTES + TR_LOG_MEMBERS_BYTES + TAIL_BYTES <= PIPE_BUF, "whole or not at all");

static const char *who_am_i = "tokenring";
static bool as_json;
static enum tr_log_level limit = TR_LOG_INFO;
static int own_fd = -1; /* a pipe or terminal opened once more, so that it alone does not block */
static bool is_socket;
static _Atomic uint64_t dropped; /* relaxed: a figure */

static const char *const level_name[] = {"error", "warn", "info", "debug"};

/* O_NONBLOCK belongs to the open file, which others have too: ours is another one.  Children inherit
 * it.  What cannot be opened is asked before each line. */
static void open_own(void)
{
    struct stat st;
    if (own_fd >= 0 || fstat(STDERR_FILENO, &st))
        return;
    is_socket = S_ISSOCK(st.st_mode);
    if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode))
        own_fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

void tr_log_init(const char *who, bool json)
{
    who_am_i = who;
    as_json = json;
    open_own();
}

void tr_log_limit(enum tr_log_level most)
{
    limit = most;
}

bool tr_log_on(enum tr_log_level level)
{
    return level <= limit;
}

/* Everything outside printable ASCII becomes '?', and in JSON quote and backslash become '\''. */
static void sanitise(char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < 0x20 || c > 0x7e)
            *s = '?';
        else if (as_json && (c == '"' || c == '\\'))
            *s = '\'';
    }
}

static void drop(void)
{
    atomic_fetch_add_explicit(&dropped, 1, memory_order_relaxed);
}

uint64_t tr_log_dropped(void)
{
    return atomic_load_explicit(&dropped, memory_order_relaxed);
}

static void put_line(const char *line, size_t len)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    ssize_t n = -1;
    if (own_fd >= 0)
        n = write(own_fd, line, len);
    else if (is_socket)
        n = send(STDERR_FILENO, line, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    else if (poll(&p, 1, 0) == 1 && (p.revents & POLLOUT))
        n = write(STDERR_FILENO, line, len);
    if (n != (ssize_t)len)
        drop();
}

/* "2026-01-02T03:04:05.678Z" */
static void put_time(char when[32])
{
    double now = tr_wall_s();
    time_t sec = (time_t)now;
    struct tm tm;
    gmtime_r(&sec, &tm);
    size_t n = strftime(when, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(when + n, 32 - n, ".%03dZ", (int)((now - (double)sec) * 1000.0));
}

void tr_log(enum tr_log_level level, const char *fmt, ...)
{
    char msg[LINE_MAX_BYTES - 256];
    va_list ap;
    if (!tr_log_on(level))
        return;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    sanitise(msg);

    char when[32];
    put_time(when);

    char line[LINE_MAX_BYTES];
    int n = as_json
                ? snprintf(line, sizeof(line),
                           "{\"time\":\"%s\",\"level\":\"%s\",\"process\":\"%s\",\"msg\":\"%s\"}\n",
                           when, level_name[level], who_am_i, msg)
                : snprintf(line, sizeof(line), "%s %-5s %s: %s\n", when, level_name[level],
                           who_am_i, msg);
    if (n > 0)
        put_line(line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
}

void tr_log_object(enum tr_log_level level, const char *name, const char *members, size_t len)
{
    static const char tail[] = {'}', '\n'};
    char line[HEAD_BYTES + TR_LOG_MEMBERS_BYTES + TAIL_BYTES], when[32];
    if (!tr_log_on(level))
        return;
    put_time(when);
    int n = as_json
                ? snprintf(line, HEAD_BYTES,
                           "{\"time\":\"%s\",\"level\":\"%s\",\"process\":\"%s\",\"msg\":\"%s\",",
                           when, level_name[level], who_am_i, name)
                : snprintf(line, HEAD_BYTES, "%s %-5s %s: %s {", when, level_name[level], who_am_i,
                           name);
    if (n < 0 || n >= HEAD_BYTES || len > TR_LOG_MEMBERS_BYTES) {
        drop();
        return;
    }
    memcpy(line + n, members, len);
    memcpy(line + n + len, tail, sizeof(tail));
    put_line(line, (size_t)n + len + sizeof(tail));
}
