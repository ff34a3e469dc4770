/* SPDX-License-Identifier: Apache-2.0 */
/* The engine on a GPU, without one (tests/lib/cuda_on_cpu.h), decodes the real model: what it says of the
 * recorded prompts (tests/golden/smollm2) is what the cpu backend says, token for token, and the recorded
 * tokens wherever their choice was clear.
 *     golden_cuda exact|fast [TOKENS]
 * Fast (without --deterministic) owes the recorded tokens alone.  Takes minutes: tier 2. */
#include "base/gguf.h"
#include "check.h"
#include "enginerig/engine_rig.h"

#include <jansson.h>

#include <stdlib.h>
#include <string.h>

enum { N = 3, MAX_OUT = 48, MAX_PROMPT = 96, CTX = 192, VOCAB = 49152 };

/* Another choice than a recorded one whose margin was smaller shows nothing (forward.c, loose). */
static const double MARGIN = 1.0;

struct prompt {
    char name[32];
    uint32_t ids[MAX_PROMPT], n;
    uint32_t greedy[MAX_OUT];
    double margin[MAX_OUT];
    uint32_t cpu[MAX_OUT], cuda[MAX_OUT];
};
static struct prompt prompts[N];
static uint32_t n_tokens = 12;

static const char *model_path(void)
{
    const char *p = getenv("TOKENRING_TEST_MODEL");
    return p && *p ? p : ".cache/smollm2.gguf";
}

/* The shortest prompts: what is emulated takes its time. */
static void read_prompts(void)
{
    static const char *const names[N] = {"short", "digits", "chat"};
    FILE *f = fopen("tests/golden/smollm2/forward.jsonl", "r");
    char *line = NULL;
    size_t cap = 0;
    uint32_t n = 0;
    while (f && getline(&line, &cap, f) > 0) {
        json_t *row = json_loads(line, 0, NULL);
        const char *name = json_string_value(json_object_get(row, "name"));
        const json_t *ids = json_object_get(row, "ids");
        for (unsigned k = 0; k < N; k++) {
            if (strcmp(name, names[k]) != 0 || json_array_size(ids) > MAX_PROMPT)
                continue;
            struct prompt *p = &prompts[n++];
            snprintf(p->name, sizeof(p->name), "%s", name);
            p->n = (uint32_t)json_array_size(ids);
            for (uint32_t i = 0; i < p->n; i++)
                p->ids[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
            for (uint32_t i = 0; i < MAX_OUT; i++) {
                p->greedy[i] = (uint32_t)json_integer_value(
                    json_array_get(json_object_get(row, "greedy_ids"), i));
                p->margin[i] =
                    json_number_value(json_array_get(json_object_get(row, "greedy_margins"), i));
            }
        }
        json_decref(row);
    }
    free(line);
    if (!f || n != N) {
        fprintf(stderr, "cannot read the recorded prompts\n");
        exit(2);
    }
    fclose(f);
}

/* All prompts together, through the scheduler, prompts cut as they come. */
static void say(const struct tr_backend_ops *ops, bool exact)
{
    static struct tr_engine_rig r;
    struct tr_engine_rig_config c = {.ops = ops, .kv_blocks = N * CTX / TR_KV_BLOCK};
    c.shm = (struct tr_shm_config){
        .n_ctx = CTX, .n_vocab = VOCAB, .n_slots = 8, .n_admit = 8, .max_seqs = N, .window = CTX};
    c.sched = (struct tr_sched_config){.prefill_chunk = 32, .eog = {2}, .n_eog = 1};
    c.backend.model_path = model_path();
    c.backend.kv_type = TR_KV_F16;
    c.backend.n_threads = 2;
    c.backend.deterministic = exact;
    tr_engine_rig_open(&r, &c);
    printf("%s\n", r.info.description);
    struct tr_rig_req q[N];
    for (uint32_t i = 0; i < N; i++) {
        struct tr_rig_ask a = tr_rig_ask();
        a.prompt = prompts[i].ids;
        a.prompt_len = prompts[i].n;
        a.params.max_tokens = n_tokens;
        a.params.min_tokens = n_tokens;
        q[i] = tr_rig_submit(&r, &a);
    }
    tr_rig_run(&r, q, N);
    for (uint32_t i = 0; i < N; i++) {
        struct prompt *p = &prompts[i];
        check(tr_rig_published(&r, &q[i]) == n_tokens, "%s: %u tokens", p->name,
              tr_rig_published(&r, &q[i]));
        memcpy(ops == &tr_backend_cpu ? p->cpu : p->cuda, tr_rig_output(&r, &q[i]),
               n_tokens * sizeof(uint32_t));
    }
    tr_engine_rig_close(&r);
}

/* Up to where it was no clear choice. */
static void compare(const struct prompt *p, bool exact)
{
    for (uint32_t i = 0; i < n_tokens; i++) {
        if (exact)
            check(p->cuda[i] == p->cpu[i], "%s: token %u is %u, the CPU's %u", p->name, i,
                  p->cuda[i], p->cpu[i]);
    }
    uint32_t i = 0;
    while (i < n_tokens && p->cuda[i] == p->greedy[i])
        i++;
    check(i == n_tokens || p->margin[i] < MARGIN, "%s: token %u is %u, recorded %u by %.2f",
          p->name, i, p->cuda[i], p->greedy[i], p->margin[i]);
    printf("%s: %u of %u tokens as recorded\n", p->name, i, n_tokens);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    bool exact = strcmp(mode, "exact") == 0;
    if (argc > 2)
        n_tokens = (uint32_t)atoi(argv[2]);
    if ((!exact && strcmp(mode, "fast") != 0) || n_tokens < 1 || n_tokens > MAX_OUT) {
        fprintf(stderr, "usage: %s exact|fast [TOKENS, up to %d]\n", argv[0], MAX_OUT);
        return 2;
    }
    read_prompts();
    if (exact)
        say(&tr_backend_cpu, true);
    say(&tr_backend_cuda, exact);
    for (uint32_t i = 0; i < N; i++)
        compare(&prompts[i], exact);
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
