/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/product_unit.cuh - products of few rows: the sums of one unit of K-blocks, exact whole numbers on the tensor
 * cores, or floats, and the numbers that they are multiplied by.  Why so: product_few.cu, the only one to include it. */
#ifndef TR_CUDA_KERNELS_PRODUCT_UNIT_CUH
#define TR_CUDA_KERNELS_PRODUCT_UNIT_CUH

#include "cuda_kernels/product_few.cuh"

/* Of the outputs 8 m + lane / 4 the groups lane % 4 (lo) and 4 + lane % 4 (hi), a quant in a byte. */
template <enum tr_tensor_type T>
static __device__ void spread(const uint8_t *block, uint32_t lane, uint32_t lo[4], uint32_t hi[4])
{
    constexpr uint32_t LOW = tr_cuda_low(T), HIGH = tr_cuda_high(T), UP = shape<T, 1>::UP;
    const uint32_t p = lane % 4;
    const uint8_t *upper = block + tr_cuda_high_at(T);
    if constexpr (LOW >= 4)
        tr_ldmatrix4(lo, block + lane * 16);
    if constexpr (LOW == 8)
        tr_ldmatrix4(hi, block + 512 + lane * 16);
    TR_UNROLL
    for (uint32_t m = 0; m < 4; m++) {
        const uint32_t output = 8 * m + lane / 4;
        if constexpr (LOW == 4) {
            const uint32_t w = lo[m], mask = 0x0f0f0f0fu << UP;
            lo[m] = w << UP & mask;
            hi[m] = (UP == 4 ? w : w >> (4 - UP)) & mask;
        } else if constexpr (LOW == 2) {
            const uint2 w = *(const uint2 *)(block + output * 8);
            lo[m] = (w.x >> 2 * p & 0x03030303u) << UP;
            hi[m] = (w.y >> 2 * p & 0x03030303u) << UP;
        }
        if constexpr (HIGH == 2) {
            const uint2 w = *(const uint2 *)(upper + output * 8);
            lo[m] |= (w.x >> 2 * p & 0x03030303u) << (UP + LOW);
            hi[m] |= (w.y >> 2 * p & 0x03030303u) << (UP + LOW);
        } else if constexpr (HIGH == 1) {
            const uint32_t w = *(const uint32_t *)(upper + output * 4) >> p;
            lo[m] |= (w & 0x01010101u) << (UP + LOW);
            hi[m] |= (w >> 4 & 0x01010101u) << (UP + LOW);
        }
    }
}

/* Scale of half h of an output's K-block, of types that have two. */
template <enum tr_tensor_type T>
static __device__ int half_scale(const uint8_t *block, uint32_t h, uint32_t output)
{
    const uint8_t byte = block[tr_cuda_scale_at(T) + h * TR_CUDA_STRIP + output];
    return tr_cuda_mins(T) ? byte & 15 : (int8_t)byte;
}

/* Sixteen outputs from 16 t on by 8 rows of activations b: d as a tensor core leaves it. */
template <enum tr_tensor_type T>
static __device__ void multiply(const uint8_t *block, const uint32_t lo[4], const uint32_t hi[4],
                                uint32_t t, const uint32_t b[2], uint32_t lane, int d[4])
{
    const uint32_t a[4] = {lo[2 * t], lo[2 * t + 1], hi[2 * t], hi[2 * t + 1]};
    d[0] = d[1] = d[2] = d[3] = 0;
    if (!tr_cuda_halves(T)) {
        tr_mma_s8(d, a, b);
        return;
    }
    int e[4] = {0, 0, 0, 0};
    tr_mma_s8_16(d, a, b[0]);
    tr_mma_s8_16(e, a + 2, b[1]);
    TR_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t output = 16 * t + i / 2 * 8 + lane / 4;
        d[i] = d[i] * half_scale<T>(block, 0, output) + e[i] * half_scale<T>(block, 1, output);
    }
}

/* The sums of a K-block, to where they are added from; b: its activations, of 8 rows, then of 8 more. */
template <enum tr_tensor_type T, uint32_t R>
static __device__ void block_sums(const uint8_t *block, const uint32_t *b, uint32_t lane, int *sums)
{
    uint32_t lo[4] = {}, hi[4] = {};
    spread<T>(block, lane, lo, hi);
    TR_UNROLL
    for (uint32_t t = 0; t < 2; t++) {
        TR_UNROLL
        for (uint32_t c = 0; c < (R + 7) / 8; c++) {
            int d[4];
            multiply<T>(block, lo, hi, t, b + 2 * c, lane, d);
            const uint32_t output = 16 * t + lane / 4, row = 8 * c + lane % 4 * 2;
            if (row >= R)
                continue;
            if constexpr (R == 1) {
                sums[output] = d[0];
                sums[output + 8] = d[2];
            } else {
                *(uint2 *)(sums + sum_at<R>(output, row)) = uint2{(uint32_t)d[0], (uint32_t)d[1]};
                *(uint2 *)(sums + sum_at<R>(output + 8, row)) =
                    uint2{(uint32_t)d[2], (uint32_t)d[3]};
            }
        }
    }
}

/* d and m of the output `lane`, of those at `at`. */
template <enum tr_tensor_type T>
static __device__ void scales(const uint8_t *at, uint32_t lane, float *d, float *m)
{
    const uint16_t *f16 = (const uint16_t *)at + lane;
    *d = tr_from_half(f16[0]) * (1.0f / (1 << shape<T, 1>::UP));
    *m = tr_cuda_mins(T) ? tr_from_half(f16[TR_CUDA_STRIP]) : 0.0f;
    if (tr_cuda_super(T))
        *m = 0.0f - *m;
}

/* What sums of a K-block are multiplied by for the output `lane`: words [N] at strides of SLOTS * 32.  d and m
 * are its super-block's. */
template <enum tr_tensor_type T, uint32_t R>
static __device__ void weight_numbers(const uint8_t *block, float d, float m, uint32_t lane,
                                      uint32_t *to)
{
    constexpr uint32_t STRIDE = shape<T, R>::SLOTS * TR_CUDA_STRIP;
    const uint8_t *small = block + tr_cuda_scale_at(T);
    if (!tr_cuda_super(T))
        scales<T>(small, lane, &d, &m);
    const bool scaled = tr_cuda_super(T) && !tr_cuda_halves(T);
    to[0] = tr_bits_of(scaled ? d * (float)small[lane] : d);
    if (tr_cuda_mins(T))
        to[STRIDE] = tr_bits_of(scaled ? m * (float)small[TR_CUDA_STRIP + lane] : m);
    if (tr_cuda_mins(T) && tr_cuda_halves(T))
        to[2 * STRIDE] = small[lane] >> 4 | (uint32_t)(small[TR_CUDA_STRIP + lane] >> 4) << 16;
}

/* A unit of quants: sums and numbers of its n K-blocks into the slots from `slot` on. */
template <enum tr_tensor_type T, uint32_t R>
static __device__ void quant_unit(const uint8_t *stage, uint32_t n, uint32_t slot, uint8_t *buffer,
                                  uint32_t lane)
{
    typedef shape<T, R> S;
    int *sums = (int *)buffer + slot * TR_CUDA_STRIP * R;
    uint32_t *of_weights = (uint32_t *)(buffer + S::OF_WEIGHTS_AT) + slot * TR_CUDA_STRIP + lane;
    uint32_t *of_x = (uint32_t *)(buffer + S::OF_X_AT) + slot * R;
    float d = 0.0f, m = 0.0f;
    if (tr_cuda_super(T))
        scales<T>(stage, lane, &d, &m);
    /* Four pieces of 8 rows each: both halves of two K-blocks, or with 16 rows of one. */
    const uint32_t row = R == 16 ? lane / 16 * 8 + lane % 8 : lane % 8 % R;
    const uint32_t piece = R == 16 ? lane / 8 % 2 : lane / 8;
    const uint8_t *x = stage + S::X_AT + row * S::X_ROW + piece * 16;
    uint32_t b[4] = {};
    TR_UNROLL
    for (uint32_t i = 0; i < S::UNIT; i++) {
        if (i >= n)
            break;
        const uint8_t *block = stage + S::HEAD + i * S::BLOCK;
        if (R == 16 || i % 2 == 0)
            tr_ldmatrix4(b, x + i * TR_CUDA_K);
        block_sums<T, R>(block, R == 16 ? b : b + i % 2 * 2, lane, sums + i * TR_CUDA_STRIP * R);
        weight_numbers<T, R>(block, d, m, lane, of_weights + i * TR_CUDA_STRIP);
    }
    if (lane < S::UNIT * R) {
        const uint32_t *from = (const uint32_t *)(stage + S::NUMBERS_AT) + lane;
        TR_UNROLL
        for (uint32_t i = 0; i < S::N; i++)
            of_x[i * S::SLOTS * R + lane] = from[i * S::UNIT * R];
    }
}

/* Eight or four elements of a float type, from 16 bytes. */
template <enum tr_tensor_type T> static __device__ void widen(const uint8_t *p, float w[8])
{
    const uint4 v = *(const uint4 *)p;
    const uint32_t u[4] = {v.x, v.y, v.z, v.w};
    TR_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        if (T == TR_T_F32) {
            w[i] = tr_float_of(u[i]);
        } else if (T == TR_T_BF16) {
            w[2 * i] = tr_float_of(u[i] << 16);
            w[2 * i + 1] = tr_float_of(u[i] & 0xffff0000u);
        } else {
            w[2 * i] = tr_from_half((uint16_t)u[i]);
            w[2 * i + 1] = tr_from_half((uint16_t)(u[i] >> 16));
        }
    }
}

/* A K-block of floats, n elements of it where it is not WHOLE: the output `lane` of all rows. */
template <enum tr_tensor_type T, uint32_t R, bool WHOLE>
static __device__ void float_sums(const uint8_t *weights, const float *x, uint32_t n, float sum[R])
{
    constexpr uint32_t PER = 16 / tr_cuda_element(T);
    TR_UNROLL
    for (uint32_t k = 0; k < TR_CUDA_K; k += PER) {
        float w[8];
        if (!WHOLE && k >= n)
            break;
        widen<T>(weights + k * (TR_CUDA_STRIP * 16 / PER), w);
        TR_UNROLL
        for (uint32_t i = 0; i < PER; i++) {
            if (!WHOLE && k + i >= n)
                break;
            TR_UNROLL
            for (uint32_t r = 0; r < R; r++)
                sum[r] = fmaf(x[r * TR_CUDA_K + k + i], w[i], sum[r]);
        }
    }
}

template <enum tr_tensor_type T, uint32_t R>
static __device__ void float_unit(const uint8_t *stage, uint32_t n, uint32_t slot, uint8_t *buffer,
                                  uint32_t lane)
{
    const float *x = (const float *)(stage + shape<T, R>::X_AT);
    float *sums = (float *)buffer + slot * TR_CUDA_STRIP * R;
    float sum[R];
    TR_UNROLL
    for (uint32_t r = 0; r < R; r++)
        sum[r] = 0.0f;
    if (n >= TR_CUDA_K)
        float_sums<T, R, true>(stage + lane * 16, x, n, sum);
    else
        float_sums<T, R, false>(stage + lane * 16, x, n, sum);
    TR_UNROLL
    for (uint32_t r = 0; r < R; r++)
        sums[sum_at<R>(lane, r)] = sum[r];
}

#endif
