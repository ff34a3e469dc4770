/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/admit.c - see admit.h. */
#include "frontend/admit.h"

#include "base/assert.h"
#include "base/fault.h"
#include "frontend/key.h"

#include <string.h>

/* A record that is older than this waits for more than its group's turn. */
enum { BACKLOG_US = 100 * 1000 };

/* Output tokens of a prompt: what was asked for, limited by the context. */
static uint32_t limit_tokens(const struct tr_fe *fe, const struct tr_ask *a, size_t prompt_len)
{
    uint32_t room = fe->shm->config.n_ctx - (uint32_t)prompt_len;

    return a->max_tokens < 0 || a->max_tokens > room ? room : (uint32_t)a->max_tokens;
}

/* What is left of the former request in this place. */
static void wipe_rest(struct tr_shm *s, uint32_t slot, uint32_t prompt_len, uint32_t extra_len)
{
    const struct tr_request *old = tr_request_at(s, slot);
    uint32_t *ids = tr_request_prompt(s, slot);

    if (old->prompt_len > prompt_len && old->prompt_len <= s->config.n_ctx)
        memset(ids + prompt_len, 0, (old->prompt_len - prompt_len) * sizeof(*ids));
    if (old->extra_len > extra_len && old->extra_len <= TR_EXTRA_BYTES)
        tr_shm_wipe(tr_request_extra(s, slot) + extra_len, old->extra_len - extra_len);
}

/* Of its key, and behind that. */
static int32_t priority(const struct tr_ask *a)
{
    int32_t p = a->params.priority + (a->who ? a->who->priority : 0);

    return p < -TR_PRIORITY_MAX ? -TR_PRIORITY_MAX : p > TR_PRIORITY_MAX ? TR_PRIORITY_MAX : p;
}

static int write_request(struct tr_fe *fe, const struct tr_ask *a, const struct tr_admitted *ad,
                         uint32_t k, uint64_t seed)
{
    struct tr_shm *s = fe->shm;
    struct tr_request *r = tr_request_at(s, ad->slot[k]);
    const struct tr_prompt *p = &a->prompts[k / a->n];
    int extra = tr_ask_pack(a, tr_request_extra(s, ad->slot[k]), TR_EXTRA_BYTES);

    if (extra < 0)
        return extra;
    wipe_rest(s, ad->slot[k], (uint32_t)p->n, (uint32_t)extra);
    *r = (struct tr_request){
        .gen = ad->gen[k],
        .prompt_len = (uint32_t)p->n,
        .extra_len = (uint32_t)extra,
        .stream_rand = ad->rand,
        .arrival_ns = a->arrival_ns,
        .idem = a->idem,
        .params = a->params,
        .group_n = ad->n,
        .group_k = k,
        .group_lead = ad->slot[0],
        .group_prompts = a->n_prompts,
        .group_bill_prompt = k % a->n == 0,
    };
    r->params.seed = seed;
    r->params.weight = a->who ? a->who->weight : 1;
    r->params.priority = priority(a);
    r->params.choice = k % a->n;
    r->params.max_tokens = limit_tokens(fe, a, p->n);
    if (r->params.min_tokens > r->params.max_tokens)
        r->params.min_tokens = r->params.max_tokens;
    memcpy(r->request_id, a->request_id, sizeof(r->request_id));
    memcpy(r->key, a->key, sizeof(r->key));
    r->trace = a->trace;
    r->trace.operation = a->chat ? TR_OPERATION_CHAT : TR_OPERATION_TEXT;
    r->stage = a->stage;
    uint32_t *ids = tr_request_prompt(s, ad->slot[k]);
    for (size_t i = 0; i < p->n; i++)
        ids[i] = (uint32_t)p->ids[i];
    tr_cursor_reset(s, ad->slot[k], ad->gen[k]);
    return 0;
}

static void give_back(struct tr_fe *fe, const struct tr_admitted *ad)
{
    for (uint32_t k = 0; k < ad->n; k++) {
        tr_request_wipe(fe->shm, ad->slot[k], ad->gen[k]);
        tr_claim_give(fe->shm, ad->slot[k], ad->gen[k]);
    }
}

/* Relaxed: a moment's difference decides nothing that could not have gone the other way. */
static uint64_t engine_says(const struct tr_fe *fe, enum tr_stat_id id)
{
    return atomic_load_explicit(&fe->shm->stat[TR_STAT_ENGINE]->value[id], memory_order_relaxed);
}

/* Why no slot is open: there is no engine that could open one, as many requests as may be, or too few
 * because ended ones wait for the ledger.  By the engine's own figures: a look at every ring would cost,
 * for each refusal, those who are served. */
static enum tr_err why_none(const struct tr_fe *fe)
{
    uint64_t live = engine_says(fe, TR_STAT_RUNNING) + engine_says(fe, TR_STAT_WAITING);
    if (!tr_fe_served(fe))
        return TR_ERR_ENGINE_DOWN;
    bool behind = fe->shm->config.ledger && engine_says(fe, TR_STAT_LEDGER_LAG_US) > BACKLOG_US;

    return behind && live < fe->shm->config.n_admit ? TR_ERR_LEDGER_BACKLOG : TR_ERR_OVERLOADED;
}

enum tr_err tr_admit_look(const struct tr_fe *fe)
{
    enum tr_err e = tr_fe_state(fe);

    return e || tr_claim_any(fe->shm) ? e : why_none(fe);
}

enum tr_err tr_admit(struct tr_fe *fe, const struct tr_ask *a, struct tr_admitted *out)
{
    struct tr_msg msg[TR_MAX_CHOICES];
    enum tr_err e = tr_fe_state(fe);

    if (e)
        return e;
    out->n = a->n_prompts * a->n;
    TR_ASSERT(out->n >= 1 && out->n <= TR_MAX_CHOICES);
    if (tr_claim_take(fe->shm, out->n, out->slot, out->gen))
        return why_none(fe);
    out->rand = tr_fe_random();
    /* One seed for all choices: their draws differ by `choice`. */
    uint64_t seed = a->has_seed ? a->params.seed : tr_fe_random();
    TR_FAULT_FOR(FRONTEND_ADMIT_CLAIMED, seed);
    for (uint32_t k = 0; k < out->n; k++) {
        if (write_request(fe, a, out, k, seed)) {
            give_back(fe, out);
            return TR_ERR_INTERNAL;
        }
        msg[k] = (struct tr_msg){.kind = TR_MSG_SUBMIT,
                                 .slot = out->slot[k],
                                 .gen = out->gen[k],
                                 .stream_rand = out->rand};
    }
    TR_FAULT_FOR(FRONTEND_ADMIT_WRITTEN, seed);
    if (tr_subq_push(fe->shm, msg, out->n)) {
        give_back(fe, out);
        return TR_ERR_OVERLOADED;
    }
    out->submitted = tr_subq_pushed(fe->shm);
    TR_FAULT_FOR(FRONTEND_ADMIT_PUSHED, seed);
    return TR_OK;
}
