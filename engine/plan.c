/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan.h"

#include "engine/kv.h"

enum {
    LEAST_SHARE = 8, /* of the budget, for prompts */
    DOING = 16 /* prompts of a step that are looked at for what others would compute as well */
};

struct plan {
    const struct tr_plan_in *in;
    struct tr_plan_do *todo;
    struct tr_cost_work work;
    uint64_t limit_ns; /* of the step; 0: none */
    uint32_t free;     /* blocks */
    uint32_t in_batch; /* places taken */
    uint32_t rows;     /* rows given */
    uint32_t chunk;    /* prefill rows left */
    uint32_t prompts;  /* prefill rows given */
    uint32_t out;      /* of those left, with logits for every row */
    bool shut;         /* nobody comes in any more */
    uint32_t preempted;
    uint32_t aside;        /* of those aside, the first so many keep their blocks */
    uint32_t evictable;    /* blocks that only parked ones hold */
    uint32_t young;        /* no parked sequence at or behind this index has blocks to give */
    uint32_t growers;      /* in the batch: may need one more block some day */
    uint32_t places;       /* kept for suspects that are not in the batch */
    uint32_t blocks;       /* kept for the same */
    uint64_t doing[DOING]; /* blocks that are computed first in this step */
    uint32_t n_doing;
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

/* Tokens in its KV when the step begins. */
static uint32_t begins_at(const struct plan *p, uint32_t i)
{
    const struct tr_plan_seq *q = &p->in->seqs[i];
    return held(p, i) ? q->in_kv : q->cached;
}

/* What it gives back. */
static uint32_t own(const struct plan *p, uint32_t i)
{
    return held(p, i) - min2(held(p, i), p->in->seqs[i].shared);
}

/* What of it is in `evictable` while it is parked. */
static uint32_t loose(const struct plan *p, uint32_t i)
{
    return held(p, i) - min2(held(p, i), p->in->seqs[i].bound);
}

static void drop(struct plan *p, uint32_t i)
{
    p->free += own(p, i);
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
    }
}

/* ---- making room ---- */

static bool evict_aside(struct plan *p)
{
    if (!p->aside)
        return false;
    uint32_t blocks = p->in->own[p->in->aside[--p->aside]];
    p->free += blocks;
    p->evictable -= min2(blocks, p->evictable);
    return true;
}

/* Never those of `keep`, which is about to come in: the search does not return to it.  When nobody is
 * left to give any, what several of them held together is free. */
static bool evict_one(struct plan *p, uint32_t keep)
{
    if (evict_aside(p))
        return true;
    while (p->young > 0) {
        uint32_t i = --p->young;
        if (i != keep && parked(p, i) && held(p, i)) {
            p->evictable -= min2(own(p, i), p->evictable);
            drop(p, i);
            return true;
        }
    }
    bool more = p->evictable > 0;
    p->free += p->evictable;
    p->evictable = 0;
    return more;
}

/* The last in the batch that may lose its place: who came back from a preemption, or an engine's death,
 * has to make a token first.  Who asks for a block runs, and has made one. */
static uint32_t preempt_one(struct plan *p)
{
    for (uint32_t i = p->in->n; i-- > 0;) {
        if (batched(p, i) && !p->in->seqs[i].again) {
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

static void add_decode_row(struct plan *p, uint32_t i)
{
    p->todo[i].rows = 1;
    p->rows++;
    tr_cost_add_decode(&p->work, p->in->seqs[i].total - 1);
}

/* With everybody else gone all that it does not hold is free, whoever shared it. */
static bool is_alone(struct plan *p, uint32_t i)
{
    uint32_t rest = p->in->n_blocks - min2(p->in->n_blocks, held(p, i));
    if (p->in_batch > 1 || rest <= p->free)
        return false;
    p->free = rest;
    return true;
}

static void give_decode_row(struct plan *p, uint32_t i)
{
    const struct tr_plan_seq *q = &p->in->seqs[i];
    uint32_t need = tr_kv_blocks_for(q->total);
    while (need > held(p, i) && need - held(p, i) > p->free) {
        if (evict_one(p, UINT32_MAX) || is_alone(p, i))
            continue;
        uint32_t gone = preempt_one(p);
        if (gone == i || gone == UINT32_MAX)
            return;
    }
    p->free -= need - min2(need, held(p, i));
    add_decode_row(p, i);
}

/* ---- the order of those who want more than a row ---- */

static bool is_again(const struct tr_plan_seq *q)
{
    return q->again || q->state == TR_PARKED;
}

static uint32_t left(const struct plan *p, uint32_t i)
{
    return p->in->seqs[i].total - begins_at(p, i) - p->todo[i].rows;
}

/* Whether i goes before k, which stands before it in precedence. */
static bool goes_before(const struct plan *p, uint32_t i, uint32_t k, bool by_work)
{
    const struct tr_plan_seq *a = &p->in->seqs[i], *b = &p->in->seqs[k];
    if (a->priority != b->priority)
        return a->priority < b->priority;
    if (is_again(a) != is_again(b))
        return is_again(a);
    if (p->in->served && p->in->served[a->key] != p->in->served[b->key])
        return p->in->served[a->key] < p->in->served[b->key];
    return by_work && left(p, i) < left(p, k);
}

/* Whether k goes before i, by age if by nothing else. */
static bool precedes(const struct plan *p, uint32_t k, uint32_t i)
{
    return k < i ? !goes_before(p, i, k, false) : goes_before(p, k, i, false);
}

/* ---- places and blocks of whoever comes in ---- */

static uint32_t grows(const struct tr_plan_seq *q)
{
    return tr_kv_blocks_for(q->limit) > tr_kv_blocks_for(q->total);
}

/* Blocks that it takes from the free ones. */
static uint32_t blocks_needed(const struct plan *p, uint32_t i)
{
    const struct tr_plan_seq *q = &p->in->seqs[i];
    uint32_t all = tr_kv_blocks_for(q->total);
    if (held(p, i) || !q->cached)
        return all - min2(held(p, i), all);
    return all - q->cached / TR_KV_BLOCK + q->cached_free;
}

/* Whether another one computes in this step what it would. */
static bool is_done_for_it(const struct plan *p, uint32_t i)
{
    uint64_t next = p->in->seqs[i].next;
    for (uint32_t k = 0; next && k < p->n_doing; k++)
        if (p->doing[k] == next)
            return !p->todo[i].rows;
    return false;
}

/* Waits for nothing but a place and its turn. */
static bool waits(const struct plan *p, uint32_t i)
{
    const struct tr_plan_seq *q = &p->in->seqs[i];
    return !q->hold && p->todo[i].what == TR_PLAN_STAY &&
           (q->state == TR_WAITING || (q->state == TR_PARKED && q->ready));
}

static bool comes(const struct plan *p, uint32_t i)
{
    return waits(p, i) && !is_done_for_it(p, i);
}

/* What must stay free when i comes in. */
struct room {
    uint32_t places, blocks;
};

static struct room kept_from(const struct plan *p, uint32_t i)
{
    struct room r = {0, p->growers + grows(&p->in->seqs[i])};
    if (p->in->part != TR_PLAN_OTHERS)
        return r;
    r.places = p->places;
    r.blocks += p->blocks;
    for (uint32_t k = 0; p->n_doing && k < p->in->n; k++) {
        if (!p->in->seqs[k].next || !meant(p, k) || !waits(p, k) || !is_done_for_it(p, k) ||
            !precedes(p, k, i))
            continue;
        r.places++;
        r.blocks += 1 + grows(&p->in->seqs[k]);
    }
    return r;
}

static bool fits(const struct plan *p, uint32_t i)
{
    struct room kept = kept_from(p, i);
    if (p->in_batch + kept.places >= p->in->max_seqs)
        return false;
    uint32_t own = parked(p, i) ? loose(p, i) : 0;
    return (uint64_t)blocks_needed(p, i) + kept.blocks <=
           (uint64_t)p->free + (p->evictable - min2(own, p->evictable));
}

static void let_in(struct plan *p, uint32_t i)
{
    const struct tr_plan_seq *q = &p->in->seqs[i];
    uint32_t need = blocks_needed(p, i), reserve = kept_from(p, i).blocks;
    p->evictable -= parked(p, i) ? min2(loose(p, i), p->evictable) : 0;
    while (need + reserve > p->free && evict_one(p, i))
        ;
    p->free -= need;
    p->growers += grows(q);
    p->todo[i].what = q->state == TR_PARKED ? TR_PLAN_UNPARK : TR_PLAN_ADMIT;
    p->in_batch++;
}

/* A suspect that is to come in has been in a batch before: it finds its place again. */
static void count_room(struct plan *p)
{
    for (uint32_t i = 0; i < p->in->n; i++) {
        const struct tr_plan_seq *q = &p->in->seqs[i];
        if (batched(p, i)) {
            p->growers += grows(q);
        } else if (q->part != TR_PLAN_OTHERS && comes(p, i)) {
            uint32_t need = tr_kv_blocks_for(q->total) + grows(q);
            p->places++;
            p->blocks += need - min2(held(p, i), need);
        }
    }
}

/* ---- rule 3 ---- */

static void unpark_all(struct plan *p)
{
    for (uint32_t i = 0; i < p->in->n && !p->shut; i++) {
        const struct tr_plan_seq *q = &p->in->seqs[i];
        if (!meant(p, i) || q->state != TR_PARKED || !comes(p, i) || p->todo[i].drop ||
            q->in_kv + 1 != q->total)
            continue;
        if (p->rows == p->in->max_rows || !fits(p, i)) {
            p->shut = true;
            return;
        }
        let_in(p, i);
        add_decode_row(p, i);
    }
}

/* ---- the time of the step ---- */

static uint64_t predicted(const struct plan *p)
{
    return p->limit_ns ? tr_cost_predict(p->in->cost, &p->work) : 0;
}

static void begin_prefill(struct plan *p)
{
    const struct tr_plan_in *in = p->in;
    bool decodes = p->work.n[TR_COST_DECODE] > 0;
    p->chunk = in->prefill_chunk ? in->prefill_chunk : in->max_rows;
    if (!in->budget_ns)
        return;
    p->chunk = min2(p->chunk, tr_cost_trusted(in->cost));
    p->limit_ns = decodes || in->idle_ns < in->budget_ns ? in->budget_ns : in->idle_ns;
}

static void keep_share(struct plan *p)
{
    uint64_t least = predicted(p) + p->in->budget_ns / LEAST_SHARE;
    if (p->limit_ns && p->limit_ns < least)
        p->limit_ns = least;
}

/* Not a single row more. */
static bool is_full(const struct plan *p)
{
    return !p->chunk || p->rows == p->in->max_rows ||
           (p->limit_ns && p->prompts && !tr_cost_fit(p->in->cost, &p->work, 0, 1, p->limit_ns));
}

/* ---- rule 4 ---- */

/* One more draft at that position, if the step has the time. */
static bool add_draft(struct plan *p, uint32_t pos)
{
    struct tr_cost_work more = p->work;
    tr_cost_add_decode(&more, pos);
    if (p->limit_ns && tr_cost_predict(p->in->cost, &more) > p->limit_ns)
        return false;
    p->work = more;
    return true;
}

/* The last free blocks are kept for those that grow by a token. */
static void give_draft_rows(struct plan *p, uint32_t i)
{
    const struct tr_plan_seq *q = &p->in->seqs[i];
    uint32_t has = tr_kv_blocks_for(q->total) > q->blocks ? tr_kv_blocks_for(q->total) : q->blocks;
    uint32_t reserve = p->growers + p->blocks, spare = p->free > reserve ? p->free - reserve : 0;
    uint32_t room = (has + spare) * TR_KV_BLOCK - q->total;
    uint32_t most =
        min2(min2(q->drafts, q->limit - q->total), min2(room, p->in->max_rows - p->rows));
    most = min2(most, q->row_cap - 1);
    uint32_t n = 0;
    while (n < most && add_draft(p, q->total + n))
        n++;
    uint32_t need = tr_kv_blocks_for(q->total + n);
    p->free -= need - min2(need, has);
    p->todo[i].rows += n;
    p->rows += n;
}

/* ---- rules 5 and 6 ---- */

/* Rows that it may have beyond those it has. */
static uint32_t rows_for(const struct plan *p, uint32_t i, bool half)
{
    const struct tr_plan_seq *q = &p->in->seqs[i];
    uint32_t n = min2(left(p, i), q->row_cap - min2(q->row_cap, p->todo[i].rows));
    n = min2(n, min2(half ? p->chunk - p->chunk / 2 : p->chunk, p->in->max_rows - p->rows));
    if (q->out_rows)
        n = min2(n, p->out);
    if (!p->limit_ns || !n)
        return n;
    uint64_t now = predicted(p), most = p->limit_ns;
    if (half && now < most)
        most = now + (most - now) / 2;
    uint32_t fit = tr_cost_fit(p->in->cost, &p->work, begins_at(p, i) + p->todo[i].rows, n, most);
    return fit || p->prompts ? fit : 1;
}

static bool is_prompt(const struct plan *p, uint32_t i)
{
    return meant(p, i) && !is_done_for_it(p, i) &&
           ((p->in->seqs[i].state == TR_PREFILL && batched(p, i)) ||
            p->todo[i].what == TR_PLAN_ADMIT || (p->todo[i].what == TR_PLAN_UNPARK && left(p, i)));
}

/* The next that can have rows; UINT32_MAX: nobody. */
static uint32_t next_prompt(const struct plan *p, bool half)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < p->in->n; i++) {
        bool can = is_prompt(p, i) || (!p->shut && meant(p, i) && comes(p, i));
        if (can && (best == UINT32_MAX || goes_before(p, i, best, !half)) && rows_for(p, i, half))
            best = i;
    }
    return best;
}

/* The one that comes in before all others. */
static uint32_t first_to_come(const struct plan *p)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < p->in->n; i++)
        if (meant(p, i) && comes(p, i) && (best == UINT32_MAX || goes_before(p, i, best, false)))
            best = i;
    return best;
}

/* Rule 7: i is the first with this block. */
static void note_block(struct plan *p, uint32_t i)
{
    uint64_t next = p->in->seqs[i].next;
    if (next && !p->todo[i].rows && p->n_doing < DOING)
        p->doing[p->n_doing++] = next;
}

static void give_prefill_rows(struct plan *p, uint32_t i, uint32_t n)
{
    const struct tr_plan_seq *q = &p->in->seqs[i];
    note_block(p, i);
    tr_cost_add_prefill(&p->work, begins_at(p, i) + p->todo[i].rows, n);
    p->out -= q->out_rows ? n : 0;
    p->todo[i].rows += n;
    p->chunk -= n;
    p->prompts += n;
    p->rows += n;
    p->work.n[TR_COST_LOGITS] += q->out_rows ? n : left(p, i) == 0;
}

static void share_prefill(struct plan *p)
{
    for (bool half = true; !is_full(p);) {
        uint32_t i = next_prompt(p, half);
        if (i == UINT32_MAX)
            return;
        if (comes(p, i)) {
            uint32_t first = first_to_come(p);
            i = fits(p, i) ? i : first;
            if (!fits(p, first) || !rows_for(p, i, half)) {
                p->shut = true;
                continue;
            }
            let_in(p, i);
        }
        give_prefill_rows(p, i, rows_for(p, i, half));
        half = false;
    }
}

uint32_t tr_plan_make(const struct tr_plan_in *in, struct tr_plan_do *todo,
                      struct tr_plan_step *step)
{
    struct plan p = {.in = in,
                     .todo = todo,
                     .work.n[TR_COST_STEP] = 1,
                     .free = in->free_blocks,
                     .out = in->out_chunk,
                     .aside = in->n_aside,
                     .evictable = in->evictable,
                     .young = in->n};
    park_or_count(&p);
    for (uint32_t i = 0; i < in->n; i++)
        if (in->seqs[i].state == TR_RUNNING && meant(&p, i) && batched(&p, i))
            give_decode_row(&p, i);
    count_room(&p);
    p.shut = p.preempted > 0;
    unpark_all(&p);
    begin_prefill(&p);
    for (uint32_t i = 0; i < in->n && !p.preempted; i++)
        if (in->seqs[i].drafts && in->seqs[i].state == TR_RUNNING && todo[i].rows)
            give_draft_rows(&p, i);
    keep_share(&p);
    share_prefill(&p);
    *step = (struct tr_plan_step){.rows = p.rows, .evict = in->n_aside - p.aside, .work = p.work};
    return p.rows;
}
