/* SPDX-License-Identifier: Apache-2.0 */
/* What the plan's rules give over whole traces, in virtual time. */
#include "bench/playback.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull

enum { MANY = 400 };
static struct tr_playback_request r[MANY];
static struct tr_playback_totals totals;
static size_t n;

/* About SmolLM2 on two cores: 5 ms a step, 0.4 ms a row of a prompt, as much for 800 positions that it
 * reads. */
static struct tr_playback_config machine(void)
{
    struct tr_playback_config c = {.max_seqs = 16,
                                   .max_queue = 400,
                                   .n_blocks = 16 * 256,
                                   .prefill_chunk = 512,
                                   .itl_target_ns = 50 * MS,
                                   .ttft_target_ns = 1000 * MS,
                                   .price = {5e6, 1.5e5, 500, 4e5, 500, 2e5},
                                   .noise = 0.05,
                                   .weight_bytes = 92 << 20};
    return c;
}

static struct tr_playback_request *ask(uint64_t at_ms, uint32_t prompt, uint32_t max_tokens)
{
    cr_assert_lt(n, MANY);
    r[n] = (struct tr_playback_request){.at_ns = at_ms * MS,
                                        .prompt = prompt,
                                        .max_tokens = max_tokens,
                                        .leave_ns = TR_PLAYBACK_NEVER,
                                        .leave_after_ns = TR_PLAYBACK_NEVER};
    return &r[n++];
}

/* The longest gap of a request with a small prompt. */
struct gaps {
    uint64_t longest_ns, n, over; /* over 1.2 x the target */
};

static void gap(void *arg, const struct tr_playback_request *q, uint32_t k, uint64_t gap_ns)
{
    struct gaps *g = arg;
    if (k < 2 || q->prompt > 200)
        return;
    g->n++;
    g->over += gap_ns > 60 * MS;
    g->longest_ns = gap_ns > g->longest_ns ? gap_ns : g->longest_ns;
}

static struct gaps play(const struct tr_playback_config *c)
{
    struct gaps g = {0};
    cr_assert_eq(tr_playback_run(c, r, n, &totals, gap, &g), 0);
    return g;
}

static uint64_t ttft(const struct tr_playback_request *q)
{
    cr_assert_neq(q->first_ns, TR_PLAYBACK_NEVER);
    return q->first_ns - q->at_ns;
}

/* Short streams all the time, and long prompts between them. */
static void mix(void)
{
    n = 0;
    for (uint32_t t = 0; t < 40000; t += 250) {
        ask(t, 20 + t % 90, 60);
        if (t % 5000 == 2000)
            ask(t, 3000 + t % 2900, 8);
    }
}

Test(playback, streams_keep_the_target_while_long_prompts_arrive)
{
    struct tr_playback_config c = machine();
    mix();
    struct gaps g = play(&c);
    cr_assert_gt(g.n, 5000);
    cr_assert_eq(g.over, 0, "%llu", (unsigned long long)g.longest_ns);
    c.prefill_chunk = 0;
    g = play(&c);
    cr_assert_gt(g.longest_ns, 1000 * MS, "without chunks a stream waits for a whole prompt");
    c = machine();
    c.itl_target_ns = 0;
    g = play(&c);
    cr_assert_gt(g.longest_ns, 150 * MS, "the cap in tokens alone knows nothing of time");
}

Test(playback, a_question_does_not_wait_for_the_document_before_it)
{
    struct tr_playback_config c = machine();
    n = 0;
    ask(0, 6000, 8);
    struct tr_playback_request *q = ask(500, 40, 8);
    play(&c);
    cr_assert_lt(ttft(q), 400 * MS, "the step under way, and one of its own");
    cr_assert_gt(r[0].first_ns, q->first_ns);
}

Test(playback, a_document_takes_at_most_twice_as_long_however_many_questions_come)
{
    struct tr_playback_config c = machine();
    n = 0;
    ask(0, 6000, 8);
    play(&c);
    uint64_t alone = ttft(&r[0]);
    /* Questions that would fill the machine by themselves: 300 tokens each, 120 ms of work, every
     * 100 ms. */
    for (uint32_t t = 0; t < 10000; t += 100)
        ask(t, 300, 1);
    play(&c);
    cr_assert_leq(ttft(&r[0]), 2 * alone + alone / 4, "%llu %llu", (unsigned long long)alone / MS,
                  (unsigned long long)ttft(&r[0]) / MS);
}

/* Both always have something to do; one has ten times as many requests. */
Test(playback, two_keys_are_served_alike)
{
    struct tr_playback_config c = machine();
    c.max_seqs = 4;
    n = 0;
    for (int i = 0; i < 300; i++)
        ask(0, 100, 20)->key = i % 11 ? "many" : "few";
    play(&c);
    /* When the one with few is through, the other has had as much, but for the batch. */
    uint64_t through = 0;
    uint32_t few = 0, many = 0;
    for (size_t i = 0; i < n; i++)
        if (strcmp(r[i].key, "few") == 0 && ++few)
            through = r[i].end_ns > through ? r[i].end_ns : through;
    for (size_t i = 0; i < n; i++)
        many += strcmp(r[i].key, "many") == 0 && r[i].end_ns <= through;
    cr_assert_leq(abs((int)many - (int)few), 4, "%u %u", many, few);
}

Test(playback, a_higher_priority_passes_a_full_queue)
{
    struct tr_playback_config c = machine();
    c.max_seqs = 2;
    n = 0;
    for (int i = 0; i < 50; i++)
        ask(0, 50, 50);
    struct tr_playback_request *high = ask(1000, 50, 5);
    high->priority = -1;
    play(&c);
    for (size_t i = 0; i < 50; i++)
        cr_assert(r[i].started_ns < 1000 * MS || r[i].started_ns >= high->started_ns,
                  "%zu: %llu %llu", i, (unsigned long long)r[i].started_ns,
                  (unsigned long long)high->started_ns);
}

/* ---- progress on small pools ---- */

struct progress {
    uint32_t preemptions[MANY], at[MANY];
};

static void made(void *arg, const struct tr_playback_request *q, uint32_t k, uint64_t gap_ns)
{
    struct progress *p = arg;
    size_t i = (size_t)(q - r);
    (void)gap_ns;
    cr_assert_leq(q->preemptions, p->preemptions[i] + 1, "twice without a token");
    p->preemptions[i] = q->preemptions;
    p->at[i] = k;
}

Test(playback, on_any_small_pool_everybody_finishes_and_no_preemption_is_wasted)
{
    uint64_t preempted = 0;
    for (unsigned seed = 1; seed <= 30; seed++) {
        static struct progress p;
        struct tr_playback_config c = machine();
        srand(seed);
        memset(&p, 0, sizeof(p));
        c.max_seqs = 2 + (uint32_t)rand() % 12;
        c.n_blocks = 32 + (uint32_t)rand() % 64;
        n = 0;
        for (uint32_t i = 0, at = 0; i < 120; i++) {
            struct tr_playback_request *q =
                ask(at += (uint32_t)rand() % 300, 1 + (uint32_t)rand() % 500,
                    1 + (uint32_t)rand() % 500);
            q->priority = rand() % 4 ? 0 : rand() % 3 - 1;
            q->key = rand() % 2 ? "a" : "b";
            if (rand() % 8 == 0)
                q->leave_ns = q->at_ns + (uint32_t)(rand() % 5000) * MS;
        }
        cr_assert_eq(tr_playback_run(&c, r, n, &totals, made, &p), 0);
        for (size_t i = 0; i < n; i++)
            cr_assert(r[i].left || r[i].n_out == r[i].max_tokens);
        preempted += totals.preemptions;
    }
    cr_assert_gt(preempted, 100);
}

Test(playback, the_same_trace_gives_the_same_result)
{
    static struct tr_playback_request first[MANY];
    struct tr_playback_config c = machine();
    mix();
    play(&c);
    struct tr_playback_totals t = totals;
    memcpy(first, r, sizeof(first));
    play(&c);
    cr_assert_eq(memcmp(first, r, n * sizeof(*r)), 0);
    cr_assert_eq(memcmp(&t, &totals, sizeof(t)), 0);
}
