/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cuda/runtime.cc - opening a device, its memory, recorded passes and its failures (cuda_kernels/open.cu,
 * memory.cu, graph.cu), over a device that can be told to fail (tests/lib/cuda_runtime_on_cpu.h).
 *
 * Not for a GPU.  A device that has failed stays so: each of these has a process of its own. */
#include "suite.h"

#include "cuda_kernels/cuda.h"

#include <errno.h>
#include <sys/wait.h>

static tr_cuda::machine *const gpu = tr_cuda::here();

static struct tr_dev *open_it(struct tr_errbuf *err)
{
    struct tr_cuda_config c = {};
    c.n_threads = 1;
    *err = {};
    return tr_cuda_open(&c, err);
}

/* fn() in a process of its own; what it claims counts here. */
static void apart(const char *name, void (*fn)())
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        unsigned before = n_failed;
        fn();
        fflush(stdout);
        _exit(n_failed > before);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    claim(status == 0, "%s", name);
}

static void says(const char *what, const char *words)
{
    struct tr_errbuf err;
    struct tr_dev *dev = open_it(&err);
    claim(!dev && strstr(err.msg, words) && strstr(err.msg, "--backend c"), "%s: \"%s\"", what,
          err.msg);
}

static void opening()
{
    gpu->n_devices = 0;
    says("no device", "no GPU is to be seen");
    gpu->fail = tr_cuda::CALL_COUNT;
    gpu->code = cudaErrorInsufficientDriver;
    gpu->times = 2;
    says("no driver", "there is no NVIDIA driver");
    gpu->n_devices = 1;
    says("an old driver", "is for CUDA 13.0, this build needs 13.0");
    gpu->code = cudaErrorDevicesUnavailable;
    gpu->times = 1;
    says("a busy device", "cannot be used");
    gpu->major = 7;
    gpu->minor = 5;
    says("an old device", "has compute capability 7.5, and 8.0 is the least");
    gpu->major = 9;
    gpu->minor = 0;
    struct tr_errbuf err;
    struct tr_cuda_facts f;
    struct tr_dev *dev = open_it(&err);
    claim(dev != NULL, "a device: %s", err.msg);
    tr_cuda_facts(dev, &f);
    claim(f.major == 9 && f.n_sm == 4 && f.memory == gpu->memory && f.free == f.memory,
          "its facts");
    tr_cuda_close(dev);
}

static unsigned beats;
static void beat(void *)
{
    beats++;
}

static void memory()
{
    struct tr_errbuf err;
    struct tr_cuda_config c = {};
    enum { WEIGHTS = 100 << 20 };
    c.n_threads = 1;
    c.beat = beat;
    gpu->memory = 256 << 20;
    gpu->guard = gpu->lazy = 1;
    struct tr_dev *dev = tr_cuda_open(&c, &err);
    std::vector<char> weights(WEIGHTS, 7);
    const void *there = tr_cuda_resident(dev, weights.data(), WEIGHTS);
    claim(there && beats == 2, "weights lie in the device, with %u beats", beats);
    char *more = (char *)tr_cuda_take(dev, 1000, false);
    claim(more && !tr_cuda_take(dev, 200 << 20, false), "memory ends");
    claim(tr_cuda_ask(dev, &err) == TR_CUDA_BUSY, "clearing is under way");
    claim(tr_cuda_ask(dev, &err) == TR_CUDA_DONE, "what was too much is no failure");
    char *host = (char *)tr_cuda_take_host(dev, 1000), back[1000];
    claim(host && host[0] == 0 && host[999] == 0, "the host's is zeroed");
    memset(host, 3, 500);
    tr_cuda_upload(dev, more, host, 500);
    tr_cuda_download(dev, back, more, 1000);
    claim(memcmp(back, host, 1000) == 0, "up and down, and zeroes behind");
    tr_cuda_download(dev, back, (const char *)there + WEIGHTS - 10, 10);
    claim(back[0] == 7 && back[9] == 7, "all of the weights");
    tr_cuda_give_host(dev, host, 1000);
    tr_cuda_give(dev, more, 1000);
    tr_cuda_evict(dev, there, WEIGHTS);
    struct tr_cuda_facts f;
    tr_cuda_facts(dev, &f);
    claim(f.free == f.memory, "all is given back");
    tr_cuda_close(dev);
    *gpu = tr_cuda::own;
}

/* x += y, as a pass. */
struct pass {
    struct tr_dev *dev;
    float *x, *y;
};
static bool run(const pass *p, uint32_t rows)
{
    bool again = tr_cuda_replay(p->dev, rows);
    if (again)
        return true;
    tr_cuda_add(p->dev, p->x, p->y, rows, 8);
    tr_cuda_record_pass(p->dev);
    return false;
}
static float first(const pass *p)
{
    float f;
    tr_cuda_download(p->dev, &f, p->x, sizeof(f));
    return f;
}

static pass open_pass(struct tr_errbuf *err)
{
    pass p = {};
    p.dev = open_it(err);
    p.x = (float *)tr_cuda_take(p.dev, 256 * 8 * sizeof(float), false);
    p.y = (float *)tr_cuda_take(p.dev, 256 * 8 * sizeof(float), false);
    std::vector<float> one(256 * 8, 1.0f);
    tr_cuda_upload(p.dev, p.y, one.data(), one.size() * sizeof(float));
    tr_cuda_download(p.dev, NULL, NULL, 0);
    return p;
}

static void passes()
{
    struct tr_errbuf err;
    gpu->lazy = gpu->guard = 1;
    pass p = open_pass(&err);
    const uint32_t buckets[][2] = {{1, 1},     {2, 2},     {3, 4},  {9, 16},
                                   {255, 256}, {256, 256}, {257, 0}};
    for (auto &b : buckets)
        claim(tr_cuda_bucket(p.dev, b[0]) == b[1], "%u rows go into %u", b[0], b[1]);
    claim(!run(&p, 2) && first(&p) == 1, "without a recording a pass is made");
    tr_cuda_record_begin(p.dev);
    claim(!run(&p, 1) && !run(&p, 4), "two are recorded");
    claim(run(&p, 4), "once");
    claim(tr_cuda_record_end(p.dev, &err) == 0, "that works: %s", err.msg);
    claim(first(&p) == 1, "and does nothing yet");
    uint64_t launches = gpu->calls[tr_cuda::CALL_GRAPH];
    claim(run(&p, 4) && run(&p, 1) && first(&p) == 3, "they are started again");
    claim(gpu->calls[tr_cuda::CALL_GRAPH] == launches + 2, "with one call each");
    claim(!run(&p, 2) && first(&p) == 4, "others are still made");
    tr_cuda_give(p.dev, p.x, 0);
    tr_cuda_give(p.dev, p.y, 0);
    tr_cuda_close(p.dev);
    *gpu = tr_cuda::own;
}

/* A prompt of a long context may be one pass: its launches are such as a device takes.  Nothing runs. */
static void the_longest_pass()
{
    enum { ROWS = 200000, HEADS = 4, DIM = 128, WIDTH = HEADS * DIM };
    struct tr_errbuf err;
    struct tr_dev *dev = open_it(&err);
    std::vector<uint8_t> room(tr_cuda_attention_room(4, ROWS, ROWS, HEADS, HEADS, DIM));
    struct tr_mat m = {};
    m.type = TR_T_Q8_0;
    m.n_in = m.n_out = WIDTH;
    struct tr_act a = {};
    a.dim = WIDTH;
    a.max_rows = ROWS;
    struct tr_rope r = {};
    r.n_rot = DIM;
    struct tr_kv kv = {};
    kv.n_layer = kv.n_blocks = 1;
    kv.n_head_kv = HEADS;
    kv.head_dim = DIM;
    struct tr_attend_params p = {};
    p.scale = 1;
    dev->attend_room = room.data();
    dev->attend_room_len = room.size();
    cudaGraph_t graph = NULL;
    claim(cudaStreamBeginCapture(dev->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess,
          "%d rows", (int)ROWS);
    tr_cuda_note_ids(dev, &kv, NULL, NULL, ROWS);
    tr_cuda_embed(dev, &m, NULL, ROWS, NULL);
    tr_cuda_scale(dev, NULL, 1, ROWS, WIDTH);
    tr_cuda_rms_norm(dev, NULL, NULL, 0, ROWS, WIDTH, NULL);
    tr_cuda_head_norm(dev, NULL, NULL, 0, ROWS, HEADS, DIM);
    tr_cuda_rope(dev, &r, NULL, NULL, ROWS, HEADS, DIM);
    tr_cuda_act_set(dev, &a, NULL, ROWS);
    for (enum tr_tensor_type type : {TR_T_Q8_0, TR_T_Q4_K, TR_T_F16, TR_T_F32}) {
        m.type = type;
        tr_cuda_matmul(dev, &m, &a, NULL);
    }
    for (enum tr_ops_kv type : {TR_OPS_KV_F16, TR_OPS_KV_Q8_0, TR_OPS_KV_F32}) {
        kv.type = type;
        kv.block_bytes = tr_kv_block_bytes(type, HEADS, DIM);
        tr_cuda_kv_write(dev, &kv, 0, NULL, ROWS, NULL, NULL);
        tr_cuda_attention(dev, &kv, 0, NULL, ROWS, NULL, HEADS, &p, NULL);
    }
    tr_cuda_silu_mul(dev, NULL, NULL, ROWS, WIDTH);
    tr_cuda_gather(dev, NULL, NULL, ROWS, WIDTH, NULL);
    cudaError_t e = cudaStreamEndCapture(dev->stream, &graph);
    claim(e == cudaSuccess && dev->error == cudaSuccess && graph->work.size() > 1000,
          "are launches that a device takes");
    cudaGraphDestroy(graph);
    dev->attend_room = NULL;
    tr_cuda_close(dev);
}

static void no_memory_for_a_recording()
{
    struct tr_errbuf err;
    pass p = open_pass(&err);
    gpu->fail = tr_cuda::CALL_INSTANTIATE;
    gpu->code = cudaErrorMemoryAllocation;
    gpu->times = 1;
    tr_cuda_record_begin(p.dev);
    run(&p, 1);
    claim(tr_cuda_record_end(p.dev, &err) == -ENOMEM && strstr(err.msg, "--kv-memory"), "\"%s\"",
          err.msg);
}

/* A device that fails in a pass: what is said, and that it stays so. */
static void fails(enum tr_cuda::call call, cudaError_t code, enum tr_cuda_state state,
                  const char *words)
{
    struct tr_errbuf err;
    gpu->lazy = 1;
    pass p = open_pass(&err);
    tr_cuda_record_begin(p.dev);
    run(&p, 1);
    tr_cuda_record_end(p.dev, &err);
    gpu->fail = call;
    gpu->code = code;
    gpu->times = 1;
    gpu->skip = 1;
    run(&p, 1);
    run(&p, 1);
    enum tr_cuda_state s;
    while ((s = tr_cuda_ask(p.dev, &err)) == TR_CUDA_BUSY)
        ;
    claim(s == state && strstr(err.msg, words), "%d, \"%s\"", (int)s, err.msg);
    struct tr_errbuf again;
    run(&p, 2);
    claim(tr_cuda_ask(p.dev, &again) == state && strcmp(err.msg, again.msg) == 0, "the same again");
    float f = -1;
    tr_cuda_download(p.dev, &f, p.x, sizeof(f));
    claim(f == -1 && !tr_cuda_take(p.dev, 10, false) && !tr_cuda_take_host(p.dev, 10),
          "and nothing else");
    tr_cuda_close(p.dev);
}
static void a_kernel_that_goes_astray()
{
    fails(tr_cuda::CALL_LAUNCH, cudaErrorIllegalAddress, TR_CUDA_FAULT, "illegal memory access");
}
static void a_launch_that_fails()
{
    fails(tr_cuda::CALL_GRAPH, cudaErrorLaunchFailure, TR_CUDA_FAULT, "unspecified launch failure");
}
/* Its numbers are wrong: the call says so, and nothing else does, while other work is under way. */
static void a_launch_that_is_none()
{
    struct tr_errbuf err;
    gpu->lazy = 1;
    pass p = open_pass(&err);
    const float one = 1;
    gpu->fail = tr_cuda::CALL_LAUNCH;
    gpu->code = cudaErrorInvalidConfiguration;
    gpu->times = 1;
    tr_cuda_upload(p.dev, p.y, &one, sizeof(one));
    tr_cuda_add(p.dev, p.x, p.y, 2, 8);
    enum tr_cuda_state s;
    while ((s = tr_cuda_ask(p.dev, &err)) == TR_CUDA_BUSY)
        ;
    claim(s == TR_CUDA_LOST && strstr(err.msg, "in a launch"), "%d, \"%s\"", (int)s, err.msg);
    tr_cuda_close(p.dev);
}
static void memory_that_is_broken()
{
    fails(tr_cuda::CALL_GRAPH, cudaErrorECCUncorrectable, TR_CUDA_LOST, "uncorrectable ECC");
}
static void a_device_that_is_gone()
{
    fails(tr_cuda::CALL_SYNC, cudaErrorUnknown, TR_CUDA_LOST, "in a pass");
}

int main()
{
    apart("opening", opening);
    memory();
    passes();
    apart("the longest pass", the_longest_pass);
    apart("no memory for a recording", no_memory_for_a_recording);
    apart("a kernel that goes astray", a_kernel_that_goes_astray);
    apart("a launch that fails", a_launch_that_fails);
    apart("a launch that is none", a_launch_that_is_none);
    apart("memory that is broken", memory_that_is_broken);
    apart("a device that is gone", a_device_that_is_gone);
    return suite_end();
}
