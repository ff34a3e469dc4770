/* SPDX-License-Identifier: Apache-2.0 */
/* base/fault.c - see fault.h; compiled only with TOKENRING_FAULTS. */
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct tr_fault_table nobody;
struct tr_fault_table *tr_fault_table = &nobody;

static const char *const names[] = {
#define X(id, name, what) name,
#include "base/fault.def"
#undef X
};

#define X(id, name, what)                                                                          \
    _Static_assert(sizeof(name) <= TR_FAULT_NAME, "a point's name has its place in the file");
#include "base/fault.def"
#undef X

/* ---- the file ---- */

static bool of_this_build(const struct tr_fault_table *t)
{
    return t->magic == TR_FAULT_MAGIC && t->n_points == TR_FAULT_POINTS &&
           t->point_bytes == sizeof(t->point[0]);
}

static void fill_in(struct tr_fault_table *t)
{
    t->magic = TR_FAULT_MAGIC;
    t->n_points = TR_FAULT_POINTS;
    t->point_bytes = sizeof(t->point[0]);
    for (unsigned i = 0; i < TR_FAULT_POINTS; i++)
        snprintf(t->point[i].name, sizeof(t->point[i].name), "%s", names[i]);
}

static int map_fd(int fd, const char *path, struct tr_errbuf *err)
{
    struct stat st;
    const off_t size = (off_t)sizeof(*tr_fault_table);
    if (fstat(fd, &st) < 0 || (st.st_size == 0 && ftruncate(fd, size) < 0))
        return tr_errf(err, -errno, "TOKENRING_FAULT %s: %s", path, strerror(errno));
    if (st.st_size != 0 && st.st_size != size)
        return tr_errf(err, -EINVAL, "TOKENRING_FAULT %s: its size is another build's", path);
    struct tr_fault_table *t = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (t == MAP_FAILED)
        return tr_errf(err, -errno, "TOKENRING_FAULT %s: %s", path, strerror(errno));
    if (st.st_size != 0 && !of_this_build(t)) {
        munmap(t, (size_t)size);
        return tr_errf(err, -EINVAL, "TOKENRING_FAULT %s: its points are another build's", path);
    }
    fill_in(t);
    tr_fault_table = t;
    return 0;
}

int tr_fault_map(struct tr_errbuf *err)
{
    const char *path = getenv("TOKENRING_FAULT");
    if (!path || !*path)
        return 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return tr_errf(err, -errno, "TOKENRING_FAULT %s: %s", path, strerror(errno));
    int ret = map_fd(fd, path, err);
    close(fd);
    return ret;
}

/* ---- a point ---- */

/* Whether there was one left. */
static bool count_down(_Atomic uint64_t *n)
{
    uint64_t v = atomic_load_explicit(n, memory_order_relaxed);
    while (v && !atomic_compare_exchange_weak_explicit(n, &v, v - 1, memory_order_relaxed,
                                                       memory_order_relaxed))
        ;
    return v != 0;
}

/* To this very process, with calls that every sandbox has; without the last words of a sanitizer. */
static void signal_self(int signo)
{
    if (signo == SIGSEGV || signo == SIGABRT)
        signal(signo, SIG_DFL);
    syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), signo);
}

void tr_fault_reach(enum tr_fault_id id, uint64_t value)
{
    static const int signals[] = {[TR_FAULT_KILL] = SIGKILL,
                                  [TR_FAULT_SEGV] = SIGSEGV,
                                  [TR_FAULT_ABORT] = SIGABRT,
                                  [TR_FAULT_STOP] = SIGSTOP};
    struct tr_fault_point *p = &tr_fault_table->point[id];
    /* Acquire: the test stores the action last. */
    uint32_t action = atomic_load_explicit(&p->action, memory_order_acquire);
    if (p->matching && p->match != value)
        return;
    atomic_fetch_add_explicit(&p->hits, 1, memory_order_relaxed);
    if (action == TR_FAULT_NONE || action == TR_FAULT_COUNT || count_down(&p->skip) ||
        !count_down(&p->left))
        return;
    atomic_store_explicit(&p->pid, (uint64_t)getpid(), memory_order_relaxed);
    /* Release: who sees it counted finds who it was. */
    atomic_fetch_add_explicit(&p->fired, 1, memory_order_release);
    if (action == TR_FAULT_EXIT)
        _exit(TR_FAULT_STATUS);
    if (action <= TR_FAULT_STOP)
        signal_self(signals[action]);
}
