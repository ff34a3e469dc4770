/* SPDX-License-Identifier: Apache-2.0 */
/* engine/batch.c - the batch of a step: rows as the plan says, and what is wanted of their logits. */
#include "engine/sched_priv.h"

bool tr_batch_echoes(const struct tr_sched *sc, const struct tr_seq *q)
{
    if (!(q->flags & TR_REQ_ECHO_LOGPROBS))
        return false;
    uint64_t tail = atomic_load_explicit(&tr_sched_ring(sc, q)->lp_tail, memory_order_relaxed);
    return tail < q->prompt_len;
}

static uint32_t add_job(struct tr_sched *sc, const struct tr_seq *q, uint32_t pos, bool echo)
{
    TR_ASSERT(sc->n_jobs < sc->max_out);
    struct tr_job *j = &sc->jobs[sc->n_jobs];
    j->slot = q->slot;
    j->pos = pos;
    j->echo = echo;
    j->wants_lp = echo || (q->flags & TR_REQ_LOGPROBS);
    j->n_before = 0;
    j->is_more = false;
    j->mask = !echo && tr_constrain_has(sc->constrain, q->slot)
                  ? tr_constrain_ask(sc->constrain, q->slot)
                  : NULL;
    j->late = false;
    j->id = echo ? tr_ring_ids(sc->s, q->slot)[pos + 1] : 0;
    return sc->n_jobs++;
}

static void add_rows(struct tr_sched *sc, const struct tr_seq *q, uint32_t n, uint32_t seq,
                     struct tr_batch_row *rows)
{
    const uint32_t *ids = tr_ring_ids(sc->s, q->slot);
    uint64_t told = atomic_load_explicit(&tr_sched_ring(sc, q)->lp_tail, memory_order_relaxed);
    bool echo = tr_batch_echoes(sc, q);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t pos = q->in_kv + i, out = TR_NO_LOGITS;
        if (echo && pos + 1 < q->prompt_len && pos + 1 >= told)
            out = add_job(sc, q, pos, true);
        else if (pos + 1 == tr_seq_total(q) && q->n_out < q->max_tokens)
            out = add_job(sc, q, pos, false);
        rows[i] = (struct tr_batch_row){.token = ids[pos], .pos = pos, .seq = seq, .out = out};
    }
}

/* Behind the row of its newest token. */
static void add_drafts(struct tr_sched *sc, const struct tr_seq *q, const uint32_t *drafts,
                       uint32_t n, struct tr_batch_row *rows)
{
    for (uint32_t i = 0; i < n; i++) {
        struct tr_job *before = &sc->jobs[sc->n_jobs - 1];
        TR_ASSERT(before->slot == q->slot && !before->echo);
        before->drafts = drafts;
        before->is_more = true;
        uint32_t out = add_job(sc, q, tr_seq_total(q) + i, false);
        sc->jobs[out].drafts = drafts;
        sc->jobs[out].n_before = i + 1;
        rows[i] = (struct tr_batch_row){
            .token = drafts[i], .pos = tr_seq_total(q) + i, .seq = rows[-1].seq, .out = out};
    }
    if (n)
        tr_stat_add(sc->stat, TR_STAT_DRAFTED, n);
}

struct tr_batch tr_batch_make(struct tr_sched *sc)
{
    struct tr_batch b = {.rows = sc->rows, .seqs = sc->tables};
    sc->n_jobs = 0;
    for (uint32_t i = 0; i < sc->n_active; i++) {
        struct tr_seq *q = &sc->seq[sc->active[i]];
        uint32_t n = sc->plan_do[i].rows;
        if (!n)
            continue;
        sc->tables[b.n_seqs] = tr_kv_table_of(sc->kv, q->slot);
        uint32_t own = tr_seq_total(q) - q->in_kv < n ? tr_seq_total(q) - q->in_kv : n;
        add_rows(sc, q, own, b.n_seqs, sc->rows + b.n_rows);
        if (own < n)
            add_drafts(sc, q, sc->guess[i], n - own, sc->rows + b.n_rows + own);
        b.n_seqs++;
        b.n_rows += n;
        q->in_kv += own;
        /* What is computed again is not the client's doing. */
        if (q->n_out == 0 && !q->again)
            tr_fair_serve(sc->fair, q->key, (uint64_t)n * TR_FAIR_PROMPT);
    }
    b.n_out = sc->n_jobs;
    return b;
}
