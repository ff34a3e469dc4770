/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/plan.h"

#include "bench/playback.h"
#include "bench/prices.h"
#include "client/samples.h"
#include "engine/kv.h"
#include "replay/trace.h"
#include "replay/traces.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_OF_MS 1e6

struct class
{
    const char *name;
    uint64_t n, refused, left, tokens;
    struct tr_samples ttft, gap; /* ms */
};

struct bench {
    struct tr_playback_config c;
    const char *trace_name, *model;
    uint32_t threads;
    uint64_t seed, limit;
    double speed;
    uint64_t kv_tokens;
    bool stay;
    struct tr_trace trace;
    struct tr_playback_request *r; /* [trace.n] */
    struct class *classes;         /* [trace.n_classes + 1], the last one is all */
    struct tr_playback_totals totals;
};

/* ---- arguments ---- */

enum {
    O_TRACE = 1,
    O_SEED,
    O_SPEED,
    O_LIMIT,
    O_STAY,
    O_SEQS,
    O_QUEUE,
    O_KV,
    O_CHUNK,
    O_ITL,
    O_TTFT,
    O_MODEL,
    O_THREADS,
    O_NOISE,
    O_PRICE /* + the part */
};

static const struct flag {
    const char *name;
    int arg, id;
    const char *help;
} flags[] = {
    {"trace", 1, O_TRACE, "NAME|FILE  as of tokenring replay (mixed)"},
    {"seed", 1, O_SEED, "N  of a built-in trace, and of the noise (1)"},
    {"speed", 1, O_SPEED, "X  arrivals come X times as fast (1)"},
    {"limit", 1, O_LIMIT, "N  the first N requests only"},
    {"no-abandon", 0, O_STAY, "  clients stay to the end"},
    {"max-seqs", 1, O_SEQS, "N  (32)"},
    {"max-queue", 1, O_QUEUE, "N  (64)"},
    {"kv-tokens", 1, O_KV, "N  tokens of KV memory (enough for all that run)"},
    {"prefill-chunk", 1, O_CHUNK, "N  (512)"},
    {"itl-target-ms", 1, O_ITL, "N  (100)"},
    {"ttft-target-ms", 1, O_TTFT, "N  (1000)"},
    {"noise", 1, O_NOISE, "X  a step takes up to X times more or less, below 1 (0)"},
    {"model", 1, O_MODEL, "FILE  measure the prices with this model, for some seconds"},
    {"threads", 1, O_THREADS, "N  for that (2)"},
    {"step-us", 1, O_PRICE + TR_COST_STEP, "X  price of a step (5000)"},
    {"decode-us", 1, O_PRICE + TR_COST_DECODE, "X  of a row that decodes (150)"},
    {"decode-kv-us", 1, O_PRICE + TR_COST_DECODE_KV, "X  of a position that it reads (0.5)"},
    {"prefill-us", 1, O_PRICE + TR_COST_PREFILL, "X  of a row of a prompt (400)"},
    {"prefill-kv-us", 1, O_PRICE + TR_COST_PREFILL_KV, "X  of a position that it reads (0.5)"},
    {"logits-us", 1, O_PRICE + TR_COST_LOGITS, "X  of a row with logits (200)"},
};
enum { N_FLAGS = sizeof(flags) / sizeof(flags[0]) };

static int usage(FILE *f)
{
    fprintf(f,
            "usage: tokenring bench plan [flags]\nPlays a trace against the scheduler in virtual "
            "time and tells first tokens and gaps per class.\n");
    for (int i = 0; i < N_FLAGS; i++)
        fprintf(f, "  --%-15s %s\n", flags[i].name, flags[i].help);
    fprintf(f, "traces:\n");
    tr_traces_help(f);
    return f == stdout ? 0 : 2;
}

/* Within [0, max]; false for anything else. */
static bool number(const char *s, double max, double *out)
{
    char *end;
    *out = strtod(s, &end);
    return end != s && !*end && *out >= 0 && *out <= max;
}

static bool take(struct bench *b, int id, const char *arg)
{
    double v = 0;
    if (id == O_TRACE || id == O_MODEL) {
        *(id == O_TRACE ? &b->trace_name : &b->model) = arg;
        return true;
    }
    if (id == O_STAY)
        return b->stay = true;
    if (!number(arg, 1e9, &v))
        return false;
    if (id >= O_PRICE) {
        b->c.price[id - O_PRICE] = v * 1e3;
        return true;
    }
    switch (id) {
    case O_SEED:
        b->seed = (uint64_t)v;
        return true;
    case O_SPEED:
        b->speed = v;
        return v > 0;
    case O_LIMIT:
        b->limit = (uint64_t)v;
        return true;
    case O_SEQS:
        b->c.max_seqs = (uint32_t)v;
        return v >= 1 && v <= 4096;
    case O_QUEUE:
        b->c.max_queue = (uint32_t)v;
        return v <= 65536;
    case O_KV:
        b->kv_tokens = (uint64_t)v;
        return true;
    case O_CHUNK:
        b->c.prefill_chunk = (uint32_t)v;
        return v <= 1 << 20;
    case O_ITL:
        b->c.itl_target_ns = (uint64_t)(v * NS_OF_MS);
        return true;
    case O_TTFT:
        b->c.ttft_target_ns = (uint64_t)(v * NS_OF_MS);
        return true;
    case O_THREADS:
        b->threads = (uint32_t)v;
        return v >= 1 && v <= 256;
    default:
        b->c.noise = v;
        return v < 1;
    }
}

/* -1: all is well; else the exit code. */
static int parse(struct bench *b, int argc, char **argv)
{
    struct option o[N_FLAGS + 2] = {{0}};
    for (int i = 0; i < N_FLAGS; i++)
        o[i] = (struct option){flags[i].name, flags[i].arg, NULL, flags[i].id};
    o[N_FLAGS] = (struct option){"help", 0, NULL, 'h'};
    optind = 1;
    for (int id; (id = getopt_long(argc, argv, "", o, NULL)) != -1;) {
        if (id == 'h')
            return usage(stdout);
        if (id == '?')
            return usage(stderr);
        if (!take(b, id, optarg)) {
            fprintf(stderr, "bench plan: '%s' makes no sense there\n", optarg);
            return 2;
        }
    }
    return optind == argc ? -1 : usage(stderr);
}

/* ---- the trace ---- */

static uint64_t ns_of(double s)
{
    return s == TR_TRACE_NEVER ? TR_PLAYBACK_NEVER : (uint64_t)(s * 1e9);
}

/* A text is taken to have a token for every four bytes. */
static uint32_t tokens_of(const struct tr_trace_entry *e)
{
    uint64_t n = e->prompt ? strlen(e->prompt) / 4 : e->prompt_tokens;
    return n < 1 ? 1 : (uint32_t)n;
}

static int load(struct bench *b, struct tr_errbuf *err)
{
    int rc = tr_traces_make(&b->trace, b->trace_name, b->seed);
    if (rc == -ENOENT)
        rc = tr_trace_load(&b->trace, b->trace_name, err);
    if (rc)
        return rc;
    if (b->limit)
        tr_trace_limit(&b->trace, b->limit);
    b->r = calloc(b->trace.n ? b->trace.n : 1, sizeof(*b->r));
    b->classes = calloc(b->trace.n_classes + 1, sizeof(*b->classes));
    if (!b->r || !b->classes)
        return tr_errf(err, -ENOMEM, "no memory");
    uint32_t longest = 1;
    for (size_t i = 0; i < b->trace.n; i++) {
        const struct tr_trace_entry *e = &b->trace.e[i];
        struct tr_playback_request *r = &b->r[i];
        *r = (struct tr_playback_request){.at_ns = (uint64_t)(e->at_s / b->speed * 1e9),
                                          .prompt = tokens_of(e),
                                          .max_tokens = e->max_tokens ? (uint32_t)e->max_tokens : 1,
                                          .leave_ns = TR_PLAYBACK_NEVER,
                                          .leave_after_ns = TR_PLAYBACK_NEVER};
        if (!b->stay && e->abandon_s != TR_TRACE_NEVER)
            r->leave_ns = r->at_ns + ns_of(e->abandon_s);
        if (!b->stay)
            r->leave_after_ns = ns_of(e->abandon_after_first_s);
        longest = r->prompt + r->max_tokens > longest ? r->prompt + r->max_tokens : longest;
    }
    uint32_t each = tr_kv_blocks_for(longest);
    b->c.n_blocks = b->kv_tokens ? tr_kv_blocks_for((uint32_t)b->kv_tokens) : each * b->c.max_seqs;
    return b->c.n_blocks >= each
               ? 0
               : tr_errf(err, -EINVAL, "the longest request has %" PRIu32 " tokens", longest);
}

/* ---- the report ---- */

static void on_token(void *arg, const struct tr_playback_request *r, uint32_t n, uint64_t gap_ns)
{
    struct bench *b = arg;
    struct class *of[] = {&b->classes[b->trace.e[r - b->r].class_id],
                          &b->classes[b->trace.n_classes]};
    for (int i = 0; i < 2; i++) {
        of[i]->tokens++;
        if (n > 1)
            tr_samples_add(&of[i]->gap, (double)gap_ns / NS_OF_MS);
        else
            tr_samples_add(&of[i]->ttft, (double)(r->first_ns - r->at_ns) / NS_OF_MS);
    }
}

static void count_fates(struct bench *b)
{
    for (size_t i = 0; i < b->trace.n; i++) {
        struct class *of[] = {&b->classes[b->trace.e[i].class_id], &b->classes[b->trace.n_classes]};
        for (int k = 0; k < 2; k++) {
            of[k]->n++;
            of[k]->refused += b->r[i].refused;
            of[k]->left += b->r[i].left;
        }
    }
}

static void print_class(struct class *c)
{
    struct tr_summary t = tr_samples_summary(&c->ttft), g = tr_samples_summary(&c->gap);
    printf("%-16s %6" PRIu64 " %7" PRIu64 " %6" PRIu64 " %8" PRIu64
           "  %8.1f %8.1f %8.1f  %7.1f %7.1f %7.1f\n",
           c->name, c->n, c->refused, c->left, c->tokens, t.p50, t.p99, t.max, g.p50, g.p99, g.max);
}

static void print(struct bench *b)
{
    const struct tr_playback_totals *t = &b->totals;
    double s = (double)t->end_ns / 1e9;
    printf("%-16s %6s %7s %6s %8s  %8s %8s %8s  %7s %7s %7s\n", "class", "n", "refused", "left",
           "tokens", "ttft p50", "p99", "max ms", "gap p50", "p99", "max ms");
    for (unsigned k = 0; k <= b->trace.n_classes; k++)
        print_class(&b->classes[k]);
    printf("%" PRIu64 " steps in %.1f s, busy %.0f %%; %" PRIu64
           " longer than the target beside streams, the longest %.1f ms; %" PRIu64
           " preemptions; %.0f tokens/s, %.0f prompt rows/s\n",
           t->steps, s, s > 0 ? 100 * (double)t->busy_ns / 1e9 / s : 0, t->late,
           (double)t->longest_ns / NS_OF_MS, t->preemptions,
           s > 0 ? (double)b->classes[b->trace.n_classes].tokens / s : 0,
           s > 0 ? (double)t->prompt_rows / s : 0);
}

static int play(struct bench *b, struct tr_errbuf *err)
{
    if (load(b, err))
        return 1;
    if (b->model) {
        if (tr_prices_measure(b->model, b->threads, b->c.price, &b->c.weight_bytes, err))
            return 1;
        fprintf(stderr, "prices, us:");
        for (int i = 0; i < TR_COST_PARTS; i++)
            fprintf(stderr, " %s %.4g", flags[N_FLAGS - TR_COST_PARTS + i].name,
                    b->c.price[i] / 1e3);
        fprintf(stderr, "\n");
    }
    for (unsigned k = 0; k < b->trace.n_classes; k++)
        b->classes[k].name = b->trace.classes[k];
    b->classes[b->trace.n_classes].name = "all";
    if (tr_playback_run(&b->c, b->r, b->trace.n, &b->totals, on_token, b))
        return tr_errf(err, 1, "no memory");
    count_fates(b);
    print(b);
    return 0;
}

int tr_bench_plan_main(int argc, char **argv)
{
    struct bench b = {.c = {.max_seqs = 32,
                            .max_queue = 64,
                            .prefill_chunk = 512,
                            .itl_target_ns = 100000000,
                            .ttft_target_ns = 1000000000,
                            .price = {5e6, 1.5e5, 500, 4e5, 500, 2e5}},
                      .trace_name = "mixed",
                      .threads = 2,
                      .seed = 1,
                      .speed = 1};
    struct tr_errbuf err = {""};
    int status = parse(&b, argc, argv);
    if (status >= 0)
        return status;
    b.c.seed = b.seed;
    status = play(&b, &err);
    if (status)
        fprintf(stderr, "bench plan: %s\n", err.msg);
    for (unsigned k = 0; b.classes && k <= b.trace.n_classes; k++) {
        tr_samples_fini(&b.classes[k].ttft);
        tr_samples_fini(&b.classes[k].gap);
    }
    free(b.classes);
    free(b.r);
    tr_trace_fini(&b.trace);
    return status;
}
