/* SPDX-License-Identifier: Apache-2.0 */
/* Everything at once, by chance: tiny pools, the prefix cache, guesses, budgets, priorities and keys, groups,
 * echoed log-probabilities, readers that stop, cancels, stop strings, engines that die, some inside a
 * pass.  Whatever was published must be what the same request says alone in a service that has none of it.
 *
 * A longer run: TOKENRING_TEST_LONG=1; one run again: TOKENRING_TEST_SEED=N. */
#include "enginerig/engine_rig.h"

#include "base/sim_vocab.h"
#include "engine/kv.h"
#include "shm/control.h"
#include "shm/lpring.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ASKS = 48,   /* different requests */
    CHOICES = 4, /* of each */
    LIVE = 48,   /* at a time */
    TOTAL = 160, /* submitted in a run */
    CTX = 224,
    MAX_OUT = 160,
    RUNS = 40,
    LONG_RUNS = 4000,
    PATIENCE = 60000 /* turns until all have ended, once their readers read */
};

struct answer {
    uint32_t n, n_lp, state, finish;
    uint32_t ids[MAX_OUT];
    struct tr_lp lp[CTX];
};

struct live {
    bool used;
    uint32_t ask, choice;
    struct tr_rig_req at;
    uint32_t sleeps; /* turns in which its reader does nothing */
    bool cut;        /* told to end before its time */
    uint32_t cached; /* as seen with the first token */
    bool settled_cached;
    uint32_t n_lp;
    struct tr_lp lp[CTX];
};

static struct tr_engine_rig r;
static uint32_t prompts[ASKS][CTX];
static struct tr_extra extras[ASKS];
static struct answer want[ASKS][CHOICES];
static struct live live[LIVE];
static uint32_t seed;

static uint32_t chance(uint32_t n)
{
    return (uint32_t)rand() % n;
}

/* ---- the requests ---- */

/* Four texts that many begin with, as far as they go; then something of their own. */
static void write_prompt(uint32_t i, uint32_t len)
{
    uint32_t common = (i * 29) % 130;
    for (uint32_t k = 0; k < len; k++)
        prompts[i][k] = TR_SIM_TEXT + (k < common ? (k * (3 + i % 4) + k / 7) % 50
                                                  : (k * 5 + i + k % (2 + i % 9)) % 40);
}

static struct tr_rig_ask ask(uint32_t i, uint32_t choice)
{
    static const char *const keys[] = {"a", "b", "c", ""};
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_extra *e = &extras[i];
    a.prompt = prompts[i];
    a.prompt_len = 1 + (i * 31) % (i % 3 ? 60 : 130);
    write_prompt(i, a.prompt_len);
    a.params.choice = choice;
    a.params.seed = i + 1;
    a.params.max_tokens = i % 16 == 5 ? 0 : 1 + (i * 37) % (i % 3 ? MAX_OUT : 90);
    a.params.temperature = i % 3 ? 0 : 1;
    a.params.frequency_penalty = i % 5 == 2 ? 0.5 : 0;
    a.params.min_tokens = i % 6 == 0 && a.params.max_tokens ? a.params.max_tokens / 2 : 0;
    a.params.n_top = i % 4;
    a.params.priority = (int32_t)(i % 7 == 3) - (int32_t)(i % 7 == 5);
    a.params.flags = TR_REQ_STREAM | (i % 4 == 1 ? TR_REQ_LOGPROBS : 0) |
                     (i % 8 == 5 ? TR_REQ_ECHO_LOGPROBS : 0) | (i % 2 ? TR_REQ_IGNORE_EOS : 0) |
                     (i % 9 == 4 ? TR_REQ_STOP_STRINGS : 0);
    *e = (struct tr_extra){.n_bias = 0};
    for (uint32_t k = 0; k < i % 5; k++)
        e->bias[e->n_bias++] = (struct tr_bias){TR_SIM_TEXT + 3 * k, i % 3 ? 13.0F : 60};
    if (i % 10 == 7)
        e->stop_ids[e->n_stop++] = TR_SIM_TEXT + 3;
    a.extra = e->n_bias + e->n_stop ? e : NULL;
    a.key = keys[i % 4];
    a.area = i % 3;
    return a;
}

static uint32_t n_of_group(uint32_t i)
{
    return i % 6 == 2 ? 2 + i % 3 : 1;
}

/* ---- readers ---- */

static void pop(const struct tr_rig_req *q, struct tr_lp *lp, uint32_t *n, uint32_t most)
{
    tr_rig_be_frontend(&r, q->area);
    while (most-- && *n < CTX && tr_lpring_peek(&r.s, q->slot, &lp[*n]) == 0) {
        tr_lpring_pop(&r.s, q->slot);
        ++*n;
    }
}

static void read_on(struct live *l, bool all)
{
    const struct tr_cursor *c = tr_cursor_at(&r.s, l->at.area, l->at.slot);
    uint64_t n = tr_rig_published(&r, &l->at), scanned = atomic_load(&c->scanned),
             sent = atomic_load(&c->sent);
    pop(&l->at, l->lp, &l->n_lp, all ? CTX : chance(5));
    scanned += all ? n - scanned : chance((uint32_t)(n - scanned) + 1);
    sent += all ? n - sent : chance((uint32_t)(scanned - sent) + 1);
    tr_rig_be_frontend(&r, l->at.area);
    tr_cursor_set(&r.s, l->at.slot, scanned, sent);
}

/* ---- alone ---- */

static void open_rig(const struct tr_sched_config *sched, uint32_t max_seqs, uint32_t window,
                     uint32_t kv_blocks)
{
    struct tr_engine_rig_config c = {.shm = {.n_slots = LIVE + 16,
                                             .n_admit = LIVE + 8,
                                             .max_seqs = max_seqs,
                                             .n_ctx = CTX,
                                             .window = window},
                                     .sched = *sched,
                                     .kv_blocks = kv_blocks};
    tr_engine_rig_open(&r, &c);
}

static void note(const struct tr_rig_req *q, struct answer *w)
{
    w->n = tr_rig_published(&r, q);
    w->state = tr_rig_state(&r, q);
    w->finish = tr_rig_ring(&r, q)->finish;
    memcpy(w->ids, tr_rig_output(&r, q), w->n * sizeof(uint32_t));
}

static void each_alone(void)
{
    open_rig(&(struct tr_sched_config){.prefix_cache = TR_PREFIX_OFF}, 1, 256, 0);
    for (uint32_t i = 0; i < ASKS * CHOICES; i++) {
        struct answer *w = &want[i / CHOICES][i % CHOICES];
        struct tr_rig_ask a = ask(i / CHOICES, i % CHOICES);
        struct tr_rig_req q = tr_rig_submit(&r, &a);
        for (uint32_t idle = 0; idle < 2;) {
            idle = tr_rig_turn(&r) ? 0 : idle + 1;
            pop(&q, w->lp, &w->n_lp, CTX);
            tr_rig_read_all(&r, &q);
        }
        note(&q, w);
        cr_assert(w->state == TR_COMPLETED || w->state == TR_INCOMPLETE);
        tr_rig_release(&r, &q);
        tr_rig_ledger_runs(&r);
        tr_rig_run(&r, NULL, 0);
    }
    tr_engine_rig_close(&r);
}

/* ---- together ---- */

static uint32_t n_live(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < LIVE; i++)
        n += live[i].used;
    return n;
}

static uint32_t submit(void)
{
    uint32_t i = chance(ASKS), n = n_of_group(i), k = 0;
    struct tr_rig_ask a[CHOICES];
    struct tr_rig_req q[CHOICES];
    if (n_live() + n > LIVE)
        return 0;
    for (uint32_t c = 0; c < n; c++)
        a[c] = ask(i, c);
    if (tr_rig_submit_group(&r, a, n, q))
        return 0;
    for (uint32_t s = 0; k < n; s++)
        if (!live[s].used) {
            live[s] = (struct live){.used = true, .ask = i, .choice = k, .at = q[k]};
            k++;
        }
    return n;
}

static void must_be_beginning(const struct live *l)
{
    const struct answer *w = &want[l->ask][l->choice];
    uint32_t n = tr_rig_published(&r, &l->at);
    const struct tr_ring *ring = tr_rig_ring(&r, &l->at);
    uint32_t cached = (uint32_t)atomic_load(&ring->cached_tokens);
    cr_assert_leq(n, w->n, "seed %u, request %u", seed, l->ask);
    cr_assert_eq(memcmp(tr_rig_output(&r, &l->at), w->ids, n * sizeof(uint32_t)), 0,
                 "seed %u, request %u of %u tokens", seed, l->ask, n);
    cr_assert_leq(l->n_lp, w->n_lp, "seed %u, request %u", seed, l->ask);
    cr_assert_eq(memcmp(l->lp, w->lp, l->n_lp * sizeof(l->lp[0])), 0, "seed %u, request %u", seed,
                 l->ask);
    cr_assert_lt(cached, ring->prompt_len, "seed %u, request %u", seed, l->ask);
}

/* It is told with the first token, if not before, and never another afterwards. */
static void look_at_cached(struct live *l)
{
    uint32_t now = (uint32_t)atomic_load(&tr_rig_ring(&r, &l->at)->cached_tokens);
    cr_assert_geq(now, l->cached, "seed %u, request %u", seed, l->ask);
    cr_assert(!l->settled_cached || now == l->cached, "seed %u, request %u", seed, l->ask);
    l->cached = now;
    l->settled_cached = tr_rig_published(&r, &l->at) > 0;
}

static void look_at(struct live *l)
{
    const struct answer *w = &want[l->ask][l->choice];
    const struct tr_ring *ring = tr_rig_ring(&r, &l->at);
    uint32_t state = tr_rig_state(&r, &l->at);
    const struct tr_cursor *c = tr_cursor_at(&r.s, l->at.area, l->at.slot);
    uint64_t n = tr_rig_published(&r, &l->at);
    cr_assert_leq(n - atomic_load(&c->sent), r.c.shm.window, "seed %u", seed);
    look_at_cached(l);
    if (!tr_state_terminal(state))
        return;
    pop(&l->at, l->lp, &l->n_lp, CTX);
    must_be_beginning(l);
    bool crashed = state == TR_ERROR && ring->err == TR_ERR_ENGINE_CRASHED;
    if (!l->cut && !crashed) {
        cr_assert_eq(state, w->state, "seed %u, request %u", seed, l->ask);
        cr_assert_eq(ring->finish, w->finish, "seed %u, request %u", seed, l->ask);
        cr_assert_eq(n, w->n, "seed %u, request %u", seed, l->ask);
        cr_assert_eq(l->n_lp, w->n_lp, "seed %u, request %u", seed, l->ask);
    }
    tr_rig_release(&r, &l->at);
    l->used = false;
}

static void disturb(struct live *l)
{
    uint32_t n = tr_rig_published(&r, &l->at);
    if (chance(3)) {
        l->sleeps = chance(40);
        return;
    }
    l->cut = true;
    if (n && chance(2))
        tr_rig_finish(&r, &l->at, chance(n + 1));
    else
        tr_rig_cancel(&r, &l->at, TR_ERR_CANCELLED);
}

static void kill_engine(void)
{
    bool in_pass = chance(3) == 0;
    uint32_t epoch = atomic_load(&r.s.control->engine_epoch);
    tr_engine_rig_crash(&r);
    atomic_store(&r.s.control->engine_death, in_pass ? TR_DEATH_CRASHED : TR_DEATH_OUTSIDE);
    atomic_store(&r.s.rings->in_pass, in_pass ? epoch : 0);
    tr_engine_rig_restart(&r);
}

static void count_blocks(void)
{
    uint64_t n = tr_rig_stat(&r, TR_STAT_KV_FREE) + tr_rig_stat(&r, TR_STAT_KV_USED) +
                 tr_rig_stat(&r, TR_STAT_KV_CACHED);
    cr_assert_eq(n, r.info.n_kv_blocks, "seed %u", seed);
}

static void together(bool kills)
{
    uint32_t submitted = 0;
    memset(live, 0, sizeof(live));
    for (uint32_t turn = 0, last = 0; submitted < TOTAL || n_live(); turn++) {
        bool ending = submitted >= TOTAL;
        cr_assert(!ending || ++last < PATIENCE, "seed %u: %u do not end", seed, n_live());
        for (uint32_t k = chance(4); k && !ending && chance(3) == 0; k--)
            submitted += submit();
        if (kills && chance(150) == 0 && !(ending && last > 1000))
            kill_engine();
        tr_rig_turn(&r);
        count_blocks();
        for (uint32_t i = 0; i < LIVE; i++) {
            struct live *l = &live[i];
            if (l->used && l->sleeps)
                l->sleeps--;
            else if (l->used && (ending || chance(3)))
                read_on(l, ending ? chance(4) == 0 : chance(2));
            if (l->used && chance(400) == 0)
                disturb(l);
            if (l->used)
                look_at(l);
        }
        if (chance(5) == 0)
            tr_rig_ledger_runs(&r);
    }
    tr_rig_ledger_runs(&r);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 0, "seed %u", seed);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_WAITING) + tr_rig_stat(&r, TR_STAT_PARKED), 0);
}

static void run(uint64_t seen[4])
{
    static const uint32_t windows[] = {2, 7, 24, 256};
    static const uint64_t targets[] = {0, 1000, 1000000, 50000000};
    srand(seed);
    struct tr_sched_config c = {.prefix_cache = chance(4) ? TR_PREFIX_ON : TR_PREFIX_PER_KEY,
                                .prefill_chunk = chance(4) ? 1 + chance(70) : 0,
                                .speculate = chance(5) != 0,
                                .draft_floor = chance(3) ? 0.05F : 0,
                                .itl_target_ns = targets[chance(4)],
                                .ttft_target_ns = targets[chance(4)]};
    open_rig(&c, 1 + chance(9), windows[chance(4)], 7 + chance(chance(2) ? 5 : 40));
    together(chance(2));
    seen[0] += tr_rig_stat(&r, TR_STAT_PREEMPTIONS);
    seen[1] += tr_rig_stat(&r, TR_STAT_ACCEPTED);
    seen[2] += tr_rig_stat(&r, TR_STAT_PREFIX_HITS);
    seen[3] += tr_rig_stat(&r, TR_STAT_DRAFTED) - tr_rig_stat(&r, TR_STAT_ACCEPTED);
    tr_engine_rig_close(&r);
}

Test(disorder, whatever_is_published_is_what_each_says_alone, .timeout = 3000)
{
    const char *one = getenv("TOKENRING_TEST_SEED"), *many = getenv("TOKENRING_TEST_LONG");
    uint32_t first = one ? (uint32_t)strtoul(one, NULL, 10) : 1;
    uint32_t n = one ? 1 : many ? LONG_RUNS : RUNS;
    uint64_t seen[4] = {0};
    each_alone();
    for (seed = first; seed < first + n; seed++)
        run(seen);
    cr_log_info("%lu preemptions, %lu drafts right, %lu wrong, %lu tokens from the cache", seen[0],
                seen[1], seen[3], seen[2]);
    if (one)
        return;
    for (uint32_t i = 0; i < 4; i++)
        cr_assert_gt(seen[i], n, "this tests less than it says: %u", i);
}
