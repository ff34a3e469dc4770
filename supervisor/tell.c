/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/tell.c - the processes, as observers see them (shm/process_stat.h). */
#include "supervisor/supervise_priv.h"

#include "base/clock.h"
#include "shm/process_stat.h"
#include "shm/stat.h"

static void store(_Atomic uint32_t *p, uint32_t v)
{
    atomic_store_explicit(p, v, memory_order_relaxed);
}

static void tell(struct tr_supervisor *v, uint32_t index, enum tr_process_state state,
                 const struct tr_child *c, uint32_t number)
{
    struct tr_process_stat *row = &v->s.processes->row[index];
    store(&row->number, number);
    store(&row->pid, (uint32_t)c->pid);
    atomic_store_explicit(&row->started_ns, c->started_ns, memory_order_relaxed);
    store(&row->state, state);
}

static enum tr_process_state state_of(const struct tr_supervisor *v, const struct tr_child *c)
{
    return tr_child_is_up(v, c) ? TR_PROCESS_SERVING : TR_PROCESS_STARTING;
}

void tr_tell(struct tr_supervisor *v)
{
    bool there[TR_MAX_STATS] = {false};
    struct tr_child self = {.pid = v->h->supervisor,
                            .started_ns = v->h->observer.message.started_ns};
    tr_stat_beat(v->s.stat[TR_STAT_SUPERVISOR], tr_now_ns());
    store(&v->s.processes->drain, (uint32_t)v->drain);
    tell(v, TR_STAT_SUPERVISOR, TR_PROCESS_SERVING, &self, 0);
    there[TR_STAT_SUPERVISOR] = true;
    if ((there[TR_STAT_ENGINE] = v->engine.pid != 0))
        tell(v, TR_STAT_ENGINE, state_of(v, &v->engine), &v->engine, 0);
    if ((there[TR_STAT_LEDGER] = v->ledger.pid != 0))
        tell(v, TR_STAT_LEDGER, state_of(v, &v->ledger), &v->ledger, 0);
    for (unsigned i = 0; i < TR_FRONTENDS; i++) {
        const struct tr_child *f = tr_child_frontend(v, i);
        if (!f->pid)
            continue;
        there[TR_STAT_AREA0 + f->area] = true;
        tell(v, TR_STAT_AREA0 + f->area,
             tr_child_is_retired(v, f) ? TR_PROCESS_RETIRED : state_of(v, f), f, f->number);
    }
    for (uint32_t i = 0; i < tr_layout_n_stats(&v->s.config); i++) {
        struct tr_process_stat *row = &v->s.processes->row[i];
        if (!there[i] && atomic_load_explicit(&row->pid, memory_order_relaxed))
            store(&row->state, TR_PROCESS_DEAD);
    }
}
