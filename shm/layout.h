/* SPDX-License-Identifier: Apache-2.0 */
/* shm/layout.h - the regions of shared memory: what there is, how large, where things lie.
 *
 * All sizes follow from struct tr_shm_config, which the supervisor fixes before it forks.  A process
 * computes every offset from its own copy of it, never from a number read in shared memory.
 * The protocol is told in shm/README.md. */
#ifndef TR_SHM_LAYOUT_H
#define TR_SHM_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define TR_SHM_MAGIC 0x676e69726e6b6f74u /* "tokenring" without its first e, little-endian */
enum {
    TR_LAYOUT_VERSION = 10,
    TR_LINE_BYTES = 64,
    TR_MAX_AREAS = 64,        /* 2 x the largest number of frontends */
    TR_MAX_TOP = 20,          /* alternatives in a logprob entry */
    TR_MAX_CHOICES = 128,     /* slots in a group */
    TR_EXTRA_BYTES = 5 << 16, /* packed variable part of a request (shm/extra.h) */
    TR_BILL_CAP = 4096,       /* records in the accounting queue */
    TR_DELIVERY_CAP = 4096,   /* records in a frontend's delivery queue */
    TR_STEP_TIMES = 65536,    /* steps whose times are kept */
    TR_ID_BYTES = 132,        /* a request id of <= 128 bytes and its NUL */
    TR_KEY_BYTES = 64
};

#define TR_LINE _Alignas(TR_LINE_BYTES)

/* Constants of one service.  Copied into the head of every region; a process that attaches
 * compares them with what it was given. */
struct tr_shm_config {
    uint32_t n_ctx; /* tokens of prompt + output in a slot */
    uint32_t n_vocab;
    uint32_t n_slots;  /* --max-streams */
    uint32_t n_admit;  /* --max-seqs + --max-queue: open + claimed + waiting + running */
    uint32_t max_seqs; /* sequences in a batch */
    uint32_t n_areas;  /* 2 x --frontends, at least 4, <= TR_MAX_AREAS */
    uint32_t window;   /* --window, tokens; power of two not required */
    uint32_t ledger;   /* 1: records wait for the ledger process; 0: --ledger off */
    uint32_t n_keys;   /* API keys whose limits can be counted (shm/quota.h); 0: none */
};

enum tr_region_kind {
    TR_REGION_CONTROL,    /* written by the supervisor */
    TR_REGION_RINGS,      /* written by the engine */
    TR_REGION_ACCOUNTING, /* written by the engine */
    TR_REGION_CLAIMS,     /* written by frontends and engine */
    TR_REGION_LEDGER,     /* written by the ledger process */
    TR_REGION_SLOTS,      /* statistics of the slots, written by the engine */
    TR_REGION_PROCESSES,  /* who lives, written by the supervisor */
    TR_REGION_STAT,       /* one for each writer: see tr_stat_index */
    TR_REGION_AREA        /* one for each frontend area, written by that frontend (and the engine
                             where it takes dirty bits) */
};

struct tr_region_head {
    uint64_t magic;
    uint32_t version;
    uint32_t kind;
    uint32_t index;
    uint32_t pad;
    uint64_t bytes;
    struct tr_shm_config config;
};

/* ---- sizes and offsets; all multiples of TR_LINE_BYTES, regions multiples of the page ---- */
size_t tr_layout_region_bytes(const struct tr_shm_config *c, enum tr_region_kind k);

size_t tr_layout_ring_stride(const struct tr_shm_config *c); /* one slot in the rings region */
size_t tr_layout_ring_at(const struct tr_shm_config *c, uint32_t slot);
size_t tr_layout_ring_ids(const struct tr_shm_config *c);   /* within a ring: ids [n_ctx] */
size_t tr_layout_ring_steps(const struct tr_shm_config *c); /* step index [n_ctx] */
size_t tr_layout_ring_extra(const struct tr_shm_config *c); /* TR_EXTRA_BYTES */
size_t tr_layout_ring_lp(const struct tr_shm_config *c);    /* logprob entries [window] */

size_t tr_layout_area_subq(const struct tr_shm_config *c);
size_t tr_layout_area_delivery(const struct tr_shm_config *c);
size_t tr_layout_area_dirty(const struct tr_shm_config *c); /* summary words, then words */
size_t tr_layout_area_news(const struct tr_shm_config *c);  /* the same shape */
size_t tr_layout_area_cmd(const struct tr_shm_config *c);
size_t tr_layout_area_cursor(const struct tr_shm_config *c);
size_t tr_layout_area_request(const struct tr_shm_config *c, uint32_t slot);

size_t tr_layout_stat_quota(void); /* in a region of statistics: struct tr_quota [n_keys] */

uint32_t tr_layout_subq_cap(const struct tr_shm_config *c); /* power of two >= 2 x n_slots */
uint32_t tr_layout_dirty_words(const struct tr_shm_config *c);
uint32_t tr_layout_dirty_sums(const struct tr_shm_config *c);

/* Statistics regions: engine 0, ledger 1, supervisor 2, the frontend with area a 3 + a. */
enum { TR_STAT_ENGINE, TR_STAT_LEDGER, TR_STAT_SUPERVISOR, TR_STAT_AREA0 };
enum { TR_MAX_STATS = TR_STAT_AREA0 + TR_MAX_AREAS };

static inline uint32_t tr_layout_n_stats(const struct tr_shm_config *c)
{
    return TR_STAT_AREA0 + c->n_areas;
}

/* Whether `tokenring top` gets this region. */
static inline int tr_layout_is_observed(enum tr_region_kind k)
{
    return k == TR_REGION_SLOTS || k == TR_REGION_PROCESSES || k == TR_REGION_STAT;
}

/* 0, or -EINVAL with a sentence when the numbers make no sense or overflow. */
struct tr_errbuf;
int tr_layout_check(const struct tr_shm_config *c, struct tr_errbuf *err);

#endif
