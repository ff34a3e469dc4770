/* SPDX-License-Identifier: Apache-2.0 */
/* How long a long gRPC message holds up a frontend's event loop: one ModelInferRequest arrives in pieces,
 * the loop turns until it is answered; the longest turn.  A whole frontend on loopback sockets with one
 * worker, a scripted engine behind it.  The prompt is longer than the context, so the answer is an error,
 * after all of it has been read.
 *
 *     cmake --build BUILD --target bench_long_messages && BUILD/tests/bench_long_messages */
#include "testfe/frontend_rig.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 16384, ROUNDS = 5 };

static size_t put_varint(char *to, size_t n)
{
    size_t len = 0;
    for (; n >= 128; n >>= 7)
        to[len++] = (char)(n | 128);
    to[len++] = (char)n;
    return len;
}

static size_t put_field(char *to, unsigned number, const char *p, size_t len)
{
    size_t at = put_varint(to, number << 3 | 2);
    at += put_varint(to + at, len);
    memcpy(to + at, p, len);
    return at + len;
}

/* A message with its prefix, of a text of `len` bytes; from malloc. */
static char *make_message(size_t len, size_t *out_len)
{
    static const char tensor[] = "\x0a\x0atext_input\x12\x05"
                                 "BYTES\x1a\x01\x01";
    char *raw = malloc(len + 4), *m = malloc(len + 200);
    size_t at = 5;

    if (!raw || !m)
        abort();
    memcpy(raw, &(char[4]){(char)len, (char)(len >> 8), (char)(len >> 16), 0}, 4);
    for (size_t i = 0; i < len; i++)
        raw[4 + i] = i % 7 ? 'a' : ' ';
    at += put_field(m + at, 1, "sim", 3);
    at += put_field(m + at, 5, tensor, sizeof(tensor) - 1);
    at += put_field(m + at, 7, raw, len + 4);
    size_t n = at - 5;
    memcpy(m, &(char[5]){0, 0, (char)(n >> 16), (char)(n >> 8), (char)n}, 5);
    free(raw);
    *out_len = at;
    return m;
}

static void send_frame(struct tr_rig_client *c, int type, int flags, const char *p, size_t len)
{
    char head[9] = {
        (char)(len >> 16), (char)(len >> 8), (char)len, (char)type, (char)flags, 0, 0, 0,
        type == 4 ? 0 : 1};

    tr_rig_send_bytes(c, head, sizeof(head));
    tr_rig_send_bytes(c, p, len);
}

static size_t put_header(char *to, const char *name, const char *value)
{
    return (size_t)sprintf(to, "%c%c%s%c%s", 1, (int)strlen(name), name, (int)strlen(value), value);
}

static struct tr_rig_client *call(struct tr_rig *r)
{
    struct tr_rig_client *c = tr_rig_connect_grpc(r);
    char head[400];
    size_t n = 0;

    n += put_header(head + n, ":method", "POST");
    n += put_header(head + n, ":scheme", "http");
    n += put_header(head + n, ":path", "/inference.GRPCInferenceService/ModelStreamInfer");
    n += put_header(head + n, ":authority", "localhost");
    n += put_header(head + n, "content-type", "application/grpc");
    for (size_t i = 0; i < n; i++)
        head[i] = head[i] == 1 ? 0 : head[i]; /* literals that are not remembered */
    tr_rig_send_bytes(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    send_frame(c, 4, 0, NULL, 0);
    send_frame(c, 1, 4, head, n);
    return c;
}

static bool answered(struct tr_rig_client *c)
{
    tr_rig_read(c);
    return memmem(c->buf, c->len, "triton_final_response", 21) != NULL;
}

static double turn_ms(struct tr_rig *r)
{
    uint64_t began = tr_now_ns();

    tr_fe_turn(&r->fe, false);
    return (double)(tr_now_ns() - began) / 1e6;
}

/* Milliseconds of the longest turn. */
static double longest(struct tr_rig *r, size_t len)
{
    size_t n;
    char *m = make_message(len, &n);
    struct tr_rig_client *c = call(r);
    double most = 0, ms;

    for (size_t at = 0; !answered(c);) {
        size_t k = n - at < PIECE ? n - at : PIECE;
        if (k)
            send_frame(c, 0, 0, m + at, k);
        at += k;
        ms = turn_ms(r);
        most = ms > most ? ms : most;
    }
    tr_rig_close(c, false);
    tr_rig_run(r);
    free(m);
    return most;
}

int main(void)
{
    static struct tr_rig r;

    tr_rig_defaults(&r);
    r.cfg.n_grpc = 1;
    tr_rig_start(&r, 8, false);
    for (size_t kib = 16; kib <= 4096; kib *= 4) {
        printf("%5zu KiB: longest turn", kib);
        for (int i = 0; i < ROUNDS; i++)
            printf(" %.2f",
                   longest(&r, (kib << 10) - 256)); /* --max-body counts the whole message */
        printf(" ms\n");
    }
    tr_rig_stop(&r);
    return 0;
}
