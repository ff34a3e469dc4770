/* SPDX-License-Identifier: Apache-2.0 */
/* A service that consists of its regions: the test writes them, top reads them through descriptors
 * as it would get them. */
#ifndef TR_TESTS_TOP_FIXTURE_H
#define TR_TESTS_TOP_FIXTURE_H

#include "base/clock.h"
#include "top/attach.h"
#include "top/render.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct top_rig {
    struct tr_shm_fds fds;
    struct tr_shm s; /* everything writable */
    struct tr_top_view view;
    struct tr_top_snap *then, *now;
    struct tr_top_figures f;
    struct tr_top_text text;
};

static inline struct tr_observe top_hello(const struct tr_shm_config *c)
{
    struct tr_observe h = tr_observe_of_this_build(c);
    h.pid = 4711;
    h.port = 8080;
    h.started_ns = tr_now_ns() - 125 * 1000000000ull;
    snprintf(h.version, sizeof(h.version), "1.2.3");
    snprintf(h.backend, sizeof(h.backend), "sim");
    snprintf(h.model, sizeof(h.model), "some-model");
    return h;
}

/* Duplicates, in the order of the message: tr_top_take closes them. */
static inline uint32_t top_fds(const struct top_rig *r, int *out)
{
    uint32_t n = tr_layout_n_stats(&r->fds.config);
    for (uint32_t i = 0; i < n; i++)
        out[i] = dup(r->fds.stat[i].ro);
    out[n] = dup(r->fds.slots.ro);
    out[n + 1] = dup(r->fds.processes.ro);
    return n + 2;
}

static inline void top_rig_open(struct top_rig *r, uint32_t n_slots)
{
    struct tr_errbuf err = {""};
    struct tr_shm_config c = {.n_ctx = 4096,
                              .n_vocab = 1000,
                              .n_slots = n_slots,
                              .n_admit = n_slots,
                              .max_seqs = 1,
                              .n_areas = 4,
                              .window = 100};
    int fds[TR_OBSERVE_MAX_FDS];
    memset(r, 0, sizeof(*r));
    cr_assert_eq(tr_shm_create(&c, &r->fds, &err), 0, "%s", err.msg);
    cr_assert_eq(tr_shm_attach_all(&r->s, &r->fds, &err), 0, "%s", err.msg);
    struct tr_observe h = top_hello(&c);
    uint32_t n = top_fds(r, fds);
    cr_assert_eq(tr_top_take(&r->view, &h, fds, n, &err), 0, "%s", err.msg);
    r->then = tr_top_snap_new(&c);
    r->now = tr_top_snap_new(&c);
    r->f.live = calloc(n_slots, sizeof(*r->f.live));
}

static inline void top_rig_close(struct top_rig *r)
{
    tr_top_detach(&r->view);
    free(r->then);
    free(r->now);
    free(r->f.live);
    tr_shm_detach(&r->s);
    tr_shm_close_fds(&r->fds);
}

/* ---- what a service would have written ---- */

static inline void top_process(struct top_rig *r, uint32_t index, enum tr_process_state state,
                               uint32_t pid, uint32_t number)
{
    struct tr_process_stat *p = &r->s.processes->row[index];
    atomic_store(&p->state, state);
    atomic_store(&p->pid, pid);
    atomic_store(&p->number, number);
    atomic_store(&p->started_ns, tr_now_ns() - 60 * 1000000000ull);
    tr_stat_beat(r->s.stat[index], tr_now_ns());
}

static inline void top_slot(struct top_rig *r, uint32_t slot, enum tr_state state,
                            uint32_t published, uint32_t sent, uint64_t age_s)
{
    struct tr_slot_stat *t = &r->s.slots->slot[slot];
    atomic_store(&t->gen, 1);
    atomic_store(&t->state, state);
    atomic_store(&t->area, 1);
    atomic_store(&t->prompt_len, 17);
    atomic_store(&t->max_tokens, 500);
    atomic_store(&t->prefilled, 17);
    atomic_store(&t->published, published);
    atomic_store(&t->cursors, (uint64_t)sent << 32 | sent);
    atomic_store(&t->arrival_ns, tr_now_ns() - age_s * 1000000000ull);
}

/* ---- what top does ---- */

/* Two looks, a second apart in name; `between` changes something. */
static inline void top_look_twice(struct top_rig *r, void (*between)(struct top_rig *r),
                                  enum tr_top_sort sort)
{
    uint64_t now = tr_now_ns();
    tr_top_snap_take(r->then, &r->view, now);
    if (between)
        between(r);
    tr_top_snap_take(r->now, &r->view, now + 1000000000ull);
    tr_top_figure(&r->f, &r->view.hello, r->then, r->now, sort);
}

static inline const char *top_line(const struct tr_top_text *t, const char *begin)
{
    for (unsigned i = 0; i < t->n; i++)
        if (strncmp(t->line[i].s, begin, strlen(begin)) == 0)
            return t->line[i].s;
    return "";
}

#define must_hold(line, words)                                                                     \
    cr_assert(strstr((line), (words)), "no \"%s\" in \"%s\"", (words), (line))

#endif
