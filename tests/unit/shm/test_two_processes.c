/* SPDX-License-Identifier: Apache-2.0 */
/* Engine and frontend as two processes, each attached by the rights of its role: a request goes one
 * way, tokens the other, bells both, and either may die. */
#include "shm/bell.h"
#include "shm/region.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOKENS = 40, LIVES = 50 };

static const struct tr_shm_config config = {.n_ctx = 64,
                                            .n_vocab = 100,
                                            .n_slots = 2,
                                            .n_admit = 2,
                                            .max_seqs = 2,
                                            .n_areas = 2,
                                            .window = 8,
                                            .ledger = 0};
static struct tr_shm_fds fds;

/* Sleeps on a bell until `done` says so; the limit is only there to end a test that hangs. */
static bool wait_for(int fd, _Atomic uint32_t *sleeping, bool (*done)(void *), void *arg)
{
    for (int i = 0; i < 100; i++) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        tr_bell_sleep(sleeping);
        bool over = done(arg);
        if (!over)
            poll(&p, 1, 1000);
        tr_bell_awake(fd, sleeping);
        if (over)
            return true;
    }
    return false;
}

/* ---- the frontend's side ---- */

struct reader {
    struct tr_shm *s;
    uint32_t slot, gen;
    int64_t seen;
    bool ok;
};

static bool read_on(void *arg)
{
    struct reader *r = arg;
    uint32_t state;
    int64_t n = tr_ring_read(r->s, r->slot, r->gen, &state);
    const struct tr_ring *ring = tr_ring_at(r->s, r->slot);
    for (; r->seen < n; r->seen++)
        r->ok &= tr_ring_ids(r->s, r->slot)[ring->prompt_len + (uint64_t)r->seen] ==
                 (uint32_t)r->seen + 1;
    return n < 0 || (tr_state_terminal(state) && r->seen == TOKENS && ring->finish_index == TOKENS);
}

static int one_life(struct tr_shm *s)
{
    struct reader r = {.s = s, .ok = true};
    while (tr_claim_take(s, 1, &r.slot, &r.gen))
        usleep(100);
    tr_cursor_reset(s, r.slot, r.gen);
    struct tr_request *q = tr_request_at(s, r.slot);
    memset(q, 0, sizeof(*q));
    q->gen = r.gen;
    q->prompt_len = 3;
    tr_request_prompt(s, r.slot)[2] = 77;
    struct tr_msg m = {.kind = TR_MSG_SUBMIT, .slot = r.slot, .gen = r.gen};
    if (tr_subq_push(s, &m, 1))
        return 2;
    if (!wait_for(s->bell_area[0], &s->area[0]->sleeping, read_on, &r))
        return 3;
    tr_cmd_post(s, r.slot, r.gen, TR_CMD_RELEASE, 0);
    return r.ok ? 0 : 4;
}

static void frontend(uint32_t lives)
{
    struct tr_shm s;
    if (tr_shm_attach(&s, &fds, TR_ROLE_FRONTEND, 0, 1, NULL))
        _exit(9);
    tr_area_init(&s);
    for (uint32_t i = 0; i < lives; i++) {
        int bad = one_life(&s);
        if (bad)
            _exit(bad);
    }
    _exit(0);
}

/* ---- the engine's side ---- */

struct engine {
    struct tr_shm s;
    uint32_t released;
};

static void on_command(void *arg, uint32_t area, uint32_t slot, uint64_t word)
{
    struct engine *e = arg;
    (void)area;
    if (!(tr_cmd_flags(word) & TR_CMD_RELEASE) ||
        tr_cmd_gen(word) != atomic_load(&tr_ring_at(&e->s, slot)->gen))
        return;
    tr_ring_reset(&e->s, slot);
    tr_claim_set(&e->s, slot,
                 (struct tr_claim){.state = TR_CLAIM_OPEN,
                                   .gen = atomic_load(&tr_ring_at(&e->s, slot)->gen)});
    e->released++;
}

static void serve(struct engine *e, const struct tr_msg *m)
{
    struct tr_ring *r = tr_ring_at(&e->s, m->slot);
    cr_assert_eq(tr_request_of(&e->s, 0, m->slot)->prompt_len, 3);
    cr_assert_eq(tr_request_prompt_of(&e->s, 0, m->slot)[2], 77);
    r->prompt_len = 3;
    for (uint32_t i = 0; i < TOKENS; i++) {
        cr_assert_eq(tr_ring_push(&e->s, m->slot, i + 1, i), 0);
        tr_bell_ring_area(&e->s, 0);
    }
    r->finish_index = TOKENS;
    tr_ring_end(&e->s, m->slot, TR_COMPLETED);
    tr_bell_ring_area(&e->s, 0);
}

static bool turn(void *arg)
{
    struct engine *e = arg;
    struct tr_msg m;
    uint32_t before = e->released;
    tr_cmd_sweep(&e->s, 0, on_command, e);
    bool any = e->released != before;
    while (tr_subq_peek(&e->s, 0, &m, 1)) {
        serve(e, &m);
        tr_subq_consume(&e->s, 0, 1);
        any = true;
    }
    return any;
}

static void open_engine(struct engine *e)
{
    cr_assert_eq(tr_shm_create(&config, &fds, NULL), 0);
    struct tr_shm_fds copy = fds;
    cr_assert_eq(tr_shm_attach_all(&e->s, &copy, NULL), 0);
    tr_role = TR_ROLE_ENGINE;
    for (uint32_t i = 0; i < config.n_slots; i++) {
        tr_ring_reset(&e->s, i);
        tr_claim_set(&e->s, i, (struct tr_claim){.state = TR_CLAIM_OPEN, .gen = 1});
    }
}

Test(two_processes, requests_go_one_way_and_tokens_the_other)
{
    static struct engine e;
    open_engine(&e);
    pid_t pid = fork();
    if (pid == 0)
        frontend(LIVES);
    for (uint32_t i = 0; i < LIVES * 2000u && e.released < LIVES; i++)
        wait_for(e.s.bell_engine, &e.s.rings->sleeping, turn, &e);
    int status;
    waitpid(pid, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the frontend ended with %d", status);
    cr_assert_eq(e.released, LIVES);
}

Test(two_processes, a_frontend_killed_anywhere_leaves_words_that_can_be_put_right)
{
    static struct engine e;
    open_engine(&e);
    for (uint32_t round = 0; round < 30; round++) {
        pid_t pid = fork();
        if (pid == 0)
            frontend(1000000);
        for (uint32_t i = 0; i < 20; i++) {
            turn(&e);
            usleep(round * 10);
        }
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        /* What the engine does for a dead owner: its queue, then its slots. */
        turn(&e);
        for (uint32_t slot = 0; slot < config.n_slots; slot++) {
            tr_ring_reset(&e.s, slot);
            uint32_t gen = atomic_load(&tr_ring_at(&e.s, slot)->gen);
            tr_claim_set(&e.s, slot, (struct tr_claim){.state = TR_CLAIM_OPEN, .gen = gen});
        }
    }
    /* After all of that the next one is served as if nothing had been. */
    e.released = 0;
    pid_t pid = fork();
    if (pid == 0)
        frontend(3);
    for (uint32_t i = 0; i < 6000 && e.released < 3; i++)
        wait_for(e.s.bell_engine, &e.s.rings->sleeping, turn, &e);
    int status;
    waitpid(pid, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the frontend ended with %d", status);
}
