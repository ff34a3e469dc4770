/* SPDX-License-Identifier: Apache-2.0 */
/* Other frontends for those that serve: SIGHUP, and more or fewer of them: SIGTTIN, SIGTTOU.
 *
 * One step at a time: a new frontend starts in a free area while the old one serves; when it serves
 * too, it has the place and the old one retires, which ends with its last connection.  A new one
 * that cannot start changes nothing. */
#include "supervisor/supervise_priv.h"

#include "base/log.h"

#include <string.h>
#include <sys/wait.h>

enum { TRIES = 3 }; /* of a new frontend that is killed before it serves */

/* One area is left for replacing. */
static unsigned most(const struct tr_supervisor *v)
{
    return v->s.config.n_areas - 1;
}

/* Its place is given away.  Told by the area's own epoch: nothing is to be taken back later. */
static void retire(struct tr_supervisor *v, struct tr_child *f)
{
    if (f->pid) {
        tr_sup_set(&v->s.control->area_retire[f->area], f->epoch);
        tr_sup_publish(v);
        v->retired[f->area] = *f;
    }
    *f = (struct tr_child){0};
}

void tr_replace_all(struct tr_supervisor *v)
{
    v->generation++;
    v->area_missed = false;
    tr_heritage_new_tickets(v->h);
    tr_heritage_reload_keys(v->h);
    tr_log(TR_LOG_INFO, "replacing the frontends, one after the other (%u)", v->n_front);
}

void tr_replace_more(struct tr_supervisor *v)
{
    if (v->n_wanted >= most(v)) {
        tr_log(TR_LOG_WARN,
               "no further frontend: there is room for %u, and for one to replace them", most(v));
        return;
    }
    v->n_wanted++;
    v->area_missed = false;
    tr_log(TR_LOG_INFO, "one more frontend: %u", v->n_wanted);
}

void tr_replace_fewer(struct tr_supervisor *v)
{
    if (v->n_wanted <= 1) {
        tr_log(TR_LOG_WARN, "the last frontend stays");
        return;
    }
    v->n_wanted--;
    tr_log(TR_LOG_INFO, "one frontend less: %u", v->n_wanted);
    if (v->next.number >= v->n_wanted)
        retire(v, &v->next);
    if (v->n_front > v->n_wanted)
        retire(v, &v->front[--v->n_front]);
}

/* The place that needs a new frontend next; n_wanted when none does. */
static unsigned place(const struct tr_supervisor *v)
{
    if (v->n_front < v->n_wanted)
        return v->n_front;
    unsigned i = 0;
    while (i < v->n_front && (!v->front[i].pid || v->front[i].generation == v->generation))
        i++;
    return i;
}

static void start_next(struct tr_supervisor *v)
{
    unsigned number = place(v);
    if (number >= v->n_wanted || !tr_child_is_due(&v->next))
        return;
    if (tr_child_start_frontend(v, &v->next, number) == 0) {
        v->area_missed = false;
    } else if (!v->area_missed) {
        v->area_missed = true;
        tr_log(TR_LOG_INFO, "frontend %u waits until a retired one has ended", number);
    }
}

static void take_place(struct tr_supervisor *v)
{
    struct tr_child *f = &v->front[v->next.number];
    bool added = v->next.number == v->n_front;
    v->n_front += added;
    retire(v, f);
    *f = v->next;
    f->served = true;
    v->next = (struct tr_child){0};
    tr_log(TR_LOG_INFO, added ? "frontend %u (pid %d) serves" : "frontend %u is new (pid %d)",
           f->number, (int)f->pid);
}

void tr_replace_on(struct tr_supervisor *v)
{
    if (v->next.pid && tr_child_is_up(v, &v->next))
        take_place(v);
    if (!v->next.pid)
        start_next(v);
}

void tr_replace_failed(struct tr_supervisor *v, int status)
{
    struct tr_child *next = &v->next;
    if (WIFSIGNALED(status) && ++next->unready < TRIES) {
        tr_child_schedule(next);
        return;
    }
    tr_log(TR_LOG_WARN, "the new frontend %u could not start: the %u that serve go on",
           next->number, v->n_front);
    /* What was asked for before it started is given up; a SIGHUP since then is another attempt. */
    v->n_wanted = next->number < v->n_front ? v->n_wanted : v->n_front;
    for (unsigned i = 0; i < v->n_front; i++)
        if (v->front[i].generation < next->generation)
            v->front[i].generation = next->generation;
    *next = (struct tr_child){0};
}
