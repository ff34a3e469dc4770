/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gpu/model.c - a model through its backend, without scheduler and shared memory: how fast prompts and
 * answers are computed, and where a step's time goes.
 *
 * What is fed does not matter, so tokens are a function of their place; a step is forward, pick, collect, as
 * the scheduler makes it, greedy.  "forward" and "pick" are what these calls cost the host (plan, upload,
 * launch); "collect" is the wait for the device. */
#include "base/clock.h"
#include "base/cpus.h"
#include "engine/backend.h"
#include "engine/pick.h"
#include "gpu/report.h"
#include "gpu/stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { DEPTH = 128, STEPS_MAX = 64 };

struct run {
    const struct tr_gpu_args *args;
    const struct tr_backend_ops *ops;
    struct tr_backend *b;
    struct tr_backend_config config;
    struct tr_backend_info info;
    struct tr_gpu_file file;
    double read_gb_s;
    uint32_t depth; /* tokens before an answer begins */
    struct tr_batch_row *rows;
    struct tr_kv_table *tables;
    uint32_t *blocks;
    uint32_t *ids; /* of any sequence: [n_ctx] */
    float *logits; /* if the backend does not pick */
    struct tr_pick *picks;
    struct tr_picked *picked;
    struct tr_params params;
};

/* What a step's calls took, seconds. */
struct split {
    double forward[STEPS_MAX], pick[STEPS_MAX], collect[STEPS_MAX], all[STEPS_MAX];
    uint32_t n;
};

static uint32_t some_token(const struct run *m, uint32_t seq, uint32_t pos)
{
    return (pos * 7919u + seq * 104729u + 11u) % m->info.n_vocab;
}

static double since(uint64_t *t)
{
    uint64_t now = tr_now_ns(), was = *t;
    *t = now;
    return (double)(now - was) * 1e-9;
}

static void step(struct run *m, uint32_t n_rows, uint32_t n_seqs, uint32_t n_out, struct split *s)
{
    struct tr_batch batch = {
        .rows = m->rows, .n_rows = n_rows, .seqs = m->tables, .n_seqs = n_seqs, .n_out = n_out};
    uint64_t t = tr_now_ns();
    double forward, pick = 0, collect = 0;
    m->ops->forward(m->b, &batch, m->logits, NULL, NULL);
    forward = since(&t);
    if (m->ops->pick && n_out) {
        m->ops->pick(m->b, m->picks, n_out);
        pick = since(&t);
    }
    if (m->ops->collect) {
        m->ops->collect(m->b, m->picked, n_out, NULL, NULL);
        collect = since(&t);
    }
    if (!s || s->n == STEPS_MAX)
        return;
    s->forward[s->n] = forward;
    s->pick[s->n] = pick;
    s->collect[s->n] = collect;
    s->all[s->n++] = forward + pick + collect;
}

/* Rows [from, to) of one sequence's prompt, with logits of the last if asked for. */
static void prompt_rows(struct run *m, uint32_t seq, uint32_t from, uint32_t to, bool out)
{
    for (uint32_t i = 0; i < to - from; i++)
        m->rows[i] = (struct tr_batch_row){.token = some_token(m, seq, from + i),
                                           .pos = from + i,
                                           .seq = seq,
                                           .out = out && from + i + 1 == to ? 0 : TR_NO_LOGITS};
}

static void set_pick(struct run *m, uint32_t i, uint32_t pos)
{
    m->picks[i] = (struct tr_pick){
        .out = i, .in = {.params = &m->params, .ids = m->ids, .prompt_len = pos + 1, .n_out = 0}};
}

/* ---- prompts ---- */

static void prefill(struct run *m, uint32_t n, uint32_t chunk)
{
    for (uint32_t done = 0; done < n;) {
        uint32_t to = done + chunk < n ? done + chunk : n;
        prompt_rows(m, 0, done, to, to == n);
        set_pick(m, 0, n - 1);
        step(m, to - done, 1, to == n, NULL);
        done = to;
    }
}

static void measure_prefill(struct run *m, const char *mode, uint32_t n, uint32_t chunk)
{
    double best = 1e9;
    if (chunk > m->config.max_rows || n > m->info.n_ctx || !tr_report_has_time(1))
        return;
    prefill(m, n, chunk);
    for (int i = 0; i < 2; i++) {
        uint64_t t = tr_now_ns();
        prefill(m, n, chunk);
        double s = since(&t);
        best = s < best ? s : best;
    }
    tr_report_text(mode);
    tr_report_number(n, 0);
    tr_report_number(chunk, 0);
    tr_report_number(best * 1e3, 2);
    tr_report_number(n / best, 0);
    /* The output matrix meets one row only and is left out; attention is not counted. */
    tr_report_number(2 * m->file.products * n / best * 1e-12, 1);
}

/* ---- answers ---- */

static void begin(struct run *m, uint32_t n)
{
    for (uint32_t s = 0; s < n; s++) {
        prompt_rows(m, s, 0, m->depth, false);
        step(m, m->depth, n, 0, NULL);
    }
}

static void measure_decode(struct run *m, const char *mode, uint32_t n, uint32_t steps)
{
    static struct split s;
    if (n > m->config.max_seqs || !tr_report_has_time(2))
        return;
    begin(m, n);
    s.n = 0;
    for (uint32_t k = 0; k < steps + 4; k++) {
        for (uint32_t i = 0; i < n; i++) {
            m->rows[i] = (struct tr_batch_row){
                .token = some_token(m, i, m->depth + k), .pos = m->depth + k, .seq = i, .out = i};
            set_pick(m, i, m->depth + k);
        }
        step(m, n, n, n, k < 4 ? NULL : &s);
    }
    double us = tr_gpu_quantile(s.all, s.n, 0.5) * 1e6;
    double gb_s = (double)m->info.weight_bytes / us * 1e-3;
    tr_report_text(mode);
    tr_report_number(n, 0);
    tr_report_number(us, 0);
    tr_report_number(n / us * 1e6, 0);
    tr_report_number(gb_s, 1);
    m->read_gb_s > 0 ? tr_report_number(100 * gb_s / m->read_gb_s, 0) : tr_report_nothing();
    tr_report_number(tr_gpu_quantile(s.forward, s.n, 0.5) * 1e6, 1);
    tr_report_number(tr_gpu_quantile(s.pick, s.n, 0.5) * 1e6, 1);
    tr_report_number(tr_gpu_quantile(s.collect, s.n, 0.5) * 1e6, 1);
}

/* ---- set-up ---- */

static int take_memory(struct run *m)
{
    const struct tr_backend_config *c = &m->config;
    uint32_t per_seq = (DEPTH + STEPS_MAX + 4 + TR_KV_BLOCK - 1) / TR_KV_BLOCK;
    uint32_t longest = m->info.n_ctx / TR_KV_BLOCK;
    m->rows = calloc(c->max_rows, sizeof(*m->rows));
    m->tables = calloc(c->max_seqs, sizeof(*m->tables));
    m->blocks = calloc(m->info.n_kv_blocks, sizeof(*m->blocks));
    m->ids = calloc(m->info.n_ctx, sizeof(*m->ids));
    m->picks = calloc(c->max_out, sizeof(*m->picks));
    m->picked = calloc(c->max_out, sizeof(*m->picked));
    if (!m->ops->pick)
        m->logits = calloc((size_t)c->max_out * m->info.n_vocab, sizeof(*m->logits));
    if (!m->rows || !m->tables || !m->blocks || !m->ids || !m->picks || !m->picked ||
        (!m->ops->pick && !m->logits))
        return -1;
    for (uint32_t i = 0; i < m->info.n_kv_blocks; i++)
        m->blocks[i] = i;
    /* The first sequence has a whole context, the others what an answer needs. */
    m->tables[0] = (struct tr_kv_table){m->blocks, longest};
    for (uint32_t s = 1; s < c->max_seqs; s++)
        m->tables[s] = (struct tr_kv_table){m->blocks + longest + (s - 1) * per_seq, per_seq};
    return longest + (c->max_seqs - 1) * per_seq <= m->info.n_kv_blocks ? 0 : -1;
}

static void give_memory(struct run *m)
{
    free(m->rows);
    free(m->tables);
    free(m->blocks);
    free(m->ids);
    free(m->picks);
    free(m->picked);
    free(m->logits);
}

static void measure(struct run *m, const char *mode)
{
    static const char *const decode[] = {"arithmetic", "sequences",    "us/step",
                                         "tokens/s",   "weights GB/s", "% of read",
                                         "forward us", "pick us",      "collect us"};
    static const char *const prompt[] = {"arithmetic", "tokens",   "rows a step",
                                         "ms",         "tokens/s", "TFLOP/s"};
    static const uint32_t batches[] = {1, 8, 64, 256}, dry_batches[] = {1, 4, 8, 20};
    bool dry = m->args->dry;
    tr_report_table("answers", 9, decode);
    for (uint32_t i = 0; i < 4; i++)
        measure_decode(m, mode, (dry ? dry_batches : batches)[i], dry ? 2 : STEPS_MAX);
    tr_report_table("prompts", 6, prompt);
    for (uint32_t chunk = dry ? 32 : 512; chunk <= (dry ? 32 : 4096); chunk *= 2)
        measure_prefill(m, mode, dry ? 64 : 4096, chunk);
}

/* One life of the backend. */
static int measure_mode(struct run *m, bool exact)
{
    struct tr_errbuf err = {""};
    uint64_t t = tr_now_ns();
    int keep = m->config.weights_fd;
    m->config.deterministic = exact;
    if (keep)
        m->config.weights_fd = dup(keep); /* closed when the weights are there */
    m->b = m->ops->open(&m->config, &m->info, &err);
    m->config.weights_fd = keep;
    if (!m->b) {
        tr_report_say("%s", err.msg);
        return 1;
    }
    tr_report_say("%s; open after %.1f s", m->info.description, since(&t));
    int ret = take_memory(m);
    if (ret)
        tr_report_say("there is not enough memory for the sequences");
    else
        measure(m, m->info.deterministic ? "exact" : "fast");
    give_memory(m);
    m->ops->close(m->b);
    return ret ? 1 : 0;
}

int tr_gpu_model(const struct tr_gpu_args *a)
{
    struct run m = {.args = a,
                    .ops = tr_gpu_backend(a->backend),
                    .read_gb_s = tr_gpu_read_gb_s(a->dry),
                    .depth = a->dry ? 8 : DEPTH,
                    .params = {.top_p = 1, .repetition_penalty = 1, .weight = 1}};
    if (tr_gpu_file(a->model, &m.file))
        return 1;
    m.config = (struct tr_backend_config){.model_path = a->model,
                                          .weights_fd = tr_gpu_weights_fd(),
                                          .n_threads = tr_cpus_usable(),
                                          .n_ctx = a->dry ? 256 : 4096,
                                          .max_seqs = a->dry ? 8 : 256,
                                          .max_rows = a->dry ? 128 : 4096};
    m.config.max_out = m.config.max_seqs;
    int ret = measure_mode(&m, a->deterministic);
    if (!ret && !m.info.deterministic && tr_report_has_time(5))
        ret = measure_mode(&m, true);
    if (m.config.weights_fd)
        close(m.config.weights_fd);
    return ret;
}
