/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/region.h"

#include "base/clock.h"
#include "shm/process_stat.h"
#include "shm/slot_stat.h"
#include "shm/stat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- making ---- */

static void close_pair(struct tr_fds *f, size_t bytes)
{
    if (f->seed)
        munmap(f->seed, bytes);
    f->seed = NULL;
    if (f->rw >= 0)
        close(f->rw);
    if (f->ro >= 0)
        close(f->ro);
    f->rw = f->ro = -1;
}

/* The size is final.  An observed region is closed to everybody who does not have the seed. */
static int seal(struct tr_fds *f, bool observed, size_t bytes)
{
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    if (!observed)
        return fcntl(f->rw, F_ADD_SEALS, seals);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->rw, 0);
    if (p == MAP_FAILED)
        return -1;
    f->seed = p;
    if (fcntl(f->rw, F_ADD_SEALS, seals | F_SEAL_FUTURE_WRITE) < 0)
        return -1;
    close(f->rw);
    f->rw = -1;
    return 0;
}

/* The read-only descriptor is a second open of the same file: a duplicate would share the
 * read-write mode. */
static int fill_region(const struct tr_region_head *head, struct tr_fds *f)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", f->rw);
    f->ro = open(path, O_RDONLY | O_CLOEXEC);
    if (f->ro < 0 || ftruncate(f->rw, (off_t)head->bytes) < 0 ||
        pwrite(f->rw, head, sizeof(*head), 0) != (ssize_t)sizeof(*head))
        return -1;
    return seal(f, tr_layout_is_observed((enum tr_region_kind)head->kind), head->bytes);
}

/* A sealed memfd with its head written. */
static int make_region(const struct tr_shm_config *c, enum tr_region_kind kind, uint32_t index,
                       struct tr_fds *f, struct tr_errbuf *err)
{
    struct tr_region_head head = {.magic = TR_SHM_MAGIC,
                                  .version = TR_LAYOUT_VERSION,
                                  .kind = (uint32_t)kind,
                                  .index = index,
                                  .bytes = tr_layout_region_bytes(c, kind),
                                  .config = *c};
    char name[64];
    snprintf(name, sizeof(name), "tokenring-%d-%u", (int)kind, index);
    *f = (struct tr_fds){.rw = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING), .ro = -1};
    if (f->rw >= 0 && fill_region(&head, f) == 0)
        return 0;
    int e = errno;
    close_pair(f, head.bytes);
    return tr_errf(err, -e, "cannot make a shared memory region of %llu bytes: %s",
                   (unsigned long long)head.bytes, strerror(e));
}

static int make_bell(int *fd, struct tr_errbuf *err)
{
    *fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (*fd < 0)
        return tr_errf(err, -errno, "cannot make an eventfd: %s", strerror(errno));
    return 0;
}

static void no_fds(struct tr_shm_fds *fds)
{
    struct tr_fds none = {-1, -1, NULL};
    fds->control = fds->rings = fds->accounting = fds->claims = fds->ledger = none;
    fds->slots = fds->processes = none;
    for (uint32_t i = 0; i < TR_MAX_STATS; i++)
        fds->stat[i] = none;
    fds->bell_engine = fds->bell_ledger = -1;
    for (uint32_t i = 0; i < TR_MAX_AREAS; i++) {
        fds->area[i] = none;
        fds->bell_area[i] = -1;
    }
}

int tr_shm_create(const struct tr_shm_config *c, struct tr_shm_fds *fds, struct tr_errbuf *err)
{
    no_fds(fds);
    fds->config = *c;
    int ret = tr_layout_check(c, err);
    if (!ret)
        ret = make_region(c, TR_REGION_CONTROL, 0, &fds->control, err);
    if (!ret)
        ret = make_region(c, TR_REGION_RINGS, 0, &fds->rings, err);
    if (!ret)
        ret = make_region(c, TR_REGION_ACCOUNTING, 0, &fds->accounting, err);
    if (!ret)
        ret = make_region(c, TR_REGION_CLAIMS, 0, &fds->claims, err);
    if (!ret)
        ret = make_region(c, TR_REGION_LEDGER, 0, &fds->ledger, err);
    if (!ret)
        ret = make_region(c, TR_REGION_SLOTS, 0, &fds->slots, err);
    if (!ret)
        ret = make_region(c, TR_REGION_PROCESSES, 0, &fds->processes, err);
    for (uint32_t i = 0; !ret && i < tr_layout_n_stats(c); i++)
        ret = make_region(c, TR_REGION_STAT, i, &fds->stat[i], err);
    for (uint32_t i = 0; !ret && i < c->n_areas; i++) {
        ret = make_region(c, TR_REGION_AREA, i, &fds->area[i], err);
        if (!ret)
            ret = make_bell(&fds->bell_area[i], err);
    }
    if (!ret)
        ret = make_bell(&fds->bell_engine, err);
    if (!ret)
        ret = make_bell(&fds->bell_ledger, err);
    if (ret)
        tr_shm_close_fds(fds);
    return ret;
}

static void close_region(struct tr_shm_fds *fds, struct tr_fds *f, enum tr_region_kind kind)
{
    close_pair(f, tr_layout_region_bytes(&fds->config, kind));
}

static void close_regions(struct tr_shm_fds *fds)
{
    close_region(fds, &fds->control, TR_REGION_CONTROL);
    close_region(fds, &fds->rings, TR_REGION_RINGS);
    close_region(fds, &fds->accounting, TR_REGION_ACCOUNTING);
    close_region(fds, &fds->claims, TR_REGION_CLAIMS);
    close_region(fds, &fds->ledger, TR_REGION_LEDGER);
    close_region(fds, &fds->slots, TR_REGION_SLOTS);
    close_region(fds, &fds->processes, TR_REGION_PROCESSES);
    for (uint32_t i = 0; i < TR_MAX_STATS; i++)
        close_region(fds, &fds->stat[i], TR_REGION_STAT);
    for (uint32_t i = 0; i < TR_MAX_AREAS; i++)
        close_region(fds, &fds->area[i], TR_REGION_AREA);
}

void tr_shm_close_fds(struct tr_shm_fds *fds)
{
    close_regions(fds);
    if (fds->bell_engine >= 0)
        close(fds->bell_engine);
    if (fds->bell_ledger >= 0)
        close(fds->bell_ledger);
    for (uint32_t i = 0; i < TR_MAX_AREAS; i++)
        if (fds->bell_area[i] >= 0)
            close(fds->bell_area[i]);
    no_fds(fds);
}

/* ---- mapping ---- */

struct mapper {
    struct tr_shm *s;
    struct tr_errbuf *err;
    int ret;
};

/* Whether a frontend may write the head.  It is then no more than a label for a person who looks:
 * a process that is started again must not be stopped by what a hostile one wrote there. */
static bool by_frontends(enum tr_region_kind kind, uint32_t index)
{
    return kind == TR_REGION_CLAIMS || kind == TR_REGION_AREA ||
           (kind == TR_REGION_STAT && index >= TR_STAT_AREA0);
}

static bool is_head_of(const struct tr_region_head *h, enum tr_region_kind kind, uint32_t index,
                       const struct tr_shm_config *c)
{
    return h->magic == TR_SHM_MAGIC && h->version == TR_LAYOUT_VERSION &&
           h->kind == (uint32_t)kind && h->index == index &&
           h->bytes == tr_layout_region_bytes(c, kind) &&
           memcmp(&h->config, c, sizeof(h->config)) == 0;
}

static void *map(struct mapper *m, const struct tr_fds *f, enum tr_region_kind kind, uint32_t index,
                 bool writable)
{
    if (m->ret)
        return NULL;
    size_t bytes = tr_layout_region_bytes(&m->s->config, kind);
    int prot = PROT_READ | (writable ? PROT_WRITE : 0);
    /* From the old length 0, mremap makes a second mapping of the same pages. */
    void *p = writable && f->seed
                  ? mremap(f->seed, 0, bytes, MREMAP_MAYMOVE)
                  : mmap(NULL, bytes, prot, MAP_SHARED, writable ? f->rw : f->ro, 0);
    if (p == MAP_FAILED) {
        m->ret = tr_errf(m->err, -errno, "cannot map %zu bytes of shared memory: %s", bytes,
                         strerror(errno));
        return NULL;
    }
    /* Prompts and answers do not belong in a core file. */
    madvise(p, bytes, MADV_DONTDUMP);
    /* The supervisor forks with its regions mapped; what it may write its children may not. */
    if (m->s->role == TR_ROLE_SUPERVISOR)
        madvise(p, bytes, MADV_DONTFORK);
    if (!by_frontends(kind, index) && !is_head_of(p, kind, index, &m->s->config)) {
        munmap(p, bytes);
        m->ret = tr_errf(m->err, -EPROTO, "a shared memory region is not of this service's layout");
        return NULL;
    }
    return p;
}

static bool writes_stat(enum tr_role role, uint32_t my_area, uint32_t i)
{
    return (role == TR_ROLE_ENGINE && i == TR_STAT_ENGINE) ||
           (role == TR_ROLE_LEDGER && i == TR_STAT_LEDGER) ||
           (role == TR_ROLE_SUPERVISOR && i == TR_STAT_SUPERVISOR) ||
           (role == TR_ROLE_FRONTEND && i == TR_STAT_AREA0 + my_area);
}

static int map_all(struct tr_shm *s, const struct tr_shm_fds *f, bool everything,
                   struct tr_errbuf *err)
{
    struct mapper m = {.s = s, .err = err};
    bool e = s->role == TR_ROLE_ENGINE, l = s->role == TR_ROLE_LEDGER;
    bool v = s->role == TR_ROLE_SUPERVISOR, a = everything;

    s->control = map(&m, &f->control, TR_REGION_CONTROL, 0, v || a);
    s->rings = map(&m, &f->rings, TR_REGION_RINGS, 0, e || a);
    s->ledger = map(&m, &f->ledger, TR_REGION_LEDGER, 0, l || a);
    if (e || l || a)
        s->accounting = map(&m, &f->accounting, TR_REGION_ACCOUNTING, 0, e || a);
    if (e || a)
        s->slots = map(&m, &f->slots, TR_REGION_SLOTS, 0, true);
    if (v || a)
        s->processes = map(&m, &f->processes, TR_REGION_PROCESSES, 0, true);
    if (!l && (!v || a))
        s->claims = map(&m, &f->claims, TR_REGION_CLAIMS, 0, true);
    for (uint32_t i = 0; i < tr_layout_n_stats(&s->config); i++)
        s->stat[i] =
            map(&m, &f->stat[i], TR_REGION_STAT, i, a || writes_stat(s->role, s->my_area, i));
    for (uint32_t i = 0; i < s->config.n_areas; i++) {
        bool mine = s->role == TR_ROLE_FRONTEND && i == s->my_area;
        if (s->role != TR_ROLE_FRONTEND || mine || a)
            s->area[i] = map(&m, &f->area[i], TR_REGION_AREA, i, a || mine || e);
    }
    return m.ret;
}

static struct tr_stat *own_stat(const struct tr_shm *s)
{
    for (uint32_t i = 0; i < tr_layout_n_stats(&s->config); i++)
        if (writes_stat(s->role, s->my_area, i))
            return s->stat[i];
    return NULL;
}

static void take_bells(struct tr_shm *s, struct tr_shm_fds *f)
{
    s->bell_engine = f->bell_engine;
    s->bell_ledger = f->bell_ledger;
    for (uint32_t i = 0; i < TR_MAX_AREAS; i++) {
        bool mine = s->role != TR_ROLE_FRONTEND || i == s->my_area;
        s->bell_area[i] = mine ? f->bell_area[i] : -1;
        if (!mine && f->bell_area[i] >= 0) {
            close(f->bell_area[i]);
            f->bell_area[i] = -1;
        }
    }
}

static int remember_claims(struct tr_shm *s, struct tr_errbuf *err)
{
    s->taken_gen = calloc(s->config.n_slots, sizeof(*s->taken_gen));
    return s->taken_gen ? 0
                        : tr_errf(err, -ENOMEM, "out of memory for %u slots", s->config.n_slots);
}

/* What its predecessor had is nobody's any more, and others add it up while we are still starting: the
 * streams that a dead frontend held are held by who was given them. */
static void forget_gauges(struct tr_stat *own)
{
    for (unsigned id = 0; id < TR_STAT_N; id++)
        if (tr_stat_rows[id].kind == TR_KIND_GAUGE)
            atomic_store_explicit(&own->value[id], 0, memory_order_relaxed);
}

int tr_shm_attach(struct tr_shm *s, struct tr_shm_fds *fds, enum tr_role role, uint32_t area,
                  uint32_t epoch, struct tr_errbuf *err)
{
    memset(s, 0, sizeof(*s));
    s->config = fds->config;
    s->role = tr_role = role;
    s->my_area = area;
    s->my_epoch = epoch;
    int ret = map_all(s, fds, false, err);
    if (!ret && role == TR_ROLE_FRONTEND)
        ret = remember_claims(s, err);
    if (ret) {
        tr_shm_detach(s);
        return ret;
    }
    take_bells(s, fds);
    if (role != TR_ROLE_SUPERVISOR)
        close_regions(fds);
    struct tr_stat *own = own_stat(s);
    /* Before the first beat, which makes it worth asking: the load is its predecessor's.  Relaxed, as
     * all of it: who reads them the other way round waits for us a few milliseconds. */
    atomic_store_explicit(&own->load, TR_LOAD_CLOSED, memory_order_relaxed);
    if (role == TR_ROLE_FRONTEND)
        forget_gauges(own);
    atomic_store_explicit(&own->pid, (uint64_t)getpid(), memory_order_relaxed);
    tr_stat_beat(own, tr_now_ns());
    return 0;
}

int tr_shm_attach_all(struct tr_shm *s, struct tr_shm_fds *fds, struct tr_errbuf *err)
{
    memset(s, 0, sizeof(*s));
    s->config = fds->config;
    s->role = TR_ROLE_NONE;
    s->my_epoch = 1;
    int ret = map_all(s, fds, true, err);
    if (!ret)
        ret = remember_claims(s, err);
    if (ret)
        tr_shm_detach(s);
    else
        take_bells(s, fds);
    return ret;
}

static void unmap(const struct tr_shm_config *c, void *p, enum tr_region_kind k)
{
    if (p)
        munmap(p, tr_layout_region_bytes(c, k));
}

void tr_shm_detach(struct tr_shm *s)
{
    const struct tr_shm_config *c = &s->config;
    free(s->taken_gen);
    unmap(c, s->control, TR_REGION_CONTROL);
    unmap(c, s->rings, TR_REGION_RINGS);
    unmap(c, s->accounting, TR_REGION_ACCOUNTING);
    unmap(c, s->claims, TR_REGION_CLAIMS);
    unmap(c, s->ledger, TR_REGION_LEDGER);
    unmap(c, s->slots, TR_REGION_SLOTS);
    unmap(c, s->processes, TR_REGION_PROCESSES);
    for (uint32_t i = 0; i < TR_MAX_STATS; i++)
        unmap(c, s->stat[i], TR_REGION_STAT);
    for (uint32_t i = 0; i < TR_MAX_AREAS; i++)
        unmap(c, s->area[i], TR_REGION_AREA);
    memset(s, 0, sizeof(*s));
}

/* Whole pages inside [p, p + len) that are worth a system call. */
static bool large_part(char *p, size_t len, char **from, size_t *bytes)
{
    enum { PAGE = 4096, WORTH = 16 * PAGE };
    size_t skip = (size_t)(-(uintptr_t)p & (PAGE - 1));
    *from = p + skip;
    *bytes = len > skip ? (len - skip) & ~(size_t)(PAGE - 1) : 0;
    return *bytes >= WORTH;
}

void tr_shm_wipe(void *p, size_t len)
{
    char *at = p, *from;
    size_t n;
    if (!large_part(at, len, &from, &n) || madvise(from, n, MADV_REMOVE)) {
        memset(p, 0, len);
        return;
    }
    memset(at, 0, (size_t)(from - at));
    memset(from + n, 0, len - n - (size_t)(from - at));
}

uint64_t tr_shm_total_bytes(const struct tr_shm_config *c)
{
    uint64_t n = 0;
    for (int k = TR_REGION_CONTROL; k < TR_REGION_STAT; k++)
        n += tr_layout_region_bytes(c, (enum tr_region_kind)k);
    n += (uint64_t)tr_layout_n_stats(c) * tr_layout_region_bytes(c, TR_REGION_STAT);
    n += (uint64_t)c->n_areas * tr_layout_region_bytes(c, TR_REGION_AREA);
    return n;
}

uint64_t tr_shm_slot_bytes(const struct tr_shm_config *c)
{
    return tr_layout_ring_stride(c) +
           (tr_layout_area_request(c, 1) - tr_layout_area_request(c, 0)) +
           sizeof(struct tr_cursor) + sizeof(struct tr_slot_stat) + 2 * sizeof(uint64_t);
}
