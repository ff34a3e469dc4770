/* SPDX-License-Identifier: Apache-2.0 */
#include "testrig/apart_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void tr_apart_wrong(const char *format, ...)
{
    va_list a;
    va_start(a, format);
    fprintf(stderr, "apart: ");
    vfprintf(stderr, format, a);
    fprintf(stderr, "\n");
    va_end(a);
    abort();
}

/* ---- memory ---- */

static size_t whole(size_t len)
{
    enum { PAGE = 4096 };
    return (len + PAGE - 1) / PAGE * PAGE;
}

static void *take_region(struct tr_dev *dev, size_t len, const void *of)
{
    struct region *r = dev->regions;
    while (r->p)
        if (++r == dev->regions + REGIONS)
            tr_apart_wrong("more than %d regions", REGIONS);
    if (len > dev->left)
        return NULL;
    void *p = mmap(NULL, whole(len), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    dev->left -= len;
    *r = (struct region){p, len, of};
    return p;
}

/* Memory of the device is open while it works. */
static void protect(const struct tr_dev *dev, int how)
{
    for (const struct region *r = dev->regions; r < dev->regions + REGIONS; r++)
        if (r->p && mprotect(r->p, whole(r->len), how) < 0)
            tr_apart_wrong("mprotect");
}

/* Does all that waits. */
static void work(struct tr_dev *dev)
{
    protect(dev, PROT_READ | PROT_WRITE);
    for (uint32_t i = 0; i < dev->waiting.n; i++)
        dev->waiting.p[i].run(dev->cpu, &dev->waiting.p[i]);
    dev->waiting.n = 0;
    protect(dev, PROT_NONE);
}

static void give_region(struct tr_dev *dev, struct region *r)
{
    work(dev);
    munmap(r->p, whole(r->len));
    dev->left += r->len;
    *r = (struct region){0};
}

void *tr_apart_take(struct tr_dev *dev, size_t len, bool huge)
{
    (void)huge;
    return take_region(dev, len, NULL);
}

void tr_apart_give(struct tr_dev *dev, void *mem, size_t len)
{
    if (!mem)
        return;
    for (struct region *r = dev->regions; r < dev->regions + REGIONS; r++)
        if (r->p == mem && r->len == len && !r->of) {
            give_region(dev, r);
            return;
        }
    tr_apart_wrong("given back: %zu bytes that were not taken", len);
}

void *tr_apart_take_host(struct tr_dev *dev, size_t len)
{
    (void)dev;
    return calloc(1, len);
}

void tr_apart_give_host(struct tr_dev *dev, void *mem, size_t len)
{
    work(dev);
    memset(mem, 0xa5, len);
    free(mem);
}

const void *tr_apart_resident(struct tr_dev *dev, const void *mem, size_t len)
{
    void *p = take_region(dev, len, mem);
    if (!p)
        return NULL;
    protect(dev, PROT_READ | PROT_WRITE);
    memcpy(p, mem, len);
    protect(dev, PROT_NONE);
    return p;
}

void tr_apart_evict(struct tr_dev *dev, const void *mem, size_t len)
{
    for (struct region *r = dev->regions; r < dev->regions + REGIONS; r++)
        if (r->p == mem && r->len == len && r->of) {
            give_region(dev, r);
            return;
        }
    tr_apart_wrong("evicted: %zu bytes that are not resident", len);
}

/* ---- operations wait ---- */

const void *tr_apart_ours(const struct tr_dev *dev, const void *p, size_t len, const char *what)
{
    uintptr_t at = (uintptr_t)p;
    for (const struct region *r = dev->regions; r < dev->regions + REGIONS; r++)
        if (r->p && at >= (uintptr_t)r->p && len <= r->len && at - (uintptr_t)r->p <= r->len - len)
            return p;
    tr_apart_wrong("%s: %zu bytes that are not the device's", what, len);
}

static void append(struct calls *to, const struct call *c, uint32_t n)
{
    if (to->n + n > to->room) {
        to->room = 2 * (to->n + n);
        to->p = realloc(to->p, to->room * sizeof(*to->p));
        if (!to->p)
            tr_apart_wrong("no memory");
    }
    if (n)
        memcpy(to->p + to->n, c, n * sizeof(*c));
    to->n += n;
}

void tr_apart_issue(struct tr_dev *dev, const struct call *c)
{
    append(dev->recording ? dev->recording : &dev->waiting, c, 1);
}

static void run_upload(struct tr_dev *cpu, const struct call *c)
{
    (void)cpu;
    memcpy(c->to, c->from, c->len);
}

void tr_apart_upload(struct tr_dev *dev, void *to, const void *from, size_t len)
{
    if (dev->recording)
        tr_apart_wrong("an upload while a pass is recorded");
    (void)tr_apart_ours(dev, to, len, "upload");
    dev->count.uploads++;
    tr_apart_issue(dev, &(struct call){.run = run_upload, .to = to, .from = from, .len = len});
}

void tr_apart_download(struct tr_dev *dev, void *to, const void *from, size_t len)
{
    if (dev->recording)
        tr_apart_wrong("a download while a pass is recorded");
    dev->count.downloads++;
    work(dev);
    if (!len)
        return;
    (void)tr_apart_ours(dev, from, len, "download");
    protect(dev, PROT_READ);
    memcpy(to, from, len);
    protect(dev, PROT_NONE);
}

static struct calls *pass_of(struct tr_dev *dev, uint32_t n_rows)
{
    uint32_t i = 0;
    while (1U << i < n_rows)
        i++;
    return &dev->passes[i];
}

uint32_t tr_apart_bucket(const struct tr_dev *dev, uint32_t n_rows)
{
    (void)dev;
    uint32_t n = 1;
    while (n < n_rows && n < TR_APART_BUCKET)
        n *= 2;
    return n >= n_rows ? n : 0;
}

bool tr_apart_replay(struct tr_dev *dev, uint32_t n_rows)
{
    struct calls *pass = pass_of(dev, n_rows);
    if (!pass->n) {
        dev->recording = pass;
        return false;
    }
    dev->count.replayed++;
    append(&dev->waiting, pass->p, pass->n);
    return true;
}

void tr_apart_record_end(struct tr_dev *dev)
{
    if (!dev->recording)
        tr_apart_wrong("the end of a pass that is not recorded");
    dev->count.recorded++;
    append(&dev->waiting, dev->recording->p, dev->recording->n);
    dev->recording = NULL;
}

/* ---- opening and closing ---- */

void tr_apart_close(struct tr_dev *dev)
{
    if (!dev)
        return;
    for (const struct region *r = dev->regions; r < dev->regions + REGIONS; r++)
        if (r->p)
            tr_apart_wrong("%zu bytes are never given back", r->len);
    free(dev->waiting.p);
    for (int i = 0; i < BUCKETS; i++)
        free(dev->passes[i].p);
    tr_ops_cpu.close(dev->cpu);
    free(dev);
}

struct tr_dev *tr_apart_open(const struct tr_cpu_config *c, struct tr_errbuf *err)
{
    struct tr_dev *dev = calloc(1, sizeof(*dev));
    if (!dev) {
        tr_errf(err, -ENOMEM, "no memory");
        return NULL;
    }
    dev->left = SIZE_MAX;
    dev->cpu = tr_cpu_open(c, err);
    if (dev->cpu)
        return dev;
    free(dev);
    return NULL;
}

void tr_apart_limit(struct tr_dev *dev, size_t bytes)
{
    dev->left = bytes;
}

struct tr_apart_count tr_apart_count(const struct tr_dev *dev)
{
    struct tr_apart_count c = dev->count;
    c.waiting = dev->waiting.n;
    return c;
}
