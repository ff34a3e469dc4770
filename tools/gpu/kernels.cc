/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gpu/kernels.cc - every kernel of cuda_kernels/ by itself, in the shapes of a model of 8 thousand millions
 * of weights, beside what the device can do.
 *
 * Weights and K and V are cycled through as many copies as no cache holds.  Bytes are those that an operation
 * must read and write once; TFLOP/s count two for a multiply-add, of int8 where weights are quantised.  What is
 * the same in both arithmetics is measured once, as "exact". */
#include "cuda_kernels/cuda.h"
#include "cuda_kernels/dev.cuh"
#include "gpu/device.h"
#include "gpu/picks.h"
#include "gpu/report.h"
#include "gpu/stages.h"

extern "C" {
#include "base/cpus.h"
#include "cpu_kernels/quant.h"
#include "testlib/gguf_write.h"
}

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#define OPS (&tr_ops_cuda)

struct shape {
    uint32_t n_in, n_out;
};

struct bench {
    struct tr_dev *dev[2]; /* fast, exact */
    bool dry;
    double read_gb_s;
    struct nominal nominal;
    uint32_t max_rows, dim, ff, heads, heads_kv, head_dim, max_ctx;
    size_t pool;        /* bytes that no cache holds */
    float *x, *y, *out; /* [max_rows, the widest] */
};

/* ---- memory ---- */

static void *taken(struct bench *b, size_t len)
{
    void *p = OPS->take(b->dev[1], len, true);
    if (!p) {
        tr_report_say("no memory for %zu bytes", len);
        exit(1);
    }
    return p;
}

static void put(struct bench *b, void *to, const void *from, size_t len)
{
    OPS->upload(b->dev[1], to, from, len);
    OPS->download(b->dev[1], NULL, NULL, 0);
}

/* Numbers around 0. */
static float *some_floats(struct bench *b, size_t n)
{
    std::vector<float> v(n);
    uint32_t r = 12345;
    for (float &f : v) {
        r = r * 1664525u + 1013904223u;
        f = (float)(r >> 8) / 8388608.0f - 1.0f;
    }
    float *p = (float *)taken(b, n * sizeof(float));
    put(b, p, v.data(), n * sizeof(float));
    return p;
}

/* ---- reporting ---- */

static void begin_table(const char *name)
{
    static const char *const columns[] = {"operation", "shape",     "rows",    "arithmetic",  "us",
                                          "GB/s",      "% of read", "TFLOP/s", "% of nominal"};
    tr_report_table(name, 9, columns);
}

static void report(const struct bench *b, const char *op, const char *shape, uint32_t rows,
                   bool exact, double us, double bytes, double flops, double peak)
{
    double gb_s = bytes / us * 1e-3, tflops = flops / us * 1e-6;
    tr_report_text(op);
    tr_report_text(shape);
    tr_report_number(rows, 0);
    tr_report_text(exact ? "exact" : "fast");
    tr_report_number(us, 2);
    tr_report_number(gb_s, 1);
    tr_report_number(100 * gb_s / b->read_gb_s, 0);
    flops > 0 ? tr_report_number(tflops, 2) : tr_report_nothing();
    flops > 0 && peak > 0 ? tr_report_number(100 * tflops / peak, 1) : tr_report_nothing();
}

/* Times it exactly, and fast where that is something else; calls(dev, i). */
template <class F>
static void time_both(struct bench *b, bool differs, const char *op, const char *shape,
                      uint32_t rows, uint32_t n, double bytes, double flops, double peak, F calls)
{
    for (int exact = 1; exact >= (differs ? 0 : 1); exact--) {
        struct tr_dev *dev = b->dev[exact];
        double us = microseconds(
            dev->stream, n, [&](uint32_t i) { calls(dev, i); }, b->dry);
        report(b, op, shape, rows, exact, us, bytes, flops, peak);
    }
}

/* ---- products ---- */

struct weights {
    std::vector<struct tr_mat> mats;
    struct tr_act act;
    void *mem, *act_mem;
    size_t bytes; /* of one */
};

static void make_weights(struct bench *b, struct weights *w, enum tr_tensor_type type,
                         struct shape s)
{
    struct tr_gw_part part = {};
    part.type = type;
    part.n_in = s.n_in;
    std::vector<uint8_t> rows(tr_quant_row_bytes(type, s.n_in) * s.n_out);
    tr_gw_fill(&part, 1, rows.data(), rows.size());
    w->bytes = OPS->mat_bytes(b->dev[1], type, s.n_in, s.n_out);
    uint32_t n = (uint32_t)(b->pool / w->bytes) + 1;
    size_t stride = (w->bytes + TR_OPS_LINE - 1) / TR_OPS_LINE * TR_OPS_LINE;
    std::vector<uint8_t> packed(w->bytes + TR_OPS_ALIGN);
    uint8_t *host =
        (uint8_t *)(((uintptr_t)packed.data() + TR_OPS_ALIGN - 1) / TR_OPS_ALIGN * TR_OPS_ALIGN);
    struct tr_mat m;
    OPS->mat_prepare(b->dev[1], &m, type, s.n_in, s.n_out, rows.data(), host);
    w->mem = taken(b, n * stride);
    w->mats.assign(n, m);
    for (uint32_t i = 0; i < n; i++) {
        void *at = (uint8_t *)w->mem + i * stride;
        put(b, at, host, w->bytes);
        OPS->mat_adopt(b->dev[1], &w->mats[i], type, s.n_in, s.n_out, at);
    }
    w->act_mem = taken(b, OPS->act_bytes(b->dev[1], b->max_rows, s.n_in));
    OPS->act_init(b->dev[1], &w->act, b->max_rows, s.n_in, w->act_mem);
}

static void give_weights(struct bench *b, struct weights *w)
{
    OPS->download(b->dev[1], NULL, NULL, 0);
    OPS->give(b->dev[1], w->mem, 0);
    OPS->give(b->dev[1], w->act_mem, 0);
}

static void products(struct bench *b, enum tr_tensor_type type, struct shape s,
                     const std::vector<uint32_t> &rows)
{
    struct weights w;
    char op[40], shape[32], name[24];
    if (!tr_report_has_time(1))
        return;
    make_weights(b, &w, type, s);
    snprintf(op, sizeof(op), "product %s", tr_tensor_type_name(type, name));
    snprintf(shape, sizeof(shape), "%ux%u", s.n_out, s.n_in);
    bool quantised = tr_quant_blocked(type);
    for (uint32_t r : rows) {
        double flops = 2.0 * s.n_in * s.n_out * r;
        double bytes =
            (double)w.bytes + (double)r * (s.n_in * (quantised ? 1.125 : 4) + 4.0 * s.n_out);
        if (r > b->max_rows || !tr_report_has_time(0.5))
            break;
        OPS->act_set(b->dev[1], &w.act, b->x, r);
        time_both(
            b, r > 16, op, shape, r, (uint32_t)w.mats.size(), bytes, flops,
            quantised ? b->nominal.int8_tops : b->nominal.bf16_tflops,
            [&](struct tr_dev *dev, uint32_t i) { OPS->matmul(dev, &w.mats[i], &w.act, b->out); });
    }
    give_weights(b, &w);
}

static void all_products(struct bench *b)
{
    static const enum tr_tensor_type types[] = {TR_T_Q8_0, TR_T_Q6_K, TR_T_Q5_K, TR_T_Q4_0,
                                                TR_T_Q4_1, TR_T_Q5_0, TR_T_Q5_1, TR_T_Q3_K,
                                                TR_T_Q2_K, TR_T_BF16, TR_T_F16,  TR_T_F32};
    std::vector<uint32_t> decode = {1, 2, 4, 8, 16}, few = {1, 16}, many = {512, 2048, 4096};
    struct shape up = {b->dim, b->ff}, down = {b->ff, b->dim}, square = {b->dim, b->dim};
    if (b->dry)
        decode = {1, 3, 16}, few = {1}, many = {33};
    begin_table("products, answers");
    products(b, TR_T_Q4_K, up, decode);
    products(b, TR_T_Q8_0, down, decode);
    begin_table("products, prompts");
    products(b, TR_T_Q4_K, up, many);
    products(b, TR_T_Q8_0, down, many);
    products(b, TR_T_BF16, square, many);
    begin_table("products, other types and shapes");
    products(b, TR_T_Q4_K, square, few);
    for (enum tr_tensor_type type : types)
        products(b, type, square, few);
    few.push_back(512);
    products(b, TR_T_Q6_K, square, few);
    if (!b->dry)
        products(b, TR_T_Q6_K, {b->dim, 128256}, {1, 16, 64, 256});
}

/* ---- attention ---- */

struct context {
    struct tr_kv kv;
    struct tr_place *places; /* the device's */
    uint32_t *tables;
};

/* n sequences of `len` positions, blocks anywhere; layers until no cache holds them.  `n_rows` rows at the end
 * of each. */
static void make_context(struct bench *b, struct context *c, enum tr_ops_kv type, uint32_t n,
                         uint32_t len, uint32_t n_rows)
{
    uint32_t per_seq = (len + TR_OPS_KV_BLOCK - 1) / TR_OPS_KV_BLOCK, n_blocks = n * per_seq;
    c->kv = {};
    c->kv.type = type;
    c->kv.n_blocks = n_blocks;
    c->kv.n_head_kv = b->heads_kv;
    c->kv.head_dim = b->head_dim;
    c->kv.block_bytes = tr_kv_block_bytes(type, b->heads_kv, b->head_dim);
    c->kv.n_layer = (uint32_t)(b->pool / (n_blocks * c->kv.block_bytes)) + 1;
    c->kv.mem = taken(b, c->kv.n_layer * n_blocks * c->kv.block_bytes);
    std::vector<uint32_t> tables(n_blocks);
    for (uint32_t i = 0; i < n_blocks;
         i++) /* 7919 is a prime, so this is a permutation, or near one */
        tables[i] = (uint32_t)((uint64_t)i * 7919 % n_blocks);
    c->tables = (uint32_t *)taken(b, n_blocks * sizeof(uint32_t));
    put(b, c->tables, tables.data(), n_blocks * sizeof(uint32_t));
    std::vector<struct tr_place> places(n * n_rows);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n_rows; k++)
            places[i * n_rows + k] = {c->tables + i * per_seq, len - n_rows + k};
    c->places = (struct tr_place *)taken(b, places.size() * sizeof(places[0]));
    put(b, c->places, places.data(), places.size() * sizeof(places[0]));
}

static void give_context(struct bench *b, struct context *c)
{
    OPS->download(b->dev[1], NULL, NULL, 0);
    OPS->give(b->dev[1], c->kv.mem, 0);
    OPS->give(b->dev[1], c->places, 0);
    OPS->give(b->dev[1], c->tables, 0);
}

static void attention(struct bench *b, enum tr_ops_kv type, uint32_t n, uint32_t len,
                      uint32_t n_rows)
{
    static const char *const names[] = {"attention, KV F16", "attention, KV Q8_0",
                                        "attention, KV F32"};
    struct context c;
    struct tr_attend_params p = {};
    char shape[64];
    if (!tr_report_has_time(1))
        return;
    make_context(b, &c, type, n, len, n_rows);
    p.scale = 0.0883883461f;                           /* of 128 */
    double seen = n_rows * (len - (n_rows - 1) / 2.0); /* positions, of a sequence */
    snprintf(shape, sizeof(shape), "%u x %u of %u", n, n_rows, len);
    double io = 8.0 * n * n_rows * b->heads * b->head_dim;
    time_both(b, n_rows > 1, names[type], shape, n * n_rows, c.kv.n_layer,
              (double)c.kv.n_blocks * (double)c.kv.block_bytes + io,
              n * seen * b->heads * b->head_dim * 4.0, b->nominal.bf16_tflops,
              [&](struct tr_dev *dev, uint32_t i) {
                  OPS->attention(dev, &c.kv, i, c.places, n * n_rows, b->x, b->heads, &p, b->out);
              });
    give_context(b, &c);
}

static void all_attention(struct bench *b)
{
    begin_table("attention");
    if (b->dry) {
        attention(b, TR_OPS_KV_F16, 2, 40, 1);
        attention(b, TR_OPS_KV_F16, 1, 70, 33);
        attention(b, TR_OPS_KV_Q8_0, 2, 40, 1);
        return;
    }
    attention(b, TR_OPS_KV_F16, 1, 1024, 1);
    attention(b, TR_OPS_KV_F16, 1, 16384, 1);
    attention(b, TR_OPS_KV_F16, 64, 1024, 1);
    attention(b, TR_OPS_KV_F16, 256, 1024, 1);
    attention(b, TR_OPS_KV_Q8_0, 64, 1024, 1);
    attention(b, TR_OPS_KV_F16, 1, 512, 512);
    attention(b, TR_OPS_KV_F16, 1, 4096, 512);
    attention(b, TR_OPS_KV_F16, 1, 4096, 4096);
    attention(b, TR_OPS_KV_Q8_0, 1, 4096, 4096);
}

/* ---- rows ---- */

static void rows_of(struct bench *b, uint32_t n)
{
    struct context c;
    struct tr_act act;
    char wide[16], heads[32];
    uint32_t q = b->heads * b->head_dim, kv = b->heads_kv * b->head_dim;
    double cells = (double)n * b->dim;
    snprintf(wide, sizeof(wide), "%u", b->dim);
    snprintf(heads, sizeof(heads), "%u of %u", b->heads, b->head_dim);
    time_both(b, true, "add_rms_norm", wide, n, 8, 16 * cells, 0, 0,
              [&](struct tr_dev *dev, uint32_t) {
                  OPS->add_rms_norm(dev, b->x, b->y, b->y, 1e-5f, n, b->dim, b->out);
              });
    snprintf(wide, sizeof(wide), "%u", b->ff);
    time_both(b, false, "silu_mul", wide, n, 8, 12.0 * n * b->ff, 0, 0,
              [&](struct tr_dev *dev, uint32_t) { OPS->silu_mul(dev, b->out, b->y, n, b->ff); });
    void *mem = taken(b, OPS->act_bytes(b->dev[1], n, b->dim));
    OPS->act_init(b->dev[1], &act, n, b->dim, mem);
    snprintf(wide, sizeof(wide), "%u", b->dim);
    time_both(b, false, "quantise", wide, n, 8, 5.5 * cells, 0, 0,
              [&](struct tr_dev *dev, uint32_t) { OPS->act_set(dev, &act, b->x, n); });
    OPS->download(b->dev[1], NULL, NULL, 0);
    OPS->give(b->dev[1], mem, 0);
    make_context(b, &c, TR_OPS_KV_F16, n, TR_OPS_KV_BLOCK, 1);
    struct tr_rope r = {};
    r.style = TR_ROPE_ADJACENT;
    r.n_rot = b->head_dim;
    r.n_ctx = r.n_filled = TR_OPS_KV_BLOCK;
    r.cos_sin = b->y;
    time_both(b, false, "rope", heads, n, 8, 8.0 * n * q, 0, 0, [&](struct tr_dev *dev, uint32_t) {
        OPS->rope(dev, &r, b->out, c.places, n, b->heads, b->head_dim);
    });
    snprintf(heads, sizeof(heads), "%u of %u", b->heads_kv, b->head_dim);
    time_both(b, false, "kv_write", heads, n, 8, 12.0 * n * kv, 0, 0,
              [&](struct tr_dev *dev, uint32_t) {
                  OPS->kv_write(dev, &c.kv, 0, c.places, n, b->x, b->y);
              });
    give_context(b, &c);
}

/* ---- the stage ---- */

static void set_shape(struct bench *b)
{
    b->max_rows = b->dry ? 64 : 4096;
    b->dim = b->dry ? 256 : 4096;
    b->ff = b->dry ? 512 : 14336;
    b->heads = b->dry ? 4 : 32;
    b->heads_kv = b->dry ? 2 : 8;
    b->head_dim = b->dry ? 64 : 128;
    b->max_ctx = b->dry ? 256 : 16384;
    b->pool = b->dry ? 1 : (size_t)256 << 20;
}

static int open_device(struct bench *b, bool exact)
{
    struct tr_errbuf err;
    struct tr_cuda_config c = {};
    c.exact = exact;
    c.n_threads = tr_cpus_usable();
    b->dev[exact] = tr_cuda_open(&c, &err);
    if (!b->dev[exact]) {
        tr_report_say("%s", err.msg);
        return -1;
    }
    struct tr_cuda_shape s = {};
    s.n_ctx = b->max_ctx;
    s.max_rows = b->max_rows;
    s.n_head = b->heads;
    s.n_head_kv = b->heads_kv;
    s.head_dim = b->head_dim;
    if (tr_cuda_take_room(b->dev[exact], &s, &err) == 0)
        return 0;
    tr_report_say("%s", err.msg);
    return -1;
}

int tr_gpu_kernels(const struct tr_gpu_args *a)
{
    static struct bench b;
    struct tr_cuda_facts facts;
    b.dry = a->dry;
    set_shape(&b);
    if (open_device(&b, true) || open_device(&b, false))
        return 1;
    tr_cuda_facts(b.dev[1], &facts);
    b.nominal = nominal_of(facts.name);
    b.read_gb_s = tr_gpu_read_gb_s(a->dry);
    size_t widest = (size_t)b.max_rows * b.ff;
    if (!b.dry && widest < (size_t)256 * 128256)
        widest = (size_t)256 * 128256;
    b.x = some_floats(&b, widest);
    b.y = some_floats(&b, widest);
    b.out = (float *)taken(&b, widest * sizeof(float));
    all_products(&b);
    all_attention(&b);
    begin_table("rows");
    for (uint32_t n : {1u, b.dry ? 5u : 256u, b.dry ? 40u : 4096u})
        if (tr_report_has_time(1))
            rows_of(&b, n);
    tr_gpu_picks(b.dev[1], a->dry, b.read_gb_s);
    OPS->close(b.dev[0]);
    OPS->close(b.dev[1]);
    return 0;
}
