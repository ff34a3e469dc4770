/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/readers.h"

#include "base/clock.h"
#include "bench/sample.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    OPENING = 64, /* streams whose head is awaited at one time: the rest comes after them */
    READ_BYTES = 64 << 10,
    SLOW_RCVBUF = 4096,
    EVENTS = 256,
    MARKS = 3
};

struct args {
    unsigned port;
    uint32_t good, slow, mute; /* streams: read at once, at slow_bps, never */
    uint32_t slow_bps;
    uint32_t max_tokens, others_max_tokens;
    double seconds;   /* of the window; 0: to the end of the good streams */
    const char *body; /* members added to the request */
    const char *hold; /* file: the good ones are opened when it is there */
    struct tr_watch watch;
};

enum kind { GOOD, SLOW, MUTE };

/* What is looked for in a stream's bytes, one match after the other. */
static const char *const marks[MARKS] = {"\"content\":\"", "[DONE]", "\r\n0\r\n\r\n"};

struct reader {
    int fd;
    enum kind kind;
    bool open, done, failed; /* the head came; the last chunk came; anything else */
    bool in_text, escaped;
    uint32_t text_of_event;
    uint8_t at[MARKS]; /* bytes of each mark that match so far */
    bool saw_done;
    uint64_t hash, text_bytes, events, bytes;
    uint64_t last_ns; /* last content */
    uint64_t due_ns;  /* SLOW: next read */
};

struct bench {
    struct args a;
    struct reader *r;
    uint32_t n, begun, opening, opened, first_seen, ended, good_ended;
    int epoll;
    bool window, over;
    uint64_t begin_ns, end_ns;
    uint64_t events, bytes, reads;                /* of all good streams so far */
    uint64_t from_events, from_bytes, from_reads; /* when the window began */
    struct tr_gaps gaps;
    char buf[READ_BYTES];
};

/* ---- one stream's bytes ---- */

/* One byte within the quotes; whether it is the first of its event. */
static bool text_byte(struct reader *r, char c)
{
    if (!r->escaped && c == '"') {
        r->in_text = false;
        return false;
    }
    r->escaped = !r->escaped && c == '\\';
    r->hash = (r->hash ^ (uint8_t)c) * 0x100000001b3u;
    r->text_bytes++;
    return r->text_of_event++ == 0;
}

/* Marks do not overlap with themselves but for their first byte. */
static bool match(struct reader *r, int k, char c)
{
    const char *m = marks[k];
    r->at[k] = m[r->at[k]] == c ? (uint8_t)(r->at[k] + 1) : m[0] == c;
    if (m[r->at[k]])
        return false;
    r->at[k] = 0;
    return true;
}

static void begin_text(struct reader *r)
{
    r->in_text = true;
    r->escaped = false;
    r->text_of_event = 0;
    memset(r->at, 0, sizeof(r->at));
}

/* Content events in these bytes.  What lies before the next content is skipped in one search: only
 * what may be the end of the stream, or a mark cut in two, is looked at byte by byte. */
static uint32_t feed(struct reader *r, const char *p, size_t n)
{
    size_t len = strlen(marks[0]);
    uint32_t events = 0;
    for (size_t i = 0; i < n; i++) {
        if (r->in_text) {
            events += text_byte(r, p[i]);
            continue;
        }
        const char *next = !r->at[0] && n - i >= len ? memmem(p + i, n - i, marks[0], len) : NULL;
        if (next) {
            i = (size_t)(next - p) + len - 1;
            begin_text(r);
            continue;
        }
        for (; i < n && !r->in_text; i++) {
            r->saw_done |= match(r, 1, p[i]);
            r->done |= match(r, 2, p[i]) && r->saw_done;
            if (match(r, 0, p[i]))
                begin_text(r);
        }
        i--;
    }
    return events;
}

/* ---- window ---- */

static void begin_window(struct bench *b)
{
    b->window = true;
    b->begin_ns = tr_now_ns();
    b->from_events = b->events;
    b->from_bytes = b->bytes;
    b->from_reads = b->reads;
    tr_watch_begin(&b->a.watch);
}

static void end_window(struct bench *b)
{
    if (!b->window || b->over)
        return;
    b->over = true;
    b->end_ns = tr_now_ns();
    tr_watch_end(&b->a.watch);
}

static void look_at_window(struct bench *b)
{
    if (!b->window && b->first_seen == b->a.good && b->opened == b->n)
        begin_window(b);
    if (b->window && b->a.seconds > 0 && (double)(tr_now_ns() - b->begin_ns) >= b->a.seconds * 1e9)
        end_window(b);
}

/* ---- sockets ---- */

static void finish(struct bench *b, struct reader *r, bool failed)
{
    if (r->fd < 0)
        return;
    close(r->fd);
    r->fd = -1;
    r->failed = failed;
    b->opening -= !r->open;
    b->opened += !r->open;
    r->open = true;
    b->ended++;
    if (r->kind == GOOD) {
        b->good_ended++;
        if (b->a.seconds > 0 || b->good_ended == b->a.good)
            end_window(b);
    }
}

static void took(struct bench *b, struct reader *r, size_t n, uint64_t now)
{
    if (!r->open) { /* the head comes alone or with the first events */
        r->open = true;
        b->opening--;
        b->opened++;
    }
    uint32_t events = feed(r, b->buf, n);
    r->bytes += n;
    if (r->kind == GOOD) {
        b->reads++;
        b->bytes += n;
        b->events += events;
        b->first_seen += events && !r->events;
        if (events && r->last_ns && b->window && !b->over)
            tr_gaps_add(&b->gaps, now - r->last_ns);
        if (events)
            r->last_ns = now;
    }
    r->events += events;
    if (r->done)
        finish(b, r, false);
}

static void take(struct bench *b, struct reader *r, size_t most, uint64_t now)
{
    while (r->fd >= 0) {
        ssize_t n = recv(r->fd, b->buf, most, MSG_DONTWAIT);
        if (n > 0)
            took(b, r, (size_t)n, now);
        else if (n == 0 || errno != EAGAIN)
            finish(b, r, true);
        if (n < (ssize_t)most || r->kind != GOOD)
            return;
    }
}

static int dial(const struct bench *b, enum kind kind)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)b->a.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = SLOW_RCVBUF;
    if (fd < 0)
        return -1;
    if (kind != GOOD)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool ask(const struct bench *b, int fd, enum kind kind)
{
    char body[1024], text[1536];
    int n = snprintf(
        body, sizeof(body),
        "{\"model\":\"sim\",\"stream\":true,\"ignore_eos\":true,\"temperature\":0,"
        "\"max_tokens\":%u%s%s,\"messages\":[{\"role\":\"user\",\"content\":\"Go on.\"}]}",
        kind == GOOD ? b->a.max_tokens : b->a.others_max_tokens, *b->a.body ? "," : "", b->a.body);
    n = snprintf(text, sizeof(text),
                 "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                 "application/json\r\nContent-Length: %d\r\n\r\n%s",
                 n, body);
    return n < (int)sizeof(text) && send(fd, text, (size_t)n, MSG_NOSIGNAL) == n;
}

static bool open_one(struct bench *b, struct reader *r)
{
    r->fd = dial(b, r->kind);
    if (r->fd < 0 || !ask(b, r->fd, r->kind)) {
        fprintf(stderr, "bench readers: stream %u: %s\n", b->begun, strerror(errno));
        return false;
    }
    r->hash = 0xcbf29ce484222325u;
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = r};
    if (r->kind == MUTE) /* told once that bytes are there, then left alone */
        ev.events |= EPOLLONESHOT;
    epoll_ctl(b->epoll, EPOLL_CTL_ADD, r->fd, &ev);
    b->opening++;
    return true;
}

/* Slow ones are asked by the clock alone once they are open. */
static void slow_down(struct bench *b, struct reader *r, uint64_t now)
{
    epoll_ctl(b->epoll, EPOLL_CTL_DEL, r->fd, NULL);
    r->due_ns = now + 1000000000u;
}

static void ready(struct bench *b, struct reader *r, uint64_t now)
{
    if (r->kind == GOOD) {
        take(b, r, READ_BYTES, now);
    } else if (r->kind == SLOW) {
        take(b, r, b->a.slow_bps, now);
        if (r->fd >= 0)
            slow_down(b, r, now);
    } else if (!r->open) {
        r->open = true;
        b->opening--;
        b->opened++;
    }
}

static void read_slow(struct bench *b, uint64_t now)
{
    for (uint32_t i = b->a.good; i < b->a.good + b->a.slow; i++) {
        struct reader *r = &b->r[i];
        if (r->fd < 0 || !r->due_ns || now < r->due_ns)
            continue;
        r->due_ns += 1000000000u;
        take(b, r, b->a.slow_bps, now);
    }
}

/* ---- the run ---- */

static bool over(const struct bench *b)
{
    if (b->a.seconds > 0 && b->over)
        return true;
    return b->begun == b->n && b->good_ended == b->a.good;
}

/* The slow ones first, so that they are behind when the good ones are measured. */
static struct reader *next_to_open(struct bench *b)
{
    uint32_t others = b->a.slow + b->a.mute;
    return &b->r[b->begun < others ? b->a.good + b->begun : b->begun - others];
}

static bool may_open(const struct bench *b)
{
    if (b->begun == b->n || b->opening >= OPENING)
        return false;
    return b->begun < b->a.slow + b->a.mute || !b->a.hold || access(b->a.hold, F_OK) == 0;
}

static int run(struct bench *b)
{
    struct epoll_event ev[EVENTS];
    uint64_t slow_ns = 0;
    while (!over(b)) {
        while (may_open(b)) {
            if (!open_one(b, next_to_open(b)))
                return -1;
            b->begun++;
        }
        int n = epoll_wait(b->epoll, ev, EVENTS, 20);
        uint64_t now = tr_now_ns();
        for (int i = 0; i < n; i++)
            ready(b, ev[i].data.ptr, now);
        if (b->a.slow && now - slow_ns > 20000000u) {
            slow_ns = now;
            read_slow(b, now);
        }
        look_at_window(b);
    }
    end_window(b);
    return 0;
}

/* ---- report ---- */

static int report(struct bench *b)
{
    uint32_t complete = 0, cut = 0, differ = 0, slow_cut = 0;
    const struct reader *first = NULL;
    for (uint32_t i = 0; i < b->n; i++) {
        const struct reader *r = &b->r[i];
        slow_cut += r->kind != GOOD && r->failed;
        if (r->kind != GOOD)
            continue;
        cut += r->failed;
        complete += r->done;
        if (!r->done)
            continue;
        if (!first)
            first = r;
        differ += r->hash != first->hash || r->text_bytes != first->text_bytes;
    }
    double s = (double)(b->end_ns - b->begin_ns) / 1e9;
    printf("{\"streams\":%u,\"good\":%u,\"complete\":%u,\"cut\":%u,\"differ\":%u,\"others_cut\":%u,"
           "\"text_bytes\":%llu,\"text_hash\":\"%016llx\",\"events_of_one\":%llu,\"seconds\":%.3f,"
           "\"events\":%llu,"
           "\"bytes\":%llu,\"reads\":%llu,",
           b->n, b->a.good, complete, cut, differ, slow_cut,
           first ? (unsigned long long)first->text_bytes : 0,
           first ? (unsigned long long)first->hash : 0,
           first ? (unsigned long long)first->events : 0, s,
           (unsigned long long)(b->events - b->from_events),
           (unsigned long long)(b->bytes - b->from_bytes),
           (unsigned long long)(b->reads - b->from_reads));
    tr_gaps_print(&b->gaps);
    tr_watch_print(&b->a.watch);
    printf("}\n");
    return cut || differ ? 1 : 0;
}

/* ---- arguments ---- */

static int usage(FILE *f)
{
    fprintf(f, "usage: tokenring bench readers --port N [--good N] [--slow N] [--mute N] "
               "[--slow-bps N] [--max-tokens N] [--others-max-tokens N] [--seconds S] [--body "
               "MEMBERS] [--hold FILE] "
               "[--watch PID]...\n");
    return f == stdout ? 0 : 2;
}

static int parse(int argc, char **argv, struct args *a)
{
    static const struct option options[] = {{"port", 1, NULL, 'p'},
                                            {"good", 1, NULL, 'g'},
                                            {"slow", 1, NULL, 's'},
                                            {"mute", 1, NULL, 'm'},
                                            {"slow-bps", 1, NULL, 'b'},
                                            {"max-tokens", 1, NULL, 't'},
                                            {"others-max-tokens", 1, NULL, 'o'},
                                            {"seconds", 1, NULL, 'e'},
                                            {"body", 1, NULL, 'j'},
                                            {"hold", 1, NULL, 'h'},
                                            {"watch", 1, NULL, 'w'},
                                            {NULL, 0, NULL, 0}};
    int c;
    optind = 1;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        uint32_t v = optarg ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
        switch (c) {
        case 'p':
            a->port = v;
            break;
        case 'g':
            a->good = v;
            break;
        case 's':
            a->slow = v;
            break;
        case 'm':
            a->mute = v;
            break;
        case 'b':
            a->slow_bps = v;
            break;
        case 't':
            a->max_tokens = v;
            break;
        case 'o':
            a->others_max_tokens = v;
            break;
        case 'e':
            a->seconds = optarg ? strtod(optarg, NULL) : 0;
            break;
        case 'j':
            a->body = optarg;
            break;
        case 'h':
            a->hold = optarg;
            break;
        case 'w':
            if (tr_watch_add(&a->watch, (int)v))
                return usage(stderr);
            break;
        default:
            return usage(stderr);
        }
    }
    return optind == argc && a->port && a->port < 65536 && a->good && a->slow_bps &&
                   a->slow_bps <= READ_BYTES
               ? 0
               : usage(stderr);
}

int tr_bench_readers_main(int argc, char **argv)
{
    static struct bench b = {
        .a = {
            .good = 1000, .slow_bps = 10, .max_tokens = 200, .others_max_tokens = 200, .body = ""}};
    if (argc > 1 && strcmp(argv[1], "--help") == 0)
        return usage(stdout);
    int rc = parse(argc, argv, &b.a);
    if (rc)
        return rc;
    b.n = b.a.good + b.a.slow + b.a.mute;
    b.r = calloc(b.n ? b.n : 1, sizeof(*b.r));
    b.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!b.r || b.epoll < 0) {
        fprintf(stderr, "bench readers: out of memory or descriptors\n");
        return 1;
    }
    for (uint32_t i = 0; i < b.n; i++) {
        b.r[i].fd = -1;
        b.r[i].kind = i < b.a.good ? GOOD : i < b.a.good + b.a.slow ? SLOW : MUTE;
    }
    rc = run(&b) ? 1 : report(&b);
    for (uint32_t i = 0; i < b.n; i++)
        if (b.r[i].fd >= 0)
            close(b.r[i].fd);
    free(b.r);
    close(b.epoll);
    return rc;
}
