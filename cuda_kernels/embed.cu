/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/embed.cu - embed: rows of a packed matrix as floats, the same as tr_strip_row's.
 *
 * A thread has an element, so that a warp has a K-block of a row: it writes 128 bytes that lie together and
 * reads the few bytes that an output has in a strip's block (cuda_kernels/strip.h) again and again from the
 * first cache.  A step reads some hundred rows of one matrix: this never counts. */
#include "cuda_kernels/dev.cuh"
#include "cuda_kernels/strip.h"

extern "C" {
#include "base/assert.h"
}

enum { THREADS = 128 };

static __device__ float half_at(const uint8_t *p, uint32_t output)
{
    return tr_from_half(*(const uint16_t *)(p + output * 2));
}

/* Element k of an output of a float type. */
template <enum tr_tensor_type TYPE>
static __device__ float float_at(const uint8_t *strip, uint32_t output, uint32_t k)
{
    const uint8_t *p = strip + tr_cuda_element_at(TYPE, k, output);
    if (TYPE == TR_T_F32)
        return *(const float *)p;
    if (TYPE == TR_T_F16)
        return tr_from_half(*(const uint16_t *)p);
    return tr_float_of((uint32_t) * (const uint16_t *)p << 16);
}

/* Element k of an output of a quantised type: q * (d * sc), and the minimum added. */
template <enum tr_tensor_type TYPE>
static __device__ float block_at(const uint8_t *strip, uint32_t output, uint32_t k)
{
    constexpr bool mins = tr_cuda_mins(TYPE), halves = tr_cuda_halves(TYPE);
    uint32_t i = k / TR_CUDA_K;
    const uint8_t *block = strip + tr_cuda_block_at(TYPE, i);
    const uint8_t *scales = block + tr_cuda_scale_at(TYPE);
    const uint8_t *heads = tr_cuda_super(TYPE) ? strip + tr_cuda_head_at(TYPE, i) : scales;
    float d = half_at(heads, output), m = mins ? half_at(heads + TR_CUDA_F16S, output) : 0.0f;
    if (tr_cuda_super(TYPE)) {
        uint32_t h = halves ? k % TR_CUDA_K / 16 : 0;
        uint8_t sc = scales[h * TR_CUDA_STRIP + output];
        uint8_t mn = mins && !halves ? scales[TR_CUDA_STRIP + output] : (uint8_t)(sc >> 4);
        d = d * (float)(mins && halves ? sc & 15 : (int8_t)sc);
        m = -(m * (float)mn);
    }
    float x = (float)tr_cuda_quant(TYPE, block, output, k % TR_CUDA_K) * d;
    return mins ? x + m : x;
}

/* Grid: (rows, elements / THREADS). */
template <enum tr_tensor_type TYPE>
static __global__ void embed(const uint8_t *packed, size_t strip_bytes, uint32_t n_in,
                             const uint32_t *tokens, float *out)
{
    uint32_t k = blockIdx.y * THREADS + threadIdx.x, token = tokens[blockIdx.x];
    const uint8_t *strip = packed + token / TR_CUDA_STRIP * strip_bytes;
    uint32_t output = token % TR_CUDA_STRIP;
    if (k >= n_in)
        return;
    float *to = out + (size_t)blockIdx.x * n_in + k;
    if constexpr (tr_cuda_low(TYPE) == 0)
        *to = float_at<TYPE>(strip, output, k);
    else
        *to = block_at<TYPE>(strip, output, k);
}

template <enum tr_tensor_type TYPE>
static void launch(struct tr_dev *dev, const struct tr_mat *m, const uint32_t *tokens,
                   uint32_t n_rows, float *out)
{
    TR_LAUNCH((embed<TYPE>), dim3(n_rows, (m->n_in + THREADS - 1) / THREADS), dim3(THREADS), 0,
              dev->stream, (const uint8_t *)m->packed, tr_cuda_strip_bytes(TYPE, m->n_in), m->n_in,
              tokens, out);
}

void tr_cuda_embed(struct tr_dev *dev, const struct tr_mat *m, const uint32_t *tokens,
                   uint32_t n_rows, float *out)
{
    if (!n_rows)
        return;
    switch ((int)m->type) {
    case TR_T_F32:
        return launch<TR_T_F32>(dev, m, tokens, n_rows, out);
    case TR_T_F16:
        return launch<TR_T_F16>(dev, m, tokens, n_rows, out);
    case TR_T_BF16:
        return launch<TR_T_BF16>(dev, m, tokens, n_rows, out);
    case TR_T_Q8_0:
        return launch<TR_T_Q8_0>(dev, m, tokens, n_rows, out);
    case TR_T_Q4_0:
        return launch<TR_T_Q4_0>(dev, m, tokens, n_rows, out);
    case TR_T_Q4_1:
        return launch<TR_T_Q4_1>(dev, m, tokens, n_rows, out);
    case TR_T_Q5_0:
        return launch<TR_T_Q5_0>(dev, m, tokens, n_rows, out);
    case TR_T_Q5_1:
        return launch<TR_T_Q5_1>(dev, m, tokens, n_rows, out);
    case TR_T_Q2_K:
        return launch<TR_T_Q2_K>(dev, m, tokens, n_rows, out);
    case TR_T_Q3_K:
        return launch<TR_T_Q3_K>(dev, m, tokens, n_rows, out);
    case TR_T_Q4_K:
        return launch<TR_T_Q4_K>(dev, m, tokens, n_rows, out);
    case TR_T_Q5_K:
        return launch<TR_T_Q5_K>(dev, m, tokens, n_rows, out);
    case TR_T_Q6_K:
        return launch<TR_T_Q6_K>(dev, m, tokens, n_rows, out);
    default:
        TR_ASSERT(!"a type that mat_bytes refuses");
    }
}
