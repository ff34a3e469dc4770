/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/prefix.h"
#include "engine/sched_priv.h"

#include "base/clock.h"
#include "base/fault.h"
#include "shm/bell.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { QUEUE_FRONT = 64 };
#define QUEUE_TELL_NS (250 * 1000000ull)

/* ---- life ---- */

static void *take(struct tr_sched *sc, size_t n, size_t size)
{
    sc->bytes += n * size;
    return calloc(n ? n : 1, size);
}

static void look_at_control(struct tr_sched *sc)
{
    const struct tr_control *c = sc->s->control;
    sc->cut |= atomic_load_explicit(&c->drain, memory_order_relaxed) == TR_DRAIN_CUT;
    for (uint32_t a = 0; a < sc->s->config.n_areas; a++) {
        /* Acquire: a new owner's epoch is seen with its life, not with the last one's death; pairs
         * with the release in the supervisor. */
        sc->epoch[a] = atomic_load_explicit(&c->area_epoch[a], memory_order_acquire);
        sc->alive[a] = atomic_load_explicit(&c->area_alive[a], memory_order_relaxed);
        sc->retires[a] =
            atomic_load_explicit(&c->area_retire[a], memory_order_relaxed) == sc->epoch[a];
    }
}

static int take_constrain(struct tr_sched *sc, struct tr_errbuf *err)
{
    const struct tr_shm_config *c = &sc->s->config;
    uint64_t bytes = 0;
    sc->constrain =
        tr_constrain_new(c->n_slots, c->n_vocab, sc->cfg.pieces, sc->cfg.pieces_len, &bytes, err);
    sc->bytes += bytes;
    return sc->constrain ? 0 : -EINVAL;
}

struct tr_sched *tr_sched_new(struct tr_shm *s, const struct tr_sched_config *c,
                              struct tr_errbuf *err)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    uint32_t n = s->config.n_slots;
    struct tr_sched *sc = NULL;
    if (c->n_eog > TR_MAX_EOG) {
        tr_errf(err, -EINVAL, "more than %d tokens end a turn", TR_MAX_EOG);
        return NULL;
    }
    for (uint32_t i = 0; i < c->n_eog; i++) {
        if (c->eog[i] >= s->config.n_vocab) {
            tr_errf(err, -EINVAL, "token %u that ends a turn is not in the vocabulary", c->eog[i]);
            return NULL;
        }
    }
    sc = calloc(1, sizeof(*sc));
    if (!sc)
        goto out;
    sc->s = s;
    sc->cfg = *c;
    sc->stat = s->stat[TR_STAT_ENGINE];
    sc->seq = take(sc, n, sizeof(*sc->seq));
    sc->extra = take(sc, n, sizeof(*sc->extra));
    sc->idem = take(sc, n, sizeof(*sc->idem));
    sc->closed = take(sc, n, sizeof(*sc->closed));
    sc->active = take(sc, n, sizeof(*sc->active));
    sc->aside_kv = take(sc, n, sizeof(*sc->aside_kv));
    sc->ended = take(sc, n, sizeof(*sc->ended));
    sc->due = take(sc, n, sizeof(*sc->due));
    sc->unbilled = take(sc, n, sizeof(*sc->unbilled));
    sc->plan_in = take(sc, n, sizeof(*sc->plan_in));
    sc->plan_do = take(sc, n, sizeof(*sc->plan_do));
    sc->news_words = tr_layout_dirty_words(&s->config);
    sc->news = take(sc, (size_t)s->config.n_areas * sc->news_words, sizeof(*sc->news));
    sc->reqs = take(sc, TR_MAX_CHOICES, sizeof(*sc->reqs));
    sc->fair = tr_fair_new(n, &sc->bytes);
    if (c->pieces && take_constrain(sc, err)) {
        tr_sched_free(sc);
        return NULL;
    }
    if (!sc->seq || !sc->extra || !sc->idem || !sc->closed || !sc->active || !sc->aside_kv ||
        !sc->ended || !sc->due || !sc->unbilled || !sc->plan_in || !sc->plan_do || !sc->news ||
        !sc->reqs || !sc->fair)
        goto out;
    atomic_store_explicit(&s->rings->ready, 0, memory_order_release);
    atomic_store_explicit(&s->rings->sleeping, 0, memory_order_relaxed);
    look_at_control(sc);
    sc->my_epoch = atomic_load_explicit(&s->control->engine_epoch, memory_order_relaxed);
    tr_recover(sc);
    /* Deaths that the former engine did not acknowledge are found here. */
    sc->seen = atomic_load_explicit(&s->control->change, memory_order_relaxed) - 1;
    tr_sched_read_control(sc);
    tr_offer_sweep(sc);
    tr_settle_bills(sc);
    tr_sched_ring_bells(sc);
    return sc;
out:
    tr_errf(err, -ENOMEM, "out of memory for %u slots", n);
    tr_sched_free(sc);
    return NULL;
}

static uint32_t draft_rows(const struct tr_shm *s, const struct tr_sched_config *c)
{
    return c->speculate ? tr_speculate_rows(s->config.n_vocab) : 0;
}

uint32_t tr_sched_max_rows(const struct tr_shm *s, const struct tr_sched_config *c)
{
    uint32_t chunk = c->prefill_chunk ? c->prefill_chunk : s->config.n_ctx;
    return s->config.max_seqs + chunk + draft_rows(s, c);
}

uint32_t tr_sched_max_out(const struct tr_shm *s, const struct tr_sched_config *c)
{
    return s->config.max_seqs + TR_ECHO_ROWS + draft_rows(s, c);
}

static int take_sampler(struct tr_sched *sc)
{
    const struct tr_shm_config *c = &sc->s->config;
    uint64_t bytes = 0;
    sc->sampler = tr_sampler_new(sc->max_out, c->n_vocab, c->n_ctx, &bytes);
    sc->logits = take(sc, (size_t)sc->max_out * c->n_vocab, sizeof(float));
    sc->bytes += bytes;
    return sc->sampler && sc->logits ? 0 : -ENOMEM;
}

static int take_ngrams(struct tr_sched *sc)
{
    const struct tr_shm_config *c = &sc->s->config;
    uint64_t bytes = 0;
    sc->draft_rows = draft_rows(sc->s, &sc->cfg);
    sc->ngram = tr_ngram_new(c->max_seqs, c->n_slots, c->n_ctx, &bytes);
    sc->share = take(sc, c->max_seqs, sizeof(*sc->share));
    sc->guess = take(sc, c->n_slots, sizeof(*sc->guess));
    sc->bytes += bytes;
    return sc->ngram && sc->share && sc->guess ? 0 : -ENOMEM;
}

static int new_kv(struct tr_sched *sc, uint32_t per_seq)
{
    struct tr_prefix *prefix = NULL;
    uint32_t n = sc->info.n_kv_blocks;
    uint64_t key[2];
    if (sc->cfg.prefix_cache != TR_PREFIX_OFF) {
        while (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key))
            ;
        prefix = tr_prefix_new(n, key);
        if (!prefix)
            return -ENOMEM;
    }
    sc->kv = tr_kv_new(n, sc->s->config.n_slots, per_seq, prefix);
    if (!sc->kv)
        return -ENOMEM;
    sc->bytes += tr_kv_bytes(sc->kv);
    return 0;
}

int tr_sched_bind(struct tr_sched *sc, const struct tr_backend_ops *ops, struct tr_backend *b,
                  const struct tr_backend_info *info, struct tr_errbuf *err)
{
    const struct tr_shm_config *c = &sc->s->config;
    uint32_t per_seq = tr_kv_blocks_for(c->n_ctx);
    if (info->n_vocab != c->n_vocab)
        return tr_errf(err, -EINVAL, "the model has %u tokens, shared memory was laid out for %u",
                       info->n_vocab, c->n_vocab);
    if (info->n_ctx < c->n_ctx)
        return tr_errf(err, -EINVAL,
                       "the model has a context of %u, shared memory was laid out for %u",
                       info->n_ctx, c->n_ctx);
    if (info->n_kv_blocks < per_seq)
        return tr_errf(err, -EINVAL,
                       "KV memory for %u tokens is less than one context of %u tokens",
                       info->n_kv_blocks * TR_KV_BLOCK, c->n_ctx);
    sc->ops = ops;
    sc->backend = b;
    sc->info = *info;
    tr_cost_init(&sc->cost, info->weight_bytes);
    sc->max_rows = tr_sched_max_rows(sc->s, &sc->cfg);
    sc->max_out = tr_sched_max_out(sc->s, &sc->cfg);
    if (new_kv(sc, per_seq))
        return tr_errf(err, -ENOMEM, "out of memory for %u KV blocks", info->n_kv_blocks);
    sc->rows = take(sc, sc->max_rows, sizeof(*sc->rows));
    sc->tables = take(sc, c->max_seqs, sizeof(*sc->tables));
    sc->jobs = take(sc, sc->max_out, sizeof(*sc->jobs));
    sc->picks = take(sc, sc->max_out, sizeof(*sc->picks));
    sc->picked = take(sc, sc->max_out, sizeof(*sc->picked));
    uint64_t mask_bytes = 0;
    if (sc->constrain && tr_constrain_start(sc->constrain, &mask_bytes))
        return tr_errf(err, -ENOMEM, "no thread, or no memory for the masks of grammars");
    sc->bytes += mask_bytes;
    if (!sc->rows || !sc->tables || !sc->jobs || !sc->picks || !sc->picked ||
        (!ops->pick && take_sampler(sc)) || (sc->cfg.speculate && take_ngrams(sc)))
        return tr_errf(err, -ENOMEM, "out of memory for a batch of %u rows", sc->max_rows);
    return 0;
}

void tr_sched_free(struct tr_sched *sc)
{
    if (!sc)
        return;
    free(sc->seq);
    free(sc->extra);
    free(sc->idem);
    free(sc->closed);
    free(sc->active);
    free(sc->aside_kv);
    free(sc->ended);
    free(sc->due);
    free(sc->unbilled);
    free(sc->plan_in);
    free(sc->plan_do);
    free(sc->news);
    free(sc->reqs);
    tr_fair_free(sc->fair);
    tr_constrain_free(sc->constrain);
    tr_kv_free(sc->kv);
    tr_sampler_free(sc->sampler);
    free(sc->logits);
    free(sc->rows);
    free(sc->tables);
    free(sc->jobs);
    free(sc->picks);
    free(sc->picked);
    tr_ngram_free(sc->ngram);
    free(sc->share);
    free(sc->guess);
    free(sc);
}

uint32_t tr_sched_found(const struct tr_sched *sc, uint64_t *tokens)
{
    *tokens = sc->found_tokens;
    return sc->n_found;
}

uint64_t tr_sched_bytes(const struct tr_sched *sc)
{
    return sc->bytes;
}

void tr_sched_beat(void *arg)
{
    struct tr_sched *sc = arg;
    uint64_t now = tr_now_ns();
    atomic_store_explicit(&sc->s->rings->heartbeat_ns, now, memory_order_relaxed);
    tr_stat_beat(sc->stat, now);
}

void tr_sched_drop_kv(struct tr_sched *sc, struct tr_seq *q)
{
    if (sc->kv) {
        tr_cached_keep(sc, q);
        tr_kv_give(sc->kv, q->slot);
    }
    q->n_blocks = q->in_kv = 0;
    q->first_prefill = false;
}

/* ---- control page ---- */

/* Dead, and not yet acknowledged. */
static bool is_to_bury(const struct tr_sched *sc, uint32_t area)
{
    uint32_t ack = atomic_load_explicit(&sc->s->rings->area_ack[area], memory_order_relaxed);
    return sc->epoch[area] && !sc->alive[area] && ack != sc->epoch[area];
}

/* Its requests are over or in other hands: its claims are opened again, then the area may have a new
 * owner. */
static void bury(struct tr_sched *sc, uint32_t area)
{
    tr_offer_sweep(sc);
    TR_FAULT(ENGINE_DEAD_DEALT);
    /* Release: the supervisor's next owner finds the area unused; pairs with the acquire there. */
    atomic_store_explicit(&sc->s->rings->area_ack[area], sc->epoch[area], memory_order_release);
    sc->progress = true;
}

void tr_sched_read_control(struct tr_sched *sc)
{
    if (!tr_control_seen(sc->s->control, &sc->seen))
        return;
    look_at_control(sc);
    for (uint32_t a = 0; a < sc->s->config.n_areas; a++)
        if (is_to_bury(sc, a))
            tr_admit_rest(sc, a);
    tr_handover_dead(sc);
    for (uint32_t a = 0; a < sc->s->config.n_areas; a++)
        if (is_to_bury(sc, a))
            bury(sc, a);
    tr_settle_orphans(sc);
}

/* Takes those that have ended or stand aside out of the list; the order stays. */
static void forget_gone(struct tr_sched *sc)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sc->n_active; i++) {
        const struct tr_seq *q = &sc->seq[sc->active[i]];
        if (q->use == TR_SLOT_LIVE && !tr_state_terminal(q->state) && !q->aside)
            sc->active[n++] = sc->active[i];
    }
    sc->n_active = n;
}

/* ---- the turn ---- */

/* Whether a waiting request learns now that its place is `pos`: at once at the front and at first, far
 * behind from time to time.  Each start moves all who wait, and thousands of readers would be woken. */
static bool learns_place(const struct tr_seq *q, uint32_t pos, bool all)
{
    return q->queue_pos != pos && (all || pos < QUEUE_FRONT || q->queue_pos == TR_QUEUE_UNTOLD);
}

static void set_place(struct tr_sched *sc, struct tr_seq *q, uint32_t pos)
{
    q->queue_pos = pos;
    atomic_store_explicit(&tr_sched_ring(sc, q)->queue_pos, pos, memory_order_relaxed);
}

static void tell_queue(struct tr_sched *sc)
{
    uint32_t n[TR_ERROR + 1] = {0}, pos = 0;
    bool all = sc->now >= sc->next_queue_ns;
    if (all)
        sc->next_queue_ns = sc->now + QUEUE_TELL_NS;
    for (uint32_t i = 0; i < sc->n_active; i++) {
        struct tr_seq *q = &sc->seq[sc->active[i]];
        n[q->state]++;
        if (q->state != TR_WAITING) {
            if (q->queue_pos != TR_QUEUE_UNTOLD) /* it may have to wait again */
                set_place(sc, q, TR_QUEUE_UNTOLD);
            continue;
        }
        if (learns_place(q, pos, all)) {
            set_place(sc, q, pos);
            tr_sched_tell(sc, q);
        }
        pos++;
    }
    tr_stat_set(sc->stat, TR_STAT_WAITING, n[TR_WAITING]);
    tr_stat_set(sc->stat, TR_STAT_RUNNING, n[TR_PREFILL] + n[TR_RUNNING]);
    tr_stat_set(sc->stat, TR_STAT_PARKED, n[TR_PARKED] + sc->n_aside);
    tr_stat_set(sc->stat, TR_STAT_SLOTS_FREE, sc->n_closed);
    tr_stat_set(sc->stat, TR_STAT_SLOTS_OPEN, sc->n_offered);
    tr_stat_set(sc->stat, TR_STAT_SLOTS_BUSY, sc->n_active + sc->n_aside);
    tr_stat_set(sc->stat, TR_STAT_SLOTS_ENDED, sc->n_ended + sc->n_settled + sc->n_due);
    tr_stat_set(sc->stat, TR_STAT_KV_FREE, tr_kv_n_free(sc->kv));
    tr_stat_set(sc->stat, TR_STAT_KV_USED, tr_kv_n_used(sc->kv));
    tr_stat_set(sc->stat, TR_STAT_KV_CACHED, tr_kv_n_cached(sc->kv));
}

/* Gathered over the turn: one atomic operation for 64 slots, and after it the bell. */
static void post_news(struct tr_sched *sc, uint32_t area)
{
    uint64_t *news = sc->news + (size_t)area * sc->news_words;
    for (uint32_t w = 0; w < sc->news_words; w++) {
        if (!news[w])
            continue;
        tr_news_post(sc->s, area, w, news[w]);
        news[w] = 0;
    }
}

static void ring(void *arg, uint64_t areas)
{
    for (uint64_t left = areas; left; left &= left - 1)
        tr_bell_ring_area(arg, (uint32_t)__builtin_ctzll(left));
}

void tr_sched_ring_bells(struct tr_sched *sc)
{
    for (uint64_t left = sc->bells; left; left &= left - 1) {
        uint32_t area = (uint32_t)__builtin_ctzll(left);
        TR_FAULT(ENGINE_NEWS_BEFORE);
        post_news(sc, area);
        TR_FAULT(ENGINE_NEWS_POSTED);
    }
    /* Who is woken takes the core of the thread that rings, or of another one: of one that has nothing
     * in hand, if there is one. */
    if (sc->bells &&
        !(sc->backend && sc->ops->errand && sc->ops->errand(sc->backend, ring, sc->s, sc->bells)))
        ring(sc->s, sc->bells);
    sc->bells = 0;
}

void tr_sched_tend(struct tr_sched *sc)
{
    tr_settle_bills(sc);
    tr_settle_reap(sc);
    tr_offer_keep(sc);
    tell_queue(sc);
    tr_sched_ring_bells(sc);
}

/* Everything that a launch waits for, so that what was said before it is obeyed before it. */
static void hear(struct tr_sched *sc)
{
    tr_sched_read_control(sc);
    tr_admit_all(sc);
    tr_hear_commands(sc);
    tr_hear_again(
        sc); /* before others are put aside, who are in `active` for the rest of this turn */
    tr_hear_cursors(sc);
    if (sc->cut)
        tr_hear_cut(sc);
    forget_gone(sc);
}

/* The backend is done when its pass comes back: there is no better time for anything. */
static void turn(struct tr_sched *sc)
{
    tr_settle_reap(sc);
    tr_offer_keep(sc);
    sc->now = tr_now_ns();
    tr_step(sc);
    forget_gone(sc);
    tr_settle_bills(sc);
    tr_sched_ring_bells(sc); /* first: what follows passes while others wake up */
    tell_queue(sc);
    tr_sched_ring_bells(sc);
}

/* A device waits for the host between two steps: it gets the next one first, and tending is part of that
 * (step.c). */
static void turn_with_device(struct tr_sched *sc)
{
    sc->now = tr_now_ns();
    bool stepped = tr_step(sc);
    forget_gone(sc);
    tr_sched_ring_bells(sc);
    if (!stepped)
        tr_sched_tend(sc);
}

bool tr_sched_turn(struct tr_sched *sc)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    TR_ASSERT(sc->kv);
    sc->progress = false;
    sc->now = tr_now_ns();
    hear(sc);
    if (sc->ops->pick)
        turn_with_device(sc);
    else
        turn(sc);
    return sc->progress;
}

bool tr_sched_done(const struct tr_sched *sc)
{
    return sc->cut && sc->n_active == 0 && sc->n_aside == 0 && sc->n_unbilled == 0;
}
