/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for operations, rows that go elsewhere, and rows that are not there. */
#include "fixture.h"

Test(memory, is_zeroed_and_of_whole_pages)
{
    struct tr_dev *dev = device(TR_OPS_INT8, TR_CPU_AVX512, 1);
    for (int huge = 0; huge < 2; huge++) {
        uint8_t *p = OPS->take(dev, 5000, huge);
        cr_assert_not_null(p);
        for (int i = 0; i < 8192; i++)
            cr_assert_eq(p[i], 0, "byte %d", i);
        memset(p, 1, 8192);
        OPS->give(dev, p, 5000);
    }
    cr_expect_null(OPS->take(dev, (size_t)1 << 60, true));
    OPS->give(dev, NULL, 1);
    cr_expect_not(OPS->apart);
    OPS->close(dev);
}

/* The host's is the device's, so nothing moves that need not. */
Test(memory, of_the_host_is_where_operations_find_it)
{
    struct tr_dev *dev = device(TR_OPS_INT8, TR_CPU_AVX512, 1);
    uint32_t *a = OPS->take_host(dev, 4096), *b = OPS->take(dev, 4096, false);
    cr_expect_eq(OPS->resident(dev, a, 4096), a);
    OPS->evict(dev, a, 4096);
    a[3] = 5;
    OPS->upload(dev, a, a, 4096);
    cr_expect_eq(a[3], 5);
    OPS->upload(dev, b, a, 16);
    cr_expect_eq(b[3], 5);
    b[2] = 6;
    OPS->download(dev, a, b, 16);
    cr_expect_eq(a[2], 6);
    OPS->download(dev, NULL, NULL, 0);
    OPS->give_host(dev, a, 4096);
    OPS->give(dev, b, 4096);
    OPS->close(dev);
}

enum { ROWS = 7, OUT = 5, DIM = 40 };

/* Also rows that an operation which waits is still to write. */
Test(memory, rows_are_gathered_as_they_were_left)
{
    const uint32_t rows[OUT] = {6, 0, 0, 3, 1};
    struct tr_dev *dev = device(TR_OPS_INT8, TR_CPU_AVX512, 2);
    float *x = floats(ROWS * DIM), *want = memory(ROWS * DIM * sizeof *want);
    float *out = memory(OUT * DIM * sizeof *out), *back = memory(OUT * DIM * sizeof *back);
    for (size_t i = 0; i < ROWS * DIM; i++)
        want[i] = x[i] * 3.0F * 2.0F;
    OPS->defer(dev, true);
    OPS->scale(dev, x, 3.0F, ROWS, DIM);
    OPS->gather(dev, x, rows, OUT, DIM, out);
    OPS->scale(dev, out, 2.0F, OUT, DIM);
    OPS->download(dev, back, out, OUT * DIM * sizeof *out);
    for (size_t i = 0; i < OUT; i++)
        cr_expect_eq(memcmp(back + i * DIM, want + rows[i] * DIM, DIM * sizeof *x), 0, "row %zu",
                     i);
    OPS->defer(dev, false);
    OPS->close(dev);
    free(x);
    free(want);
    free(out);
    free(back);
}

Test(memory, tokens_are_noted_where_their_rows_stand)
{
    uint32_t table[] = {2, 0}, ids[3 * TR_OPS_KV_BLOCK];
    struct tr_dev *dev = device(TR_OPS_INT8, TR_CPU_AVX512, 1);
    struct tr_kv kv = {.n_blocks = 3, .ids = ids};
    const struct tr_place places[] = {{table, 0}, {NULL, TR_NO_POS}, {table, 31}, {table, 33}};
    const uint32_t tokens[] = {10, 11, 12, 13};
    memset(ids, 0xff, sizeof ids);
    OPS->note_ids(dev, &kv, places, tokens, 4);
    for (uint32_t i = 0; i < 3 * TR_OPS_KV_BLOCK; i++) {
        uint32_t want = i == 64 ? 10 : i == 95 ? 12 : i == 1 ? 13 : UINT32_MAX;
        cr_expect_eq(ids[i], want, "%u is %u", i, ids[i]);
    }
    OPS->close(dev);
}

/* --- rows that are not there, between others that are --- */

enum {
    HEADS = 4,
    HEADS_KV = 2,
    HEAD = 32,
    CTX = 64,
    WIDTH = HEADS * HEAD,
    WIDTH_KV = HEADS_KV * HEAD
};

/* What rope, kv_write and attention make of some rows. */
struct pass {
    float q[ROWS * WIDTH], k[ROWS * WIDTH_KV], v[ROWS * WIDTH_KV], out[ROWS * WIDTH];
};

static void turn_and_attend(struct tr_dev *dev, const struct tr_rope *rope, const struct tr_kv *kv,
                            const struct tr_place *places, uint32_t n, struct pass *p)
{
    const struct tr_attend_params params = {.scale = 0.2F};
    OPS->rope(dev, rope, p->q, places, n, HEADS, HEAD);
    OPS->rope(dev, rope, p->k, places, n, HEADS_KV, HEAD);
    OPS->kv_write(dev, kv, 0, places, n, p->k, p->v);
    OPS->attention(dev, kv, 0, places, n, p->q, HEADS, &params, p->out);
}

static struct tr_kv empty_cache(enum tr_ops_kv type)
{
    struct tr_kv kv = {.type = type,
                       .n_layer = 1,
                       .n_blocks = CTX / TR_OPS_KV_BLOCK,
                       .n_head_kv = HEADS_KV,
                       .head_dim = HEAD,
                       .block_bytes = tr_kv_block_bytes(type, HEADS_KV, HEAD)};
    kv.mem = memory(kv.n_blocks * kv.block_bytes);
    return kv;
}

static void absent_rows(enum tr_cpu_level level, enum tr_ops_kv type, const struct tr_rope *rope)
{
    static struct pass all, there;
    uint32_t table[] = {1, 0}, n_there = 0;
    struct tr_dev *dev = device(TR_OPS_INT8, level, 2);
    struct tr_kv kv[2] = {empty_cache(type), empty_cache(type)};
    struct tr_place places[ROWS], present[ROWS];
    uint32_t at[ROWS];
    for (uint32_t i = 0; i < ROWS; i++) {
        bool here = i != 0 && i != 3 && i < 5;
        places[i] =
            here ? (struct tr_place){table, 30 + n_there} : (struct tr_place){NULL, TR_NO_POS};
        if (here) {
            at[n_there] = i;
            present[n_there++] = places[i];
        }
    }
    for (uint32_t i = 0; i < ROWS * WIDTH; i++)
        all.q[i] = rnd_float();
    for (uint32_t i = 0; i < ROWS * WIDTH_KV; i++) {
        all.k[i] = rnd_float();
        all.v[i] = rnd_float();
    }
    memset(all.out, 0x5A, sizeof all.out);
    for (uint32_t i = 0; i < n_there; i++) {
        memcpy(there.q + i * WIDTH, all.q + at[i] * WIDTH, WIDTH * sizeof(float));
        memcpy(there.k + i * WIDTH_KV, all.k + at[i] * WIDTH_KV, WIDTH_KV * sizeof(float));
        memcpy(there.v + i * WIDTH_KV, all.v + at[i] * WIDTH_KV, WIDTH_KV * sizeof(float));
    }
    static struct pass before;
    before = all;
    turn_and_attend(dev, rope, &kv[0], places, ROWS, &all);
    turn_and_attend(dev, rope, &kv[1], present, n_there, &there);
    cr_expect_eq(memcmp(kv[0].mem, kv[1].mem, kv[0].n_blocks * kv[0].block_bytes), 0);
    for (uint32_t i = 0, k = 0; i < ROWS; i++) {
        static const float zeros[WIDTH];
        bool here = places[i].pos != TR_NO_POS;
        const float *q = here ? there.q + k * WIDTH : before.q + i * WIDTH;
        const float *out = here ? there.out + k * WIDTH : zeros;
        cr_expect_eq(memcmp(all.q + i * WIDTH, q, WIDTH * sizeof *q), 0, "row %u turned", i);
        cr_expect_eq(memcmp(all.out + i * WIDTH, out, WIDTH * sizeof *out), 0, "row %u", i);
        k += here;
    }
    free(kv[0].mem);
    free(kv[1].mem);
    OPS->close(dev);
}

Test(memory, rows_that_are_not_there_leave_nothing_behind)
{
    double freq[HEAD / 2];
    struct tr_rope rope;
    void *mem = memory(tr_rope_bytes(HEAD, CTX));
    for (uint32_t i = 0; i < HEAD / 2; i++)
        freq[i] = 1.0 / (1 + i);
    tr_rope_init(&rope, TR_ROPE_HALF, HEAD, CTX, freq, 1, mem);
    tr_rope_reach(&rope, CTX);
    for (int level = TR_CPU_GENERIC; level <= TR_CPU_AVX512; level++)
        for (int type = TR_OPS_KV_F16; type <= TR_OPS_KV_F32; type++)
            absent_rows((enum tr_cpu_level)level, (enum tr_ops_kv)type, &rope);
    free(mem);
}

/* A pass of nobody. */
Test(memory, attention_of_rows_none_of_which_is_there_is_zero)
{
    static struct pass p;
    struct tr_dev *dev = device(TR_OPS_INT8, TR_CPU_AVX512, 2);
    struct tr_kv kv = empty_cache(TR_OPS_KV_F16);
    struct tr_place places[ROWS];
    for (uint32_t i = 0; i < ROWS; i++)
        places[i] = (struct tr_place){NULL, TR_NO_POS};
    memset(p.out, 0x5A, sizeof p.out);
    OPS->attention(dev, &kv, 0, places, ROWS, p.q, HEADS, &(struct tr_attend_params){.scale = 1},
                   p.out);
    for (uint32_t i = 0; i < ROWS * WIDTH; i++)
        cr_assert_eq(p.out[i], 0);
    free(kv.mem);
    OPS->close(dev);
}
