/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/speculate.h"

#include "engine/ngram.h"
#include "engine/sched_priv.h"

#define LOGITS_BYTES (16u << 20) /* for rows of drafts */

uint32_t tr_speculate_rows(uint32_t n_vocab)
{
    uint32_t n = LOGITS_BYTES / (n_vocab * (uint32_t)sizeof(float));
    return n < TR_GUESS_MAX ? TR_GUESS_MAX : n < TR_DRAFT_ROWS ? n : TR_DRAFT_ROWS;
}

void tr_speculate_share(struct tr_share *s, uint32_t n, uint32_t budget, float floor)
{
    for (uint32_t i = 0; i < n; i++)
        s[i].rows = 0;
    bool any = true;
    for (uint32_t k = 0; any && budget; k++) {
        any = false;
        for (uint32_t i = 0; i < n && budget; i++) {
            float p = s[i].p;
            for (uint32_t j = 0; j < k; j++)
                p *= s[i].p;
            if (s[i].rows < k || k >= s[i].offer || !(p > floor))
                continue;
            s[i].rows++;
            budget--;
            any = true;
        }
    }
}

/* Of the drafts that seem to pay, those whose chance was estimated too high are more. */
#define MARGIN 1.25

float tr_speculate_floor(const struct tr_cost *c, const struct tr_cost_work *w)
{
    struct tr_cost_work more = *w;
    uint64_t n = w->n[TR_COST_DECODE];
    tr_cost_add_decode(&more, n ? (uint32_t)(w->n[TR_COST_DECODE_KV] / n) : 0);
    double without = (double)tr_cost_predict(c, w), with = (double)tr_cost_predict(c, &more);
    return without > 0 ? (float)(MARGIN * (with - without) * (double)n / without) : 1;
}

/* ---- in the scheduler ---- */

static float floor_now(const struct tr_sched *sc)
{
    struct tr_cost_work w = {.n[TR_COST_STEP] = 1};
    if (sc->cfg.draft_floor > 0)
        return sc->cfg.draft_floor;
    for (uint32_t i = 0; i < sc->n_active; i++)
        if (sc->plan_in[i].state == TR_RUNNING && !sc->plan_in[i].hold)
            tr_cost_add_decode(&w, sc->plan_in[i].total - 1);
    return tr_speculate_floor(&sc->cost, &w);
}

void tr_speculate_offer(struct tr_sched *sc)
{
    uint32_t n = 0;
    float floor = floor_now(sc);
    for (uint32_t i = 0; i < sc->n_active; i++) {
        struct tr_plan_seq *p = &sc->plan_in[i];
        const struct tr_seq *q = &sc->seq[sc->active[i]];
        if (!p->drafts)
            continue;
        struct tr_guess guess =
            tr_ngram_look(sc->ngram, q->slot, q->gen, tr_ring_ids(sc->s, q->slot), p->total);
        sc->guess[i] = guess.ids;
        sc->share[n++] =
            (struct tr_share){.p = guess.p, .offer = guess.n < p->drafts ? guess.n : p->drafts};
    }
    tr_speculate_share(sc->share, n, sc->draft_rows, floor);
    n = 0;
    for (uint32_t i = 0; i < sc->n_active; i++)
        if (sc->plan_in[i].drafts)
            sc->plan_in[i].drafts = sc->share[n++].rows;
}
