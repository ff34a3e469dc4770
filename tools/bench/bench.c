/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include "bench/bare.h"
#include "bench/kernels.h"
#include "bench/model.h"
#include "bench/readers.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int tr_bench_main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "kernels") == 0)
        return tr_bench_kernels_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "model") == 0)
        return tr_bench_model_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "readers") == 0)
        return tr_bench_readers_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "bare") == 0)
        return tr_bench_bare_main(argc - 1, argv + 1);
    bool help = argc > 1 && strcmp(argv[1], "--help") == 0;
    fprintf(help ? stdout : stderr, "usage: tokenring bench kernels [flags]\n"
                                    "       tokenring bench model [flags]\n"
                                    "       tokenring bench readers [flags]\n"
                                    "       tokenring bench bare [flags]\n");
    return help ? 0 : 2;
}
