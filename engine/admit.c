/* SPDX-License-Identifier: Apache-2.0 */
/* engine/admit.c - from a frontend's submission to a request in its ring.
 *
 * Everything in an area is input.  A request is copied first and then checked, once, in the copy;
 * what is wrong ends it with bad_submission in its own slot.  A message whose slot the sender does
 * not hold touches no ring at all: there is nobody to answer, so it is counted and dropped. */
#include "engine/sched_priv.h"

#include "base/clock.h"
#include "base/fault.h"

#include <math.h>
#include <string.h>

#define KNOWN_FLAGS                                                                                \
    (TR_REQ_STREAM | TR_REQ_LOGPROBS | TR_REQ_ECHO_LOGPROBS | TR_REQ_IGNORE_EOS |                  \
     TR_REQ_RESUMABLE | TR_REQ_STOP_STRINGS | TR_REQ_CANCEL_KEEPS | TR_REQ_IDEMPOTENT)

/* ---- checks ---- */

static bool in_range(double v, double lo, double hi)
{
    return v >= lo && v <= hi; /* false for NaN */
}

static bool good_params(const struct tr_params *p)
{
    return isfinite(p->temperature) && p->temperature >= 0 && in_range(p->top_p, 0, 1) &&
           p->top_p > 0 && in_range(p->min_p, 0, 1) && in_range(p->presence_penalty, -2, 2) &&
           in_range(p->frequency_penalty, -2, 2) && isfinite(p->repetition_penalty) &&
           p->repetition_penalty > 0 && p->priority >= -TR_PRIORITY_MAX &&
           p->priority <= TR_PRIORITY_MAX && p->weight >= 1 && p->weight <= TR_WEIGHT_MAX &&
           p->n_top <= TR_MAX_TOP && !(p->flags & ~(uint32_t)(KNOWN_FLAGS));
}

/* A key is that of one request whose answer can be told again, and is there if it says so. */
static bool good_idem(const struct tr_request *req)
{
    if (!(req->params.flags & TR_REQ_IDEMPOTENT))
        return true;
    return req->idem.key[0] && req->group_n == 1 &&
           !(req->params.flags & (TR_REQ_LOGPROBS | TR_REQ_ECHO_LOGPROBS));
}

/* Copies printable ASCII up to a NUL; false and what was good so far for anything else. */
static bool copy_text(char *out, const char *in, size_t cap)
{
    memset(out, 0, cap);
    for (size_t i = 0; i < cap; i++) {
        if (in[i] == '\0')
            return true;
        if (in[i] < 0x20 || in[i] > 0x7e || i + 1 == cap)
            return false;
        out[i] = in[i];
    }
    return false;
}

/* The prompt, copied and then checked in the copy. */
static bool copy_prompt(struct tr_sched *sc, uint32_t area, uint32_t slot, uint32_t len)
{
    uint32_t *ids = tr_ring_ids_rw(sc->s, slot);
    memcpy(ids, tr_request_prompt_of(sc->s, area, slot), len * sizeof(*ids));
    for (uint32_t i = 0; i < len; i++)
        if (ids[i] >= sc->s->config.n_vocab)
            return false;
    return true;
}

static void no_extra(struct tr_sched *sc, uint32_t slot)
{
    struct tr_extra *e = &sc->extra[slot];
    e->n_bias = e->n_stop = e->grammar_len = 0;
    tr_constrain_drop(sc->constrain, slot);
}

/* Checked as a whole; its grammar, if it has one, is at its beginning. */
static bool unpack_extra(struct tr_sched *sc, uint32_t slot, uint32_t len)
{
    const uint8_t *bytes = tr_ring_extra_rw(sc->s, slot);
    struct tr_extra *e = &sc->extra[slot];
    tr_constrain_drop(sc->constrain, slot);
    return tr_extra_unpack(bytes, len, sc->s->config.n_vocab, e) == 0 &&
           (!e->grammar_len ||
            tr_constrain_open(sc->constrain, slot, e->grammar, e->grammar_len) == 0);
}

static bool copy_extra(struct tr_sched *sc, uint32_t area, uint32_t slot, uint32_t len)
{
    memcpy(tr_ring_extra_rw(sc->s, slot), tr_request_extra_of(sc->s, area, slot), len);
    return unpack_extra(sc, slot, len);
}

/* ---- into the ring ---- */

/* What was copied of a request that is then refused: the ring will not know how long it was. */
static void wipe(struct tr_sched *sc, uint32_t slot, const struct tr_request *req)
{
    if (req->prompt_len <= sc->s->config.n_ctx)
        memset(tr_ring_ids_rw(sc->s, slot), 0, req->prompt_len * sizeof(uint32_t));
    if (req->extra_len <= TR_EXTRA_BYTES)
        tr_shm_wipe(tr_ring_extra_rw(sc->s, slot), req->extra_len);
}

/* Fills the fixed part of the ring from `req`, a copy.  False if the request is malformed; the ring
 * then tells a request without prompt, which is safe to account. */
static bool fill_ring(struct tr_sched *sc, uint32_t area, uint32_t slot,
                      const struct tr_request *req)
{
    struct tr_ring *r = tr_ring_at(sc->s, slot);
    uint32_t n_ctx = sc->s->config.n_ctx;
    bool ok = copy_text(r->request_id, req->request_id, sizeof(r->request_id));
    ok &= copy_text(r->key, req->key, sizeof(r->key));
    memcpy(&r->trace, &req->trace, offsetof(struct tr_trace, state));
    ok &= copy_text(r->trace.state, req->trace.state, sizeof(r->trace.state));
    r->stage = req->stage;
    ok = ok && req->prompt_len >= 1 && req->prompt_len <= n_ctx &&
         req->params.max_tokens <= n_ctx - req->prompt_len && req->extra_len <= TR_EXTRA_BYTES &&
         good_params(&req->params) && good_idem(req) &&
         !(req->group_n > 1 && (req->params.flags & TR_REQ_RESUMABLE)) &&
         copy_prompt(sc, area, slot, req->prompt_len) &&
         (req->extra_len == 0 || copy_extra(sc, area, slot, req->extra_len));
    if (!ok)
        wipe(sc, slot, req);
    r->of_gen = atomic_load_explicit(&r->gen, memory_order_relaxed);
    tr_ring_set_owner(r,
                      (struct tr_owner){.area = area, .epoch = sc->epoch[area], .confirmed = true});
    r->stream_rand = req->stream_rand;
    r->arrival_ns = req->arrival_ns && req->arrival_ns < sc->now ? req->arrival_ns : sc->now;
    r->group_n = req->group_n;
    r->group_k = req->group_k;
    r->group_lead = req->group_lead;
    r->group_bill_prompt = ok && req->group_bill_prompt;
    r->prompt_len = ok ? req->prompt_len : 0;
    r->extra_len = ok ? req->extra_len : 0;
    r->params = ok ? req->params : (struct tr_params){0};
    r->idem = ok && (req->params.flags & TR_REQ_IDEMPOTENT) ? req->idem : (struct tr_idem){0};
    atomic_store_explicit(&r->admitted_ns, sc->now, memory_order_relaxed);
    return ok;
}

/* The scheduler's own record of a ring that has just been filled. */
static void fill_seq(struct tr_sched *sc, uint32_t area, uint32_t slot, uint32_t lead)
{
    struct tr_seq *q = &sc->seq[slot];
    const struct tr_ring *r = tr_ring_at(sc->s, slot);
    *q = (struct tr_seq){.slot = slot,
                         .gen = q->gen,
                         .use = q->use,
                         .area = area,
                         .epoch = sc->epoch[area],
                         .confirmed = true,
                         .order = tr_seq_order(r->params.priority, ++sc->next_order),
                         .key = TR_NO_KEY,
                         .priority = r->params.priority,
                         .prompt_len = r->prompt_len,
                         .max_tokens = r->params.max_tokens,
                         .queue_pos = TR_QUEUE_UNTOLD,
                         .flags = r->params.flags,
                         .lead = lead,
                         .group_next = TR_NO_SLOT};
    if (!r->extra_len)
        no_extra(sc, slot);
}

/* Appends the slot to its lead's group. */
static void join(struct tr_sched *sc, uint32_t slot, uint32_t lead)
{
    uint32_t at = lead;
    if (slot != lead) {
        while (sc->seq[at].group_next != TR_NO_SLOT)
            at = sc->seq[at].group_next;
        sc->seq[at].group_next = slot;
    }
    sc->seq[lead].group_left++;
}

static void admit_slot(struct tr_sched *sc, uint32_t area, uint32_t slot, uint32_t lead)
{
    fill_seq(sc, area, slot, lead);
    tr_twin_note(sc, slot, true);
    join(sc, slot, lead);
    tr_slot_stat_admit(sc->s, slot);
    tr_seq_move(sc->s, &sc->seq[slot], TR_WAITING);
    TR_FAULT_FOR(ENGINE_ADMIT_STATE, tr_ring_at(sc->s, slot)->params.seed);
    tr_offer_take(sc, slot);
    TR_FAULT_FOR(ENGINE_ADMIT_CLAIM, tr_ring_at(sc->s, slot)->params.seed);
    tr_sched_tell(sc, &sc->seq[slot]);
    sc->progress = true;
}

static void end_as(struct tr_sched *sc, uint32_t slot, enum tr_err err)
{
    tr_settle_end(sc, &sc->seq[slot], (struct tr_end){.state = TR_ERROR, .err = err});
}

/* A command posted before the submission was taken found no request; its dirty bit may be gone. */
static void obey_early(struct tr_sched *sc, uint32_t slot)
{
    struct tr_seq *q = &sc->seq[slot];
    tr_hear_obey(sc, q, tr_cmd_word(sc->s, q->area, slot));
}

static void refuse(struct tr_sched *sc)
{
    tr_stat_add(sc->stat, TR_STAT_REFUSED_SUBMISSIONS, 1);
    sc->progress = true;
}

/* The message names a slot this frontend holds, and the request in it says the same. */
static bool take_copy(struct tr_sched *sc, uint32_t area, const struct tr_msg *m,
                      struct tr_request *req)
{
    if (m->kind != TR_MSG_SUBMIT ||
        !tr_offer_claimed_by(sc, m->slot, m->gen, area, sc->epoch[area]))
        return false;
    memcpy(req, tr_request_of(sc->s, area, m->slot), sizeof(*req));
    return true;
}

/* A slot of the sender whose request, or group, makes no sense: a request of its own that ends. */
static void admit_bad(struct tr_sched *sc, uint32_t area, uint32_t slot,
                      const struct tr_request *from)
{
    struct tr_request req = *from;
    req.group_n = 1;
    req.group_k = 0;
    req.group_lead = slot;
    req.prompt_len = 0;
    fill_ring(sc, area, slot, &req);
    admit_slot(sc, area, slot, slot);
    refuse(sc);
    end_as(sc, slot, TR_ERR_BAD_SUBMISSION);
    obey_early(sc, slot);
}

/* ---- groups ---- */

static bool is_listed(const struct tr_msg *m, uint32_t n, uint32_t slot)
{
    for (uint32_t i = 0; i < n; i++)
        if (m[i].slot == slot)
            return true;
    return false;
}

/* Whether m[0, n) are one group; copies of its requests are then in sc->reqs. */
static bool is_group(struct tr_sched *sc, uint32_t area, const struct tr_msg *m, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        struct tr_request *req = &sc->reqs[k];
        if (k > 0 && (is_listed(m, k, m[k].slot) || !take_copy(sc, area, &m[k], req)))
            return false;
        if (req->gen != m[k].gen || req->group_n != n || req->group_k != k ||
            req->group_lead != m[0].slot)
            return false;
    }
    return true;
}

/* Entry 0 tells about a token that nothing came before (shm/lpring.h, I3).  No room in an empty ring
 * means that the reader's count is nonsense. */
bool tr_admit_first_lp(struct tr_sched *sc, const struct tr_seq *q)
{
    struct tr_lp none = {.id = tr_ring_ids(sc->s, q->slot)[0]};
    const struct tr_ring *r = tr_sched_ring(sc, q);
    return !(q->flags & TR_REQ_ECHO_LOGPROBS) ||
           atomic_load_explicit(&r->lp_tail, memory_order_relaxed) ||
           tr_lpring_push(sc->s, q->slot, &none) == 0;
}

static void enter(struct tr_sched *sc, struct tr_seq *q)
{
    const struct tr_ring *r = tr_sched_ring(sc, q);
    q->key = tr_fair_take(sc->fair, r->key, r->params.weight);
    tr_sched_activate(sc, q);
}

static void admit_group(struct tr_sched *sc, uint32_t area, const struct tr_msg *m, uint32_t n)
{
    bool ok = true;
    for (uint32_t k = 0; k < n; k++)
        ok &= fill_ring(sc, area, m[k].slot, &sc->reqs[k]);
    TR_FAULT_FOR(ENGINE_ADMIT_COPIED, sc->reqs[0].params.seed);
    for (uint32_t k = 0; k < n; k++)
        admit_slot(sc, area, m[k].slot, m[0].slot);
    if (!ok)
        refuse(sc);
    for (uint32_t k = 0; k < n; k++) {
        struct tr_seq *q = &sc->seq[m[k].slot];
        if (ok && tr_admit_first_lp(sc, q))
            enter(sc, q);
        else
            end_as(sc, q->slot, TR_ERR_BAD_SUBMISSION);
        obey_early(sc, q->slot);
    }
}

/* Takes the request or group at m[0]; how many messages it was.  0: its rest is not in sight. */
static uint32_t take_submission(struct tr_sched *sc, uint32_t area, const struct tr_msg *m,
                                uint32_t n, bool more)
{
    struct tr_request *lead = &sc->reqs[0];
    if (!take_copy(sc, area, &m[0], lead)) {
        refuse(sc);
        tr_sched_tell_area(sc, area, m[0].slot); /* its claim may have been overwritten */
        return 1;
    }
    uint32_t group_n = lead->group_n;
    if (group_n > n && group_n <= TR_MAX_CHOICES && more)
        return 0;
    if (group_n < 1 || group_n > n || !is_group(sc, area, m, group_n)) {
        admit_bad(sc, area, m[0].slot, lead);
        return 1;
    }
    if (group_n == 1 && tr_twin_has(sc, lead)) {
        tr_offer_turn_away(sc, m[0].slot, TR_ERR_KEY_BUSY);
        tr_sched_tell_area(sc, area, m[0].slot);
        sc->progress = true;
        return 1;
    }
    admit_group(sc, area, m, group_n);
    return group_n;
}

/* About the stream of another frontend; false if the message is a submission. */
static bool take_foreign(struct tr_sched *sc, uint32_t area, const struct tr_msg *m)
{
    if (m->kind == TR_MSG_CANCEL || m->kind == TR_MSG_WANTED) {
        if (m->kind == TR_MSG_CANCEL ? !tr_handover_cancel(sc, m) : !tr_handover_wanted(sc, m))
            refuse(sc);
        return true;
    }
    if (m->kind == TR_MSG_ADOPT || m->kind == TR_MSG_CONFIRM) {
        if (!tr_handover_adopt(sc, area, m))
            refuse(sc);
        tr_sched_tell_area(sc, area, m->slot); /* whatever came of it */
        return true;
    }
    return false;
}

/* One look into the queue of an area; false if it was empty. */
static bool admit_area(struct tr_sched *sc, uint32_t area)
{
    struct tr_msg m[TR_MAX_CHOICES];
    uint32_t n = tr_subq_peek(sc->s, area, m, TR_MAX_CHOICES), at = 0;
    if (!n)
        return false;
    /* The turn may have begun before they came. */
    sc->now = tr_now_ns();
    while (at < n) {
        uint32_t used = 1;
        if (!take_foreign(sc, area, &m[at]))
            used = take_submission(sc, area, m + at, n - at, at > 0 && n == TR_MAX_CHOICES);
        if (!used)
            break;
        at += used;
        tr_subq_consume(sc->s, area, used);
        TR_FAULT(ENGINE_ADMIT_HEAD);
    }
    sc->progress = true;
    return true;
}

void tr_admit_all(struct tr_sched *sc)
{
    struct tr_msg first;
    for (uint32_t a = 0; a < sc->s->config.n_areas; a++) {
        if (!tr_subq_peek(sc->s, a, &first, 1))
            continue;
        /* The queue may be a new frontend's: its epoch was published before its first push.  A
         * dead one's queue was emptied before its death was acknowledged: what stands here now
         * is somebody's whose epoch we have not seen yet. */
        tr_sched_read_control(sc);
        if (sc->alive[a])
            admit_area(sc, a);
    }
}

void tr_admit_rest(struct tr_sched *sc, uint32_t area)
{
    /* Bounded: a queue that never ends is a dead frontend's nonsense tail. */
    for (uint32_t i = 0; i <= tr_layout_subq_cap(&sc->s->config) && admit_area(sc, area); i++)
        ;
}

/* ---- what a former engine was taking ---- */

static bool is_taken(const struct tr_sched *sc, const struct tr_msg *m)
{
    return m->kind == TR_MSG_SUBMIT && m->slot < sc->s->config.n_slots &&
           sc->seq[m->slot].use == TR_SLOT_LIVE && sc->seq[m->slot].gen == m->gen;
}

/* Copied and checked as choice k of that group, and not yet admitted: all of a group are copied before
 * the first is. */
static bool is_copied(const struct tr_sched *sc, const struct tr_msg *m, uint32_t lead, uint32_t k)
{
    if (m->kind != TR_MSG_SUBMIT || m->slot >= sc->s->config.n_slots)
        return false;
    const struct tr_seq *q = &sc->seq[m->slot];
    const struct tr_ring *r = tr_sched_ring(sc, q);
    return q->use == TR_SLOT_OFFERED && q->gen == m->gen && r->of_gen == q->gen &&
           r->group_lead == lead && r->group_k == k &&
           r->group_n == tr_ring_at(sc->s, lead)->group_n;
}

void tr_admit_torn(struct tr_sched *sc, uint32_t area)
{
    struct tr_msg m[TR_MAX_CHOICES];
    uint32_t n = tr_subq_peek(sc->s, area, m, TR_MAX_CHOICES), k = 1;
    if (!n || !is_taken(sc, &m[0]))
        return;
    uint32_t lead = m[0].slot, group_n = tr_ring_at(sc->s, lead)->group_n;
    for (; k < n && k < group_n; k++) {
        if (is_copied(sc, &m[k], lead, k))
            admit_slot(sc, area, m[k].slot, lead);
        else if (!is_taken(sc, &m[k]) || sc->seq[m[k].slot].lead != lead)
            break;
    }
    tr_subq_consume(sc->s, area, k);
}

static bool are_ids(const struct tr_sched *sc, const uint32_t *ids, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (ids[i] >= sc->s->config.n_vocab)
            return false;
    return true;
}

bool tr_admit_is_sound(struct tr_sched *sc, uint32_t slot)
{
    const struct tr_ring *r = tr_ring_at(sc->s, slot);
    uint32_t n_ctx = sc->s->config.n_ctx;
    uint64_t n_out = atomic_load_explicit(&r->published, memory_order_relaxed);
    if (r->prompt_len < 1 || r->prompt_len > n_ctx ||
        r->params.max_tokens > n_ctx - r->prompt_len || n_out > r->params.max_tokens ||
        r->extra_len > TR_EXTRA_BYTES || !good_params(&r->params) ||
        !memchr(r->key, '\0', sizeof(r->key)))
        return false;
    if (!r->extra_len)
        no_extra(sc, slot);
    return are_ids(sc, tr_ring_ids(sc->s, slot), r->prompt_len + n_out) &&
           (!r->extra_len || unpack_extra(sc, slot, r->extra_len));
}
