/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/port.cuh - what the kernels use of CUDA beyond the language, each thing under one name.
 *
 * With nvcc it is CUDA's own; in tests of the kernels' logic the files are compiled as C++ and it comes from
 * tests/lib/cuda_on_cpu.h.  Nothing else in this folder names an intrinsic, writes PTX or launches.
 *
 * Arithmetic: -fmad=false -prec-div=true -prec-sqrt=true -ftz=false, so that +, *, / and sqrtf are those of
 * IEEE, and fmaf where it is meant: the same bits as the CPU's plain level (cpu_kernels/ops.h, N6). */
#ifndef TR_CUDA_KERNELS_PORT_CUH
#define TR_CUDA_KERNELS_PORT_CUH

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__

#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* Shared memory of a block: an array of its own, or what the launch gives.  Either is aligned for all that is loaded
 * at once: left alone, an array is where its elements may be. */
#define TR_SHARED(type, name, n) __shared__ __align__(16) type name[n]
#define TR_SHARED_GIVEN(name) extern __shared__ __align__(16) unsigned char name[]
/* A struct that a kernel is given, where it indexes or points into it: read in place, not copied to the stack. */
#define TR_GIVEN const __grid_constant__
#define TR_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)

/* Before a loop: all of it at once (what it indexes may be in registers), so many turns at once, or not. */
#define TR_UNROLL _Pragma("unroll")
#define TR_UNROLL_BY(n) TR_PRAGMA(unroll n)
#define TR_ROLLED _Pragma("unroll 1")
#define TR_PRAGMA(x) _Pragma(#x)

/* The same number, of which the compiler knows nothing: what follows from it is computed there and then, and no
 * registers keep it from before. */
__device__ __forceinline__ uint32_t tr_anew(uint32_t v)
{
    asm volatile("" : "+r"(v));
    return v;
}

__device__ __forceinline__ float tr_from_half(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
}
__device__ __forceinline__ uint16_t tr_to_half(float f)
{
    return __half_as_ushort(__float2half_rn(f));
}
/* Two floats as halves in a word, the first one low. */
__device__ __forceinline__ uint32_t tr_to_halves(float low, float high)
{
    __half2 h = __floats2half2_rn(low, high);
    return (uint32_t)__half_as_ushort(__high2half(h)) << 16 | __half_as_ushort(__low2half(h));
}
/* 2^x, off by 2^-22 of it; 0 where it would be subnormal. */
__device__ __forceinline__ float tr_exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Two floats rounded to halves, the first in the lower bits; beyond their range to the largest.  Two bfloat16. */
__device__ __forceinline__ uint32_t tr_two_halves(float a, float b)
{
    uint32_t two;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(b), "f"(a));
    return two;
}
__device__ __forceinline__ uint32_t tr_two_bfloats(float a, float b)
{
    uint32_t two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(b), "f"(a));
    return two;
}

/* A float's bits. */
__device__ __forceinline__ uint32_t tr_bits_of(float f)
{
    return __float_as_uint(f);
}
__device__ __forceinline__ float tr_float_of(uint32_t bits)
{
    return __uint_as_float(bits);
}

/* What this thread has written before it is seen by all blocks before what it writes afterwards; and a load that
 * sees what other blocks have written so, where this one may have read before. */
__device__ __forceinline__ void tr_fence()
{
    __threadfence();
}
__device__ __forceinline__ float tr_load_fresh(const float *p)
{
    return __ldcg(p);
}

/* A place in shared memory, which bytes may be added to: what the next ones take.  A number of 32 bits, which a
 * pointer would have to be turned into at every use. */
typedef uint32_t tr_spot;
__device__ __forceinline__ tr_spot tr_spot_of(const void *shared)
{
    return (tr_spot)__cvta_generic_to_shared(shared);
}

/* 16 bytes from global to shared memory, both aligned to 16; there after tr_copy_wait for the thread that copies,
 * for others when they have met it after that (__syncwarp, __syncthreads).  "memory", here and below, tells the
 * compiler that loads and stores stay on their side of it. */
__device__ __forceinline__ void tr_copy16(tr_spot to, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
__device__ __forceinline__ void tr_copy16(void *shared, const void *global)
{
    tr_copy16(tr_spot_of(shared), global);
}
/* The same with 4 bytes, both aligned to 4. */
__device__ __forceinline__ void tr_copy4(tr_spot to, const void *global)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
}
__device__ __forceinline__ void tr_copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> __device__ __forceinline__ void tr_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Four matrices of 8 rows of 16 bytes from shared memory: lane l says where row l % 8 of matrix l / 8 is,
 * and gets of each matrix the word l % 4 of row l / 4. */
__device__ __forceinline__ void tr_ldmatrix4(uint32_t r[4], const void *row)
{
    unsigned from = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}
/* The same of matrices of halves, turned: the halves 2 (l % 4) and the next one of column l / 4. */
__device__ __forceinline__ void tr_ldmatrix4_trans(uint32_t r[4], const void *row)
{
    unsigned from = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}
/* The same as tr_ldmatrix4 with two matrices; the lanes from 16 on say nothing. */
__device__ __forceinline__ void tr_ldmatrix2(uint32_t r[2], const void *row)
{
    unsigned from = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(from)
                 : "memory");
}

/* d = a * b + d of int8: a [16, 32] by rows in four registers of four, b [32, 8] by columns in two, d [16, 8].
 * PTX ISA, mma.m16n8k32, fragments: lane l holds of a the rows l / 4 and l / 4 + 8, of b the column l / 4, of
 * d the columns 2 (l % 4) and the next.  volatile: all lanes make it, also where only some use what comes out,
 * and it must not go where only those are. */
__device__ __forceinline__ void tr_mma_s8(int d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* The same with half as deep a product: a in two registers, b in one. */
__device__ __forceinline__ void tr_mma_s8_16(int d[4], const uint32_t a[2], uint32_t b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
                 "{%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
}
/* d = a * b + d of halves (or bfloat16), summed in float in an order that is the device's: a [16, 16] by rows
 * in four registers of two, b [16, 8] by columns in two, d [16, 8]; lanes as above. */
__device__ __forceinline__ void tr_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void tr_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#else

#include "cudalib/cuda_on_cpu.h"
#include "cudalib/cuda_runtime_on_cpu.h"

extern "C" {
float tr_f16_to_f32(uint16_t h); /* cpu_kernels/half.h */
uint16_t tr_f32_to_f16(float f);
}

#define TR_SHARED(type, name, n)                                                                   \
    alignas(16) static type name[n];                                                               \
    static tr_cuda::shared_note name##_note(name, sizeof(name))
#define TR_SHARED_GIVEN(name) unsigned char *name = (unsigned char *)tr_cuda::b->dynamic.data()
#define TR_GIVEN const
#define TR_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
    tr_cuda::enqueue((stream), (kernel), (grid), (block), (shared_bytes), __VA_ARGS__)

#define TR_UNROLL
#define TR_UNROLL_BY(n)
#define TR_ROLLED

inline uint32_t tr_anew(uint32_t v)
{
    return v;
}

inline float tr_from_half(uint16_t h)
{
    return tr_f16_to_f32(h);
}
inline uint16_t tr_to_half(float f)
{
    return tr_f32_to_f16(f);
}

inline uint32_t tr_to_halves(float low, float high)
{
    return (uint32_t)tr_to_half(high) << 16 | tr_to_half(low);
}
inline float tr_exp2_fast(float x)
{
    return x < -126 ? 0 : exp2f(x);
}

inline uint32_t tr_bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}
inline float tr_float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}
inline uint32_t tr_two_halves(float a, float b)
{
    float most = 65504.0f;
    a = a > most ? most : a < -most ? -most : a;
    b = b > most ? most : b < -most ? -most : b;
    return tr_to_half(a) | (uint32_t)tr_to_half(b) << 16;
}
/* Half of what is cut off is added, and a bit more where the last one that stays is odd; NaN has no bits to add. */
inline uint32_t tr_bfloat(float f)
{
    uint32_t bits = tr_bits_of(f);
    return f == f ? (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 : 0x7FFF;
}
inline uint32_t tr_two_bfloats(float a, float b)
{
    return tr_bfloat(a) | tr_bfloat(b) << 16;
}

typedef unsigned char *tr_spot;
inline tr_spot tr_spot_of(const void *shared)
{
    return (tr_spot)(uintptr_t)shared;
}

inline void tr_fence()
{
}
inline float tr_load_fresh(const float *p)
{
    return *p;
}

inline void tr_copy16(void *shared, const void *global)
{
    tr_cuda::copy_begin(shared, global, 16);
}
inline void tr_copy4(void *shared, const void *global)
{
    tr_cuda::copy_begin(shared, global, 4);
}
inline void tr_copy_commit()
{
    tr_cuda::copy_commit();
}
template <int N> inline void tr_copy_wait()
{
    tr_cuda::copy_wait(N);
}

namespace tr_cuda
{
struct ldmatrix_arg {
    uint32_t *r;
    const void *row;
};
/* Row r of matrix m. */
inline const char *ldmatrix_row(void *const arg[WARP], unsigned m, unsigned r)
{
    const char *row = (const char *)((const ldmatrix_arg *)arg[8 * m + r])->row;
    if ((uintptr_t)row % 16) {
        fprintf(stderr, "cuda_on_cpu: ldmatrix of a row at %p\n", (const void *)row);
        abort();
    }
    return row;
}
template <int N> void do_ldmatrix(void *const arg[WARP], uint32_t)
{
    for (unsigned l = 0; l < WARP; l++)
        for (unsigned m = 0; m < N; m++)
            memcpy(&((const ldmatrix_arg *)arg[l])->r[m], ldmatrix_row(arg, m, l / 4) + 4 * (l % 4),
                   4);
}
inline void do_ldmatrix_trans(void *const arg[WARP], uint32_t)
{
    for (unsigned l = 0; l < WARP; l++)
        for (unsigned m = 0; m < 4; m++) {
            uint16_t h[2];
            for (unsigned i = 0; i < 2; i++)
                memcpy(&h[i], ldmatrix_row(arg, m, 2 * (l % 4) + i) + 2 * (l / 4), 2);
            memcpy(&((const ldmatrix_arg *)arg[l])->r[m], h, 4);
        }
}

struct mma_arg {
    int *d;
    const uint32_t *a, *b;
};
/* K is 32 or 16: registers of a hold, by fours of k, [row half][k half] in the order of PTX. */
template <int K> void do_mma(void *const arg[WARP], uint32_t)
{
    int8_t a[16][K], b[8][K];
    for (unsigned l = 0; l < WARP; l++) {
        const mma_arg *m = (const mma_arg *)arg[l];
        for (unsigned r = 0; r < K / 8; r++)
            memcpy(&a[l / 4 + 8 * (r % 2)][16 * (r / 2) + 4 * (l % 4)], &m->a[r], 4);
        for (unsigned r = 0; r < K / 16; r++)
            memcpy(&b[l / 4][16 * r + 4 * (l % 4)], &m->b[r], 4);
    }
    for (unsigned l = 0; l < WARP; l++) {
        const mma_arg *m = (const mma_arg *)arg[l];
        for (unsigned i = 0; i < 4; i++) {
            const int8_t *row = a[l / 4 + 8 * (i / 2)], *col = b[2 * (l % 4) + i % 2];
            int sum = m->d[i];
            for (unsigned k = 0; k < K; k++)
                sum += row[k] * col[k];
            m->d[i] = sum;
        }
    }
}

struct mma_float_arg {
    float *d;
    const uint32_t *a, *b;
};
inline float float_of_f16(uint16_t h)
{
    return tr_from_half(h);
}
inline float float_of_bf16(uint16_t h)
{
    return tr_float_of((uint32_t)h << 16);
}
/* Registers of a hold, by twos of k, [row half][k half] in the order of PTX. */
template <float (*F)(uint16_t)> void do_mma_float(void *const arg[WARP], uint32_t)
{
    float a[16][16], b[8][16];
    for (unsigned l = 0; l < WARP; l++) {
        const mma_float_arg *m = (const mma_float_arg *)arg[l];
        for (unsigned r = 0; r < 4; r++)
            for (unsigned i = 0; i < 2; i++)
                a[l / 4 + 8 * (r % 2)][8 * (r / 2) + 2 * (l % 4) + i] =
                    F((uint16_t)(m->a[r] >> 16 * i));
        for (unsigned r = 0; r < 2; r++)
            for (unsigned i = 0; i < 2; i++)
                b[l / 4][8 * r + 2 * (l % 4) + i] = F((uint16_t)(m->b[r] >> 16 * i));
    }
    for (unsigned l = 0; l < WARP; l++) {
        const mma_float_arg *m = (const mma_float_arg *)arg[l];
        for (unsigned i = 0; i < 4; i++) {
            const float *row = a[l / 4 + 8 * (i / 2)], *col = b[2 * (l % 4) + i % 2];
            float sum = 0;
            for (unsigned k = 0; k < 16; k++)
                sum += row[k] * col[k];
            m->d[i] += sum;
        }
    }
}
} // namespace tr_cuda

inline void tr_ldmatrix4(uint32_t r[4], const void *row)
{
    tr_cuda::ldmatrix_arg a = {r, row};
    tr_cuda::meet("ldmatrix.x4", ~0u, &a, tr_cuda::do_ldmatrix<4>);
}
inline void tr_ldmatrix4_trans(uint32_t r[4], const void *row)
{
    tr_cuda::ldmatrix_arg a = {r, row};
    tr_cuda::meet("ldmatrix.x4.trans", ~0u, &a, tr_cuda::do_ldmatrix_trans);
}
inline void tr_ldmatrix2(uint32_t r[2], const void *row)
{
    tr_cuda::ldmatrix_arg a = {r, row};
    tr_cuda::meet("ldmatrix.x2", ~0u, &a, tr_cuda::do_ldmatrix<2>);
}
inline void tr_mma_s8(int d[4], const uint32_t a[4], const uint32_t b[2])
{
    tr_cuda::mma_arg m = {d, a, b};
    tr_cuda::meet("mma.m16n8k32", ~0u, &m, tr_cuda::do_mma<32>);
}
inline void tr_mma_s8_16(int d[4], const uint32_t a[2], uint32_t b)
{
    tr_cuda::mma_arg m = {d, a, &b};
    tr_cuda::meet("mma.m16n8k16", ~0u, &m, tr_cuda::do_mma<16>);
}
inline void tr_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    tr_cuda::mma_float_arg m = {d, a, b};
    tr_cuda::meet("mma.m16n8k16.f16", ~0u, &m, tr_cuda::do_mma_float<tr_cuda::float_of_f16>);
}
inline void tr_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    tr_cuda::mma_float_arg m = {d, a, b};
    tr_cuda::meet("mma.m16n8k16.bf16", ~0u, &m, tr_cuda::do_mma_float<tr_cuda::float_of_bf16>);
}

#endif

#endif
