/* SPDX-License-Identifier: Apache-2.0 */
/* The well-behaved frontend: a few requests of every kind at a time, each answer compared token by
 * token with the one that the same request had while nobody disturbed. */
#include "hostile.h"

#include "base/clock.h"
#include "base/sim_vocab.h"
#include "shm/bell.h"
#include "shm/extra.h"
#include "shm/lpring.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { MAX_OUT = 128, MAX_N = 3, N_LIVE = 6, STOP_AT = 10, STANDSTILL_S = 240 };

static const struct kind {
    uint32_t n, prompt_len, max_tokens, flags, n_top;
    double temperature;
    bool extra, slow;
} kinds[] = {
    {1, 5, 24, TR_REQ_STREAM | TR_REQ_IGNORE_EOS, 0, 0, false, false},
    {1, 3, 100, TR_REQ_STREAM | TR_REQ_IGNORE_EOS, 0, 0, false, true},
    {1, 30, 60, TR_REQ_STREAM, 0, 0.8, false, false},
    {3, 17, 40, TR_REQ_STREAM | TR_REQ_IGNORE_EOS, 0, 1.0, false, false},
    {1, 9, 40, TR_REQ_STREAM | TR_REQ_LOGPROBS | TR_REQ_IGNORE_EOS, 3, 0.5, false, false},
    {1, 12, 50, TR_REQ_STREAM, 0, 0.7, true, false},
    {1, 40, 20, TR_REQ_LOGPROBS | TR_REQ_ECHO_LOGPROBS | TR_REQ_IGNORE_EOS, 2, 0, false, false},
    {1, 150, 1, 0, 0, 0, false, false},
    {1, 8, 60, TR_REQ_STREAM | TR_REQ_STOP_STRINGS | TR_REQ_IGNORE_EOS, 0, 0.9, false, false},
};
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* What the answers are; filled in while it is quiet. */
static struct answer {
    bool known;
    uint32_t state, n;
    uint32_t ids[MAX_OUT];
    float logprob[2 * MAX_OUT];
    uint32_t n_lp;
} answers[N_KINDS][MAX_N];

struct job {
    bool used, pushed, over, lost;
    uint32_t kind;
    uint32_t slot[MAX_N], gen[MAX_N], seen[MAX_N], state[MAX_N], n_lp[MAX_N];
    bool admitted[MAX_N], stopped[MAX_N];
    uint64_t rand, began_ns;
    uint32_t claims; /* as it stood when it began */
};

static struct tr_shm *s;
static struct board *board;
static struct job jobs[N_LIVE];
static uint64_t numbers;
static uint64_t lcg = 88172645463325252u;

static uint64_t random64(void)
{
    lcg = lcg * 6364136223846793005u + 1442695040888963407u;
    return (lcg ^ lcg >> 29) * 0x9e3779b97f4a7c15u;
}

static void wrong(const struct job *j, uint32_t k, const char *what)
{
    if (atomic_fetch_add(&board->wrong, 1) < 10)
        fprintf(stderr, "good: kind %u choice %u slot %u gen %u: %s (state %u, %u tokens)\n",
                j->kind, k, j->slot[k], j->gen[k], what, j->state[k], j->seen[k]);
}

/* ---- submitting ---- */

static void write_request(const struct job *j, uint32_t k)
{
    const struct kind *kind = &kinds[j->kind];
    struct tr_request *r = tr_request_at(s, j->slot[k]);
    *r = (struct tr_request){.gen = j->gen[k],
                             .prompt_len = kind->prompt_len,
                             .stream_rand = j->rand,
                             .arrival_ns = tr_now_ns(),
                             .params = {.seed = 1000 + j->kind,
                                        .temperature = kind->temperature,
                                        .top_p = 0.95,
                                        .repetition_penalty = 1,
                                        .weight = 1,
                                        .max_tokens = kind->max_tokens,
                                        .n_top = kind->n_top,
                                        .flags = kind->flags,
                                        .choice = k},
                             .group_n = kind->n,
                             .group_k = k,
                             .group_lead = j->slot[0],
                             .group_bill_prompt = k == 0};
    snprintf(r->request_id, sizeof(r->request_id), "good-%llu", (unsigned long long)numbers);
    snprintf(r->key, sizeof(r->key), "good");
    for (uint32_t i = 0; i < kind->prompt_len; i++)
        tr_request_prompt(s, j->slot[k])[i] = TR_SIM_TEXT + (i * 7 + j->kind * 31) % 60;
    if (kind->extra) {
        static const struct tr_extra e = {.n_bias = 2,
                                          .bias = {{TR_SIM_TEXT + 3, 4}, {TR_SIM_TEXT + 9, -50}},
                                          .n_stop = 1,
                                          .stop_ids = {TR_SIM_TEXT + 3}};
        r->extra_len = (uint32_t)tr_extra_pack(&e, tr_request_extra(s, j->slot[k]), TR_EXTRA_BYTES);
    }
    tr_cursor_reset(s, j->slot[k], j->gen[k]);
}

/* False if no slot is open. */
static bool begin(struct job *j, uint32_t kind)
{
    struct tr_msg m[MAX_N];
    *j = (struct job){.kind = kind, .rand = random64(), .began_ns = tr_now_ns()};
    j->claims = atomic_load(&board->claims);
    uint32_t n = kinds[kind].n;
    if (tr_claim_take(s, n, j->slot, j->gen))
        return false;
    numbers++;
    for (uint32_t k = 0; k < n; k++) {
        write_request(j, k);
        m[k] = (struct tr_msg){.kind = TR_MSG_SUBMIT, .slot = j->slot[k], .gen = j->gen[k]};
    }
    if (tr_subq_push(s, m, n)) {
        for (uint32_t k = 0; k < n; k++)
            tr_claim_give(s, j->slot[k], j->gen[k]);
        return false;
    }
    j->used = true;
    return true;
}

/* ---- following ---- */

static bool claims_attacked(const struct job *j)
{
    return (j->claims & 1) || atomic_load(&board->claims) != j->claims;
}

static void lose(struct job *j, uint32_t k)
{
    if (!claims_attacked(j))
        wrong(j, k, "its slot was taken away");
    j->lost = true;
}

static void take_entries(struct job *j, uint32_t k)
{
    struct tr_lp e;
    struct answer *a = &answers[j->kind][k];
    while (tr_lpring_peek(s, j->slot[k], &e) == 0) {
        uint32_t i = j->n_lp[k]++;
        if (i < 2 * MAX_OUT && !a->known)
            a->logprob[i] = e.logprob;
        else if (i >= 2 * MAX_OUT || fabsf(a->logprob[i] - e.logprob) > 0)
            wrong(j, k, "a logprob is another");
        tr_lpring_pop(s, j->slot[k]);
    }
}

static void take_tokens(struct job *j, uint32_t k, uint32_t n)
{
    const struct kind *kind = &kinds[j->kind];
    const uint32_t *ids = tr_ring_ids(s, j->slot[k]) + kind->prompt_len;
    struct answer *a = &answers[j->kind][k];
    bool stops = kind->flags & TR_REQ_STOP_STRINGS;
    for (; j->seen[k] < n; j->seen[k]++) {
        uint32_t i = j->seen[k];
        if (stops && i == STOP_AT)
            tr_cmd_post(s, j->slot[k], j->gen[k], TR_CMD_FINISH, STOP_AT);
        if (stops && i >= STOP_AT)
            continue;
        if (!a->known)
            a->ids[i] = ids[i];
        else if (i >= a->n || a->ids[i] != ids[i])
            wrong(j, k, "a token is another");
    }
}

/* One choice; true when it has ended. */
static bool follow(struct job *j, uint32_t k)
{
    uint32_t state, at = j->seen[k];
    int64_t n = tr_ring_read(s, j->slot[k], j->gen[k], &state);
    if (n < 0) {
        lose(j, k);
        return true;
    }
    if (state == TR_FREE) {
        bool lost = tr_claim_is_lost(s, j->slot[k], j->gen[k]);
        if (lost)
            lose(j, k);
        return lost;
    }
    if (!tr_request_is_mine(s, j->slot[k], j->rand)) {
        lose(j, k);
        return true;
    }
    j->state[k] = state;
    if (n > MAX_OUT) {
        wrong(j, k, "too many tokens");
        n = MAX_OUT;
    }
    if (kinds[j->kind].flags & TR_REQ_LOGPROBS)
        take_entries(j, k);
    take_tokens(j, k, (uint32_t)n);
    /* A slow reader lets itself be parked. */
    if (kinds[j->kind].slow && !tr_state_terminal(state) && state != TR_PARKED && at < (uint32_t)n)
        return false;
    tr_cursor_set(s, j->slot[k], j->seen[k], j->seen[k]);
    return tr_state_terminal(state);
}

/* ---- the end ---- */

static void judge(struct job *j, uint32_t k, uint32_t err, uint64_t count)
{
    struct answer *a = &answers[j->kind][k];
    if (j->state[k] == TR_ERROR) {
        if (!(err == TR_ERR_BAD_SUBMISSION && kinds[j->kind].n > 1 && claims_attacked(j)))
            wrong(j, k, "it ended in an error");
        return;
    }
    if (!a->known) {
        a->known = true;
        a->state = j->state[k];
        a->n = (uint32_t)count;
        a->n_lp = j->n_lp[k];
    }
    if (a->state != j->state[k] || a->n != count || a->n_lp != j->n_lp[k])
        wrong(j, k, "it ended otherwise");
}

static void give_up(struct job *j)
{
    for (uint32_t k = 0; k < kinds[j->kind].n; k++) {
        tr_cmd_post(s, j->slot[k], j->gen[k], TR_CMD_CANCEL, TR_ERR_INTERNAL);
        tr_cmd_post(s, j->slot[k], j->gen[k], TR_CMD_RELEASE, 0);
    }
    atomic_fetch_add(&board->lost, 1);
    j->used = false;
}

static void deliver(const struct job *j, const char *id, uint64_t tokens)
{
    struct tr_delivery d = {.slot = j->slot[0],
                            .gen = j->gen[0],
                            .stream_rand = j->rand,
                            .delivered_tokens = (uint32_t)tokens,
                            .closed_ns = tr_now_ns()};
    memcpy(d.request_id, id, sizeof(d.request_id));
    tr_delivery_push(s, &d);
}

static void finish(struct job *j)
{
    struct row row = {.rand = j->rand, .slot = j->slot[0], .gen = j->gen[0]};
    const struct tr_ring *lead = tr_ring_at(s, j->slot[0]);
    for (uint32_t k = 0; k < kinds[j->kind].n; k++) {
        const struct tr_ring *r = tr_ring_at(s, j->slot[k]);
        judge(j, k, r->err, r->finish_index);
        row.tokens += r->finish_index;
        row.state = j->state[k] > row.state ? j->state[k] : row.state;
        row.choices++;
    }
    deliver(j, lead->request_id, row.tokens);
    uint32_t at = atomic_load(&board->n_rows);
    if (at < MAX_ROWS) {
        board->rows[at] = row;
        atomic_store(&board->n_rows, at + 1);
    }
    for (uint32_t k = 0; k < kinds[j->kind].n; k++)
        tr_cmd_post(s, j->slot[k], j->gen[k], TR_CMD_RELEASE, 0);
    atomic_fetch_add(&board->finished, 1);
    j->used = false;
}

static bool is_durable(const struct job *j)
{
    for (uint32_t k = 0; k < kinds[j->kind].n; k++) {
        const struct tr_ring *r = tr_ring_at(s, j->slot[k]);
        uint64_t seq = atomic_load_explicit(&r->bill_seq, memory_order_acquire);
        if (!seq || !tr_bill_is_durable(s, seq))
            return false;
    }
    return true;
}

static void turn(struct job *j)
{
    bool over = true;
    for (uint32_t k = 0; k < kinds[j->kind].n && !j->lost; k++)
        if (!tr_state_terminal(j->state[k]))
            over &= follow(j, k);
    if (j->lost)
        give_up(j);
    else if (over && is_durable(j))
        finish(j);
    else if (!j->over && tr_now_ns() - j->began_ns > STANDSTILL_S * 1000000000ull) {
        wrong(j, 0, "it stands still");
        j->over = true;
    }
}

/* ---- what a dead one leaves to us ---- */

static bool is_of_a_job(uint32_t slot, uint32_t gen)
{
    for (uint32_t i = 0; i < N_LIVE; i++)
        for (uint32_t k = 0; jobs[i].used && k < kinds[jobs[i].kind].n; k++)
            if (jobs[i].slot[k] == slot && jobs[i].gen[k] == gen)
                return true;
    return false;
}

/* Resumable requests of a hostile one: taken, cancelled and let go.  Whether there are any. */
static bool end_inherited(void)
{
    bool any = false;
    for (uint32_t slot = 0; slot < s->config.n_slots; slot++) {
        const struct tr_ring *r = tr_ring_at(s, slot);
        uint32_t gen = atomic_load(&r->gen);
        struct tr_owner o = tr_ring_owner(r);
        if (o.area != GOOD_AREA || o.epoch != s->my_epoch || atomic_load(&r->state) == TR_FREE ||
            is_of_a_job(slot, gen))
            continue;
        if (!(r->params.flags & TR_REQ_RESUMABLE))
            continue; /* one of ours that is being let go */
        any = true;
        if (!o.confirmed)
            (void)tr_adopt(s, slot, gen, r->stream_rand); /* or at the next turn */
        else
            tr_cmd_post(s, slot, gen, TR_CMD_CANCEL | TR_CMD_RELEASE, TR_ERR_CANCELLED);
    }
    return any;
}

/* ---- the loop ---- */

static bool turn_all(uint32_t most)
{
    bool any = false;
    for (uint32_t i = 0; i < N_LIVE; i++) {
        if (!jobs[i].used && i < most && !atomic_load(&board->stop))
            begin(&jobs[i], (uint32_t)(random64() >> 33) % N_KINDS);
        if (jobs[i].used)
            turn(&jobs[i]);
        any |= jobs[i].used;
    }
    return any;
}

static void rest(void)
{
    struct pollfd p = {.fd = s->bell_area[GOOD_AREA], .events = POLLIN};
    struct tr_area *a = s->area[GOOD_AREA];
    atomic_store_explicit(&a->heartbeat_ns, tr_now_ns(), memory_order_relaxed);
    tr_bell_sleep(&a->sleeping);
    poll(&p, 1, 2);
    tr_bell_awake(p.fd, &a->sleeping);
}

static void learn_answers(void)
{
    for (uint32_t kind = 0; kind < N_KINDS; kind++) {
        while (!begin(&jobs[0], kind))
            rest();
        while (jobs[0].used) {
            turn(&jobs[0]);
            rest();
        }
    }
    atomic_store(&board->quiet_done, 1);
}

int good_main(struct tr_shm *shm, struct board *b)
{
    s = shm;
    board = b;
    tr_area_init(s);
    learn_answers();
    for (bool busy = true; busy || !atomic_load(&b->stop);) {
        busy = turn_all(N_LIVE);
        busy |= end_inherited();
        rest();
    }
    return 0;
}
