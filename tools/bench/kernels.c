/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/kernels.c - how fast the CPU's kernels run here. */
#include "bench/kernels.h"

#include "base/clock.h"
#include "bench/limits.h"
#include "bench/number.h"
#include "cpu_kernels/ops.h"
#include "cpu_kernels/quant.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPS (&tr_ops_cpu)

enum {
    ROWS_MAX = 256,
    DIM_MAX = 1536,
    HEADS_MAX = 32 * 128, /* floats of a row of queries */
    CONTEXT_MAX = 2048,
    SEQS = 32,
    TURNS = 40
};

struct args {
    uint32_t threads;
    int level; /* -1: all */
    uint32_t turn_ms;
    uint32_t pool_mib; /* weights to cycle through */
    uint32_t max_rows; /* of a call */
};

struct bench {
    const struct args *args;
    struct tr_dev *dev;
    enum tr_cpu_level level;
    uint32_t n_threads;
    float *x;
    float *y;
    float *out;
    struct tr_limits limits;
};

/* One call of what is measured; `i` counts calls. */
typedef void call_fn(struct bench *b, void *arg, uint32_t i);

/* Microseconds of a call: the best mean of TURNS turns, short enough to fit between what others
 * do on the machine. */
static double measure(struct bench *b, call_fn *call, void *arg)
{
    double best = 1e30;
    uint32_t i = 0;
    call(b, arg, i++);
    for (int turn = 0; turn < TURNS; turn++) {
        uint64_t begin = tr_now_ns();
        uint64_t end = begin + (uint64_t)b->args->turn_ms * 1000000U / TURNS;
        uint64_t now;
        uint32_t n = 0;
        do {
            call(b, arg, i++);
            n++;
            now = tr_now_ns();
        } while (now < end);
        double us = (double)(now - begin) / 1000.0 / n;
        best = us < best ? us : best;
    }
    return best;
}

/* `peak`: what the machine can do at most of the multiply-adds that this operation uses. */
static void report(const struct bench *b, const char *op, const char *shape, uint32_t rows,
                   double us, double bytes, double macs, double peak)
{
    double gb_s = bytes / us / 1000.0, gmac_s = macs / us / 1000.0;
    printf("%s,%s,%u,%s,%u,%.2f,%.2f,%.0f,%.2f,%.0f\n", op, shape, rows,
           tr_cpu_level_name(b->level), b->n_threads, us, gb_s, 100 * gb_s / b->limits.reread_gb_s,
           gmac_s, peak > 0 ? 100 * gmac_s / peak : 0.0);
    fflush(stdout);
}

/* Memory that holds something: never a zero page, never subnormals. */
static void *filled(size_t bytes)
{
    uint8_t *p = aligned_alloc(TR_OPS_ALIGN, (bytes + 63) / 64 * 64);
    if (!p) {
        fprintf(stderr, "bench kernels: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    /* As halves and as floats these bytes are around 1. */
    for (size_t i = 0; i < bytes; i++)
        p[i] = i % 4 == 3 || i % 4 == 1 ? 0x3C : (uint8_t)(i * 37);
    return p;
}

struct products {
    struct tr_mat *mats;
    uint32_t n_mats;
    struct tr_act act;
};

static void call_product(struct bench *b, void *arg, uint32_t i)
{
    struct products *p = arg;
    OPS->matmul(b->dev, &p->mats[i % p->n_mats], &p->act, b->out);
}

/* All row counts of one shape. */
static void bench_product(struct bench *b, enum tr_tensor_type type, uint32_t n_in, uint32_t n_out)
{
    static const uint32_t rows[] = {1, 2, 8, 32, ROWS_MAX};
    struct products p = {0};
    size_t bytes = OPS->mat_bytes(b->dev, type, n_in, n_out);
    void *data = filled(tr_quant_row_bytes(type, n_in) * n_out);
    void *act_mem = filled(OPS->act_bytes(b->dev, ROWS_MAX, n_in));
    char name[24];
    char op[40];
    char shape[32];

    p.n_mats = (uint32_t)(((size_t)b->args->pool_mib << 20) / bytes) + 1;
    p.mats = calloc(p.n_mats, sizeof *p.mats);
    uint8_t *mem = filled(bytes * p.n_mats);
    if (!p.mats)
        exit(1);
    OPS->mat_prepare(b->dev, &p.mats[0], type, n_in, n_out, data, mem);
    for (uint32_t i = 1; i < p.n_mats; i++) {
        memcpy(mem + i * bytes, mem, bytes);
        OPS->mat_adopt(b->dev, &p.mats[i], type, n_in, n_out, mem + i * bytes);
    }
    OPS->act_init(b->dev, &p.act, ROWS_MAX, n_in, act_mem);
    snprintf(op, sizeof op, "product_%s", tr_tensor_type_name(type, name));
    snprintf(shape, sizeof shape, "%ux%u", n_out, n_in);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0] && rows[r] <= b->args->max_rows; r++) {
        OPS->act_set(b->dev, &p.act, b->x, rows[r]);
        double us = measure(b, call_product, &p);
        report(b, op, shape, rows[r], us, (double)bytes, (double)n_in * n_out * rows[r],
               tr_quant_blocked(type) ? b->limits.int8_gmac_s : b->limits.fma_gmac_s);
    }
    free(mem);
    free(p.mats);
    free(data);
    free(act_mem);
}

/* Heads on KV heads of so many elements, at a context. */
struct heads {
    const char *op;
    enum tr_ops_kv type;
    uint32_t n_head, n_head_kv, head_dim, context;
};

struct attention {
    struct tr_kv kv;
    uint32_t blocks[CONTEXT_MAX / TR_OPS_KV_BLOCK];
    struct tr_place places[ROWS_MAX];
    uint32_t n_rows;
    uint32_t n_head;
};

static void call_attention(struct bench *b, void *arg, uint32_t i)
{
    struct attention *a = arg;
    const struct tr_attend_params p = {.scale = 0.125F};
    OPS->attention(b->dev, &a->kv, i % a->kv.n_layer, a->places, a->n_rows, b->x, a->n_head, &p,
                   b->out);
}

/* Times `a` and counts what its rows read (rows of one sequence read the same) and add. */
static void report_attention(struct bench *b, struct attention *a, const struct heads *h,
                             const char *what, bool one_sequence)
{
    double positions = 0;
    size_t blocks = 0;
    char shape[64];
    for (uint32_t i = 0; i < a->n_rows; i++) {
        positions += a->places[i].pos + 1;
        blocks += a->places[i].pos / TR_OPS_KV_BLOCK + 1;
    }
    blocks = one_sequence ? a->kv.n_blocks : blocks;
    snprintf(shape, sizeof shape, "%u/%ux%u %s %u", h->n_head, h->n_head_kv, h->head_dim, what,
             h->context);
    double us = measure(b, call_attention, a);
    report(b, h->op, shape, a->n_rows, us, (double)(blocks * a->kv.block_bytes),
           positions * h->n_head * h->head_dim * 2, b->limits.fma_gmac_s);
}

/* Rows at the end of one context; then 32 sequences, one of them that long, the others up to 300.
 * Layer after layer is read, as in a model: as many as fill the pool. */
static void bench_attention(struct bench *b, const struct heads *h)
{
    static const uint32_t rows[] = {1, 32, ROWS_MAX};
    struct attention a = {.n_head = h->n_head};
    a.kv = (struct tr_kv){.type = h->type,
                          .n_blocks = h->context / TR_OPS_KV_BLOCK,
                          .n_head_kv = h->n_head_kv,
                          .head_dim = h->head_dim,
                          .block_bytes = tr_kv_block_bytes(h->type, h->n_head_kv, h->head_dim)};
    size_t layer = a.kv.n_blocks * a.kv.block_bytes;
    a.kv.n_layer = (uint32_t)(((size_t)b->args->pool_mib << 20) / layer) + 1;
    a.kv.mem = filled(a.kv.n_layer * layer);
    /* Blocks of a sequence lie anywhere: 29 has no divisor in common with their number. */
    for (uint32_t i = 0; i < a.kv.n_blocks; i++)
        a.blocks[i] = i * 29 % a.kv.n_blocks;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0] && rows[r] <= b->args->max_rows; r++) {
        a.n_rows = rows[r];
        for (uint32_t i = 0; i < a.n_rows; i++)
            a.places[i] = (struct tr_place){a.blocks, h->context - a.n_rows + i};
        report_attention(b, &a, h, "context", true);
    }
    uint32_t tables[SEQS][CONTEXT_MAX / TR_OPS_KV_BLOCK];
    a.n_rows = SEQS;
    for (uint32_t i = 0; i < SEQS; i++) {
        for (uint32_t k = 0; k < a.kv.n_blocks; k++)
            tables[i][k] = (i * 8 + k) % a.kv.n_blocks;
        uint32_t pos = i == SEQS / 2 ? h->context - 1 : i * 37 % 300;
        a.places[i] = (struct tr_place){tables[i], pos < h->context ? pos : h->context - 1};
    }
    if (SEQS <= b->args->max_rows)
        report_attention(b, &a, h, "sequences up to", false);
    free(a.kv.mem);
}

static void call_norm(struct bench *b, void *arg, uint32_t i)
{
    (void)i;
    OPS->rms_norm(b->dev, b->x, b->y, 1e-5F, *(uint32_t *)arg, 576, b->out);
}

static void call_silu(struct bench *b, void *arg, uint32_t i)
{
    (void)i;
    OPS->silu_mul(b->dev, b->out, b->y, *(uint32_t *)arg, DIM_MAX);
}

static void call_quantise(struct bench *b, void *arg, uint32_t i)
{
    (void)i;
    OPS->act_set(b->dev, arg, b->x, ((struct tr_act *)arg)->max_rows);
}

static void bench_rows(struct bench *b)
{
    static const uint32_t rows[] = {1, 32};
    for (size_t r = 0; r < 2 && rows[r] <= b->args->max_rows; r++) {
        uint32_t n = rows[r];
        struct tr_act act;
        void *mem = filled(OPS->act_bytes(b->dev, n, DIM_MAX));
        OPS->act_init(b->dev, &act, n, DIM_MAX, mem);
        report(b, "rms_norm", "576", n, measure(b, call_norm, &n), 4.0 * 576 * n, 0, 0);
        report(b, "silu_mul", "1536", n, measure(b, call_silu, &n), 8.0 * DIM_MAX * n, 0, 0);
        report(b, "quantise", "1536", n, measure(b, call_quantise, &act), 4.0 * DIM_MAX * n, 0, 0);
        free(mem);
    }
}

/* The shapes of SmolLM2-135M, and its largest one, as near as super-blocks allow, in all types. */
static void bench_level(struct bench *b)
{
    static const uint32_t shapes[][2] = {{576, 192}, {576, 576}, {576, 1536}, {1536, 576}};
    static const enum tr_tensor_type others[] = {
        TR_T_Q8_0, TR_T_Q4_0, TR_T_Q4_1, TR_T_Q5_0, TR_T_Q5_1, TR_T_Q2_K, TR_T_Q3_K,
        TR_T_Q4_K, TR_T_Q5_K, TR_T_Q6_K, TR_T_F16,  TR_T_BF16, TR_T_F32};
    /* Of SmolLM2 and Gemma 3 270M, and what models of some thousand millions have. */
    static const struct heads heads[] = {
        {"attention_f16", TR_OPS_KV_F16, 9, 3, 64, 256},
        {"attention_f16", TR_OPS_KV_F16, 9, 3, 64, CONTEXT_MAX},
        {"attention_q8_0", TR_OPS_KV_Q8_0, 9, 3, 64, CONTEXT_MAX},
        {"attention_f32", TR_OPS_KV_F32, 9, 3, 64, CONTEXT_MAX},
        {"attention_f16", TR_OPS_KV_F16, 4, 1, 256, CONTEXT_MAX},
        {"attention_f16", TR_OPS_KV_F16, 32, 8, 128, CONTEXT_MAX},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        bench_product(b, TR_T_Q4_1, shapes[i][0], shapes[i][1]);
    bench_product(b, TR_T_Q8_0, 576, 49152);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        bench_product(b, others[i], 768, 1536);
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        bench_attention(b, &heads[i]);
    bench_rows(b);
}

static int usage(FILE *f)
{
    fputs("usage: tokenring bench kernels [--threads N] [--level generic|avx2|avx512|avx512-vnni]\n"
          "                               [--turn-ms N] [--pool-mib N] [--max-rows N]\n"
          "  --threads N   default 1\n"
          "  --level NAME  one level; default: all but generic that this machine has\n"
          "  --turn-ms N   time for each figure; default 100\n"
          "  --pool-mib N  weights to cycle through; default 128\n"
          "  --max-rows N  only calls of at most so many rows; default 256\n",
          f);
    return f == stdout ? 0 : 2;
}

/* 0, or -1 and the exit code. */
static int parse(int argc, char **argv, struct args *a, int *status)
{
    static const struct option options[] = {{"threads", required_argument, NULL, 't'},
                                            {"level", required_argument, NULL, 'l'},
                                            {"turn-ms", required_argument, NULL, 'm'},
                                            {"pool-mib", required_argument, NULL, 'p'},
                                            {"max-rows", required_argument, NULL, 'r'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int c;
    optind = 1;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 't') {
            a->threads = tr_bench_number(optarg, 256);
        } else if (c == 'm') {
            a->turn_ms = tr_bench_number(optarg, 60000);
        } else if (c == 'p') {
            a->pool_mib = tr_bench_number(optarg, 65536);
        } else if (c == 'r') {
            a->max_rows = tr_bench_number(optarg, ROWS_MAX);
        } else if (c == 'l') {
            a->level = TR_CPU_AVX512;
            while (a->level >= 0 &&
                   strcmp(tr_cpu_level_name((enum tr_cpu_level)a->level), optarg) != 0)
                a->level--;
            a->level = a->level < 0 ? -2 : a->level;
        } else {
            *status = usage(c == 'h' ? stdout : stderr);
            return -1;
        }
    }
    if (optind == argc && a->threads && a->turn_ms && a->pool_mib && a->max_rows && a->level >= -1)
        return 0;
    *status = usage(stderr);
    return -1;
}

/* One level of this machine, or all that are worth a server's while: plain C when asked for. */
static bool is_asked(const struct args *a, int level)
{
    bool named = a->level < 0 ? level != TR_CPU_GENERIC : level == a->level;
    return named && (int)tr_cpu_level_find((enum tr_cpu_level)level) == level;
}

static int measure_levels(struct bench *b, struct tr_errbuf *err)
{
    const struct args *a = b->args;
    if (tr_limits_measure(a->threads, (size_t)a->pool_mib << 20, 5 * a->turn_ms, TR_LIMITS_ALL,
                          &b->limits, err) < 0)
        return 1;
    fprintf(stderr,
            "limits: %.1f GB/s of %u MiB again and again, %.0f G float and %.0f G int8 "
            "multiply-adds/s\n",
            b->limits.reread_gb_s, a->pool_mib, b->limits.fma_gmac_s, b->limits.int8_gmac_s);
    puts("op,shape,rows,level,threads,us,gb_s,read_percent,gmac_s,mac_percent");
    for (int level = TR_CPU_AVX512; level >= TR_CPU_GENERIC; level--) {
        if (!is_asked(a, level))
            continue;
        b->level = (enum tr_cpu_level)level;
        struct tr_cpu_config c = {
            .math = TR_OPS_INT8, .level_max = b->level, .n_threads = a->threads};
        b->dev = tr_cpu_open(&c, err);
        if (!b->dev)
            return 1;
        bench_level(b);
        OPS->close(b->dev);
    }
    return 0;
}

int tr_bench_kernels_main(int argc, char **argv)
{
    struct args a = {
        .threads = 1, .level = -1, .turn_ms = 100, .pool_mib = 128, .max_rows = ROWS_MAX};
    struct tr_errbuf err = {{0}};
    int rc = 0;
    if (parse(argc, argv, &a, &rc) < 0)
        return rc;
    struct bench b = {.args = &a, .n_threads = a.threads};
    b.x = filled(sizeof(float) * ROWS_MAX * HEADS_MAX);
    b.y = filled(sizeof(float) * ROWS_MAX * DIM_MAX);
    b.out = filled(sizeof(float) * ROWS_MAX * 49152);
    rc = measure_levels(&b, &err);
    if (rc)
        fprintf(stderr, "bench kernels: %s\n", err.msg);
    free(b.x);
    free(b.y);
    free(b.out);
    return rc;
}
