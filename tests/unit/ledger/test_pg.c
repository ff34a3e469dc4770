/* SPDX-License-Identifier: Apache-2.0 */
/* Against servers that are none: 71_postgres.py has a real one. */
#include "ledger/pg.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

Test(pg, addresses_that_can_be_meant_are_taken)
{
    static const char *const good[] = {
        "postgresql://",
        "postgres://host",
        "postgresql://me@host:5432/db",
        "postgresql://me:p%40ss%2Fword@host/db?sslmode=require&connect_timeout=3",
        "postgresql://a,b:1,c/db?target_session_attrs=read-write",
        "postgresql://me@/db?host=%2Frun%2Fpostgresql&port=5433",
        "postgresql://me@[::1]:5432/db",
        "postgresql://me@/db?host=@abstract"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct tr_errbuf err = {""};
        cr_expect_eq(tr_pg_check(good[i], &err), 0, "%s: %s", good[i], err.msg);
    }
}

Test(pg, others_are_refused_and_not_repeated)
{
    static const char *const bad[] = {
        "postgresql://me:sec@ret@host/db",       "postgresql://me:sec/ret@host/db",
        "postgresql://me:sec%ret@host/db",       "postgresql://me:secret@host:port/db",
        "postgresql://me:secret@host/db?no=1",   "postgresql://me:secret@[::1/db",
        "postgresql://me:secret@host/db?sec@ret"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct tr_errbuf err = {""};
        cr_expect_eq(tr_pg_check(bad[i], &err), -EINVAL, "%s", bad[i]);
        cr_expect(!strstr(err.msg, "sec") && !strstr(err.msg, "ret@"), "%s: %s", bad[i], err.msg);
        cr_expect(strstr(err.msg, "no address of a PostgreSQL database"), "%s", err.msg);
    }
}

/* A listening socket, and an address that leads to it. */
static int listen_somewhere(char *url, size_t size, const char *more)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(s >= 0 && bind(s, (struct sockaddr *)&a, len) == 0 && listen(s, 8) == 0 &&
              getsockname(s, (struct sockaddr *)&a, &len) == 0);
    snprintf(url, size, "postgresql://me:secret@127.0.0.1:%u/db?%s", ntohs(a.sin_port), more);
    return s;
}

static void open_pg(struct tr_pg *p, const char *url)
{
    struct tr_errbuf err = {""};
    cr_assert_eq(tr_pg_init(p, url, &err), 0, "%s", err.msg);
}

Test(pg, a_server_that_says_nothing_is_waited_for_in_pieces_and_given_up)
{
    char url[128];
    struct tr_pg p;
    struct tr_errbuf err = {""};
    int s = listen_somewhere(url, sizeof(url), "connect_timeout=1");
    open_pg(&p, url);
    cr_expect_eq(tr_pg_ready(&p, 10, &err), -EAGAIN);
    cr_expect_eq(p.state, TR_PG_CONNECTING, "it goes on at the next call");
    PGconn *first = p.conn;
    while (p.state == TR_PG_CONNECTING) {
        cr_expect_eq(p.conn, first, "the same connection");
        cr_expect_eq(tr_pg_ready(&p, 200, &err), -EAGAIN);
    }
    cr_expect_eq(p.state, TR_PG_DOWN);
    cr_expect(strstr(err.msg, "does not answer") && !strstr(err.msg, "secret"), "%s", err.msg);
    tr_pg_fini(&p);
    close(s);
}

Test(pg, pauses_grow_until_it_was_good_for_something)
{
    char url[128];
    struct tr_pg p;
    struct tr_errbuf err = {""};
    close(listen_somewhere(url, sizeof(url), "")); /* nobody listens there any more */
    open_pg(&p, url);
    cr_expect_eq(tr_pg_ready(&p, 1000, &err), -EAGAIN);
    cr_expect(strstr(err.msg, "PostgreSQL") && !strstr(err.msg, "secret"), "%s", err.msg);
    uint64_t last = p.delay_ns;
    cr_expect_gt(last, 0);
    for (int i = 0; i < 12; i++) {
        tr_pg_drop(&p);
        cr_expect(p.delay_ns >= last && p.delay_ns <= 5000000000ull);
        last = p.delay_ns;
    }
    cr_expect_eq(last, 5000000000ull, "up to a limit");
    err.msg[0] = '\0';
    uint64_t due = p.retry_ns;
    cr_expect_eq(tr_pg_ready(&p, 0, &err), -EAGAIN);
    cr_expect(p.retry_ns == due && err.msg[0],
              "in the pause nothing is tried, the reason is told again");
    tr_pg_good(&p);
    tr_pg_drop(&p);
    cr_expect_eq(p.delay_ns, 100000000ull);
    tr_pg_fini(&p);
}

/* Takes a connection, reads a little, says something and goes on reading to the end. */
static pid_t say(int s, const char *words, size_t n)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    char c[4096];
    for (int i = 0; i < 8; i++) {
        int fd = accept(s, NULL, NULL);
        if (fd < 0 || read(fd, c, 8) < 0 || write(fd, words, n) < 0)
            _exit(1);
        while (read(fd, c, sizeof(c)) > 0)
            ;
        close(fd);
    }
    _exit(0);
}

Test(pg, whatever_a_server_says_is_an_answer_or_a_failure)
{
    static const struct {
        const char *words;
        size_t n;
    } said[] = {{"HTTP/1.0 400 Bad Request\r\n\r\n", 28},
                {"S", 1},
                {"N", 1},
                {"NR\377\377\377\377\0\0\0\0", 11},
                {"NR\0\0\0\10\0\0\0\0Z\0\0\0\5I", 17},
                {"NR\0\0\0\10\0\0\0\0D\377\377\377\377\377\377", 17},
                {"NE\0\0\0\12Msecret\0\0", 16}};
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        char url[128];
        struct tr_pg p;
        struct tr_errbuf err = {""};
        int s = listen_somewhere(url, sizeof(url), "connect_timeout=1"), ret = -EAGAIN;
        pid_t pid = say(s, said[i].words, said[i].n);
        open_pg(&p, url);
        do {
            ret = tr_pg_ready(&p, 100, &err);
        } while (ret && p.state == TR_PG_CONNECTING);
        if (!ret) { /* it took us in, and then? */
            cr_expect_eq(tr_pg_send(&p, "SELECT 1", 300, false, &err), 0);
            do {
                ret = tr_pg_wait(&p, 100, NULL, NULL, &err);
            } while (ret == -EINPROGRESS);
        }
        cr_expect(ret == -EAGAIN && p.state == TR_PG_DOWN, "%zu: %d, %s", i, ret, err.msg);
        tr_pg_fini(&p);
        close(s);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}
