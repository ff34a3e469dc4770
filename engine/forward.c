/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/forward.h"

#include "base/assert.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

_Static_assert((int)TR_KV_BLOCK == (int)TR_OPS_KV_BLOCK, "one block size in all layers");
_Static_assert((int)TR_KV_F16 == (int)TR_OPS_KV_F16 && (int)TR_KV_Q8_0 == (int)TR_OPS_KV_Q8_0 &&
                   (int)TR_KV_F32 == (int)TR_OPS_KV_F32,
               "the two enumerations are the same");

struct tr_forward {
    const struct tr_model *m;
    const struct tr_ops *ops;
    struct tr_dev *dev;
    struct tr_forward_config c;
    struct tr_kv kv;
    size_t kv_len;
    struct tr_rope rope, rope_local; /* of layers that see everything, of those with a window */
    void (*tap)(void *arg, uint32_t stage, const float *x, uint32_t n_rows);
    void *tap_arg;
    /* Scratch, all in one region. */
    uint8_t *scratch;
    size_t scratch_len;
    void *angles, *angles_local;
    uint32_t *tokens;           /* [max_rows] */
    struct tr_place *places;    /* [max_rows] */
    struct tr_place *out_place; /* [max_out] */
    uint32_t *out_row;          /* [max_out] the row that fills these logits */
    float *x;                   /* [max_rows, n_embd] the residual stream */
    float *x_out;               /* [max_out, n_embd] its rows with logits */
    float *h;                   /* [max_rows, n_embd] normed rows, and what a layer's half adds */
    float *q, *attn;            /* [max_rows, n_head * head_dim] */
    float *q_out;               /* [max_out, n_head * head_dim] */
    float *k, *v;               /* [max_rows, n_head_kv * head_dim] */
    float *gate, *up;           /* [max_rows, n_ff] */
    struct tr_act act_embd, act_attn, act_ff;
};

uint64_t tr_forward_kv_block_bytes(const struct tr_model *m, enum tr_kv_type type)
{
    return (uint64_t)m->hp.n_layer *
           tr_kv_block_bytes((enum tr_ops_kv)type, m->hp.n_head_kv, m->hp.head_dim);
}

/* The next `n` bytes of the scratch; in the counting pass there is no memory yet. */
static void *carve(struct tr_forward *f, size_t *used, size_t n)
{
    void *p = f->scratch ? f->scratch + *used : NULL;
    *used += (n + TR_OPS_ALIGN - 1) & ~(size_t)(TR_OPS_ALIGN - 1);
    return p;
}

static float *carve_floats(struct tr_forward *f, size_t *used, uint32_t rows, uint32_t dim)
{
    return carve(f, used, (size_t)rows * dim * sizeof(float));
}

static void carve_act(struct tr_forward *f, size_t *used, struct tr_act *a, uint32_t dim)
{
    void *mem = carve(f, used, f->ops->act_bytes(f->dev, f->c.max_rows, dim));
    if (mem)
        f->ops->act_init(f->dev, a, f->c.max_rows, dim, mem);
}

/* Places everything; called once to count and once with memory.  Returns the bytes. */
static size_t lay_out(struct tr_forward *f)
{
    const struct tr_hparams *hp = &f->m->hp;
    uint32_t rows = f->c.max_rows, outs = f->c.max_out;
    uint32_t q_dim = hp->n_head * hp->head_dim, kv_dim = hp->n_head_kv * hp->head_dim;
    size_t used = 0;
    f->angles = carve(f, &used, tr_rope_bytes(hp->n_rot, f->c.n_ctx));
    f->angles_local = carve(f, &used, hp->window ? tr_rope_bytes(hp->n_rot, f->c.n_ctx) : 0);
    f->tokens = carve(f, &used, rows * sizeof(*f->tokens));
    f->places = carve(f, &used, rows * sizeof(*f->places));
    f->out_place = carve(f, &used, outs * sizeof(*f->out_place));
    f->out_row = carve(f, &used, outs * sizeof(*f->out_row));
    f->x = carve_floats(f, &used, rows, hp->n_embd);
    f->x_out = carve_floats(f, &used, outs, hp->n_embd);
    f->h = carve_floats(f, &used, rows, hp->n_embd);
    f->q = carve_floats(f, &used, rows, q_dim);
    f->attn = carve_floats(f, &used, rows, q_dim);
    f->q_out = carve_floats(f, &used, outs, q_dim);
    f->k = carve_floats(f, &used, rows, kv_dim);
    f->v = carve_floats(f, &used, rows, kv_dim);
    f->gate = carve_floats(f, &used, rows, hp->n_ff);
    f->up = carve_floats(f, &used, rows, hp->n_ff);
    carve_act(f, &used, &f->act_embd, hp->n_embd);
    carve_act(f, &used, &f->act_attn, q_dim);
    carve_act(f, &used, &f->act_ff, hp->n_ff);
    return used;
}

/* A context beyond the original one takes the long factors, whatever the length of a sequence. */
static const float *rope_factors(const struct tr_forward *f)
{
    const struct tr_model *m = f->m;
    if (m->hp.rope.scaling != TR_ROPE_LONG)
        return m->rope_freqs;
    return f->c.n_ctx > m->hp.rope.n_ctx_orig ? m->rope_long : m->rope_short;
}

static void init_rope(struct tr_forward *f)
{
    const struct tr_hparams *hp = &f->m->hp;
    double freq[TR_OPS_HEAD_MAX / 2];
    tr_rope_spec_freqs(&hp->rope, hp->n_rot, rope_factors(f), freq);
    tr_rope_init(&f->rope, hp->rope_style, hp->n_rot, f->c.n_ctx, freq, (float)hp->rope.amplitude,
                 f->angles);
    if (!hp->window)
        return;
    tr_rope_spec_freqs(&hp->rope_local, hp->n_rot, NULL, freq);
    tr_rope_init(&f->rope_local, hp->rope_style, hp->n_rot, f->c.n_ctx, freq,
                 (float)hp->rope_local.amplitude, f->angles_local);
}

static int take_memory(struct tr_forward *f, struct tr_errbuf *err)
{
    const struct tr_hparams *hp = &f->m->hp;
    f->kv = (struct tr_kv){.type = (enum tr_ops_kv)f->c.kv_type,
                           .n_layer = hp->n_layer,
                           .n_blocks = f->c.n_kv_blocks,
                           .n_head_kv = hp->n_head_kv,
                           .head_dim = hp->head_dim};
    f->kv.block_bytes = tr_kv_block_bytes(f->kv.type, hp->n_head_kv, hp->head_dim);
    if (f->kv.block_bytes == 0)
        return tr_errf(err, -EINVAL, "heads of %" PRIu32 " elements cannot be kept in this KV type",
                       hp->head_dim);
    if (__builtin_mul_overflow(f->kv.block_bytes * hp->n_layer, (size_t)f->c.n_kv_blocks,
                               &f->kv_len) ||
        !(f->kv.mem = tr_model_map(f->kv_len, false)))
        return tr_errf(err, -ENOMEM, "no memory for %" PRIu32 " KV blocks of %" PRIu64 " bytes",
                       f->c.n_kv_blocks, tr_forward_kv_block_bytes(f->m, f->c.kv_type));
    f->scratch_len = lay_out(f);
    f->scratch = tr_model_map(f->scratch_len, true);
    if (!f->scratch)
        return tr_errf(err, -ENOMEM, "no memory for %zu bytes of scratch (%" PRIu32 " rows)",
                       f->scratch_len, f->c.max_rows);
    lay_out(f);
    return 0;
}

struct tr_forward *tr_forward_open(const struct tr_model *m, const struct tr_ops *ops,
                                   struct tr_dev *dev, const struct tr_forward_config *c,
                                   struct tr_errbuf *err)
{
    TR_ASSERT(c->max_rows && c->max_out && c->max_out <= c->max_rows);
    TR_ASSERT(c->n_ctx && c->n_ctx <= (uint64_t)c->n_kv_blocks * TR_KV_BLOCK);
    struct tr_forward *f = calloc(1, sizeof(*f));
    if (!f) {
        tr_errf(err, -ENOMEM, "no memory");
        return NULL;
    }
    f->m = m;
    f->ops = ops;
    f->dev = dev;
    f->c = *c;
    if (take_memory(f, err) < 0) {
        tr_forward_close(f);
        return NULL;
    }
    init_rope(f);
    return f;
}

/* Checks the batch (our scheduler made it, so asserts) and spreads it over the arrays that the
 * operations read. */
static void spread(struct tr_forward *f, const struct tr_batch *b)
{
    uint32_t n_pos = 0;
    TR_ASSERT(b->n_rows >= 1 && b->n_rows <= f->c.max_rows && b->n_out <= f->c.max_out);
    for (uint32_t o = 0; o < b->n_out; o++)
        f->out_row[o] = UINT32_MAX;
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct tr_batch_row *r = &b->rows[i];
        TR_ASSERT(r->token < f->m->hp.n_vocab && r->pos < f->c.n_ctx && r->seq < b->n_seqs);
        const struct tr_kv_table *t = &b->seqs[r->seq];
        TR_ASSERT(r->pos / TR_KV_BLOCK < t->n_blocks);
        TR_ASSERT(t->blocks[r->pos / TR_KV_BLOCK] < f->c.n_kv_blocks);
        f->tokens[i] = r->token;
        n_pos = r->pos < n_pos ? n_pos : r->pos + 1;
        f->places[i] = (struct tr_place){.blocks = t->blocks, .pos = r->pos};
        if (r->out == TR_NO_LOGITS)
            continue;
        TR_ASSERT(r->out < b->n_out && f->out_row[r->out] == UINT32_MAX);
        f->out_row[r->out] = i;
        f->out_place[r->out] = f->places[i];
    }
    for (uint32_t o = 0; o < b->n_out; o++)
        TR_ASSERT(f->out_row[o] != UINT32_MAX);
    tr_rope_reach(&f->rope, n_pos);
    if (f->m->hp.window)
        tr_rope_reach(&f->rope_local, n_pos);
}

/* What a layer's halves work on: all rows, and from the last layer's attention on only those with
 * logits. */
struct rows {
    const struct tr_place *places;
    float *x, *q;
    uint32_t n;
};

static struct rows only_out(struct tr_forward *f, const struct rows *all, uint32_t n_out)
{
    const struct tr_hparams *hp = &f->m->hp;
    size_t dim = hp->n_embd, q_dim = (size_t)hp->n_head * hp->head_dim;
    f->ops->defer(f->dev, false);
    for (uint32_t o = 0; o < n_out; o++) {
        size_t r = f->out_row[o];
        memcpy(f->x_out + o * dim, all->x + r * dim, dim * sizeof(float));
        memcpy(f->q_out + o * q_dim, all->q + r * q_dim, q_dim * sizeof(float));
    }
    f->ops->defer(f->dev, true);
    return (struct rows){.places = f->out_place, .x = f->x_out, .q = f->q_out, .n = n_out};
}

/* A norm of each head of x [n, n_head, head_dim], where the model has one, and its turn. */
static void turn(struct tr_forward *f, const struct tr_rope *rope, const float *norm, float *x,
                 uint32_t n_head, const struct rows *r)
{
    const struct tr_hparams *hp = &f->m->hp;
    if (norm)
        f->ops->head_norm(f->dev, x, norm, hp->norm_eps, r->n, n_head, hp->head_dim);
    f->ops->rope(f->dev, rope, x, r->places, r->n, n_head, hp->head_dim);
}

static void add_bias(struct tr_forward *f, float *x, const float *bias, uint32_t n_rows,
                     uint32_t dim)
{
    if (bias)
        f->ops->add_bias(f->dev, x, bias, n_rows, dim);
}

/* q, k, v of the normed rows in h; K and V are stored before anybody reads them. */
static void project(struct tr_forward *f, uint32_t layer, const struct rows *r)
{
    const struct tr_ops *ops = f->ops;
    const struct tr_hparams *hp = &f->m->hp;
    const struct tr_layer *l = &f->m->layers[layer];
    ops->act_set(f->dev, &f->act_embd, f->h, r->n);
    ops->matmul_n(f->dev, 3, (const struct tr_mat *const[]){&l->q, &l->k, &l->v}, &f->act_embd,
                  (float *const[]){r->q, f->k, f->v});
    add_bias(f, r->q, l->q_bias, r->n, hp->n_head * hp->head_dim);
    add_bias(f, f->k, l->k_bias, r->n, hp->n_head_kv * hp->head_dim);
    add_bias(f, f->v, l->v_bias, r->n, hp->n_head_kv * hp->head_dim);
    const struct tr_rope *rope = hp->local[layer] ? &f->rope_local : &f->rope;
    turn(f, rope, l->q_norm, r->q, hp->n_head, r);
    turn(f, rope, l->k_norm, f->k, hp->n_head_kv, r);
    ops->kv_write(f->dev, &f->kv, layer, r->places, r->n, f->k, f->v);
}

/* From q to what attention adds to x, in h. */
static void attend(struct tr_forward *f, uint32_t layer, const struct rows *r)
{
    const struct tr_ops *ops = f->ops;
    const struct tr_hparams *hp = &f->m->hp;
    const struct tr_layer *l = &f->m->layers[layer];
    const struct tr_attend_params p = {.scale = hp->attn_scale,
                                       .window = hp->local[layer] ? hp->window : 0};
    ops->attention(f->dev, &f->kv, layer, r->places, r->n, r->q, hp->n_head, &p, f->attn);
    ops->act_set(f->dev, &f->act_attn, f->attn, r->n);
    ops->matmul(f->dev, &l->attn_out, &f->act_attn, f->h);
    add_bias(f, f->h, l->attn_out_bias, r->n, hp->n_embd);
}

/* From the normed rows in h to what the feed-forward half adds to x, in h again. */
static void feed_forward(struct tr_forward *f, uint32_t layer, const struct rows *r)
{
    const struct tr_ops *ops = f->ops;
    const struct tr_layer *l = &f->m->layers[layer];
    ops->act_set(f->dev, &f->act_embd, f->h, r->n);
    ops->matmul_n(f->dev, 2, (const struct tr_mat *const[]){&l->gate, &l->up}, &f->act_embd,
                  (float *const[]){f->gate, f->up});
    if (f->m->hp.ffn_act == TR_FFN_GELU)
        ops->gelu_mul(f->dev, f->gate, f->up, r->n, f->m->hp.n_ff);
    else
        ops->silu_mul(f->dev, f->gate, f->up, r->n, f->m->hp.n_ff);
    ops->act_set(f->dev, &f->act_ff, f->gate, r->n);
    ops->matmul(f->dev, &l->down, &f->act_ff, f->h);
}

/* Adds to x what a half of a layer left in h, through a norm of its own where there is one; h is
 * then x normed for what comes next. */
static void join(struct tr_forward *f, const float *post, const float *next, const struct rows *r)
{
    const struct tr_hparams *hp = &f->m->hp;
    if (post)
        f->ops->norm_add_rms_norm(f->dev, r->x, f->h, post, next, hp->norm_eps, r->n, hp->n_embd,
                                  f->h);
    else
        f->ops->add_rms_norm(f->dev, r->x, f->h, next, hp->norm_eps, r->n, hp->n_embd, f->h);
}

static void tap(const struct tr_forward *f, uint32_t stage, const float *x, uint32_t n_rows)
{
    if (!f->tap)
        return;
    f->ops->defer(f->dev, false);
    f->tap(f->tap_arg, stage, x, n_rows);
    f->ops->defer(f->dev, true);
}

void tr_forward_run(struct tr_forward *f, const struct tr_batch *batch, float *logits,
                    void (*beat)(void *), void *arg)
{
    const struct tr_ops *ops = f->ops;
    const struct tr_model *m = f->m;
    const struct tr_hparams *hp = &m->hp;
    spread(f, batch);
    struct rows r = {.places = f->places, .x = f->x, .q = f->q, .n = batch->n_rows};
    ops->defer(f->dev, true);
    ops->embed(f->dev, &m->token_embd, f->tokens, r.n, r.x);
    if (hp->embd_scale != 1)
        ops->scale(f->dev, r.x, hp->embd_scale, r.n, hp->n_embd);
    tap(f, 0, r.x, r.n);
    ops->rms_norm(f->dev, r.x, m->layers[0].attn_norm, hp->norm_eps, r.n, hp->n_embd, f->h);
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        const struct tr_layer *l = &m->layers[i];
        bool last = i + 1 == hp->n_layer;
        project(f, i, &r);
        if (last && batch->n_out == 0) {
            ops->defer(f->dev, false);
            if (beat)
                beat(arg);
            return;
        }
        if (last)
            r = only_out(f, &r, batch->n_out);
        attend(f, i, &r);
        join(f, l->attn_post_norm, l->ffn_norm, &r);
        feed_forward(f, i, &r);
        join(f, l->ffn_post_norm, last ? m->output_norm : l[1].attn_norm, &r);
        tap(f, i + 1, r.x, r.n);
        if (beat)
            beat(arg);
    }
    tap(f, hp->n_layer + 1, f->h, r.n);
    ops->act_set(f->dev, &f->act_embd, f->h, r.n);
    ops->matmul(f->dev, &m->output, &f->act_embd, logits);
    ops->defer(f->dev, false);
}

void tr_forward_tap(struct tr_forward *f,
                    void (*fn)(void *arg, uint32_t stage, const float *x, uint32_t n_rows),
                    void *arg)
{
    f->tap = fn;
    f->tap_arg = arg;
}

uint64_t tr_forward_scratch_bytes(const struct tr_forward *f)
{
    return f->scratch_len;
}

void tr_forward_close(struct tr_forward *f)
{
    if (!f)
        return;
    if (f->kv.mem)
        munmap(f->kv.mem, f->kv_len);
    if (f->scratch)
        munmap(f->scratch, f->scratch_len);
    free(f);
}
