/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/weights.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define MAGIC 0x7374686769655754u /* "TWeights" */
enum { HUGE = 2 << 20 }; /* where the weights begin, and what large pages are multiples of */

struct head {
    uint64_t magic;
    uint64_t dev, ino, size, mtime_s, mtime_ns; /* of the file */
    uint64_t len;                               /* of the weights */
    uint64_t complete;                          /* stored last */
};

static size_t whole(size_t len)
{
    return (len + HUGE - 1) / HUGE * HUGE;
}

static int describe(const char *path, size_t len, struct head *h)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return -1;
    *h = (struct head){.magic = MAGIC,
                       .dev = st.st_dev,
                       .ino = st.st_ino,
                       .size = (uint64_t)st.st_size,
                       .mtime_s = (uint64_t)st.st_mtim.tv_sec,
                       .mtime_ns = (uint64_t)st.st_mtim.tv_nsec,
                       .len = len,
                       .complete = 1};
    return 0;
}

/* At an address that large pages can have. */
static void *map_at(int fd, size_t len, int prot)
{
    size_t room = whole(len) + HUGE;
    char *p = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t before = whole((size_t)p) - (size_t)p;
    char *at = p + before;
    if (mmap(at, len, prot, MAP_SHARED | MAP_FIXED, fd, HUGE) == MAP_FAILED) {
        munmap(p, room);
        return NULL;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t used = (len + page - 1) / page * page;
    if (before)
        munmap(p, before);
    munmap(at + used, room - before - used);
    (void)madvise(at, len, MADV_DONTDUMP);
    return at;
}

/* Large pages, which shared memory does not have by itself: a page of each is there, the rest comes with
 * it.  Advice only. */
static void make_large(char *mem, size_t len)
{
    for (size_t at = 0; at < len; at += HUGE)
        mem[at] = 0;
    (void)madvise(mem, len / HUGE * HUGE, MADV_COLLAPSE);
}

void *tr_weights_take(int fd, const char *path, size_t len, bool *filled)
{
    struct head want, has = {0};
    struct stat st;
    *filled = false;
    if (fd <= 0 || !len || describe(path, len, &want) < 0 || fstat(fd, &st) < 0)
        return NULL;
    bool there = pread(fd, &has, sizeof(has), 0) == (ssize_t)sizeof(has);
    if (there && memcmp(&has, &want, sizeof(has)) == 0 &&
        st.st_size == (off_t)(HUGE + whole(len))) {
        void *mem = map_at(fd, len, PROT_READ);
        *filled = mem != NULL;
        return mem;
    }
    want.complete = 0;
    if (ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)(HUGE + whole(len))) < 0 ||
        pwrite(fd, &want, sizeof(want), 0) != (ssize_t)sizeof(want))
        return NULL;
    void *mem = map_at(fd, len, PROT_READ | PROT_WRITE);
    if (mem)
        make_large(mem, len);
    return mem;
}

void tr_weights_keep(int fd, void *mem, size_t len)
{
    const uint64_t yes = 1;
    if (mprotect(mem, len, PROT_READ) < 0)
        return; /* then it is this engine's alone */
    /* A write that does not work leaves it incomplete, which is what it then is. */
    (void)!pwrite(fd, &yes, sizeof(yes), offsetof(struct head, complete));
}
