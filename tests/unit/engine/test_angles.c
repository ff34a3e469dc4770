/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/angles.h"

#include "testrig/apart.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include <stdlib.h>
#include <string.h>

enum { ROT = 8, CTX = 100 };

static const double freq[ROT / 2] = {1, 0.5, 0.1, 0.01};

/* A device apart sees the table of the host, as far as it has been reached, and each number once. */
Test(angles, what_is_new_is_uploaded)
{
    struct tr_errbuf err = {""};
    struct tr_dev *dev = tr_apart_open(&(struct tr_cpu_config){.n_threads = 1}, &err);
    size_t len = tr_rope_bytes(ROT, CTX);
    void *mem = tr_ops_apart.take(dev, len, false);
    float want[ROT * CTX], got[ROT * CTX];
    struct tr_rope whole;
    struct tr_angles a = {0};
    tr_rope_init(&whole, TR_ROPE_HALF, ROT, CTX, freq, 1.5f, want);
    tr_rope_reach(&whole, CTX);
    cr_assert(tr_angles_init(&a, &tr_ops_apart, TR_ROPE_HALF, ROT, CTX, freq, 1.5f, mem) == 0);
    static const uint32_t reached[] = {0, 1, 1, 40, 7, CTX};
    static const uint32_t uploads[] = {0, 1, 1, 2, 2, 3};
    uint32_t far = 0;
    for (int i = 0; i < 6; i++) {
        tr_angles_reach(&a, &tr_ops_apart, dev, reached[i]);
        far = reached[i] > far ? reached[i] : far;
        tr_ops_apart.download(dev, got, a.dev.cos_sin, len);
        cr_expect(memcmp(got, want, (size_t)far * ROT * sizeof(float)) == 0, "%u", reached[i]);
        for (size_t k = (size_t)far * ROT; k < ROT * CTX; k++)
            cr_assert(got[k] == 0, "%u: more than was reached", reached[i]);
        cr_expect(eq(u32, a.dev.n_filled, far));
        cr_expect(eq(u32, tr_apart_count(dev).uploads, uploads[i]));
    }
    tr_angles_fini(&a);
    tr_angles_fini(&a); /* over is fine */
    tr_ops_apart.give(dev, mem, len);
    tr_ops_apart.close(dev);
}

Test(angles, where_memory_is_one_there_is_one_table)
{
    struct tr_errbuf err = {""};
    struct tr_dev *dev = tr_cpu_open(&(struct tr_cpu_config){.n_threads = 1}, &err);
    float mem[ROT * CTX];
    struct tr_angles a = {0};
    cr_assert(tr_angles_init(&a, &tr_ops_cpu, TR_ROPE_HALF, ROT, CTX, freq, 1, mem) == 0);
    tr_angles_reach(&a, &tr_ops_cpu, dev, 3);
    cr_expect(a.host.cos_sin == mem && a.dev.cos_sin == mem && mem[0] == 1 && mem[2 * ROT] < 0);
    tr_angles_fini(&a);
    tr_ops_cpu.close(dev);
}
