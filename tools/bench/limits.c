/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/limits.h"

#include "base/clock.h"
#include "cpu_kernels/threads.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { TURNS = 10, PART = 1 << 16 /* bytes read in one go by a thread */, LOOPS = 20000 };

/* --- loops: what one thread does --- */

/* The sum of a part, so that reading it cannot be left out. */
typedef uint64_t read_fn(const uint8_t *p, size_t n);
/* LOOPS times a row of independent multiply-adds; returns how many multiply-adds those were. */
typedef uint64_t mac_fn(void);

static volatile uint64_t sink;

/* A vector of 64 bytes: the compiler makes of it what the instruction set has. */
typedef uint64_t lanes __attribute__((vector_size(64)));

static inline __attribute__((always_inline)) uint64_t read_part(const uint8_t *p, size_t n)
{
    const lanes *v = (const void *)p;
    lanes a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i < n / sizeof(lanes); i += 4) {
        a ^= v[i];
        b ^= v[i + 1];
        c ^= v[i + 2];
        d ^= v[i + 3];
    }
    a ^= b ^ c ^ d;
    return a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7];
}

static uint64_t read_plain(const uint8_t *p, size_t n)
{
    return read_part(p, n);
}

static uint64_t fma_plain(void)
{
    enum { N = 32 };
    float x[N];
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    for (int k = 0; k < LOOPS; k++)
        for (int i = 0; i < N; i++)
            x[i] = x[i] * 0.5F + 1.0F;
    float sum = 0;
    for (int i = 0; i < N; i++)
        sum += x[i];
    sink += (uint64_t)sum;
    return (uint64_t)LOOPS * N;
}

#if defined(__x86_64__)
/* Enough chains that none is waited for, and no more than there are registers. */
enum { CHAINS = 12 };

__attribute__((target("avx2"))) static uint64_t read_avx2(const uint8_t *p, size_t n)
{
    return read_part(p, n);
}

__attribute__((target("avx512f"))) static uint64_t read_avx512(const uint8_t *p, size_t n)
{
    return read_part(p, n);
}

__attribute__((target("avx2,fma"))) static uint64_t fma_avx2(void)
{
    __m256 x[CHAINS];
    const __m256 half = _mm256_set1_ps(0.5F), one = _mm256_set1_ps(1.0F);
    for (int i = 0; i < CHAINS; i++)
        x[i] = _mm256_set1_ps((float)i);
    for (int k = 0; k < LOOPS; k++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            x[i] = _mm256_fmadd_ps(x[i], half, one);
    for (int i = 1; i < CHAINS; i++)
        x[0] = _mm256_add_ps(x[0], x[i]);
    sink += (uint64_t)_mm256_cvtss_f32(x[0]);
    return (uint64_t)LOOPS * CHAINS * 8;
}

__attribute__((target("avx512f"))) static uint64_t fma_avx512(void)
{
    __m512 x[CHAINS];
    const __m512 half = _mm512_set1_ps(0.5F), one = _mm512_set1_ps(1.0F);
    for (int i = 0; i < CHAINS; i++)
        x[i] = _mm512_set1_ps((float)i);
    for (int k = 0; k < LOOPS; k++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            x[i] = _mm512_fmadd_ps(x[i], half, one);
    for (int i = 1; i < CHAINS; i++)
        x[0] = _mm512_add_ps(x[0], x[i]);
    sink += (uint64_t)_mm512_cvtss_f32(x[0]);
    return (uint64_t)LOOPS * CHAINS * 16;
}

__attribute__((target("avx2"))) static uint64_t int8_avx2(void)
{
    __m256i x[CHAINS];
    __m256i a = _mm256_set1_epi8(3);
    const __m256i b = _mm256_set1_epi8(2), ones = _mm256_set1_epi16(1);
    for (int i = 0; i < CHAINS; i++)
        x[i] = _mm256_setzero_si256();
    for (int k = 0; k < LOOPS; k++) {
        /* Another operand each time, or the product would be made once. */
        a = _mm256_xor_si256(a, b);
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            x[i] = _mm256_add_epi32(
                x[i], _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_xor_si256(a, x[i]), b), ones));
    }
    for (int i = 1; i < CHAINS; i++)
        x[0] = _mm256_add_epi32(x[0], x[i]);
    sink += (uint64_t)_mm256_extract_epi32(x[0], 0);
    return (uint64_t)LOOPS * CHAINS * 32;
}

__attribute__((target("avx512f,avx512vnni"))) static uint64_t int8_vnni(void)
{
    __m512i x[CHAINS];
    const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(2);
    for (int i = 0; i < CHAINS; i++)
        x[i] = _mm512_setzero_si512();
    for (int k = 0; k < LOOPS; k++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            x[i] = _mm512_dpbusd_epi32(x[i], a, b);
    for (int i = 1; i < CHAINS; i++)
        x[0] = _mm512_add_epi32(x[0], x[i]);
    sink += (uint64_t)_mm512_reduce_add_epi32(x[0]);
    return (uint64_t)LOOPS * CHAINS * 64;
}
#endif

struct loops {
    read_fn *read;
    mac_fn *fma;
    mac_fn *int8; /* NULL: this machine has no instruction for it that we know */
};

static struct loops loops_of_machine(void)
{
    struct loops l = {.read = read_plain, .fma = fma_plain};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        l = (struct loops){.read = read_avx2, .fma = fma_avx2, .int8 = int8_avx2};
    if (__builtin_cpu_supports("avx512f"))
        l.read = read_avx512, l.fma = fma_avx512;
    if (__builtin_cpu_supports("avx512vnni"))
        l.int8 = int8_vnni;
#endif
    return l;
}

/* --- all threads --- */

struct measuring {
    struct tr_threads *threads;
    struct loops loops;
    const uint8_t *mem;
    size_t len;
    mac_fn *mac;
    uint64_t macs; /* of one thread in one call */
    uint32_t turn_ms;
};

static void read_parts(void *arg, uint32_t first, uint32_t end)
{
    const struct measuring *m = arg;
    size_t from = (size_t)first * PART, to = (size_t)end * PART;
    sink += m->loops.read(m->mem + from, (to < m->len ? to : m->len) - from);
}

static void read_once(struct measuring *m)
{
    tr_threads_ranges(m->threads, (uint32_t)((m->len + PART - 1) / PART), 1, read_parts, m);
}

static void mac_task(void *arg, uint32_t i)
{
    struct measuring *m = arg;
    uint64_t n = m->mac();
    if (i == 0)
        m->macs = n;
}

static void mac_once(struct measuring *m)
{
    tr_threads_for(m->threads, tr_threads_count(m->threads), mac_task, m);
}

static void nothing(void *arg, uint32_t first, uint32_t end)
{
    (void)arg, (void)first, (void)end;
}

static void meet_once(struct measuring *m)
{
    tr_threads_ranges(m->threads, 4 * tr_threads_count(m->threads), 1, nothing, NULL);
}

/* Seconds of a call: the best mean of TURNS turns. */
static double best_s(struct measuring *m, void (*once)(struct measuring *))
{
    double best = 1e30;
    once(m);
    for (int turn = 0; turn < TURNS; turn++) {
        uint64_t begin = tr_now_ns(), now;
        uint64_t end = begin + (uint64_t)m->turn_ms * 1000000U / TURNS;
        uint32_t n = 0;
        do {
            once(m);
            n++;
            now = tr_now_ns();
        } while (now < end);
        double s = (double)(now - begin) * 1e-9 / n;
        best = s < best ? s : best;
    }
    return best;
}

static double gb_s(struct measuring *m, uint8_t *mem, size_t len)
{
    m->mem = mem;
    m->len = len / 256 * 256;
    return (double)m->len / best_s(m, read_once) * 1e-9;
}

static double gmac_s(struct measuring *m, mac_fn *mac)
{
    m->mac = mac;
    double s = mac ? best_s(m, mac_once) : 1;
    return mac ? (double)m->macs * tr_threads_count(m->threads) / s * 1e-9 : 0;
}

size_t tr_limits_uncached(void)
{
    const size_t least = (size_t)256 << 20, most = (size_t)1 << 30;
    long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t want = l3 > 0 ? 4 * (size_t)l3 : least;
    want = want < least ? least : want;
    return want < most ? want : most;
}

int tr_limits_measure(uint32_t threads, size_t reread, uint32_t turn_ms, int what,
                      struct tr_limits *out, struct tr_errbuf *err)
{
    struct measuring m = {.loops = loops_of_machine(), .turn_ms = turn_ms};
    size_t len = tr_limits_uncached();
    len = reread > len ? reread : len;
    m.threads = tr_threads_start(threads, err);
    if (!m.threads)
        return -EINVAL;
    uint8_t *mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mem == MAP_FAILED) {
        tr_threads_stop(m.threads);
        return tr_errf(err, -ENOMEM, "no memory for %zu bytes", len);
    }
    /* As the engine's weights; written, or all of it would be one page of zeros. */
    (void)madvise(mem, len, MADV_HUGEPAGE);
    memset(mem, 0x3C, len);
    *out = (struct tr_limits){.threads = threads};
    if (what & TR_LIMITS_READ) {
        out->read_gb_s = gb_s(&m, mem, len);
        out->reread_gb_s = gb_s(&m, mem, reread);
    }
    if (what & TR_LIMITS_ARITHMETIC) {
        out->fma_gmac_s = gmac_s(&m, m.loops.fma);
        out->int8_gmac_s = gmac_s(&m, m.loops.int8);
    }
    out->region_ns = best_s(&m, meet_once) * 1e9;
    munmap(mem, len);
    tr_threads_stop(m.threads);
    return 0;
}
