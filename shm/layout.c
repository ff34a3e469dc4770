/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/layout.h"

#include "base/err.h"
#include "shm/area.h"
#include "shm/bill.h"
#include "shm/claim.h"
#include "shm/control.h"
#include "shm/lpring.h"
#include "shm/process_stat.h"
#include "shm/quota.h"
#include "shm/region.h"
#include "shm/ring.h"
#include "shm/slot_stat.h"
#include "shm/stat.h"

#include <errno.h>

enum { PAGE = 4096 };

/* Bounds that keep every product below inside 64 bits by a wide margin. */
enum {
    MAX_CTX = 1 << 24,
    MAX_VOCAB = 1 << 24,
    MAX_SLOTS = 1 << 20,
    MAX_WINDOW = 1 << 20,
    MAX_KEYS = 1 << 16
};

static size_t line_up(size_t n)
{
    return (n + TR_LINE_BYTES - 1) & ~(size_t)(TR_LINE_BYTES - 1);
}

static size_t page_up(size_t n)
{
    return (n + PAGE - 1) & ~(size_t)(PAGE - 1);
}

/* ---- rings ---- */

size_t tr_layout_ring_ids(const struct tr_shm_config *c)
{
    (void)c;
    return line_up(sizeof(struct tr_ring));
}

size_t tr_layout_ring_steps(const struct tr_shm_config *c)
{
    return tr_layout_ring_ids(c) + line_up((size_t)c->n_ctx * sizeof(uint32_t));
}

size_t tr_layout_ring_extra(const struct tr_shm_config *c)
{
    return tr_layout_ring_steps(c) + line_up((size_t)c->n_ctx * sizeof(uint32_t));
}

size_t tr_layout_ring_lp(const struct tr_shm_config *c)
{
    return tr_layout_ring_extra(c) + TR_EXTRA_BYTES;
}

/* Whole pages, so that wiping one ring can give its pages back without touching a neighbour's. */
size_t tr_layout_ring_stride(const struct tr_shm_config *c)
{
    return page_up(tr_layout_ring_lp(c) + (size_t)c->window * sizeof(struct tr_lp));
}

size_t tr_layout_ring_at(const struct tr_shm_config *c, uint32_t slot)
{
    return page_up(sizeof(struct tr_rings)) + (size_t)slot * tr_layout_ring_stride(c);
}

/* ---- areas ---- */

uint32_t tr_layout_subq_cap(const struct tr_shm_config *c)
{
    uint32_t cap = 64;
    while (cap < 2 * c->n_slots)
        cap *= 2;
    return cap;
}

uint32_t tr_layout_dirty_words(const struct tr_shm_config *c)
{
    return (c->n_slots + 63) / 64;
}

uint32_t tr_layout_dirty_sums(const struct tr_shm_config *c)
{
    return (tr_layout_dirty_words(c) + 63) / 64;
}

size_t tr_layout_area_subq(const struct tr_shm_config *c)
{
    (void)c;
    return line_up(sizeof(struct tr_area));
}

size_t tr_layout_area_delivery(const struct tr_shm_config *c)
{
    return tr_layout_area_subq(c) + line_up(tr_layout_subq_cap(c) * sizeof(struct tr_msg));
}

size_t tr_layout_area_dirty(const struct tr_shm_config *c)
{
    return tr_layout_area_delivery(c) + line_up(TR_DELIVERY_CAP * sizeof(struct tr_delivery));
}

static size_t bitmap_bytes(const struct tr_shm_config *c)
{
    return line_up((tr_layout_dirty_sums(c) + tr_layout_dirty_words(c)) * sizeof(uint64_t));
}

size_t tr_layout_area_news(const struct tr_shm_config *c)
{
    return tr_layout_area_dirty(c) + bitmap_bytes(c);
}

size_t tr_layout_area_cmd(const struct tr_shm_config *c)
{
    return tr_layout_area_news(c) + bitmap_bytes(c);
}

size_t tr_layout_area_cursor(const struct tr_shm_config *c)
{
    return tr_layout_area_cmd(c) + line_up((size_t)c->n_slots * sizeof(uint64_t));
}

static size_t request_stride(const struct tr_shm_config *c)
{
    return page_up(line_up(sizeof(struct tr_request)) + (size_t)c->n_ctx * sizeof(uint32_t) +
                   TR_EXTRA_BYTES);
}

size_t tr_layout_area_request(const struct tr_shm_config *c, uint32_t slot)
{
    size_t start =
        page_up(tr_layout_area_cursor(c) + (size_t)c->n_slots * sizeof(struct tr_cursor));
    return start + (size_t)slot * request_stride(c);
}

size_t tr_layout_stat_quota(void)
{
    return line_up(sizeof(struct tr_stat));
}

size_t tr_layout_region_bytes(const struct tr_shm_config *c, enum tr_region_kind k)
{
    switch (k) {
    case TR_REGION_CONTROL:
        return page_up(sizeof(struct tr_control));
    case TR_REGION_RINGS:
        return page_up(tr_layout_ring_at(c, c->n_slots));
    case TR_REGION_ACCOUNTING:
        return page_up(sizeof(struct tr_accounting));
    case TR_REGION_CLAIMS:
        return page_up(sizeof(struct tr_claims) + (size_t)c->n_slots * sizeof(uint64_t));
    case TR_REGION_LEDGER:
        return page_up(sizeof(struct tr_ledger_page));
    case TR_REGION_SLOTS:
        return page_up(sizeof(struct tr_slot_stats) +
                       (size_t)c->n_slots * sizeof(struct tr_slot_stat));
    case TR_REGION_PROCESSES:
        return page_up(sizeof(struct tr_processes));
    case TR_REGION_STAT:
        return page_up(tr_layout_stat_quota() + (size_t)c->n_keys * sizeof(struct tr_quota));
    case TR_REGION_AREA:
        return page_up(tr_layout_area_request(c, c->n_slots));
    }
    return 0;
}

int tr_layout_check(const struct tr_shm_config *c, struct tr_errbuf *err)
{
    if (c->n_ctx < 8 || c->n_ctx > MAX_CTX)
        return tr_errf(err, -EINVAL, "context of %u tokens is out of range", c->n_ctx);
    if (c->n_vocab < 2 || c->n_vocab > MAX_VOCAB)
        return tr_errf(err, -EINVAL, "vocabulary of %u tokens is out of range", c->n_vocab);
    if (c->n_slots < 1 || c->n_slots > MAX_SLOTS)
        return tr_errf(err, -EINVAL, "--max-streams %u is out of range", c->n_slots);
    if (c->max_seqs < 1 || c->n_admit < c->max_seqs || c->n_admit > c->n_slots)
        return tr_errf(err, -EINVAL,
                       "need 1 <= --max-seqs and --max-seqs + --max-queue <= --max-streams, not "
                       "%u, %u, %u",
                       c->max_seqs, c->n_admit, c->n_slots);
    if (c->n_areas < 1 || c->n_areas > TR_MAX_AREAS)
        return tr_errf(err, -EINVAL, "at most %d frontends", TR_MAX_AREAS / 2);
    if (c->window < 2 || c->window > MAX_WINDOW)
        return tr_errf(err, -EINVAL, "--window %u is out of range", c->window);
    if (c->n_keys > MAX_KEYS)
        return tr_errf(err, -EINVAL, "%u keys are out of range", c->n_keys);
    return 0;
}
