/* SPDX-License-Identifier: Apache-2.0 */
/* The one worker of the rig is held by a job of the test's, so what is asked of a worker is seen to
 * wait, and what is not is seen to go on.  The client speaks HTTP/2 in single frames; of what it is
 * sent it looks at DATA only. */
#include "testfe/frontend_rig.h"

#include "base/clock.h"
#include "frontend/task.h"
#include "frontend/worker.h"

#include <criterion/criterion.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

enum { DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, END_HEADERS = 4 };
enum { LONG = TR_TASK_INLINE_BYTES + 4096 };
#define PATIENCE_NS (60 * 1000000000ull)

/* ---- the worker ---- */

static sem_t busy, let_go;

static void hold(struct tr_job *j)
{
    (void)j;
    sem_post(&busy);
    sem_wait(&let_go);
}

static void nothing(struct tr_job *j)
{
    (void)j;
}

/* The worker stands in `*j` when this returns. */
static void hold_worker(struct tr_rig *r, struct tr_job *j)
{
    sem_init(&busy, 0, 0);
    sem_init(&let_go, 0, 0);
    *j = (struct tr_job){.work = hold, .done = nothing};
    cr_assert_eq(tr_workers_push(r->fe.workers, j), 0);
    sem_wait(&busy);
}

/* ---- the client ---- */

struct text {
    size_t len;
    char p[2 * LONG];
};

static void add(struct text *t, const void *p, size_t len)
{
    cr_assert(t->len + len <= sizeof(t->p));
    memcpy(t->p + t->len, p, len);
    t->len += len;
}

static void add_varint(struct text *t, size_t n)
{
    for (; n >= 128; n >>= 7)
        add(t, &(char){(char)(n | 128)}, 1);
    add(t, &(char){(char)n}, 1);
}

static void add_field(struct text *t, unsigned number, const char *p, size_t len)
{
    add_varint(t, number << 3 | 2);
    add_varint(t, len);
    add(t, p, len);
}

static void send_frame(struct tr_rig_client *c, int type, int flags, uint32_t stream,
                       const struct text *t)
{
    char head[9] = {(char)(t->len >> 16), (char)(t->len >> 8), (char)t->len,
                    (char)type,           (char)flags,         (char)(stream >> 24),
                    (char)(stream >> 16), (char)(stream >> 8), (char)stream};

    tr_rig_send_bytes(c, head, sizeof(head));
    tr_rig_send_bytes(c, t->p, t->len);
}

static struct tr_rig_client *connect_h2(struct tr_rig *r)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    static const struct text empty;
    struct tr_rig_client *c = tr_rig_connect_grpc(r);

    tr_rig_send_bytes(c, preface, sizeof(preface) - 1);
    send_frame(c, SETTINGS, 0, 0, &empty);
    return c;
}

static void add_header(struct text *t, const char *name, const char *value)
{
    size_t n = strlen(name), v = strlen(value);

    cr_assert(n < 127 && v < 127);
    add(t, &(char[2]){0, (char)n}, 2);
    add(t, name, n);
    add(t, &(char){(char)v}, 1);
    add(t, value, v);
}

static void send_head(struct tr_rig_client *c, uint32_t stream)
{
    static struct text t;

    t.len = 0;
    add_header(&t, ":method", "POST");
    add_header(&t, ":scheme", "http");
    add_header(&t, ":path", "/inference.GRPCInferenceService/ModelStreamInfer");
    add_header(&t, ":authority", "x");
    add_header(&t, "content-type", "application/grpc");
    send_frame(c, HEADERS, END_HEADERS, stream, &t);
}

/* One ModelInferRequest whose text has `len` bytes; `bad`: they are no UTF-8. */
static void send_request(struct tr_rig_client *c, uint32_t stream, const char *id, size_t len,
                         bool bad)
{
    static struct text tensor, raw, m, wire;

    tensor.len = raw.len = m.len = wire.len = 0;
    add_field(&tensor, 1, "text_input", 10);
    add_field(&tensor, 2, "BYTES", 5);
    add_field(&tensor, 3, "\1", 1);
    add(&raw, &(char[4]){(char)len, (char)(len >> 8), (char)(len >> 16), 0}, 4);
    for (size_t i = 0; i < len; i++)
        add(&raw, bad ? "\xff" : "a", 1);
    add_field(&m, 1, "sim", 3);
    add_field(&m, 3, id, strlen(id));
    add_field(&m, 5, tensor.p, tensor.len);
    add_field(&m, 7, raw.p, raw.len);
    add(&wire, &(char[5]){0, 0, (char)(m.len >> 16), (char)(m.len >> 8), (char)m.len}, 5);
    add(&wire, m.p, m.len);
    for (size_t at = 0, n; at < wire.len; at += n) {
        static struct text piece;
        n = wire.len - at < 16384 ? wire.len - at : 16384;
        piece.len = 0;
        add(&piece, wire.p + at, n);
        send_frame(c, DATA, 0, stream, &piece);
    }
}

/* Whether DATA of this stream has this word. */
static bool has(struct tr_rig_client *c, uint32_t stream, const char *word)
{
    tr_rig_read(c);
    for (size_t at = 0, n; at + 9 <= c->len; at += 9 + n) {
        const unsigned char *h = (const unsigned char *)c->buf + at;
        n = (size_t)h[0] << 16 | (size_t)h[1] << 8 | h[2];
        uint32_t of =
            (uint32_t)(h[5] & 127) << 24 | (uint32_t)h[6] << 16 | (uint32_t)h[7] << 8 | h[8];
        if (h[3] == DATA && of == stream && at + 9 + n <= c->len &&
            memmem(h + 9, n, word, strlen(word)))
            return true;
    }
    return false;
}

static bool comes(struct tr_rig *r, struct tr_rig_client *c, uint32_t stream, const char *word)
{
    uint64_t until = tr_now_ns() + PATIENCE_NS;

    while (!has(c, stream, word) && tr_now_ns() < until)
        tr_rig_run(r);
    return has(c, stream, word);
}

static void start(struct tr_rig *r)
{
    tr_rig_defaults(r);
    r->cfg.n_grpc = 1;
    tr_rig_start(r, 8, false);
}

static bool no_asks(struct tr_rig *r)
{
    uint64_t until = tr_now_ns() + PATIENCE_NS;

    while (r->fe.n_asks && tr_now_ns() < until)
        tr_rig_run(r);
    return !r->fe.n_asks;
}

/* ---- claims ---- */

Test(grpc_message, a_long_one_is_read_by_a_worker_and_the_loop_goes_on)
{
    static struct tr_rig r;
    struct tr_job j;

    start(&r);
    hold_worker(&r, &j);
    struct tr_rig_client *c = connect_h2(&r);
    send_head(c, 1);
    send_request(c, 1, "long", LONG, true);
    send_head(c, 3);
    send_request(c, 3, "short", 10, true);
    cr_expect(comes(&r, c, 3, "not valid UTF-8"), "a short one is read at once");
    tr_rig_run(&r);
    cr_expect_eq(r.fe.n_asks, 1);
    cr_expect_not(has(c, 1, "long"), "a long one waits for the worker");
    struct tr_rig_client *other = tr_rig_connect(&r, 0);
    tr_rig_send(other, "POST", "/v1/completions", NULL,
                "{\"model\":\"sim\",\"prompt\":\"a\",\"stream\":true}");
    tr_rig_run(&r);
    tr_sengine_text(&r.engine, tr_sengine_slot(&r.engine, 0), "tokens");
    tr_rig_run(&r);
    tr_rig_read(other);
    cr_expect(strstr(other->buf, "\"text\":\"s\""), "and the loop goes on: %s", other->buf);
    cr_expect_not(has(c, 1, "long"));
    sem_post(&let_go);
    cr_expect(comes(&r, c, 1, "not valid UTF-8"), "then it has its answer");
    cr_expect(has(c, 1, "long"), "with its id");
    cr_expect_eq(r.fe.n_asks, 0);
    tr_rig_close(other, false);
    tr_rig_close(c, false);
    tr_rig_stop(&r);
}

Test(grpc_message, a_call_that_goes_leaves_its_message_to_the_worker)
{
    static struct tr_rig r;
    static const struct text code = {.len = 4, .p = {0, 0, 0, 8}};
    struct tr_job j;

    start(&r);
    hold_worker(&r, &j);
    struct tr_rig_client *c = connect_h2(&r), *d = connect_h2(&r);
    send_head(c, 1);
    send_request(c, 1, "left", LONG, false);
    send_head(d, 1);
    send_request(d, 1, "lost", LONG, false);
    uint64_t until = tr_now_ns() + PATIENCE_NS;
    while (r.fe.n_asks < 2 && tr_now_ns() < until)
        tr_rig_run(&r);
    cr_assert_eq(r.fe.n_asks, 2);
    send_frame(c, RST_STREAM, 0, 1, &code);
    tr_rig_close(d, true);
    send_head(c, 3);
    send_request(c, 3, "after", 10, true);
    cr_expect(comes(&r, c, 3, "not valid UTF-8"));
    sem_post(&let_go);
    cr_expect(no_asks(&r), "the worker gives both back");
    tr_rig_run(&r);
    cr_expect_not(has(c, 1, ""), "nobody is answered");
    cr_expect_eq(r.fe.n_streams, 0, "nothing was admitted");
    tr_rig_close(c, false);
    tr_rig_stop(&r);
}

Test(grpc_message, without_a_place_at_a_worker_it_is_refused_by_its_id)
{
    static struct tr_rig r;
    static struct tr_job j[TR_WORKERS_JOBS];

    start(&r);
    hold_worker(&r, &j[0]);
    for (unsigned i = 1; i < TR_WORKERS_JOBS; i++) {
        j[i] = (struct tr_job){.work = nothing, .done = nothing};
        cr_assert_eq(tr_workers_push(r.fe.workers, &j[i]), 0);
    }
    struct tr_rig_client *c = connect_h2(&r);
    send_head(c, 1);
    send_request(c, 1, "the-late-one", LONG, false);
    cr_expect(comes(&r, c, 1, "overloaded"));
    cr_expect(has(c, 1, "the-late-one"));
    cr_expect_eq(r.fe.n_asks, 0);
    sem_post(&let_go);
    tr_rig_close(c, false);
    tr_rig_stop(&r);
}
