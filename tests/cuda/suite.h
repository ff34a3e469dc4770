/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cuda/suite.h - what the programs of the kernel suite have in common.
 *
 * A program is plain C++ over the operations of cuda_kernels/dev.cuh: with tests/lib/cuda_on_cpu.h here, with
 * nvcc on a device (tools/gpu_check).  Results are held against the plain level of cpu_kernels, by memcmp where
 * the operation owes the same bits.  A program ends with "N passed, N failed". */
#ifndef TR_TESTS_CUDA_SUITE_H
#define TR_TESTS_CUDA_SUITE_H

#include "cuda_kernels/dev.cuh"

#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

/* ---- counting ---- */

inline unsigned n_passed, n_failed;

__attribute__((format(printf, 2, 3))) inline void claim(bool holds, const char *format, ...)
{
    holds ? n_passed++ : n_failed++;
    if (holds)
        return;
    va_list a;
    va_start(a, format);
    printf("FAILED: ");
    vprintf(format, a);
    printf("\n");
    va_end(a);
}

inline int suite_end()
{
    printf("%u passed, %u failed\n", n_passed, n_failed);
    return n_failed != 0;
}

/* ---- random numbers ---- */

inline uint32_t rnd()
{
    static uint64_t state = 0x9E3779B97F4A7C15u;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

inline uint32_t rnd_in(uint32_t lo, uint32_t hi)
{
    return lo + rnd() % (hi - lo + 1);
}

/* About normal, mean 0, variance 1. */
inline float rnd_float()
{
    float s = 0;
    for (int i = 0; i < 12; i++)
        s += (float)(rnd() & 0xFFFF) / 65536.0f;
    return s - 6.0f;
}

inline std::vector<float> floats(size_t n)
{
    std::vector<float> v(n);
    for (float &f : v)
        f = rnd_float();
    return v;
}

/* ---- memory ---- */

inline void must(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return;
    fprintf(stderr, "%s: CUDA error %d\n", what, (int)e);
    exit(2);
}

/* An array of the device, and what is in it. */
template <class T> struct on_device {
    T *p = nullptr;
    size_t n;
    explicit on_device(size_t count) : n(count)
    {
        must(cudaMalloc((void **)&p, count * sizeof(T) + 1), "cudaMalloc");
    }
    explicit on_device(const std::vector<T> &v) : on_device(v.size())
    {
        put(v);
    }
    on_device(const on_device &) = delete;
    ~on_device()
    {
        cudaFree(p);
    }
    void put(const std::vector<T> &v)
    {
        if (!v.empty())
            must(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice),
                 "cudaMemcpy");
    }
    std::vector<T> get() const
    {
        std::vector<T> v(n);
        must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        must(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
        return v;
    }
};

template <class T> bool same(const std::vector<T> &a, const std::vector<T> &b)
{
    return a.size() == b.size() &&
           (a.empty() || memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/* The largest difference beside the largest value. */
inline double distance(const std::vector<float> &a, const std::vector<float> &b)
{
    double worst = 0, top = 0;
    for (size_t i = 0; i < a.size(); i++) {
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
        top = fmax(top, fabs((double)b[i]));
    }
    return top > 0 ? worst / top : worst;
}

/* ---- devices ---- */

/* The plain level of the CPU: what is right. */
inline struct tr_dev *plain()
{
    static struct tr_dev *dev;
    struct tr_errbuf err;
    struct tr_cpu_config c = {};
    c.math = TR_OPS_INT8;
    c.level_max = TR_CPU_GENERIC;
    c.n_threads = 1;
    if (!dev && !(dev = tr_cpu_open(&c, &err))) {
        fprintf(stderr, "%s\n", err.msg);
        exit(2);
    }
    return dev;
}

inline struct tr_dev device(bool exact)
{
    struct tr_dev dev = {};
    cudaDeviceProp p;
    must(cudaGetDeviceProperties(&p, 0), "cudaGetDeviceProperties");
    dev.n_sm = 4;
    dev.shared_most = p.sharedMemPerBlockOptin;
    dev.exact = exact;
    return dev;
}

/* fn() with the threads of a warp in either order; on a device once. */
inline void in_both_orders(const std::function<void(const char *order)> &fn)
{
#ifdef __CUDACC__
    fn("");
#else
    tr_cuda::backwards = false;
    fn("");
    tr_cuda::backwards = true;
    fn(", backwards");
    tr_cuda::backwards = false;
#endif
}

#endif
