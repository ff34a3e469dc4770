/* SPDX-License-Identifier: Apache-2.0 */
/* The hostile frontend.  Everything it does goes through the mappings and the bells that a frontend
 * has; it knows the protocol, reads all rings, and writes whatever it may, sense or no sense.
 *
 * Left out is what the design lets every frontend do: cancel a stream whose random bits it knows
 * (they stand in the ring), and hold slots without end. */
#include "hostile.h"

#include "base/clock.h"
#include "base/sim_vocab.h"
#include "shm/bell.h"
#include "shm/extra.h"
#include "shm/stat.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { N_OWN = 8, N_OLD = 64, GROUP = 4 };

static struct tr_shm *s;
static uint64_t lcg;
static struct own {
    bool used;
    uint32_t slot, gen;
} own[N_OWN];
static struct tr_msg old[N_OLD];
static uint32_t n_old;
static _Atomic uint32_t scribble_at; /* slot whose request the second thread writes over */

static uint64_t rnd(void)
{
    lcg = lcg * 6364136223846793005u + 1442695040888963407u;
    return (lcg ^ lcg >> 29) * 0x9e3779b97f4a7c15u;
}

static uint32_t below(uint64_t n)
{
    return (uint32_t)((rnd() >> 20) % n);
}

/* Numbers at which something may break; `at` is the limit in question. */
static uint64_t edge(uint64_t at)
{
    const uint64_t list[] = {0,          1,           2,           at - 1,     at,
                             at + 1,     at * 2,      INT32_MAX,   1ull << 31, UINT32_MAX,
                             1ull << 32, INT64_MAX,   1ull << 63,  UINT64_MAX, UINT64_MAX - at,
                             rnd(),      rnd() >> 32, rnd() >> 44, rnd() >> 60};
    return list[below(sizeof(list) / sizeof(list[0]))];
}

static double odd_number(void)
{
    const double list[] = {
        0,    -0.0,  1,      -1,  2,           1e-320,           1e-30,
        1e30, 1e308, -1e308, 0.5, (double)NAN, (double)INFINITY, -(double)INFINITY};
    return list[below(sizeof(list) / sizeof(list[0]))];
}

static uint32_t any_slot(void)
{
    return below(s->config.n_slots);
}

static uint32_t gen_of(uint32_t slot)
{
    return atomic_load(&tr_ring_at(s, slot)->gen);
}

static char *area_bytes(void)
{
    return (char *)s->area[EVIL_AREA];
}

/* ---- bytes ---- */

static void scribble(char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (char)rnd();
}

static void random_bytes(void)
{
    size_t n = tr_layout_region_bytes(&s->config, TR_REGION_AREA), small = 1 + below(512);
    size_t head = tr_layout_area_request(&s->config, 0);
    /* Mostly what lies before the requests, which are far larger than all the rest. */
    size_t at = below(4) ? below(head) : below(n);
    scribble(area_bytes() + at, small < n - at ? small : n - at);
}

static void everything(void)
{
    if (below(200) == 0)
        scribble(area_bytes(), tr_layout_area_request(&s->config, 0));
}

static void own_statistics(void)
{
    char *p = (char *)s->stat[TR_STAT_AREA0 + EVIL_AREA];
    size_t n = tr_layout_region_bytes(&s->config, TR_REGION_STAT), at = below(n - 64);
    scribble(p + at, 64);
}

/* ---- requests ---- */

static void push(const struct tr_msg *m, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        old[n_old++ % N_OLD] = m[i];
    if (tr_subq_push(s, m, n)) { /* its own nonsense: begin again where the engine stands */
        uint64_t head = atomic_load(&s->rings->subq_head[EVIL_AREA]);
        atomic_store(&s->area[EVIL_AREA]->subq_tail, head);
    }
}

static void write_valid(uint32_t slot, uint32_t gen, uint32_t k, uint32_t n, uint32_t lead)
{
    struct tr_request *r = tr_request_at(s, slot);
    uint32_t len = 1 + below(60);
    *r = (struct tr_request){.gen = gen,
                             .prompt_len = len,
                             .stream_rand =
                                 below(2) ? rnd() : tr_ring_at(s, any_slot())->stream_rand,
                             .arrival_ns = tr_now_ns(),
                             .params = {.temperature = below(2) ? 0.9 : 0,
                                        .top_p = 1,
                                        .repetition_penalty = 1,
                                        .weight = 1,
                                        .max_tokens = below(80),
                                        .n_top = below(TR_MAX_TOP + 1),
                                        .flags = below(64)},
                             .group_n = n,
                             .group_k = k,
                             .group_lead = lead,
                             .group_bill_prompt = 1};
    memcpy(r->request_id, "good-1", 7); /* anybody may call himself so */
    memcpy(r->key, "good", 5);
    for (uint32_t i = 0; i < len; i++)
        tr_request_prompt(s, slot)[i] = below(TR_SIM_VOCAB_SIZE);
    tr_cursor_reset(s, slot, gen);
}

/* One or two fields as no frontend would write them. */
static void spoil(struct tr_request *r)
{
    uint32_t n_ctx = s->config.n_ctx;
    for (uint32_t i = 1 + below(2); i-- > 0;) {
        switch (below(19)) {
        case 0:
            r->prompt_len = (uint32_t)edge(n_ctx);
            break;
        case 1:
            r->params.max_tokens = (uint32_t)edge(n_ctx - r->prompt_len);
            break;
        case 2:
            r->extra_len = (uint32_t)edge(TR_EXTRA_BYTES);
            break;
        case 3:
            r->params.temperature = odd_number();
            break;
        case 4:
            r->params.top_p = odd_number();
            break;
        case 5:
            r->params.min_p = odd_number();
            break;
        case 6:
            r->params.presence_penalty = odd_number();
            break;
        case 7:
            r->params.frequency_penalty = odd_number();
            break;
        case 8:
            r->params.repetition_penalty = odd_number();
            break;
        case 9:
            r->params.top_k = (int32_t)edge(TR_SIM_VOCAB_SIZE);
            break;
        case 10:
            r->params.min_tokens = (uint32_t)edge(n_ctx);
            break;
        case 11:
            r->params.n_top = (uint32_t)edge(TR_MAX_TOP);
            break;
        case 12:
            r->params.flags = (uint32_t)rnd();
            break;
        case 13:
            r->params.choice = (uint32_t)edge(TR_MAX_CHOICES);
            break;
        case 14:
            scribble(r->request_id, sizeof(r->request_id));
            break;
        case 15:
            scribble(r->key, sizeof(r->key));
            break;
        case 16:
            r->params.priority = (int32_t)edge(TR_PRIORITY_MAX);
            break;
        case 17:
            r->arrival_ns = edge(tr_now_ns());
            break;
        default:
            r->gen = (uint32_t)edge(r->gen);
            break;
        }
    }
}

static void spoil_extra(uint32_t slot)
{
    struct tr_request *r = tr_request_at(s, slot);
    uint8_t *p = tr_request_extra(s, slot);
    struct tr_extra e = {.n_bias = 1, .n_stop = 1};
    int len = tr_extra_pack(&e, p, TR_EXTRA_BYTES);
    for (uint32_t i = below(4); i-- > 0;)
        p[below((uint64_t)len)] = (uint8_t)rnd();
    r->extra_len = (uint32_t)len + below(3) - 1;
}

static struct own *place(void)
{
    for (uint32_t i = 0; i < N_OWN; i++)
        if (!own[i].used)
            return &own[i];
    return NULL;
}

static void submit(bool spoilt)
{
    struct own *o = place();
    if (!o || tr_claim_take(s, 1, &o->slot, &o->gen))
        return;
    o->used = true;
    write_valid(o->slot, o->gen, 0, 1, o->slot);
    if (spoilt && below(3) == 0)
        spoil_extra(o->slot);
    else if (spoilt)
        spoil(tr_request_at(s, o->slot));
    if (spoilt && below(8) == 0)
        tr_request_prompt(s, o->slot)[0] = (uint32_t)edge(TR_SIM_VOCAB_SIZE);
    atomic_store(&scribble_at, o->slot);
    struct tr_msg m = {.kind = TR_MSG_SUBMIT, .slot = o->slot, .gen = o->gen};
    push(&m, 1);
}

static void submit_valid(void)
{
    submit(false);
}

static void submit_spoilt(void)
{
    submit(true);
}

/* A group whose members, numbers or lead do not fit together; sometimes one that does. */
static void submit_group(void)
{
    uint32_t slot[GROUP], gen[GROUP], n = 2 + below(GROUP - 1);
    struct tr_msg m[GROUP];
    struct own *o[GROUP];
    if (tr_claim_take(s, n, slot, gen))
        return;
    for (uint32_t k = 0; k < n; k++) {
        write_valid(slot[k], gen[k], k, n, slot[0]);
        m[k] = (struct tr_msg){.kind = TR_MSG_SUBMIT, .slot = slot[k], .gen = gen[k]};
        if ((o[k] = place()))
            *o[k] = (struct own){true, slot[k], gen[k]};
    }
    struct tr_request *r = tr_request_at(s, slot[below(n)]);
    switch (below(8)) {
    case 0:
        r->group_n = (uint32_t)edge(n);
        break;
    case 1:
        r->group_k = (uint32_t)edge(n);
        break;
    case 2:
        r->group_lead = (uint32_t)edge(s->config.n_slots);
        break;
    case 3:
        m[n - 1] = m[0];
        break;
    case 4:
        m[below(n)].slot = any_slot();
        break;
    case 5:
        m[below(n)].kind = (uint32_t)edge(2);
        break;
    case 6:
        spoil(r);
        break;
    default:
        break;
    }
    push(m, below(8) ? n : n - 1);
}

/* ---- messages ---- */

static void foreign_submission(void)
{
    uint32_t slot = any_slot();
    struct tr_msg m = {.kind = TR_MSG_SUBMIT,
                       .slot = below(8) ? slot : (uint32_t)edge(s->config.n_slots),
                       .gen = gen_of(slot) + below(3) - 1};
    write_valid(slot, m.gen, 0, 1, slot);
    push(&m, 1);
}

static void foreign_word(void)
{
    uint32_t slot = any_slot();
    struct tr_msg m = {.kind = below(4) ? TR_MSG_CANCEL : TR_MSG_WANTED,
                       .slot = below(8) ? slot : (uint32_t)edge(s->config.n_slots),
                       .gen = gen_of(slot),
                       .stream_rand = edge(1)};
    if (m.stream_rand != tr_ring_at(s, slot)->stream_rand)
        push(&m, 1);
}

/* Also with the right bits: the good one's streams are not resumable.  Its own are, and so are those that the
 * last of its kind left, while the good one takes and ends them. */
static void adoption(void)
{
    uint32_t slot = any_slot();
    struct tr_msg m = {.kind = below(2) ? TR_MSG_ADOPT : TR_MSG_CONFIRM,
                       .slot = below(8) ? slot : (uint32_t)edge(s->config.n_slots),
                       .gen = gen_of(slot) + (below(4) ? 0 : below(3) - 1),
                       .stream_rand = below(4) ? tr_ring_at(s, slot)->stream_rand : edge(1)};
    push(&m, 1);
}

static void replay(void)
{
    if (n_old)
        push(&old[below(n_old < N_OLD ? n_old : N_OLD)], 1);
}

static void strange_message(void)
{
    struct tr_msg m;
    scribble((char *)&m, sizeof(m));
    push(&m, 1);
}

/* ---- words ---- */

static void commands(void)
{
    _Atomic uint64_t *cmd = (_Atomic uint64_t *)(area_bytes() + tr_layout_area_cmd(&s->config));
    uint32_t slot = any_slot();
    uint64_t word = (uint64_t)below(256) << 56 | (edge(256) & 0xffffff) << 32 | gen_of(slot);
    atomic_store(&cmd[slot], word);
    char *dirty = area_bytes() + tr_layout_area_dirty(&s->config);
    size_t n = tr_layout_area_cmd(&s->config) - tr_layout_area_dirty(&s->config);
    memset(dirty, 0xff, n); /* also the bits of slots that do not exist */
}

static void cursors(void)
{
    struct tr_cursor *c = tr_cursor_at(s, EVIL_AREA, any_slot());
    atomic_store(&c->scanned, edge(64));
    atomic_store(&c->sent, edge(64));
    atomic_store(&c->lp_head, edge(s->config.window));
    atomic_store(&c->disconnect_ns, edge(tr_now_ns()));
}

static void tails(void)
{
    uint64_t cap = tr_layout_subq_cap(&s->config);
    uint64_t head = atomic_load(&s->rings->subq_head[EVIL_AREA]);
    atomic_store(&s->area[EVIL_AREA]->subq_tail, below(2) ? head + edge(cap) : edge(cap));
    uint64_t dhead = atomic_load(&s->ledger->delivery_head[EVIL_AREA]);
    atomic_store(&s->area[EVIL_AREA]->delivery_tail, dhead + edge(TR_DELIVERY_CAP));
}

static void signs_of_life(void)
{
    struct tr_area *a = s->area[EVIL_AREA];
    atomic_store(&a->heartbeat_ns, edge(tr_now_ns()));
    atomic_store(&a->streams, (uint32_t)edge(4));
    atomic_store(&a->connections, (uint32_t)edge(4));
    atomic_store(&a->sleeping, (uint32_t)edge(1));
    if (below(16) == 0)
        scribble((char *)&a->head, sizeof(a->head));
    if (below(16) == 0)
        scribble((char *)&s->stat[TR_STAT_AREA0 + EVIL_AREA]->head, sizeof(a->head));
}

/* As if it were a record of each: of nothing, of others' requests, without end. */
static void deliveries(void)
{
    struct tr_delivery d;
    scribble((char *)&d, sizeof(d));
    uint32_t slot = any_slot();
    const struct tr_ring *r = tr_ring_at(s, slot);
    d.stream_rand = r->stream_rand;
    if (below(2)) {
        d.slot = slot;
        d.gen = atomic_load(&r->gen);
    }
    if (below(2))
        memcpy(d.request_id, r->request_id, sizeof(d.request_id));
    uint64_t head = atomic_load(&s->ledger->delivery_head[EVIL_AREA]);
    struct tr_delivery *q =
        (struct tr_delivery *)(area_bytes() + tr_layout_area_delivery(&s->config));
    q[below(TR_DELIVERY_CAP)] = d;
    atomic_store(&s->area[EVIL_AREA]->delivery_tail, head + TR_DELIVERY_CAP);
    tr_bell_ring_ledger(s);
}

static void bells(void)
{
    uint64_t n;
    ssize_t got = read(s->bell_engine, &n, sizeof(n));
    got += read(s->bell_ledger, &n, sizeof(n));
    n = UINT64_MAX - 1;
    if (below(64) == 0)
        got += write(s->bell_area[EVIL_AREA], &n, sizeof(n));
    (void)got;
}

/* ---- claims ---- */

static void claim(void)
{
    static const uint8_t states[] = {
        TR_CLAIM_CLOSED, TR_CLAIM_OPEN, TR_CLAIM_CLAIMED, TR_CLAIM_TAKEN, 4, 255};
    uint32_t slot = any_slot(), area = below(N_AREAS + 1);
    struct tr_claim c = {.state = states[below(sizeof(states))],
                         .area = (uint8_t)(area < N_AREAS ? area : 255),
                         .epoch = (uint16_t)atomic_load(&s->control->area_epoch[area % N_AREAS]),
                         .gen = gen_of(slot) + (below(4) ? 0 : below(3) - 1)};
    /* A claim of its own is no nonsense; it is given back, so that others find slots. */
    if (c.area == EVIL_AREA)
        c.epoch++;
    atomic_store(&s->claims->word[slot], below(16) ? tr_claim_pack(c) : rnd());
    if (below(64) == 0)
        scribble((char *)&s->claims->head, sizeof(s->claims->head));
}

/* ---- cleaning up after itself, so that the attack goes on ---- */

static bool queue_is_empty(void)
{
    return atomic_load(&s->area[EVIL_AREA]->subq_tail) ==
           atomic_load(&s->rings->subq_head[EVIL_AREA]);
}

static void release_some(void)
{
    for (uint32_t i = 0; i < N_OWN; i++) {
        struct own *o = &own[i];
        if (!o->used || below(4))
            continue;
        uint32_t state;
        int64_t n = tr_ring_read(s, o->slot, o->gen, &state);
        if (n < 0) {
            o->used = false;
        } else if (state == TR_FREE) {
            if (!queue_is_empty())
                continue; /* a claim given back while its message waits is an attack on the claims */
            tr_claim_give(s, o->slot, o->gen);
            o->used = false;
        } else {
            tr_cmd_post(s, o->slot, o->gen, TR_CMD_CANCEL, (uint32_t)edge(TR_ERR_COUNT));
            tr_cmd_post(s, o->slot, o->gen, TR_CMD_RELEASE, 0);
        }
    }
}

/* ---- the loop ---- */

static const struct act {
    void (*fn)(void);
    uint32_t way, weight;
} acts[] = {
    {random_bytes, EVIL_BYTES, 20},
    {everything, EVIL_BYTES, 2},
    {own_statistics, EVIL_BYTES, 2},
    {submit_valid, EVIL_BYTES | EVIL_CRAFT, 6},
    {submit_spoilt, EVIL_CRAFT, 12},
    {submit_group, EVIL_CRAFT, 8},
    {foreign_submission, EVIL_CRAFT, 4},
    {foreign_word, EVIL_CRAFT, 4},
    {adoption, EVIL_CRAFT, 4},
    {replay, EVIL_CRAFT, 4},
    {strange_message, EVIL_CRAFT, 2},
    {commands, EVIL_CRAFT, 6},
    {cursors, EVIL_CRAFT, 8},
    {tails, EVIL_CRAFT, 3},
    {signs_of_life, EVIL_CRAFT, 2},
    {deliveries, EVIL_CRAFT, 3},
    {bells, EVIL_CRAFT, 3},
    {claim, EVIL_CLAIMS, 20},
    {release_some, ~0u, 10},
};

/* The request changes while the engine copies it. */
static void *scribbler(void *arg)
{
    uint64_t x = lcg ^ (uintptr_t)arg;
    for (;;) {
        uint32_t slot = atomic_load(&scribble_at);
        char *p = area_bytes() + tr_layout_area_request(&s->config, slot);
        x = x * 6364136223846793005u + 1442695040888963407u;
        *(volatile uint32_t *)(p + ((x >> 33) % (sizeof(struct tr_request) / 4)) * 4) =
            (uint32_t)(x >> 20);
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    return NULL;
}

static void act(uint32_t ways)
{
    for (;;) {
        const struct act *a = &acts[below(sizeof(acts) / sizeof(acts[0]))];
        if ((a->way & ways) && below(20) < a->weight) {
            a->fn();
            return;
        }
    }
}

_Noreturn void evil_main(struct tr_shm *shm, struct board *b, uint32_t ways, uint64_t seed)
{
    pthread_t id;
    s = shm;
    lcg = seed * 0x9e3779b97f4a7c15u + 1;
    tr_area_init(s);
    if (ways & EVIL_CRAFT)
        pthread_create(&id, NULL, scribbler, NULL);
    for (uint64_t n = 0;; n++) {
        act(ways);
        atomic_fetch_add(&b->acts, 1);
        tr_bell_ring_engine(s);
        if (n % 16 == 0) /* the others have to have a processor too */
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}
