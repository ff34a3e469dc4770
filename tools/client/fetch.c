/* SPDX-License-Identifier: Apache-2.0 */
#include "client/fetch.h"

#include "base/clock.h"
#include "client/buf.h"
#include "client/http_client.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BODY_MAX (16u << 20)
#define LIMIT_NS 10000000000u

static int take_body(void *ctx, const char *bytes, size_t len)
{
    return tr_buf_append(ctx, bytes, len);
}

/* 0 when `events` came, -ETIMEDOUT. */
static int wait_for(int fd, short events, uint64_t deadline)
{
    for (;;) {
        uint64_t now = tr_now_ns();
        if (now >= deadline)
            return -ETIMEDOUT;
        struct pollfd p = {fd, events, 0};
        int n = poll(&p, 1, (int)((deadline - now) / 1000000) + 1);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
    }
}

static int send_all(int fd, const char *p, size_t len, uint64_t deadline)
{
    while (len) {
        int rc = wait_for(fd, POLLOUT, deadline);
        if (rc)
            return rc;
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        if (n > 0) {
            p += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

static int read_all(int fd, struct tr_httpc *r, uint64_t deadline)
{
    for (;;) {
        char buf[16384];
        int rc = wait_for(fd, POLLIN, deadline);
        if (rc)
            return rc;
        ssize_t n = recv(fd, buf, sizeof(buf), 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n < 0)
            return -errno;
        rc = n ? tr_httpc_push(r, buf, (size_t)n) : tr_httpc_eof(r);
        if (rc)
            return rc < 0 ? rc : 0;
    }
}

static int connected(int fd, uint64_t deadline)
{
    int rc = wait_for(fd, POLLOUT, deadline), soerr = 0;
    socklen_t n = sizeof(soerr);
    if (!rc && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &soerr, &n))
        rc = -soerr;
    return rc;
}

/* Takes `req`. */
static char *ask(const struct tr_target *t, const char *path, char *req, size_t req_len,
                 size_t *len, int *rc, struct tr_errbuf *err)
{
    static const struct tr_httpc_ops ops = {NULL, take_body};
    uint64_t deadline = tr_now_ns() + LIMIT_NS;
    struct tr_buf body = {0};
    struct tr_httpc http;
    tr_httpc_init(&http, BODY_MAX, &ops, &body);

    int fd = req ? tr_url_connect(&t->url, 0) : -ENOMEM;
    int why = fd < 0 ? fd : connected(fd, deadline);
    if (why) {
        *rc = tr_errf(err, -ECONNREFUSED, "cannot connect to %s: %s", t->url_text, strerror(-why));
        goto out;
    }
    why = send_all(fd, req, req_len, deadline);
    if (!why)
        why = read_all(fd, &http, deadline);
    if (!why)
        why = tr_buf_append(&body, "", 0);
    if (why)
        *rc = tr_errf(err, -EPROTO, "%s: %s", path, http.fault ? http.fault : strerror(-why));
    else if (http.status != 200)
        *rc = tr_errf(err, -EPROTO, "%s: status %d%s", path, http.status,
                      http.status == 401 ? ": --api-key is missing or wrong" : "");
    else
        *rc = 0;
out:
    free(req);
    if (fd >= 0)
        close(fd);
    if (*rc) {
        free(body.p);
        return NULL;
    }
    *len = body.len;
    return body.p;
}

char *tr_fetch(const struct tr_target *t, const char *path, size_t *len, int *rc,
               struct tr_errbuf *err)
{
    size_t n = 0;
    char *req = tr_target_get(t, path, &n);
    return ask(t, path, req, n, len, rc, err);
}

char *tr_fetch_post(const struct tr_target *t, const char *path, const char *body, size_t *len,
                    int *rc, struct tr_errbuf *err)
{
    size_t n = 0;
    char *req = tr_target_post(t, path, "", body, &n);
    return ask(t, path, req, n, len, rc, err);
}

char *tr_fetch_model(const struct tr_target *t, int *rc, struct tr_errbuf *err)
{
    size_t len;
    char *page = tr_fetch(t, "/v1/models", &len, rc, err), *model = NULL;
    if (!page)
        return NULL;
    json_t *root = json_loadb(page, len, 0, NULL);
    const json_t *id = json_object_get(json_array_get(json_object_get(root, "data"), 0), "id");
    if (json_is_string(id) && json_string_length(id))
        model = strdup(json_string_value(id));
    if (!model)
        *rc = tr_errf(err, -EPROTO, "/v1/models names no model; say which with --model");
    json_decref(root);
    free(page);
    return model;
}

struct tr_page tr_fetch_metrics(const struct tr_target *t)
{
    struct tr_page page = {0};
    int rc;
    page.p = tr_fetch(t, "/metrics", &page.len, &rc, NULL);
    return page;
}
