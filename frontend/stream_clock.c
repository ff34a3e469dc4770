/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/stream_clock.c - what time does to a stream: deadlines, keep-alives, readers that are too
 * slow.  See stream.h.
 *
 * A timer for each stream, armed at or before the next thing that time can do to it: what moves with
 * every byte (the keep-alive) does not move the timer, which fires early and looks again. */
#include "frontend/stream_priv.h"

#include "base/clock.h"
#include "frontend/hold.h"
#include "frontend/timer.h"

/* What a failed stream's socket has not taken stands before the event that says so: cut when it takes
 * nothing for so long, or not all of it in so long. */
#define STUCK_NS (5 * 1000000000ull)
#define LATE_NS (30 * 1000000000ull)
/* How often it is asked what a socket takes, where that matters. */
#define LOOK_NS (250 * 1000000ull)

/* Slower than --min-drain-bps over the write deadline, while bytes wait. */
static bool drains_too_slowly(struct tr_stream *s, uint64_t now)
{
    const struct tr_frontend_config *cfg = s->fe->cfg;
    uint64_t taken = tr_exchange_accepted(s->x) - tr_exchange_unsent(s->x);
    uint64_t span = cfg->write_deadline_ns ? cfg->write_deadline_ns : 30000000000ull;

    if (!cfg->min_drain_bps || tr_exchange_unsent(s->x) == 0) {
        s->drain_since_ns = 0;
        return false;
    }
    if (!s->drain_since_ns) {
        s->drain_since_ns = now;
        s->drain_bytes = taken;
    } else if (now - s->drain_since_ns >= span) {
        double bps = (double)(taken - s->drain_bytes) * 1e9 / (double)(now - s->drain_since_ns);
        if (bps < (double)cfg->min_drain_bps)
            return true;
        s->drain_since_ns = now;
        s->drain_bytes = taken;
    }
    return false;
}

/* Its text waits, and the client gives no credit for it, for as long as a socket may take nothing. */
static bool is_starved(struct tr_stream *s, uint64_t now)
{
    uint64_t limit = s->fe->cfg->write_deadline_ns;
    bool waits = false;

    if (!s->x->limited || !limit)
        return false;
    for (uint32_t k = 0; k < s->n; k++)
        waits |= s->choice[k].blocked;
    if (!waits || tr_stream_credit(s) > 0)
        s->starved_ns = 0;
    else if (!s->starved_ns)
        s->starved_ns = now;
    tr_stream_remind(s, now + LOOK_NS);
    return s->starved_ns && now - s->starved_ns >= limit;
}

/* ---- the timer ---- */

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct tr_stream *s = arg;

    (void)fd;
    (void)what;
    s->armed_ns = 0;
    s->rang = true;
    tr_stream_due(s);
}

void tr_stream_clock_init(struct tr_stream *s)
{
    evtimer_assign(&s->timer, s->fe->base, on_timer, s);
}

void tr_stream_clock_fini(struct tr_stream *s)
{
    event_del(&s->timer);
}

void tr_stream_remind(struct tr_stream *s, uint64_t at)
{
    if (s->armed_ns && s->armed_ns <= at)
        return;
    if (tr_timer_at(&s->timer, at) == 0)
        s->armed_ns = at;
    else
        s->fe->clock_missed = true; /* the tick sees to it */
}

void tr_streams_clock_again(struct tr_fe *fe)
{
    if (!fe->clock_missed)
        return;
    fe->clock_missed = false;
    for (struct tr_stream *s = fe->streams; s; s = s->next) {
        s->rang = true; /* the look at its clock arms it */
        tr_stream_due(s);
    }
}

/* ---- the clock ---- */

static void deadline(struct tr_stream *s, uint64_t now)
{
    uint64_t due = s->deadline_ns;

    if (s->max_ns && (!due || s->max_ns < due))
        due = s->max_ns;
    if (!due || s->cancelled || tr_stream_all_ended(s))
        return;
    if (now >= due)
        tr_stream_cancel(s, TR_ERR_DEADLINE);
    else
        tr_stream_remind(s, due);
}

static bool stuck(const struct tr_stream *s, uint64_t now)
{
    uint64_t since = tr_exchange_blocked_ns(s->x);

    if (!s->gate_ns || !since || now < s->gate_ns || !tr_stream_outcome(s))
        return false;
    since = since > s->gate_ns ? since : s->gate_ns;
    return (now > since && now - since > STUCK_NS) || now - s->gate_ns > LATE_NS;
}

static void keep_alive(struct tr_stream *s, uint64_t now)
{
    uint64_t beat = s->fe->cfg->heartbeat_ns;

    if (!beat)
        return;
    if (now - s->last_byte_ns >= beat && tr_exchange_unsent(s->x) == 0 && !s->in_event) {
        tr_stream_probe(s);
        tr_stat_add(s->fe->stat, TR_STAT_KEEPALIVES, 1);
    }
    /* While bytes wait the write deadline runs instead; the look comes again. */
    uint64_t due = s->last_byte_ns + beat;
    tr_stream_remind(s, due > now ? due : now + beat);
}

bool tr_stream_clock(struct tr_stream *s, uint64_t now)
{
    deadline(s, now);
    if (!s->x)
        return tr_hold_clock(s, now);
    if (!s->ask->stream || s->entering)
        return true;
    if (stuck(s, now)) {
        tr_stream_cut(s, tr_stream_outcome(s));
        return false;
    }
    if (drains_too_slowly(s, now) || is_starved(s, now)) {
        if (tr_stream_set_aside(s, true))
            return false;
        tr_stream_cancel(s, TR_ERR_SLOW_CLIENT); /* its socket takes bytes, so it is told */
    }
    if (s->gate_ns || s->fe->cfg->min_drain_bps)
        tr_stream_remind(s, now + LOOK_NS);
    keep_alive(s, now);
    return true;
}
