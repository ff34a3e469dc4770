/* SPDX-License-Identifier: Apache-2.0 */
/* engine/cached.c - what sequences find in the prefix cache, and what they leave there.
 *
 * Leave: after every step, and before they give their blocks up for whatever reason, the blocks that are
 * full become known (kv.h), those of prompts and of answers alike, so that the next turn of a chat finds
 * both.  Find: who waits is told before every plan what the cache has of it; the plan counts on it, and
 * who comes in takes it in the same step.  A prompt under way goes on where others have come further with
 * the same tokens; the plan lets only one of them compute a block (plan.h, rule 7).  So the choices of one
 * request, and requests with the same instructions that come at the same time, compute them once.
 *
 * The last token of a sequence is never taken from the cache: its row makes the logits.  Nor does who
 * wants log-probabilities of its prompt take anything: each of its rows makes some.
 *
 * What a block holds is a function of the tokens up to its end (P10), so nobody can tell from an answer
 * where it came from; all layers are in it whole, also those that look back over a window only.
 *
 * A request says how many tokens of its prompt it did not have to compute when it was first worked on
 * (cached_tokens); what it finds again after a preemption or the death of an engine is not counted.  Of a
 * request with several choices for a prompt the one counts that the prompt is billed to. */
#include "engine/sched_priv.h"

#include <string.h>

enum { LOOKS = 256 /* sequences that are looked up before one plan */ };

static bool is_on(const struct tr_sched *sc)
{
    return sc->cfg.prefix_cache != TR_PREFIX_OFF;
}

/* Two keys never share when each has its own salt: nobody learns from the time of his first token what
 * others have asked. */
static uint64_t salt_of(const struct tr_sched *sc, const struct tr_seq *q)
{
    const char *key = tr_sched_ring(sc, q)->key;
    if (sc->cfg.prefix_cache != TR_PREFIX_PER_KEY)
        return 0;
    return tr_kv_salt(sc->kv, key, strnlen(key, TR_KEY_BYTES));
}

/* The pool gets to know a sequence when it is first asked about it. */
static const uint32_t *ids_of(struct tr_sched *sc, struct tr_seq *q)
{
    if (!q->in_cache) {
        tr_kv_begin(sc->kv, q->slot, salt_of(sc, q));
        q->in_cache = true;
    }
    return tr_ring_ids(sc->s, q->slot);
}

/* ---- leaving ---- */

/* Tokens whose K and V are sure: the newest of an answer has none yet, whatever rows were made for tokens
 * that were guessed. */
static uint32_t n_sure(const struct tr_seq *q)
{
    uint32_t most = q->prompt_len + (q->n_out ? q->n_out - 1 : 0);
    return q->in_kv < most ? q->in_kv : most;
}

void tr_cached_keep(struct tr_sched *sc, struct tr_seq *q)
{
    if (is_on(sc) && q->n_blocks)
        tr_kv_keep(sc->kv, q->slot, ids_of(sc, q), n_sure(q));
}

/* ---- counting ---- */

static void count_hits(struct tr_sched *sc, struct tr_seq *q, uint32_t n)
{
    struct tr_ring *r = tr_sched_ring(sc, q);
    uint32_t before = atomic_load_explicit(&r->cached_tokens, memory_order_relaxed);
    if (!q->first_prefill || !n)
        return;
    tr_stat_add(sc->stat, TR_STAT_PREFIX_HITS, n);
    if (r->group_bill_prompt)
        atomic_store_explicit(&r->cached_tokens, before + n, memory_order_relaxed);
}

void tr_cached_start(struct tr_sched *sc, struct tr_seq *q, bool echoes)
{
    q->first_prefill = true;
    if (!is_on(sc) || echoes)
        return;
    tr_stat_add(sc->stat, TR_STAT_PREFIX_QUERIES, q->prompt_len);
    count_hits(sc, q, q->in_kv);
}

/* ---- finding ---- */

void tr_cached_take(struct tr_sched *sc, struct tr_seq *q, uint32_t n)
{
    TR_ASSERT(q->n_blocks == 0 && q->in_kv == 0 && n < tr_seq_total(q));
    tr_kv_take(sc->kv, q->slot);
    q->in_kv = n;
    q->n_blocks = tr_kv_table_of(sc->kv, q->slot).n_blocks;
    TR_ASSERT(q->n_blocks * TR_KV_BLOCK == n);
}

static void catch_up(struct tr_sched *sc, struct tr_seq *q)
{
    uint32_t now = tr_kv_catch_up(sc->kv, q->slot, ids_of(sc, q), q->in_kv, tr_seq_total(q) - 1);
    count_hits(sc, q, now - q->in_kv);
    q->in_kv = now;
}

/* The blocks of who holds some. */
static void tell_held(const struct tr_sched *sc, const struct tr_seq *q, struct tr_plan_seq *p)
{
    p->shared = q->n_blocks - tr_kv_own(sc->kv)[q->slot];
    if (p->ready)
        p->bound = q->n_blocks - tr_kv_loose_of(sc->kv, q->slot);
}

static bool comes(const struct tr_plan_seq *p)
{
    return p->state == TR_WAITING || (p->state == TR_PARKED && p->ready);
}

static bool is_prompt(const struct tr_plan_seq *p)
{
    return p->state == TR_PREFILL && p->blocks;
}

static void tell(struct tr_sched *sc, struct tr_seq *q, struct tr_plan_seq *p, bool look)
{
    if (p->blocks)
        tell_held(sc, q, p);
    if (!look || p->hold || p->out_rows)
        return;
    if (!p->blocks) {
        p->cached = tr_kv_seek(sc->kv, q->slot, ids_of(sc, q), p->total - 1);
        p->cached_free = tr_kv_loose_of(sc->kv, q->slot);
    }
    p->next = tr_kv_next(sc->kv, q->slot, ids_of(sc, q), p->total - 1);
}

/* In the order that the figures depend on: who may lose its blocks, who has got further, what is there. */
void tr_cached_describe(struct tr_sched *sc)
{
    uint32_t batch = 0, looks = LOOKS;
    for (uint32_t i = 0; i < sc->n_active; i++) {
        struct tr_plan_seq *p = &sc->plan_in[i];
        tr_kv_rest(sc->kv, sc->active[i], p->state == TR_PARKED || p->hold);
        batch += !p->hold && (p->state == TR_PREFILL || p->state == TR_RUNNING);
    }
    if (!is_on(sc))
        return;
    for (uint32_t i = 0; i < sc->n_active; i++) {
        struct tr_plan_seq *p = &sc->plan_in[i];
        struct tr_seq *q = &sc->seq[sc->active[i]];
        if (!is_prompt(p) || p->hold || p->out_rows)
            continue;
        catch_up(sc, q);
        p->in_kv = q->in_kv;
    }
    for (uint32_t i = 0; i < sc->n_active; i++) {
        struct tr_plan_seq *p = &sc->plan_in[i];
        bool enters = comes(p) && batch < sc->s->config.max_seqs && looks;
        looks -= enters;
        tell(sc, &sc->seq[sc->active[i]], p, enters || is_prompt(p));
    }
}
