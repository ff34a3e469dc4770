/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/resume.c - see resume.h. */
#include "frontend/resume.h"

#include "base/clock.h"
#include "base/fault.h"
#include "frontend/access.h"
#include "frontend/hold.h"
#include "frontend/stream_priv.h"

/* How long a reader waits for a stream that the engine has to give to us. */
#define WAIT_NS (5 * 1000000000ull)

/* ---- a stream that is ours ---- */

void tr_resume_give(struct tr_stream *s, const struct tr_reader *r)
{
    if (s->x)
        tr_stream_part(s);
    tr_hold_leave(s);
    tr_stream_rewind(s);
    tr_receipt_resume(&s->receipt);
    tr_stream_dress(s, r->dialect, r->frame);
    s->number = 0;
    s->resume_at = (uint64_t)(r->after + 1);
    s->resumed = true;
    s->gate_ns = 0;
    s->drain_since_ns = s->starved_ns = 0;
    s->queue_seen = UINT32_MAX;
    s->prefill_seen = 0;
    s->x = r->x;
    tr_stream_bind(s);
    s->dialect->event(s, &(struct tr_event){.type = TR_EV_STARTED, .members = 1});
    s->rang = true; /* the look at its clock arms it */
    tr_stream_due(s);
    TR_FAULT_FOR(FRONTEND_RESUMED, s->ask->params.seed);
}

/* Answered instead of a stream; whoever comes next finds it held. */
static void answer_position(struct tr_stream *s)
{
    const char *param = s->dialect->position ? s->dialect->position : "after";
    struct tr_exchange *x = s->x;
    uint64_t acked = tr_exchange_acked(x), has = s->resume_at, is = s->number;

    if (!tr_stream_hold(s, acked))
        tr_stream_drop(s, TR_ERR_CLIENT_GONE, acked); /* and s is gone */
    if (x->access)
        x->access->end = NULL; /* it is answered after all */
    if (has == is)
        tr_exchange_reply(x, 204, NULL, NULL, 0);
    else
        tr_exchange_errorf(x, TR_ERR_BAD_PARAM, param,
                           "There is no event %llu: the last one so far is %llu.",
                           (unsigned long long)has - 1, (unsigned long long)is - 1);
}

bool tr_resume_reached(struct tr_stream *s, bool all_out)
{
    if (!s->head_due || !tr_stream_is_past(s)) {
        tr_stream_head(s);
        tr_stream_opened(s);
        return true;
    }
    if (all_out || s->choice[0].paused || s->choice[0].catching_up)
        return true; /* what is left comes with the end, or in the next turn */
    answer_position(s);
    return false;
}

void tr_resume_begins(struct tr_stream *s)
{
    const struct tr_choice *ch = &s->choice[0];

    tr_receipt_mark(&s->receipt, s->x, ch->sent - ch->event_tokens);
    tr_stat_add(s->fe->stat, TR_STAT_RESUMED, 1);
}

void tr_resume_nothing(struct tr_stream *s)
{
    answer_position(s);
}

/* ---- one that is not ours yet ---- */

static void wait_nothing(void *owner)
{
    (void)owner;
}

static void wait_gone(void *owner, enum tr_gone why)
{
    struct tr_stream *s = owner;

    (void)why;
    s->hold.waiter.x = NULL;
}

static const struct tr_owner_ops wait_ops = {
    .writable = wait_nothing, .half_closed = wait_nothing, .gone = wait_gone};

void tr_resume_wait(struct tr_stream *s, const struct tr_reader *r)
{
    tr_resume_refuse(s, TR_ERR_STREAM_TAKEN); /* the newest reader wins */
    s->hold.waiter = *r;
    s->hold.wait_ns = tr_now_ns() + WAIT_NS;
    tr_exchange_bind(r->x, &wait_ops, s);
    tr_stream_due(s);
}

bool tr_resume_waiter(struct tr_stream *s)
{
    struct tr_reader r = s->hold.waiter;

    if (!r.x)
        return false;
    s->hold.waiter.x = NULL;
    tr_exchange_unbind(r.x);
    tr_resume_give(s, &r);
    return true;
}

void tr_resume_refuse(struct tr_stream *s, enum tr_err e)
{
    struct tr_exchange *x = s->hold.waiter.x;

    s->hold.waiter.x = NULL;
    if (x)
        tr_exchange_error(x, e, NULL, NULL);
}

bool tr_resume_is_waited_for(struct tr_stream *s, uint64_t now)
{
    if (!s->hold.waiter.x || now < s->hold.wait_ns)
        return s->hold.waiter.x;
    tr_resume_refuse(s,
                     TR_ERR_ENGINE_DOWN); /* it has said nothing: the stream may still be there */
    return false;
}
