/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/curves.cuh - exp and tanh with the bits of the CPU's (cpu_kernels/rows.inl, where they are
 * explained). */
#ifndef TR_CUDA_KERNELS_CURVES_CUH
#define TR_CUDA_KERNELS_CURVES_CUH

#include "cuda_kernels/port.cuh"

/* a where it is the larger one, else b: also where either is NaN. */
static __device__ __forceinline__ float tr_larger(float a, float b)
{
    return a > b ? a : b;
}
static __device__ __forceinline__ float tr_smaller(float a, float b)
{
    return a < b ? a : b;
}

/* a with the low bits of b added to its exponent. */
static __device__ __forceinline__ float tr_scale_bits(float a, float b)
{
    return tr_float_of(tr_bits_of(a) + (tr_bits_of(b) << 23));
}

static __device__ __forceinline__ float tr_exp(float x)
{
    const float rounder = 0x1.8p23f;
    float u = tr_larger(-87.0f, tr_smaller(88.0f, x));
    float t = fmaf(u, 0x1.715476p+0f, rounder);
    float n = t - rounder;
    float r = fmaf(n, -0x1.62e430p-1f, u);
    r = fmaf(n, 0x1.05c610p-29f, r);
    float y = 0x1.0fa82p-7f;
    y = fmaf(y, r, 0x1.573a6ep-5f);
    y = fmaf(y, r, 0x1.555a6cp-3f);
    y = fmaf(y, r, 0x1.fffdc6p-2f);
    y = fmaf(y, r, 0x1.fffff6p-1f);
    y = fmaf(y, r, 1.0f);
    return x < -87.0f ? 0.0f : tr_scale_bits(y, t);
}

static __device__ __forceinline__ float tr_tanh(float x)
{
    const float rounder = 0x1.8p23f;
    float y = tr_larger(-20.0f, tr_smaller(20.0f, x + x));
    float t = fmaf(y, 0x1.715476p+0f, rounder);
    float n = t - rounder;
    float r = fmaf(n, -0x1.62e430p-1f, y);
    r = fmaf(n, 0x1.05c610p-29f, r);
    float p = 1.0f / 5040;
    p = fmaf(p, r, 1.0f / 720);
    p = fmaf(p, r, 1.0f / 120);
    p = fmaf(p, r, 1.0f / 24);
    p = fmaf(p, r, 1.0f / 6);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    float power = tr_scale_bits(1.0f, t);
    float m = fmaf(power, p * r, power - 1.0f);
    return m / (m + 2.0f);
}

#endif
