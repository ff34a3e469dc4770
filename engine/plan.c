/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan.h"

#include "engine/kv.h"

struct plan {
    const struct tr_plan_in *in;
    struct tr_plan_do *todo;
    uint32_t free;     /* blocks */
    uint32_t in_batch; /* places taken */
    uint32_t rows;     /* rows given */
    uint32_t chunk;    /* prefill rows left */
    uint32_t out;      /* of those, with logits for every row */
    uint32_t preempted;
    uint32_t aside;     /* of those aside, the oldest so many keep their blocks */
    uint32_t evictable; /* blocks of all that are parked */
    uint32_t young;     /* no parked sequence at or behind this index has blocks to give */
    uint32_t growers;   /* in the batch: may need one more block some day */
    uint32_t places;    /* kept for suspects that are not in the batch */
    uint32_t blocks;    /* kept for the same */
};

static uint32_t min2(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* In the batch of this step, as far as it has been planned. */
static bool batched(const struct plan *p, uint32_t i)
{
    enum tr_state s = p->in->seqs[i].state;
    switch (p->todo[i].what) {
    case TR_PLAN_STAY:
        return s == TR_PREFILL || s == TR_RUNNING;
    case TR_PLAN_UNPARK:
    case TR_PLAN_ADMIT:
        return true;
    default:
        return false;
    }
}

/* Whether the step is for this sequence. */
static bool meant(const struct plan *p, uint32_t i)
{
    return p->in->seqs[i].part == p->in->part;
}

static bool parked(const struct plan *p, uint32_t i)
{
    return p->todo[i].what == TR_PLAN_PARK ||
           (p->in->seqs[i].state == TR_PARKED && p->todo[i].what == TR_PLAN_STAY);
}

static uint32_t held(const struct plan *p, uint32_t i)
{
    return p->todo[i].drop ? 0 : p->in->seqs[i].blocks;
}

static void drop(struct plan *p, uint32_t i)
{
    p->free += held(p, i);
    p->todo[i].drop = true;
}

/* ---- rule 1 ---- */

static void park_or_count(struct plan *p)
{
    for (uint32_t i = 0; i < p->in->n; i++) {
        const struct tr_plan_seq *q = &p->in->seqs[i];
        p->todo[i] = (struct tr_plan_do){TR_PLAN_STAY, false, 0};
        if (batched(p, i) && q->hold)
            p->todo[i].what = TR_PLAN_PARK;
        else if (batched(p, i))
            p->in_batch++;
        if (parked(p, i))
            p->evictable += q->blocks;
    }
}

/* ---- making room ---- */

static bool evict_aside(struct plan *p)
{
    if (!p->aside)
        return false;
    uint32_t blocks = p->in->aside[--p->aside];
    p->free += blocks;
    p->evictable -= blocks;
    return true;
}

/* Never those of `keep`, which is about to come in: the search does not return to it. */
static bool evict_one(struct plan *p, uint32_t keep)
{
    if (evict_aside(p))
        return true;
    while (p->young > 0) {
        uint32_t i = --p->young;
        if (i != keep && parked(p, i) && held(p, i)) {
            p->evictable -= held(p, i);
            drop(p, i);
            return true;
        }
    }
    return false;
}

/* The youngest in the batch; there is one whenever somebody asks for a block. */
static uint32_t preempt_one(struct plan *p)
{
    for (uint32_t i = p->in->n; i-- > 0;) {
        if (batched(p, i)) {
            drop(p, i);
            p->todo[i].what = TR_PLAN_PREEMPT;
            p->in_batch--;
            p->preempted++;
            return i;
        }
    }
    return UINT32_MAX;
}

/* ---- rule 2 ---- */

static void give_decode_row(struct plan *p, uint32_t i)
{
    const struct tr_plan_seq *q = &p->in->seqs[i];
    uint32_t need = tr_kv_blocks_for(q->total);
    while (need > held(p, i) && need - held(p, i) > p->free) {
        if (evict_one(p, UINT32_MAX))
            continue;
        if (preempt_one(p) == i)
            return;
    }
    p->free -= need - min2(need, held(p, i));
    p->todo[i].rows = 1;
    p->rows++;
}

/* ---- rule 3, and the rows of whoever comes in ---- */

static void give_prefill_rows(struct plan *p, uint32_t i)
{
    const struct tr_plan_seq *q = &p->in->seqs[i];
    uint32_t done = p->todo[i].drop ? 0 : q->in_kv;
    uint32_t n = min2(min2(q->total - done, q->row_cap), min2(p->chunk, p->in->max_rows - p->rows));
    if (q->out_rows) {
        n = min2(n, p->out);
        p->out -= n;
    }
    p->todo[i].rows = n;
    p->chunk -= n;
    p->rows += n;
}

/* ---- rules 4, 5 and 6 ---- */

static uint32_t grows(const struct tr_plan_seq *q)
{
    return tr_kv_blocks_for(q->limit) > tr_kv_blocks_for(q->total);
}

/* Lets a parked or waiting sequence into the batch; false if it does not fit. */
static bool let_in(struct plan *p, uint32_t i, enum tr_plan_what how)
{
    const struct tr_plan_seq *q = &p->in->seqs[i];
    bool decodes = how == TR_PLAN_UNPARK && !p->todo[i].drop && q->in_kv + 1 == q->total;
    uint32_t rows_left = p->in->max_rows - p->rows;
    bool other = p->in->part == TR_PLAN_OTHERS;
    if (p->in_batch + (other ? p->places : 0) >= p->in->max_seqs || rows_left == 0 ||
        (!decodes && p->chunk == 0) || (q->out_rows && p->out == 0))
        return false;
    uint32_t need = tr_kv_blocks_for(q->total) - min2(held(p, i), tr_kv_blocks_for(q->total));
    uint32_t reserve = p->growers + grows(q) + (other ? p->blocks : 0);
    uint32_t own = parked(p, i) ? held(p, i) : 0;
    if (need + reserve > p->free && need + reserve > p->free + (p->evictable - own))
        return false;
    p->evictable -= own;
    while (need + reserve > p->free && evict_one(p, i))
        ;
    p->free -= need;
    p->growers += grows(q);
    p->todo[i].what = how;
    p->in_batch++;
    if (decodes) {
        p->todo[i].rows = 1;
        p->rows++;
    } else {
        give_prefill_rows(p, i);
    }
    return true;
}

/* A suspect that is to come in has been in a batch before: it finds its place again. */
static bool keeps_room(const struct plan *p, uint32_t i)
{
    const struct tr_plan_seq *q = &p->in->seqs[i];
    bool comes = q->state == TR_WAITING || (q->state == TR_PARKED && q->ready);
    return q->part != TR_PLAN_OTHERS && comes && !q->hold && !batched(p, i);
}

static void count_room(struct plan *p)
{
    for (uint32_t i = 0; i < p->in->n; i++) {
        const struct tr_plan_seq *q = &p->in->seqs[i];
        if (batched(p, i)) {
            p->growers += grows(q);
        } else if (keeps_room(p, i)) {
            uint32_t need = tr_kv_blocks_for(q->total) + grows(q);
            p->places++;
            p->blocks += need - min2(held(p, i), need);
        }
    }
}

static void let_in_all(struct plan *p)
{
    count_room(p);
    for (uint32_t i = 0; i < p->in->n; i++) {
        const struct tr_plan_seq *q = &p->in->seqs[i];
        if (meant(p, i) && q->state == TR_PARKED && q->ready && !q->hold &&
            !let_in(p, i, TR_PLAN_UNPARK))
            return;
    }
    for (uint32_t i = 0; i < p->in->n; i++) {
        const struct tr_plan_seq *q = &p->in->seqs[i];
        if (meant(p, i) && q->state == TR_WAITING && !q->hold && !let_in(p, i, TR_PLAN_ADMIT))
            return;
    }
}

uint32_t tr_plan_make(const struct tr_plan_in *in, struct tr_plan_do *todo, uint32_t *evict)
{
    struct plan p = {.in = in,
                     .todo = todo,
                     .free = in->free_blocks,
                     .out = in->out_chunk,
                     .aside = in->n_aside,
                     .evictable = in->aside_total,
                     .young = in->n};
    p.chunk = in->prefill_chunk ? in->prefill_chunk : in->max_rows;
    park_or_count(&p);
    for (uint32_t i = 0; i < in->n; i++)
        if (in->seqs[i].state == TR_RUNNING && meant(&p, i) && batched(&p, i))
            give_decode_row(&p, i);
    for (uint32_t i = 0; i < in->n; i++)
        if (in->seqs[i].state == TR_PREFILL && meant(&p, i) && batched(&p, i))
            give_prefill_rows(&p, i);
    if (p.preempted == 0)
        let_in_all(&p);
    *evict = in->n_aside - p.aside;
    return p.rows;
}
