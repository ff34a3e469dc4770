/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine reads in shared memory, byte by byte: submission queue, requests, commands, cursors,
 * dirty bits, owner words, and after a restart its own rings and claims.
 *
 * The input is a program: each step writes bytes as a hostile frontend could, submits, turns the
 * scheduler or kills somebody.  Beside it runs a stream of another frontend, which must come out as it
 * always does; at the end every slot and KV block must be back.  With the first byte odd the steps may
 * also write into the rings (as if a dying engine had): then only the second half is asked. */
#include "enginerig/engine_rig.h"

#include "base/assert.h"
#include "base/sim_vocab.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { GOOD, EVIL, TOKENS = 20, MAX_STEPS = 64, MAX_TURNS = 2000 };

struct input {
    const uint8_t *p;
    size_t left;
};

static struct tr_engine_rig r;
static struct tr_rig_req good;
static uint32_t expected[TOKENS];
static bool have_expected;
static bool spoilt; /* rings may hold anything */

static uint32_t take(struct input *in, uint32_t bytes)
{
    uint32_t v = 0;
    while (bytes-- && in->left) {
        v = v << 8 | *in->p++;
        in->left--;
    }
    return v;
}

static void take_bytes(struct input *in, void *out, size_t room)
{
    size_t n = take(in, 1);
    n = n < in->left ? n : in->left;
    n = n < room ? n : room;
    memcpy(out, in->p, n);
    in->p += n;
    in->left -= n;
}

/* ---- steps ---- */

static uint32_t take_slot(struct input *in)
{
    return take(in, 1) % r.c.shm.n_slots;
}

/* Queue, messages, records, bits, words, cursors. */
static void write_area(struct input *in)
{
    char *area = (char *)r.s.area[EVIL];
    size_t from = offsetof(struct tr_area, heartbeat_ns);
    size_t n = tr_layout_area_request(&r.c.shm, 0) - from, at = take(in, 4) % n;
    take_bytes(in, area + from + at, n - at);
}

static void write_word(struct input *in)
{
    char *area = (char *)r.s.area[EVIL];
    uint32_t slot = take_slot(in), which = take(in, 1) % 4;
    char *at = which == 0   ? area + tr_layout_area_cmd(&r.c.shm) + slot * sizeof(uint64_t)
               : which == 1 ? (char *)tr_cursor_at(&r.s, EVIL, slot)
               : which == 2 ? (char *)&r.s.area[EVIL]->subq_tail
                            : (char *)&r.s.claims->word[slot];
    take_bytes(in, at, which == 1 ? sizeof(struct tr_cursor) : sizeof(uint64_t));
}

static void mark_dirty(struct input *in)
{
    (void)in;
    char *dirty = (char *)r.s.area[EVIL] + tr_layout_area_dirty(&r.c.shm);
    memset(dirty, 0xff,
           sizeof(uint64_t) * (tr_layout_dirty_sums(&r.c.shm) + tr_layout_dirty_words(&r.c.shm)));
}

static void write_request(struct input *in)
{
    uint32_t slot = take_slot(in);
    tr_rig_be_frontend(&r, EVIL);
    struct tr_request *q = tr_request_at(&r.s, slot);
    size_t at = take(in, 1) * 2 % sizeof(*q);
    take_bytes(in, (char *)q + at, sizeof(*q) - at);
}

static void write_extra(struct input *in)
{
    uint32_t slot = take_slot(in);
    tr_rig_be_frontend(&r, EVIL);
    take_bytes(in, tr_request_extra(&r.s, slot), 255);
    tr_request_at(&r.s, slot)->extra_len = take(in, 1);
}

static void write_prompt(struct input *in)
{
    uint32_t slot = take_slot(in);
    tr_rig_be_frontend(&r, EVIL);
    take_bytes(in, tr_request_prompt(&r.s, slot), r.c.shm.n_ctx * sizeof(uint32_t));
}

/* Claims `n` slots and writes valid requests, as one group; nothing is pushed yet. */
static void prepare(struct input *in)
{
    uint32_t n = 1 + take(in, 1) % 3, slots[3], gens[3], flags = take(in, 1);
    tr_rig_be_frontend(&r, EVIL);
    if (tr_claim_take(&r.s, n, slots, gens))
        return;
    for (uint32_t k = 0; k < n; k++) {
        tr_cursor_reset(&r.s, slots[k], gens[k]);
        struct tr_request *q = tr_request_at(&r.s, slots[k]);
        memset(q, 0, sizeof(*q));
        q->gen = gens[k];
        q->prompt_len = 3;
        q->params = (struct tr_params){.top_p = 1,
                                       .repetition_penalty = 1,
                                       .weight = 1,
                                       .max_tokens = 12,
                                       .n_top = 2,
                                       .flags = flags & 63};
        q->group_n = n;
        q->group_k = k;
        q->group_lead = slots[0];
    }
}

static void push(struct input *in)
{
    struct tr_msg m[4];
    uint32_t n = 1 + take(in, 1) % 4, mode = take(in, 1);
    tr_rig_be_frontend(&r, EVIL);
    memset(m, 0, sizeof(m));
    for (uint32_t k = 0; k < n; k++) {
        m[k].kind = TR_MSG_SUBMIT + (mode >> k & 1);
        m[k].slot = take(in, 1) % (r.c.shm.n_slots + 1);
        const struct tr_ring *ring = tr_ring_at(&r.s, m[k].slot);
        m[k].gen = ring ? atomic_load(&ring->gen) : 1;
        /* Not the right bits of the good stream: cancelling it is every frontend's right. */
        m[k].stream_rand = take(in, 1);
    }
    tr_subq_push(&r.s, m, n);
}

static void command(struct input *in)
{
    uint32_t slot = take_slot(in), flag = 1u << (take(in, 1) % 3), arg = take(in, 3);
    tr_rig_be_frontend(&r, EVIL);
    tr_cmd_post(&r.s, slot, atomic_load(&tr_ring_at(&r.s, slot)->gen), flag, arg);
}

static void turn(struct input *in)
{
    for (uint32_t i = take(in, 1) % 16; i-- > 0;)
        tr_rig_turn(&r);
}

static void ledger(struct input *in)
{
    (void)in;
    tr_rig_ledger_runs(&r);
}

static void replace_frontend(struct input *in)
{
    (void)in;
    tr_rig_kill_frontend(&r, EVIL);
    tr_rig_turn(&r);
    tr_rig_start_frontend(&r, EVIL);
}

static void (*const steps[])(struct input *) = {
    write_area, write_word, mark_dirty, write_request, write_extra, write_prompt,
    prepare,    push,       command,    turn,          ledger,      replace_frontend};
enum { N_STEPS = sizeof(steps) / sizeof(steps[0]) };

/* As a dying engine may have left them. */
static void write_ring(struct input *in)
{
    uint32_t slot = take(in, 1) % r.c.shm.n_slots;
    struct tr_ring *ring = tr_ring_at(&r.s, slot);
    size_t at = take(in, 1) * 4 % sizeof(*ring);
    take_bytes(in, (char *)ring + at, sizeof(*ring) - at);
}

static void restart_engine(struct input *in)
{
    (void)in;
    tr_engine_rig_restart(&r);
}

/* ---- the good stream ---- */

static void start_good(void)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.area = GOOD;
    a.params.max_tokens = TOKENS;
    a.rand = 0x123456789abcdef0;
    good = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
}

static void check_good(void)
{
    TR_ASSERT(tr_rig_state(&r, &good) == TR_INCOMPLETE);
    TR_ASSERT(tr_rig_published(&r, &good) == TOKENS);
    if (have_expected)
        TR_ASSERT(memcmp(tr_rig_output(&r, &good), expected, sizeof(expected)) == 0);
    else
        memcpy(expected, tr_rig_output(&r, &good), sizeof(expected));
    have_expected = true;
}

static void come_to_rest(void)
{
    uint32_t turns = 0;
    do {
        TR_ASSERT(turns++ < MAX_TURNS);
        if (!spoilt) /* else it reads for ever */
            tr_rig_read_all(&r, &good);
    } while (tr_rig_turn(&r));
}

static void check_all_back(void)
{
    tr_rig_release(&r, &good);
    tr_rig_kill_frontend(&r, EVIL);
    tr_rig_kill_frontend(&r, GOOD); /* what a spoilt ring says of its owner may be anybody */
    come_to_rest();
    tr_rig_ledger_runs(&r);
    come_to_rest();
    TR_ASSERT(tr_rig_stat(&r, TR_STAT_KV_USED) == 0);
    TR_ASSERT(tr_rig_claims(&r, TR_CLAIM_OPEN) == r.c.shm.n_admit);
    TR_ASSERT(tr_rig_claims(&r, TR_CLAIM_CLOSED) == r.c.shm.n_slots - r.c.shm.n_admit);
}

static void open_rig(void)
{
    struct tr_engine_rig_config c = {.shm = {.n_ctx = 64,
                                             .n_slots = 8,
                                             .n_admit = 6,
                                             .max_seqs = 4,
                                             .n_areas = 2,
                                             .window = 8,
                                             .ledger = 1}};
    tr_engine_rig_open(&r, &c);
}

static void run(struct input *in)
{
    bool dying = false;
    spoilt = take(in, 1) & 1;
    open_rig();
    start_good();
    for (int i = 0; i < MAX_STEPS && in->left; i++) {
        uint32_t s = take(in, 1) % (N_STEPS + (spoilt ? 2u : 0u));
        if (dying && s != N_STEPS)
            restart_engine(in);
        dying = s == N_STEPS;
        if (s < N_STEPS)
            steps[s](in);
        else
            (dying ? write_ring : restart_engine)(in);
    }
    if (spoilt) {
        restart_engine(in);
    } else {
        come_to_rest();
        check_good();
    }
    check_all_back();
    tr_engine_rig_close(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!have_expected)
        run(&(struct input){0});
    run(&(struct input){data, size});
    return 0;
}
