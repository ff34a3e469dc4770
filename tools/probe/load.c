/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/load.h"

#include "base/clock.h"
#include "probe/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define SWEEP_NS 20000000u /* how late a time limit may be noticed */
#define EVENTS_AT_ONCE 256

/* A place for one open stream. */
struct lane {
    struct tr_client_stream stream;
    bool open, wrote;
    char *req; /* of this stream alone (--distinct), else NULL */
};

struct loop {
    struct tr_load *load;
    const struct tr_probe_opts *opts;
    const char *model;
    struct tr_client_stream_rules rules;
    int ep;
    struct lane *lanes; /* [parallel] */
    size_t *idle;       /* stack of lanes that are not open */
    size_t n_idle;
    size_t next; /* the next request to start */
    uint64_t next_start_ns, next_sweep_ns;
    char *req; /* shared by all */
    size_t req_len;
};

static void close_lane(struct loop *l, struct lane *a)
{
    tr_client_stream_fini(&a->stream);
    free(a->req);
    a->req = NULL;
    a->open = false;
    l->idle[l->n_idle++] = (size_t)(a - l->lanes);
}

/* Level-triggered; EPOLLOUT only while there is something to send. */
static int watch(struct loop *l, struct lane *a, int op)
{
    bool write = tr_client_stream_wants_write(&a->stream);
    if (op == EPOLL_CTL_MOD && write == a->wrote)
        return 0;
    a->wrote = write;
    struct epoll_event e = {.events = EPOLLIN | (write ? (uint32_t)EPOLLOUT : 0u), .data.ptr = a};
    return epoll_ctl(l->ep, op, a->stream.fd, &e) ? -errno : 0;
}

static int start_one(struct loop *l)
{
    const struct tr_probe_opts *o = l->opts;
    struct lane *a = &l->lanes[l->idle[l->n_idle - 1]];
    size_t len = l->req_len;
    if (o->distinct) {
        a->req = tr_request_post(o, l->model, l->next, &len);
        if (!a->req)
            return -ENOMEM;
    }
    l->n_idle--;
    a->open = true;
    struct tr_record *rec = &l->load->records[l->next++];
    if (tr_client_stream_start(&a->stream, &o->to.url, a->req ? a->req : l->req, len, &l->rules,
                               rec, &l->load->gaps)) {
        close_lane(l, a);
        return 0;
    }
    return watch(l, a, EPOLL_CTL_ADD);
}

static int start_due(struct loop *l)
{
    uint64_t now = tr_now_ns();
    while (l->n_idle && l->next < l->load->n && now >= l->next_start_ns) {
        int rc = start_one(l);
        if (rc)
            return rc;
        now = tr_now_ns();
        l->next_start_ns = now + l->opts->stagger_ms * 1000000;
    }
    return 0;
}

static void sweep(struct loop *l, uint64_t now)
{
    if (now < l->next_sweep_ns)
        return;
    l->next_sweep_ns = now + SWEEP_NS;
    for (size_t i = 0; i < l->opts->parallel; i++) {
        struct lane *a = &l->lanes[i];
        if (!a->open || now < a->stream.deadline_ns)
            continue;
        tr_client_stream_expire(&a->stream);
        close_lane(l, a);
    }
}

static int wait_ms(const struct loop *l)
{
    uint64_t ms = SWEEP_NS / 1000000, now = tr_now_ns();
    if (l->n_idle && l->next < l->load->n) {
        uint64_t until = l->next_start_ns > now ? (l->next_start_ns - now) / 1000000 + 1 : 0;
        if (until < ms)
            ms = until;
    }
    return (int)ms;
}

static int turn(struct loop *l)
{
    struct epoll_event ev[EVENTS_AT_ONCE];
    int n = epoll_wait(l->ep, ev, EVENTS_AT_ONCE, wait_ms(l));
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    uint64_t woke = tr_now_ns();
    for (int i = 0; i < n; i++) {
        struct lane *a = ev[i].data.ptr;
        uint64_t delay = tr_now_ns() - woke;
        if (delay > l->load->delay_max_ns)
            l->load->delay_max_ns = delay;
        if (tr_client_stream_io(&a->stream)) {
            close_lane(l, a);
            continue;
        }
        int rc = watch(l, a, EPOLL_CTL_MOD);
        if (rc)
            return rc;
    }
    sweep(l, tr_now_ns());
    return 0;
}

static int prepare(struct loop *l)
{
    size_t n = (size_t)l->opts->parallel;
    l->lanes = calloc(n, sizeof(*l->lanes));
    l->idle = calloc(n, sizeof(*l->idle));
    l->req = tr_request_post(l->opts, l->model, 0, &l->req_len);
    if (!l->lanes || !l->idle || !l->req)
        return -ENOMEM;
    l->ep = epoll_create1(EPOLL_CLOEXEC);
    if (l->ep < 0)
        return -errno;
    while (l->n_idle < n) {
        l->lanes[l->n_idle].stream.fd = -1;
        l->idle[l->n_idle] = n - 1 - l->n_idle;
        l->n_idle++;
    }
    return 0;
}

int tr_load_run(struct tr_load *load, const struct tr_probe_opts *o, const char *model,
                struct tr_errbuf *err)
{
    struct loop l = {.load = load, .opts = o, .model = model, .ep = -1};
    l.rules = (struct tr_client_stream_rules){.abort_after = o->abort_after,
                                              .timeout_ns = (uint64_t)(o->timeout_s * 1e9),
                                              .keep_text = o->show_text};
    *load = (struct tr_load){.start_ns = tr_now_ns()};
    load->records = calloc((size_t)o->requests, sizeof(*load->records));
    load->n = load->records ? (size_t)o->requests : 0;
    int rc = load->records ? prepare(&l) : -ENOMEM;
    while (!rc && (l.next < load->n || l.n_idle < o->parallel)) {
        rc = start_due(&l);
        if (!rc && (l.next < load->n || l.n_idle < o->parallel))
            rc = turn(&l);
    }
    load->end_ns = tr_now_ns();
    for (size_t i = 0; l.lanes && i < o->parallel; i++)
        if (l.lanes[i].open)
            close_lane(&l, &l.lanes[i]);
    if (l.ep >= 0)
        close(l.ep);
    free(l.lanes);
    free(l.idle);
    free(l.req);
    if (rc == -ENOMEM)
        return tr_errf(err, rc, "no memory for the run, or the prompt is not UTF-8");
    return rc ? tr_errf(err, rc, "%s", strerror(-rc)) : 0;
}

void tr_load_fini(struct tr_load *l)
{
    for (size_t i = 0; i < l->n; i++)
        tr_record_fini(&l->records[i]);
    free(l->records);
    tr_samples_fini(&l->gaps);
    l->records = NULL;
    l->n = 0;
}
