/* SPDX-License-Identifier: Apache-2.0 */
#include "engine_rig.h"

#include "base/clock.h"
#include "base/sim_vocab.h"
#include "enginerig/late_backend.h"
#include "shm/bell.h"
#include "shm/lpring.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(bool ok, const char *what, const struct tr_errbuf *err)
{
    if (ok)
        return;
    fprintf(stderr, "engine rig: %s%s%s\n", what, err ? ": " : "", err ? err->msg : "");
    abort();
}

static uint32_t or_default(uint32_t v, uint32_t d)
{
    return v ? v : d;
}

static void set_defaults(struct tr_engine_rig_config *c)
{
    struct tr_shm_config *m = &c->shm;
    m->n_ctx = or_default(m->n_ctx, 512);
    m->n_vocab = or_default(m->n_vocab, TR_SIM_VOCAB_SIZE);
    m->n_slots = or_default(m->n_slots, 64);
    m->n_admit = or_default(m->n_admit, 48);
    m->max_seqs = or_default(m->max_seqs, 8);
    m->n_areas = or_default(m->n_areas, 4);
    m->window = or_default(m->window, 512);
    if (!c->ops)
        c->ops = &tr_backend_sim;
    if (getenv("TOKENRING_TEST_LATE") && c->ops != &tr_backend_late) {
        tr_late.over = c->ops;
        c->ops = &tr_backend_late;
    }
    if (c->sched.n_eog == 0) {
        c->sched.eog[0] = TR_SIM_EOS;
        c->sched.eog[1] = TR_SIM_IM_END;
        c->sched.n_eog = 2;
    }
}

static void open_backend(struct tr_engine_rig *r)
{
    struct tr_errbuf err = {""};
    struct tr_backend_config b = r->c.backend;
    b.n_ctx = r->c.shm.n_ctx;
    b.max_seqs = r->c.shm.max_seqs;
    b.max_rows = tr_sched_max_rows(&r->s, &r->c.sched);
    b.max_out = tr_sched_max_out(&r->s, &r->c.sched);
    b.n_threads = or_default(b.n_threads, 1);
    r->backend = r->c.ops->open(&b, &r->info, &err);
    must(r->backend, "backend", &err);
    if (r->c.kv_blocks && r->c.kv_blocks < r->info.n_kv_blocks)
        r->info.n_kv_blocks = r->c.kv_blocks;
}

static void open_sched(struct tr_engine_rig *r)
{
    struct tr_errbuf err = {""};
    atomic_fetch_add(&r->s.control->engine_epoch, 1);
    tr_role = TR_ROLE_ENGINE;
    r->sched = tr_sched_new(&r->s, &r->c.sched, &err);
    must(r->sched, "scheduler", &err);
    must(tr_sched_bind(r->sched, r->c.ops, r->backend, &r->info, &err) == 0, "bind", &err);
}

void tr_engine_rig_open(struct tr_engine_rig *r, const struct tr_engine_rig_config *c)
{
    struct tr_errbuf err = {""};
    memset(r, 0, sizeof(*r));
    if (c)
        r->c = *c;
    set_defaults(&r->c);
    must(tr_shm_create(&r->c.shm, &r->fds, &err) == 0, "shared memory", &err);
    must(tr_shm_attach_all(&r->s, &r->fds, &err) == 0, "attach", &err);
    for (uint32_t a = 0; a < r->c.shm.n_areas; a++)
        tr_rig_start_frontend(r, a);
    if (r->c.no_engine)
        return;
    open_backend(r);
    open_sched(r);
    tr_rig_turn(r);
}

void tr_engine_rig_close(struct tr_engine_rig *r)
{
    tr_sched_free(r->sched);
    r->c.ops->close(r->backend);
    tr_shm_detach(&r->s);
    tr_shm_close_fds(&r->fds);
}

void tr_engine_rig_crash(struct tr_engine_rig *r)
{
    tr_sched_free(r->sched);
    r->sched = NULL;
}

void tr_engine_rig_restart(struct tr_engine_rig *r)
{
    tr_sched_free(r->sched);
    open_sched(r);
}

/* ---- roles ---- */

void tr_rig_be_frontend(struct tr_engine_rig *r, uint32_t area)
{
    tr_role = TR_ROLE_FRONTEND;
    r->s.my_area = area;
    r->s.my_epoch = atomic_load(&r->s.control->area_epoch[area]);
}

void tr_rig_start_frontend(struct tr_engine_rig *r, uint32_t area)
{
    tr_role = TR_ROLE_SUPERVISOR;
    atomic_fetch_add(&r->s.control->area_epoch[area], 1);
    atomic_store(&r->s.control->area_alive[area], 1);
    tr_control_publish(r->s.control);
    tr_rig_be_frontend(r, area);
    tr_area_init(&r->s);
}

void tr_rig_kill_frontend(struct tr_engine_rig *r, uint32_t area)
{
    tr_role = TR_ROLE_SUPERVISOR;
    atomic_store(&r->s.control->area_alive[area], 0);
    tr_control_publish(r->s.control);
}

void tr_rig_drain(struct tr_engine_rig *r, enum tr_drain d)
{
    tr_role = TR_ROLE_SUPERVISOR;
    atomic_store(&r->s.control->drain, d);
    tr_control_publish(r->s.control);
    tr_bell_ring_engine(&r->s);
}

uint64_t tr_rig_bills(const struct tr_engine_rig *r)
{
    return atomic_load(&r->s.accounting->tail);
}

const struct tr_bill *tr_rig_bill(const struct tr_engine_rig *r, uint64_t i)
{
    return &r->s.accounting->rec[i % TR_BILL_CAP];
}

void tr_rig_ledger_runs(struct tr_engine_rig *r)
{
    tr_role = TR_ROLE_LEDGER;
    tr_bill_durable(&r->s, tr_rig_bills(r));
}

/* ---- submitting ---- */

struct tr_rig_ask tr_rig_ask(void)
{
    static const uint32_t prompt[] = {TR_SIM_TEXT, TR_SIM_TEXT + 1, TR_SIM_TEXT + 2};
    return (struct tr_rig_ask){.prompt = prompt,
                               .prompt_len = 3,
                               .params = {.temperature = 0,
                                          .top_p = 1,
                                          .repetition_penalty = 1,
                                          .weight = 1,
                                          .max_tokens = 16,
                                          .flags = TR_REQ_STREAM | TR_REQ_IGNORE_EOS},
                               .id = "req-1",
                               .rand = 4711};
}

/* The frontend's part of shm/, which a build of the engine alone does not have. */
static int pack_extra(const struct tr_extra *e, uint8_t *out)
{
#ifdef TR_ENGINE_ONLY
    (void)e, (void)out;
    return -ENOTSUP;
#else
    return tr_extra_pack(e, out, TR_EXTRA_BYTES);
#endif
}

static void write_request(struct tr_engine_rig *r, const struct tr_rig_ask *a, uint32_t k,
                          uint32_t n, const uint32_t *slots, uint32_t gen)
{
    struct tr_request *req = tr_request_at(&r->s, slots[k]);
    memset(req, 0, sizeof(*req));
    req->gen = gen;
    req->prompt_len = a->prompt_len;
    req->stream_rand = a->rand;
    req->arrival_ns = tr_now_ns();
    req->idem = a->idem;
    req->params = a->params;
    req->group_n = n;
    req->group_k = k;
    req->group_lead = slots[0];
    req->group_bill_prompt = k == 0;
    snprintf(req->request_id, sizeof(req->request_id), "%s", a->id);
    snprintf(req->key, sizeof(req->key), "%s", a->key ? a->key : "key");
    memcpy(tr_request_prompt(&r->s, slots[k]), a->prompt, a->prompt_len * sizeof(uint32_t));
    if (!a->extra)
        return;
    int len = pack_extra(a->extra, tr_request_extra(&r->s, slots[k]));
    must(len >= 0, "extra", NULL);
    req->extra_len = (uint32_t)len;
}

int tr_rig_submit_group(struct tr_engine_rig *r, const struct tr_rig_ask *a, uint32_t n,
                        struct tr_rig_req *out)
{
    uint32_t slots[TR_MAX_CHOICES], gens[TR_MAX_CHOICES];
    struct tr_msg m[TR_MAX_CHOICES];
    tr_rig_be_frontend(r, a[0].area);
    if (tr_claim_take(&r->s, n, slots, gens))
        return -EAGAIN;
    for (uint32_t k = 0; k < n; k++) {
        tr_cursor_reset(&r->s, slots[k], gens[k]);
        write_request(r, &a[k], k, n, slots, gens[k]);
        out[k] = (struct tr_rig_req){.area = a[0].area, .slot = slots[k], .gen = gens[k]};
        m[k] = (struct tr_msg){.kind = TR_MSG_SUBMIT, .slot = slots[k], .gen = gens[k]};
    }
    must(tr_subq_push(&r->s, m, n) == 0, "submission queue", NULL);
    return 0;
}

struct tr_rig_req tr_rig_submit(struct tr_engine_rig *r, const struct tr_rig_ask *a)
{
    struct tr_rig_req q;
    must(tr_rig_submit_group(r, a, 1, &q) == 0, "no open slot", NULL);
    return q;
}

struct tr_rig_req tr_rig_prepare(struct tr_engine_rig *r, const struct tr_rig_ask *a)
{
    struct tr_rig_req q = {.area = a->area};
    tr_rig_be_frontend(r, a->area);
    must(tr_claim_take(&r->s, 1, &q.slot, &q.gen) == 0, "no open slot", NULL);
    tr_cursor_reset(&r->s, q.slot, q.gen);
    write_request(r, a, 0, 1, &q.slot, q.gen);
    return q;
}

void tr_rig_push(struct tr_engine_rig *r, const struct tr_rig_req *q)
{
    struct tr_msg m = {.kind = TR_MSG_SUBMIT, .slot = q->slot, .gen = q->gen};
    tr_rig_be_frontend(r, q->area);
    must(tr_subq_push(&r->s, &m, 1) == 0, "submission queue", NULL);
}

/* ---- commands and cursors ---- */

void tr_rig_cancel(struct tr_engine_rig *r, const struct tr_rig_req *q, enum tr_err why)
{
    tr_rig_be_frontend(r, q->area);
    atomic_store(&tr_cursor_at(&r->s, q->area, q->slot)->disconnect_ns, tr_now_ns());
    tr_cmd_post(&r->s, q->slot, q->gen, TR_CMD_CANCEL, (uint32_t)why);
}

void tr_rig_finish(struct tr_engine_rig *r, const struct tr_rig_req *q, uint32_t at)
{
    tr_rig_be_frontend(r, q->area);
    tr_cmd_post(&r->s, q->slot, q->gen, TR_CMD_FINISH, at);
}

void tr_rig_release(struct tr_engine_rig *r, const struct tr_rig_req *q)
{
    tr_rig_be_frontend(r, q->area);
    tr_cmd_post(&r->s, q->slot, q->gen, TR_CMD_RELEASE, 0);
}

void tr_rig_read_all(struct tr_engine_rig *r, const struct tr_rig_req *q)
{
    struct tr_lp lp;
    tr_rig_be_frontend(r, q->area);
    if (atomic_load(&tr_rig_ring(r, q)->gen) != q->gen)
        return;
    uint32_t n = tr_rig_published(r, q);
    tr_cursor_set(&r->s, q->slot, n, n);
    while (tr_lpring_peek(&r->s, q->slot, &lp) == 0)
        tr_lpring_pop(&r->s, q->slot);
}

/* ---- turning ---- */

bool tr_rig_turn(struct tr_engine_rig *r)
{
    tr_role = TR_ROLE_ENGINE;
    return tr_sched_turn(r->sched);
}

void tr_rig_run(struct tr_engine_rig *r, const struct tr_rig_req *q, uint32_t n)
{
    for (uint32_t turns = 0; tr_rig_turn(r); turns++) {
        must(turns < 200000, "the scheduler does not come to rest", NULL);
        for (uint32_t i = 0; i < n; i++)
            tr_rig_read_all(r, &q[i]);
    }
}

/* ---- looking ---- */

struct tr_ring *tr_rig_ring(const struct tr_engine_rig *r, const struct tr_rig_req *q)
{
    return tr_ring_at(&r->s, q->slot);
}

uint32_t tr_rig_state(const struct tr_engine_rig *r, const struct tr_rig_req *q)
{
    const struct tr_ring *ring = tr_rig_ring(r, q);
    return atomic_load(&ring->gen) == q->gen ? atomic_load(&ring->state) : TR_FREE;
}

uint32_t tr_rig_published(const struct tr_engine_rig *r, const struct tr_rig_req *q)
{
    return (uint32_t)atomic_load(&tr_rig_ring(r, q)->published);
}

const uint32_t *tr_rig_output(const struct tr_engine_rig *r, const struct tr_rig_req *q)
{
    return tr_ring_ids(&r->s, q->slot) + tr_rig_ring(r, q)->prompt_len;
}

uint64_t tr_rig_stat(const struct tr_engine_rig *r, enum tr_stat_id id)
{
    return atomic_load(&r->s.stat[TR_STAT_ENGINE]->value[id]);
}

uint64_t tr_rig_hist(const struct tr_engine_rig *r, enum tr_hist_id id)
{
    return atomic_load(&r->s.stat[TR_STAT_ENGINE]->hist[id].count);
}

uint32_t tr_rig_claims(const struct tr_engine_rig *r, enum tr_claim_state st)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->c.shm.n_slots; i++)
        n += tr_claim_get(&r->s, i).state == st;
    return n;
}
