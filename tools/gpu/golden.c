/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gpu/golden.c - a real model: a deterministic backend gives the tokens that the CPU gives, greedily, for
 * the recorded prompts of tests/golden/smollm2, all of them in one batch.  How many are also those that another
 * implementation has recorded is told, not demanded: it does not quantise what meets the weights. */
#include "base/cpus.h"
#include "base/json.h"
#include "engine/backend.h"
#include "engine/pick.h"
#include "gpu/report.h"
#include "gpu/stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPTS = 8, TOKENS = 24, PROMPT_MAX = 96, CTX = 128, LINE = 1 << 16 };

struct prompt {
    uint32_t ids[PROMPT_MAX], len;
    uint32_t recorded[TOKENS], n_recorded;
};

static struct prompt prompts[PROMPTS];
static uint32_t n_prompts, n_tokens;

/* ---- what was recorded ---- */

static uint32_t read_ids(const struct tr_json *list, uint32_t *out, uint32_t most)
{
    uint32_t n = 0;
    int64_t id;
    for (struct tr_json_it it = tr_json_iter(list); n < most && tr_json_step(&it);)
        if (tr_json_i64(it.val, &id) == 0)
            out[n++] = (uint32_t)id;
    return n;
}

static int read_prompts(const char *path, bool dry)
{
    static char line[LINE];
    FILE *f = fopen(path, "re");
    while (f && n_prompts < (dry ? 3 : PROMPTS) && fgets(line, sizeof(line), f)) {
        struct tr_json_fault fault;
        struct tr_json_doc *d = tr_json_parse(line, strlen(line), &fault);
        const struct tr_json *root = d ? tr_json_root(d) : NULL;
        struct prompt *p = &prompts[n_prompts];
        p->len = read_ids(TR_JSON_GET(root, "ids"), p->ids, dry ? 10 : PROMPT_MAX);
        p->n_recorded = read_ids(TR_JSON_GET(root, "greedy_ids"), p->recorded, n_tokens);
        n_prompts += p->len > 0 && p->len < PROMPT_MAX;
        tr_json_free(d);
    }
    if (f)
        fclose(f);
    return n_prompts ? 0 : -1;
}

/* ---- what a backend says ---- */

struct run {
    const struct tr_backend_ops *ops;
    struct tr_backend *b;
    struct tr_backend_info info;
    float *logits;
    struct tr_batch_row rows[PROMPTS * PROMPT_MAX];
    uint32_t blocks[PROMPTS][CTX / TR_KV_BLOCK];
    uint32_t ids[PROMPTS][CTX];
};

static uint32_t largest(const float *v, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        best = v[i] > v[best] ? i : best;
    return best;
}

/* One pass over the rows; the tokens that follow go to `next` [n_prompts]. */
static void pass(struct run *m, uint32_t n_rows, uint32_t step, uint32_t *next)
{
    static const struct tr_params greedy = {.top_p = 1, .repetition_penalty = 1, .weight = 1};
    struct tr_kv_table tables[PROMPTS];
    struct tr_pick picks[PROMPTS];
    struct tr_picked picked[PROMPTS];
    for (uint32_t i = 0; i < n_prompts; i++) {
        tables[i] = (struct tr_kv_table){m->blocks[i], CTX / TR_KV_BLOCK};
        picks[i] = (struct tr_pick){
            .out = i,
            .in = {
                .params = &greedy, .ids = m->ids[i], .prompt_len = prompts[i].len, .n_out = step}};
    }
    struct tr_batch batch = {
        .rows = m->rows, .n_rows = n_rows, .seqs = tables, .n_seqs = n_prompts, .n_out = n_prompts};
    m->ops->forward(m->b, &batch, m->logits, NULL, NULL);
    if (m->ops->pick) {
        m->ops->pick(m->b, picks, n_prompts);
        m->ops->collect(m->b, picked, n_prompts, NULL, NULL);
    }
    for (uint32_t i = 0; i < n_prompts; i++)
        next[i] = m->ops->pick ? picked[i].id
                               : largest(m->logits + (size_t)i * m->info.n_vocab, m->info.n_vocab);
}

static uint32_t prompt_rows(struct run *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_prompts; i++)
        for (uint32_t k = 0; k < prompts[i].len; k++) {
            m->ids[i][k] = prompts[i].ids[k] % m->info.n_vocab;
            m->rows[n++] = (struct tr_batch_row){.token = m->ids[i][k],
                                                 .pos = k,
                                                 .seq = i,
                                                 .out = k + 1 == prompts[i].len ? i : TR_NO_LOGITS};
        }
    return n;
}

static void decode(struct run *m, uint32_t out[PROMPTS][TOKENS])
{
    uint32_t next[PROMPTS], n_rows = prompt_rows(m);
    for (uint32_t step = 0; step < n_tokens; step++) {
        pass(m, n_rows, step, next);
        n_rows = n_prompts;
        for (uint32_t i = 0; i < n_prompts; i++) {
            uint32_t pos = prompts[i].len + step;
            m->ids[i][pos] = out[i][step] = next[i];
            m->rows[i] = (struct tr_batch_row){.token = next[i], .pos = pos, .seq = i, .out = i};
        }
    }
}

static int run(const char *backend, const char *model, uint32_t out[PROMPTS][TOKENS])
{
    static struct run m;
    struct tr_errbuf err = {""};
    m = (struct run){.ops = tr_gpu_backend(backend)};
    struct tr_backend_config c = {.model_path = model,
                                  .n_threads = tr_cpus_usable(),
                                  .n_ctx = CTX,
                                  .max_seqs = PROMPTS,
                                  .max_rows = PROMPTS * PROMPT_MAX,
                                  .max_out = PROMPTS,
                                  .deterministic = true};
    m.b = m.ops->open(&c, &m.info, &err);
    if (!m.b) {
        tr_report_say("%s", err.msg);
        return -1;
    }
    for (uint32_t i = 0; i < PROMPTS; i++)
        for (uint32_t k = 0; k < CTX / TR_KV_BLOCK; k++)
            m.blocks[i][k] = i + k * PROMPTS;
    if (!m.ops->pick)
        m.logits = calloc((size_t)PROMPTS * m.info.n_vocab, sizeof(*m.logits));
    bool ok = m.ops->pick || m.logits;
    if (ok)
        decode(&m, out);
    free(m.logits);
    m.ops->close(m.b);
    return ok ? 0 : -1;
}

int tr_gpu_golden(const struct tr_gpu_args *a)
{
    static const char *const columns[] = {"prompt", "tokens", "as on the CPU", "as recorded"};
    static uint32_t want[PROMPTS][TOKENS], got[PROMPTS][TOKENS];
    uint32_t bad = 0;
    n_tokens = a->dry ? 4 : TOKENS;
    if (read_prompts("tests/golden/smollm2/forward.jsonl", a->dry)) {
        tr_report_say("tests/golden/smollm2/forward.jsonl: no prompts");
        return 1;
    }
    if (run("cpu", a->model, want) || run(a->backend, a->model, got))
        return 1;
    tr_report_table("golden tokens", 4, columns);
    for (uint32_t i = 0; i < n_prompts; i++) {
        uint32_t same = 0, recorded = 0;
        for (uint32_t k = 0; k < n_tokens; k++) {
            same += got[i][k] == want[i][k];
            recorded += k < prompts[i].n_recorded && got[i][k] == prompts[i].recorded[k];
        }
        bad += same != n_tokens;
        tr_report_number(i, 0);
        tr_report_number(n_tokens, 0);
        tr_report_number(same, 0);
        tr_report_number(recorded, 0);
    }
    return bad != 0;
}
