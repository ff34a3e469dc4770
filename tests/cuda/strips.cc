/* SPDX-License-Identifier: Apache-2.0 */
/* Packed weights: what is read out of strips is what the file has. */
#include "weights.h"

#include "cuda_kernels/strip.h"

extern "C" {
#include "cpu_kernels/threads.h"
}

/* An F16 of an output, of those at p. */
static uint16_t half_at(const uint8_t *p, uint32_t output)
{
    return (uint16_t)(p[2 * output] | p[2 * output + 1] << 8);
}

/* As strip.h says they lie. */
static void scales_of(enum tr_tensor_type type, const uint8_t *strip, size_t i, uint32_t output,
                      struct tr_quant_block *b)
{
    const uint8_t *of_block = strip + tr_cuda_block_at(type, i) + tr_cuda_scale_at(type);
    const uint8_t *d = tr_cuda_super(type) ? strip + tr_cuda_head_at(type, i) : of_block;
    b->d = half_at(d, output);
    b->m = tr_cuda_mins(type) ? half_at(d + TR_CUDA_F16S, output) : 0;
    b->sc[0] = b->sc[1] = 1;
    b->mn[0] = b->mn[1] = 0;
    if (!tr_cuda_super(type))
        return;
    uint8_t byte[2] = {of_block[output], of_block[TR_CUDA_STRIP + output]};
    for (int h = 0; h < 2; h++) {
        bool both = tr_cuda_halves(type) && tr_cuda_mins(type);
        b->sc[h] = (int8_t)(both ? byte[h] & 15 : byte[tr_cuda_halves(type) ? h : 0]);
        if (tr_cuda_mins(type))
            b->mn[h] = (uint8_t)(both ? byte[h] >> 4 : byte[1]);
    }
}

static bool same_block(enum tr_tensor_type type, const uint8_t *strip, size_t i, uint32_t output,
                       const struct tr_quant_block *want)
{
    struct tr_quant_block b;
    scales_of(type, strip, i, output, &b);
    bool same = b.d == want->d && (!tr_cuda_mins(type) || b.m == want->m) &&
                memcmp(b.sc, want->sc, sizeof(b.sc)) == 0 &&
                memcmp(b.mn, want->mn, sizeof(b.mn)) == 0;
    const uint8_t *block = strip + tr_cuda_block_at(type, i);
    for (uint32_t k = 0; k < TR_QK; k++)
        same &= tr_cuda_quant(type, block, output, k) == want->q[k] - tr_quant_form(type).bias;
    return same;
}

/* Rows that are not there: every product with them is 0. */
static bool no_row(enum tr_tensor_type type, const uint8_t *strip, uint32_t n_in, uint32_t output)
{
    struct tr_quant_block none = {};
    memset(none.q, tr_quant_form(type).bias, sizeof(none.q));
    none.sc[0] = none.sc[1] = tr_cuda_super(type) ? 0 : 1;
    for (size_t i = 0; i < n_in / TR_QK; i++)
        if (!same_block(type, strip, i, output, &none))
            return false;
    return true;
}

static void quantised(enum tr_tensor_type type, uint32_t n_in, uint32_t n_out,
                      const std::vector<uint8_t> &rows, const uint8_t *mem)
{
    unsigned wrong = 0;
    for (uint32_t r = 0; r < tr_cuda_strip_count(n_out) * TR_CUDA_STRIP; r++) {
        const uint8_t *strip = mem + r / TR_CUDA_STRIP * tr_cuda_strip_bytes(type, n_in);
        const uint8_t *row = rows.data() + r * tr_quant_row_bytes(type, n_in);
        if (r >= n_out)
            wrong += !no_row(type, strip, n_in, r % TR_CUDA_STRIP);
        for (size_t i = 0; r < n_out && i < n_in / TR_QK; i++) {
            struct tr_quant_block want;
            tr_quant_block_read(type, row, i, &want);
            wrong += !same_block(type, strip, i, r % TR_CUDA_STRIP, &want);
        }
    }
    claim(!wrong, "%u blocks of %s [%u, %u] are not the file's", wrong, type_name(type), n_out,
          n_in);
}

static void plain_rows(enum tr_tensor_type type, uint32_t n_in, uint32_t n_out,
                       const std::vector<uint8_t> &rows, const uint8_t *mem)
{
    const uint32_t e = tr_cuda_element(type), whole = 16 / e;
    const uint8_t zeros[4] = {};
    unsigned wrong = 0;
    for (uint32_t r = 0; r < tr_cuda_strip_count(n_out) * TR_CUDA_STRIP; r++)
        for (uint32_t k = 0; k < (n_in + whole - 1) / whole * whole; k++) {
            const uint8_t *at = mem + r / TR_CUDA_STRIP * tr_cuda_strip_bytes(type, n_in) +
                                tr_cuda_element_at(type, k, r % TR_CUDA_STRIP);
            bool there = r < n_out && k < n_in;
            wrong += memcmp(at, there ? &rows[((size_t)r * n_in + k) * e] : zeros, e) != 0;
        }
    claim(!wrong, "%u elements of %s [%u, %u] are not the file's", wrong, type_name(type), n_out,
          n_in);
}

static void strips(enum tr_tensor_type type, uint32_t n_in, uint32_t n_out)
{
    struct tr_dev dev = device(true);
    std::vector<uint8_t> rows = random_rows(type, n_in, n_out);
    packed_room mem(tr_cuda_mat_bytes(&dev, type, n_in, n_out));
    struct tr_mat m;
    tr_cuda_mat_prepare(&dev, &m, type, n_in, n_out, rows.data(), mem.p);
    claim(m.packed == mem.p && m.type == type && m.n_in == n_in && m.n_out == n_out, "a matrix");
    (tr_quant_blocked(type) ? quantised : plain_rows)(type, n_in, n_out, rows,
                                                      (const uint8_t *)mem.p);
}

static void packed_alike_by_threads()
{
    struct tr_errbuf err;
    struct tr_dev dev = device(true);
    std::vector<uint8_t> rows = random_rows(TR_T_Q4_K, 512, 300);
    size_t len = tr_cuda_mat_bytes(&dev, TR_T_Q4_K, 512, 300);
    packed_room one(len), many(len);
    struct tr_mat m;
    tr_cuda_mat_prepare(&dev, &m, TR_T_Q4_K, 512, 300, rows.data(), one.p);
    dev.threads = tr_threads_start(2, &err);
    tr_cuda_mat_prepare(&dev, &m, TR_T_Q4_K, 512, 300, rows.data(), many.p);
    tr_threads_stop(dev.threads);
    claim(memcmp(one.p, many.p, len) == 0, "threads pack what one packs");
}

static void what_cannot_be_computed_with_has_no_bytes()
{
    struct tr_dev dev = device(true);
    claim(tr_cuda_mat_bytes(&dev, TR_T_Q8_0, 33, 1) == 0, "half a block");
    claim(tr_cuda_mat_bytes(&dev, TR_T_Q4_K, 128, 1) == 0, "half a super-block");
    claim(tr_cuda_mat_bytes(&dev, TR_T_Q8_K, 256, 1) == 0, "a type nobody stores");
    claim(tr_cuda_mat_bytes(&dev, TR_T_F32, 0, 1) == 0, "no input");
    claim(tr_cuda_mat_bytes(&dev, TR_T_F32, 1, 0) == 0, "no output");
    claim(tr_cuda_mat_bytes(&dev, TR_T_F16, 7, 33) == 2 * 512, "elements are filled up by eights");
}

int main()
{
    for (auto &t : all_types) {
        strips(t.type, least_in(t.type), 1);
        strips(t.type, 3 * least_in(t.type), 70);
        if (!tr_quant_blocked(t.type))
            strips(t.type, 13, 33);
    }
    packed_alike_by_threads();
    what_cannot_be_computed_with_has_no_bytes();
    return suite_end();
}
