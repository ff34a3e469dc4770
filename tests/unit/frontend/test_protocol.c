/* SPDX-License-Identifier: Apache-2.0 */
/* A connection that became something else: a protocol that echoes what it gets, over a socket pair. */
#include "base/clock.h"
#include "frontend/protocol.h"
#include "frontend/route.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS 1000000ull
#define UPGRADE "GET /raw HTTP/1.1\r\nHost: x\r\nUpgrade: echo\r\n\r\n"
#define HELLO "HTTP/1.1 101 Switching Protocols\r\n\r\n"

enum { KEPT = 4 << 20 };

/* What the protocol saw, and how it behaves. */
static struct {
    struct event_base *base;
    struct tr_http_limits lim;
    struct tr_httpd *d;
    struct tr_conn *c;
    const struct tr_http_request *rq;
    int fd; /* the client's end */
    char got[KEPT];
    size_t len;
    bool eof, reset, deaf;

    char in[KEPT];
    size_t in_len;
    unsigned turns, writables, half_closes, drains, gones;
    enum tr_gone why;
    bool head_lives; /* when `gone` came */
    uint64_t flood;  /* bytes still to be written */
    bool close_on_drain;
    unsigned delivered;
    uint64_t delivered_acked;
    uint64_t pieces_at_turn; /* accepted before turn_end wrote */
} rig;

/* ---- the protocol ----------------------------------------------------------------------------- */

static void flood_on(void)
{
    static const char block[1000];
    while (rig.flood && tr_conn_raw_room(rig.c) > 0) {
        size_t n = rig.flood < sizeof(block) ? (size_t)rig.flood : sizeof(block);
        tr_conn_raw_write(rig.c, block, n);
        rig.flood -= n;
    }
}

static int echo_input(void *state, const char *data, size_t len)
{
    cr_assert_eq(state, &rig);
    cr_assert_gt(len, 0u);
    memcpy(rig.in + rig.in_len, data, len);
    rig.in_len += len;
    if (memchr(data, '!', len)) {
        tr_conn_raw_write(rig.c, "broken", 6);
        return -EPROTO;
    }
    if (memchr(data, 'c', len))
        tr_conn_raw_close(rig.c);
    else if (memchr(data, 'a', len))
        tr_conn_raw_abort(rig.c);
    else if (memchr(data, 'p', len))
        tr_conn_raw_pause(rig.c, true);
    else if (memchr(data, 'f', len))
        flood_on();
    else
        tr_conn_raw_mark(rig.c);
    return 0;
}

static void echo_turn_end(void *state)
{
    (void)state;
    rig.turns++;
    rig.pieces_at_turn = tr_conn_accepted(rig.c);
    tr_conn_raw_write(rig.c, "<", 1);
    tr_conn_raw_write(rig.c, rig.in, rig.in_len);
    tr_conn_raw_write(rig.c, ">", 1);
}

static void echo_writable(void *state)
{
    (void)state;
    rig.writables++;
    flood_on();
}

static void echo_half_closed(void *state)
{
    (void)state;
    rig.half_closes++;
}

static void echo_drain(void *state)
{
    (void)state;
    rig.drains++;
    tr_conn_raw_write(rig.c, "bye", 3);
    if (rig.close_on_drain)
        tr_conn_raw_close(rig.c);
}

static void echo_gone(void *state, enum tr_gone why)
{
    cr_assert_eq(state, &rig);
    rig.gones++;
    rig.why = why;
    struct tr_slice v = rig.rq ? tr_http_field(rig.rq->http, "upgrade") : (struct tr_slice){0};
    rig.head_lives = v.len == 4 && memcmp(v.p, "echo", 4) == 0;
}

static const struct tr_protocol echo = {.input = echo_input,
                                        .writable = echo_writable,
                                        .half_closed = echo_half_closed,
                                        .turn_end = echo_turn_end,
                                        .drain = echo_drain,
                                        .gone = echo_gone};

/* ---- server and client ------------------------------------------------------------------------- */

static void do_raw(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)ctx;
    rig.c = tr_conn_of(x);
    rig.rq = rq;
    cr_assert(rig.c);
    tr_conn_become(rig.c, &echo, &rig);
    tr_conn_raw_write(rig.c, HELLO, strlen(HELLO));
    tr_conn_raw_busy(rig.c, 2);
}

static const struct tr_route routes[] = {
    {.method = TR_HTTP_GET, .pattern = "/raw", .handler = do_raw}};

static void pump(void)
{
    event_base_loop(rig.base, EVLOOP_NONBLOCK | EVLOOP_ONCE);
    while (!rig.eof && !rig.deaf && rig.len < KEPT) {
        ssize_t n = recv(rig.fd, rig.got + rig.len, KEPT - rig.len, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return;
        rig.eof = n <= 0;
        rig.reset = n < 0;
        rig.len += n > 0 ? (size_t)n : 0;
    }
}

/* For what comes in a moment on an idle machine. */
#define WAIT(cond)                                                                                 \
    do {                                                                                           \
        uint64_t until_ = tr_now_ns() + 60000 * MS;                                                \
        while (!(cond) && tr_now_ns() < until_)                                                    \
            pump();                                                                                \
        cr_assert(cond, "%s: %.300s", #cond, rig.got);                                             \
    } while (0)

static void say(const char *s)
{
    cr_assert_eq(send(rig.fd, s, strlen(s), MSG_NOSIGNAL), (ssize_t)strlen(s));
}

static bool has(const char *s)
{
    return memmem(rig.got, rig.len, s, strlen(s)) != NULL;
}

static void start(void)
{
    struct tr_httpd_ops ops = {.routes = routes, .n_routes = 1};
    int pair[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    rig.lim = tr_http_limits_default;
    rig.base = event_base_new();
    rig.d = tr_httpd_new(rig.base, &rig.lim, &ops);
    cr_assert(rig.base && rig.d);
    cr_assert_eq(tr_conn_accept(rig.d, pair[0]), 0);
    rig.fd = pair[1];
}

static void upgrade(void)
{
    say(UPGRADE);
    WAIT(has(HELLO));
}

static void stop(void)
{
    tr_httpd_free(rig.d);
    event_base_free(rig.base);
    if (rig.fd >= 0)
        close(rig.fd);
}

TestSuite(protocol, .init = start, .fini = stop);

/* ---- claims ------------------------------------------------------------------------------------- */

Test(protocol, what_was_sent_behind_the_upgrade_is_its_first_input)
{
    say(UPGRADE "hello");
    WAIT(has(HELLO "<hello>"));
    cr_expect_eq(rig.turns, 1);
    cr_expect_eq(tr_httpd_stats(rig.d)->requests, 1);
}

Test(protocol, all_bytes_come_in_order_and_turn_end_once_a_turn)
{
    upgrade();
    say("one");
    say("two");
    WAIT(has("<onetwo>"));
    cr_expect_eq(rig.turns, 1);
    cr_expect_eq(rig.pieces_at_turn, strlen(HELLO));
    say("x");
    WAIT(has("<onetwox>"));
    cr_expect_eq(rig.turns, 2);
}

Test(protocol, input_that_is_broken_closes_after_what_was_written)
{
    upgrade();
    say("!");
    WAIT(rig.eof);
    cr_expect(has("broken") && !rig.reset);
    cr_expect(rig.gones == 1 && rig.why == TR_GONE_SHUT && rig.turns == 0);
}

Test(protocol, close_is_a_fin_and_gone_comes_once_with_the_head_still_there)
{
    upgrade();
    say("c");
    WAIT(rig.eof);
    cr_expect_not(rig.reset);
    cr_expect(rig.gones == 1 && rig.why == TR_GONE_SHUT && rig.head_lives);
    cr_expect_eq(tr_httpd_stats(rig.d)->busy, 0u, "what it had under way is over");
    say("noise");
    shutdown(rig.fd, SHUT_WR);
    WAIT(tr_httpd_stats(rig.d)->open == 0);
    cr_expect(rig.gones == 1 && rig.in_len == 1);
}

Test(protocol, abort_ends_it_at_once)
{
    upgrade();
    say("a");
    WAIT(rig.eof);
    cr_expect(rig.gones == 1 && rig.why == TR_GONE_RESET);
    WAIT(tr_httpd_stats(rig.d)->open == 0);
}

Test(protocol, a_fin_is_told_once_and_the_peer_still_reads)
{
    upgrade();
    say("x");
    WAIT(has("<x>"));
    shutdown(rig.fd, SHUT_WR);
    WAIT(rig.half_closes == 1);
    tr_conn_raw_write(rig.c, "still", 5);
    WAIT(has("still"));
    cr_expect(rig.half_closes == 1 && rig.gones == 0);
    close(rig.fd);
    rig.fd = -1;
    rig.deaf = true;
    WAIT(rig.gones == 1);
    cr_expect_eq(rig.why, TR_GONE_RESET);
}

Test(protocol, a_paused_one_reads_nothing_and_sees_the_fin_all_the_same)
{
    upgrade();
    say("p");
    WAIT(rig.in_len == 1);
    say("more");
    shutdown(rig.fd, SHUT_WR);
    WAIT(rig.half_closes == 1);
    cr_expect_eq(rig.in_len, 1u);
    tr_conn_raw_pause(rig.c, false);
    WAIT(has("<pmore>"));
    cr_expect_eq(rig.half_closes, 1);
}

Test(protocol, a_pause_holds_for_what_came_with_the_upgrade)
{
    char big[8001];
    memset(big, 'x', 8000);
    big[8000] = '\0';
    upgrade();
    tr_conn_raw_pause(rig.c, true);
    say(big);
    for (int i = 0; i < 20; i++)
        pump();
    cr_expect_eq(rig.in_len, 0u);
    tr_conn_raw_pause(rig.c, false);
    WAIT(rig.in_len == 8000);
}

Test(protocol, without_room_it_waits_and_writable_tells)
{
    upgrade();
    rig.deaf = true;
    rig.flood = 3 << 20;
    say("f");
    WAIT(rig.flood < 3 << 20 && tr_conn_raw_room(rig.c) == 0);
    uint64_t left = rig.flood;
    cr_expect_leq(tr_conn_unsent(rig.c), rig.lim.stream_buffer + 1000);
    for (int i = 0; i < 20; i++)
        pump();
    cr_expect_eq(rig.flood, left, "nothing more is accepted");
    rig.deaf = false;
    WAIT(rig.flood == 0 && rig.len == strlen(HELLO) + (3 << 20));
    cr_expect_gt(rig.writables, 1);
}

Test(protocol, who_takes_nothing_for_the_write_deadline_is_slow)
{
    rig.lim.write_deadline_ns = 50 * MS;
    upgrade();
    rig.deaf = true;
    rig.flood = 3 << 20;
    say("f");
    WAIT(rig.gones == 1);
    cr_expect_eq(rig.why, TR_GONE_SLOW);
    cr_expect_eq(tr_httpd_stats(rig.d)->slow_clients, 1u);
    cr_expect_eq(tr_httpd_stats(rig.d)->unsent_bytes, 0u);
}

Test(protocol, a_drain_is_told_once_also_to_one_that_comes_later)
{
    upgrade();
    cr_expect_eq(tr_httpd_stats(rig.d)->busy, 2u);
    tr_httpd_retire(rig.d);
    WAIT(has("bye"));
    tr_httpd_drain(rig.d);
    for (int i = 0; i < 20; i++)
        pump();
    cr_expect(rig.drains == 1 && rig.gones == 0);
}

Test(protocol, one_that_begins_in_a_drain_is_told_too)
{
    tr_httpd_drain(rig.d);
    rig.close_on_drain = true;
    upgrade();
    WAIT(rig.eof);
    cr_expect(has("bye") && rig.gones == 1);
}

Test(protocol, the_end_of_the_service_is_told)
{
    upgrade();
    tr_httpd_free(rig.d);
    cr_expect(rig.gones == 1 && rig.why == TR_GONE_SHUT && rig.head_lives);
    rig.d = NULL;
}

Test(protocol, one_that_closes_after_the_fin_waits_for_nothing)
{
    upgrade();
    shutdown(rig.fd, SHUT_WR);
    WAIT(rig.half_closes == 1);
    tr_conn_raw_close(rig.c);
    for (int i = 0; i < 20; i++)
        pump();
    cr_expect(rig.eof && tr_httpd_stats(rig.d)->open == 0);
}

static void delivered(struct tr_delivered *d, uint64_t acked)
{
    rig.delivered++;
    rig.delivered_acked = acked - d->upto;
}

Test(protocol, deliveries_are_told_after_the_close_too)
{
    struct tr_delivered w = {.done = delivered};
    upgrade();
    say("x");
    WAIT(has("<x>"));
    w.upto = tr_conn_accepted(rig.c);
    tr_conn_deliver(rig.c, &w);
    say("c");
    WAIT(rig.eof && rig.delivered == 1);
    cr_expect_eq(rig.delivered_acked, 0u);
}
