/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_debug.c - GET /debug/streams: which requests there are, and what keys use.
 *
 * For people who run the service (gate.h): counts, times, states, ids of requests and names of keys.  No
 * text, no token, and of a stream's id no random bits, so nothing here resumes or cancels anything.
 *
 * Any frontend answers for all of them, from the rings.  What one question may cost the others is bounded:
 * it looks at so many slots, names so many requests, and says from which slot on to ask again. */
#include "frontend/api.h"
#include "frontend/key.h"

#include "base/clock.h"
#include "shm/quota.h"

#include <errno.h>
#include <string.h>

enum { LOOK_SLOTS = 4096, TELL_STREAMS = 512 };

/* ---- a stream ---- */

/* What is told of a slot, copied; the ring may be wiped while we look. */
struct seen {
    struct tr_params params;
    struct tr_owner owner;
    uint32_t slot, gen, state, prompt_len, done, cached, preemptions, queue, err, choice, choices;
    uint64_t published, arrival_ns, first_token_ns, finished_ns;
    char request_id[TR_ID_BYTES], key[TR_KEY_BYTES];
};

static uint32_t load32(const _Atomic uint32_t *p)
{
    return atomic_load_explicit(p, memory_order_relaxed);
}

static bool look(const struct tr_fe *fe, uint32_t slot, struct seen *out)
{
    const struct tr_ring *r = tr_ring_at(fe->shm, slot);
    uint32_t state;

    out->gen = tr_ring_request(fe->shm, slot);
    int64_t n = out->gen ? tr_ring_read(fe->shm, slot, out->gen, &state) : -1;
    if (n < 0 || state == TR_FREE)
        return false;
    out->slot = slot;
    out->state = state;
    out->published = (uint64_t)n;
    out->params = r->params;
    out->owner = tr_ring_owner(r);
    out->prompt_len = r->prompt_len;
    out->done = load32(&r->prefill_done);
    out->cached = load32(&r->cached_tokens);
    out->preemptions = load32(&r->preemptions);
    out->queue = load32(&r->queue_pos);
    out->choice = r->group_k;
    out->choices = r->group_n;
    out->arrival_ns = r->arrival_ns;
    out->first_token_ns = atomic_load_explicit(&r->first_token_ns, memory_order_relaxed);
    out->finished_ns = tr_state_terminal(state) ? r->finished_ns : 0;
    out->err = tr_state_terminal(state) ? r->err : TR_OK;
    memcpy(out->request_id, r->request_id, sizeof(out->request_id) - 1);
    memcpy(out->key, r->key, sizeof(out->key) - 1);
    out->request_id[sizeof(out->request_id) - 1] = out->key[sizeof(out->key) - 1] = '\0';
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&r->gen, memory_order_relaxed) == out->gen;
}

static const char *state_name(uint32_t state)
{
    static const char *const live[] = {[TR_WAITING] = "waiting",
                                       [TR_PREFILL] = "prefill",
                                       [TR_RUNNING] = "running",
                                       [TR_PARKED] = "parked"};
    const char *name = tr_state_name(state);

    return name ? name : state < sizeof(live) / sizeof(live[0]) && live[state] ? live[state] : "?";
}

/* Seconds since then; null: it has not been. */
static void age(struct tr_emit *e, const char *key, uint64_t now, uint64_t then)
{
    tr_emit_key(e, key);
    if (then)
        tr_emit_f64(e, then < now ? (double)(now - then) / 1e9 : 0);
    else
        tr_emit_null(e);
}

static void emit_stream(struct tr_emit *e, const struct seen *v, uint64_t now)
{
    tr_emit_obj(e);
    tr_emit_ku64(e, "slot", v->slot);
    tr_emit_kstr(e, "state", state_name(v->state));
    tr_emit_kstr(e, "reason", v->err ? tr_err_info((enum tr_err)v->err)->code : NULL);
    tr_emit_kstr(e, "request_id", v->request_id);
    tr_emit_kstr(e, "key", v->key);
    tr_emit_ki64(e, "priority", v->params.priority);
    tr_emit_key(e, "queue_position");
    if (v->state == TR_WAITING && v->queue != TR_QUEUE_UNTOLD)
        tr_emit_u64(e, v->queue);
    else
        tr_emit_null(e);
    tr_emit_ku64(e, "choice", v->choice);
    tr_emit_ku64(e, "choices", v->choices);
    tr_emit_ku64(e, "prompt_tokens", v->prompt_len);
    tr_emit_ku64(e, "cached_tokens", v->cached);
    tr_emit_ku64(e, "prefilled", v->done);
    tr_emit_ku64(e, "completion_tokens", v->published);
    tr_emit_ku64(e, "max_tokens", v->params.max_tokens);
    tr_emit_ku64(e, "preemptions", v->preemptions);
    tr_emit_kbool(e, "resumable", v->params.flags & TR_REQ_RESUMABLE);
    tr_emit_key(e, "frontend_area");
    if (v->owner.area < TR_MAX_AREAS)
        tr_emit_u64(e, v->owner.area);
    else
        tr_emit_null(e);
    age(e, "age_s", now, v->arrival_ns);
    age(e, "first_token_age_s", now, v->first_token_ns);
    age(e, "finished_age_s", now, v->finished_ns);
    tr_emit_obj_end(e);
}

/* From slot `from` on; the slot to go on from, or n_slots. */
static uint32_t emit_streams(struct tr_emit *e, const struct tr_fe *fe, uint32_t from, uint64_t now)
{
    uint32_t n = fe->shm->config.n_slots, slot = from, told = 0;
    struct seen v;

    tr_emit_key(e, "data");
    tr_emit_arr(e);
    for (; slot < n && slot - from < LOOK_SLOTS && told < TELL_STREAMS; slot++)
        if (look(fe, slot, &v)) {
            emit_stream(e, &v, now);
            told++;
        }
    tr_emit_arr_end(e);
    return slot;
}

/* ---- keys ---- */

static void emit_key(struct tr_emit *e, const struct tr_key *k, uint64_t running,
                     const struct tr_quota_minute *m)
{
    tr_emit_obj(e);
    tr_emit_kstr(e, "name", k->name);
    tr_emit_ku64(e, "streams", running);
    tr_emit_ku64(e, "max_streams", k->max_streams);
    tr_emit_ku64(e, "requests", m->all_requests);
    tr_emit_ku64(e, "requests_per_min", k->requests_per_min);
    tr_emit_ku64(e, "tokens", m->all_tokens);
    tr_emit_ku64(e, "tokens_per_min", k->tokens_per_min);
    tr_emit_ki64(e, "priority", k->priority);
    tr_emit_ku64(e, "weight", k->weight);
    tr_emit_obj_end(e);
}

/* Those that have done something in the last minute. */
static void emit_keys(struct tr_emit *e, const struct tr_fe *fe, uint64_t now)
{
    const struct tr_keys *keys = fe->cfg->keys;
    struct tr_quota_minute m;

    tr_emit_key(e, "keys");
    tr_emit_arr(e);
    for (uint32_t i = 0; keys && i < keys->n; i++) {
        const struct tr_key *k = &keys->row[i];
        if (k->index >= fe->shm->config.n_keys)
            continue;
        uint64_t running = tr_quota_running(fe->shm, k->index);
        tr_quota_look(fe->shm, k->index, now, &m);
        if (running || m.all_requests || m.all_tokens)
            emit_key(e, k, running, &m);
    }
    tr_emit_arr_end(e);
}

/* ---- the question ---- */

/* ?from=SLOT, the first to look at.  0, or -EINVAL. */
static int read_from(const struct tr_http *h, int64_t *from)
{
    char buf[16];
    int n = tr_http_query(h, "from", buf, sizeof(buf));

    *from = 0;
    return n == -ENOENT ? 0 : n < 0 ? -EINVAL : tr_api_read_number(buf, (size_t)n, from);
}

void tr_api_debug_streams(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    struct tr_fe *fe = ctx;
    struct tr_emit *e = &fe->json;
    uint32_t n = fe->shm->config.n_slots;
    uint64_t now = tr_now_ns();
    int64_t from;

    if (read_from(rq->http, &from) || from > n) {
        tr_exchange_errorf(x, TR_ERR_BAD_PARAM, "from", "from must be a slot, 0 to %u.", n);
        return;
    }
    tr_emit_reset(e);
    tr_emit_obj(e);
    tr_emit_kstr(e, "object", "list");
    uint32_t next = emit_streams(e, fe, (uint32_t)from, now);
    tr_emit_key(e, "next");
    if (next < n)
        tr_emit_u64(e, next);
    else
        tr_emit_null(e);
    emit_keys(e, fe, now);
    tr_emit_obj_end(e);
    tr_api_reply(fe, x);
}
