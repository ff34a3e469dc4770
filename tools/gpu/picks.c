/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/picks.h"

#include "cuda_kernels/cuda.h"
#include "engine/pick_cuda.h"
#include "gpu/report.h"

#include <stdlib.h>
#include <string.h>

#define OPS (&tr_ops_cuda)

enum { ROWS_MAX = 256, LISTED = 4 };

struct bench {
    struct tr_pick_cuda *k;
    struct tr_cuda_logits from;
    struct tr_pick picks[ROWS_MAX];
    uint32_t n;
};

static const struct kind {
    const char *name;
    struct tr_params params;
} kinds[] = {
    {"greedy", {.top_p = 1, .repetition_penalty = 1}},
    {"temperature 1", {.temperature = 1, .top_p = 1, .repetition_penalty = 1}},
    {"top_k 40", {.temperature = 1, .top_p = 1, .top_k = 40, .repetition_penalty = 1}},
    {"top_p 0.95", {.temperature = 1, .top_p = 0.95, .repetition_penalty = 1}},
};

static void call(void *arg, uint32_t i)
{
    struct bench *b = arg;
    (void)i;
    tr_pick_cuda_send(b->k, &b->from, b->picks, b->n);
}

/* As a model's look: normal, with a deviation of 3. */
static int fill_logits(struct tr_dev *dev, float *to, size_t n)
{
    float *v = malloc(n * sizeof(*v));
    uint32_t r = 4711;
    for (size_t i = 0; v && i < n; i++) {
        float sum = 0;
        for (int k = 0; k < 12; k++) {
            r = r * 1664525u + 1013904223u;
            sum += (float)(r >> 8) * 0x1p-24F;
        }
        v[i] = 3 * (sum - 6);
    }
    if (v) {
        OPS->upload(dev, to, v, n * sizeof(*v));
        OPS->download(dev, NULL, NULL, 0);
    }
    free(v);
    return v ? 0 : -1;
}

static void measure(struct tr_dev *dev, struct bench *b, const struct kind *kind, uint32_t n_vocab,
                    bool dry, double read_gb_s)
{
    static const uint32_t ids[1] = {1};
    for (uint32_t i = 0; i < b->n; i++)
        b->picks[i] = (struct tr_pick){
            .out = i, .in = {.params = &kind->params, .ids = ids, .prompt_len = 1, .n_out = 0}};
    double us = tr_gpu_microseconds(dev, 2, call, b, dry);
    double gb_s = (double)b->n * n_vocab * sizeof(float) / us * 1e-3;
    tr_report_text(kind->name);
    tr_report_number(b->n, 0);
    tr_report_number(us, 2);
    tr_report_number(gb_s, 1);
    tr_report_number(100 * gb_s / read_gb_s, 0);
}

void tr_gpu_picks(struct tr_dev *dev, bool dry, double read_gb_s)
{
    static const char *const columns[] = {"picks", "rows", "us", "GB/s of logits", "% of read"};
    static struct bench b;
    uint32_t n_vocab = dry ? 300 : 128256, most = dry ? 4 : ROWS_MAX;
    struct tr_pick_cuda_config c = {
        .n_vocab = n_vocab, .n_ctx = 256, .max_out = most, .n_eog = LISTED};
    struct tr_kv kv = {.n_blocks = 1};
    size_t len = (size_t)most * n_vocab * sizeof(float);
    float *logits = OPS->take(dev, len, false);
    struct tr_place *places = OPS->take(dev, most * sizeof(*places), false);
    b.k = tr_pick_cuda_open(OPS, dev, &c);
    tr_report_table("picks", 5, columns);
    if (b.k && logits && places && fill_logits(dev, logits, len / sizeof(float)) == 0) {
        b.from = (struct tr_cuda_logits){.x = logits, .places = places, .kv = &kv};
        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
            for (b.n = 1; b.n <= most && tr_report_has_time(0.5);
                 b.n = b.n < 64 && !dry ? 64 : b.n * 4)
                measure(dev, &b, &kinds[i], n_vocab, dry, read_gb_s);
    } else {
        tr_report_say("picks: no memory");
    }
    OPS->download(dev, NULL, NULL, 0);
    tr_pick_cuda_close(b.k);
    OPS->give(dev, logits, len);
    OPS->give(dev, places, most * sizeof(*places));
}
