/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cuda/backend.c - the cuda backend, over CUDA on the CPU, beside the cpu backend: small models of every
 * architecture (tests/golden/tiny), prompts in one piece and in chunks, decoding alone and in company, mixed
 * passes.  Logits and what is picked from them are the same, byte for byte, and no
 * memory is taken after the start. */
#include "engine/backend.h"
#include "engine/pick.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* backend_calls.cc: allocations of device and page-locked memory, and recorded passes, so far. */
uint64_t memory_asked_for(void);

static unsigned passed, failed;

static void claim(bool ok, const char *model, const char *what, uint32_t i)
{
    ok ? passed++ : failed++;
    if (!ok)
        printf("FAILED %s: %s %u\n", model, what, i);
}

static uint32_t rnd(uint32_t n)
{
    static uint64_t state = 0x9E3779B97F4A7C15u;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % n);
}

enum { SEQS = 5, CTX = 96, ROWS = 64, BLOCKS = CTX / TR_KV_BLOCK, STEPS = 24 };

/* Both backends, and the sequences that they share. */
struct pair {
    const char *name;
    const struct tr_backend_ops *ops[2];
    struct tr_backend *b[2];
    struct tr_backend_info info;
    float *logits[2];
    uint32_t blocks[SEQS][BLOCKS];
    struct tr_kv_table tables[SEQS];
    uint32_t len[SEQS];
    uint32_t ids[SEQS][CTX];
    struct tr_batch_row rows[ROWS];
    uint32_t n_rows, n_out;
    struct tr_pick picks[ROWS];
    struct tr_sampler *sampler;
};

static void open_pair(struct pair *p, const char *name, enum tr_kv_type kv)
{
    char path[96];
    struct tr_errbuf err;
    *p = (struct pair){.name = name, .ops = {&tr_backend_cpu, &tr_backend_cuda}};
    snprintf(path, sizeof(path), "tests/golden/tiny/%s.gguf", name);
    for (int i = 0; i < 2; i++) {
        struct tr_backend_config c = {.model_path = path,
                                      .kv_type = kv,
                                      .n_threads = 1,
                                      .n_ctx = CTX,
                                      .max_seqs = SEQS,
                                      .max_rows = ROWS,
                                      .max_out = ROWS,
                                      .deterministic = true};
        p->b[i] = p->ops[i]->open(&c, &p->info, &err);
        if (!p->b[i]) {
            fprintf(stderr, "%s: %s\n", name, err.msg);
            exit(2);
        }
        p->logits[i] = calloc((size_t)ROWS * p->info.n_vocab, sizeof(float));
    }
    p->sampler = tr_sampler_new(ROWS, p->info.n_vocab, CTX, NULL);
    for (uint32_t s = 0; s < SEQS; s++) {
        for (uint32_t k = 0; k < BLOCKS; k++)
            p->blocks[s][k] = (s * BLOCKS + k) * 7 % (SEQS * BLOCKS);
        p->tables[s] = (struct tr_kv_table){p->blocks[s], BLOCKS};
    }
}

static void close_pair(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        p->ops[i]->close(p->b[i]);
        free(p->logits[i]);
    }
    tr_sampler_free(p->sampler);
}

/* A sampler's request of every kind, one after the other. */
static struct tr_params params_of(uint32_t i)
{
    struct tr_params q = {.top_p = 1, .repetition_penalty = 1, .seed = i, .n_top = i % 4};
    q.temperature = i % 3 ? 0.7 + i % 5 / 4.0 : 0;
    q.top_p = i % 4 == 1 ? 0.8 : 1;
    q.min_p = i % 5 == 2 ? 0.1 : 0;
    q.top_k = i % 4 == 2 ? 10 : 0;
    q.frequency_penalty = i % 6 == 4 ? 0.7 : 0;
    q.repetition_penalty = i % 7 == 5 ? 1.3 : 1;
    return q;
}

static void add(struct pair *p, uint32_t seq, bool out)
{
    uint32_t pos = p->len[seq]++, token = p->ids[seq][pos] = rnd(p->info.n_vocab);
    p->rows[p->n_rows++] = (struct tr_batch_row){
        .token = token, .pos = pos, .seq = seq, .out = out ? p->n_out++ : TR_NO_LOGITS};
}

/* What both pick from the logits of the pass. */
static void compare_picks(struct pair *p)
{
    struct tr_params params[ROWS];
    struct tr_picked got[ROWS], want[ROWS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_rows; i++) {
        const struct tr_batch_row *r = &p->rows[i];
        if (r->out == TR_NO_LOGITS)
            continue;
        params[n] = params_of(rnd(1000));
        p->picks[n] = (struct tr_pick){.out = r->out,
                                       .echo = rnd(8) == 0,
                                       .id = rnd(p->info.n_vocab),
                                       .wants_lp = true,
                                       .in = {.params = &params[n],
                                              .ids = p->ids[r->seq],
                                              .prompt_len = (r->pos + 1) / 2,
                                              .n_out = r->pos + 1 - (r->pos + 1) / 2}};
        n++;
    }
    memset(got, 0, sizeof(got));
    memset(want, 0, sizeof(want));
    p->ops[1]->pick(p->b[1], p->picks, n);
    p->ops[1]->collect(p->b[1], got, n, NULL, NULL);
    for (uint32_t i = 0; i < n; i++) {
        float *row = p->logits[0] + (size_t)p->picks[i].out * p->info.n_vocab;
        tr_pick_by_host(p->sampler, i, row, &p->picks[i], &want[i]);
        claim(got[i].id == want[i].id, p->name, "another token is picked from row", i);
        claim(memcmp(&got[i].lp, &want[i].lp, sizeof(got[i].lp)) == 0, p->name,
              "other log-probabilities of row", i);
    }
}

static void run(struct pair *p, const char *what)
{
    struct tr_batch batch = {
        .rows = p->rows, .n_rows = p->n_rows, .seqs = p->tables, .n_seqs = SEQS, .n_out = p->n_out};
    size_t row = p->info.n_vocab * sizeof(float);
    for (int i = 0; i < 2; i++)
        p->ops[i]->forward(p->b[i], &batch, p->logits[i], NULL, NULL);
    for (uint32_t o = 0; o < p->n_out; o++)
        claim(memcmp((char *)p->logits[0] + o * row, (char *)p->logits[1] + o * row, row) == 0,
              p->name, what, o);
    if (p->n_out)
        compare_picks(p);
    p->n_rows = p->n_out = 0;
}

static void test_model(const char *name, enum tr_kv_type kv)
{
    static struct pair p;
    open_pair(&p, name, kv);
    uint64_t at_start = memory_asked_for();
    claim(p.info.deterministic && p.info.n_kv_blocks >= SEQS * BLOCKS, name, "info", 0);
    for (uint32_t i = 0; i < 37; i++)
        add(&p, 0, i == 36 || i == 5);
    run(&p, "a prompt in one piece: logits");
    for (uint32_t i = 0; i < 3; i++)
        add(&p, 1, false);
    run(&p, "a piece of a prompt");
    for (uint32_t i = 0; i < STEPS; i++) {
        /* Mixed, and then, with all of them begun, tokens alone. */
        for (uint32_t s = 0; s < SEQS; s++)
            for (uint32_t k = s > 0 && i < 4 ? rnd(9) : s<1 + i % SEQS; k> 0; k--)
                if (p.len[s] < CTX)
                    add(&p, s, k == 1);
        if (p.n_rows)
            run(&p, i < 4 ? "a mixed pass: logits" : "decoding: logits");
    }
    claim(at_start > 0 && memory_asked_for() == at_start, name, "memory is taken after the start",
          0);
    close_pair(&p);
}

int main(void)
{
    static const char *const names[] = {"llama3", "qwen3", "llama_longrope", "gemma3", "qwen2"};
    setenv("TOKENRING_CUDA_ON_CPU", "strict", 1);
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        test_model(names[i], i % 2 ? TR_KV_Q8_0 : TR_KV_F16);
    printf("%u passed, %u failed\n", passed, failed);
    return failed || !passed;
}
