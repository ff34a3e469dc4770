/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/request.h"

#include "shm/region.h"

#include <string.h>

static char *place(const struct tr_shm *s, uint32_t area, uint32_t slot)
{
    TR_ASSERT(slot < s->config.n_slots && area < s->config.n_areas);
    return (char *)s->area[area] + tr_layout_area_request(&s->config, slot);
}

static size_t prompt_at(void)
{
    return (sizeof(struct tr_request) + TR_LINE_BYTES - 1) & ~(size_t)(TR_LINE_BYTES - 1);
}

static size_t extra_at(const struct tr_shm *s)
{
    return prompt_at() + (size_t)s->config.n_ctx * sizeof(uint32_t);
}

struct tr_request *tr_request_at(struct tr_shm *s, uint32_t slot)
{
    TR_ASSERT_ROLE(TR_ROLE_FRONTEND);
    return (struct tr_request *)place(s, s->my_area, slot);
}

uint32_t *tr_request_prompt(struct tr_shm *s, uint32_t slot)
{
    TR_ASSERT_ROLE(TR_ROLE_FRONTEND);
    return (uint32_t *)(place(s, s->my_area, slot) + prompt_at());
}

uint8_t *tr_request_extra(struct tr_shm *s, uint32_t slot)
{
    TR_ASSERT_ROLE(TR_ROLE_FRONTEND);
    return (uint8_t *)(place(s, s->my_area, slot) + extra_at(s));
}

void tr_request_wipe(struct tr_shm *s, uint32_t slot, uint32_t gen)
{
    struct tr_request *r = tr_request_at(s, slot);
    if (r->gen != gen)
        return;
    if (r->prompt_len <= s->config.n_ctx)
        tr_shm_wipe(tr_request_prompt(s, slot), r->prompt_len * sizeof(uint32_t));
    if (r->extra_len <= TR_EXTRA_BYTES)
        tr_shm_wipe(tr_request_extra(s, slot), r->extra_len);
    memset(r, 0, sizeof(*r));
}

bool tr_request_is_mine(const struct tr_shm *s, uint32_t slot, uint64_t stream_rand)
{
    const struct tr_ring *r = tr_ring_at(s, slot);
    return r && r->stream_rand == stream_rand && tr_ring_is_ours(s, r);
}

const struct tr_request *tr_request_of(const struct tr_shm *s, uint32_t area, uint32_t slot)
{
    return (const struct tr_request *)place(s, area, slot);
}

const uint32_t *tr_request_prompt_of(const struct tr_shm *s, uint32_t area, uint32_t slot)
{
    return (const uint32_t *)(place(s, area, slot) + prompt_at());
}

const uint8_t *tr_request_extra_of(const struct tr_shm *s, uint32_t area, uint32_t slot)
{
    return (const uint8_t *)(place(s, area, slot) + extra_at(s));
}
