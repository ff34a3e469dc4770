/* SPDX-License-Identifier: Apache-2.0 */
/* engine/pick.c - the jobs of a step come to their tokens, on the backend's threads or on its device. */
#include "engine/pick.h"

#include "engine/sched_priv.h"

void tr_pick_by_host(struct tr_sampler *s, uint32_t row, float *logits, const struct tr_pick *p,
                     struct tr_picked *out)
{
    out->id = p->id;
    if (p->echo)
        tr_sample_logprob(s, row, logits, p->id, p->in.params->n_top, &out->lp);
    else
        out->id = tr_sample(s, row, logits, &p->in, p->wants_lp ? &out->lp : NULL);
}

static struct tr_pick pick_of(const struct tr_sched *sc, uint32_t out)
{
    const struct tr_job *j = &sc->jobs[out];
    const struct tr_ring *r = tr_ring_at(sc->s, j->slot);
    const struct tr_seq *q = &sc->seq[j->slot];
    return (struct tr_pick){.out = out,
                            .echo = j->echo,
                            .id = j->id,
                            .wants_lp = j->wants_lp,
                            .in = {.params = &r->params,
                                   .extra = r->extra_len ? &sc->extra[j->slot] : NULL,
                                   .ids = tr_ring_ids(sc->s, j->slot),
                                   .prompt_len = q->prompt_len,
                                   .n_out = q->n_out + j->n_before,
                                   .drafts = j->drafts,
                                   .n_drafts = j->n_before,
                                   .eog = sc->cfg.eog,
                                   .n_eog = sc->cfg.n_eog,
                                   .mask = j->mask}};
}

static void pick_one(void *arg, uint32_t i)
{
    struct tr_sched *sc = arg;
    const struct tr_pick *p = &sc->picks[i];
    float *logits = sc->logits + (size_t)p->out * sc->info.n_vocab;
    tr_pick_by_host(sc->sampler, i, logits, p, &sc->picked[i]);
}

void tr_pick_all(struct tr_sched *sc)
{
    const struct tr_backend_ops *ops = sc->ops;
    uint32_t n = 0;
    for (uint32_t i = 0; i < sc->n_jobs; i++)
        if (!sc->jobs[i].late)
            sc->picks[n++] = pick_of(sc, i);
    if (n && ops->pick)
        ops->pick(sc->backend, sc->picks, n);
    else if (n)
        ops->parallel(sc->backend, n, pick_one, sc);
    if (ops->pick)
        ops->collect(sc->backend, sc->picked, n, tr_sched_beat, sc);
    for (uint32_t i = 0; i < n; i++) {
        struct tr_job *j = &sc->jobs[sc->picks[i].out];
        j->id = sc->picked[i].id;
        j->lp = &sc->picked[i].lp;
    }
}
