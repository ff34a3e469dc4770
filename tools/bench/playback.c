/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/playback.h"

#include "engine/fair.h"
#include "engine/kv.h"
#include "engine/plan.h"
#include "engine/seq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A request in the engine. */
struct live {
    size_t r; /* its request */
    uint64_t order, last_ns;
    enum tr_state state;
    uint32_t in_kv, blocks, key;
    bool again;
};

struct play {
    const struct tr_playback_config *c;
    struct tr_playback_request *r;
    size_t n, next; /* requests; the next that arrives */
    struct tr_playback_totals *t;
    tr_playback_token *token;
    void *arg;
    uint64_t now, random, admitted;
    struct live *live; /* [cap] by precedence */
    uint32_t n_live, cap, free;
    struct tr_plan_seq *seqs;
    struct tr_plan_do *todo;
    struct tr_cost cost; /* as the engine learns it */
    struct tr_cost truth;
    struct tr_fair *fair;
};

static uint32_t total(const struct play *p, const struct live *l)
{
    return p->r[l->r].prompt + p->r[l->r].n_out;
}

/* [-1, 1] */
static double noise(struct play *p)
{
    p->random += 0x9e3779b97f4a7c15u;
    uint64_t z = p->random;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) / 4503599627370496.0 - 1;
}

/* ---- coming and going ---- */

static void arrive(struct play *p)
{
    for (; p->next < p->n && p->r[p->next].at_ns <= p->now; p->next++) {
        struct tr_playback_request *r = &p->r[p->next];
        if (p->n_live == p->cap) {
            r->refused = true;
            continue;
        }
        struct live l = {.r = p->next,
                         .order = tr_seq_order(r->priority, ++p->admitted),
                         .state = TR_WAITING,
                         .key = tr_fair_take(p->fair, r->key ? r->key : "", 1)};
        uint32_t at = p->n_live++;
        for (; at > 0 && p->live[at - 1].order > l.order; at--)
            p->live[at] = p->live[at - 1];
        p->live[at] = l;
    }
}

static bool has_left(const struct play *p, const struct tr_playback_request *r)
{
    return r->leave_ns <= p->now ||
           (r->first_ns != TR_PLAYBACK_NEVER && r->leave_after_ns != TR_PLAYBACK_NEVER &&
            r->first_ns + r->leave_after_ns <= p->now);
}

static void forget_gone(struct play *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_live; i++) {
        struct live *l = &p->live[i];
        struct tr_playback_request *r = &p->r[l->r];
        bool whole = r->n_out == r->max_tokens;
        if (whole || has_left(p, r)) {
            r->left = !whole;
            r->end_ns = p->now;
            p->free += l->blocks;
            tr_fair_give(p->fair, l->key);
        } else {
            p->live[n++] = *l;
        }
    }
    p->n_live = n;
}

/* ---- a step ---- */

static uint32_t make_plan(struct play *p, struct tr_plan_step *step)
{
    for (uint32_t i = 0; i < p->n_live; i++) {
        const struct live *l = &p->live[i];
        const struct tr_playback_request *r = &p->r[l->r];
        p->seqs[i] = (struct tr_plan_seq){.state = l->state,
                                          .priority = r->priority,
                                          .key = l->key,
                                          .total = total(p, l),
                                          .in_kv = l->in_kv,
                                          .limit = r->prompt + r->max_tokens,
                                          .blocks = l->blocks,
                                          .row_cap = UINT32_MAX,
                                          .again = l->again};
    }
    struct tr_plan_in in = {.seqs = p->seqs,
                            .n = p->n_live,
                            .served = tr_fair_served(p->fair),
                            .max_seqs = p->c->max_seqs,
                            .max_rows = p->c->prefill_chunk ? p->c->max_seqs + p->c->prefill_chunk
                                                            : UINT32_MAX,
                            .prefill_chunk = p->c->prefill_chunk,
                            .out_chunk = UINT32_MAX,
                            .free_blocks = p->free,
                            .cost = &p->cost};
    tr_plan_set_targets(&in, p->c->itl_target_ns, p->c->ttft_target_ns);
    return tr_plan_make(&in, p->todo, step);
}

static void carry_out(struct play *p)
{
    for (uint32_t i = 0; i < p->n_live; i++) {
        struct live *l = &p->live[i];
        struct tr_playback_request *r = &p->r[l->r];
        if (p->todo[i].what == TR_PLAN_PREEMPT) {
            p->free += l->blocks;
            l->blocks = l->in_kv = 0;
            l->state = TR_WAITING;
            l->again = true;
            r->preemptions++;
            p->t->preemptions++;
        } else if (p->todo[i].what == TR_PLAN_ADMIT) {
            l->state = TR_PREFILL;
            r->started_ns = r->started_ns == TR_PLAYBACK_NEVER ? p->now : r->started_ns;
        }
    }
    for (uint32_t i = 0; i < p->n_live; i++) {
        struct live *l = &p->live[i];
        uint32_t need = tr_kv_blocks_for(total(p, l));
        if (p->todo[i].rows && need > l->blocks) {
            p->free -= need - l->blocks;
            l->blocks = need;
        }
    }
}

static void take_time(struct play *p, const struct tr_cost_work *w)
{
    struct tr_playback_totals *t = p->t;
    double ns = (double)tr_cost_predict(&p->truth, w) * (1 + p->c->noise * noise(p));
    uint64_t took = (uint64_t)ns + 1;
    p->now += took;
    tr_cost_learn(&p->cost, w, took);
    t->steps++;
    t->busy_ns += took;
    t->decode_rows += w->n[TR_COST_DECODE];
    t->prompt_rows += w->n[TR_COST_PREFILL];
    if (!w->n[TR_COST_DECODE])
        return;
    t->late += p->c->itl_target_ns && took > p->c->itl_target_ns;
    t->longest_ns = took > t->longest_ns ? took : t->longest_ns;
}

static void publish(struct play *p)
{
    for (uint32_t i = 0; i < p->n_live; i++) {
        struct live *l = &p->live[i];
        struct tr_playback_request *r = &p->r[l->r];
        uint32_t rows = p->todo[i].rows;
        if (!rows)
            continue;
        l->in_kv += rows;
        if (r->n_out == 0 && !l->again)
            tr_fair_serve(p->fair, l->key, (uint64_t)rows * TR_FAIR_PROMPT);
        if (l->in_kv < total(p, l))
            continue;
        l->state = TR_RUNNING;
        l->again = false;
        r->n_out++;
        tr_fair_serve(p->fair, l->key, TR_FAIR_ANSWER);
        if (r->first_ns == TR_PLAYBACK_NEVER)
            r->first_ns = p->now;
        if (p->token)
            p->token(p->arg, r, r->n_out, r->n_out > 1 ? p->now - l->last_ns : 0);
        l->last_ns = p->now;
    }
}

/* Nobody can be served: until the next arrival, or until somebody leaves. */
static void wait(struct play *p)
{
    uint64_t until = p->next < p->n ? p->r[p->next].at_ns : TR_PLAYBACK_NEVER;
    for (uint32_t i = 0; i < p->n_live; i++) {
        const struct tr_playback_request *r = &p->r[p->live[i].r];
        until = r->leave_ns < until ? r->leave_ns : until;
    }
    p->now = until > p->now ? until : p->now + 1;
}

static int check(const struct tr_playback_config *c, const struct tr_playback_request *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!r[i].prompt || !r[i].max_tokens || (i && r[i].at_ns < r[i - 1].at_ns) ||
            tr_kv_blocks_for(r[i].prompt + r[i].max_tokens) > c->n_blocks)
            return -EINVAL;
    return c->max_seqs ? 0 : -EINVAL;
}

static int open_play(struct play *p)
{
    uint64_t bytes = 0;
    p->cap = p->c->max_seqs + p->c->max_queue;
    p->free = p->c->n_blocks;
    p->random = p->c->seed;
    p->live = calloc(p->cap, sizeof(*p->live));
    p->seqs = calloc(p->cap, sizeof(*p->seqs));
    p->todo = calloc(p->cap, sizeof(*p->todo));
    p->fair = tr_fair_new(p->cap, &bytes);
    tr_cost_init(&p->cost, p->c->weight_bytes);
    memcpy(p->truth.price, p->c->price, sizeof(p->truth.price));
    return p->live && p->seqs && p->todo && p->fair ? 0 : -ENOMEM;
}

int tr_playback_run(const struct tr_playback_config *c, struct tr_playback_request *r, size_t n,
                    struct tr_playback_totals *t, tr_playback_token *token, void *arg)
{
    struct play p = {.c = c, .r = r, .n = n, .t = t, .token = token, .arg = arg};
    struct tr_plan_step step;
    int ret = check(c, r, n);
    if (ret)
        return ret;
    memset(t, 0, sizeof(*t));
    for (size_t i = 0; i < n; i++) {
        r[i].refused = r[i].left = false;
        r[i].n_out = r[i].preemptions = 0;
        r[i].started_ns = r[i].first_ns = r[i].end_ns = TR_PLAYBACK_NEVER;
    }
    ret = open_play(&p);
    while (!ret && (p.next < n || p.n_live)) {
        arrive(&p);
        forget_gone(&p);
        uint32_t rows = make_plan(&p, &step);
        carry_out(&p);
        if (rows) {
            take_time(&p, &step.work);
            publish(&p);
            forget_gone(&p);
        } else if (p.next < n || p.n_live) {
            wait(&p);
        }
    }
    t->end_ns = p.now;
    free(p.live);
    free(p.seqs);
    free(p.todo);
    tr_fair_free(p.fair);
    return ret;
}
