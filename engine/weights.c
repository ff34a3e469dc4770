/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/weights.h"

#include <errno.h>
#include <fcntl.h>
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
enum {
    HUGE = 2 << 20, /* where the weights begin, and what large pages are multiples of */
    SLICE = 64 << 20
};

struct head {
    uint64_t magic;
    struct tr_gguf_origin file;
    uint64_t len;      /* of the weights */
    uint64_t complete; /* stored last */
};

static size_t whole(size_t len)
{
    return (len + HUGE - 1) / HUGE * HUGE;
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
 * it.  Advice only.  It takes seconds for a gigabyte on a busy machine: a sign of life for each slice. */
static void make_large(char *mem, size_t len, void (*beat)(void *), void *arg)
{
    for (size_t at = 0; at < len; at += SLICE) {
        size_t n = len - at < SLICE ? len - at : SLICE;
        for (size_t i = 0; i < n; i += HUGE)
            mem[at + i] = 0;
        (void)madvise(mem + at, n / HUGE * HUGE, MADV_COLLAPSE);
        if (beat)
            beat(arg);
    }
}

void *tr_weights_take(int fd, struct tr_gguf_origin file, size_t len, void (*beat)(void *),
                      void *arg, bool *filled)
{
    struct head want = {.magic = MAGIC, .file = file, .len = len, .complete = 1}, has = {0};
    struct stat st;
    *filled = false;
    if (fd <= 0 || !len || !file.size || fstat(fd, &st) < 0)
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
        make_large(mem, len, beat, arg);
    return mem;
}

int tr_weights_keep(int fd, void *mem, size_t len)
{
    const uint64_t yes = 1;
    /* A write that does not work leaves it incomplete, which is what it then is. */
    (void)!pwrite(fd, &yes, sizeof(yes), offsetof(struct head, complete));
    /* An old kernel does not have the seal.  Where there is one, a mapping made behind it cannot become
     * writable again. */
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    if (mmap(mem, len, PROT_READ, MAP_SHARED | MAP_FIXED, fd, HUGE) == MAP_FAILED)
        return -errno;
    (void)madvise(mem, len, MADV_DONTDUMP);
    return 0;
}
