/* SPDX-License-Identifier: Apache-2.0 */
/* Every two-party structure of shm/, raced by two threads that play the two roles.
 *
 * Each case carries a plain word (or a plain record) across the structure, so that TSan sees a race
 * when one of its orders is weakened (tests/stress/mutants), and checks the values, so that a plain
 * build fails too where the machine reorders.  `shm CASE` runs one case. */
#include "shm/bell.h"
#include "shm/extra.h"
#include "shm/lpring.h"
#include "testlib/shm_rig.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 20000, SLOTS = 4 };

static struct shm_rig rig;
static struct tr_shm *s;
static int bad;

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                             \
            bad = 1;                                                                               \
        }                                                                                          \
    } while (0)

struct pair {
    void *(*left)(void *), *(*right)(void *);
};

static void race(struct pair p)
{
    pthread_t a, b;
    pthread_create(&a, NULL, p.left, NULL);
    pthread_create(&b, NULL, p.right, NULL);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
}

/* Both sides start a round together: what is short enough would be over before the other begins. */
static _Atomic uint32_t left_at, right_at;

static void meet(_Atomic uint32_t *mine, _Atomic uint32_t *other, uint32_t round)
{
    atomic_store_explicit(mine, round, memory_order_release);
    for (int spins = 0; atomic_load_explicit(other, memory_order_acquire) < round; spins++)
        if (spins > 1000)
            sched_yield();
}

/* The two leave their meeting at different moments; every few rounds another one starts first. */
static void dawdle(uint32_t n)
{
    for (volatile uint32_t i = 0; i < n % 64; i++)
        ;
}

/* ---- ring: ids and the end ---- */

static uint32_t ring_round;

static void *ring_engine(void *arg)
{
    tr_role = TR_ROLE_ENGINE;
    struct tr_ring *r = tr_ring_at(s, 0);
    meet(&left_at, &right_at, ring_round);
    for (uint32_t i = 0; i < 200; i++) {
        tr_ring_push(s, 0, i * 3, i);
        if (i % 8 == 0)
            sched_yield();
    }
    r->finish_index = 77;
    tr_ring_end(s, 0, TR_COMPLETED);
    return arg;
}

static void *ring_front(void *arg)
{
    tr_role = TR_ROLE_FRONTEND;
    uint32_t state = 0, gen = atomic_load(&tr_ring_at(s, 0)->gen);
    int64_t seen = 0;
    meet(&right_at, &left_at, ring_round);
    while (!tr_state_terminal(state)) {
        int64_t n = tr_ring_read(s, 0, gen, &state);
        for (; seen < n; seen++)
            CHECK(tr_ring_ids(s, 0)[seen] == (uint32_t)seen * 3 &&
                  tr_ring_steps(s, 0)[seen] == (uint32_t)seen);
    }
    CHECK(seen == 200 && tr_ring_at(s, 0)->finish_index == 77);
    return arg;
}

static void ring(void)
{
    for (ring_round = 1; ring_round <= 100; ring_round++) {
        tr_role = TR_ROLE_ENGINE;
        tr_ring_reset(s, 0);
        race((struct pair){ring_engine, ring_front});
    }
}

/* ---- a request in the ring, and who owns it ---- */

static void *owner_engine(void *arg)
{
    tr_role = TR_ROLE_ENGINE;
    struct tr_ring *r = tr_ring_at(s, 0);
    for (uint32_t i = 1; i <= ROUNDS / 10; i++) {
        tr_ring_reset(s, 0);
        meet(&left_at, &right_at, 2 * i - 1);
        r->prompt_len = i;
        r->of_gen = atomic_load_explicit(&r->gen, memory_order_relaxed);
        /* As tr_seq_move does. */
        atomic_store_explicit(&r->state, TR_WAITING, memory_order_release);
        dawdle(i);
        r->finish_index = i;
        tr_ring_set_owner(r, (struct tr_owner){.area = i % 2, .epoch = i, .confirmed = true});
        meet(&left_at, &right_at, 2 * i);
    }
    return arg;
}

static void *owner_front(void *arg)
{
    tr_role = TR_ROLE_FRONTEND;
    const struct tr_ring *r = tr_ring_at(s, 0);
    for (uint32_t i = 1; i <= ROUNDS / 10; i++) {
        struct tr_owner o = {0};
        meet(&right_at, &left_at, 2 * i - 1);
        while (!tr_ring_request(s, 0))
            ;
        CHECK(r->prompt_len == i);
        while (o.epoch != i)
            o = tr_ring_owner(r);
        CHECK(r->finish_index == i && o.area == i % 2 && o.confirmed);
        meet(&right_at, &left_at, 2 * i);
    }
    return arg;
}

static void owner(void)
{
    atomic_store(&left_at, 0);
    atomic_store(&right_at, 0);
    race((struct pair){owner_engine, owner_front});
}

/* ---- submission queue, with the request behind each message ---- */

static void *subq_front(void *arg)
{
    tr_role = TR_ROLE_FRONTEND;
    for (uint32_t i = 0; i < ROUNDS;) {
        struct tr_msg m = {.kind = TR_MSG_SUBMIT, .slot = i, .gen = ~i};
        if (tr_subq_push(s, &m, 1) == 0)
            i++;
        else
            sched_yield();
    }
    return arg;
}

static void *subq_engine(void *arg)
{
    tr_role = TR_ROLE_ENGINE;
    struct tr_msg m[8];
    for (uint32_t i = 0; i < ROUNDS;) {
        uint32_t n = tr_subq_peek(s, 0, m, 8);
        for (uint32_t k = 0; k < n; k++, i++)
            CHECK(m[k].slot == i && m[k].gen == ~i);
        tr_subq_consume(s, 0, n);
        if (!n)
            sched_yield();
    }
    return arg;
}

static void subq(void)
{
    tr_role = TR_ROLE_FRONTEND;
    tr_area_init(s);
    race((struct pair){subq_front, subq_engine});
}

/* ---- commands: a plain word is written before the post ---- */

static uint64_t note[SLOTS];
static _Atomic uint32_t taken[SLOTS];

static void *cmd_front(void *arg)
{
    tr_role = TR_ROLE_FRONTEND;
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        uint32_t slot = i % SLOTS;
        /* The next life of a slot begins only when the engine has dealt with this one; the other
         * slots of the same word go on, so that a sweep finds bits set after the summary it took. */
        while (i > SLOTS && atomic_load_explicit(&taken[slot], memory_order_acquire) != i - SLOTS)
            sched_yield();
        note[slot] = i;
        tr_cmd_post(s, slot, i, TR_CMD_CANCEL, 3);
    }
    return arg;
}

static void take_cmd(void *arg, uint32_t area, uint32_t slot, uint64_t word)
{
    (void)area;
    CHECK(note[slot] == tr_cmd_gen(word) && tr_cmd_arg(word) == 3);
    (*(uint32_t *)arg)++;
    atomic_store_explicit(&taken[slot], tr_cmd_gen(word), memory_order_release);
}

static void *cmd_engine(void *arg)
{
    tr_role = TR_ROLE_ENGINE;
    uint32_t n = 0;
    while (n != ROUNDS)
        tr_cmd_sweep(s, 0, take_cmd, &n);
    return arg;
}

static void cmd(void)
{
    race((struct pair){cmd_front, cmd_engine});
}

/* ---- news: a plain word is written before the post ---- */

static void *news_engine(void *arg)
{
    tr_role = TR_ROLE_ENGINE;
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        uint32_t slot = i % SLOTS;
        while (i > SLOTS && atomic_load_explicit(&taken[slot], memory_order_acquire) != i - SLOTS)
            sched_yield();
        note[slot] = i;
        tr_news_post(s, 0, 0, 1ull << slot);
    }
    return arg;
}

static void take_news(void *arg, uint32_t slot)
{
    /* Only the slot's own life is waited for, so what is found is the last one posted. */
    atomic_store_explicit(&taken[slot], (uint32_t)note[slot], memory_order_release);
    (*(uint32_t *)arg)++;
}

static void *news_front(void *arg)
{
    tr_role = TR_ROLE_FRONTEND;
    uint32_t n = 0;
    while (n != ROUNDS)
        tr_news_take(s, take_news, &n);
    return arg;
}

static void news(void)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        atomic_store(&taken[slot], 0);
    race((struct pair){news_engine, news_front});
}

/* ---- claims: the claimer owns the plain word of the slot ---- */

static uint64_t owned[SLOTS];

static void *claim_front(void *arg)
{
    tr_role = TR_ROLE_FRONTEND;
    struct tr_shm mine = *s; /* a frontend's own handle: its area, its hint, its memory */
    uint32_t taken_gen[SLOTS] = {0};
    mine.my_area = (uint32_t)(uintptr_t)arg;
    mine.taken_gen = taken_gen;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t slot, gen;
        if (tr_claim_take(&mine, 1, &slot, &gen)) {
            sched_yield();
            continue;
        }
        owned[slot]++;
        tr_claim_give(&mine, slot, gen);
    }
    return NULL;
}

static void *claim_one(void *arg)
{
    (void)arg;
    return claim_front((void *)1);
}

static void claim(void)
{
    shm_rig_open_slots(&rig);
    race((struct pair){claim_front, claim_one});
}

/* The engine opens, a frontend claims, the engine takes: a plain word goes each way.  `checked` and
 * `over` only keep the two from starting the next life too early; what they order lies outside of
 * what the claim word has to. */
static uint64_t front_note;
static _Atomic uint32_t checked, over;

static void wait_for(_Atomic uint32_t *p, uint32_t value)
{
    while (atomic_load_explicit(p, memory_order_acquire) != value)
        sched_yield();
}

static void *turn_engine(void *arg)
{
    tr_role = TR_ROLE_ENGINE;
    for (uint32_t gen = 1; gen <= ROUNDS / 4; gen++) {
        tr_ring_reset(s, 0);
        owned[0] = gen;
        struct tr_claim c = tr_claim_get(s, 0), open = {.state = TR_CLAIM_OPEN, .gen = gen};
        if (gen % 2)
            tr_claim_set(s, 0, open);
        else
            CHECK(tr_claim_swap(s, 0, c, open));
        while ((c = tr_claim_get(s, 0)).state != TR_CLAIM_CLAIMED)
            sched_yield();
        CHECK(front_note == gen);
        CHECK(tr_claim_swap(s, 0, c, (struct tr_claim){.state = TR_CLAIM_TAKEN, .gen = gen}));
        wait_for(&checked, gen);
        atomic_store_explicit(&over, gen, memory_order_release);
    }
    return arg;
}

static void *turn_front(void *arg)
{
    tr_role = TR_ROLE_FRONTEND;
    for (uint32_t n = 1; n <= ROUNDS / 4; n++) {
        uint32_t slot, gen;
        front_note = n;
        while (tr_claim_take(s, 1, &slot, &gen))
            sched_yield();
        CHECK(owned[0] == gen && gen == n);
        atomic_store_explicit(&checked, n, memory_order_release);
        wait_for(&over, n);
    }
    return arg;
}

static void turn(void)
{
    tr_role = TR_ROLE_ENGINE;
    for (uint32_t i = 0; i < SLOTS; i++)
        tr_claim_set(s, i, (struct tr_claim){.state = TR_CLAIM_CLOSED});
    atomic_store(&checked, 0);
    atomic_store(&over, 0);
    race((struct pair){turn_engine, turn_front});
}

/* ---- logprob ring ---- */

static void *lp_engine(void *arg)
{
    tr_role = TR_ROLE_ENGINE;
    struct tr_lp e = {.n_top = 2};
    for (uint32_t i = 0; i < ROUNDS;) {
        e.id = i;
        e.top_id[1] = ~i;
        if (tr_lpring_push(s, 1, &e) == 0)
            i++;
        else
            sched_yield();
    }
    return arg;
}

static void *lp_front(void *arg)
{
    tr_role = TR_ROLE_FRONTEND;
    struct tr_lp e;
    for (uint32_t i = 0; i < ROUNDS;) {
        if (tr_lpring_peek(s, 1, &e)) {
            sched_yield();
            continue;
        }
        CHECK(e.id == i && e.top_id[1] == ~i);
        tr_lpring_pop(s, 1);
        i++;
    }
    return arg;
}

static void lp(void)
{
    shm_rig_own(&rig, 1);
    race((struct pair){lp_engine, lp_front});
}

/* ---- accounting, and the word that comes back ---- */

static uint64_t file_rows;

static void *bill_engine(void *arg)
{
    tr_role = TR_ROLE_ENGINE;
    struct tr_bill b = {0};
    for (uint64_t i = 1; i <= ROUNDS;) {
        b.prompt_tokens = i;
        b.stream_rand = ~i;
        uint64_t seq;
        if (tr_bill_push(s, &b, &seq)) {
            sched_yield();
            continue;
        }
        if (i % 64 == 0) {
            while (!tr_bill_is_durable(s, seq))
                sched_yield();
            CHECK(file_rows >= seq); /* plain: ordered by `durable` alone */
        }
        i++;
    }
    return arg;
}

static void *bill_ledger(void *arg)
{
    tr_role = TR_ROLE_LEDGER;
    struct tr_bill b;
    for (uint64_t at = 0; at < ROUNDS;) {
        if (tr_bill_peek(s, at, &b)) {
            sched_yield();
            continue;
        }
        CHECK(b.prompt_tokens == at + 1 && b.stream_rand == ~(at + 1));
        file_rows = ++at;
        tr_bill_durable(s, at);
        while (at % 64 == 0 && at < ROUNDS && tr_bill_peek(s, at, &b))
            sched_yield();
    }
    return arg;
}

static void bill(void)
{
    race((struct pair){bill_engine, bill_ledger});
}

/* Overwriting an entry is ordered by bill_head alone: the ledger copies slowly, the queue is full. */
static void *full_engine(void *arg)
{
    tr_role = TR_ROLE_ENGINE;
    struct tr_bill b = {0};
    for (uint64_t i = 1; i <= TR_BILL_CAP + ROUNDS / 4;) {
        b.prompt_tokens = i;
        if (tr_bill_push(s, &b, NULL) == 0)
            i++;
        else
            sched_yield();
    }
    return arg;
}

static void *full_ledger(void *arg)
{
    tr_role = TR_ROLE_LEDGER;
    struct tr_bill b;
    uint64_t base = atomic_load(&s->ledger->bill_head);
    for (uint64_t at = 0; at < TR_BILL_CAP + ROUNDS / 4;) {
        if (tr_bill_peek(s, base + at, &b)) {
            sched_yield();
            continue;
        }
        CHECK(b.prompt_tokens == at + 1);
        at++;
        tr_bill_durable(s, base + at);
    }
    return arg;
}

static void full(void)
{
    race((struct pair){full_engine, full_ledger});
}

/* ---- delivery records ---- */

static void *deliver_front(void *arg)
{
    tr_role = TR_ROLE_FRONTEND;
    struct tr_delivery d = {0};
    for (uint32_t i = 0; i < ROUNDS;) {
        d.delivered_tokens = i;
        d.stream_rand = ~(uint64_t)i;
        if (tr_delivery_push(s, &d) == 0)
            i++;
        else
            sched_yield();
    }
    return arg;
}

static void *deliver_ledger(void *arg)
{
    tr_role = TR_ROLE_LEDGER;
    struct tr_delivery d;
    for (uint32_t i = 0; i < ROUNDS;) {
        if (tr_delivery_pop(s, 0, &d)) {
            sched_yield();
            continue;
        }
        CHECK(d.delivered_tokens == i && d.stream_rand == ~(uint64_t)i);
        i++;
    }
    return arg;
}

static void delivery(void)
{
    race((struct pair){deliver_front, deliver_ledger});
}

/* ---- control page: the plain word stands for its fields ---- */

static uint64_t page;

static void *control_super(void *arg)
{
    tr_role = TR_ROLE_SUPERVISOR;
    page = 5;
    tr_control_publish(s->control);
    return arg;
}

static void *control_front(void *arg)
{
    uint32_t seen = 0;
    while (!tr_control_seen(s->control, &seen))
        sched_yield();
    CHECK(page == 5);
    return arg;
}

static void control(void)
{
    race((struct pair){control_super, control_front});
}

/* ---- the two Dekker handshakes, as litmus tests: both sides start together, round by round, and
 * at least one must see the other ---- */

enum { LITMUS = 300000 };
static bool saw; /* what the left side found */

static bool was_rung(int fd)
{
    uint64_t n;
    return read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n);
}

static _Atomic uint32_t work, asleep;

static void *sleeper(void *arg)
{
    for (uint32_t i = 1; i <= LITMUS; i++) {
        meet(&left_at, &right_at, 2 * i - 1);
        dawdle(i);
        tr_bell_sleep(&asleep);
        saw = atomic_load_explicit(&work, memory_order_relaxed);
        meet(&left_at, &right_at, 2 * i);
    }
    return arg;
}

static void *ringer(void *arg)
{
    for (uint32_t i = 1; i <= LITMUS; i++) {
        atomic_store_explicit(&work, 0, memory_order_relaxed);
        atomic_store_explicit(&asleep, 0, memory_order_relaxed);
        meet(&right_at, &left_at, 2 * i - 1);
        dawdle(i / 64);
        atomic_store_explicit(&work, 1, memory_order_relaxed);
        tr_bell_ring(s->bell_engine, &asleep);
        meet(&right_at, &left_at, 2 * i);
        CHECK(was_rung(s->bell_engine) || saw);
        if (bad)
            exit(1);
    }
    return arg;
}

static void litmus(struct pair p)
{
    atomic_store(&left_at, 0);
    atomic_store(&right_at, 0);
    race(p);
}

static void bell(void)
{
    litmus((struct pair){sleeper, ringer});
}

/* Parking: the engine stores wants_cursor, fences, looks at the cursor; tr_cursor_set and
 * tr_lpring_pop store a cursor, fence, look at wants_cursor, set the dirty bit and ring a bell that is
 * asleep. */
static bool pops;

static void *parker(void *arg)
{
    tr_role = TR_ROLE_ENGINE;
    struct tr_cursor *c = tr_cursor_at(s, 0, 2);
    for (uint32_t i = 1; i <= LITMUS; i++) {
        meet(&left_at, &right_at, 2 * i - 1);
        dawdle(i);
        tr_cursor_want(s, 2);
        saw = atomic_load_explicit(pops ? &c->lp_head : &c->sent, memory_order_relaxed) == i;
        meet(&left_at, &right_at, 2 * i);
    }
    return arg;
}

static void *mover(void *arg)
{
    tr_role = TR_ROLE_FRONTEND;
    for (uint32_t i = 1; i <= LITMUS; i++) {
        atomic_store_explicit(&tr_ring_at(s, 2)->wants_cursor, 0, memory_order_relaxed);
        atomic_store_explicit(&s->rings->sleeping, 1, memory_order_relaxed);
        meet(&right_at, &left_at, 2 * i - 1);
        dawdle(i / 64);
        if (pops)
            tr_lpring_pop(s, 2);
        else
            tr_cursor_set(s, 2, i, i);
        meet(&right_at, &left_at, 2 * i);
        CHECK(was_rung(s->bell_engine) || saw);
        if (bad)
            exit(1);
    }
    return arg;
}

static void park(void)
{
    pops = false;
    litmus((struct pair){parker, mover});
}

static void park_lp(void)
{
    pops = true;
    litmus((struct pair){parker, mover});
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"ring", ring}, {"owner", owner}, {"subq", subq},         {"cmd", cmd},
             {"news", news}, {"claim", claim}, {"turn", turn},         {"lp", lp},
             {"bill", bill}, {"full", full},   {"delivery", delivery}, {"control", control},
             {"bell", bell}, {"park", park},   {"park_lp", park_lp}};

int main(int argc, char **argv)
{
    int passed = 0, failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name) != 0)
            continue;
        bad = 0;
        shm_rig_open(&rig, SLOTS, 1);
        s = &rig.s;
        cases[i].run();
        shm_rig_close(&rig);
        if (bad)
            printf("FAILED %s\n", cases[i].name);
        *(bad ? &failed : &passed) += 1;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
