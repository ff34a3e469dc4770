/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/fe.c - see fe.h. */
#include "frontend/gate.h"
#include "frontend/fe.h"

#include "base/clock.h"
#include "base/log.h"
#include "frontend/api.h"
#include "frontend/grpc.h"
#include "frontend/hold.h"
#include "frontend/timer.h"
#include "frontend/tls.h"
#include "frontend/worker.h"
#include "shm/bell.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TICK_BUSY_MS = 50, TICK_IDLE_MS = 200, TEMPLATE_MAX = 1 << 20, BODIES = 32 };
#define STALE_NS (5 * 1000000000ull) /* an engine without a heartbeat for so long is not ready */

uint64_t tr_fe_random(void)
{
    uint64_t v = 0;

    /* 8 bytes never come in part and never wait once the kernel has booted. */
    while (getrandom(&v, sizeof(v), 0) != (ssize_t)sizeof(v))
        ;
    return v;
}

/* ---- model ---- */

static char *read_file(const char *path, size_t *len, struct tr_errbuf *err)
{
    struct stat st;
    char *text = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st)) {
        tr_errf(err, -EINVAL, "%s: %s", path, strerror(errno));
        goto out;
    }
    if (!S_ISREG(st.st_mode) || st.st_size > TEMPLATE_MAX) {
        tr_errf(err, -EINVAL, "%s: no file, or larger than 1 MiB", path);
        goto out;
    }
    text = malloc((size_t)st.st_size + 1);
    ssize_t n = text ? read(fd, text, (size_t)st.st_size) : -1;
    if (n != (ssize_t)st.st_size) {
        tr_errf(err, -EINVAL, "%s: cannot be read", path);
        free(text);
        text = NULL;
        goto out;
    }
    *len = (size_t)n;
out:
    if (fd >= 0)
        close(fd);
    return text;
}

/* How the model writes what is no text, by its template. */
static void find_formats(struct tr_fe *fe, const char *text, size_t len)
{
    bool tools_known;

    fe->tool_format = tr_tool_format_of(text, len, &tools_known);
    if (!fe->tool_format)
        fe->tool_format = TR_TOOLS_JSON; /* it is told of tools in our words (tools_prompt.h) */
    if (fe->cfg->tool_format >= 0)
        fe->tool_format = (enum tr_tool_format)fe->cfg->tool_format;
    fe->reasoning_format = tr_reasoning_format_of(text, len);
    if (fe->cfg->reasoning >= 0)
        fe->reasoning_format = (enum tr_reasoning_format)fe->cfg->reasoning;
}

static int open_template(struct tr_fe *fe, struct tr_errbuf *err)
{
    const char *wanted = fe->cfg->chat_template, *text;
    struct tr_errbuf why;
    char *file = NULL;
    size_t len;

    if (wanted && strcmp(wanted, "none") == 0)
        return 0;
    if (wanted) {
        text = file = read_file(wanted, &len, err);
        if (!file)
            return -EINVAL;
    } else {
        text = tr_vocab_chat_template(fe->vocab, &len);
        if (!text)
            return 0;
    }
    fe->chat = tr_chat_open(text, len, &why);
    find_formats(fe, text, len);
    free(file);
    if (!fe->chat)
        return tr_errf(err, -EINVAL,
                       "the chat template cannot be used: %s (--chat-template FILE gives another "
                       "one, --chat-template none serves without)",
                       why.msg);
    tr_chat_traits(fe->chat, &fe->traits);
    return 0;
}

static int open_model(struct tr_fe *fe, struct tr_errbuf *err)
{
    if (!fe->cfg->model_path) {
        fe->vocab = tr_vocab_sim();
        if (!fe->vocab)
            return tr_errf(err, -EINVAL, "out of memory");
    } else {
        struct tr_gguf *g = tr_gguf_open(fe->cfg->model_path, err);
        if (!g)
            return -EINVAL;
        fe->vocab = tr_vocab_open(g, err);
        tr_gguf_close(g);
        if (!fe->vocab)
            return -EINVAL;
    }
    if (tr_vocab_size(fe->vocab) != fe->shm->config.n_vocab)
        return tr_errf(err, -EINVAL, "the vocabulary has %u tokens, the engine was told %u",
                       tr_vocab_size(fe->vocab), fe->shm->config.n_vocab);
    return open_template(fe, err);
}

/* ---- state ---- */

enum tr_err tr_fe_state(const struct tr_fe *fe)
{
    if (fe->drain >= TR_DRAIN_CLOSED)
        return TR_ERR_DRAINING;
    return fe->engine_gone ? TR_ERR_ENGINE_DOWN : TR_OK;
}

bool tr_fe_served(const struct tr_fe *fe)
{
    const struct tr_control *c = fe->shm->control;
    uint32_t ready = atomic_load_explicit(&fe->shm->rings->ready, memory_order_acquire);

    /* Relaxed: a moment's difference decides nothing that could not have gone the other way. */
    return ready && atomic_load_explicit(&c->engine_alive, memory_order_relaxed) &&
           ready == atomic_load_explicit(&c->engine_epoch, memory_order_relaxed);
}

static uint64_t beat_of(const struct tr_fe *fe)
{
    return atomic_load_explicit(&fe->shm->rings->heartbeat_ns, memory_order_relaxed);
}

enum tr_err tr_fe_ready(const struct tr_fe *fe)
{
    uint64_t beat = tr_fe_served(fe) ? beat_of(fe) : fe->beat_ns, now = tr_now_ns();

    if (fe->drain != TR_DRAIN_NO)
        return TR_ERR_DRAINING;
    if (!beat || fe->engine_gone || (now > beat && now - beat > STALE_NS))
        return TR_ERR_ENGINE_DOWN;
    return TR_OK;
}

/* Whether it says something new. */
static bool look_at_control(struct tr_fe *fe)
{
    const struct tr_control *c = fe->shm->control;
    const struct tr_shm *s = fe->shm;
    bool changed = tr_control_seen(c, &fe->control_seen);

    if (changed) {
        tr_holds_look(fe);
        fe->drain = atomic_load_explicit(&c->drain, memory_order_relaxed);
        fe->engine_gone = atomic_load_explicit(&c->engine_gone, memory_order_relaxed);
        fe->retires =
            s->my_epoch &&
            s->my_epoch == atomic_load_explicit(&c->area_retire[s->my_area], memory_order_relaxed);
    }
    if (tr_fe_served(fe)) {
        fe->was_ready = true;
        fe->beat_ns = beat_of(fe);
    }
    return changed;
}

/* ---- events ---- */

static void on_bell(evutil_socket_t fd, short what, void *arg)
{
    (void)fd; /* it has ended the sleep; its count only rises, each rise is news (EV_ET) */
    (void)what;
    (void)arg;
}

static void figures(struct tr_fe *fe)
{
    const struct tr_httpd_stats *st = tr_httpd_stats(fe->httpd);
    struct tr_area *a = fe->shm->area[fe->shm->my_area];

    tr_stat_set(fe->stat, TR_STAT_CONNECTIONS, st->open);
    tr_stat_set(fe->stat, TR_STAT_STREAMS, fe->n_streams);
    tr_stat_set(fe->stat, TR_STAT_STREAMS_HELD, fe->n_held); /* of a former owner of the area */
    tr_stat_set(fe->stat, TR_STAT_BUFFERED_PENDING, st->unsent_bytes);
    tr_stat_set(fe->stat, TR_STAT_BUFFERED_RING, fe->behind * sizeof(uint32_t));
    tr_stat_set(fe->stat, TR_STAT_BUFFERED_KERNEL, st->kernel_bytes);
    tr_stat_add(fe->stat, TR_STAT_HTTP_REQUESTS, st->requests - fe->requests_seen);
    fe->requests_seen = st->requests;
    tr_stat_add(fe->stat, TR_STAT_WRITES, st->writes - fe->writes_seen);
    fe->writes_seen = st->writes;
    tr_stat_add(fe->stat, TR_STAT_REFUSED_OVERLOAD, st->turned_away - fe->turned_away_seen);
    fe->turned_away_seen = st->turned_away;
    tr_stat_add(fe->stat, TR_STAT_CONNECTIONS_REFUSED, st->unanswered - fe->unanswered_seen);
    fe->unanswered_seen = st->unanswered;
    tr_stat_add(fe->stat, TR_STAT_LOG_DROPPED, tr_log_dropped() - fe->dropped_seen);
    fe->dropped_seen = tr_log_dropped();
    /* Relaxed: figures for people. */
    atomic_store_explicit(&a->streams, fe->n_streams, memory_order_relaxed);
    atomic_store_explicit(&a->connections, (uint32_t)st->open, memory_order_relaxed);
}

static void arm_tick(struct tr_fe *fe)
{
    unsigned ms = fe->n_streams ? TICK_BUSY_MS : TICK_IDLE_MS;

    event_add(fe->tick_ev, &(struct timeval){0, (suseconds_t)ms * 1000});
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct tr_fe *fe = arg;

    (void)fd;
    (void)what;
    tr_httpd_tick(fe->httpd);
    if (fe->grpc) {
        tr_httpd_tick(fe->grpcd);
        tr_grpc_tick(fe->grpc);
    }
    tr_streams_clock_again(fe);
    tr_holds_again(fe);
    figures(fe);
    arm_tick(fe);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    (void)fd; /* the turn looks at everything anyway */
    (void)what;
    (void)arg;
}

static bool pump(struct tr_fe *fe)
{
    fe->wake_ns = 0;
    bool moved = tr_api_native_pump(fe); /* before the streams: it reads rings they release */

    for (unsigned api = 0; api < TR_APIS; api++)
        if (tr_dialect_of(api)->turn)
            moved |= tr_dialect_of(api)->turn(fe);

    return tr_streams_pump(fe) || moved;
}

void tr_fe_turn(struct tr_fe *fe, bool may_sleep)
{
    struct tr_shm *s = fe->shm;
    _Atomic uint32_t *sleeping = &s->area[s->my_area]->sleeping;
    uint64_t now = tr_now_ns();

    atomic_store_explicit(&s->area[s->my_area]->heartbeat_ns, now, memory_order_relaxed);
    tr_stat_beat(fe->stat, now);
    fe->balance.streams = fe->n_streams;
    tr_balance_tell(&fe->balance, tr_httpd_stats(fe->httpd));
    look_at_control(fe);
    bool moved = pump(fe);
    if (!may_sleep) {
        event_base_loop(fe->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
        return;
    }
    /* Announced, looked once more: what is published from here on rings (shm/bell.h).  What the
     * first look has left to do is pending in the event loop, which then does not sleep. */
    tr_bell_sleep(sleeping);
    moved = look_at_control(fe);
    moved |= pump(fe) || fe->n_due;
    if (fe->wake_ns)
        tr_timer_at(fe->wake_ev, fe->wake_ns);
    event_base_loop(fe->base, moved ? EVLOOP_ONCE | EVLOOP_NONBLOCK : EVLOOP_ONCE);
    tr_bell_awake(-1, sleeping);
}

/* ---- open, close ---- */

/* Sees every request that is not a probe before its body is read. */
static enum tr_err check(void *ctx, struct tr_exchange *x, struct tr_http_request *rq,
                         const char **why)
{
    struct tr_fe *fe = ctx;
    enum tr_err e = tr_gate_identify(fe, rq->http, rq->route->flags, &rq->key, why);

    if (!e && fe->drain >= TR_DRAIN_CLOSED)
        e = TR_ERR_DRAINING;
    bool counts = rq->http->method == TR_HTTP_POST && !(rq->route->flags & TR_ROUTE_FREE);
    return !e && counts ? tr_gate_request(fe, x, rq->key, rq->route->flags, why) : e;
}

static int open_http(struct tr_fe *fe)
{
    const struct tr_frontend_config *c = fe->cfg;
    struct tr_httpd_ops ops = {.check = check, .ctx = fe};

    ops.routes = tr_api_routes(&ops.n_routes);

    fe->limits = malloc(sizeof(*fe->limits));
    if (!fe->limits)
        return -ENOMEM;
    *fe->limits = (struct tr_http_limits){
        .max_body = c->max_body,
        .max_bodies = BODIES * c->max_body,
        .max_header = tr_http_limits_default.max_header,
        .stream_buffer = c->stream_buffer,
        .header_timeout_ns = c->header_timeout_ns,
        .body_timeout_ns = c->body_timeout_ns,
        .keepalive_ns = c->keepalive_ns,
        .write_deadline_ns = c->write_deadline_ns,
        .heartbeat_ns = c->heartbeat_ns,
        .max_connections = c->max_connections,
        .cors = c->cors_origin,
    };
    fe->httpd = tr_httpd_new(fe->base, fe->limits, &ops);
    if (!fe->httpd)
        return -ENOMEM;
    fe->access.lines = c->access_log != TR_ACCESS_OFF;
    fe->access.addresses = c->access_log == TR_ACCESS_ON;
    tr_httpd_use_tls(fe->httpd, fe->tls);
    tr_httpd_use_access(fe->httpd, &fe->access);
    return 0;
}

/* The port for gRPC has no routes: HTTP/1 finds nothing there, and all of HTTP/2 is calls. */
static int open_grpc(struct tr_fe *fe)
{
    if (!fe->cfg->n_grpc)
        return 0;
    fe->grpcd = tr_httpd_new(fe->base, fe->limits, &(struct tr_httpd_ops){.ctx = fe});
    if (!fe->grpcd)
        return -ENOMEM;
    tr_httpd_count_with(fe->grpcd, fe->httpd);
    tr_httpd_use_tls(fe->grpcd, fe->tls);
    tr_httpd_use_access(fe->grpcd, &fe->access);
    fe->grpc = tr_grpc_new(fe, fe->grpcd);
    return fe->grpc ? 0 : -ENOMEM;
}

static int open_events(struct tr_fe *fe)
{
    int bell = fe->shm->bell_area[fe->shm->my_area];

    fe->bell_ev = event_new(fe->base, bell, EV_READ | EV_PERSIST | EV_ET, on_bell, fe);
    fe->tick_ev = evtimer_new(fe->base, on_tick, fe);
    fe->wake_ev = evtimer_new(fe->base, on_wake, fe);
    if (!fe->bell_ev || !fe->tick_ev || !fe->wake_ev || event_add(fe->bell_ev, NULL))
        return -ENOMEM;
    arm_tick(fe);
    return 0;
}

int tr_fe_open(struct tr_fe *fe, struct tr_shm *s, const struct tr_frontend_config *c,
               struct tr_errbuf *err)
{
    memset(fe, 0, sizeof(*fe));
    fe->shm = s;
    fe->cfg = c;
    fe->stat = s->stat[TR_STAT_AREA0 + s->my_area];
    tr_emit_init(&fe->json);
    tr_emit_init(&fe->frame);
    if (open_model(fe, err))
        goto fail;
    if (c->tls_cert && !(fe->tls = tr_tls_open(c->tls_cert, c->tls_key, c->tls_tickets, err)))
        goto fail;
    tr_area_init(s);
    fe->control_seen = UINT32_MAX; /* whatever it says is news */
    fe->text = malloc(TR_EVENT_TEXT_CAP);
    fe->parts = malloc(sizeof(*fe->parts));
    fe->by_slot = calloc(s->config.n_slots, sizeof(struct tr_stream *));
    TAILQ_INIT(&fe->due);
    TAILQ_INIT(&fe->gate);
    TAILQ_INIT(&fe->held);
    TAILQ_INIT(&fe->polls);
    fe->base = event_base_new();
    if (!fe->text || !fe->parts || !fe->by_slot || !fe->base || open_http(fe) || open_grpc(fe) ||
        open_events(fe)) {
        tr_errf(err, -EINVAL, "cannot make the event loop: out of memory or descriptors");
        goto fail;
    }
    look_at_control(fe);
    figures(fe);
    tr_balance_init(&fe->balance, s, c->max_connections);
    return 0;
fail:
    tr_fe_close(fe);
    return -EINVAL;
}

int tr_fe_start_workers(struct tr_fe *fe, unsigned n, struct tr_errbuf *err)
{
    fe->workers = tr_workers_start(fe->base, n);
    return fe->workers ? 0 : tr_errf(err, -EINVAL, "cannot start %u worker threads", n);
}

static void free_event(struct event *ev)
{
    if (ev)
        event_free(ev);
}

void tr_fe_close(struct tr_fe *fe)
{
    tr_workers_stop(fe->workers);
    if (fe->httpd && fe->tick_ev)
        figures(fe);          /* what the last tick has not counted */
    tr_httpd_free(fe->grpcd); /* owners get `gone`: streams are cancelled and freed */
    tr_httpd_free(fe->httpd);
    tr_grpc_free(fe->grpc);
    tr_tls_close(fe->tls);
    tr_access_log_fini(&fe->access);
    tr_holds_close(fe); /* those without one are another frontend's from here on */
    free_event(fe->bell_ev);
    free_event(fe->tick_ev);
    free_event(fe->wake_ev);
    if (fe->base)
        event_base_free(fe->base);
    tr_chat_close(fe->chat);
    tr_vocab_close(fe->vocab);
    tr_emit_fini(&fe->json);
    tr_emit_fini(&fe->frame);
    free(fe->limits);
    free(fe->text);
    free(fe->parts);
    free(fe->by_slot);
    memset(fe, 0, sizeof(*fe));
}
