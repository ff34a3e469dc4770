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

/* Shared memory of a block: an array of its own, or what the launch gives. */
#define TR_SHARED(type, name, n) __shared__ type name[n]
#define TR_SHARED_GIVEN(name) extern __shared__ __align__(16) unsigned char name[]
#define TR_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)

__device__ __forceinline__ float tr_from_half(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
}
__device__ __forceinline__ uint16_t tr_to_half(float f)
{
    return __half_as_ushort(__float2half_rn(f));
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

/* 16 bytes from global to shared memory, both aligned to 16; there after tr_copy_wait. */
__device__ __forceinline__ void tr_copy16(void *shared, const void *global)
{
    unsigned to = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global));
}
__device__ __forceinline__ void tr_copy_commit()
{
    asm volatile("cp.async.commit_group;");
}
template <int N> __device__ __forceinline__ void tr_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N));
}

/* d[4] = a * b + c of int8: a [16, 32] by rows in four registers of four, b [32, 8] by columns in two, c and
 * d [16, 8].  PTX ISA, mma.m16n8k32, fragments: lane l holds of a the rows l / 4 and l / 4 + 8, of b the column
 * l / 4, of d the columns 2 (l % 4) and the next. */
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
#define TR_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
    tr_cuda::enqueue((stream), (kernel), (grid), (block), (shared_bytes), __VA_ARGS__)

inline float tr_from_half(uint16_t h)
{
    return tr_f16_to_f32(h);
}
inline uint16_t tr_to_half(float f)
{
    return tr_f32_to_f16(f);
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

inline void tr_copy16(void *shared, const void *global)
{
    tr_cuda::copy_begin(shared, global, 16);
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
struct mma_arg {
    int *d;
    const uint32_t *a, *b;
};
/* K is 32 or 16: registers of a hold, by fours of k, [row half][k half] in the order of PTX. */
template <int K> void do_mma(void *const arg[WARP], uint32_t)
{
    int8_t a[16][K], b[K][8];
    for (unsigned l = 0; l < WARP; l++) {
        const mma_arg *m = (const mma_arg *)arg[l];
        for (unsigned r = 0; r < K / 8; r++)
            for (unsigned i = 0; i < 4; i++)
                a[l / 4 + 8 * (r % 2)][16 * (r / 2) + 4 * (l % 4) + i] = (int8_t)(m->a[r] >> 8 * i);
        for (unsigned r = 0; r < K / 16; r++)
            for (unsigned i = 0; i < 4; i++)
                b[16 * r + 4 * (l % 4) + i][l / 4] = (int8_t)(m->b[r] >> 8 * i);
    }
    for (unsigned l = 0; l < WARP; l++) {
        const mma_arg *m = (const mma_arg *)arg[l];
        for (unsigned i = 0; i < 4; i++) {
            unsigned row = l / 4 + 8 * (i / 2), col = 2 * (l % 4) + i % 2;
            for (unsigned k = 0; k < K; k++)
                m->d[i] += a[row][k] * b[k][col];
        }
    }
}
} // namespace tr_cuda
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

#endif

#endif
