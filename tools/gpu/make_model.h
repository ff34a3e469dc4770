/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gpu/make_model.h - model files with random weights, made where they are measured.
 *
 * What a pass costs does not depend on what the weights say, so a shape and a seed are enough, and nothing
 * has to be carried to the machine.  The same seed gives the same file, with any number of threads. */
#ifndef TR_TOOLS_GPU_MAKE_MODEL_H
#define TR_TOOLS_GPU_MAKE_MODEL_H

#include "base/err.h"
#include "base/gguf.h"

#include <stdbool.h>

/* A llama: of 8.0 thousand millions of weights (4096 wide, 32 layers, 32 heads on 8, 14336, 128256 tokens),
 * or of the same form and small. */
struct tr_gpu_model {
    bool small;
    enum tr_tensor_type
        type; /* of the layers; the output matrix is Q6_K if that is Q4_K, else the same */
    uint64_t seed;
};

/* Writes it to `path`.  0, or -Exxx and a sentence. */
int tr_gpu_make_model(const char *path, const struct tr_gpu_model *m, struct tr_errbuf *err);

#endif
