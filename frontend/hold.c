/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/hold.c - see hold.h. */
#include "frontend/hold.h"

#include "base/clock.h"
#include "base/fault.h"
#include "frontend/resume.h"
#include "frontend/stream_priv.h"

/* How often a stream that is not ours yet is looked at although nobody rings. */
#define LOOK_NS (250 * 1000000ull)
/* The same of one that was given to us and whose confirmation may have been lost. */
#define CONFIRM_NS (1000 * 1000000ull)

bool tr_hold_is_resumable(const struct tr_stream *s)
{
    return s->n == 1 && (s->ask->params.flags & TR_REQ_RESUMABLE);
}

bool tr_hold_is_kept(const struct tr_stream *s)
{
    return s->n == 1 && !s->replay &&
           (s->ask->params.flags & (TR_REQ_RESUMABLE | TR_REQ_IDEMPOTENT));
}

/* It has come to an end by itself and has a key: its answer may be asked for once more. */
static bool is_answer(const struct tr_stream *s)
{
    return (s->ask->params.flags & TR_REQ_IDEMPOTENT) && tr_stream_all_ended(s) &&
           !tr_stream_outcome(s);
}

/* How long it is kept without a reader. */
static uint64_t window_of(const struct tr_stream *s)
{
    const struct tr_frontend_config *cfg = s->fe->cfg;
    uint64_t ns = tr_hold_is_resumable(s) ? cfg->resume_window_ns : 0;

    return (is_answer(s) || s->hold.is_answer) && cfg->idempotency_ns > ns ? cfg->idempotency_ns
                                                                           : ns;
}

/* ---- the list ---- */

/* Told at once: the others count with it. */
static void tell(struct tr_fe *fe)
{
    tr_stat_set(fe->stat, TR_STAT_STREAMS_HELD, fe->n_held);
}

static void begin_window(struct tr_stream *s)
{
    s->hold.from_ns = tr_now_ns();
    s->rang = true; /* the look at its clock arms it */
}

static void enter(struct tr_stream *s)
{
    s->hold.gone_ns = tr_now_ns();
    begin_window(s);
    TAILQ_INSERT_TAIL(&s->fe->held, s, hold.link);
    s->hold.listed = true;
    s->fe->n_held++;
    s->hold.is_answer = !tr_hold_is_resumable(s);
    s->fe->n_answers += s->hold.is_answer;
    tell(s->fe);
    tr_stream_due(s);
}

void tr_hold_leave(struct tr_stream *s)
{
    if (!s->hold.listed)
        return;
    TAILQ_REMOVE(&s->fe->held, s, hold.link);
    s->hold.listed = false;
    s->fe->n_held--;
    s->fe->n_answers -= s->hold.is_answer;
    tell(s->fe);
}

/* How many all frontends hold.  Relaxed: a moment's difference is one more or less. */
static uint64_t held_by_all(const struct tr_fe *fe)
{
    const struct tr_shm *s = fe->shm;
    uint64_t n = fe->n_held;

    for (uint32_t a = 0; a < s->config.n_areas; a++)
        if (a != s->my_area &&
            atomic_load_explicit(&s->control->area_alive[a], memory_order_relaxed))
            n += atomic_load_explicit(&s->stat[TR_STAT_AREA0 + a]->value[TR_STAT_STREAMS_HELD],
                                      memory_order_relaxed);
    return n;
}

/* Place for `n` more: the oldest that has ended, but for this one, makes it if it must be. */
static bool make_place(struct tr_fe *fe, unsigned n, const struct tr_stream *for_this)
{
    struct tr_stream *s;

    if (held_by_all(fe) + n <= fe->cfg->hold_slots)
        return true;
    TAILQ_FOREACH(s, &fe->held, hold.link)
    {
        if (s == for_this || s->hold.taking || !tr_stream_all_ended(s))
            continue;
        tr_stream_drop(s, TR_ERR_CLIENT_GONE, 0);
        return true;
    }
    return false;
}

uint32_t tr_hold_answers(const struct tr_frontend_config *c, uint32_t n_areas)
{
    uint32_t share = c->hold_slots / n_areas; /* of which there are two for each frontend */

    return share ? share : 1;
}

/* Of answers that are kept for their keys alone, all frontends together have at most half of the places:
 * the oldest of ours gives way, and readers who come back find theirs. */
static void bound_answers(struct tr_fe *fe, const struct tr_stream *for_this)
{
    struct tr_stream *s;

    if (fe->n_answers < tr_hold_answers(fe->cfg, fe->shm->config.n_areas))
        return;
    TAILQ_FOREACH(s, &fe->held, hold.link)
    {
        if (!s->hold.is_answer || s == for_this || s->hold.taking)
            continue;
        tr_stream_drop(s, TR_ERR_CLIENT_GONE, 0);
        return;
    }
}

bool tr_hold_has_place(struct tr_fe *fe)
{
    return make_place(fe, 1, NULL);
}

static bool is_over(const struct tr_stream *s)
{
    return s->failure || s->choice[0].lost || s->hold.unwanted ||
           (tr_stream_all_ended(s) && s->fe->drain >= TR_DRAIN_CLOSED);
}

bool tr_hold_take(struct tr_stream *s)
{
    if (!tr_hold_is_kept(s) || !window_of(s) || is_over(s))
        return false;
    if (!tr_hold_is_resumable(s))
        bound_answers(s->fe, s);
    if (!make_place(s->fe, 1, s))
        return false;
    TR_FAULT_FOR(FRONTEND_HOLD_BEFORE, s->ask->params.seed);
    tr_stream_rewind(s);
    s->gate_ns = 0;
    s->drain_since_ns = 0;
    enter(s);
    TR_FAULT_FOR(FRONTEND_HELD, s->ask->params.seed);
    return true;
}

/* ---- a stream that was another frontend's ---- */

/* A request whose packed part makes no sense, or for which there is no memory, is ended. */
static struct tr_ask *hopeless(struct tr_fe *fe)
{
    struct tr_ask *a = tr_ask_new(fe, NULL, 0);

    if (!a)
        return NULL;
    a->stream = true;
    a->n = a->n_prompts = 1;
    a->params.flags = TR_REQ_RESUMABLE;
    return a;
}

static struct tr_stream *build(struct tr_fe *fe, struct tr_ask *ask, struct tr_stream_id id)
{
    struct tr_admitted ad = {.n = 1, .slot = {id.slot}, .gen = {id.gen}, .rand = id.rand};
    struct tr_stream *s = tr_stream_make(fe, NULL, ask);
    uint32_t state;

    if (!s) {
        tr_ask_close(ask);
        return NULL;
    }
    tr_stream_enter(s, &ad);
    int64_t there = tr_ring_read(fe->shm, id.slot, id.gen, &state);
    s->choice[0].charged = there > 0 ? (uint64_t)there : 0;
    tr_stream_dress(s, &tr_dialect_native, TR_SSE_NATIVE);
    s->hold.taking = true;
    s->hold.adopted = true;
    s->receipt.no_reader = true;
    enter(s);
    return s;
}

/* Cursors are reset and the engine is asked; again later if its queue is full. */
static void ask_engine(struct tr_stream *s)
{
    struct tr_shm *shm = s->fe->shm;
    struct tr_owner o = tr_ring_owner(tr_ring_at(shm, s->name.slot));
    int rc = (s->hold.given ? tr_confirm : tr_adopt)(shm, s->name.slot, s->name.gen, s->name.rand);

    s->hold.asked_ns = rc == -EAGAIN ? 0 : tr_now_ns();
    s->hold.asked_at = tr_subq_pushed(shm);
    s->hold.asked_area = o.area;
    s->hold.asked_epoch = o.epoch;
    TR_FAULT_FOR(FRONTEND_ADOPT_ASKED, s->ask->params.seed);
}

struct tr_stream *tr_hold_ask(struct tr_fe *fe, struct tr_stream_id id)
{
    struct tr_ask *ask = tr_ask_from_ring(fe, id.slot, id.gen);
    struct tr_stream *s = ask ? build(fe, ask, id) : NULL;

    if (s)
        ask_engine(s);
    return s;
}

static void give_up(struct tr_stream *s)
{
    s->failure = TR_ERR_INTERNAL;
    s->hold.unwanted = true;
    tr_stream_cancel(s, TR_ERR_INTERNAL);
}

/* `again`: what could not be read for the second time makes no sense; the first time there may have been
 * no memory. */
static void take_over(struct tr_fe *fe, uint32_t slot, bool again)
{
    const struct tr_ring *r = tr_ring_at(fe->shm, slot);
    uint32_t gen;

    if (!tr_adopt_is_due(fe->shm, slot, &gen))
        return;
    struct tr_stream_id id = {.slot = slot, .gen = gen, .rand = r->stream_rand};
    struct tr_ask *ask = tr_ask_from_ring(fe, slot, gen);
    bool good = ask;
    if (!ask && again)
        ask = hopeless(fe);
    struct tr_stream *s = ask ? build(fe, ask, id) : NULL;
    if (!s) {
        fe->hold_missed = true; /* the tick looks again */
        return;
    }
    TR_FAULT_FOR(FRONTEND_GIVEN, r->params.seed);
    if (!good)
        give_up(s);
    s->hold.given = true;
    ask_engine(s);
}

void tr_hold_news(struct tr_fe *fe, uint32_t slot)
{
    take_over(fe, slot, false);
}

void tr_holds_again(struct tr_fe *fe)
{
    if (!fe->hold_missed)
        return;
    fe->hold_missed = false;
    for (uint32_t slot = 0; slot < fe->shm->config.n_slots; slot++)
        if (!fe->by_slot[slot])
            take_over(fe, slot, true);
}

/* ---- looks ---- */

/* Somebody who waits is told; then nothing is left of it here. */
static bool lost(struct tr_stream *s, enum tr_err why)
{
    tr_resume_refuse(s, why);
    tr_stream_forget(s);
    return false;
}

/* The engine has said so.  Nobody asked for a stream that was given to us: it counts as one whose reader
 * has gone, and it is ours to end if there is no place for it. */
static bool take(struct tr_stream *s)
{
    s->hold.taking = false;
    tr_stream_runs(s);
    TR_FAULT_FOR(FRONTEND_ADOPTED, s->ask->params.seed);
    begin_window(s);
    if (s->hold.cancel)
        tr_stream_cancel(s, s->hold.cancel);
    if (s->hold.waiter.x || make_place(s->fe, 0, s))
        return true;
    tr_stream_drop(s, TR_ERR_CLIENT_GONE, 0);
    return false;
}

/* Whether the frontend that the ring names is there and has it. */
static bool has_it(const struct tr_fe *fe, struct tr_owner o)
{
    /* Relaxed: who is dead and not known to be is looked at again. */
    return o.confirmed && o.area < fe->shm->config.n_areas &&
           atomic_load_explicit(&fe->shm->control->area_alive[o.area], memory_order_relaxed);
}

/* The ring names another frontend.  One that was given to us was adopted there, which is the end of it
 * unless we have a reader of our own.  One that we have asked for was given away once more after we
 * were heard, or its owner had let it go; there is another reader only if that frontend is still there
 * after a while: one who has asked and died leaves the stream to others. */
static bool look_lost(struct tr_stream *s, struct tr_owner o, uint32_t state, bool heard)
{
    bool same = o.area == s->hold.asked_area && o.epoch == s->hold.asked_epoch;

    if (s->hold.given && !s->hold.waiter.x)
        return lost(s, TR_ERR_STREAM_TAKEN);
    if (!s->hold.given) {
        if (!heard)
            return true;
        if (same && tr_state_terminal(state))
            return lost(s, TR_ERR_STREAM_OVER);
        if (tr_now_ns() - s->hold.asked_ns < LOOK_NS)
            return true;
        if (has_it(s->fe, o))
            return lost(s, TR_ERR_STREAM_TAKEN);
    }
    s->hold.given = false;
    ask_engine(s);
    return true;
}

static bool look_taking(struct tr_stream *s)
{
    const struct tr_ring *r = tr_ring_at(s->fe->shm, s->name.slot);
    uint32_t state = TR_FREE;

    if (tr_ring_read(s->fe->shm, s->name.slot, s->name.gen, &state) < 0 || state == TR_FREE)
        return lost(s, TR_ERR_STREAM_OVER);
    /* Before the owner is read: what came of a message is seen with it. */
    bool heard = s->hold.asked_ns && tr_subq_is_heard(s->fe->shm, s->hold.asked_at);
    struct tr_owner o = tr_ring_owner(r);
    if (!tr_ring_is_ours(s->fe->shm, r))
        return look_lost(s, o, state, heard);
    return !o.confirmed || take(s);
}

/* Whether its ring was reset although it has ended, or nobody reads it, and we have not let it go: another
 * frontend had it in between, and has. */
static bool is_gone(const struct tr_stream *s)
{
    const struct tr_ring *r = tr_ring_at(s->fe->shm, s->name.slot);
    /* Acquire, before: what the stream is about was in that ring. */
    uint32_t gen = atomic_load_explicit(&r->gen, memory_order_acquire);

    return (int32_t)(gen - s->name.gen) > 0 && (!s->x || tr_stream_all_ended(s));
}

/* Whether its ring is in another frontend's hands, or was, and the engine gives it to us once more.  One
 * that was never ours is not: tr_choice_scan tells what that means. */
static bool is_taken(const struct tr_stream *s)
{
    const struct tr_choice *ch = &s->choice[0];
    const struct tr_ring *r = tr_ring_at(s->fe->shm, ch->slot);
    uint32_t state = TR_FREE;

    if (ch->lost)
        return false;
    if (tr_ring_read(s->fe->shm, ch->slot, ch->gen, &state) < 0)
        return is_gone(s);
    if (state == TR_FREE)
        return false;
    bool taken = r->stream_rand == s->name.rand &&
                 !(tr_ring_is_ours(s->fe->shm, r) && tr_ring_owner(r).confirmed);
    /* The slot may have been wiped while we looked. */
    atomic_thread_fence(memory_order_acquire);
    return taken && atomic_load_explicit(&r->gen, memory_order_relaxed) == ch->gen;
}

bool tr_hold_look(struct tr_stream *s)
{
    struct tr_fe *fe = s->fe;
    uint32_t slot = s->name.slot;

    if (s->hold.taking)
        return look_taking(s);
    if (!is_taken(s))
        return true;
    lost(s, TR_ERR_STREAM_TAKEN);
    tr_hold_news(fe, slot);
    return false;
}

struct tr_stream *tr_hold_find(struct tr_fe *fe, struct tr_stream_id id)
{
    struct tr_stream *s = tr_stream_find(fe, id);

    if (!s || !tr_hold_is_kept(s) || tr_hold_look(s))
        return s;
    return tr_stream_find(fe, id); /* lost, and given to us once more */
}

bool tr_hold_keep(struct tr_stream *s)
{
    const struct tr_ring *r = tr_ring_at(s->fe->shm, s->name.slot);

    if (!tr_stream_all_ended(s))
        return true;
    tr_stream_rests(s);
    /* Relaxed: stored before the news that made us look. */
    bool unwanted =
        atomic_load_explicit(&r->unwanted, memory_order_relaxed) ||
        (tr_stream_outcome(s) == TR_ERR_CANCELLED && !(s->ask->params.flags & TR_REQ_CANCEL_KEEPS));
    if (!unwanted && !is_over(s))
        return true;
    tr_stream_drop(s, TR_ERR_CLIENT_GONE, 0);
    return false;
}

/* ---- time ---- */

static bool clock_taking(struct tr_stream *s, uint64_t now)
{
    bool ours = tr_ring_is_ours(s->fe->shm, tr_ring_at(s->fe->shm, s->name.slot));

    if (!s->hold.asked_ns || (ours && now - s->hold.asked_ns >= CONFIRM_NS))
        ask_engine(s);
    if (!tr_resume_is_waited_for(s, now) && !ours) {
        tr_stream_forget(s); /* should the engine still give it to us: there will be news */
        return false;
    }
    tr_stream_remind(s, now + LOOK_NS);
    return true;
}

void tr_hold_asked(struct tr_stream *s)
{
    if (s->hold.listed && !s->hold.taking)
        begin_window(s);
}

/* Somebody has asked about it at another frontend: the window began anew. */
static void look_for_questions(struct tr_stream *s, uint64_t now)
{
    const struct tr_ring *r = tr_ring_at(s->fe->shm, s->name.slot);
    uint64_t asked = atomic_load_explicit(&r->asked_ns, memory_order_relaxed);

    if (asked && asked <= now && asked > s->hold.from_ns)
        s->hold.from_ns = asked;
}

bool tr_hold_clock(struct tr_stream *s, uint64_t now)
{
    if (s->hold.taking)
        return clock_taking(s, now);
    look_for_questions(s, now);
    uint64_t until = s->hold.from_ns + window_of(s);
    if (now < until || s->hold.waiter.x) {
        tr_stream_remind(s, until);
        return true;
    }
    if (!s->told)
        tr_stat_add(s->fe->stat, TR_STAT_RESUME_EXPIRED, 1);
    tr_stream_drop(s, TR_ERR_CLIENT_GONE, 0);
    return false;
}

/* ---- the end of the service, and of this process ---- */

void tr_holds_look(struct tr_fe *fe)
{
    struct tr_stream *s;

    TAILQ_FOREACH(s, &fe->held, hold.link)
    tr_stream_due(s);
}

void tr_holds_close(struct tr_fe *fe)
{
    for (struct tr_stream *s; (s = TAILQ_FIRST(&fe->held));)
        tr_stream_forget(s);
}
