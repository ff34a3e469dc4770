/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/idempotency.c - see idempotency.h. */
#include "frontend/idempotency.h"

#include "frontend/replay.h"
#include "shm/stream_id.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

static const char HEADER[] = "Idempotency-Key";

/* ---- the header ---- */

int tr_idempotency_parse(struct tr_slice v, char out[TR_IDEMPOTENCY_BYTES])
{
    bool quoted = v.len >= 2 && v.p[0] == '"' && v.p[v.len - 1] == '"';
    int n = 0;

    if (quoted)
        v = (struct tr_slice){v.p + 1, v.len - 2};
    for (size_t i = 0; i < v.len; i++) {
        bool escaped = quoted && v.p[i] == '\\';
        if (escaped && ++i == v.len)
            return -EINVAL;
        char c = v.p[i];
        bool special = c == '"' || c == '\\';
        if (c > 0x7e || c < (quoted ? 0x20 : 0x21) || special != escaped ||
            n == TR_IDEMPOTENCY_BYTES)
            return -EINVAL;
        out[n++] = c;
    }
    return n ? n : -EINVAL;
}

static void store(uint64_t out[2], XXH128_hash_t h)
{
    out[0] = h.low64 ? h.low64 : 1; /* 0 is none */
    out[1] = h.high64;
}

/* What the key is of stands in a fixed place, so that no other pair has the same bytes. */
static void hash_key(struct tr_ask *a, const char *key, size_t len)
{
    char bytes[TR_KEY_BYTES + TR_IDEMPOTENCY_BYTES] = {0};

    memcpy(bytes, a->key, TR_KEY_BYTES);
    memcpy(bytes + TR_KEY_BYTES, key, len);
    store(a->idem.key,
          XXH3_128bits_withSeed(bytes, TR_KEY_BYTES + len, a->fe->cfg->idempotency_seed));
}

/* The same words in another dialect or another shape are another request. */
static void hash_body(struct tr_ask *a, enum tr_api api, enum tr_frame frame)
{
    const uint32_t shape[] = {api, frame, a->plain, a->resume_header};
    uint64_t seed = XXH3_64bits_withSeed(shape, sizeof(shape), a->fe->cfg->idempotency_seed);

    store(a->idem.body, XXH3_128bits_withSeed(a->text ? a->text : "", a->text_len, seed));
}

int tr_idempotency_read(const struct tr_http_request *rq, enum tr_api api, enum tr_frame frame,
                        struct tr_ask *a, struct tr_fault *f)
{
    struct tr_slice v = tr_http_field(rq->http, "idempotency-key");
    char key[TR_IDEMPOTENCY_BYTES];

    if (!v.p || rq->is_one_of_many || !a->fe->cfg->idempotency_ns)
        return 0;
    int n = tr_http_field_count(rq->http, "idempotency-key") == 1 ? tr_idempotency_parse(v, key)
                                                                  : -EINVAL;
    if (n < 0)
        return tr_fault_set(
            f, TR_ERR_BAD_PARAM, HEADER,
            "%s must be one string of 1 to %d printable ASCII characters, in quotes "
            "or without quotes and blanks.",
            HEADER, TR_IDEMPOTENCY_BYTES);
    hash_key(a, key, (size_t)n);
    hash_body(a, api, frame);
    return 0;
}

int tr_idempotency_check(struct tr_ask *a, struct tr_fault *f)
{
    if (!a->idem.key[0])
        return 0;
    if (a->n > 1)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, HEADER,
                            "Only a request with one choice can have an %s.", HEADER);
    if (a->logprobs)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, HEADER,
                            "Log-probabilities are told once: such a request can have no %s.",
                            HEADER);
    a->params.flags |= TR_REQ_IDEMPOTENT;
    return 0;
}

/* ---- the first one ---- */

/* What its ring says; copied, and of this generation. */
struct twin {
    struct tr_stream_id id;
    struct tr_idem idem;
    uint64_t admitted_ns;
    bool ended;
};

static bool read_twin(const struct tr_fe *fe, uint32_t slot, const struct tr_ask *a,
                      struct twin *out)
{
    const struct tr_ring *r = tr_ring_at(fe->shm, slot);
    uint32_t gen = tr_ring_request(fe->shm, slot);

    if (!gen || !(r->params.flags & TR_REQ_IDEMPOTENT) || r->idem.key[0] != a->idem.key[0] ||
        r->idem.key[1] != a->idem.key[1] || strncmp(r->key, a->key, sizeof(r->key)) != 0)
        return false;
    /* Acquire: pairs with tr_ring_end. */
    uint32_t state = atomic_load_explicit(&r->state, memory_order_acquire);
    out->id = (struct tr_stream_id){.slot = slot, .gen = gen, .rand = r->stream_rand};
    out->idem = r->idem;
    out->admitted_ns = atomic_load_explicit(&r->admitted_ns, memory_order_relaxed);
    out->ended = tr_state_terminal(state);
    bool unwanted = atomic_load_explicit(&r->unwanted, memory_order_relaxed);
    /* The slot may have been wiped while we looked. */
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&r->gen, memory_order_relaxed) != gen)
        return false;
    return !out->ended || ((state == TR_COMPLETED || state == TR_INCOMPLETE) && !unwanted);
}

/* The youngest: one that was let go may still be there. */
static bool find_twin(const struct tr_fe *fe, const struct tr_ask *a, struct twin *out)
{
    struct twin t;
    bool found = false;

    *out = (struct twin){0};
    for (uint32_t slot = 0; slot < fe->shm->config.n_slots; slot++) {
        if (!read_twin(fe, slot, a, &t) || t.admitted_ns < out->admitted_ns)
            continue;
        *out = t;
        found = true;
    }
    return found;
}

static bool is_same(const struct tr_idem *a, const struct tr_idem *b)
{
    return a->body[0] == b->body[0] && a->body[1] == b->body[1];
}

static void refuse(struct tr_fe *fe, struct tr_exchange *x, enum tr_err e, enum tr_stat_id stat)
{
    tr_stat_add(fe->stat, stat, 1);
    tr_exchange_header(x, "x-should-retry", "false"); /* OpenAI's clients try a 409 again */
    tr_exchange_error(x, e, NULL, HEADER);
}

bool tr_idempotency_answer(struct tr_fe *fe, struct tr_exchange *x, const struct tr_ask *a,
                           const struct tr_dialect *dialect, enum tr_frame frame)
{
    struct twin t;

    if (!a->idem.key[0] || !find_twin(fe, a, &t))
        return false;
    if (!is_same(&a->idem, &t.idem)) {
        refuse(fe, x, TR_ERR_KEY_REUSED, TR_STAT_KEY_REUSED);
        return true;
    }
    if (!t.ended && !a->detached) {
        refuse(fe, x, TR_ERR_KEY_BUSY, TR_STAT_KEY_BUSY);
        return true;
    }
    tr_stat_add(fe->stat, TR_STAT_KEY_TOLD, 1);
    tr_exchange_header(x, "Idempotency-Replayed", "true");
    if (a->detached)
        dialect->again(fe, x, t.id, a->key);
    else
        tr_replay_start(fe, x, a, t.id, dialect, frame);
    return true;
}
