/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/speculate.h"

#include "base/sim_vocab.h"
#include "engine/ngram.h"
#include "enginerig/engine_rig.h"
#include "shm/lpring.h"
#include "testlib/gguf_write.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- who gets how many ---- */

Test(share, first_drafts_of_all_come_before_second_ones)
{
    struct tr_share s[] = {
        {.p = 0.9F, .offer = 8}, {.p = 0.8F, .offer = 8}, {.p = 0.9F, .offer = 1}};
    tr_speculate_share(s, 3, 5, 0.1F);
    cr_assert(s[0].rows == 2 && s[1].rows == 2 && s[2].rows == 1);
    tr_speculate_share(s, 3, 2, 0.1F);
    cr_assert(s[0].rows == 1 && s[1].rows == 1 && s[2].rows == 0);
    tr_speculate_share(s, 3, 0, 0.1F);
    cr_assert(s[0].rows == 0 && s[1].rows == 0 && s[2].rows == 0);
}

Test(share, a_draft_is_given_while_its_chance_is_above_the_floor)
{
    struct tr_share s[] = {{.p = 0.5F, .offer = 8}, {.p = 0.1F, .offer = 8}, {.p = 1, .offer = 8}};
    tr_speculate_share(s, 3, 32, 0.2F);
    cr_assert_eq(s[0].rows, 2, "0.5, 0.25, 0.125");
    cr_assert_eq(s[1].rows, 0);
    cr_assert_eq(s[2].rows, 8);
}

/* Reading the weights takes 5 ms, a row 0.6 ms. */
Test(share, the_more_sequences_share_the_weights_the_surer_a_draft_must_be)
{
    struct tr_cost c = {.price = {5e6, 0.5e6, 0, 0.5e6, 0, 0.1e6}};
    struct tr_cost_work w = {.n[TR_COST_STEP] = 1};
    float before = 0;
    for (uint32_t n = 1; n < 200; n++) {
        tr_cost_add_decode(&w, 10);
        float floor = tr_speculate_floor(&c, &w);
        cr_assert_float_eq(floor, 1.25 * 0.6 * n / (5 + 0.6 * n), 1e-5);
        cr_assert_gt(floor, before);
        before = floor;
    }
    tr_cost_add_prefill(&w, 0, 1000);
    cr_assert_lt(tr_speculate_floor(&c, &w), before, "beside a prompt a row is cheap");
    c = (struct tr_cost){.price = {0}};
    cr_assert_eq(tr_speculate_floor(&c, &w), 1, "nothing is known to be saved");
}

Test(share, rows_of_logits_are_bounded_for_any_vocabulary)
{
    cr_assert_eq(tr_speculate_rows(1000), TR_DRAFT_ROWS);
    cr_assert_eq(tr_speculate_rows(262144), 16);
    cr_assert_eq(tr_speculate_rows(4 << 20), TR_GUESS_MAX);
}

/* ---- the same tokens, whatever was guessed ---- */

enum { N = 24, CTX = 256, MAX_OUT = 140, TINY_VOCAB = 100 };

/* What computes them all together, where each alone is computed on the CPU (tests/cmake/cuda.cmake). */
#ifndef TOGETHER
#define TOGETHER tr_backend_cpu
#endif

static struct tr_engine_rig r;
static uint32_t prompts[N][80];
static struct tr_extra extras[N];

struct answer {
    uint32_t n, n_lp, state;
    uint32_t ids[MAX_OUT];
    struct tr_lp lp[MAX_OUT];
    uint32_t finish;
    uint64_t finish_index, overrun;
};

static struct answer want[N], got[N];
static float floor_of_rig = 0.2F; /* these tests are about rows that were given, not about time */
static int model_fd;
static char model_path[64];

static void open_rig(bool on, bool cpu, uint32_t window, uint32_t max_seqs, uint32_t chunk,
                     uint32_t kv)
{
    struct tr_engine_rig_config c = {
        .shm = {.n_slots = 64, .n_admit = 56, .max_seqs = max_seqs, .n_ctx = CTX, .window = window},
        .sched = {.prefill_chunk = chunk, .speculate = on, .draft_floor = floor_of_rig},
        .kv_blocks = kv};
    if (cpu) {
        c.ops = on ? &TOGETHER : &tr_backend_cpu;
        c.shm.n_vocab = TINY_VOCAB;
        c.sched.n_eog = 1;
        c.sched.eog[0] = 2;
        c.backend = (struct tr_backend_config){
            .model_path = model_path, .n_threads = 2, .deterministic = true};
    }
    tr_engine_rig_open(&r, &c);
}

static void close_rig(void)
{
    tr_engine_rig_close(&r);
}

/* A model file with random weights. */
static void make_model(void)
{
    size_t len;
    struct tr_gw *w = tr_gw_new(3);
    tr_gw_llama(w, &(struct tr_gw_llama){.type = TR_T_Q8_0,
                                         .embd_type = TR_T_Q8_0,
                                         .n_head = 4,
                                         .n_embd = 128,
                                         .n_head_kv = 2,
                                         .n_ctx = 512,
                                         .seed = 7});
    uint8_t *bytes = tr_gw_finish(w, &len);
    model_fd = memfd_create("model", 0);
    cr_assert_eq(write(model_fd, bytes, len), (ssize_t)len);
    snprintf(model_path, sizeof(model_path), "/proc/self/fd/%d", model_fd);
    free(bytes);
}

static void bias(uint32_t i, uint32_t id, float value)
{
    extras[i].bias[extras[i].n_bias++] = (struct tr_bias){.id = id, .value = value};
}

/* Answers that repeat themselves for a while: few tokens are likely, in turn or by chance, and penalties,
 * ends and limits come in the middle of what repeats. */
static struct tr_rig_ask ask(uint32_t i, bool cpu)
{
    struct tr_rig_ask a = tr_rig_ask();
    uint32_t base = cpu ? 10 : TR_SIM_TEXT, few = 2 + i % 5;
    a.prompt = prompts[i];
    a.prompt_len = 1 + (i * 17) % 80;
    for (uint32_t k = 0; k < a.prompt_len; k++)
        prompts[i][k] = base + (k % (3 + i)) % 40;
    a.params.max_tokens = 1 + (i * 37 + 100) % MAX_OUT;
    a.params.temperature = i % 3 == 1 ? 1.0 : 0;
    a.params.seed = i + 1;
    a.params.frequency_penalty = i % 4 == 2 ? 2 : 0;
    a.params.presence_penalty = i % 4 == 3 ? 0.3 : 0;
    a.params.repetition_penalty = i % 6 == 4 ? 1.05 : 1;
    a.params.top_p = i % 7 == 1 ? 0.9 : 1;
    a.params.min_tokens = i % 5 == 0 ? 31 : 0;
    if (i % 2)
        a.params.flags |= TR_REQ_LOGPROBS;
    a.params.n_top = i % 4;
    extras[i].n_bias = extras[i].n_stop = 0;
    /* Equal ones come in turn under a frequency penalty. */
    for (uint32_t k = 0; k < few; k++)
        bias(i, base + 3 * k, i % 8 == 7 ? 13.0F : 100);
    if (i % 5 == 0)
        extras[i].stop_ids[extras[i].n_stop++] = base + 3;
    if (i % 7 == 3) {
        bias(i, cpu ? 2 : TR_SIM_EOS, 99.4F);
        a.params.flags &= ~(uint32_t)TR_REQ_IGNORE_EOS;
        a.params.frequency_penalty = 0.05;
    }
    a.extra = &extras[i];
    a.area = i % 4;
    return a;
}

static void pop(const struct tr_rig_req *q, struct answer *w)
{
    tr_rig_be_frontend(&r, q->area);
    while (w->n_lp < MAX_OUT && tr_lpring_peek(&r.s, q->slot, &w->lp[w->n_lp]) == 0) {
        w->n_lp++;
        tr_lpring_pop(&r.s, q->slot);
    }
}

static void read_all(const struct tr_rig_req *q, struct answer *w)
{
    pop(q, w);
    uint32_t n = tr_rig_published(&r, q);
    tr_cursor_set(&r.s, q->slot, n, n);
}

static void note(const struct tr_rig_req *q, struct answer *w)
{
    const struct tr_ring *ring = tr_rig_ring(&r, q);
    pop(q, w);
    w->n = tr_rig_published(&r, q);
    w->state = tr_rig_state(&r, q);
    w->finish = ring->finish;
    w->finish_index = ring->finish_index;
    w->overrun = ring->overrun;
    memcpy(w->ids, tr_rig_output(&r, q), w->n * sizeof(uint32_t));
}

static void each_alone(bool cpu)
{
    memset(want, 0, sizeof(want));
    open_rig(false, cpu, 256, 4, 0, 0);
    for (uint32_t i = 0; i < N; i++) {
        struct tr_rig_ask a = ask(i, cpu);
        struct tr_rig_req q = tr_rig_submit(&r, &a);
        while (tr_rig_turn(&r))
            read_all(&q, &want[i]);
        note(&q, &want[i]);
    }
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_DRAFTED), 0);
    close_rig();
}

static void must_be_equal(const char *what)
{
    for (uint32_t i = 0; i < N; i++) {
        cr_assert_eq(got[i].n, want[i].n, "%s, request %u: %u tokens, not %u", what, i, got[i].n,
                     want[i].n);
        cr_assert_eq(memcmp(&got[i], &want[i], sizeof(got[i])), 0, "%s, request %u", what, i);
    }
}

/* All at once, readers come and go, and nobody is ever further than his window. */
static void together(bool cpu, uint32_t window, bool crash)
{
    struct tr_rig_req q[N];
    uint32_t n = 0;
    memset(got, 0, sizeof(got));
    for (uint32_t turn = 0;; turn++) {
        cr_assert_lt(turn, 100000);
        for (uint32_t k = (uint32_t)rand() % 3; k && n < N; k--, n++) {
            struct tr_rig_ask a = ask(n, cpu);
            q[n] = tr_rig_submit(&r, &a);
        }
        if (crash && turn % 61 == 7)
            tr_engine_rig_restart(&r);
        bool busy = tr_rig_turn(&r);
        for (uint32_t i = 0; i < n; i++) {
            const struct tr_cursor *c = tr_cursor_at(&r.s, q[i].area, q[i].slot);
            cr_assert_leq(tr_rig_published(&r, &q[i]) - atomic_load(&c->sent), window);
            if (rand() % 4 == 0 || !busy)
                read_all(&q[i], &got[i]);
        }
        if (!busy && n == N && tr_rig_bills(&r) == N)
            break;
    }
    for (uint32_t i = 0; i < N; i++)
        note(&q[i], &got[i]);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 0);
}

static const struct {
    uint32_t window, max_seqs, chunk, kv;
} runs[] = {{256, 1, 0, 0},   {256, 3, 7, 0}, {8, 4, 16, 0},   {256, 8, 16, 9}, {5, 12, 33, 8},
            {16, 32, 64, 20}, {2, 3, 9, 0},   {256, 2, 0, 10}, {99, 3, 20, 8}};

static void equal_in_all_runs(bool cpu, bool crash, uint32_t least)
{
    uint64_t drafted = 0, accepted = 0;
    each_alone(cpu);
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        char what[32];
        snprintf(what, sizeof(what), "run %zu", i);
        srand((unsigned)i);
        open_rig(true, cpu, runs[i].window, runs[i].max_seqs, runs[i].chunk, runs[i].kv);
        together(cpu, runs[i].window, crash);
        must_be_equal(what);
        drafted += tr_rig_stat(&r, TR_STAT_DRAFTED);
        accepted += tr_rig_stat(&r, TR_STAT_ACCEPTED);
        close_rig();
    }
    cr_log_info("%llu drafted, %llu accepted", (unsigned long long)drafted,
                (unsigned long long)accepted);
    cr_assert_gt(accepted, least, "%llu accepted: this tests less than it says",
                 (unsigned long long)accepted);
    cr_assert_gt(drafted - accepted, least / 4, "%llu of %llu refused",
                 (unsigned long long)(drafted - accepted), (unsigned long long)drafted);
}

Test(speculate, mixed_requests_give_the_same_tokens_logprobs_and_ends, .timeout = 100)
{
    equal_in_all_runs(false, false, 1000);
}

Test(speculate, the_same_with_a_model_and_its_kernels, .timeout = 600)
{
    make_model();
    equal_in_all_runs(true, false, 2000);
    close(model_fd);
}

/* Logprob entries that nobody has popped when an engine dies are gone with the next owner only: here the
 * frontends live. */
Test(speculate, the_same_when_engines_die, .timeout = 100)
{
    equal_in_all_runs(false, true, 500);
}

/* ---- one request, looked at closely ---- */

static struct tr_rig_ask repeating(uint32_t max_tokens)
{
    struct tr_rig_ask a = tr_rig_ask();
    extras[0] = (struct tr_extra){.n_bias = 1, .bias = {{.id = TR_SIM_TEXT + 7, .value = 100}}};
    a.extra = &extras[0];
    a.params.max_tokens = max_tokens;
    return a;
}

TestSuite(speculating, .fini = close_rig);

Test(speculating, tokens_of_one_step_tell_the_same_step_and_all_are_counted)
{
    open_rig(true, false, 256, 4, 0, 0);
    struct tr_rig_ask a = repeating(100);
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    uint64_t first = atomic_load(&r.s.rings->step);
    tr_rig_run(&r, &q, 1);
    const uint32_t *steps = tr_ring_steps(&r.s, q.slot);
    uint32_t most = 1, run = 1;
    for (uint32_t i = 1; i < 100; i++) {
        cr_assert(steps[i] == steps[i - 1] || steps[i] == steps[i - 1] + 1);
        run = steps[i] == steps[i - 1] ? run + 1 : 1;
        most = run > most ? run : most;
    }
    cr_assert_eq(most, 1 + TR_GUESS_MAX);
    uint64_t n_steps = atomic_load(&r.s.rings->step) - first;
    cr_assert_lt(n_steps, 30);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
    cr_assert_eq(tr_rig_published(&r, &q), 100);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_PUBLISHED), 100);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_TOK_COMPLETION), 100);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_TOK_OVERRUN), 0);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_ACCEPTED), 100 - n_steps);
    cr_assert_eq(tr_rig_hist(&r, TR_HIST_TTFT), 1);
    cr_assert_eq(tr_rig_hist(&r, TR_HIST_ITL), 99, "those of one step are 0 apart");
}

Test(speculating, it_parks_at_the_window_exactly)
{
    open_rig(true, false, 12, 4, 0, 0);
    struct tr_rig_ask a = repeating(100);
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    for (uint32_t read = 0; read + 12 < 100; read += 7) {
        tr_rig_run(&r, NULL, 0);
        cr_assert_eq(tr_rig_published(&r, &q), read + 12);
        cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
        tr_rig_be_frontend(&r, 0);
        tr_cursor_set(&r.s, q.slot, read + 7, read + 7);
    }
    cr_assert_gt(tr_rig_stat(&r, TR_STAT_ACCEPTED), 20);
}

Test(speculating, what_came_beyond_the_token_it_is_to_finish_at_is_overrun)
{
    open_rig(true, false, 256, 4, 0, 0);
    struct tr_rig_ask a = repeating(200);
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    while (tr_rig_published(&r, &q) < 60)
        tr_rig_turn(&r);
    uint32_t n = tr_rig_published(&r, &q);
    tr_rig_finish(&r, &q, n - 5);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_state(&r, &q), TR_COMPLETED);
    cr_assert_eq(tr_rig_ring(&r, &q)->finish_index, n - 5);
    cr_assert_eq(tr_rig_ring(&r, &q)->overrun, 5);
    cr_assert_eq(tr_rig_published(&r, &q), n, "no step after it");
}

Test(speculating, a_cancel_is_seen_before_the_next_step)
{
    open_rig(true, false, 256, 4, 0, 0);
    struct tr_rig_ask a = repeating(200);
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    while (tr_rig_published(&r, &q) < 60)
        tr_rig_turn(&r);
    uint32_t n = tr_rig_published(&r, &q);
    tr_rig_cancel(&r, &q, TR_ERR_CANCELLED);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_CANCELLED);
    cr_assert_eq(tr_rig_published(&r, &q), n);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 0);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_AVOIDED), 200 - n);
}

/* A batch that is full has better things to do than to guess. */
Test(speculating, a_large_batch_asks_only_about_what_is_nearly_sure)
{
    floor_of_rig = 0.8F;
    open_rig(true, false, 256, 40, 0, 0);
    struct tr_rig_req q[40];
    for (uint32_t i = 0; i < 40; i++) {
        struct tr_rig_ask a = tr_rig_ask();
        extras[1] = (struct tr_extra){.n_bias = 2,
                                      .bias = {{TR_SIM_TEXT + 7, 100}, {TR_SIM_TEXT + 9, 100}}};
        a.extra = &extras[1];
        a.params.temperature = 1;
        a.params.seed = i;
        a.params.max_tokens = 100;
        q[i] = tr_rig_submit(&r, &a);
    }
    tr_rig_run(&r, q, 40);
    cr_assert_lt(tr_rig_stat(&r, TR_STAT_DRAFTED), 40 * 100 / 20, "%u",
                 (unsigned)tr_rig_stat(&r, TR_STAT_DRAFTED));
}

/* Two turns of a chat: the second finds the first, with its answer, in the prefix cache. */
static uint32_t second_turn(bool on, uint32_t *out)
{
    uint32_t prompt[140];
    open_rig(on, false, 256, 2, 0, 0);
    struct tr_rig_ask a = tr_rig_ask();
    extras[2] = (struct tr_extra){.n_bias = 2,
                                  .bias = {{TR_SIM_TEXT + 7, 12.5F}, {TR_SIM_TEXT + 9, 12.5F}}};
    a.extra = &extras[2];
    a.params.max_tokens = 130;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    memcpy(prompt, tr_ring_ids(&r.s, q.slot), sizeof(uint32_t) * 133);
    a.prompt = prompt;
    a.prompt_len = 133;
    a.params.max_tokens = 60;
    q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    memcpy(out, tr_rig_output(&r, &q), 60 * sizeof(uint32_t));
    return (uint32_t)atomic_load(&tr_rig_ring(&r, &q)->cached_tokens);
}

Test(speculating, what_is_cached_of_an_answer_never_holds_a_draft_that_was_wrong)
{
    uint32_t off[60], on[60];
    cr_assert_eq(second_turn(false, off), 128);
    close_rig();
    cr_assert_eq(second_turn(true, on), 128);
    cr_assert_eq(memcmp(on, off, sizeof(on)), 0);
    uint64_t drafted = tr_rig_stat(&r, TR_STAT_DRAFTED), right = tr_rig_stat(&r, TR_STAT_ACCEPTED);
    cr_assert(right > 10 && drafted - right > 10, "%lu of %lu", right, drafted);
}
