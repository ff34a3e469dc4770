/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/ask_view.c - an ask between frontends: packed beside the request for the ring, and made from
 * a ring again by whoever goes on with the stream.  See ask.h. */
#include "frontend/ask.h"

#include "base/assert.h"
#include "frontend/event.h"
#include "frontend/key.h"
#include "shm/region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)TR_VIEW_STOP_BYTES == TR_STOP_LEN_MAX &&
                   (int)TR_TOOL_FORMATS <= TR_VIEW_FORMATS + 1 &&
                   (int)TR_REASONING_FORMATS <= TR_VIEW_FORMATS + 1,
               "what may be asked for can be packed");

/* Of a request that another frontend may go on with, or whose answer it may tell again. */
#define OUTLIVES (TR_REQ_RESUMABLE | TR_REQ_IDEMPOTENT)

/* ---- into the ring ---- */

static void make_view(const struct tr_ask *a, struct tr_view *v)
{
    *v = (struct tr_view){.dialect = a->api, .created = a->created, .timeout_ns = a->timeout_ns};
    v->flags = (a->chat ? TR_VIEW_CHAT : 0) | (a->include_usage ? TR_VIEW_USAGE : 0) |
               (a->echo ? TR_VIEW_ECHO : 0) | (a->skip_special ? TR_VIEW_SKIP_SPECIAL : 0) |
               (a->include_stop ? TR_VIEW_INCLUDE_STOP : 0) |
               (a->token_ids ? TR_VIEW_TOKEN_IDS : 0) |
               (a->reasoning_open ? TR_VIEW_REASONING_OPEN : 0) |
               (a->reasoning_hidden ? TR_VIEW_REASONING_HIDDEN : 0) |
               (uint32_t)a->tool_format << TR_VIEW_TOOLS |
               (uint32_t)a->reasoning_format << TR_VIEW_REASONING;
    v->n_stop = a->stops ? (uint32_t)tr_stopset_n(a->stops) : 0;
    TR_ASSERT(v->n_stop <= TR_VIEW_STOPS);
    for (uint32_t i = 0; i < v->n_stop; i++)
        v->stop[i] = tr_stopset_at(a->stops, i);
    v->kept = (struct tr_str){a->kept, a->kept_len};
}

int tr_ask_pack(const struct tr_ask *a, uint8_t *out, size_t cap)
{
    struct tr_view v;

    if (a->params.flags & OUTLIVES) {
        make_view(a, &v);
        return tr_extra_pack_view(a->extra, &v, out, cap);
    }
    return a->extra->n_bias || a->extra->n_stop || a->extra->grammar_len
               ? tr_extra_pack(a->extra, out, cap)
               : 0;
}

/* ---- out of it ---- */

/* The packed part, copied out of memory that may change; NULL with *len 0 if there is none. */
static uint8_t *copy_extra(const struct tr_shm *s, uint32_t slot, uint32_t *len)
{
    const uint8_t *in = (const uint8_t *)tr_ring_at(s, slot) + tr_layout_ring_extra(&s->config);

    *len = tr_ring_at(s, slot)->extra_len;
    uint8_t *copy = *len && *len <= TR_EXTRA_BYTES ? malloc(*len) : NULL;
    if (copy)
        memcpy(copy, in, *len);
    else
        *len = 0;
    return copy;
}

static int read_kept(struct tr_ask *a, struct tr_str kept)
{
    if (kept.len == 0)
        return 0;
    a->kept = malloc(kept.len);
    if (!a->kept)
        return -ENOMEM;
    memcpy(a->kept, kept.p, kept.len);
    a->kept_len = kept.len;
    return 0;
}

static int read_formats(struct tr_ask *a, uint32_t flags)
{
    uint32_t tools = flags >> TR_VIEW_TOOLS & TR_VIEW_FORMATS;
    uint32_t reasoning = flags >> TR_VIEW_REASONING & TR_VIEW_FORMATS;

    if (tools >= TR_TOOL_FORMATS || reasoning >= TR_REASONING_FORMATS)
        return -EINVAL;
    tr_ask_take_apart(a, (enum tr_tool_format)tools, (enum tr_reasoning_format)reasoning);
    return 0;
}

static int read_view(struct tr_ask *a, const struct tr_view *v)
{
    if (!tr_dialect_of(v->dialect) || v->n_stop > TR_VIEW_STOPS)
        return -EINVAL;
    a->api = (enum tr_api)v->dialect;
    a->chat = v->flags & TR_VIEW_CHAT;
    a->include_usage = v->flags & TR_VIEW_USAGE;
    a->echo = v->flags & TR_VIEW_ECHO;
    a->skip_special = v->flags & TR_VIEW_SKIP_SPECIAL;
    a->include_stop = v->flags & TR_VIEW_INCLUDE_STOP;
    a->token_ids = v->flags & TR_VIEW_TOKEN_IDS;
    a->reasoning_open = v->flags & TR_VIEW_REASONING_OPEN;
    a->reasoning_hidden = v->flags & TR_VIEW_REASONING_HIDDEN;
    a->created = v->created;
    a->timeout_ns = v->timeout_ns;
    if (read_formats(a, v->flags))
        return -EINVAL;
    if (read_kept(a, v->kept))
        return -ENOMEM;
    return v->n_stop ? tr_stopset_open(v->stop, v->n_stop, &a->stops) : 0;
}

static int read_fixed(struct tr_ask *a, const struct tr_ring *r)
{
    a->params = r->params;
    a->arrival_ns = r->arrival_ns;
    memcpy(a->request_id, r->request_id, sizeof(a->request_id) - 1);
    memcpy(a->key, r->key, sizeof(a->key) - 1);
    if (a->key[0] && a->fe->cfg->keys)
        a->who = tr_keys_named(a->fe->cfg->keys, a->key);
    a->stream = true;
    a->has_seed = true;
    a->logprobs = a->params.flags & TR_REQ_LOGPROBS;
    a->max_tokens = a->params.max_tokens;
    a->n = a->n_prompts = 1;
    if (!(a->params.flags & OUTLIVES) || a->params.n_top > TR_MAX_TOP || r->group_n != 1)
        return -EINVAL;
    return 0;
}

static int read_ring(struct tr_ask *a, uint32_t slot)
{
    struct tr_view v;
    uint32_t len;

    if (read_fixed(a, tr_ring_at(a->fe->shm, slot)))
        return -EINVAL;
    uint8_t *packed = copy_extra(a->fe->shm, slot, &len);
    int rc = tr_extra_view(packed, len, a->fe->shm->config.n_vocab, a->extra, &v);
    if (!rc)
        rc = read_view(a, &v);
    a->extra->grammar = NULL; /* the engine's affair, and borrowed */
    a->extra->grammar_len = 0;
    free(packed);
    return rc;
}

struct tr_ask *tr_ask_from_ring(const struct tr_fe *fe, uint32_t slot, uint32_t gen)
{
    const struct tr_ring *r = tr_ring_at(fe->shm, slot);
    uint32_t state = TR_FREE;

    if (!r || tr_ring_read(fe->shm, slot, gen, &state) < 0 || state == TR_FREE)
        return NULL;
    struct tr_ask *a = tr_ask_new(fe, NULL, 0);
    if (!a)
        return NULL;
    int rc = read_ring(a, slot);
    /* The slot may have been wiped while we looked. */
    atomic_thread_fence(memory_order_acquire);
    if (rc || r->of_gen != gen || atomic_load_explicit(&r->gen, memory_order_relaxed) != gen) {
        tr_ask_close(a);
        return NULL;
    }
    tr_ask_admitted(a);
    return a;
}
