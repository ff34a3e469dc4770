/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/clock.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* One line stays below PIPE_BUF: a pipe that polls writable then takes it whole at once. */
enum { LINE_MAX_BYTES = 2048 };

static const char *who_am_i = "tokenring";
static bool as_json;

static const char *const level_name[] = {"error", "warn", "info", "debug"};

void tr_log_init(const char *who, bool json)
{
    who_am_i = who;
    as_json = json;
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

static void put_line(const char *line, size_t len)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&p, 1, 0) == 1 && (p.revents & POLLOUT))
        (void)!write(STDERR_FILENO, line, len);
}

void tr_log(enum tr_log_level level, const char *fmt, ...)
{
    char msg[LINE_MAX_BYTES - 256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    sanitise(msg);

    double now = tr_wall_s();
    time_t sec = (time_t)now;
    struct tm tm;
    gmtime_r(&sec, &tm);
    char when[32];
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
    int ms = (int)((now - (double)sec) * 1000.0);

    char line[LINE_MAX_BYTES];
    int n =
        as_json
            ? snprintf(
                  line, sizeof(line),
                  "{\"time\":\"%s.%03dZ\",\"level\":\"%s\",\"process\":\"%s\",\"msg\":\"%s\"}\n",
                  when, ms, level_name[level], who_am_i, msg)
            : snprintf(line, sizeof(line), "%s.%03dZ %-5s %s: %s\n", when, ms, level_name[level],
                       who_am_i, msg);
    if (n > 0)
        put_line(line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
}
