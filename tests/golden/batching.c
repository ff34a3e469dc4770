/* SPDX-License-Identifier: Apache-2.0 */
/* tests/golden/batching.c - P10 through the whole engine on the real model: scheduler, paged KV,
 * forward pass and sampler give every request the tokens it has alone, whatever shares the batch,
 * however prompts are cut, whoever is preempted, what of it is found in the prefix cache, with any number
 * of threads, whatever is guessed, and all of that at once. */
#include "base/gguf.h"
#include "enginerig/engine_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The thread sanitizer makes a model many times slower: fewer requests share the batch there. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
enum { N = 8 };
#else
enum { N = 12 };
#endif
enum { MAX_OUT = 100, MAX_PROMPT = 91, COMMON = 70, CTX = 192 };

static unsigned passed;
static unsigned failed;
static uint64_t accepted, cached;
static uint32_t prompts[N][MAX_PROMPT];
static uint32_t want[N][MAX_OUT];
static uint32_t want_n[N];

static void verdict(bool ok, const char *run, uint32_t i, const char *what)
{
    if (ok) {
        passed++;
        return;
    }
    failed++;
    fprintf(stderr, "%s, request %u: %s\n", run, i, what);
}

static const char *model_path(void)
{
    const char *p = getenv("TOKENRING_TEST_MODEL");
    return p ? p : ".cache/smollm2.gguf";
}

static uint32_t vocab_size(void)
{
    struct tr_errbuf err = {""};
    struct tr_gguf *g = tr_gguf_open(model_path(), &err);
    struct tr_gguf_array tokens;
    if (!g || tr_gguf_array(g, "tokenizer.ggml.tokens", &tokens)) {
        fprintf(stderr, "%s: %s\n", model_path(), err.msg);
        exit(1);
    }
    uint32_t n = (uint32_t)tokens.len;
    tr_gguf_close(g);
    return n;
}

struct run {
    const char *name;
    uint32_t max_seqs, chunk, kv_blocks, window, threads;
    bool speculate, cache;
};

static void open_rig(struct tr_engine_rig *r, const struct run *u)
{
    struct tr_engine_rig_config c = {.ops = &tr_backend_cpu, .kv_blocks = u->kv_blocks};
    c.shm = (struct tr_shm_config){.n_ctx = CTX,
                                   .n_vocab = vocab_size(),
                                   .n_slots = 2 * N,
                                   .n_admit = 2 * N,
                                   .max_seqs = u->max_seqs,
                                   .window = u->window};
    c.sched = (struct tr_sched_config){.prefill_chunk = u->chunk,
                                       .prefix_cache = u->cache ? TR_PREFIX_ON : TR_PREFIX_OFF,
                                       .speculate = u->speculate,
                                       .draft_floor = 0.1F,
                                       .eog = {2},
                                       .n_eog = 1};
    c.backend.model_path = model_path();
    c.backend.math = TR_MATH_INT8;
    c.backend.kv_type = TR_KV_F16;
    c.backend.n_threads = u->threads;
    tr_engine_rig_open(r, &c);
}

/* Ids of ordinary words; what they say does not matter.  Every third one begins like the others of its
 * kind, two blocks and some more. */
static struct tr_rig_ask ask(uint32_t i)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.prompt = prompts[i];
    uint32_t common = i % 3 == 1 ? COMMON : 0;
    a.prompt_len = common + 3 + (i * 29) % (MAX_PROMPT - COMMON - 3);
    for (uint32_t k = 0; k < a.prompt_len; k++)
        prompts[i][k] = 300 + ((k < common ? 0 : i + 1) * 7919 + k * 613) % 20000;
    a.params.max_tokens = 30 + (i * 31) % (MAX_OUT - 30);
    a.params.temperature = i % 2 ? 0.8 : 0;
    a.params.top_p = i % 3 ? 1 : 0.9;
    a.params.seed = 1000 + i;
    a.area = i % 4;
    return a;
}

static void each_alone(void)
{
    static struct tr_engine_rig r;
    struct run u = {"alone", 1, 0, 0, CTX, 1, false, false};
    open_rig(&r, &u);
    for (uint32_t i = 0; i < N; i++) {
        struct tr_rig_ask a = ask(i);
        struct tr_rig_req q = tr_rig_submit(&r, &a);
        tr_rig_run(&r, &q, 1);
        want_n[i] = tr_rig_published(&r, &q);
        memcpy(want[i], tr_rig_output(&r, &q), want_n[i] * sizeof(uint32_t));
        verdict(want_n[i] == a.params.max_tokens, u.name, i, "another number of tokens");
    }
    tr_engine_rig_close(&r);
}

static uint64_t together(const struct run *u)
{
    static struct tr_engine_rig r;
    struct tr_rig_req q[N];
    uint32_t n = 0;
    open_rig(&r, u);
    for (;;) {
        if (n < N && (n < 5 || tr_rig_published(&r, &q[n - 1]) > 0 || rand() % 3 == 0)) {
            struct tr_rig_ask a = ask(n);
            q[n++] = tr_rig_submit(&r, &a);
        }
        bool busy = tr_rig_turn(&r);
        for (uint32_t i = 0; i < n; i++)
            if (!busy || rand() % 3 == 0)
                tr_rig_read_all(&r, &q[i]);
        if (!busy && n == N && tr_rig_bills(&r) == N)
            break;
    }
    for (uint32_t i = 0; i < N; i++)
        verdict(tr_rig_published(&r, &q[i]) == want_n[i] &&
                    memcmp(tr_rig_output(&r, &q[i]), want[i], want_n[i] * sizeof(uint32_t)) == 0,
                u->name, i, "other tokens than alone");
    verdict(tr_rig_stat(&r, TR_STAT_KV_USED) == 0, u->name, N, "KV blocks are still held");
    uint64_t preempted = tr_rig_stat(&r, TR_STAT_PREEMPTIONS);
    accepted += tr_rig_stat(&r, TR_STAT_ACCEPTED);
    cached += tr_rig_stat(&r, TR_STAT_PREFIX_HITS);
    tr_engine_rig_close(&r);
    return preempted;
}

int main(void)
{
    static const struct run runs[] = {
        {"whole prompts", 8, 0, 0, CTX, 2, false, false},
        {"chunks of 13", 8, 13, 0, CTX, 1, false, false},
        {"few blocks", 8, 32, 7, CTX, 2, false, false},
        {"slow readers, cache", 6, 20, 8, 40, 1, false, true},
        {"guesses", 8, 0, 0, CTX, 2, true, false},
        {"cache", 3, 0, 0, CTX, 2, false, true},
        {"guesses, cache, chunks, few blocks, slow readers, threads", 6, 20, 8, 9, 3, true, true}};
    uint64_t preempted = 0;
    each_alone();
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        srand((unsigned)i);
        preempted += together(&runs[i]);
    }
    verdict(accepted > 100, "guesses", 0,
            "hardly a token was guessed: this tests less than it says");
    verdict(cached >= 64, "cache", 0, "hardly a token was found: this tests less than it says");
    verdict(preempted > 0, "all", 0, "nobody was preempted: this tests less than it says");
    printf("%u passed, %u failed\n", passed, failed);
    return failed || !passed;
}
