/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/plain.c - see plain.h. */
#include "frontend/plain.h"

#include "base/clock.h"
#include "frontend/stream_priv.h"

#include <errno.h>
#include <strings.h>

/* How often the kernel is asked whether the text before a cut has arrived. */
#define OUT_LOOK_NS (5 * 1000000ull)

bool tr_plain_wanted(const struct tr_http_request *rq)
{
    static const char type[] = "text/plain";
    struct tr_slice v = tr_http_field(rq->http, "accept");
    size_t n = sizeof(type) - 1;

    return v.p && v.len >= n && strncasecmp(v.p, type, n) == 0 &&
           (v.len == n || v.p[n] == ',' || v.p[n] == ';' || v.p[n] == ' ' || v.p[n] == '\t');
}

static void plain_event(struct tr_stream *s, const struct tr_event *ev)
{
    if (ev->type != TR_EV_DELTA)
        return;
    tr_emit_reset(&s->fe->frame);
    tr_emit_bytes(&s->fe->frame, ev->text, ev->text_len);
    tr_stream_write_frame(s);
}

static void plain_body(struct tr_stream *s, struct tr_emit *e)
{
    (void)s;
    e->failed = true; /* it is always streamed */
}

const struct tr_dialect *tr_plain_dialect(enum tr_api api)
{
#define PLAIN(a, prefix)                                                                           \
    [(a)] = {                                                                                      \
        .api = (a),                                                                                \
        .id_prefix = (prefix),                                                                     \
        .frame = TR_TEXT,                                                                          \
        .event = plain_event,                                                                      \
        .body = plain_body                                                                         \
    }
    static const struct tr_dialect of[TR_APIS] = {PLAIN(TR_API_CHAT, "chatcmpl-"),
                                                  PLAIN(TR_API_COMPLETIONS, "cmpl-"),
                                                  PLAIN(TR_API_NATIVE, "")};
#undef PLAIN

    return of[api].event ? &of[api] : NULL;
}

int tr_plain_check(struct tr_ask *a, struct tr_fault *f)
{
    if (a->n > 1)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "n", "Plain text has room for one answer.");
    if (a->logprobs)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "logprobs",
                            "Plain text has no room for log-probabilities.");
    if (a->include_usage)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "stream_options.include_usage",
                            "Plain text has no room for usage.");
    if (a->hold_asked)
        return tr_fault_set(f, TR_ERR_BAD_PARAM,
                            a->api == TR_API_NATIVE ? "on_disconnect" : "X-Tokenring-Resume",
                            "Plain text cannot be resumed.");
    a->params.flags &= ~(uint32_t)TR_REQ_RESUMABLE;
    return 0;
}

bool tr_plain_cuts(const struct tr_stream *s, enum tr_err e)
{
    return s->frame == TR_TEXT && (e || *tr_choice_finish(s, &s->choice[0]) == 'l');
}

bool tr_plain_is_out(struct tr_stream *s)
{
    uint64_t now = tr_now_ns(), patience = s->fe->cfg->write_deadline_ns;

    if (s->plain_due && tr_stream_outcome(s)) /* it becomes the status */
        return true;
    tr_stream_head(s);
    tr_exchange_flush(s->x);
    uint64_t acked = tr_exchange_acked(s->x);
    if (!s->plain_moved_ns || acked > s->plain_acked)
        s->plain_moved_ns = now;
    s->plain_acked = acked;
    if (acked >= tr_exchange_accepted(s->x) || (patience && now - s->plain_moved_ns >= patience))
        return true;
    tr_stream_remind(s, now + OUT_LOOK_NS);
    return false;
}
