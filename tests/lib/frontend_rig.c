/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend_rig.h"

#include "base/clock.h"
#include "base/sim_vocab.h"
#include "frontend/conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECOND 1000000000ull

void tr_rig_defaults(struct tr_rig *r)
{
    memset(r, 0, sizeof(*r));
    r->n_ctx = 512;
    r->cfg = (struct tr_frontend_config){
        .served_name = "sim",
        .deterministic = true,
        .model_stem = "sim-stem",
        .tool_format = -1,
        .reasoning = -1,
        .version = "0",
        .backend = "sim",
        .heartbeat_ns = 15 * SECOND,
        .write_deadline_ns = 30 * SECOND,
        .ledger_wait_ns = 60 * SECOND,
        .access_log = TR_ACCESS_OFF,
        .stream_buffer = 16 << 10,
        .max_body = 4 << 20,
        .max_connections = 100,
        .max_choices = 16,
        .header_timeout_ns = 10 * SECOND,
        .body_timeout_ns = 30 * SECOND,
        .keepalive_ns = 75 * SECOND,
    };
}

static void need(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "rig: %s: %s\n", what, strerror(errno));
    abort();
}

void tr_rig_start(struct tr_rig *r, uint32_t n_open, bool with_ledger)
{
    struct tr_shm_config c = {.n_ctx = r->n_ctx,
                              .n_vocab = TR_SIM_VOCAB_SIZE,
                              .n_slots = TR_SENGINE_SLOTS,
                              .n_admit = TR_SENGINE_SLOTS,
                              .max_seqs = 16,
                              .n_areas = 2,
                              .window = 64,
                              .ledger = with_ledger};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct tr_errbuf err;

    need(tr_shm_create(&c, &r->fds, &err) == 0, "create");
    need(tr_shm_attach_all(&r->shm, &r->fds, &err) == 0, "attach");
    tr_sengine_start(&r->engine, &r->shm, n_open);
    tr_role = TR_ROLE_FRONTEND;
    r->shm.my_area = 0;
    r->shm.my_epoch = 1;
    if (tr_fe_open(&r->fe, &r->shm, &r->cfg, &err) || tr_fe_start_workers(&r->fe, 1, &err)) {
        fprintf(stderr, "rig: %s\n", err.msg);
        abort();
    }
    r->listener = socket(AF_INET, SOCK_STREAM, 0);
    need(bind(r->listener, (struct sockaddr *)&a, sizeof(a)) == 0, "bind");
    need(listen(r->listener, 16) == 0, "listen");
}

void tr_rig_stop(struct tr_rig *r)
{
    tr_fe_close(&r->fe);
    close(r->listener);
    tr_shm_detach(&r->shm);
    tr_shm_close_fds(&r->fds);
}

void tr_rig_run(struct tr_rig *r)
{
    for (int i = 0; i < 12; i++) {
        tr_fe_turn(&r->fe, false);
        tr_sengine_step(&r->engine);
    }
}

void tr_rig_run_ms(struct tr_rig *r, unsigned ms)
{
    uint64_t until = tr_now_ns() + ms * 1000000ull;

    while (tr_now_ns() < until) {
        tr_rig_run(r);
        usleep(1000);
    }
}

static struct tr_rig_client *connect_to(struct tr_rig *r, struct tr_httpd *d, int rcvbuf)
{
    struct tr_rig_client *c = calloc(1, sizeof(*c));
    struct sockaddr_in a;
    socklen_t len = sizeof(a);
    int one = 1;

    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (rcvbuf)
        setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf));
    getsockname(r->listener, (struct sockaddr *)&a, &len);
    need(connect(c->fd, (struct sockaddr *)&a, len) == 0, "connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    int fd = accept4(r->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    need(fd >= 0 && tr_conn_accept(d, fd) == 0, "accept");
    return c;
}

struct tr_rig_client *tr_rig_connect(struct tr_rig *r, int rcvbuf)
{
    return connect_to(r, r->fe.httpd, rcvbuf);
}

struct tr_rig_client *tr_rig_connect_grpc(struct tr_rig *r)
{
    return connect_to(r, r->fe.grpcd, 0);
}

void tr_rig_close(struct tr_rig_client *c, bool reset)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};

    if (reset)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close(c->fd);
    free(c);
}

void tr_rig_send_bytes(struct tr_rig_client *c, const char *p, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t k = send(c->fd, p + at, len - at, MSG_NOSIGNAL);
        if (k < 0 && errno == EAGAIN) {
            poll(&(struct pollfd){.fd = c->fd, .events = POLLOUT}, 1, 100);
            continue;
        }
        need(k > 0, "send");
        at += (size_t)k;
    }
}

void tr_rig_send(struct tr_rig_client *c, const char *method, const char *path, const char *headers,
                 const char *body)
{
    size_t n = body ? strlen(body) : 0, cap = n + 1024;
    char *text = malloc(cap);
    int len = snprintf(text, cap, "%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %zu\r\n\r\n%s",
                       method, path, headers ? headers : "", n, body ? body : "");

    tr_rig_send_bytes(c, text, (size_t)len);
    free(text);
}

void tr_rig_read(struct tr_rig_client *c)
{
    while (c->len < TR_RIG_BYTES) {
        ssize_t n = recv(c->fd, c->buf + c->len, TR_RIG_BYTES - c->len, MSG_DONTWAIT);
        if (n <= 0) {
            c->eof |= n == 0;
            break;
        }
        c->len += (size_t)n;
    }
    c->buf[c->len] = 0;
}

const char *tr_rig_body(struct tr_rig_client *c)
{
    static char out[TR_RIG_BYTES + 1];
    const char *p = strstr(c->buf, "\r\n\r\n");
    size_t n = 0;

    if (!p)
        return "";
    bool chunked = strstr(c->buf, "Transfer-Encoding: chunked") != NULL;
    p += 4;
    if (!chunked)
        return p;
    for (;;) {
        char *end;
        unsigned long k = strtoul(p, &end, 16);
        if (end == p || strncmp(end, "\r\n", 2) != 0 || k == 0 || end + 2 + k > c->buf + c->len)
            break;
        memcpy(out + n, end + 2, k);
        n += k;
        p = end + 2 + k + 2;
    }
    out[n] = 0;
    return out;
}

int tr_rig_ask(struct tr_rig *r, const char *method, const char *path, const char *json,
               const char **body)
{
    static char keep[TR_RIG_BYTES + 1];
    struct tr_rig_client *c = tr_rig_connect(r, 0);
    uint64_t until = tr_now_ns() + 5 * SECOND;
    int status = 0;

    tr_rig_send(c, method, path, "Connection: close\r\n", json);
    while (!c->eof && tr_now_ns() < until) {
        tr_rig_run(r);
        tr_rig_read(c);
    }
    sscanf(c->buf, "HTTP/1.1 %d", &status);
    strcpy(keep, tr_rig_body(c));
    if (body)
        *body = keep;
    tr_rig_close(c, false);
    return status;
}
