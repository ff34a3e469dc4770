/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/figures.c - see figures.h. */
#include "frontend/figures.h"

#include <string.h>

static bool alive(const struct tr_fe *fe, uint32_t region)
{
    const struct tr_control *c = fe->shm->control;

    if (region == TR_STAT_ENGINE) /* one that still loads has not said anything either */
        return atomic_load_explicit(&c->engine_alive, memory_order_relaxed) &&
               atomic_load_explicit(&fe->shm->rings->ready, memory_order_relaxed) ==
                   atomic_load_explicit(&c->engine_epoch, memory_order_relaxed);
    if (region < TR_STAT_AREA0)
        return true;
    return atomic_load_explicit(&c->area_alive[region - TR_STAT_AREA0], memory_order_relaxed);
}

static void add_hist(struct tr_expo_hist *to, const struct tr_hist *h)
{
    for (unsigned b = 0; b <= TR_HIST_BUCKETS; b++)
        to->bucket[b] += atomic_load_explicit(&h->bucket[b], memory_order_relaxed);
    to->sum += atomic_load_explicit(&h->sum, memory_order_relaxed);
}

static void add_region(struct tr_figures *f, const struct tr_stat *s, bool lives)
{
    for (unsigned id = 0; id < TR_STAT_N; id++)
        if (lives || tr_stat_rows[id].kind == TR_KIND_COUNTER)
            f->value[id] += atomic_load_explicit(&s->value[id], memory_order_relaxed);
    for (unsigned id = 0; id < TR_HIST_N; id++)
        add_hist(&f->hist[id], &s->hist[id]);
}

void tr_figures_take(struct tr_figures *f, const struct tr_fe *fe)
{
    memset(f, 0, sizeof(*f));
    f->engine = alive(fe, TR_STAT_ENGINE);
    for (uint32_t r = 0; r < tr_layout_n_stats(&fe->shm->config); r++) {
        const struct tr_stat *s = fe->shm->stat[r];
        bool lives = alive(fe, r);
        f->frontends += lives && r >= TR_STAT_AREA0;
        if (s)
            add_region(f, s, lives);
    }
}
