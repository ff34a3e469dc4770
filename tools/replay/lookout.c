/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/lookout.h"

#include "client/scrape.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAGE_MAX (16u << 20)

/* tokenring's own names first; the second is for another server. */
static const struct {
    const char *name, *metric[2], *label;
} gauges_known[TR_GAUGES] = {
    [TR_GAUGE_RUNNING] = {"running",
                          {"tokenring_requests_running", "vllm:num_requests_running"},
                          NULL},
    [TR_GAUGE_WAITING] = {"waiting",
                          {"tokenring_requests_waiting", "vllm:num_requests_waiting"},
                          NULL},
    [TR_GAUGE_PARKED] = {"parked", {"tokenring_requests_parked", NULL}, NULL},
    [TR_GAUGE_KV_USED] = {"kv_used", {"tokenring_kv_blocks", NULL}, "state=\"used\""},
};

const char *tr_gauge_name(enum tr_gauge g)
{
    return gauges_known[g].name;
}

void tr_gauges_read(double gauges[TR_GAUGES], const char *page, size_t len)
{
    for (int i = 0; i < TR_GAUGES; i++) {
        gauges[i] = (double)NAN;
        for (int k = 0; page && k < 2 && gauges_known[i].metric[k]; k++)
            if (!tr_scrape_value(page, len, gauges_known[i].metric[k], gauges_known[i].label,
                                 &gauges[i]))
                break;
    }
}

static int take_body(void *ctx, const char *bytes, size_t len)
{
    return tr_buf_append(ctx, bytes, len);
}

int tr_lookout_init(struct tr_lookout *w, const struct tr_target *t)
{
    w->target = t;
    w->fd = -1;
    w->page = (struct tr_buf){0};
    w->req = tr_target_get(t, "/metrics", &w->req_len);
    return w->req ? 0 : -ENOMEM;
}

void tr_lookout_stop(struct tr_lookout *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
}

void tr_lookout_fini(struct tr_lookout *w)
{
    tr_lookout_stop(w);
    free(w->req);
    free(w->page.p);
}

int tr_lookout_begin(struct tr_lookout *w)
{
    static const struct tr_httpc_ops ops = {NULL, take_body};
    w->req_sent = 0;
    w->page.len = 0;
    tr_httpc_init(&w->http, PAGE_MAX, &ops, &w->page);
    int fd = tr_url_connect(&w->target->url, 0);
    w->fd = fd < 0 ? -1 : fd;
    return fd;
}

bool tr_lookout_wants_write(const struct tr_lookout *w)
{
    return w->req_sent < w->req_len;
}

static int send_some(struct tr_lookout *w)
{
    ssize_t n = send(w->fd, w->req + w->req_sent, w->req_len - w->req_sent, MSG_NOSIGNAL);
    if (n > 0)
        w->req_sent += (size_t)n;
    return n < 0 && errno != EAGAIN && errno != EINTR ? -errno : 0;
}

static int read_some(struct tr_lookout *w)
{
    char buf[65536];
    ssize_t n = recv(w->fd, buf, sizeof(buf), 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    return n ? tr_httpc_push(&w->http, buf, (size_t)n) : tr_httpc_eof(&w->http);
}

int tr_lookout_io(struct tr_lookout *w, double gauges[TR_GAUGES])
{
    int rc = tr_lookout_wants_write(w) ? send_some(w) : read_some(w);
    if (!rc)
        return 0;
    if (rc == 1 && w->http.status != 200)
        rc = -EPROTO;
    if (rc == 1)
        tr_gauges_read(gauges, w->page.p, w->page.len);
    tr_lookout_stop(w);
    return rc;
}
