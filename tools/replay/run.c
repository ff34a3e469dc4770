/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/run.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define SWEEP_NS 5000000u /* how late a client may leave or read on */
#define WAIT_MS_MAX 100   /* how late a stop may be noticed */
#define EVENTS_AT_ONCE 256

struct lane {
    struct tr_client_stream stream;
    struct tr_client_stream_rules rules;
    const struct tr_trace_entry *entry;
    struct tr_run_record *record;
    char *req;
    size_t place;    /* in loop.open */
    uint32_t events; /* watched for */
    uint64_t leave_ns;
};

struct loop {
    struct tr_run *run;
    const struct tr_prompts *prompts;
    const char *model;
    int ep;
    struct lane **open; /* [cap] */
    uint64_t *due_ns;   /* [cap], when the lane wants to be looked at */
    size_t n_open, cap;
    size_t next; /* the next request to send */
    size_t done, bad;
    char *req; /* of `next`, made ahead of its time */
    size_t req_len;
    uint64_t next_sweep_ns, next_tick_ns;
    struct tr_lookout *watch; /* NULL: metrics are not asked for */
    uint32_t watch_events;
    double gauges[TR_GAUGES]; /* latest */
};

const char *tr_fate_name(enum tr_fate f)
{
    static const char *const names[TR_FATES] = {
        [TR_FATE_COMPLETE] = "complete",
        [TR_FATE_ABANDONED] = "abandoned",
        [TR_FATE_REFUSED] = "refused",
        [TR_FATE_UNREAD] = "unread",
        [TR_FATE_ERROR] = "error",
        [TR_FATE_TRUNCATED] = "truncated",
        [TR_FATE_MALFORMED] = "malformed",
        [TR_FATE_TIMEOUT] = "timeout",
        [TR_FATE_UNREACHABLE] = "unreachable",
        [TR_FATE_INTERRUPTED] = "interrupted",
        [TR_FATE_UNSENT] = "unsent",
    };
    return (unsigned)f < TR_FATES ? names[f] : "?";
}

void tr_run_request_id(const struct tr_run *run, size_t i, char *to, size_t size)
{
    snprintf(to, size, "%s-%s-%zu", run->opts->request_id, run->tag, run->trace->e[i].line);
}

/* A slow reader may be cut, and may not be done when its time is up: that is how it is meant. */
static enum tr_fate fate_of(const struct tr_record *r, bool paced)
{
    switch (r->outcome) {
    case TR_OUT_COMPLETE:
        return TR_FATE_COMPLETE;
    case TR_OUT_ABORTED:
        return TR_FATE_ABANDONED;
    case TR_OUT_REFUSED:
        return TR_FATE_UNREACHABLE;
    case TR_OUT_ERROR:
        if (r->http_status == 503 || r->http_status == 429)
            return TR_FATE_REFUSED;
        return paced && !strncmp(r->detail, "slow_client", 11) ? TR_FATE_UNREAD : TR_FATE_ERROR;
    case TR_OUT_TRUNCATED:
        return paced ? TR_FATE_UNREAD : TR_FATE_TRUNCATED;
    case TR_OUT_TIMEOUT:
        return paced && r->http_status == 200 ? TR_FATE_UNREAD : TR_FATE_TIMEOUT;
    default:
        return TR_FATE_MALFORMED;
    }
}

static bool fate_is_bad(enum tr_fate f)
{
    return f >= TR_FATE_ERROR && f <= TR_FATE_UNREACHABLE;
}

static void close_lane(struct loop *l, struct lane *a)
{
    if (a->record->fate == TR_FATE_UNSENT)
        a->record->fate = fate_of(&a->record->rec, a->rules.paced);
    l->done++;
    l->bad += fate_is_bad(a->record->fate);
    l->n_open--;
    l->open[a->place] = l->open[l->n_open];
    l->open[a->place]->place = a->place;
    l->due_ns[a->place] = l->due_ns[l->n_open];
    tr_client_stream_fini(&a->stream);
    free(a->req);
    free(a);
}

static bool leaves_by(const struct lane *a, uint64_t ns)
{
    return a->leave_ns && a->leave_ns <= ns;
}

/* When a lane has to be looked at though its socket says nothing. */
static void note_due(struct loop *l, struct lane *a)
{
    uint64_t due = a->stream.deadline_ns, first = a->record->rec.first_ns;
    const struct tr_trace_entry *e = a->entry;
    if (l->run->abandon && first && e->abandon_after_first_s >= 0) {
        uint64_t leave = first + (uint64_t)(e->abandon_after_first_s * 1e9);
        if (!leaves_by(a, leave))
            a->leave_ns = leave;
    }
    if (leaves_by(a, due))
        due = a->leave_ns;
    if (a->stream.paused && a->stream.wake_ns < due)
        due = a->stream.wake_ns;
    l->due_ns[a->place] = due;
}

/* Level-triggered, and only for what the stream wants: a slow reader's socket stays readable. */
static int watch(struct loop *l, struct lane *a, uint64_t now_ns)
{
    uint32_t want = (tr_client_stream_wants_write(&a->stream) ? (uint32_t)EPOLLOUT : 0u) |
                    (tr_client_stream_wants_read(&a->stream, now_ns) ? (uint32_t)EPOLLIN : 0u);
    note_due(l, a);
    if (want == a->events)
        return 0;
    struct epoll_event ev = {.events = want, .data.ptr = a};
    int op = a->events == UINT32_MAX ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    a->events = want;
    return epoll_ctl(l->ep, op, a->stream.fd, &ev) ? -errno : 0;
}

static int make_room(struct loop *l)
{
    if (l->n_open < l->cap)
        return 0;
    size_t cap = l->cap ? l->cap * 2 : 256;
    struct lane **open = realloc(l->open, cap * sizeof(struct lane *));
    if (open)
        l->open = open;
    uint64_t *due = realloc(l->due_ns, cap * sizeof(*due));
    if (due)
        l->due_ns = due;
    if (!open || !due)
        return -ENOMEM;
    l->cap = cap;
    return 0;
}

/* The bytes of the next request, while nothing else is to be done. */
static int make_ready(struct loop *l)
{
    char id[128];
    if (l->req || l->next == l->run->trace->n)
        return 0;
    tr_run_request_id(l->run, l->next, id, sizeof(id));
    l->req = tr_prompt_request(l->prompts, l->run->opts, l->model, &l->run->trace->e[l->next], id,
                               &l->req_len);
    return l->req ? 0 : -ENOMEM;
}

static struct lane *make_lane(struct loop *l, const struct tr_trace_entry *e,
                              struct tr_run_record *r)
{
    struct lane *a = calloc(1, sizeof(*a));
    if (!a || make_room(l)) {
        free(a);
        return NULL;
    }
    a->rules = (struct tr_client_stream_rules){
        .timeout_ns = (uint64_t)(l->run->opts->timeout_s * 1e9),
        .whole = !e->stream,
        .paced = e->paced,
        .read_bps = e->read_bps,
    };
    a->entry = e;
    a->record = r;
    a->events = UINT32_MAX;
    a->req = l->req;
    l->req = NULL;
    if (l->run->abandon && e->abandon_s >= 0)
        a->leave_ns = r->due_ns + (uint64_t)(e->abandon_s * 1e9);
    a->place = l->n_open++;
    l->open[a->place] = a;
    return a;
}

static int start_next(struct loop *l)
{
    struct tr_run *run = l->run;
    const struct tr_trace_entry *e = &run->trace->e[l->next];
    struct tr_run_record *r = &run->records[l->next];
    int rc = make_ready(l);
    struct lane *a = rc ? NULL : make_lane(l, e, r);
    if (!a)
        return -ENOMEM;
    l->next++;
    bool over =
        tr_client_stream_start(&a->stream, &run->opts->to.url, a->req, l->req_len, &a->rules,
                               &r->rec, e->paced ? &run->slow_gaps : &run->gaps[e->class_id]);
    uint64_t behind = r->rec.start_ns - r->due_ns;
    run->late += behind > TR_RUN_LATE_NS;
    if (behind > run->late_max_ns)
        run->late_max_ns = behind;
    a->stream.deadline_ns -= behind < a->rules.timeout_ns ? behind : a->rules.timeout_ns;
    if (over) {
        close_lane(l, a);
        return 0;
    }
    return watch(l, a, r->rec.start_ns);
}

static int start_due(struct loop *l)
{
    while (l->next < l->run->trace->n && l->run->records[l->next].due_ns <= tr_now_ns()) {
        int rc = start_next(l);
        if (rc)
            return rc;
    }
    return make_ready(l);
}

/* ---- time passes ---- */

/* Streams whose deadline, leaving or next read has come. */
static int sweep(struct loop *l, uint64_t now)
{
    if (now < l->next_sweep_ns)
        return 0;
    l->next_sweep_ns = now + SWEEP_NS;
    for (size_t i = l->n_open; i-- > 0;) {
        if (l->due_ns[i] > now)
            continue;
        struct lane *a = l->open[i];
        if (leaves_by(a, now)) {
            tr_client_stream_hang_up(&a->stream, "left, as the trace says");
            close_lane(l, a);
        } else if (a->stream.deadline_ns <= now) {
            tr_client_stream_expire(&a->stream);
            close_lane(l, a);
        } else {
            int rc = watch(l, a, now);
            if (rc)
                return rc;
        }
    }
    return 0;
}

static struct tr_tick count(const struct loop *l, uint64_t now)
{
    struct tr_tick t = {.t_s = (double)(now - l->run->start_ns) / 1e9, .open = (unsigned)l->n_open};
    for (size_t i = 0; i < l->n_open; i++) {
        const struct tr_record *r = &l->open[i]->record->rec;
        t.admitted += r->http_status == 200;
        t.streaming += r->first_ns != 0;
    }
    return t;
}

/* Without memory the look is left out. */
static void add_tick(struct loop *l, uint64_t now, const double gauges[TR_GAUGES])
{
    struct tr_run *run = l->run;
    if (run->n_ticks == run->ticks_cap) {
        size_t cap = run->ticks_cap ? run->ticks_cap * 2 : 256;
        struct tr_tick *p = realloc(run->ticks, cap * sizeof(*p));
        if (!p)
            return;
        run->ticks = p;
        run->ticks_cap = cap;
    }
    struct tr_tick *t = &run->ticks[run->n_ticks++];
    *t = count(l, now);
    for (int i = 0; i < TR_GAUGES; i++)
        t->gauges[i] = l->gauges[i] = gauges ? gauges[i] : (double)NAN;
}

static int watch_server(struct loop *l, int op)
{
    struct epoll_event ev = {.events = tr_lookout_wants_write(l->watch) ? EPOLLOUT : EPOLLIN,
                             .data.ptr = l->watch};
    if (op == EPOLL_CTL_MOD && ev.events == l->watch_events)
        return 0;
    l->watch_events = ev.events;
    return epoll_ctl(l->ep, op, l->watch->fd, &ev) ? -errno : 0;
}

/* A tick is written down when the server has answered; if it has not by the next one, or cannot be
 * asked, without its gauges. */
static int tick(struct loop *l, uint64_t now)
{
    if (now < l->next_tick_ns)
        return 0;
    l->next_tick_ns = now + l->run->opts->sample_ms * 1000000;
    if (!l->watch || l->watch->fd >= 0 || tr_lookout_begin(l->watch) < 0) {
        add_tick(l, now, NULL);
        return 0;
    }
    return watch_server(l, EPOLL_CTL_ADD);
}

static int server_ready(struct loop *l)
{
    double gauges[TR_GAUGES];
    int rc = tr_lookout_io(l->watch, gauges);
    if (!rc)
        return watch_server(l, EPOLL_CTL_MOD);
    add_tick(l, tr_now_ns(), rc == 1 ? gauges : NULL);
    return 0;
}

static void show(struct loop *l, struct tr_progress *p, uint64_t now)
{
    if (!tr_progress_due(p, now))
        return;
    struct tr_tick t = count(l, now);
    struct tr_progress_at at = {.tag = l->run->tag,
                                .t_s = t.t_s,
                                .sent = l->next,
                                .total = l->run->trace->n,
                                .done = l->done,
                                .bad = l->bad,
                                .open = t.open,
                                .streaming = t.streaming,
                                .running = l->gauges[TR_GAUGE_RUNNING],
                                .waiting = l->gauges[TR_GAUGE_WAITING]};
    tr_progress_show(p, &at, now);
}

/* ---- the loop ---- */

static int wait_ms(const struct loop *l)
{
    uint64_t now = tr_now_ns(), until = l->next_tick_ns;
    if (l->next < l->run->trace->n && l->run->records[l->next].due_ns < until)
        until = l->run->records[l->next].due_ns;
    if (l->n_open && l->next_sweep_ns < until)
        until = l->next_sweep_ns;
    uint64_t ms = until > now ? (until - now) / 1000000 + 1 : 0;
    return ms < WAIT_MS_MAX ? (int)ms : WAIT_MS_MAX;
}

static int lane_ready(struct loop *l, struct lane *a, uint32_t events)
{
    bool over;
    if (!(a->events & (uint32_t)(EPOLLIN | EPOLLOUT)) && events & (EPOLLERR | EPOLLHUP)) {
        tr_client_stream_cut(&a->stream);
        over = true;
    } else {
        over = tr_client_stream_io(&a->stream);
    }
    if (!over)
        return watch(l, a, tr_now_ns());
    close_lane(l, a);
    return 0;
}

static int turn(struct loop *l)
{
    struct epoll_event ev[EVENTS_AT_ONCE];
    int n = epoll_wait(l->ep, ev, EVENTS_AT_ONCE, wait_ms(l));
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    uint64_t woke = tr_now_ns();
    for (int i = 0; i < n; i++) {
        uint64_t delay = tr_now_ns() - woke;
        if (delay > l->run->delay_max_ns)
            l->run->delay_max_ns = delay;
        int rc = ev[i].data.ptr == l->watch ? server_ready(l)
                                            : lane_ready(l, ev[i].data.ptr, ev[i].events);
        if (rc)
            return rc;
    }
    return 0;
}

static int turns(struct loop *l, struct tr_progress *progress, const volatile int *stop)
{
    int rc = 0;
    while (!rc && !*stop && (l->next < l->run->trace->n || l->n_open)) {
        rc = start_due(l);
        uint64_t now = tr_now_ns();
        if (!rc)
            rc = tick(l, now);
        if (!rc)
            rc = sweep(l, now);
        show(l, progress, now);
        if (!rc && (l->next < l->run->trace->n || l->n_open))
            rc = turn(l);
    }
    return rc;
}

static void break_off(struct loop *l)
{
    while (l->n_open) {
        struct lane *a = l->open[l->n_open - 1];
        tr_client_stream_hang_up(&a->stream, "the replay was stopped");
        a->record->fate = TR_FATE_INTERRUPTED;
        close_lane(l, a);
    }
}

static int prepare(struct loop *l)
{
    struct tr_run *run = l->run;
    size_t n = run->trace->n;
    run->records = calloc(n, sizeof(*run->records));
    run->gaps = calloc(run->trace->n_classes, sizeof(*run->gaps));
    if (!run->records || !run->gaps || make_room(l) || make_ready(l))
        return -ENOMEM;
    l->ep = epoll_create1(EPOLL_CLOEXEC);
    if (l->ep < 0)
        return -errno;
    run->start_ns = tr_now_ns();
    for (size_t i = 0; i < n; i++) {
        run->records[i].fate = TR_FATE_UNSENT;
        run->records[i].due_ns =
            run->start_ns + (uint64_t)(run->trace->e[i].at_s * 1e9 / run->opts->speed);
    }
    return 0;
}

int tr_run(struct tr_run *run, const struct tr_prompts *prompts, const char *model,
           struct tr_progress *progress, const volatile int *stop, struct tr_errbuf *err)
{
    struct tr_lookout server = {.fd = -1};
    struct loop l = {.run = run, .prompts = prompts, .model = model, .ep = -1};
    for (int i = 0; i < TR_GAUGES; i++)
        l.gauges[i] = (double)NAN;
    int rc = prepare(&l);
    if (!rc && !run->opts->no_metrics) {
        rc = tr_lookout_init(&server, &run->opts->to);
        l.watch = &server;
    }
    if (!rc)
        rc = turns(&l, progress, stop);
    run->interrupted = *stop != 0;
    break_off(&l);
    run->end_ns = tr_now_ns();
    if (!rc)
        add_tick(&l, run->end_ns, NULL);
    tr_progress_clear(progress);
    tr_lookout_fini(&server);
    if (l.ep >= 0)
        close(l.ep);
    free(l.open);
    free(l.due_ns);
    free(l.req);
    if (rc == -ENOMEM)
        return tr_errf(err, rc, "no memory for the run, or a prompt is not UTF-8");
    return rc ? tr_errf(err, rc, "%s", strerror(-rc)) : 0;
}

void tr_run_fini(struct tr_run *run)
{
    for (unsigned i = 0; run->gaps && i < run->trace->n_classes; i++)
        tr_samples_fini(&run->gaps[i]);
    for (size_t i = 0; run->records && i < run->trace->n; i++)
        tr_record_fini(&run->records[i].rec);
    tr_samples_fini(&run->slow_gaps);
    free(run->records);
    free(run->gaps);
    free(run->ticks);
    run->records = NULL;
    run->gaps = NULL;
    run->ticks = NULL;
}
