/* SPDX-License-Identifier: Apache-2.0 */
/* shm/region.h - making, mapping and rights of the regions; the handle of a process.
 *
 * The supervisor makes one sealed memfd for each region and a read-only descriptor for each.  A
 * child maps what its role writes read-write, the rest read-only, and closes every descriptor: a
 * read-only mapping of a read-write descriptor could be made writable, and a descriptor or a
 * writable mapping could be grown over a neighbour's pages, which is why every writer has memfds
 * of its own (also for its statistics) and never a page of a common one.
 *
 * Descriptors of the observed regions leave the service (supervisor/observe.h), and whoever has a
 * descriptor of a memfd can open it again for writing.  So they are sealed against every future
 * writer at birth, and the right to write is a mapping: the supervisor keeps one, a child inherits
 * it by fork, copies it (mremap) if its role writes there, and unmaps it with the descriptors. */
#ifndef TR_SHM_REGION_H
#define TR_SHM_REGION_H

#include "base/err.h"
#include "shm/area.h"
#include "shm/bill.h"
#include "shm/claim.h"
#include "shm/control.h"
#include "shm/layout.h"
#include "shm/ring.h"
#include "shm/role.h"

struct tr_stat;
struct tr_slot_stats;
struct tr_processes;

/* Head of the rings region. */
struct tr_rings {
    struct tr_region_head head;
    /* All by the engine. */
    TR_LINE _Atomic uint64_t heartbeat_ns; /* relaxed: after every layer, and while idle */
    _Atomic uint32_t sleeping;             /* seq_cst, shm/bell.h */
    _Atomic uint32_t ready; /* release: epoch of the engine that admits; 0 while loading */
    _Atomic uint32_t step;  /* release: steps done, modulo 2^32 */
    /* The forward pass, for whoever looks after a death (engine/suspect.c): who was in it says so in
     * his ring. */
    _Atomic uint32_t in_pass;       /* release: the engine's epoch until all is sampled, then 0 */
    _Atomic uint64_t pass;          /* relaxed, before in_pass: passes begun */
    _Atomic uint64_t bills_counted; /* relaxed: records of the accounting queue in the statistics */
    TR_LINE _Atomic uint64_t subq_head[TR_MAX_AREAS]; /* release: messages consumed */
    _Atomic uint32_t area_ack[TR_MAX_AREAS]; /* release: epoch whose death has been dealt with */
    TR_LINE _Atomic uint64_t
        step_ns[TR_STEP_TIMES]; /* relaxed: when step s ended, at s % TR_STEP_TIMES */
    /* then the rings of shm/ring.h */
};

struct tr_fds {
    int rw, ro; /* rw -1: an observed region */
    void *seed; /* its writable mapping; else NULL */
};

/* Every descriptor the regions and bells have; made by the supervisor, inherited by fork. */
struct tr_shm_fds {
    struct tr_shm_config config;
    struct tr_fds control, rings, accounting, claims, ledger, slots, processes;
    struct tr_fds stat[TR_MAX_STATS];
    struct tr_fds area[TR_MAX_AREAS];
    int bell_engine, bell_ledger, bell_area[TR_MAX_AREAS];
};

/* A process's view.  Pointers that its role may not write are mapped read-only in spite of their
 * type; pointers that it may not even read are NULL. */
struct tr_shm {
    struct tr_shm_config config;
    enum tr_role role;
    uint32_t my_area;  /* frontend */
    uint32_t my_epoch; /* frontend: of its area; engine: its own */
    struct tr_control *control;
    struct tr_rings *rings;
    struct tr_accounting *accounting; /* engine, ledger */
    struct tr_claims *claims;         /* frontends, engine */
    struct tr_ledger_page *ledger;
    struct tr_slot_stats *slots;    /* engine */
    struct tr_processes *processes; /* supervisor */
    struct tr_stat *stat[TR_MAX_STATS];
    struct tr_area
        *area[TR_MAX_AREAS]; /* engine, ledger, supervisor: all; a frontend: its own only */
    int bell_engine, bell_ledger, bell_area[TR_MAX_AREAS];
    uint32_t claim_hint; /* frontend: where its next search for an open slot begins */
    uint32_t *taken_gen; /* frontend, [n_slots]: the generation it claimed last (shm/claim.h) */
};

/* Supervisor.  Makes all regions (heads written, the rest zero) and bells. */
int tr_shm_create(const struct tr_shm_config *c, struct tr_shm_fds *fds, struct tr_errbuf *err);
void tr_shm_close_fds(struct tr_shm_fds *fds);

/* Maps by the rights of `role`, checks the heads that no frontend writes, closes the region descriptors (not the bells;
 * a frontend keeps its own bell and those of engine and ledger), and says in the statistics of this
 * process who it is and that it lives.  The supervisor keeps all descriptors; its mappings do not
 * pass to the children it forks, seeds apart. */
int tr_shm_attach(struct tr_shm *s, struct tr_shm_fds *fds, enum tr_role role, uint32_t area,
                  uint32_t epoch, struct tr_errbuf *err);
void tr_shm_detach(struct tr_shm *s);

/* Tests: everything in one process, read-write; roles are played by setting tr_role. */
int tr_shm_attach_all(struct tr_shm *s, struct tr_shm_fds *fds, struct tr_errbuf *err);

/* Zero, for who may write it.  Memory of many pages goes back to the system. */
void tr_shm_wipe(void *p, size_t len);

/* Bytes of address space of all regions together and per stream, for the start-up line. */
uint64_t tr_shm_total_bytes(const struct tr_shm_config *c);
uint64_t tr_shm_slot_bytes(const struct tr_shm_config *c);

#endif
