/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/region.h"

#include "shm/stat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

static uint32_t n_stats(const struct tr_shm_config *c)
{
    return TR_STAT_AREA0 + c->n_areas;
}

/* ---- making ---- */

static void close_pair(struct tr_fds *f)
{
    if (f->rw >= 0)
        close(f->rw);
    if (f->ro >= 0)
        close(f->ro);
    f->rw = f->ro = -1;
}

/* A sealed memfd with its head written.  The read-only descriptor is a second open of the same
 * file: a duplicate would share the read-write mode. */
static int make_region(const struct tr_shm_config *c, enum tr_region_kind kind, uint32_t index,
                       struct tr_fds *f, struct tr_errbuf *err)
{
    size_t bytes = tr_layout_region_bytes(c, kind);
    char path[64];
    snprintf(path, sizeof(path), "tokenring-%d-%u", (int)kind, index);
    f->ro = -1;
    f->rw = memfd_create(path, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (f->rw < 0)
        return tr_errf(err, -errno, "cannot make a shared memory region: %s", strerror(errno));
    if (ftruncate(f->rw, (off_t)bytes) < 0 ||
        fcntl(f->rw, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        int e = errno;
        close_pair(f);
        return tr_errf(err, -e, "cannot size a shared memory region of %zu bytes: %s", bytes,
                       strerror(e));
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", f->rw);
    f->ro = open(path, O_RDONLY | O_CLOEXEC);
    struct tr_region_head head = {.magic = TR_SHM_MAGIC,
                                  .version = TR_LAYOUT_VERSION,
                                  .kind = (uint32_t)kind,
                                  .index = index,
                                  .bytes = bytes,
                                  .config = *c};
    if (f->ro < 0 || pwrite(f->rw, &head, sizeof(head), 0) != (ssize_t)sizeof(head)) {
        int e = errno;
        close_pair(f);
        return tr_errf(err, -e, "cannot open a shared memory region: %s", strerror(e));
    }
    return 0;
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
    struct tr_fds none = {-1, -1};
    fds->control = fds->rings = fds->accounting = fds->claims = fds->ledger = none;
    for (uint32_t i = 0; i < TR_STAT_AREA0 + TR_MAX_AREAS; i++)
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
    for (uint32_t i = 0; !ret && i < n_stats(c); i++)
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

static void close_regions(struct tr_shm_fds *fds)
{
    close_pair(&fds->control);
    close_pair(&fds->rings);
    close_pair(&fds->accounting);
    close_pair(&fds->claims);
    close_pair(&fds->ledger);
    for (uint32_t i = 0; i < TR_STAT_AREA0 + TR_MAX_AREAS; i++)
        close_pair(&fds->stat[i]);
    for (uint32_t i = 0; i < TR_MAX_AREAS; i++)
        close_pair(&fds->area[i]);
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

static void *map(struct mapper *m, const struct tr_fds *f, enum tr_region_kind kind, uint32_t index,
                 bool writable)
{
    if (m->ret)
        return NULL;
    size_t bytes = tr_layout_region_bytes(&m->s->config, kind);
    int prot = PROT_READ | (writable ? PROT_WRITE : 0);
    void *p = mmap(NULL, bytes, prot, MAP_SHARED, writable ? f->rw : f->ro, 0);
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
    const struct tr_region_head *h = p;
    if (h->magic != TR_SHM_MAGIC || h->version != TR_LAYOUT_VERSION || h->kind != (uint32_t)kind ||
        h->index != index || h->bytes != bytes ||
        memcmp(&h->config, &m->s->config, sizeof(h->config)) != 0) {
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
    if (!l && (!v || a))
        s->claims = map(&m, &f->claims, TR_REGION_CLAIMS, 0, true);
    for (uint32_t i = 0; i < n_stats(&s->config); i++)
        s->stat[i] =
            map(&m, &f->stat[i], TR_REGION_STAT, i, a || writes_stat(s->role, s->my_area, i));
    for (uint32_t i = 0; i < s->config.n_areas; i++) {
        bool mine = s->role == TR_ROLE_FRONTEND && i == s->my_area;
        if (s->role != TR_ROLE_FRONTEND || mine || a)
            s->area[i] = map(&m, &f->area[i], TR_REGION_AREA, i, a || mine || e);
    }
    return m.ret;
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

int tr_shm_attach(struct tr_shm *s, struct tr_shm_fds *fds, enum tr_role role, uint32_t area,
                  uint32_t epoch, struct tr_errbuf *err)
{
    memset(s, 0, sizeof(*s));
    s->config = fds->config;
    s->role = tr_role = role;
    s->my_area = area;
    s->my_epoch = epoch;
    int ret = map_all(s, fds, false, err);
    if (ret) {
        tr_shm_detach(s);
        return ret;
    }
    take_bells(s, fds);
    if (role != TR_ROLE_SUPERVISOR)
        close_regions(fds);
    return 0;
}

int tr_shm_attach_all(struct tr_shm *s, struct tr_shm_fds *fds, struct tr_errbuf *err)
{
    memset(s, 0, sizeof(*s));
    s->config = fds->config;
    s->role = TR_ROLE_NONE;
    s->my_epoch = 1;
    int ret = map_all(s, fds, true, err);
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
    unmap(c, s->control, TR_REGION_CONTROL);
    unmap(c, s->rings, TR_REGION_RINGS);
    unmap(c, s->accounting, TR_REGION_ACCOUNTING);
    unmap(c, s->claims, TR_REGION_CLAIMS);
    unmap(c, s->ledger, TR_REGION_LEDGER);
    for (uint32_t i = 0; i < TR_STAT_AREA0 + TR_MAX_AREAS; i++)
        unmap(c, s->stat[i], TR_REGION_STAT);
    for (uint32_t i = 0; i < TR_MAX_AREAS; i++)
        unmap(c, s->area[i], TR_REGION_AREA);
    memset(s, 0, sizeof(*s));
}

uint64_t tr_shm_total_bytes(const struct tr_shm_config *c)
{
    uint64_t n = 0;
    for (int k = TR_REGION_CONTROL; k <= TR_REGION_LEDGER; k++)
        n += tr_layout_region_bytes(c, (enum tr_region_kind)k);
    n += (uint64_t)n_stats(c) * tr_layout_region_bytes(c, TR_REGION_STAT);
    n += (uint64_t)c->n_areas * tr_layout_region_bytes(c, TR_REGION_AREA);
    return n;
}

uint64_t tr_shm_slot_bytes(const struct tr_shm_config *c)
{
    return tr_layout_ring_stride(c) +
           (tr_layout_area_request(c, 1) - tr_layout_area_request(c, 0)) +
           sizeof(struct tr_cursor) + 2 * sizeof(uint64_t);
}
