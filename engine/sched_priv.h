/* SPDX-License-Identifier: Apache-2.0 */
/* engine/sched_priv.h - the scheduler's memory, shared by the files it is made of and nobody else. */
#ifndef TR_ENGINE_SCHED_PRIV_H
#define TR_ENGINE_SCHED_PRIV_H

#include "engine/constrain.h"
#include "engine/cost.h"
#include "engine/fair.h"
#include "engine/kv.h"
#include "engine/ngram.h"
#include "engine/pick.h"
#include "engine/plan.h"
#include "engine/sample.h"
#include "engine/sched.h"
#include "engine/seq.h"
#include "engine/speculate.h"
#include "shm/region.h"
#include "shm/slot_stat.h"
#include "shm/stat.h"

/* One row of logits at work. */
struct tr_job {
    uint32_t slot;
    uint32_t pos; /* of the row */
    uint32_t id;  /* sampled, or the echoed prompt token */
    bool echo;    /* a log-probability of the prompt, nothing is sampled */
    bool wants_lp;
    const uint32_t
        *drafts; /* of its sequence: n_before stand between its tokens and this row, and the */
    uint32_t n_before; /* next one is the token of the row behind it, if there is one (`is_more`) */
    bool is_more;
    const uint32_t *mask;   /* of what its grammar allows, or NULL */
    bool late;              /* and it is not made yet: nothing is sampled */
    const struct tr_lp *lp; /* if wanted */
};

struct tr_sched {
    struct tr_shm *s;
    struct tr_sched_config cfg;
    struct tr_stat *stat;

    /* Slots. */
    struct tr_seq *seq;     /* [n_slots] */
    struct tr_extra *extra; /* [n_slots], touched only where a request has one */
    uint64_t *idem;         /* [n_slots] of the hash of its Idempotency-Key; 0: none (twin.c) */
    struct tr_constrain *constrain; /* NULL: no request may bring a grammar */
    uint32_t *closed;               /* [n_slots], a stack of free slots that are not offered */
    uint32_t n_closed;
    uint32_t n_offered;
    uint32_t *active; /* [n_slots] not ended and not aside, by order */
    uint32_t n_active;
    uint32_t n_aside;   /* parked ones that are not in `active`, see aside.c */
    uint32_t look_at;   /* slot that was looked at again last */
    uint32_t *aside_kv; /* [n_slots] of those, the ones that hold blocks, by order */
    uint32_t n_aside_kv;
    uint32_t *ended; /* [n_slots] ended, their records not yet durable */
    uint32_t n_ended;
    uint32_t n_settled; /* ended, durable, not yet released */
    uint32_t *due;      /* [n_slots] durable and released: free in this turn */
    uint32_t n_due;
    bool look_at_ended; /* an end or a record since the last look at `ended` */
    uint64_t durable;   /* records that were durable at that look */
    uint64_t oldest_ns; /* when the oldest of `ended` ended */
    uint32_t *unbilled; /* [n_slots] leads whose group has ended and has no record yet */
    uint32_t n_unbilled;
    uint64_t next_order;
    struct tr_fair *fair; /* what each key has had */
    uint64_t next_sweep_ns;
    uint64_t next_queue_ns; /* when all who wait learn their place again */

    /* The control page as last read. */
    uint32_t seen;
    uint32_t epoch[TR_MAX_AREAS];
    bool alive[TR_MAX_AREAS];
    uint32_t my_epoch;          /* of this engine */
    bool retires[TR_MAX_AREAS]; /* its place is another's: it is given nothing more */
    bool cut;

    uint64_t now;   /* of this turn; again after the forward pass */
    uint64_t bells; /* areas to ring, a bit each */
    uint64_t *news; /* [n_areas, news_words] slots whose owner is to look at the ring, a bit each */
    uint32_t news_words;
    bool progress; /* something happened in this turn */

    bool suspects;    /* there may be some */
    bool trial_next;  /* the next step is the trial's */
    bool sits_out;    /* somebody waits for a mask, in this step's plan */
    uint32_t n_found; /* requests of a former engine that go on */
    uint64_t found_tokens;

    struct tr_request *reqs; /* [TR_MAX_CHOICES] copies of a group at admission */

    /* With the model. */
    const struct tr_backend_ops *ops;
    struct tr_backend *backend;
    struct tr_backend_info info;
    struct tr_kv *kv;
    struct tr_sampler *sampler; /* NULL, and no logits: the backend picks */
    float *logits;              /* [max_out, n_vocab] */
    struct tr_batch_row *rows;  /* [max_rows] */
    struct tr_kv_table *tables; /* [max_seqs] */
    struct tr_job *jobs;        /* [max_out] */
    uint32_t n_jobs;
    struct tr_pick *picks;    /* [max_out] of those jobs that are not late */
    struct tr_picked *picked; /* [max_out] */
    uint32_t draft_rows; /* drafts in a step; 0: no speculation, and the next three are not there */
    struct tr_ngram *ngram;
    struct tr_share *share; /* [max_seqs] */
    const uint32_t *
        *guess; /* [n_slots], as plan_in: where the drafts of a sequence are in this step */
    struct tr_plan_seq *plan_in; /* [n_slots] */
    struct tr_plan_do *plan_do;  /* [n_slots] */
    struct tr_cost cost;         /* of steps */
    uint32_t max_rows, max_out;
    uint64_t bytes;
};

static inline struct tr_ring *tr_sched_ring(const struct tr_sched *sc, const struct tr_seq *q)
{
    return tr_ring_at(sc->s, q->slot);
}

/* When an output token was published, as far back as the table of steps goes. */
static inline uint64_t tr_sched_token_ns(const struct tr_sched *sc, const struct tr_seq *q,
                                         uint32_t token)
{
    uint32_t step = tr_ring_steps(sc->s, q->slot)[token] % TR_STEP_TIMES;
    return atomic_load_explicit(&sc->s->rings->step_ns[step], memory_order_relaxed);
}

/* Whether (area, epoch) is a frontend that lives, as far as the control page was read. */
static inline bool tr_sched_owner_alive(const struct tr_sched *sc, uint32_t area, uint32_t epoch)
{
    return area < sc->s->config.n_areas && sc->alive[area] && sc->epoch[area] == epoch;
}

/* A frontend will be told, with the bells of this turn, to look at a slot. */
static inline void tr_sched_tell_area(struct tr_sched *sc, uint32_t area, uint32_t slot)
{
    if (area >= sc->s->config.n_areas || slot >= sc->s->config.n_slots)
        return;
    sc->news[(size_t)area * sc->news_words + slot / 64] |= 1ull << (slot % 64);
    sc->bells |= 1ull << area;
}

/* Its ring has changed: the owner will be told. */
static inline void tr_sched_tell(struct tr_sched *sc, const struct tr_seq *q)
{
    tr_sched_tell_area(sc, q->area, q->slot);
}

/* ---- sched.c ---- */
void tr_sched_read_control(struct tr_sched *sc);
void tr_sched_drop_kv(struct tr_sched *sc, struct tr_seq *q);
void tr_sched_ring_bells(struct tr_sched *sc);
/* What no token and no launch waits for: records, releases, places, the queue, and bells of it all. */
void tr_sched_tend(struct tr_sched *sc);

/* ---- hear.c: what frontends say about admitted requests ---- */
/* A command word, if it is about this generation. */
void tr_hear_obey(struct tr_sched *sc, struct tr_seq *q, uint64_t word);
/* Believes its cursors, and ends it if it only waited for them. */
void tr_hear_reader(struct tr_sched *sc, struct tr_seq *q);
/* The same of one that stands aside; it comes back if its reader is near enough. */
void tr_hear_parked(struct tr_sched *sc, struct tr_seq *q);
/* Of all: commands and moved cursors since the last turn; then cursors of those in `active`. */
void tr_hear_commands(struct tr_sched *sc);
void tr_hear_cursors(struct tr_sched *sc);
/* A few of those that stand aside, in turn. */
void tr_hear_again(struct tr_sched *sc);
/* The service is cut off: who stands aside ends as well. */
void tr_hear_cut(struct tr_sched *sc);

/* ---- aside.c: parked sequences that wait for their reader ---- */
/* Into `active`, at its place; it is not there. */
void tr_sched_activate(struct tr_sched *sc, const struct tr_seq *q);
/* Parked, and looked at since it asked for its cursors: no turn looks at it again before its dirty bit
 * is found, or its number comes up.  The caller takes it out of `active`. */
void tr_aside_put(struct tr_sched *sc, struct tr_seq *q);
/* Not any more, whatever comes next. */
void tr_aside_take(struct tr_sched *sc, struct tr_seq *q);
/* Into `active`, of which it has been taken out, at its place. */
void tr_aside_back(struct tr_sched *sc, struct tr_seq *q);
/* The n youngest of those that hold blocks give them back. */
void tr_aside_evict(struct tr_sched *sc, uint32_t n);

/* ---- cached.c: the prefix cache ---- */
/* Completes plan_in: what of each sequence is shared, and what of it the cache has. */
void tr_cached_describe(struct tr_sched *sc);
/* Comes in with the n tokens that its plan_in says are cached. */
void tr_cached_take(struct tr_sched *sc, struct tr_seq *q, uint32_t n);
/* Is worked on for the first time; what it took is counted. */
void tr_cached_start(struct tr_sched *sc, struct tr_seq *q, bool echoes);
/* What is computed of it stands in the cache; before its blocks are given back. */
void tr_cached_keep(struct tr_sched *sc, struct tr_seq *q);

/* ---- admit.c: submissions ---- */
void tr_admit_all(struct tr_sched *sc);
/* Everything in the area's queue: its owner is dead. */
void tr_admit_rest(struct tr_sched *sc, uint32_t area);
/* What a former engine was about to take: a submission of which a slot is admitted is admitted as a
 * whole, and out of the queue. */
void tr_admit_torn(struct tr_sched *sc, uint32_t area);
/* Whether what a former engine copied into the ring is what admission lets pass; its variable part is
 * unpacked. */
bool tr_admit_is_sound(struct tr_sched *sc, uint32_t slot);
/* Echoed logprobs: entry 0, if the ring does not have it yet.  False if there is no room for it. */
bool tr_admit_first_lp(struct tr_sched *sc, const struct tr_seq *q);

/* ---- twin.c: requests with the same Idempotency-Key ---- */
/* Whether `req`, a copy, has a twin: one that runs, or has come to its end and whose answer is kept. */
bool tr_twin_has(const struct tr_sched *sc, const struct tr_request *req);
/* The ring of the slot holds a request, or (false) none any more. */
void tr_twin_note(struct tr_sched *sc, uint32_t slot, bool there);

/* ---- handover.c: streams that change hands ---- */
/* Streams of frontends that do not live: given to others, or ended. */
void tr_handover_dead(struct tr_sched *sc);
/* TR_MSG_ADOPT and TR_MSG_CONFIRM from that area, TR_MSG_CANCEL and TR_MSG_WANTED from any; false if the
 * message names no request that it may be about. */
bool tr_handover_adopt(struct tr_sched *sc, uint32_t area, const struct tr_msg *m);
bool tr_handover_cancel(struct tr_sched *sc, const struct tr_msg *m);
bool tr_handover_wanted(struct tr_sched *sc, const struct tr_msg *m);

/* ---- offer.c: claims ---- */
void tr_offer_keep(struct tr_sched *sc);
void tr_offer_sweep(struct tr_sched *sc);
/* Whether the slot is offered in this generation and claimed by that frontend. */
bool tr_offer_claimed_by(const struct tr_sched *sc, uint32_t slot, uint32_t gen, uint32_t area,
                         uint32_t epoch);
void tr_offer_take(struct tr_sched *sc, uint32_t slot); /* claimed -> taken, LIVE */
/* claimed -> the next generation, to be opened again; its frontend learns why (tr_ring_turned_away). */
void tr_offer_turn_away(struct tr_sched *sc, uint32_t slot, enum tr_err why);
void tr_offer_close(struct tr_sched *sc, uint32_t slot); /* after the ring's reset: free, closed */

/* ---- settle.c: ends, records, release ---- */
struct tr_end {
    enum tr_state state;
    enum tr_finish finish;
    enum tr_err err;
    uint64_t finish_index;
    uint64_t disconnect_ns;
};
void tr_settle_end(struct tr_sched *sc, struct tr_seq *q, struct tr_end e);
/* Ends it by somebody's word or a fault: the state is that of the row in shm/close.def. */
void tr_settle_cancel(struct tr_sched *sc, struct tr_seq *q, enum tr_err why);
void tr_settle_bills(struct tr_sched *sc);
/* Its reader does not need the ring any more. */
void tr_settle_release(struct tr_sched *sc, struct tr_seq *q);
/* Somebody has died: nobody will release what was his. */
void tr_settle_orphans(struct tr_sched *sc);
void tr_settle_reap(struct tr_sched *sc);

/* The last record of a former engine counts in the statistics if it does not yet. */
void tr_settle_count_last(struct tr_sched *sc);

/* ---- suspect.c ---- */
void tr_suspect_pass_begins(struct tr_sched *sc);
void tr_suspect_pass_ends(struct tr_sched *sc);
/* The same pass, after an end that was none: the host did something else. */
void tr_suspect_pass_goes_on(struct tr_sched *sc);
/* What its ring says. */
void tr_suspect_remember(struct tr_sched *sc, struct tr_seq *q);
/* The last engine's death, once, when all slots are found. */
void tr_suspect_blame(struct tr_sched *sc);
bool tr_suspect_is_guilty(const struct tr_seq *q);
/* Who of plan_in takes which part in the next step; false if there is no suspect among them. */
bool tr_suspect_trial(struct tr_sched *sc);

/* ---- speculate.c ---- */
/* Plan_in[i].drafts, as many as each may have, become as many as are worth it; they are in guess[i]. */
void tr_speculate_offer(struct tr_sched *sc);

/* ---- recover.c ---- */
void tr_recover(struct tr_sched *sc);

/* ---- batch.c ---- */
/* Whether rows of its prompt have log-probabilities that are still to be told. */
bool tr_batch_echoes(const struct tr_sched *sc, const struct tr_seq *q);
/* Rows as plan_do says, and the jobs of those that have logits; they count as computed from here on. */
struct tr_batch tr_batch_make(struct tr_sched *sc);

/* ---- pick.c ---- */
/* A token, or the log-probability of one, for each job that is not late; the pass is then over. */
void tr_pick_all(struct tr_sched *sc);

/* ---- publish.c ---- */
/* What the jobs of this step have come to, into the rings, and what follows from it; the step is counted. */
void tr_publish_all(struct tr_sched *sc);
/* Ends it, or lets it wait for the scan of its last tokens, if `id`, its last one, is its end. */
void tr_publish_end_if_over(struct tr_sched *sc, struct tr_seq *q, uint32_t id);
/* The published tokens of a request that was found again lead through its grammar; false if they do not. */
bool tr_publish_retrace(struct tr_sched *sc, const struct tr_seq *q);
/* Its first token was published at that time. */
void tr_publish_first_token(struct tr_sched *sc, struct tr_seq *q, uint64_t at_ns);

/* ---- step.c ---- */
/* Whether its reader is so far behind that it must not run. */
bool tr_step_is_behind(const struct tr_sched *sc, const struct tr_seq *q);
void tr_step_park(struct tr_sched *sc, struct tr_seq *q);
/* Whether the reader of a parked sequence is near enough for it to run again. */
bool tr_step_caught_up(const struct tr_sched *sc, const struct tr_seq *q);
/* Does what the plan says and makes the step; false if it had no rows. */
bool tr_step(struct tr_sched *sc);

#endif
