/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include "bench/bare.h"
#include "bench/grammar.h"
#include "bench/kernels.h"
#include "bench/model.h"
#include "bench/plan.h"
#include "bench/readers.h"
#include "bench/roofline.h"
#include "bench/selection.h"
#include "bench/text.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
    const char *what;
} benches[] = {
    {"roofline", tr_bench_roofline_main, "what this machine can do at most"},
    {"kernels", tr_bench_kernels_main, "each operation of the forward pass, beside those limits"},
    {"model", tr_bench_model_main, "prefill and decode of a model, without a server"},
    {"selection", tr_bench_selection_main, "choosing a token from its logits"},
    {"text", tr_bench_text_main, "texts to tokens"},
    {"grammar", tr_bench_grammar_main, "answers that obey a schema"},
    {"plan", tr_bench_plan_main, "what the scheduler makes of a trace, in virtual time"},
    {"readers", tr_bench_readers_main, "many clients of a running service in one thread"},
    {"bare", tr_bench_bare_main, "the least that a server of event streams can do"},
};
enum { N_BENCHES = sizeof(benches) / sizeof(benches[0]) };

static int usage(FILE *f)
{
    fprintf(f, "usage: tokenring bench NAME [flags]; NAME --help tells the flags\n");
    for (int i = 0; i < N_BENCHES; i++)
        fprintf(f, "  %-9s %s\n", benches[i].name, benches[i].what);
    return f == stdout ? 0 : 2;
}

int tr_bench_main(int argc, char **argv)
{
    for (int i = 0; argc > 1 && i < N_BENCHES; i++)
        if (strcmp(argv[1], benches[i].name) == 0)
            return benches[i].main(argc - 1, argv + 1);
    return usage(argc > 1 && strcmp(argv[1], "--help") == 0 ? stdout : stderr);
}
