/* SPDX-License-Identifier: Apache-2.0 */
/* A model from arbitrary bytes: it is refused with a sentence, or it runs.  What it computes may be
 * nonsense (weights may be infinite or no numbers), but every access stays inside. */
#include "engine/forward.h"
#include "engine/model.h"

#include "base/assert.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A few rows of two sequences, in a context as small as the pool. */
static void run(const struct tr_model *m, struct tr_dev *dev)
{
    struct tr_errbuf err = {""};
    if (m->hp.n_ctx < TR_KV_BLOCK || m->hp.n_vocab > 4096 || m->hp.n_ff > 4096)
        return;
    struct tr_forward *f = tr_forward_open(m, &tr_ops_cpu, dev,
                                           &(struct tr_forward_config){.kv_type = TR_KV_F16,
                                                                       .n_ctx = TR_KV_BLOCK,
                                                                       .n_kv_blocks = 2,
                                                                       .max_rows = 4,
                                                                       .max_out = 2},
                                           &err);
    TR_ASSERT(!f == (err.msg[0] != 0));
    if (!f)
        return;
    uint32_t blocks[] = {1, 0}, last = m->hp.n_vocab - 1;
    float *logits = malloc(2 * (size_t)m->hp.n_vocab * sizeof(float));
    TR_ASSERT(logits);
    struct tr_kv_table tables[] = {{&blocks[0], 1}, {&blocks[1], 1}};
    struct tr_batch_row rows[] = {
        {0, 0, 0, TR_NO_LOGITS}, {last, 1, 0, TR_NO_LOGITS}, {last / 2, 2, 0, 1}, {last, 0, 1, 0}};
    tr_forward_run(
        f, &(struct tr_batch){.rows = rows, .n_rows = 4, .seqs = tables, .n_seqs = 2, .n_out = 2},
        logits, NULL, NULL);
    free(logits);
    tr_forward_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tr_dev *dev;
    struct tr_errbuf err = {""};
    if (!dev)
        dev = tr_cpu_open(&(struct tr_cpu_config){.math = TR_OPS_INT8,
                                                  .level_max = TR_CPU_AVX512,
                                                  .n_threads = 1},
                          &err);
    TR_ASSERT(dev);
    struct tr_gguf *g = tr_gguf_parse(data, size, "fuzz", &err);
    if (!g)
        return 0;
    struct tr_model *m = tr_model_load(g, "fuzz", 0, &tr_ops_cpu, dev, NULL, NULL, &err);
    tr_gguf_close(g);
    TR_ASSERT(!m == (err.msg[0] != 0));
    if (m)
        run(m, dev);
    tr_model_free(m);
    return 0;
}
