/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/pg.h"

#include "base/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <resolv.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    CONNECT_S = 10,      /* of each host, unless the address has connect_timeout */
    PAUSE_MIN_MS = 100,  /* after a failure */
    PAUSE_MAX_MS = 5000, /* a database that is back is found within this */
    HOSTS_MAX = 32,
    RESOLVE_S = 2, /* of each name server and try */
    RESOLVE_TRIES = 2
};

static const uint64_t MS = 1000000;

/* ---- the address ---- */

static const char *option(const PQconninfoOption *o, const char *name)
{
    for (; o->keyword; o++)
        if (strcmp(o->keyword, name) == 0)
            return o->val && *o->val ? o->val : NULL;
    return NULL;
}

static bool is_list_of_ports(const char *s)
{
    return strspn(s, "0123456789,") == strlen(s);
}

/* A '@', '/' or ':' of a password that is not written as %XX ends up in one of these, and from there in
 * libpq's sentences: such an address is refused before libpq can say anything of it. */
static const char *misread(const PQconninfoOption *o)
{
    const char *host = option(o, "host"), *port = option(o, "port"), *db = option(o, "dbname");
    if (host && *host != '/' && *host != '@' && strpbrk(host, "@ "))
        return "the host has a '@'";
    if (port && !is_list_of_ports(port))
        return "the port is no number";
    if (db && strchr(db, '@'))
        return "the database has a '@'";
    return NULL;
}

static unsigned count_hosts(const PQconninfoOption *o)
{
    const char *hosts = option(o, "hostaddr");
    unsigned n = 1;
    if (!hosts)
        hosts = option(o, "host");
    for (; hosts && (hosts = strchr(hosts, ',')) && n < HOSTS_MAX; hosts++)
        n++;
    return n;
}

/* How long the address is willing to wait for one connection, all its hosts together. */
static uint64_t patience_ns(const PQconninfoOption *o)
{
    const char *t = option(o, "connect_timeout");
    long s = t ? strtol(t, NULL, 10) : 0;
    if (s <= 0 || s > 3600)
        s = CONNECT_S;
    return (uint64_t)s * count_hosts(o) * 1000 * MS;
}

static int parse(const char *url, uint64_t *patience, struct tr_errbuf *err)
{
    char *said = NULL;
    PQconninfoOption *o = PQconninfoParse(url, &said);
    const char *what = o ? misread(o) : "it has a part that is none";
    if (o && !what && patience)
        *patience = patience_ns(o);
    if (o)
        PQconninfoFree(o);
    PQfreemem(said); /* it may repeat the address */
    if (!what)
        return 0;
    return tr_errf(err, -EINVAL,
                   "this is no address of a PostgreSQL database: %s "
                   "(postgresql://USER:PASSWORD@HOST:PORT/DATABASE?NAME=VALUE, in the user and the "
                   "password every special character as %%XX)",
                   what);
}

int tr_pg_check(const char *url, struct tr_errbuf *err)
{
    return parse(url, NULL, err);
}

int tr_pg_init(struct tr_pg *p, const char *url, struct tr_errbuf *err)
{
    *p = (struct tr_pg){0};
    int ret = parse(url, &p->patience_ns, err);
    if (ret)
        return ret;
    p->url = strdup(url);
    return p->url ? 0 : tr_errf(err, -ENOMEM, "no memory for a connection");
}

void tr_pg_fini(struct tr_pg *p)
{
    PQfinish(p->conn);
    free(p->url);
    *p = (struct tr_pg){0};
}

/* ---- failing ---- */

void tr_pg_drop(struct tr_pg *p)
{
    PQfinish(p->conn);
    p->conn = NULL;
    p->state = TR_PG_DOWN;
    p->delay_ns = p->delay_ns ? 2 * p->delay_ns : PAUSE_MIN_MS * MS;
    if (p->delay_ns > PAUSE_MAX_MS * MS)
        p->delay_ns = PAUSE_MAX_MS * MS;
    p->retry_ns = tr_now_ns() + p->delay_ns;
}

void tr_pg_good(struct tr_pg *p)
{
    p->delay_ns = 0;
}

/* libpq's sentences end in a newline and may be several. */
static int fail(struct tr_pg *p, int ret, const char *words, struct tr_errbuf *err)
{
    size_t n = strlen(words);
    while (n && (words[n - 1] == '\n' || words[n - 1] == ' '))
        n--;
    char line[sizeof(p->why.msg)];
    if (n >= sizeof(line))
        n = sizeof(line) - 1;
    for (size_t i = 0; i < n; i++)
        line[i] = words[i] == '\n' || words[i] == '\t' ? ' ' : words[i];
    line[n] = '\0';
    tr_errf(&p->why, 0, "PostgreSQL: %s", n ? line : "the connection was lost");
    if (err)
        *err = p->why;
    return ret;
}

static int lost(struct tr_pg *p, const char *words, struct tr_errbuf *err)
{
    fail(p, 0, words, err);
    tr_pg_drop(p);
    return -EAGAIN;
}

/* ---- connecting ---- */

static void say_nothing(void *arg, const char *message)
{
    (void)arg, (void)message;
}

/* What comes before the address holds unless it says otherwise; what comes after holds. */
static PGconn *begin(const char *url)
{
    static const char *const names[] = {
        "gssencmode",          "tcp_user_timeout",          "keepalives_idle",
        "keepalives_interval", "keepalives_count",          "dbname",
        "client_encoding",     "fallback_application_name", NULL};
    const char *const values[] = {"disable", "20000", "10",        "5", "3",
                                  url,       "UTF8",  "tokenring", NULL};
    return PQconnectStartParams(names, values, 1);
}

/* Of this thread: what looks a name up waits for seconds, not for half a minute.  Read anew each time,
 * because a resolver that was told something does not look at its file again by itself. */
static void hurry_resolver(void)
{
    if (res_init() == 0) {
        _res.retrans = RESOLVE_S;
        _res.retry = RESOLVE_TRIES;
    }
}

static int start(struct tr_pg *p, struct tr_errbuf *err)
{
    hurry_resolver();
    p->conn = begin(p->url);
    if (!p->conn)
        return lost(p, "no memory for a connection", err);
    if (PQstatus(p->conn) == CONNECTION_BAD)
        return lost(p, PQerrorMessage(p->conn), err);
    PQsetNoticeProcessor(p->conn, say_nothing, NULL);
    p->state = TR_PG_CONNECTING;
    p->want = PGRES_POLLING_WRITING;
    p->deadline_ns = tr_now_ns() + p->patience_ns;
    return 0;
}

/* Until the socket has something, or until then.  -EINPROGRESS: it has not. */
static int wait_socket(const struct tr_pg *p, short events, uint64_t until_ns)
{
    struct pollfd f = {.fd = PQsocket(p->conn), .events = events};
    for (;;) {
        uint64_t now = tr_now_ns();
        int n = poll(&f, 1, now < until_ns ? (int)((until_ns - now) / MS) + 1 : 0);
        if (n > 0)
            return 0;
        if (n == 0 && tr_now_ns() >= until_ns)
            return -EINPROGRESS;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return -errno;
    }
}

static uint64_t until(const struct tr_pg *p, int wait_ms)
{
    uint64_t t = tr_now_ns() + (uint64_t)wait_ms * MS;
    return t < p->deadline_ns ? t : p->deadline_ns;
}

static bool overdue(const struct tr_pg *p)
{
    return tr_now_ns() >= p->deadline_ns;
}

static int go_on_connecting(struct tr_pg *p, int wait_ms, struct tr_errbuf *err)
{
    uint64_t end = until(p, wait_ms);
    while (p->want != PGRES_POLLING_OK) {
        short events = p->want == PGRES_POLLING_READING ? POLLIN : POLLOUT;
        if (p->want == PGRES_POLLING_FAILED)
            return lost(p, PQerrorMessage(p->conn), err);
        int ret = wait_socket(p, events, end);
        if (ret == -EINPROGRESS && overdue(p))
            return lost(p, "the server does not answer", err);
        if (ret)
            return fail(p, -EAGAIN, "the server does not answer yet", err);
        p->want = PQconnectPoll(p->conn);
    }
    if (PQsetnonblocking(p->conn, 1))
        return lost(p, PQerrorMessage(p->conn), err);
    p->state = TR_PG_IDLE;
    return 0;
}

/* The pause after a failure.  False: it is longer than the caller waits. */
static bool sit_out(const struct tr_pg *p, int wait_ms)
{
    uint64_t now = tr_now_ns(), left = now < p->retry_ns ? p->retry_ns - now : 0;
    if (left > (uint64_t)wait_ms * MS)
        return false;
    struct timespec t = {.tv_sec = (time_t)(left / (1000 * MS)),
                         .tv_nsec = (long)(left % (1000 * MS))};
    while (left && clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
        ;
    return true;
}

int tr_pg_ready(struct tr_pg *p, int wait_ms, struct tr_errbuf *err)
{
    if (p->state == TR_PG_BUSY) {
        int ret = tr_pg_wait(p, wait_ms, NULL, NULL, err);
        if (ret == -EINPROGRESS || ret == -EAGAIN)
            return -EAGAIN;
    }
    if (p->state == TR_PG_DOWN) {
        if (!sit_out(p, wait_ms)) {
            *err = p->why;
            return -EAGAIN;
        }
        int ret = start(p, err);
        if (ret)
            return ret;
    }
    return p->state == TR_PG_CONNECTING ? go_on_connecting(p, wait_ms, err) : 0;
}

/* ---- statements ---- */

int tr_pg_send(struct tr_pg *p, const char *sql, int limit_ms, bool rows, struct tr_errbuf *err)
{
    if (!PQsendQuery(p->conn, sql) || (rows && !PQsetSingleRowMode(p->conn)))
        return lost(p, PQerrorMessage(p->conn), err);
    p->state = TR_PG_BUSY;
    p->deadline_ns = tr_now_ns() + (uint64_t)limit_ms * MS;
    return 0;
}

/* Until PQgetResult does not block. */
static int await_result(struct tr_pg *p, uint64_t end, struct tr_errbuf *err)
{
    for (;;) {
        int unsent = PQflush(p->conn);
        if (unsent < 0 || !PQconsumeInput(p->conn))
            return lost(p, PQerrorMessage(p->conn), err);
        if (!unsent && !PQisBusy(p->conn))
            return 0;
        int ret = wait_socket(p, unsent ? POLLIN | POLLOUT : POLLIN, end);
        if (ret == -EINPROGRESS && overdue(p))
            return lost(p, "the server does not answer", err);
        if (ret)
            return fail(p, ret == -EINPROGRESS ? ret : -EAGAIN, "the server does not answer yet",
                        err);
    }
}

/* 0; what fn said; -EIO. */
static int take_result(struct tr_pg *p, const PGresult *r,
                       int (*fn)(void *arg, const PGresult *r, int row), void *arg,
                       struct tr_errbuf *err)
{
    ExecStatusType status = PQresultStatus(r);
    if (status == PGRES_TUPLES_OK || status == PGRES_SINGLE_TUPLE) {
        int ret = 0;
        for (int i = 0; fn && !ret && i < PQntuples(r); i++)
            ret = fn(arg, r, i);
        return ret;
    }
    if (status == PGRES_COMMAND_OK || status == PGRES_EMPTY_QUERY)
        return 0;
    const char *words = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
    return fail(p, -EIO, words ? words : PQresultErrorMessage(r), err);
}

int tr_pg_wait(struct tr_pg *p, int wait_ms, int (*fn)(void *arg, const PGresult *r, int row),
               void *arg, struct tr_errbuf *err)
{
    uint64_t end = until(p, wait_ms);
    int verdict = 0;
    for (;;) {
        int ret = await_result(p, end, err);
        if (ret)
            return ret;
        PGresult *r = PQgetResult(p->conn);
        if (!r)
            break;
        if (!verdict)
            verdict = take_result(p, r, fn, arg, err);
        PQclear(r);
        end = until(p, wait_ms); /* it speaks: a long answer is no silence */
    }
    if (PQstatus(p->conn) != CONNECTION_OK)
        return lost(p, PQerrorMessage(p->conn), err);
    p->state = TR_PG_IDLE;
    return verdict;
}
