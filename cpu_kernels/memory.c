/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/memory.c - memory for the operations, which on the CPU is the host's. */
#include "cpu_kernels/dev.h"

#include <string.h>
#include <sys/mman.h>

void *tr_cpu_take(struct tr_dev *dev, size_t len, bool huge)
{
    (void)dev;
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    /* Advice only: without large pages it is slower, not wrong. */
    if (huge)
        (void)madvise(p, len, MADV_HUGEPAGE);
    return p;
}

void *tr_cpu_take_host(struct tr_dev *dev, size_t len)
{
    return tr_cpu_take(dev, len, false);
}

void tr_cpu_give(struct tr_dev *dev, void *mem, size_t len)
{
    (void)dev;
    if (mem)
        munmap(mem, len);
}

const void *tr_cpu_resident(struct tr_dev *dev, const void *mem, size_t len)
{
    (void)dev;
    (void)len;
    return mem;
}

void tr_cpu_evict(struct tr_dev *dev, const void *mem, size_t len)
{
    (void)dev;
    (void)mem;
    (void)len;
}

void tr_cpu_upload(struct tr_dev *dev, void *to, const void *from, size_t len)
{
    if (to == from)
        return;
    tr_cpu_flush(dev);
    memcpy(to, from, len);
}

void tr_cpu_download(struct tr_dev *dev, void *to, const void *from, size_t len)
{
    tr_cpu_flush(dev);
    if (to != from && len)
        memcpy(to, from, len);
}
