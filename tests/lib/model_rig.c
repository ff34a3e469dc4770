/* SPDX-License-Identifier: Apache-2.0 */
#include "testrig/model_rig.h"

#include "testrig/apart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *must(void *p, const struct tr_errbuf *err)
{
    if (!p) {
        fprintf(stderr, "rig: %s\n", err->msg);
        exit(2);
    }
    return p;
}

static void *zeroed(size_t n, size_t size)
{
    return must(calloc(n, size), &(struct tr_errbuf){"no memory"});
}

uint32_t tr_rig_random(struct tr_rig *r, uint32_t n)
{
    r->rand ^= r->rand << 13;
    r->rand ^= r->rand >> 7;
    r->rand ^= r->rand << 17;
    return (uint32_t)((r->rand >> 32) * n >> 32);
}

/* All blocks of the pool, shuffled, dealt out to the sequences. */
static void deal_blocks(struct tr_rig *r, uint32_t per_seq)
{
    uint32_t n = per_seq * r->c.n_seqs;
    for (uint32_t i = 0; i < n; i++)
        r->blocks[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = tr_rig_random(r, i), t = r->blocks[i - 1];
        r->blocks[i - 1] = r->blocks[j];
        r->blocks[j] = t;
    }
    for (uint32_t s = 0; s < r->c.n_seqs; s++)
        r->tables[s] = (struct tr_kv_table){r->blocks + (size_t)s * per_seq, per_seq};
}

struct tr_rig *tr_rig_open(const struct tr_rig_config *c)
{
    struct tr_errbuf err = {""};
    struct tr_rig *r = zeroed(1, sizeof(*r));
    r->c = *c;
    r->rand = 0x9e3779b97f4a7c15u ^ c->seed;
    struct tr_gguf *g = must(c->path ? tr_gguf_open(c->path, &err)
                                     : tr_gguf_parse(c->bytes, c->len, "memory", &err),
                             &err);
    struct tr_cpu_config cpu = {.math = c->math, .level_max = c->level, .n_threads = c->n_threads};
    r->ops = c->apart ? &tr_ops_apart : &tr_ops_cpu;
    r->dev = must(c->apart ? tr_apart_open(&cpu, &err) : tr_cpu_open(&cpu, &err), &err);
    r->m = must(tr_model_load(g, c->path ? c->path : "memory", 0, r->ops, r->dev, NULL, NULL, &err),
                &err);
    tr_gguf_close(g);
    r->n_ctx = c->n_ctx ? c->n_ctx : r->m->hp.n_ctx;
    uint32_t per_seq = (r->n_ctx + TR_KV_BLOCK - 1) / TR_KV_BLOCK;
    r->f = must(tr_forward_open(r->m, r->ops, r->dev,
                                &(struct tr_forward_config){.kv_type = c->kv_type,
                                                            .n_ctx = r->n_ctx,
                                                            .n_kv_blocks = per_seq * c->n_seqs,
                                                            .max_rows = c->max_rows,
                                                            .max_out = c->max_rows,
                                                            .max_seqs = c->n_seqs,
                                                            .ids = c->ids},
                                &err),
                &err);
    r->blocks = zeroed((size_t)per_seq * c->n_seqs, sizeof(*r->blocks));
    r->tables = zeroed(c->n_seqs, sizeof(*r->tables));
    r->len = zeroed(c->n_seqs, sizeof(*r->len));
    r->rows = zeroed(c->max_rows, sizeof(*r->rows));
    r->logits = zeroed((size_t)c->max_rows * r->m->hp.n_vocab, sizeof(float));
    deal_blocks(r, per_seq);
    return r;
}

void tr_rig_close(struct tr_rig *r)
{
    if (!r)
        return;
    tr_forward_close(r->f);
    tr_model_free(r->m);
    r->ops->close(r->dev);
    free(r->blocks);
    free(r->tables);
    free(r->len);
    free(r->rows);
    free(r->logits);
    free(r);
}

uint32_t tr_rig_add(struct tr_rig *r, uint32_t seq, uint32_t token, bool out)
{
    uint32_t o = out ? r->n_out++ : TR_NO_LOGITS;
    r->rows[r->n_rows++] =
        (struct tr_batch_row){.token = token, .pos = r->len[seq]++, .seq = seq, .out = o};
    return o;
}

void tr_rig_run(struct tr_rig *r)
{
    struct tr_batch b = {.rows = r->rows,
                         .n_rows = r->n_rows,
                         .seqs = r->tables,
                         .n_seqs = r->c.n_seqs,
                         .n_out = r->n_out};
    tr_forward_run(r->f, &b, r->logits, NULL, NULL);
    r->n_rows = r->n_out = 0;
}

const float *tr_rig_prefill(struct tr_rig *r, uint32_t seq, const uint32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        tr_rig_add(r, seq, ids[i], i + 1 == n);
        if (r->n_rows == r->c.max_rows || i + 1 == n)
            tr_rig_run(r);
    }
    return r->logits;
}

void tr_rig_reset(struct tr_rig *r, uint32_t seq)
{
    r->len[seq] = 0;
}

const char *tr_rig_model_path(void)
{
    const char *p = getenv("TOKENRING_TEST_MODEL");
    return p && *p ? p : ".cache/smollm2.gguf";
}
