/* SPDX-License-Identifier: Apache-2.0 */
#include "scripted_engine.h"

#include "base/clock.h"
#include "shm/bell.h"

#include <string.h>

static enum tr_role play(enum tr_role r)
{
    enum tr_role before = tr_role;

    tr_role = r;
    return before;
}

static void open_slot(struct tr_sengine *e, uint32_t slot)
{
    tr_ring_reset(e->shm, slot);
    e->slot[slot] = (struct tr_sslot){.gen = tr_ring_at(e->shm, slot)->gen};
    tr_claim_set(e->shm, slot, (struct tr_claim){.state = TR_CLAIM_OPEN, .gen = e->slot[slot].gen});
}

void tr_sengine_start(struct tr_sengine *e, struct tr_shm *s, uint32_t n_open)
{
    memset(e, 0, sizeof(*e));
    e->shm = s;
    enum tr_role before = play(TR_ROLE_ENGINE);
    for (uint32_t i = 0; i < n_open; i++)
        open_slot(e, i);
    atomic_store(&s->rings->heartbeat_ns, tr_now_ns());
    atomic_store(&s->rings->ready, 1);
    tr_role = before;
    tr_sengine_alive(e, true);
}

void tr_sengine_alive(struct tr_sengine *e, bool alive)
{
    enum tr_role before = play(TR_ROLE_SUPERVISOR);

    atomic_store(&e->shm->control->engine_epoch, 1);
    atomic_store(&e->shm->control->engine_alive, alive);
    atomic_store(&e->shm->control->area_alive[0], 1);
    tr_control_publish(e->shm->control);
    tr_role = before;
}

void tr_sengine_drain(struct tr_sengine *e, enum tr_drain drain)
{
    enum tr_role before = play(TR_ROLE_SUPERVISOR);

    atomic_store(&e->shm->control->drain, drain);
    tr_control_publish(e->shm->control);
    tr_role = before;
}

uint32_t tr_sengine_slot(const struct tr_sengine *e, uint32_t k)
{
    return k < e->n_order ? e->order[k] : UINT32_MAX;
}

static void tell(struct tr_sengine *e, uint32_t slot);

static void admit(struct tr_sengine *e, uint32_t area, const struct tr_msg *m)
{
    const struct tr_request *q = tr_request_of(e->shm, area, m->slot);
    struct tr_ring *r = tr_ring_at(e->shm, m->slot);

    tr_ring_set_owner(
        r, (struct tr_owner){.area = area, .epoch = e->shm->my_epoch, .confirmed = true});
    r->of_gen = m->gen;
    r->prompt_len = q->prompt_len;
    r->extra_len = q->extra_len;
    r->stream_rand = q->stream_rand;
    r->arrival_ns = q->arrival_ns;
    r->idem = q->idem;
    r->params = q->params;
    r->group_n = q->group_n;
    r->group_k = q->group_k;
    r->group_lead = q->group_lead;
    r->group_bill_prompt = q->group_bill_prompt;
    memcpy(r->request_id, q->request_id, sizeof(r->request_id));
    memcpy(r->key, q->key, sizeof(r->key));
    memcpy(tr_ring_ids_rw(e->shm, m->slot), tr_request_prompt_of(e->shm, area, m->slot),
           q->prompt_len * sizeof(uint32_t));
    memcpy(tr_ring_extra_rw(e->shm, m->slot), tr_request_extra_of(e->shm, area, m->slot),
           q->extra_len);
    atomic_store(&r->state, TR_WAITING);
    tr_claim_set(e->shm, m->slot,
                 (struct tr_claim){.state = TR_CLAIM_TAKEN, .area = (uint8_t)area, .gen = m->gen});
    e->slot[m->slot].area = area;
    e->slot[m->slot].live = true;
    if (e->n_order < TR_SENGINE_SLOTS)
        e->order[e->n_order++] = m->slot;
    tell(e, m->slot);
}

static void obey(void *arg, uint32_t area, uint32_t slot, uint64_t word)
{
    struct tr_sengine *e = arg;
    struct tr_sslot *s = &e->slot[slot];
    uint32_t flags = tr_cmd_flags(word);
    bool over;

    struct tr_owner o = tr_ring_owner(tr_ring_at(e->shm, slot));
    if (tr_cmd_gen(word) != s->gen || !s->live || o.area != area || !o.confirmed)
        return;
    over = tr_state_terminal(tr_ring_at(e->shm, slot)->state);
    if ((flags & TR_CMD_CANCEL) && !over) {
        s->cancelled = tr_cmd_arg(word);
        s->disconnect_ns = tr_cursor_at(e->shm, area, slot)->disconnect_ns;
        tr_sengine_end(e, slot, TR_CANCELLED, TR_FINISH_NONE, (enum tr_err)s->cancelled);
    } else if ((flags & TR_CMD_FINISH) && !over) {
        s->finish_at = true;
        tr_sengine_end(e, slot, TR_COMPLETED, TR_FINISH_STOP_STRING, TR_OK);
        tr_ring_at(e->shm, slot)->finish_index = tr_cmd_arg(word);
    }
    if (flags & TR_CMD_UNWANTED)
        atomic_store(&tr_ring_at(e->shm, slot)->unwanted, 1);
    if ((flags & TR_CMD_RELEASE) && !s->released) {
        s->released = true;
        e->n_released++;
    }
}

static bool durable(const struct tr_sengine *e, uint32_t slot)
{
    const struct tr_ring *r = tr_ring_at(e->shm, slot);

    return r->bill_seq && tr_bill_is_durable(e->shm, r->bill_seq);
}

void tr_sengine_give(struct tr_sengine *e, uint32_t slot, struct tr_owner to)
{
    enum tr_role before = play(TR_ROLE_ENGINE);

    tr_ring_set_owner(tr_ring_at(e->shm, slot), to);
    tell(e, slot);
    tr_role = before;
}

/* About a stream that is there. */
static void obey_message(struct tr_sengine *e, const struct tr_msg *m)
{
    struct tr_ring *r = tr_ring_at(e->shm, m->slot);

    if (m->kind == TR_MSG_WANTED) {
        atomic_store(&r->asked_ns, tr_now_ns());
    } else if (m->kind == TR_MSG_ADOPT || m->kind == TR_MSG_CONFIRM) {
        e->n_adopted++;
        tr_sengine_give(e, m->slot,
                        (struct tr_owner){.area = 0, .epoch = e->shm->my_epoch, .confirmed = true});
    } else if (tr_state_terminal(r->state)) {
        atomic_store(&r->unwanted, 1);
        tell(e, m->slot);
    } else {
        tr_sengine_end(e, m->slot, TR_CANCELLED, TR_FINISH_NONE, TR_ERR_CANCELLED);
    }
}

/* A request whose key is that of another one. */
static bool turns_away(struct tr_sengine *e, const struct tr_msg *m)
{
    const struct tr_request *q = tr_request_of(e->shm, 0, m->slot);
    bool known = false;

    for (uint32_t i = 0; i < TR_SENGINE_SLOTS && (q->params.flags & TR_REQ_IDEMPOTENT); i++) {
        const struct tr_ring *r = tr_ring_at(e->shm, i);
        known |= e->slot[i].live && !e->slot[i].released && r->state != TR_CANCELLED &&
                 r->state != TR_ERROR && r->idem.key[0] == q->idem.key[0];
    }
    if (!known)
        return false;
    tr_claim_set(e->shm, m->slot, (struct tr_claim){.state = TR_CLAIM_TAKEN, .gen = m->gen});
    tr_ring_at(e->shm, m->slot)->err = TR_ERR_KEY_BUSY;
    open_slot(e, m->slot);
    tell(e, m->slot);
    return true;
}

void tr_sengine_step(struct tr_sengine *e)
{
    struct tr_msg m[TR_SENGINE_SLOTS];
    uint32_t n;

    if (e->deaf)
        return;
    enum tr_role before = play(TR_ROLE_ENGINE);
    atomic_store(&e->shm->rings->heartbeat_ns, tr_now_ns());
    while ((n = tr_subq_peek(e->shm, 0, m, TR_SENGINE_SLOTS))) {
        for (uint32_t i = 0; i < n; i++) {
            if (m[i].kind == TR_MSG_SUBMIT && !turns_away(e, &m[i]))
                admit(e, 0, &m[i]);
            else if (m[i].kind != TR_MSG_SUBMIT)
                obey_message(e, &m[i]);
        }
        tr_subq_consume(e->shm, 0, n);
    }
    tr_cmd_sweep(e->shm, 0, obey, e);
    for (uint32_t i = 0; i < TR_SENGINE_SLOTS && e->free_slots; i++)
        if (e->slot[i].live && e->slot[i].released && durable(e, i))
            open_slot(e, i);
    tr_role = before;
}

static void push_lp(struct tr_sengine *e, uint32_t slot, uint32_t id, bool none)
{
    struct tr_ring *r = tr_ring_at(e->shm, slot);
    struct tr_lp lp = {.id = id, .logprob = none ? 0.0f : -0.5f};

    lp.n_top = none ? 0 : r->params.n_top;
    for (uint32_t k = 0; k < lp.n_top; k++) {
        lp.top_id[k] = 'a' + k;
        lp.top_logprob[k] = -0.5f - (float)k;
    }
    tr_lpring_push(e->shm, slot, &lp);
}

/* The owner's frontend is to look at the ring. */
static void tell(struct tr_sengine *e, uint32_t slot)
{
    enum tr_role before = play(TR_ROLE_ENGINE);

    tr_news_post(e->shm, 0, slot / 64, 1ull << (slot % 64));
    tr_bell_ring_area(e->shm, 0);
    tr_role = before;
}

uint32_t tr_sengine_say(struct tr_sengine *e, uint32_t slot, const uint32_t *ids, uint32_t n)
{
    struct tr_ring *r = tr_ring_at(e->shm, slot);
    bool lp = r->params.flags & TR_REQ_LOGPROBS;
    enum tr_role before = play(TR_ROLE_ENGINE);
    uint32_t k = 0;

    atomic_store(&r->state, TR_RUNNING);
    for (; k < n; k++) {
        if (lp && !tr_lpring_room(e->shm, slot))
            break;
        if (lp)
            push_lp(e, slot, ids[k], false);
        tr_ring_push(e->shm, slot, ids[k], 0);
    }
    tell(e, slot);
    tr_role = before;
    return k;
}

uint32_t tr_sengine_text(struct tr_sengine *e, uint32_t slot, const char *text)
{
    uint32_t n = 0;

    for (; text[n]; n++) {
        uint32_t id = (uint8_t)text[n];
        if (!tr_sengine_say(e, slot, &id, 1))
            break;
    }
    return n;
}

uint32_t tr_sengine_echo(struct tr_sengine *e, uint32_t slot, uint32_t from)
{
    struct tr_ring *r = tr_ring_at(e->shm, slot);
    enum tr_role before = play(TR_ROLE_ENGINE);

    for (; from < r->prompt_len && tr_lpring_room(e->shm, slot); from++)
        push_lp(e, slot, tr_ring_ids(e->shm, slot)[from], from == 0);
    tell(e, slot);
    tr_role = before;
    return from;
}

void tr_sengine_state(struct tr_sengine *e, uint32_t slot, enum tr_state state, uint32_t queue_pos,
                      uint32_t prefill_done)
{
    struct tr_ring *r = tr_ring_at(e->shm, slot);

    atomic_store(&r->queue_pos, queue_pos);
    atomic_store(&r->prefill_done, prefill_done);
    atomic_store(&r->state, state);
    tell(e, slot);
}

/* One record when the last of the group has ended. */
static void bill(struct tr_sengine *e, uint32_t slot)
{
    const struct tr_ring *r = tr_ring_at(e->shm, slot);
    struct tr_bill b = {.slot = r->group_lead, .stream_rand = r->stream_rand};
    uint32_t ended = 0;

    for (uint32_t i = 0; i < TR_SENGINE_SLOTS; i++) {
        const struct tr_ring *o = tr_ring_at(e->shm, i);
        ended += e->slot[i].live && o->stream_rand == r->stream_rand && tr_state_terminal(o->state);
    }
    if (ended < r->group_n)
        return;
    for (uint32_t i = 0; i < TR_SENGINE_SLOTS; i++) {
        struct tr_ring *o = tr_ring_at(e->shm, i);
        if (e->slot[i].live && o->stream_rand == r->stream_rand)
            atomic_store(&o->bill_seq, tr_bill_next(e->shm));
    }
    memcpy(b.request_id, r->request_id, sizeof(b.request_id));
    tr_bill_push(e->shm, &b, NULL);
}

void tr_sengine_end(struct tr_sengine *e, uint32_t slot, enum tr_state state, enum tr_finish finish,
                    enum tr_err err)
{
    struct tr_ring *r = tr_ring_at(e->shm, slot);
    enum tr_role before = play(TR_ROLE_ENGINE);

    r->finish = finish;
    r->err = err;
    r->finish_index = r->published;
    r->finished_ns = tr_now_ns();
    tr_ring_end(e->shm, slot, state);
    bill(e, slot);
    tell(e, slot);
    tell(e, r->group_lead); /* its record is there with the last of them */
    tr_role = before;
}

void tr_sengine_durable(struct tr_sengine *e)
{
    enum tr_role before = play(TR_ROLE_LEDGER);

    tr_bill_durable(e->shm, atomic_load(&e->shm->accounting->tail));
    tr_role = before;
}
