/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gpu/stages.c - one stage of tools/gpu_check, or a model for them. */
#include "gpu/stages.h"

#include "base/gguf.h"
#include "base/log.h"
#include "engine/backend.h"
#include "gpu/make_model.h"
#include "gpu/report.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct {
    const char *name;
    int (*run)(const struct tr_gpu_args *);
    bool needs_model;
} stages[] = {
    {"limits", tr_gpu_limits, false}, {"kernels", tr_gpu_kernels, false},
    {"model", tr_gpu_model, true},    {"life", tr_gpu_life, true},
    {"golden", tr_gpu_golden, true},
};

/* ---- what stages share ---- */

const struct tr_backend_ops *tr_gpu_backend(const char *name)
{
    if (strcmp(name, "cpu") == 0)
        return &tr_backend_cpu;
    return strcmp(name, "cuda") == 0 ? &tr_backend_cuda : NULL;
}

int tr_gpu_weights_fd(void)
{
    int fd = memfd_create("tokenring-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd > 0 ? fd : 0;
}

int tr_gpu_file(const char *path, struct tr_gpu_file *f)
{
    struct tr_errbuf err = {""};
    struct tr_gguf *g = tr_gguf_open(path, &err);
    const struct tr_gguf_tensor *embd = g ? tr_gguf_tensor(g, "token_embd.weight") : NULL;
    const struct tr_gguf_tensor *head = g ? tr_gguf_tensor(g, "output.weight") : NULL;
    if (!embd) {
        fprintf(stderr, "%s: %s\n", path, g ? "no token_embd.weight" : err.msg);
        tr_gguf_close(g);
        return -1;
    }
    *f = (struct tr_gpu_file){.n_vocab = (uint32_t)embd->ne[1]};
    for (uint64_t i = 0; i < tr_gguf_n_tensors(g); i++) {
        const struct tr_gguf_tensor *t = tr_gguf_tensor_at(g, i);
        if (t->n_dims == 2 && t != embd && t != head)
            f->products += (double)t->ne[0] * (double)t->ne[1];
    }
    tr_gguf_close(g);
    return 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double tr_gpu_quantile(double *v, uint32_t n, double q)
{
    if (n == 0)
        return 0;
    qsort(v, n, sizeof(*v), by_size);
    return v[(uint32_t)(q * (n - 1) + 0.5)];
}

/* ---- the program ---- */

static int usage(FILE *f)
{
    fputs("usage: gpu_stages [--out DIR] [--seconds N] [--backend cuda|cpu] [--dry] "
          "[--deterministic]\n"
          "                  limits | kernels | model FILE | life FILE | golden FILE\n"
          "       gpu_stages [--dry] [--seed N] make q4_k|q8_0 FILE\n",
          f);
    return f == stdout ? 0 : 2;
}

static int make(const char *type, const char *path, bool small, uint64_t seed)
{
    struct tr_errbuf err = {""};
    struct tr_gpu_model m = {.small = small, .seed = seed};
    if (strcmp(type, "q4_k") != 0 && strcmp(type, "q8_0") != 0)
        return usage(stderr);
    m.type = strcmp(type, "q4_k") == 0 ? TR_T_Q4_K : TR_T_Q8_0;
    if (tr_gpu_make_model(path, &m, &err) == 0)
        return 0;
    fprintf(stderr, "%s\n", err.msg);
    return 1;
}

static int run_stage(const char *name, struct tr_gpu_args *a, const char *out, double seconds)
{
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++) {
        if (strcmp(stages[i].name, name) != 0 || stages[i].needs_model != (a->model != NULL))
            continue;
        tr_log_init("gpu", false);
        tr_report_open(out, name, seconds);
        return stages[i].run(a);
    }
    return usage(stderr);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"out", 1, NULL, 'o'},  {"seconds", 1, NULL, 's'}, {"backend", 1, NULL, 'b'},
        {"dry", 0, NULL, 'd'},  {"seed", 1, NULL, 'r'},    {"deterministic", 0, NULL, 'e'},
        {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
    struct tr_gpu_args a = {.backend = "cuda"};
    const char *out = NULL;
    double seconds = 60;
    uint64_t seed = 1;
    int o;
    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (o == 'o')
            out = optarg;
        else if (o == 's')
            seconds = strtod(optarg, NULL);
        else if (o == 'b')
            a.backend = optarg;
        else if (o == 'd')
            a.dry = true;
        else if (o == 'r')
            seed = strtoull(optarg, NULL, 10);
        else if (o == 'e')
            a.deterministic = true;
        else
            return usage(o == 'h' ? stdout : stderr);
    }
    int n = argc - optind;
    if (n == 3 && strcmp(argv[optind], "make") == 0)
        return make(argv[optind + 1], argv[optind + 2], a.dry, seed);
    if (n < 1 || n > 2 || !tr_gpu_backend(a.backend))
        return usage(stderr);
    a.model = n == 2 ? argv[optind + 1] : NULL;
    return run_stage(argv[optind], &a, out, seconds);
}
