/* SPDX-License-Identifier: Apache-2.0 */
#include "top/snap.h"

#include <stdlib.h>
#include <string.h>

struct tr_top_snap *tr_top_snap_new(const struct tr_shm_config *c)
{
    struct tr_top_snap *s = calloc(1, sizeof(*s) + c->n_slots * sizeof(s->slot[0]));
    if (s) {
        s->n_stats = tr_layout_n_stats(c);
        s->n_slots = c->n_slots;
    }
    return s;
}

static uint32_t u32(const _Atomic uint32_t *p)
{
    return atomic_load_explicit(p, memory_order_relaxed);
}

static uint64_t u64(const _Atomic uint64_t *p)
{
    return atomic_load_explicit(p, memory_order_relaxed);
}

static uint32_t at_most(uint32_t v, uint32_t max)
{
    return v < max ? v : max;
}

static uint64_t not_after(uint64_t ns, uint64_t now_ns)
{
    return ns < now_ns ? ns : now_ns;
}

static void take_slot(struct tr_top_slot *t, const struct tr_slot_stat *from,
                      const struct tr_shm_config *c, uint64_t now_ns)
{
    uint32_t state = u32(&from->state), area = u32(&from->area);
    uint64_t cursors = u64(&from->cursors);
    t->gen = u32(&from->gen);
    t->state = state <= TR_ERROR ? state : TR_TOP_UNKNOWN;
    t->area = area < c->n_areas ? area : TR_TOP_NOBODY;
    t->prompt_len = at_most(u32(&from->prompt_len), c->n_ctx);
    t->max_tokens = at_most(u32(&from->max_tokens), c->n_ctx);
    t->prefilled = at_most(u32(&from->prefilled), t->prompt_len);
    t->published = at_most(u32(&from->published), c->n_ctx);
    t->preemptions = u32(&from->preemptions);
    t->scanned = at_most((uint32_t)cursors, t->published);
    t->sent = at_most((uint32_t)(cursors >> 32), t->published);
    t->arrival_ns = not_after(u64(&from->arrival_ns), now_ns);
}

static void take_process(struct tr_top_process *p, const struct tr_process_stat *row,
                         const struct tr_stat *stat, uint64_t now_ns)
{
    p->state = at_most(u32(&row->state), TR_PROCESS_DEAD);
    p->pid = u32(&row->pid);
    p->number = at_most(u32(&row->number), TR_MAX_AREAS);
    p->started_ns = not_after(u64(&row->started_ns), now_ns);
    p->heartbeat_ns = not_after(u64(&stat->heartbeat_ns), now_ns);
}

static void add_hist(struct tr_top_hist *sum, const struct tr_hist *h)
{
    for (unsigned b = 0; b <= TR_HIST_BUCKETS; b++)
        sum->bucket[b] += u64(&h->bucket[b]);
}

void tr_top_snap_take(struct tr_top_snap *s, const struct tr_top_view *v, uint64_t now_ns)
{
    const struct tr_shm_config *c = &v->hello.config;
    s->now_ns = now_ns;
    s->drain = u32(&v->processes->drain);
    memset(s->hist, 0, sizeof(s->hist));
    for (uint32_t i = 0; i < s->n_stats; i++) {
        take_process(&s->process[i], &v->processes->row[i], v->stat[i], now_ns);
        for (unsigned k = 0; k < TR_STAT_N; k++)
            s->value[i][k] = u64(&v->stat[i]->value[k]);
        for (unsigned k = 0; k < TR_HIST_N; k++)
            add_hist(&s->hist[k], &v->stat[i]->hist[k]);
    }
    s->step_ns = u64(&v->stat[TR_STAT_ENGINE]->hist[TR_HIST_STEP].sum);
    for (uint32_t i = 0; i < s->n_slots; i++)
        take_slot(&s->slot[i], &v->slots->slot[i], c, now_ns);
}
