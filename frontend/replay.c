/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/replay.c - see replay.h. */
#include "frontend/replay.h"

#include "frontend/hold.h"
#include "frontend/stream_priv.h"

/* It begins its window anew; a full queue: the answer is told as long as it is there. */
static void ask_to_keep(struct tr_fe *fe, struct tr_stream_id id)
{
    struct tr_stream *own = tr_stream_find(fe, id);

    if (own)
        tr_hold_asked(own);
    else
        (void)tr_subq_push(
            fe->shm,
            &(struct tr_msg){
                .kind = TR_MSG_WANTED, .slot = id.slot, .gen = id.gen, .stream_rand = id.rand},
            1);
}

static bool is_gone(const struct tr_fe *fe, struct tr_stream_id id)
{
    return atomic_load_explicit(&tr_ring_at(fe->shm, id.slot)->gen, memory_order_relaxed) != id.gen;
}

static struct tr_ask *ask_of(const struct tr_fe *fe, const struct tr_ask *like,
                             struct tr_stream_id id)
{
    struct tr_ask *a = tr_ask_from_ring(fe, id.slot, id.gen);

    if (!a)
        return NULL;
    a->stream = like->stream;
    a->plain = like->plain;
    a->arrival_ns = like->arrival_ns;
    a->timeout_ns = like->timeout_ns;
    return a;
}

void tr_replay_start(struct tr_fe *fe, struct tr_exchange *x, const struct tr_ask *like,
                     struct tr_stream_id id, const struct tr_dialect *dialect, enum tr_frame frame)
{
    struct tr_admitted ad = {.n = 1, .slot = {id.slot}, .gen = {id.gen}, .rand = id.rand};
    struct tr_ask *ask = ask_of(fe, like, id);
    struct tr_stream *s = ask ? tr_stream_make(fe, x, ask) : NULL;

    if (!s) {
        tr_ask_close(ask);
        if (is_gone(fe, id)) /* since it was found */
            tr_exchange_error(x, TR_ERR_OVERLOADED, TR_REPLAY_GONE, NULL);
        else
            tr_exchange_error(x, TR_ERR_INTERNAL, NULL, NULL);
        return;
    }
    s->replay = true;
    s->told = true;         /* its end has been counted and logged */
    s->hold.adopted = true; /* gone through from its beginning, bit by bit */
    tr_stream_enter(s, &ad);
    s->receipt.written = true;
    tr_stream_dress(s, dialect, frame);
    ask_to_keep(fe, id);
    tr_stream_open(s);
}

bool tr_replay_is_whole(const struct tr_stream *s)
{
    if (!s->replay)
        return true;
    /* Acquire, behind the reads: they were of this generation if it is still the same. */
    atomic_thread_fence(memory_order_acquire);
    return !is_gone(s->fe, (struct tr_stream_id){.slot = s->name.slot, .gen = s->name.gen});
}
