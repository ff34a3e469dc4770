/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/stream_clock.c - what time does to a stream: deadlines, keep-alives, readers that are too
 * slow, and the gauges that are read at the same pace.  See stream.h. */
#include "frontend/stream.h"

#include "base/clock.h"

/* What a failed stream's socket has not taken stands before the event that says so: cut when it takes
 * nothing for so long, or not all of it in so long. */
#define STUCK_NS (5 * 1000000000ull)
#define LATE_NS (30 * 1000000000ull)

/* Slower than --min-drain-bps over the write deadline, while bytes wait. */
static bool drains_too_slowly(struct tr_stream *s, uint64_t now)
{
    const struct tr_frontend_config *cfg = s->fe->cfg;
    uint64_t taken = tr_conn_accepted(s->conn) - tr_conn_unsent(s->conn);
    uint64_t span = cfg->write_deadline_ns ? cfg->write_deadline_ns : 30000000000ull;

    if (!cfg->min_drain_bps || tr_conn_unsent(s->conn) == 0) {
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

void tr_stream_deadline(struct tr_stream *s)
{
    struct tr_fe *fe = s->fe;
    uint64_t due = s->deadline_ns;

    if (s->max_ns && (!due || s->max_ns < due))
        due = s->max_ns;
    if (!due || s->cancelled)
        return;
    if (tr_now_ns() >= due)
        tr_stream_cancel(s, TR_ERR_DEADLINE);
    else if (!fe->wake_ns || due < fe->wake_ns)
        fe->wake_ns = due;
}

static bool stuck(const struct tr_stream *s, uint64_t now)
{
    uint64_t since = tr_conn_blocked_ns(s->conn);

    if (!s->gate_ns || !since || now < s->gate_ns || !tr_stream_outcome(s))
        return false;
    since = since > s->gate_ns ? since : s->gate_ns;
    return (now > since && now - since > STUCK_NS) || now - s->gate_ns > LATE_NS;
}

static void tick_one(struct tr_stream *s, uint64_t now)
{
    const struct tr_frontend_config *cfg = s->fe->cfg;

    if (!s->ask->stream)
        return;
    if (stuck(s, now)) {
        tr_stream_cut(s, tr_stream_outcome(s));
        return;
    }
    /* Its socket takes bytes, so it is told. */
    if (drains_too_slowly(s, now))
        tr_stream_cancel(s, TR_ERR_SLOW_CLIENT);
    if (cfg->heartbeat_ns && now - s->last_byte_ns >= cfg->heartbeat_ns &&
        tr_conn_unsent(s->conn) == 0) {
        tr_stream_probe(s);
        tr_stat_add(s->fe->stat, TR_STAT_KEEPALIVES, 1);
    }
}

static void gauges(struct tr_fe *fe)
{
    uint64_t ring = 0, kernel = 0;

    for (struct tr_stream *s = fe->streams; s; s = s->next) {
        for (uint32_t k = 0; k < s->n && s->ask->stream; k++)
            ring += (s->choice[k].scanned - s->choice[k].sent) * sizeof(uint32_t);
        kernel += tr_conn_accepted(s->conn) - tr_conn_unsent(s->conn) - tr_conn_acked(s->conn);
    }
    tr_stat_set(fe->stat, TR_STAT_BUFFERED_RING, ring);
    tr_stat_set(fe->stat, TR_STAT_BUFFERED_KERNEL, kernel);
}

void tr_streams_tick(struct tr_fe *fe, uint64_t now)
{
    struct tr_stream *next;

    for (struct tr_stream *s = fe->streams; s; s = next) {
        next = s->next;
        tick_one(s, now);
    }
    gauges(fe);
}
