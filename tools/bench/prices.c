/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/prices.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

enum { CTX = 2048, SEQS = 16, CHUNK = 256, ROUNDS = 3 };

struct bench {
    struct tr_backend *b;
    struct tr_backend_info info;
    struct tr_batch_row rows[SEQS + CHUNK];
    struct tr_kv_table tables[SEQS + 1]; /* those who decode, and a prompt */
    uint32_t *blocks;
    float *logits;
    struct tr_cost cost;
};

/* n sequences at position `pos`, and `chunk` rows of a prompt from `from` on.  What stands in the KV
 * does not matter. */
static void step(struct bench *m, uint32_t n, uint32_t pos, uint32_t chunk, uint32_t from)
{
    struct tr_cost_work w = {.n[TR_COST_STEP] = 1};
    struct tr_batch batch = {.rows = m->rows,
                             .n_rows = n + chunk,
                             .seqs = m->tables,
                             .n_seqs = n + (chunk > 0),
                             .n_out = n};
    for (uint32_t i = 0; i < n + chunk; i++) {
        bool decode = i < n;
        m->rows[i] = (struct tr_batch_row){.token = i * 7919u % m->info.n_vocab,
                                           .pos = decode ? pos : from + i - n,
                                           .seq = decode ? i : n,
                                           .out = decode ? i : TR_NO_LOGITS};
        if (decode)
            tr_cost_add_decode(&w, pos);
    }
    if (chunk)
        tr_cost_add_prefill(&w, from, chunk);
    uint64_t start = tr_now_ns();
    tr_backend_cpu.forward(m->b, &batch, m->logits, NULL, NULL);
    tr_cost_learn(&m->cost, &w, tr_now_ns() - start);
}

static void measure(struct bench *m)
{
    static const uint32_t seqs[] = {1, 2, 4, 8, 16}, chunks[] = {0, 32, 128, 256};
    static const uint32_t places[] = {0, 250, 1000};
    step(m, 1, 0, 0, 0); /* pages are touched */
    tr_cost_init(&m->cost, m->info.weight_bytes);
    for (int round = 0; round < ROUNDS; round++)
        for (int s = 0; s < 5; s++)
            for (int c = 0; c < 4; c++)
                for (int p = 0; p < 3; p++)
                    step(m, seqs[s], places[(p + s) % 3], chunks[c], places[p]);
}

static int take_memory(struct bench *m)
{
    uint32_t per_seq = CTX / TR_KV_BLOCK;
    m->blocks = calloc((SEQS + 1) * per_seq, sizeof(*m->blocks));
    m->logits = calloc((size_t)SEQS * m->info.n_vocab, sizeof(*m->logits));
    if (!m->blocks || !m->logits)
        return -1;
    for (uint32_t i = 0; i < (SEQS + 1) * per_seq; i++)
        m->blocks[i] = i;
    for (uint32_t s = 0; s <= SEQS; s++)
        m->tables[s] = (struct tr_kv_table){m->blocks + (size_t)s * per_seq, per_seq};
    return 0;
}

int tr_prices_measure(const char *model, uint32_t threads, double *price, uint64_t *weight_bytes,
                      struct tr_errbuf *err)
{
    struct tr_backend_config c = {.model_path = model,
                                  .n_threads = threads,
                                  .n_ctx = CTX,
                                  .max_seqs = SEQS + 1,
                                  .max_rows = SEQS + CHUNK,
                                  .max_out = SEQS};
    struct bench *m = calloc(1, sizeof(*m));
    int ret = -1;
    if (!m)
        return tr_errf(err, -1, "no memory");
    m->b = tr_backend_cpu.open(&c, &m->info, err);
    if (!m->b)
        goto out;
    if (m->info.n_ctx < CTX || m->info.n_kv_blocks < (SEQS + 1) * CTX / TR_KV_BLOCK ||
        take_memory(m)) {
        tr_errf(err, -1, "not enough context or memory for %d sequences of %d tokens", SEQS + 1,
                CTX);
        goto out;
    }
    measure(m);
    memcpy(price, m->cost.price, sizeof(m->cost.price));
    *weight_bytes = m->info.weight_bytes;
    ret = 0;
out:
    free(m->blocks);
    free(m->logits);
    tr_backend_cpu.close(m->b);
    free(m);
    return ret;
}
