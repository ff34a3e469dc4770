/* SPDX-License-Identifier: Apache-2.0 */
#include "sampling_cases.h"

#include "engine/pick_cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CTX = 400, POOL = 200, MAX_OUT = 80, EOG = 3, TABLE = CTX / TR_OPS_KV_BLOCK + 1 };

static uint64_t state;

static uint32_t below(uint32_t n)
{
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)((state >> 33) % n);
}

static double uniform(void)
{
    return (below(1u << 30) + 0.5) / (double)(1u << 30);
}

static bool chance(uint32_t one_in)
{
    return below(one_in) == 0;
}

/* A row's request: what the CPU is given, and what the device finds. */
struct row {
    struct tr_pick pick;
    struct tr_params params;
    struct tr_extra extra;
    uint32_t ids[CTX];
    uint32_t drafts[CTX];
    uint32_t blocks[TABLE];
    uint32_t *mask;
};

struct step {
    uint32_t n_vocab, n_rows, n;
    float *logits; /* [n_rows, n_vocab] */
    struct row *row;
    uint32_t *kv_ids; /* [POOL, 32] */
    uint32_t eog[EOG];
};

/* ---- logits ---- */

static float normal(double spread)
{
    return (float)(spread * sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()));
}

/* Peaked, flat, few values, all the same, far out, with what is no number, and zeros of both signs. */
static void fill_logits(float *x, uint32_t n, uint32_t kind)
{
    uint32_t most = chance(2) ? n : 3;
    double spread = kind == 1 ? 0.2 : kind == 4 ? 1000 : 1 + uniform() * 4;
    for (uint32_t i = 0; i < n; i++) {
        x[i] = normal(spread);
        if (kind == 2)
            x[i] = roundf(x[i]);
        if (kind == 3)
            x[i] = 1.5F;
        if (kind == 6)
            x[i] = i % most ? -200 : chance(2) ? -0.0F : 0.0F;
    }
    for (uint32_t i = 0; kind == 0 && i < 3; i++)
        x[below(n)] = (float)(12 + 4 * uniform());
    if (kind != 5)
        return;
    static const float odd[] = {INFINITY, -INFINITY, NAN, 3e38F, -3e38F, -0.0F, 0.0F};
    most = 1 + below(7);
    for (uint32_t i = 0; i < n; i++)
        if (most < 5 ? chance(3) : i % 2 == 0)
            x[i] = odd[most < 5 ? 1 + below(most) % 6 : below(7)];
    if (chance(4))
        for (uint32_t i = 0; i < n; i++)
            x[i] = chance(2) ? -INFINITY : NAN;
}

/* ---- requests ---- */

static void fill_params(struct tr_params *p, uint32_t n_vocab)
{
    static const double hot[] = {0, 0.01, 0.3, 0.7, 1, 1.5, 4, 1e15};
    *p = (struct tr_params){.temperature = hot[below(8)],
                            .top_p = 1,
                            .repetition_penalty = 1,
                            .seed = below(1000),
                            .choice = below(3),
                            .n_top = below(3) * 10,
                            .max_tokens = 100};
    if (chance(2))
        p->top_p = chance(4) ? 0.999 : 0.02 + 0.97 * uniform();
    if (chance(4))
        p->min_p = chance(3) ? 1e-5 : uniform() * 0.3;
    if (chance(3))
        p->top_k = (int32_t)(1 + below(chance(3) ? n_vocab + 5 : 60));
    if (chance(3))
        p->repetition_penalty = 0.7 + uniform();
    if (chance(3))
        p->frequency_penalty = 2 * uniform() - 1;
    if (chance(3))
        p->presence_penalty = 2 * uniform() - 1;
    if (chance(3))
        p->min_tokens = below(60);
    if (chance(4))
        p->flags |= TR_REQ_IGNORE_EOS;
}

static void fill_extra(struct tr_extra *e, uint32_t n_vocab)
{
    e->n_bias = chance(2) ? below(30) : 0;
    e->n_stop = below(4);
    for (uint32_t i = 0; i < e->n_bias; i++) {
        e->bias[i] = (struct tr_bias){.id = below(n_vocab), .value = (float)(10 * uniform() - 5)};
        if (i && chance(5))
            e->bias[i].id = e->bias[i - 1].id;
        if (chance(20))
            e->bias[i].value = chance(2) ? 100 : -100;
    }
    for (uint32_t i = 0; i < e->n_stop; i++)
        e->stop_ids[i] = below(n_vocab);
}

static uint32_t *make_mask(uint32_t n_vocab)
{
    uint32_t n = (n_vocab + 31) / 32, kind = below(8);
    uint32_t *mask = calloc(n, sizeof(*mask));
    if (!mask || kind > 3) {
        free(mask);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++)
        mask[i] = kind == 0 ? UINT32_MAX : kind == 1 ? below(1u << 30) << 2 | below(4) : 0;
    for (uint32_t i = 0; kind == 2 && i < 4; i++) {
        uint32_t id = below(n_vocab);
        mask[id / 32] |= 1u << id % 32;
    }
    return mask; /* kind 3: nothing is allowed */
}

/* The history: some ids often, some once; the last of the output may be drafts. */
static void fill_history(struct row *r, uint32_t n_vocab)
{
    struct tr_sample_in *in = &r->pick.in;
    in->prompt_len = 1 + below(chance(3) ? 200 : 40);
    in->n_out = chance(4) ? 0 : below(chance(3) ? 190 : 30);
    in->n_drafts = in->n_out && chance(3) ? 1 + below(in->n_out < 8 ? in->n_out : 8) : 0;
    uint32_t n = in->prompt_len + in->n_out, few = chance(2) ? n_vocab : 1 + below(20);
    for (uint32_t i = 0; i < n; i++)
        r->ids[i] = chance(3) ? below(n_vocab) : below(few < n_vocab ? few : n_vocab);
}

static void make_row(const struct step *s, uint32_t i, uint32_t out, bool simple)
{
    struct row *r = &s->row[i];
    r->pick = (struct tr_pick){.out = out, .echo = !simple && chance(6), .wants_lp = chance(2)};
    fill_params(&r->params, s->n_vocab);
    fill_extra(&r->extra, s->n_vocab);
    fill_history(r, s->n_vocab);
    r->pick.id = below(s->n_vocab);
    r->pick.wants_lp |= r->pick.echo;
    r->pick.in.params = &r->params;
    r->pick.in.ids = r->ids;
    r->pick.in.drafts = r->drafts;
    r->pick.in.eog = s->eog;
    r->pick.in.n_eog = EOG;
    if (chance(2))
        r->pick.in.extra = &r->extra;
    r->pick.in.mask = r->mask = make_mask(s->n_vocab);
    if (simple)
        r->params.repetition_penalty = 1.1;
}

/* Puts each history where the rows' tables say, blocks of all rows mixed. */
static void scatter(const struct step *s)
{
    uint32_t order[POOL], next = 0;
    for (uint32_t i = 0; i < POOL; i++) {
        uint32_t j = below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (uint32_t i = 0; i < POOL * TR_OPS_KV_BLOCK; i++)
        s->kv_ids[i] = below(s->n_vocab);
    for (uint32_t k = 0; k < s->n; k++) {
        struct row *r = &s->row[k];
        struct tr_sample_in *in = &r->pick.in;
        uint32_t n = in->prompt_len + in->n_out, blocks = n / TR_OPS_KV_BLOCK + 1;
        for (uint32_t b = 0; b < blocks; b++)
            r->blocks[b] = order[next++ % POOL];
        if (next > POOL) { /* none left: as short as can be, in a block that it shares */
            next = POOL;
            in->prompt_len = 1;
            in->n_out = in->n_drafts = 0;
            r->ids[0] = s->kv_ids[(size_t)r->blocks[0] * TR_OPS_KV_BLOCK];
            continue;
        }
        for (uint32_t p = 0; p < n; p++)
            s->kv_ids[r->blocks[p / TR_OPS_KV_BLOCK] * TR_OPS_KV_BLOCK + p % TR_OPS_KV_BLOCK] =
                r->ids[p];
        for (uint32_t p = 0; p < in->n_drafts; p++) { /* not in the ring */
            uint32_t at = n - in->n_drafts + p;
            r->drafts[p] = r->ids[at];
            r->ids[at] = UINT32_MAX;
        }
    }
}

static void make_step(struct step *s, uint32_t seed)
{
    static const uint32_t sizes[SAMPLING_KINDS] = {1,    5,    64,   130,  1000, 2047,
                                                   4096, 4097, 5003, 9001, 300,  9001};
    uint32_t kind = seed % SAMPLING_KINDS;
    bool wave = kind == 10; /* more touched rows than there are slots for */
    state = seed * 77u + 5;
    s->n_vocab = sizes[kind];
    s->n_rows = wave ? MAX_OUT : 1 + below(4);
    s->logits = calloc((size_t)s->n_rows * s->n_vocab, sizeof(float));
    s->row = calloc(s->n_rows, sizeof(*s->row));
    s->kv_ids = calloc(POOL * TR_OPS_KV_BLOCK, sizeof(uint32_t));
    if (!s->logits || !s->row || !s->kv_ids)
        abort();
    for (uint32_t i = 0; i < EOG; i++)
        s->eog[i] = below(s->n_vocab);
    for (uint32_t i = 0; i < s->n_rows; i++)
        fill_logits(s->logits + (size_t)i * s->n_vocab, s->n_vocab,
                    kind == 11 ? 1 + below(3) : below(7));
    s->n = 0;
    for (uint32_t i = 0; i < s->n_rows; i++)
        if (wave || s->n_rows == 1 || !chance(5)) /* some rows are late: nothing is picked */
            make_row(s, s->n++, i, wave);
    scatter(s);
}

static void free_step(struct step *s)
{
    for (uint32_t i = 0; i < s->n_rows; i++)
        free(s->row[i].mask);
    free(s->logits);
    free(s->row);
    free(s->kv_ids);
}

/* ---- both ---- */

static void by_cpu(const struct step *s, struct tr_picked *out)
{
    struct tr_sampler *sampler = tr_sampler_new(1, s->n_vocab, CTX, NULL);
    size_t len = s->n_vocab * sizeof(float);
    float *work = malloc(len);
    if (!sampler || !work)
        abort();
    for (uint32_t i = 0; i < s->n; i++) {
        const struct tr_pick *p = &s->row[i].pick;
        memcpy(work, s->logits + (size_t)p->out * s->n_vocab, len);
        if (p->echo) {
            tr_sample_logprob(sampler, 0, work, p->id, p->in.params->n_top, &out[i].lp);
            out[i].id = p->id;
        } else {
            out[i].id = tr_sample(sampler, 0, work, &p->in, p->wants_lp ? &out[i].lp : NULL);
        }
    }
    free(work);
    tr_sampler_free(sampler);
}

/* A copy on the device. */
static void *put(const struct tr_ops *ops, struct tr_dev *dev, const void *from, size_t len)
{
    void *to = ops->take(dev, len, false);
    if (!to)
        abort();
    ops->upload(dev, to, from, len);
    return to;
}

static void by_device(const struct tr_ops *ops, struct tr_dev *dev, const struct step *s,
                      struct tr_picked *out)
{
    struct tr_pick_cuda_config c = {
        .n_vocab = s->n_vocab, .n_ctx = CTX, .max_out = s->n_rows, .n_eog = EOG};
    struct tr_pick_cuda *k = tr_pick_cuda_open(ops, dev, &c);
    struct tr_place places[MAX_OUT] = {0};
    struct tr_pick picks[MAX_OUT];
    size_t logits_len = (size_t)s->n_rows * s->n_vocab * sizeof(float);
    size_t ids_len = POOL * TR_OPS_KV_BLOCK * sizeof(uint32_t);
    if (!k)
        abort();
    void *tables[MAX_OUT];
    for (uint32_t i = 0; i < s->n; i++) {
        const struct tr_sample_in *in = &s->row[i].pick.in;
        picks[i] = s->row[i].pick;
        tables[i] = put(ops, dev, s->row[i].blocks, sizeof(s->row[i].blocks));
        places[picks[i].out] =
            (struct tr_place){.blocks = tables[i], .pos = in->prompt_len + in->n_out - 1};
    }
    struct tr_kv kv = {.n_blocks = POOL, .ids = put(ops, dev, s->kv_ids, ids_len)};
    struct tr_cuda_logits from = {.x = put(ops, dev, s->logits, logits_len), .kv = &kv};
    void *placed = put(ops, dev, places, sizeof(places));
    from.places = placed;
    for (int again = 0; again < 2; again++) { /* scratch is as it was after every step */
        ops->upload(dev, from.x, s->logits, logits_len);
        tr_pick_cuda_send(k, &from, picks, s->n);
        ops->download(dev, NULL, NULL, 0);
        tr_pick_cuda_read(k, out, s->n);
    }
    ops->give(dev, from.x, logits_len);
    ops->give(dev, kv.ids, ids_len);
    ops->give(dev, placed, sizeof(places));
    for (uint32_t i = 0; i < s->n; i++)
        ops->give(dev, tables[i], sizeof(s->row[i].blocks));
    tr_pick_cuda_close(k);
}

static void tell(const struct step *s, uint32_t seed, uint32_t i, const struct tr_picked *a,
                 const struct tr_picked *b, char what[256])
{
    const struct tr_params *p = &s->row[i].params;
    snprintf(what, 256,
             "seed %u, pick %u: vocabulary %u, temperature %g, top_p %g, min_p %g, top_k %d, "
             "repetition %g, mask %d, echo %d: id %u, not %u; logprob %g, not %g",
             seed, i, s->n_vocab, p->temperature, p->top_p, p->min_p, p->top_k,
             p->repetition_penalty, s->row[i].mask != NULL, s->row[i].pick.echo, b->id, a->id,
             (double)b->lp.logprob, (double)a->lp.logprob);
}

bool sampling_case(const struct tr_ops *ops, struct tr_dev *dev, uint32_t seed, char what[256])
{
    static struct tr_picked cpu[MAX_OUT], device[MAX_OUT];
    struct step s;
    bool same = true;
    memset(cpu, 0, sizeof(cpu));
    memset(device, 0, sizeof(device));
    make_step(&s, seed);
    by_cpu(&s, cpu);
    by_device(ops, dev, &s, device);
    for (uint32_t i = 0; i < s.n && same; i++) {
        same = memcmp(&cpu[i], &device[i], sizeof(cpu[i])) == 0;
        if (!same)
            tell(&s, seed, i, &cpu[i], &device[i], what);
    }
    free_step(&s);
    return same;
}
