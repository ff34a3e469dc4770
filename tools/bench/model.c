/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/model.h"

#include "base/clock.h"
#include "base/cpus.h"
#include "bench/limits.h"
#include "engine/backend.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQS_MAX = 256, DEPTH = 16 /* tokens before a sequence begins to decode */ };

struct args {
    struct tr_backend_config c;
    uint32_t prompt, chunk, tokens, repeat;
};

struct bench {
    const struct args *a;
    struct tr_backend *b;
    struct tr_backend_info info;
    struct tr_batch_row *rows;
    struct tr_kv_table *tables;
    uint32_t *blocks;
    float *logits;
    struct tr_limits limits;
};

/* Any token will do: the work does not depend on which. */
static uint32_t some_token(const struct bench *m, uint32_t seq, uint32_t pos)
{
    return (pos * 7919u + seq * 104729u + 11u) % m->info.n_vocab;
}

static void run(struct bench *m, uint32_t n_rows, uint32_t n_seqs, uint32_t n_out)
{
    struct tr_batch batch = {
        .rows = m->rows, .n_rows = n_rows, .seqs = m->tables, .n_seqs = n_seqs, .n_out = n_out};
    tr_backend_cpu.forward(m->b, &batch, m->logits, NULL, NULL);
}

/* Seconds for a prompt in sequence 0, in chunks, with logits of its last token. */
static double prefill(struct bench *m)
{
    uint64_t start = tr_now_ns();
    for (uint32_t done = 0; done < m->a->prompt;) {
        uint32_t n = m->a->prompt - done < m->a->chunk ? m->a->prompt - done : m->a->chunk;
        for (uint32_t i = 0; i < n; i++) {
            bool last = done + i + 1 == m->a->prompt;
            m->rows[i] = (struct tr_batch_row){.token = some_token(m, 0, done + i),
                                               .pos = done + i,
                                               .seq = 0,
                                               .out = last ? 0 : TR_NO_LOGITS};
        }
        done += n;
        run(m, n, 1, done == m->a->prompt);
    }
    return (double)(tr_now_ns() - start) * 1e-9;
}

/* Seconds for `tokens` steps of n sequences, each DEPTH tokens long already. */
static double decode(struct bench *m, uint32_t n)
{
    uint64_t start = 0;
    for (uint32_t pos = 0; pos < DEPTH + m->a->tokens; pos++) {
        if (pos == DEPTH)
            start = tr_now_ns();
        bool out = pos >= DEPTH;
        for (uint32_t s = 0; s < n; s++)
            m->rows[s] = (struct tr_batch_row){.token = some_token(m, s, pos),
                                               .pos = pos,
                                               .seq = s,
                                               .out = out ? s : TR_NO_LOGITS};
        run(m, n, n, out ? n : 0);
    }
    return (double)(tr_now_ns() - start) * 1e-9;
}

/* Of decode also how fast it read the weights, and what part that is of what the same threads can
 * read of as much memory over and over. */
static void report(const char *what, uint32_t seqs, uint32_t tokens, double s,
                   const struct bench *m)
{
    bool decodes = strcmp(what, "decode") == 0;
    double gb_s = decodes ? (double)m->info.weight_bytes * tokens / seqs / s * 1e-9 : 0;
    printf("%s,%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%.4f,%.1f,%.2f,%.0f\n", what, seqs, tokens,
           m->a->c.n_threads, s, tokens / s, gb_s, 100 * gb_s / m->limits.reread_gb_s);
    fflush(stdout);
}

/* The best of the repeats: what the machine can do when nothing else runs. */
static void measure(struct bench *m)
{
    static const uint32_t batches[] = {1, 2, 4, 8, 16, 32, 64};
    const struct args *a = m->a;
    double best = 0;
    printf("what,sequences,tokens,threads,seconds,tokens_per_s,weights_gb_per_s,read_percent\n");
    for (uint32_t i = 0; i < a->repeat && a->prompt; i++) {
        double s = prefill(m);
        best = i == 0 || s < best ? s : best;
    }
    if (a->prompt)
        report("prefill", 1, a->prompt, best, m);
    for (size_t k = 0; k < sizeof(batches) / sizeof(batches[0]); k++) {
        if (batches[k] > a->c.max_seqs || !a->tokens)
            break;
        for (uint32_t i = 0; i < a->repeat; i++) {
            double s = decode(m, batches[k]);
            best = i == 0 || s < best ? s : best;
        }
        report("decode", batches[k], a->tokens * batches[k], best, m);
    }
}

/* Every sequence has its own blocks for the longest run. */
static int take_memory(struct bench *m)
{
    const struct args *a = m->a;
    uint32_t per_seq = m->info.n_ctx / TR_KV_BLOCK;
    m->rows = calloc(a->c.max_rows, sizeof(*m->rows));
    m->tables = calloc(a->c.max_seqs, sizeof(*m->tables));
    m->blocks = calloc(m->info.n_kv_blocks, sizeof(*m->blocks));
    m->logits = calloc((size_t)a->c.max_out * m->info.n_vocab, sizeof(*m->logits));
    if (!m->rows || !m->tables || !m->blocks || !m->logits)
        return -1;
    for (uint32_t i = 0; i < m->info.n_kv_blocks; i++)
        m->blocks[i] = i;
    for (uint32_t s = 0; s < a->c.max_seqs; s++)
        m->tables[s] = (struct tr_kv_table){m->blocks + (size_t)s * per_seq, per_seq};
    return 0;
}

static int choose(const char *const *names, const char *want, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], want) == 0)
            return i;
    return -1;
}

static int usage(FILE *f)
{
    fprintf(f,
            "usage: tokenring bench model --model FILE [--cpu-math int8|blas|f32]\n"
            "                             [--kv-type f16|q8_0|f32] [--threads N] [--prompt N]\n"
            "                             [--chunk N] [--tokens N] [--sequences N] [--repeat N]\n"
            "  --threads N    default: as many as serve would use\n"
            "  --prompt N     tokens to prefill; default 512, 0: no prefill\n"
            "  --chunk N      of them in a step; default 512\n"
            "  --tokens N     to decode of each sequence; default 64, 0: no decode\n"
            "  --sequences N  1, 2, 4 ... at most so many together; default 32\n"
            "  --repeat N     the best of so many; default 2\n");
    return f == stdout ? 0 : 2;
}

/* A count in 0..max, or UINT32_MAX. */
static uint32_t count(const char *s, uint32_t max)
{
    char *end;
    unsigned long v = strtoul(s, &end, 10);
    return *s < '0' || *s > '9' || *end || v > max ? UINT32_MAX : (uint32_t)v;
}

/* 0; 1 when --help was asked for; -1 for a fault. */
static int parse(int argc, char **argv, struct args *a)
{
    static const char *const maths[] = {"int8", "blas", "f32"};
    static const char *const kvs[] = {"f16", "q8_0", "f32"};
    static const struct option options[] = {
        {"model", 1, NULL, 'm'},   {"cpu-math", 1, NULL, 'c'},  {"kv-type", 1, NULL, 'k'},
        {"threads", 1, NULL, 't'}, {"prompt", 1, NULL, 'p'},    {"chunk", 1, NULL, 'u'},
        {"tokens", 1, NULL, 'n'},  {"sequences", 1, NULL, 's'}, {"repeat", 1, NULL, 'r'},
        {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0}};
    int math = TR_MATH_INT8, kv = TR_KV_F16, o;
    *a = (struct args){.c = {.n_threads = tr_cpus_usable(), .max_seqs = 32},
                       .prompt = 512,
                       .chunk = 512,
                       .tokens = 64,
                       .repeat = 2};
    optind = 1;
    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (o == 'm')
            a->c.model_path = optarg;
        else if (o == 'c')
            math = choose(maths, optarg, 3);
        else if (o == 'k')
            kv = choose(kvs, optarg, 3);
        else if (o == 't')
            a->c.n_threads = count(optarg, 1024);
        else if (o == 'p')
            a->prompt = count(optarg, 1 << 20);
        else if (o == 'u')
            a->chunk = count(optarg, 1 << 14);
        else if (o == 'n')
            a->tokens = count(optarg, 1 << 16);
        else if (o == 's')
            a->c.max_seqs = count(optarg, SEQS_MAX);
        else if (o == 'r')
            a->repeat = count(optarg, 1000);
        else
            return o == 'h' ? 1 : -1;
    }
    if (optind != argc || math < 0 || kv < 0 || !a->c.model_path || !a->c.n_threads || !a->chunk ||
        !a->c.max_seqs || !a->repeat || a->c.n_threads == UINT32_MAX || a->prompt == UINT32_MAX ||
        a->chunk == UINT32_MAX || a->tokens == UINT32_MAX || a->c.max_seqs == UINT32_MAX ||
        a->repeat == UINT32_MAX)
        return -1;
    a->c.math = (enum tr_math)math;
    a->c.kv_type = (enum tr_kv_type)kv;
    a->c.n_ctx = a->prompt > DEPTH + a->tokens ? a->prompt : DEPTH + a->tokens;
    a->c.n_ctx = (a->c.n_ctx + TR_KV_BLOCK - 1) / TR_KV_BLOCK * TR_KV_BLOCK;
    a->c.max_rows = a->chunk > a->c.max_seqs ? a->chunk : a->c.max_seqs;
    a->c.max_out = a->c.max_seqs;
    return 0;
}

int tr_bench_model_main(int argc, char **argv)
{
    struct args a;
    struct tr_errbuf err = {""};
    int asked = parse(argc, argv, &a);
    if (asked)
        return usage(asked > 0 ? stdout : stderr);
    struct bench m = {.a = &a};
    m.b = tr_backend_cpu.open(&a.c, &m.info, &err);
    if (!m.b) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    fprintf(stderr, "%s\n", m.info.description);
    int ret = 1;
    if (tr_limits_measure(a.c.n_threads, m.info.weight_bytes, 500, TR_LIMITS_READ, &m.limits,
                          &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        tr_backend_cpu.close(m.b);
        return 1;
    }
    fprintf(stderr,
            "these threads read %.1f GB/s of so many bytes again and again, meet in %.0f ns\n",
            m.limits.reread_gb_s, m.limits.region_ns);
    if ((uint64_t)a.c.max_seqs * (m.info.n_ctx / TR_KV_BLOCK) > m.info.n_kv_blocks) {
        fprintf(stderr, "not enough memory for the KV of %" PRIu32 " sequences\n", a.c.max_seqs);
    } else if (take_memory(&m) < 0) {
        fprintf(stderr, "no memory\n");
    } else {
        measure(&m);
        ret = 0;
    }
    free(m.rows);
    free(m.tables);
    free(m.blocks);
    free(m.logits);
    tr_backend_cpu.close(m.b);
    return ret;
}
