/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/engine_rig.h - a scheduler in one process with the test: all regions mapped, the test
 * plays supervisor, frontends and ledger by hand and turns the scheduler turn by turn.
 *
 * With TOKENRING_TEST_LATE in the environment every backend works as a device does (late_backend.h).
 * Any failure of the rig itself ends the program with a sentence. */
#ifndef TR_TESTS_ENGINE_RIG_H
#define TR_TESTS_ENGINE_RIG_H

#include "engine/sched.h"
#include "shm/extra.h"
#include "shm/region.h"
#include "shm/stat.h"

struct tr_engine_rig_config {
    struct tr_shm_config shm; /* 0 fields get small defaults */
    struct tr_sched_config sched;
    const struct tr_backend_ops *ops; /* NULL: sim, its own vocabulary */
    struct tr_backend_config backend;
    uint32_t kv_blocks; /* 0: as the backend likes */
    bool no_engine;     /* shared memory only: the engine is another process */
};

struct tr_engine_rig {
    struct tr_engine_rig_config c;
    struct tr_shm_fds fds;
    struct tr_shm s;
    struct tr_sched *sched;
    struct tr_backend *backend;
    struct tr_backend_info info;
};

/* A request as the rig submits it; defaults by tr_rig_ask: greedy, streamed, prompt {1, 2, 3}. */
struct tr_rig_ask {
    uint32_t area;
    const uint32_t *prompt;
    uint32_t prompt_len;
    struct tr_params params;
    const struct tr_extra *extra; /* or NULL */
    const char *id;
    const char *key; /* NULL: "key" */
    struct tr_idem idem;
    uint64_t rand;
};

/* What the frontend knows after the submission. */
struct tr_rig_req {
    uint32_t area, slot, gen;
};

void tr_engine_rig_open(struct tr_engine_rig *r, const struct tr_engine_rig_config *c);
void tr_engine_rig_close(struct tr_engine_rig *r);

/* The engine dies: the scheduler object is dropped, shared memory stays.  Then a new one. */
void tr_engine_rig_crash(struct tr_engine_rig *r);
void tr_engine_rig_restart(struct tr_engine_rig *r);

/* ---- playing roles ---- */
void tr_rig_be_frontend(struct tr_engine_rig *r, uint32_t area);
void tr_rig_start_frontend(struct tr_engine_rig *r, uint32_t area); /* next epoch, alive */
void tr_rig_kill_frontend(struct tr_engine_rig *r, uint32_t area);
void tr_rig_drain(struct tr_engine_rig *r, enum tr_drain d);
/* The ledger takes all records; how many are queued in all. */
void tr_rig_ledger_runs(struct tr_engine_rig *r);
uint64_t tr_rig_bills(const struct tr_engine_rig *r);
const struct tr_bill *tr_rig_bill(const struct tr_engine_rig *r, uint64_t i);

struct tr_rig_ask tr_rig_ask(void);
/* Claims, writes and submits n asks as one group; the slots in out.  0, or -EAGAIN without a slot. */
int tr_rig_submit_group(struct tr_engine_rig *r, const struct tr_rig_ask *a, uint32_t n,
                        struct tr_rig_req *out);
struct tr_rig_req tr_rig_submit(struct tr_engine_rig *r, const struct tr_rig_ask *a);
/* The same without the push: for tests that spoil it. */
struct tr_rig_req tr_rig_prepare(struct tr_engine_rig *r, const struct tr_rig_ask *a);
void tr_rig_push(struct tr_engine_rig *r, const struct tr_rig_req *q);

void tr_rig_cancel(struct tr_engine_rig *r, const struct tr_rig_req *q, enum tr_err why);
void tr_rig_finish(struct tr_engine_rig *r, const struct tr_rig_req *q, uint32_t at);
void tr_rig_release(struct tr_engine_rig *r, const struct tr_rig_req *q);
/* Moves both cursors to what is published and pops the logprob ring. */
void tr_rig_read_all(struct tr_engine_rig *r, const struct tr_rig_req *q);

/* ---- turning ---- */
bool tr_rig_turn(struct tr_engine_rig *r);
/* Turns until nothing happens; readers in `q` keep up if `reading`. */
void tr_rig_run(struct tr_engine_rig *r, const struct tr_rig_req *q, uint32_t n);

/* ---- looking ---- */
uint32_t tr_rig_state(const struct tr_engine_rig *r, const struct tr_rig_req *q);
uint32_t tr_rig_published(const struct tr_engine_rig *r, const struct tr_rig_req *q);
const uint32_t *tr_rig_output(const struct tr_engine_rig *r, const struct tr_rig_req *q);
struct tr_ring *tr_rig_ring(const struct tr_engine_rig *r, const struct tr_rig_req *q);
uint64_t tr_rig_stat(const struct tr_engine_rig *r, enum tr_stat_id id);
uint64_t tr_rig_hist(const struct tr_engine_rig *r, enum tr_hist_id id);
uint32_t tr_rig_claims(const struct tr_engine_rig *r, enum tr_claim_state st);

#endif
