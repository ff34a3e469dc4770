/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/device.h"

#include "cuda_kernels/dev.cuh"
#include "gpu/picks.h"
#include "gpu/report.h"
#include "gpu/stages.h"

#include <chrono>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NVIDIA's data sheets of these products; where they give rates with sparsity, the half of that. */
static const struct nominal nominals[] = {
    {"H200 NVL", 4800, 835, 1670},
    {"H200", 4800, 989, 1979},
    {"H100 PCIe", 2000, 756, 1513},
    {"H100 NVL", 3900, 835, 1670},
    {"H100", 3350, 989, 1979},
    {"A100-SXM4-80GB", 2039, 312, 624},
    {"A100 80GB PCIe", 1935, 312, 624},
    {"A100", 1555, 312, 624},
    {"L40S", 864, 362, 733},
    {"L4", 300, 121, 242},
};

struct nominal nominal_of(const char *device_name)
{
    for (const struct nominal &n : nominals)
        if (strstr(device_name, n.name))
            return n;
    return {"", 0, 0, 0};
}

void must(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

/* ---- the stopwatch ---- */

static double us_now()
{
    auto t = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::micro>(t).count();
}

static double turn(cudaStream_t s, cudaGraphExec_t exec, uint32_t launches)
{
    double start = us_now();
    for (uint32_t i = 0; i < launches; i++)
        must(cudaGraphLaunch(exec, s), "starting a recording");
    must(cudaStreamSynchronize(s), "waiting for it");
    return us_now() - start;
}

double microseconds(cudaStream_t s, uint32_t n, const std::function<void(uint32_t i)> &call,
                    bool dry)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    call(0); /* what is set up at a first call is set up */
    must(cudaStreamSynchronize(s), "a first call");
    must(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "recording");
    for (uint32_t i = 0; i < n; i++)
        call(i);
    must(cudaStreamEndCapture(s, &graph), "recording");
    must(cudaGraphInstantiate(&exec, graph, 0), "recording");
    double best = turn(s, exec, 1), once = turn(s, exec, 1);
    uint32_t launches = once < 20000 ? (uint32_t)(20000 / (once + 1)) + 1 : 1;
    for (int i = 0; i < 3 && !dry; i++) {
        double us = turn(s, exec, launches) / launches;
        best = us < best ? us : best;
    }
    must(cudaGraphExecDestroy(exec), "giving a recording back");
    must(cudaGraphDestroy(graph), "giving a recording back");
    return best / n;
}

double tr_gpu_microseconds(struct tr_dev *dev, uint32_t n, void (*call)(void *arg, uint32_t i),
                           void *arg, bool dry)
{
    return microseconds(
        dev->stream, n, [&](uint32_t i) { call(arg, i); }, dry);
}

/* ---- limits ---- */

struct alignas(16) words {
    uint32_t w[4];
};

enum { READ_THREADS = 256, READ_AHEAD = 8 /* loads that a thread has under way */ };

/* Reads n pieces; what comes of it is written only if it is what it never is. */
static __global__ void read_kernel(const struct words *p, size_t n, uint32_t *out)
{
    size_t step = (size_t)gridDim.x * READ_THREADS,
           at = (size_t)blockIdx.x * READ_THREADS + threadIdx.x;
    uint32_t sum = 0;
    for (; at + (READ_AHEAD - 1) * step < n; at += READ_AHEAD * step) {
        struct words v[READ_AHEAD];
        for (int i = 0; i < READ_AHEAD; i++)
            v[i] = p[at + i * step];
        for (int i = 0; i < READ_AHEAD; i++)
            sum += v[i].w[0] + v[i].w[1] + v[i].w[2] + v[i].w[3];
    }
    if (sum == 0x12345678u)
        *out = sum;
}

struct area {
    char *p = nullptr;
    size_t len;
    cudaStream_t s;
    explicit area(bool dry) : len(dry ? (size_t)1 << 17 : (size_t)2 << 30)
    {
        must(cudaMalloc((void **)&p, len), "memory to measure with");
        must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "a stream");
        must(cudaMemsetAsync(p, 0, len, s), "memory to measure with");
    }
    ~area()
    {
        cudaStreamDestroy(s);
        cudaFree(p);
    }
};

double read_speed(bool dry)
{
    area a(dry);
    size_t n = a.len / sizeof(struct words);
    unsigned blocks = dry ? 2 : 2048;
    double us = microseconds(
        a.s, 1,
        [&](uint32_t) {
            TR_LAUNCH(read_kernel, dim3(blocks), dim3(READ_THREADS), 0, a.s,
                      (const struct words *)a.p, n, (uint32_t *)a.p);
        },
        dry);
    return (double)a.len / us * 1e-3;
}

double copy_speed(bool dry)
{
    area a(dry);
    size_t half = a.len / 2;
    double us = microseconds(
        a.s, 1,
        [&](uint32_t) {
            must(cudaMemcpyAsync(a.p + half, a.p, half, cudaMemcpyDeviceToDevice, a.s), "a copy");
        },
        dry);
    return 2 * (double)half / us * 1e-3;
}

static bool is_there()
{
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess && n > 0;
}

double tr_gpu_read_gb_s(bool dry)
{
    static double gb_s = -1;
    if (gb_s < 0)
        gb_s = is_there() ? read_speed(dry) : 0;
    return gb_s;
}

int tr_gpu_limits(const struct tr_gpu_args *a)
{
    static const char *const columns[] = {"device",       "SMs",       "memory GB",
                                          "read GB/s",    "copy GB/s", "nominal GB/s",
                                          "BF16 TFLOP/s", "int8 TOP/s"};
    cudaDeviceProp p;
    int driver = 0, runtime = 0;
    if (!is_there()) {
        tr_report_say("there is no device: %s", cudaGetErrorString(cudaGetLastError()));
        return 1;
    }
    must(cudaGetDeviceProperties(&p, 0), "the device's properties");
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    struct nominal n = nominal_of(p.name);
    tr_report_say("%s, compute capability %d.%d, driver for CUDA %d.%d, runtime %d.%d", p.name,
                  p.major, p.minor, driver / 1000, driver % 1000 / 10, runtime / 1000,
                  runtime % 1000 / 10);
    tr_report_table("limits", 8, columns);
    tr_report_text(p.name);
    tr_report_number(p.multiProcessorCount, 0);
    tr_report_number((double)p.totalGlobalMem * 1e-9, 1);
    tr_report_number(read_speed(a->dry), 0);
    tr_report_number(copy_speed(a->dry), 0);
    n.gb_s > 0 ? tr_report_number(n.gb_s, 0) : tr_report_nothing();
    n.bf16_tflops > 0 ? tr_report_number(n.bf16_tflops, 0) : tr_report_nothing();
    n.int8_tops > 0 ? tr_report_number(n.int8_tops, 0) : tr_report_nothing();
    return 0;
}
