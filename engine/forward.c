/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/forward.h"

#include "base/assert.h"
#include "engine/angles.h"
#include "engine/pass.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

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
    struct tr_pass pass;
    struct tr_angles angles;       /* of layers that see everything */
    struct tr_angles local_angles; /* of those with a window */
    void (*tap)(void *arg, uint32_t stage, const float *x, uint32_t n_rows);
    void *tap_arg;
    float *tapped; /* [max_rows, n_embd] what it sees of a device that is apart */
    /* Scratch, all in one region. */
    uint8_t *scratch;
    size_t scratch_len;
    void *angles_mem, *local_mem;
    float *x;         /* [max_rows, n_embd] the residual stream */
    float *x_out;     /* [max_out, n_embd] its rows with logits */
    float *h;         /* [max_rows, n_embd] normed rows, and what a layer's half adds */
    float *q, *attn;  /* [max_rows, n_head * head_dim] */
    float *q_out;     /* [max_out, n_head * head_dim] */
    float *k, *v;     /* [max_rows, n_head_kv * head_dim] */
    float *gate, *up; /* [max_rows, n_ff] */
    float *logits;    /* [max_out, n_vocab] of a device that is apart, else NULL */
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
    *used += (n + TR_OPS_LINE - 1) & ~(size_t)(TR_OPS_LINE - 1);
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
    f->angles_mem = carve(f, &used, tr_rope_bytes(hp->n_rot, f->c.n_ctx));
    f->local_mem = carve(f, &used, hp->window ? tr_rope_bytes(hp->n_rot, f->c.n_ctx) : 0);
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
    if (f->ops->apart)
        f->logits = carve_floats(f, &used, outs, hp->n_vocab);
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

static int init_angles(struct tr_forward *f, struct tr_angles *a, const struct tr_rope_spec *s,
                       const float *factors, void *mem)
{
    const struct tr_hparams *hp = &f->m->hp;
    double freq[TR_OPS_HEAD_MAX / 2];
    tr_rope_spec_freqs(s, hp->n_rot, factors, freq);
    return tr_angles_init(a, f->ops, hp->rope_style, hp->n_rot, f->c.n_ctx, freq,
                          (float)s->amplitude, mem);
}

static struct tr_pass_bounds pass_bounds(const struct tr_forward *f)
{
    uint32_t max_seqs = f->c.max_seqs ? f->c.max_seqs : f->c.max_rows;
    return (struct tr_pass_bounds){.n_vocab = f->m->hp.n_vocab,
                                   .n_ctx = f->c.n_ctx,
                                   .n_kv_blocks = f->c.n_kv_blocks,
                                   .max_rows = f->c.max_rows,
                                   .max_out = f->c.max_out,
                                   .max_seqs = f->ops->apart ? max_seqs : 0};
}

static int take_kv(struct tr_forward *f, struct tr_errbuf *err)
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
    size_t per_block = f->kv.block_bytes * hp->n_layer, ids = f->c.ids ? TR_FORWARD_IDS_BYTES : 0;
    if (__builtin_mul_overflow(per_block + ids, (size_t)f->c.n_kv_blocks, &f->kv_len) ||
        !(f->kv.mem = f->ops->take(f->dev, f->kv_len, false)))
        return tr_errf(err, -ENOMEM, "no memory for %" PRIu32 " KV blocks of %" PRIu64 " bytes",
                       f->c.n_kv_blocks, tr_forward_kv_block_bytes(f->m, f->c.kv_type));
    if (f->c.ids)
        f->kv.ids = (uint32_t *)(void *)((uint8_t *)f->kv.mem + per_block * f->c.n_kv_blocks);
    return 0;
}

static int take_scratch(struct tr_forward *f, struct tr_errbuf *err)
{
    const struct tr_hparams *hp = &f->m->hp;
    f->scratch_len = lay_out(f);
    f->scratch = f->ops->take(f->dev, f->scratch_len, true);
    if (!f->scratch)
        return tr_errf(err, -ENOMEM, "no memory for %zu bytes of scratch (%" PRIu32 " rows)",
                       f->scratch_len, f->c.max_rows);
    lay_out(f);
    if (init_angles(f, &f->angles, &hp->rope, rope_factors(f), f->angles_mem) < 0 ||
        (hp->window && init_angles(f, &f->local_angles, &hp->rope_local, NULL, f->local_mem) < 0))
        return tr_errf(err, -ENOMEM, "no memory for the angles of %" PRIu32 " positions",
                       f->c.n_ctx);
    struct tr_pass_bounds b = pass_bounds(f);
    return tr_pass_open(&f->pass, &b, f->ops, f->dev, err);
}

uint64_t tr_forward_measure(const struct tr_model *m, const struct tr_ops *ops, struct tr_dev *dev,
                            const struct tr_forward_config *c)
{
    struct tr_forward f = {.m = m, .ops = ops, .dev = dev, .c = *c};
    struct tr_pass_bounds b = pass_bounds(&f);
    return lay_out(&f) + tr_pass_bytes(&b);
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
    if (take_kv(f, err) < 0 || take_scratch(f, err) < 0) {
        tr_forward_close(f);
        return NULL;
    }
    return f;
}

/* What a layer's halves work on: all rows, and from the last layer's attention on only those with
 * logits. */
struct rows {
    const struct tr_place *places;
    float *x, *q;
    uint32_t n;
};

static struct rows only_out(struct tr_forward *f, const struct rows *all)
{
    const struct tr_hparams *hp = &f->m->hp;
    const struct tr_pass *p = &f->pass;
    f->ops->gather(f->dev, all->x, p->out_row, p->n_out, hp->n_embd, f->x_out);
    f->ops->gather(f->dev, all->q, p->out_row, p->n_out, hp->n_head * hp->head_dim, f->q_out);
    return (struct rows){.places = p->out_place, .x = f->x_out, .q = f->q_out, .n = p->n_out};
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
    const struct tr_rope *rope = hp->local[layer] ? &f->local_angles.dev : &f->angles.dev;
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
    if (f->ops->apart) {
        f->ops->download(f->dev, f->tapped, x, (size_t)n_rows * f->m->hp.n_embd * sizeof(float));
        x = f->tapped;
    }
    f->tap(f->tap_arg, stage, x, n_rows);
    f->ops->defer(f->dev, true);
}

/* Angles of all positions of the pass. */
static void reach(struct tr_forward *f)
{
    tr_angles_reach(&f->angles, f->ops, f->dev, f->pass.n_pos);
    if (f->m->hp.window)
        tr_angles_reach(&f->local_angles, f->ops, f->dev, f->pass.n_pos);
}

/* The operations of the pass, to logits [n_out, n_vocab]. */
static void operate(struct tr_forward *f, float *logits, void (*beat)(void *), void *arg)
{
    const struct tr_ops *ops = f->ops;
    const struct tr_model *m = f->m;
    const struct tr_hparams *hp = &m->hp;
    const struct tr_pass *p = &f->pass;
    struct rows r = {.places = p->places, .x = f->x, .q = f->q, .n = p->n_rows};
    if (f->kv.ids)
        ops->note_ids(f->dev, &f->kv, r.places, p->tokens, r.n);
    ops->defer(f->dev, true);
    ops->embed(f->dev, &m->token_embd, p->tokens, r.n, r.x);
    if (hp->embd_scale != 1)
        ops->scale(f->dev, r.x, hp->embd_scale, r.n, hp->n_embd);
    tap(f, 0, r.x, r.n);
    ops->rms_norm(f->dev, r.x, m->layers[0].attn_norm, hp->norm_eps, r.n, hp->n_embd, f->h);
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        const struct tr_layer *l = &m->layers[i];
        bool last = i + 1 == hp->n_layer;
        project(f, i, &r);
        if (last && p->n_out == 0) {
            ops->defer(f->dev, false);
            if (beat)
                beat(arg);
            return;
        }
        if (last)
            r = only_out(f, &r);
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

/* Rows of the recorded pass that a batch is made with, or 0. */
static uint32_t recorded_rows(const struct tr_forward *f, uint32_t n_rows)
{
    uint32_t n =
        f->ops->bucket && !f->tap && n_rows <= f->c.max_out ? f->ops->bucket(f->dev, n_rows) : 0;
    return n < f->c.max_out ? n : f->c.max_out;
}

/* A pass of n rows, all with logits, of which those of the batch are there. */
static void run_recorded(struct tr_forward *f, const struct tr_batch *batch, uint32_t n,
                         void (*beat)(void *), void *arg)
{
    tr_pass_set(&f->pass, batch, n, n);
    reach(f);
    if (f->ops->replay(f->dev, n)) {
        if (beat)
            beat(arg);
        return;
    }
    operate(f, f->logits, beat, arg);
    f->ops->record_end(f->dev);
}

void tr_forward_run(struct tr_forward *f, const struct tr_batch *batch, float *logits,
                    void (*beat)(void *), void *arg)
{
    TR_ASSERT(batch->n_rows >= 1 && (logits || f->logits));
    uint32_t recorded = batch->n_out == batch->n_rows ? recorded_rows(f, batch->n_rows) : 0;
    if (recorded) {
        run_recorded(f, batch, recorded, beat, arg);
    } else {
        tr_pass_set(&f->pass, batch, batch->n_rows, batch->n_out);
        reach(f);
        operate(f, f->logits ? f->logits : logits, beat, arg);
    }
    if (f->logits && logits)
        f->ops->download(f->dev, logits, f->logits,
                         (size_t)batch->n_out * f->m->hp.n_vocab * sizeof(float));
}

void tr_forward_record(struct tr_forward *f)
{
    for (uint32_t n = 1, rows; (rows = recorded_rows(f, n)) != 0; n = rows + 1) {
        run_recorded(f, &(struct tr_batch){0}, rows, NULL, NULL);
        f->ops->download(f->dev, NULL, NULL, 0);
    }
}

struct tr_forward_out tr_forward_out(const struct tr_forward *f)
{
    return (struct tr_forward_out){.logits = f->logits, .places = f->pass.out_place, .kv = &f->kv};
}

void tr_forward_tap(struct tr_forward *f,
                    void (*fn)(void *arg, uint32_t stage, const float *x, uint32_t n_rows),
                    void *arg)
{
    f->tap = fn;
    f->tap_arg = arg;
    if (!f->tapped && f->ops->apart)
        f->tapped = calloc((size_t)f->c.max_rows * f->m->hp.n_embd, sizeof(float));
    TR_ASSERT(f->tapped || !f->ops->apart);
}

uint64_t tr_forward_scratch_bytes(const struct tr_forward *f)
{
    return tr_forward_measure(f->m, f->ops, f->dev, &f->c);
}

void tr_forward_close(struct tr_forward *f)
{
    if (!f)
        return;
    f->ops->give(f->dev, f->kv.mem, f->kv_len);
    f->ops->give(f->dev, f->scratch, f->scratch_len);
    tr_pass_close(&f->pass);
    tr_angles_fini(&f->angles);
    tr_angles_fini(&f->local_angles);
    free(f->tapped);
    free(f);
}
