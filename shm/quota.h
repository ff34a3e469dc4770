/* SPDX-License-Identifier: Apache-2.0 */
/* shm/quota.h - what each API key has asked of this service in the last minute, and what it has running.
 *
 * Path: http [limits] > tokens > subq > engine > step > ring > detok > event > socket
 *
 * A frontend counts its own requests, in its own region of statistics, and reads those of all others: the
 * sum decides.  It looks and then counts, in one thread, with nothing in between; so of N frontends each can
 * have at most one request between its look and its count, and a limit is passed by N - 1 at most.
 *
 * Always true:
 *   Q1  one writer for each struct; `started` and `ended` only grow, and who reads all `ended` before all
 *       `started` never finds fewer running than there were at some moment in between
 *   Q2  a second that is at least TR_QUOTA_WINDOW_S old counts no more; one that is younger counts whole
 *   Q3  counts and looks are sequentially consistent: whoever counted before a look is seen by it
 *
 * Frontend died: what it had running is gone with it (its epoch); its minute counts on.  Whoever gets the
 * area next goes on counting in the same places.
 *
 * Another process may write anything here: times of the future are passed over, sums are bounded. */
#ifndef TR_SHM_QUOTA_H
#define TR_SHM_QUOTA_H

#include "shm/layout.h"

enum {
    TR_QUOTA_WINDOW_S = 61, /* seconds that have begun in the last 60 s */
    TR_QUOTA_SECONDS = 64
};

struct tr_quota_second {
    /*                            its writer  readers  what */
    _Atomic uint32_t second;   /* release     acquire  1 + of the clock; 0: being emptied */
    _Atomic uint32_t requests; /* seq_cst     seq_cst  counted in it */
    _Atomic uint64_t tokens;   /* relaxed     relaxed  of prompts and answers */
};

/* Its writer is the frontend that has the area.  Another one that comes into it makes `ended` what `started`
 * is before it sets `epoch` and counts. */
struct tr_quota {
    /*                                   its writer  readers  what */
    TR_LINE _Atomic uint64_t started; /* seq_cst     seq_cst  streams ever begun */
    _Atomic uint64_t ended;           /* seq_cst     seq_cst  of them over */
    _Atomic uint32_t epoch;           /* release     acquire  who counts: tr_shm.my_epoch */
    TR_LINE struct tr_quota_second at[TR_QUOTA_SECONDS]; /* second s at s % TR_QUOTA_SECONDS */
};

struct tr_shm;

/* ---- the frontend's own counts; key < config.n_keys ---- */

void tr_quota_begin(struct tr_shm *s, uint32_t key, uint32_t streams);
void tr_quota_end(struct tr_shm *s, uint32_t key, uint32_t streams);
void tr_quota_request(struct tr_shm *s, uint32_t key, uint64_t now_ns);
void tr_quota_tokens(struct tr_shm *s, uint32_t key, uint64_t now_ns, uint64_t n);
/* Takes back n of those that were counted at then_ns, if that second is still there. */
void tr_quota_take_back(struct tr_shm *s, uint32_t key, uint64_t then_ns, uint64_t n);

/* ---- over all frontends ---- */

/* Streams of the key that run now. */
uint64_t tr_quota_running(const struct tr_shm *s, uint32_t key);

/* By age in seconds. */
struct tr_quota_minute {
    uint64_t requests[TR_QUOTA_WINDOW_S], tokens[TR_QUOTA_WINDOW_S];
    uint64_t all_requests, all_tokens;
};
void tr_quota_look(const struct tr_shm *s, uint32_t key, uint64_t now_ns,
                   struct tr_quota_minute *out);

/* Of a row of tr_quota_minute: in how many seconds no more than `most` are left of it; 0: now. */
unsigned tr_quota_wait(const uint64_t by_age[TR_QUOTA_WINDOW_S], uint64_t most);

/* Bytes of a key in a region of statistics. */
static inline size_t tr_quota_bytes(void)
{
    return sizeof(struct tr_quota);
}

#endif
