/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of a device apart: what they are given is looked at, and waits (apart.c). */
#include "testrig/apart_priv.h"

static const float *floats(const struct tr_dev *dev, const float *p, size_t n, size_t each,
                           const char *what)
{
    return tr_apart_ours(dev, p, n * each * sizeof(float), what);
}

static float *floats_out(const struct tr_dev *dev, float *p, size_t n, size_t each,
                         const char *what)
{
    (void)floats(dev, p, n, each, what);
    return p;
}

/* What of a batch lies in memory is looked at when it is used. */
static struct tr_dev *the; /* whose regions hold the tables */

static void check_places(const struct call *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->places[i].pos != TR_NO_POS)
            (void)tr_apart_ours(the, c->places[i].blocks,
                                (c->places[i].pos / TR_OPS_KV_BLOCK + 1) * sizeof(uint32_t),
                                "a table");
}

static const struct tr_place *places_of(struct tr_dev *dev, const struct tr_place *p, uint32_t n)
{
    the = dev;
    return tr_apart_ours(dev, p, n * sizeof(*p), "places");
}

static size_t apart_mat_bytes(const struct tr_dev *dev, enum tr_tensor_type type, uint32_t n_in,
                              uint32_t n_out)
{
    return tr_ops_cpu.mat_bytes(dev->cpu, type, n_in, n_out);
}

static void apart_mat_prepare(struct tr_dev *dev, struct tr_mat *m, enum tr_tensor_type type,
                              uint32_t n_in, uint32_t n_out, const void *data, void *mem)
{
    tr_ops_cpu.mat_prepare(dev->cpu, m, type, n_in, n_out, data, mem);
}

static void apart_mat_adopt(struct tr_dev *dev, struct tr_mat *m, enum tr_tensor_type type,
                            uint32_t n_in, uint32_t n_out, const void *mem)
{
    tr_ops_cpu.mat_adopt(dev->cpu, m, type, n_in, n_out, mem);
}

static void run_embed(struct tr_dev *cpu, const struct call *c)
{
    tr_ops_cpu.embed(cpu, &c->mat[0], c->tokens, c->n, c->out[0]);
}

static void apart_embed(struct tr_dev *dev, const struct tr_mat *m, const uint32_t *tokens,
                        uint32_t n_rows, float *out)
{
    (void)tr_apart_ours(dev, m->packed, 1, "the embedding");
    tr_apart_issue(
        dev,
        &(struct call){.run = run_embed,
                       .mat = {*m},
                       .tokens = tr_apart_ours(dev, tokens, n_rows * sizeof(*tokens), "tokens"),
                       .n = n_rows,
                       .out = {floats_out(dev, out, n_rows, m->n_in, "embedded rows")}});
}

static size_t apart_act_bytes(const struct tr_dev *dev, uint32_t max_rows, uint32_t dim)
{
    return tr_ops_cpu.act_bytes(dev->cpu, max_rows, dim);
}

static void apart_act_init(struct tr_dev *dev, struct tr_act *a, uint32_t max_rows, uint32_t dim,
                           void *mem)
{
    (void)tr_apart_ours(dev, mem, tr_ops_cpu.act_bytes(dev->cpu, max_rows, dim), "activations");
    tr_ops_cpu.act_init(dev->cpu, a, max_rows, dim, mem);
}

static void run_act_set(struct tr_dev *cpu, const struct call *c)
{
    struct tr_act a = c->act;
    tr_ops_cpu.act_set(cpu, &a, c->x, c->n);
}

static void apart_act_set(struct tr_dev *dev, struct tr_act *a, const float *x, uint32_t n_rows)
{
    a->x = floats(dev, x, n_rows, a->dim, "act_set");
    a->n_rows = n_rows;
    tr_apart_issue(dev, &(struct call){.run = run_act_set, .act = *a, .x = x, .n = n_rows});
}

static void run_matmul_n(struct tr_dev *cpu, const struct call *c)
{
    const struct tr_mat *w[TR_OPS_PRODUCTS];
    for (uint32_t i = 0; i < c->n; i++)
        w[i] = &c->mat[i];
    tr_ops_cpu.matmul_n(cpu, c->n, w, &c->act, c->out);
}

static void apart_matmul_n(struct tr_dev *dev, uint32_t n, const struct tr_mat *const *w,
                           const struct tr_act *a, float *const *out)
{
    struct call c = {.run = run_matmul_n, .act = *a, .n = n};
    for (uint32_t i = 0; i < n; i++) {
        (void)tr_apart_ours(dev, w[i]->packed, 1, "weights");
        c.mat[i] = *w[i];
        c.out[i] = floats_out(dev, out[i], a->n_rows, w[i]->n_out, "a product");
    }
    tr_apart_issue(dev, &c);
}

static void apart_matmul(struct tr_dev *dev, const struct tr_mat *w, const struct tr_act *a,
                         float *out)
{
    apart_matmul_n(dev, 1, &w, a, &out);
}

static void run_rms_norm(struct tr_dev *cpu, const struct call *c)
{
    tr_ops_cpu.rms_norm(cpu, c->x, c->w, c->number, c->n, c->dim, c->out[0]);
}

static void apart_rms_norm(struct tr_dev *dev, const float *x, const float *w, float eps,
                           uint32_t n_rows, uint32_t dim, float *out)
{
    tr_apart_issue(dev, &(struct call){.run = run_rms_norm,
                                       .x = floats(dev, x, n_rows, dim, "rms_norm"),
                                       .w = floats(dev, w, 1, dim, "a norm's weights"),
                                       .number = eps,
                                       .n = n_rows,
                                       .dim = dim,
                                       .out = {floats_out(dev, out, n_rows, dim, "normed rows")}});
}

static void run_add_rms_norm(struct tr_dev *cpu, const struct call *c)
{
    if (c->w_next)
        tr_ops_cpu.norm_add_rms_norm(cpu, c->out[1], c->y, c->w, c->w_next, c->number, c->n, c->dim,
                                     c->out[0]);
    else
        tr_ops_cpu.add_rms_norm(cpu, c->out[1], c->y, c->w, c->number, c->n, c->dim, c->out[0]);
}

static void apart_add_rms_norm(struct tr_dev *dev, float *x, const float *y, const float *w,
                               float eps, uint32_t n_rows, uint32_t dim, float *out)
{
    tr_apart_issue(dev, &(struct call){.run = run_add_rms_norm,
                                       .y = floats(dev, y, n_rows, dim, "add_rms_norm"),
                                       .w = floats(dev, w, 1, dim, "a norm's weights"),
                                       .number = eps,
                                       .n = n_rows,
                                       .dim = dim,
                                       .out = {floats_out(dev, out, n_rows, dim, "normed rows"),
                                               floats_out(dev, x, n_rows, dim, "the stream")}});
}

static void apart_norm_add_rms_norm(struct tr_dev *dev, float *x, const float *y,
                                    const float *w_post, const float *w_next, float eps,
                                    uint32_t n_rows, uint32_t dim, float *out)
{
    tr_apart_issue(dev, &(struct call){.run = run_add_rms_norm,
                                       .y = floats(dev, y, n_rows, dim, "norm_add_rms_norm"),
                                       .w = floats(dev, w_post, 1, dim, "a norm's weights"),
                                       .w_next = floats(dev, w_next, 1, dim, "a norm's weights"),
                                       .number = eps,
                                       .n = n_rows,
                                       .dim = dim,
                                       .out = {floats_out(dev, out, n_rows, dim, "normed rows"),
                                               floats_out(dev, x, n_rows, dim, "the stream")}});
}

static void run_head_norm(struct tr_dev *cpu, const struct call *c)
{
    tr_ops_cpu.head_norm(cpu, c->out[0], c->w, c->number, c->n, c->n_head, c->dim);
}

static void apart_head_norm(struct tr_dev *dev, float *x, const float *w, float eps,
                            uint32_t n_rows, uint32_t n_head, uint32_t head_dim)
{
    tr_apart_issue(dev, &(struct call){.run = run_head_norm,
                                       .w = floats(dev, w, 1, head_dim, "a norm's weights"),
                                       .number = eps,
                                       .n = n_rows,
                                       .n_head = n_head,
                                       .dim = head_dim,
                                       .out = {floats_out(dev, x, n_rows, (size_t)n_head * head_dim,
                                                          "heads")}});
}

/* x op= y of [n, dim]; of a bias, y is [dim]. */
static void issue_elements(struct tr_dev *dev, void (*run)(struct tr_dev *, const struct call *),
                           float *x, const float *y, uint32_t y_rows, uint32_t n, uint32_t dim)
{
    tr_apart_issue(dev, &(struct call){.run = run,
                                       .y = floats(dev, y, y_rows, dim, "an addend or factor"),
                                       .n = n,
                                       .dim = dim,
                                       .out = {floats_out(dev, x, n, dim, "elements")}});
}

static void run_add(struct tr_dev *cpu, const struct call *c)
{
    tr_ops_cpu.add(cpu, c->out[0], c->y, c->n, c->dim);
}

static void apart_add(struct tr_dev *dev, float *x, const float *y, uint32_t n_rows, uint32_t dim)
{
    issue_elements(dev, run_add, x, y, n_rows, n_rows, dim);
}

static void run_add_bias(struct tr_dev *cpu, const struct call *c)
{
    tr_ops_cpu.add_bias(cpu, c->out[0], c->y, c->n, c->dim);
}

static void apart_add_bias(struct tr_dev *dev, float *x, const float *b, uint32_t n_rows,
                           uint32_t dim)
{
    issue_elements(dev, run_add_bias, x, b, 1, n_rows, dim);
}

static void run_silu_mul(struct tr_dev *cpu, const struct call *c)
{
    tr_ops_cpu.silu_mul(cpu, c->out[0], c->y, c->n, c->dim);
}

static void apart_silu_mul(struct tr_dev *dev, float *gate, const float *up, uint32_t n_rows,
                           uint32_t dim)
{
    issue_elements(dev, run_silu_mul, gate, up, n_rows, n_rows, dim);
}

static void run_gelu_mul(struct tr_dev *cpu, const struct call *c)
{
    tr_ops_cpu.gelu_mul(cpu, c->out[0], c->y, c->n, c->dim);
}

static void apart_gelu_mul(struct tr_dev *dev, float *gate, const float *up, uint32_t n_rows,
                           uint32_t dim)
{
    issue_elements(dev, run_gelu_mul, gate, up, n_rows, n_rows, dim);
}

static void run_scale(struct tr_dev *cpu, const struct call *c)
{
    tr_ops_cpu.scale(cpu, c->out[0], c->number, c->n, c->dim);
}

static void apart_scale(struct tr_dev *dev, float *x, float s, uint32_t n_rows, uint32_t dim)
{
    tr_apart_issue(dev, &(struct call){.run = run_scale,
                                       .number = s,
                                       .n = n_rows,
                                       .dim = dim,
                                       .out = {floats_out(dev, x, n_rows, dim, "elements")}});
}

/* How far a table is filled is the host's business: a device sees what has been uploaded. */
static void run_rope(struct tr_dev *cpu, const struct call *c)
{
    struct tr_rope r = c->rope;
    r.n_filled = r.n_ctx;
    tr_ops_cpu.rope(cpu, &r, c->out[0], c->places, c->n, c->n_head, c->dim);
}

static void apart_rope(struct tr_dev *dev, const struct tr_rope *r, float *x,
                       const struct tr_place *places, uint32_t n_rows, uint32_t n_head,
                       uint32_t head_dim)
{
    (void)tr_apart_ours(dev, r->cos_sin, tr_rope_bytes(r->n_rot, r->n_ctx), "angles");
    tr_apart_issue(dev, &(struct call){.run = run_rope,
                                       .rope = *r,
                                       .places = places_of(dev, places, n_rows),
                                       .n = n_rows,
                                       .n_head = n_head,
                                       .dim = head_dim,
                                       .out = {floats_out(dev, x, n_rows, (size_t)n_head * head_dim,
                                                          "heads")}});
}

static void check_kv(const struct tr_dev *dev, const struct tr_kv *kv)
{
    (void)tr_apart_ours(dev, kv->mem, kv->block_bytes * kv->n_blocks * kv->n_layer, "KV");
    if (kv->ids)
        (void)tr_apart_ours(dev, kv->ids, (size_t)kv->n_blocks * TR_OPS_KV_BLOCK * sizeof(uint32_t),
                            "ids");
}

static void run_kv_write(struct tr_dev *cpu, const struct call *c)
{
    check_places(c);
    tr_ops_cpu.kv_write(cpu, &c->kv, c->layer, c->places, c->n, c->x, c->y);
}

static void apart_kv_write(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
                           const struct tr_place *places, uint32_t n_rows, const float *k,
                           const float *v)
{
    size_t width = (size_t)kv->n_head_kv * kv->head_dim;
    check_kv(dev, kv);
    tr_apart_issue(dev, &(struct call){.run = run_kv_write,
                                       .kv = *kv,
                                       .layer = layer,
                                       .places = places_of(dev, places, n_rows),
                                       .n = n_rows,
                                       .x = floats(dev, k, n_rows, width, "K"),
                                       .y = floats(dev, v, n_rows, width, "V")});
}

static void run_attention(struct tr_dev *cpu, const struct call *c)
{
    check_places(c);
    tr_ops_cpu.attention(cpu, &c->kv, c->layer, c->places, c->n, c->x, c->n_head, &c->attend,
                         c->out[0]);
}

static void apart_attention(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
                            const struct tr_place *places, uint32_t n_rows, const float *q,
                            uint32_t n_head, const struct tr_attend_params *p, float *out)
{
    size_t width = (size_t)n_head * kv->head_dim;
    check_kv(dev, kv);
    tr_apart_issue(dev, &(struct call){.run = run_attention,
                                       .kv = *kv,
                                       .layer = layer,
                                       .places = places_of(dev, places, n_rows),
                                       .n = n_rows,
                                       .n_head = n_head,
                                       .attend = *p,
                                       .x = floats(dev, q, n_rows, width, "queries"),
                                       .out = {floats_out(dev, out, n_rows, width, "attention")}});
}

static void run_gather(struct tr_dev *cpu, const struct call *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        (void)floats(the, c->x + (size_t)c->tokens[i] * c->dim, 1, c->dim, "a gathered row");
    tr_ops_cpu.gather(cpu, c->x, c->tokens, c->n, c->dim, c->out[0]);
}

static void apart_gather(struct tr_dev *dev, const float *x, const uint32_t *rows, uint32_t n,
                         uint32_t dim, float *out)
{
    the = dev;
    tr_apart_issue(dev, &(struct call){.run = run_gather,
                                       .x = floats(dev, x, 1, dim, "rows to gather"),
                                       .tokens = tr_apart_ours(dev, rows, n * sizeof(*rows),
                                                               "numbers of rows"),
                                       .n = n,
                                       .dim = dim,
                                       .out = {floats_out(dev, out, n, dim, "gathered rows")}});
}

static void run_note_ids(struct tr_dev *cpu, const struct call *c)
{
    check_places(c);
    tr_ops_cpu.note_ids(cpu, &c->kv, c->places, c->tokens, c->n);
}

static void apart_note_ids(struct tr_dev *dev, const struct tr_kv *kv,
                           const struct tr_place *places, const uint32_t *tokens, uint32_t n_rows)
{
    check_kv(dev, kv);
    tr_apart_issue(dev, &(struct call){.run = run_note_ids,
                                       .kv = *kv,
                                       .places = places_of(dev, places, n_rows),
                                       .tokens = tr_apart_ours(dev, tokens,
                                                               n_rows * sizeof(*tokens), "tokens"),
                                       .n = n_rows});
}

static void apart_defer(struct tr_dev *dev, bool on)
{
    (void)dev;
    (void)on;
}

static void apart_parallel(struct tr_dev *dev, uint32_t n, void (*fn)(void *arg, uint32_t i),
                           void *arg)
{
    tr_ops_cpu.parallel(dev->cpu, n, fn, arg);
}

static bool apart_errand(struct tr_dev *dev, void (*fn)(void *arg, uint64_t what), void *arg,
                         uint64_t what)
{
    return tr_ops_cpu.errand(dev->cpu, fn, arg, what);
}

const struct tr_ops tr_ops_apart = {
    .name = "apart",
    .apart = true,
    .take = tr_apart_take,
    .give = tr_apart_give,
    .take_host = tr_apart_take_host,
    .give_host = tr_apart_give_host,
    .resident = tr_apart_resident,
    .evict = tr_apart_evict,
    .upload = tr_apart_upload,
    .download = tr_apart_download,
    .bucket = tr_apart_bucket,
    .replay = tr_apart_replay,
    .record_end = tr_apart_record_end,
    .mat_bytes = apart_mat_bytes,
    .mat_prepare = apart_mat_prepare,
    .mat_adopt = apart_mat_adopt,
    .embed = apart_embed,
    .act_bytes = apart_act_bytes,
    .act_init = apart_act_init,
    .act_set = apart_act_set,
    .matmul = apart_matmul,
    .matmul_n = apart_matmul_n,
    .rms_norm = apart_rms_norm,
    .add_rms_norm = apart_add_rms_norm,
    .norm_add_rms_norm = apart_norm_add_rms_norm,
    .head_norm = apart_head_norm,
    .add = apart_add,
    .add_bias = apart_add_bias,
    .scale = apart_scale,
    .silu_mul = apart_silu_mul,
    .gelu_mul = apart_gelu_mul,
    .rope = apart_rope,
    .kv_write = apart_kv_write,
    .attention = apart_attention,
    .gather = apart_gather,
    .note_ids = apart_note_ids,
    .defer = apart_defer,
    .parallel = apart_parallel,
    .errand = apart_errand,
    .close = tr_apart_close,
};
