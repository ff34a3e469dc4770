/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/stream_note.c - what a stream says in the access log about the request that reads it. */
#include "frontend/access.h"
#include "frontend/api.h"
#include "frontend/stream_priv.h"
#include "shm/region.h"

#include <string.h>

static void earliest(uint64_t *at, uint64_t ns)
{
    if (ns && (!*at || ns < *at))
        *at = ns;
}

static void latest(uint64_t *at, uint64_t ns)
{
    if (ns > *at)
        *at = ns;
}

/* When its last token was published; 0: there is none, or that is too many steps ago. */
static uint64_t last_token_ns(const struct tr_shm *s, const struct tr_choice *ch)
{
    uint32_t state;
    int64_t n = tr_ring_read(s, ch->slot, ch->gen, &state);

    if (n <= 0)
        return 0;
    uint32_t step = tr_ring_steps(s, ch->slot)[n - 1];
    /* Relaxed: a figure. */
    uint32_t now = atomic_load_explicit(&s->rings->step, memory_order_relaxed);
    return now - step < TR_STEP_TIMES
               ? atomic_load_explicit(&s->rings->step_ns[step % TR_STEP_TIMES],
                                      memory_order_relaxed)
               : 0;
}

static void note_choice(const struct tr_shm *s, const struct tr_choice *ch, uint64_t *at)
{
    const struct tr_ring *r = tr_ring_at(s, ch->slot);

    if (ch->lost || !ch->admitted)
        return;
    earliest(&at[TR_AT_ADMITTED], atomic_load_explicit(&r->admitted_ns, memory_order_relaxed));
    earliest(&at[TR_AT_STARTED], atomic_load_explicit(&r->started_ns, memory_order_relaxed));
    earliest(&at[TR_AT_FIRST_TOKEN],
             atomic_load_explicit(&r->first_token_ns, memory_order_relaxed));
    latest(&at[TR_AT_LAST_TOKEN], last_token_ns(s, ch));
    if (tr_state_terminal(ch->state))
        latest(&at[TR_AT_FINISHED], r->finished_ns);
}

static void name(const struct tr_stream *s, struct tr_access *a)
{
    a->dialect = tr_dialect_word(s->dialect->api);
    memcpy(a->stream_id, s->stream_id, sizeof(a->stream_id));
}

void tr_stream_note(const struct tr_stream *s, const struct tr_close_info *end)
{
    struct tr_access *a = s->x ? s->x->access : NULL;

    if (!a)
        return;
    struct tr_usage u = tr_stream_usage(s);
    name(s, a);
    a->end = end ? tr_state_name(end->state) : "held";
    a->reason = end ? end->reason : NULL;
    a->streamed = s->ask->stream;
    a->in_one_piece = !s->ask->stream;
    a->counted = true;
    a->prompt = u.prompt;
    a->cached = u.cached;
    a->completion = u.completion;
    a->receipt = s->receipt;
    a->at[TR_AT_SUBMITTED] = s->ask->stage.submitted_ns;
    for (uint32_t k = 0; k < s->n; k++)
        note_choice(s->fe->shm, &s->choice[k], a->at);
}

void tr_stream_note_detached(const struct tr_stream *s, struct tr_exchange *x)
{
    struct tr_access *a = x->access;

    if (!a)
        return;
    name(s, a);
    a->end = "detached";
    a->at[TR_AT_SUBMITTED] = s->ask->stage.submitted_ns;
}
