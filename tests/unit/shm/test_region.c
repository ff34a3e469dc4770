/* SPDX-License-Identifier: Apache-2.0 */
/* What a process may write, tried from a real child: everything else must kill it or be refused. */
#include "shm/region.h"

#include "shm/process_stat.h"
#include "shm/slot_stat.h"
#include "shm/stat.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct tr_shm_config config = {.n_ctx = 64,
                                            .n_vocab = 100,
                                            .n_slots = 4,
                                            .n_admit = 4,
                                            .max_seqs = 2,
                                            .n_areas = 2,
                                            .window = 8,
                                            .ledger = 1};

/* Runs fn in a child attached as `role`, area 0; its wait status. */
static int in_child(enum tr_role role, void (*fn)(struct tr_shm *s))
{
    struct tr_shm_fds fds;
    cr_assert_eq(tr_shm_create(&config, &fds, NULL), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct tr_shm s;
        signal(SIGSEGV, SIG_DFL);
        if (tr_shm_attach(&s, &fds, role, 0, 1, NULL))
            _exit(99);
        fn(&s);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    tr_shm_close_fds(&fds);
    return status;
}

/* Under ASan a SIGSEGV is reported and turned into an exit: either way it is not 0. */
static void must_die(enum tr_role role, void (*fn)(struct tr_shm *s))
{
    int status = in_child(role, fn);
    cr_assert_not(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the write went through");
    cr_assert_not(WIFEXITED(status) && WEXITSTATUS(status) == 99, "could not attach");
}

static void write_ring(struct tr_shm *s)
{
    tr_ring_at(s, 0)->prompt_len = 1;
}
static void write_control(struct tr_shm *s)
{
    atomic_store(&s->control->drain, 1);
}
static void write_ledger(struct tr_shm *s)
{
    atomic_store(&s->ledger->durable, 1);
}
static void write_engine_stat(struct tr_shm *s)
{
    tr_stat_add(s->stat[TR_STAT_ENGINE], TR_STAT_RUNNING, 1);
}
static void write_other_stat(struct tr_shm *s)
{
    tr_stat_add(s->stat[TR_STAT_AREA0 + 1], TR_STAT_STREAMS, 1);
}
static void write_area(struct tr_shm *s)
{
    atomic_store(&s->area[0]->subq_tail, 1);
}
static void write_own(struct tr_shm *s)
{
    tr_stat_add(s->stat[TR_STAT_AREA0], TR_STAT_STREAMS, 1);
    atomic_store(&s->area[0]->subq_tail, 1);
    atomic_store(&s->claims->word[0], 1);
}

Test(region, a_frontend_writes_its_own_area_statistics_and_claims)
{
    int status = in_child(TR_ROLE_FRONTEND, write_own);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

Test(region, a_frontend_cannot_write_rings)
{
    must_die(TR_ROLE_FRONTEND, write_ring);
}
Test(region, a_frontend_cannot_write_the_control_page)
{
    must_die(TR_ROLE_FRONTEND, write_control);
}
Test(region, a_frontend_cannot_say_durable)
{
    must_die(TR_ROLE_FRONTEND, write_ledger);
}
Test(region, a_frontend_cannot_write_other_statistics)
{
    must_die(TR_ROLE_FRONTEND, write_engine_stat);
    must_die(TR_ROLE_FRONTEND, write_other_stat);
}
Test(region, the_ledger_cannot_write_areas_or_rings)
{
    must_die(TR_ROLE_LEDGER, write_area);
    must_die(TR_ROLE_LEDGER, write_ring);
}
Test(region, the_supervisor_cannot_write_rings_or_areas)
{
    must_die(TR_ROLE_SUPERVISOR, write_ring);
    must_die(TR_ROLE_SUPERVISOR, write_area);
}

static void other_areas_are_out_of_reach(struct tr_shm *s)
{
    if (s->area[1] || s->accounting)
        _exit(1);
    size_t rings = tr_layout_region_bytes(&s->config, TR_REGION_RINGS);
    size_t area = tr_layout_region_bytes(&s->config, TR_REGION_AREA);
    if (mprotect(s->rings, rings, PROT_READ | PROT_WRITE) == 0)
        _exit(2);
    /* Growing one's own mapping shows nothing new: the memfd ends there. */
    char *more = mremap(s->area[0], area, area + 4096, MREMAP_MAYMOVE);
    if (more != MAP_FAILED) {
        pid_t pid = fork();
        if (pid == 0) {
            signal(SIGBUS, SIG_DFL);
            volatile char *p = more + area;
            *p = 1;
            _exit(0);
        }
        int status;
        waitpid(pid, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            _exit(3);
    }
    for (int fd = 3; fd < 256; fd++) {
        char path[64], target[256] = "";
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof(target) - 1);
        if (n > 0 && strstr(target, "memfd:tokenring"))
            _exit(4);
    }
}

Test(region, a_frontend_reaches_nothing_else_by_mprotect_mremap_or_descriptors)
{
    int status = in_child(TR_ROLE_FRONTEND, other_areas_are_out_of_reach);
    cr_assert(WIFEXITED(status), "signal %d", WTERMSIG(status));
    cr_assert_eq(WEXITSTATUS(status), 0, "way %d is open", WEXITSTATUS(status));
}

/* ---- what leaves the service ---- */

static void write_observed(struct tr_shm *s)
{
    tr_slot_stat_state(s, 3, TR_RUNNING);
    tr_stat_set(s->stat[TR_STAT_ENGINE], TR_STAT_RUNNING, 77);
    if (s->processes)
        _exit(1);
}

static const void *look(int fd, enum tr_region_kind kind)
{
    return mmap(NULL, tr_layout_region_bytes(&config, kind), PROT_READ, MAP_SHARED, fd, 0);
}

Test(region, what_the_engine_writes_shows_through_a_read_only_descriptor)
{
    struct tr_shm_fds fds;
    struct tr_shm s;
    cr_assert_eq(tr_shm_create(&config, &fds, NULL), 0);
    int stat = dup(fds.stat[TR_STAT_ENGINE].ro), slots = dup(fds.slots.ro);
    pid_t pid = fork();
    if (pid == 0) {
        if (tr_shm_attach(&s, &fds, TR_ROLE_ENGINE, 0, 1, NULL))
            _exit(99);
        write_observed(&s);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    const struct tr_stat *st = look(stat, TR_REGION_STAT);
    const struct tr_slot_stats *sl = look(slots, TR_REGION_SLOTS);
    cr_assert_eq(atomic_load(&st->value[TR_STAT_RUNNING]), 77);
    cr_assert_eq(atomic_load(&sl->slot[3].state), TR_RUNNING);
    cr_assert_eq(atomic_load(&st->pid), (uint64_t)pid, "attaching says who writes here");
    cr_assert_gt(atomic_load(&st->heartbeat_ns), 0);
    tr_shm_close_fds(&fds);
}

/* Everything that somebody with the descriptor could try. */
static void must_stay_read_only(int ro, size_t bytes)
{
    char path[64];
    cr_assert_eq(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ro, 0), MAP_FAILED);
    void *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, ro, 0);
    cr_assert_neq(p, MAP_FAILED);
    cr_assert_lt(mprotect(p, bytes, PROT_READ | PROT_WRITE), 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", ro);
    fchmod(ro, 0777);
    int rw = open(path, O_RDWR);
    if (rw < 0)
        return;
    cr_assert_eq(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, rw, 0), MAP_FAILED);
    p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, rw, 0);
    cr_assert_lt(mprotect(p, bytes, PROT_READ | PROT_WRITE), 0);
    cr_assert_lt(madvise(p, bytes, MADV_REMOVE), 0);
    cr_assert_lt(pwrite(rw, "x", 1, 0), 0);
    cr_assert_lt(ftruncate(rw, 0), 0);
    cr_assert_lt(fallocate(rw, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
    cr_assert_lt(fcntl(rw, F_ADD_SEALS, F_SEAL_WRITE), 0);
    close(rw);
}

Test(region, an_observed_descriptor_cannot_be_made_writable)
{
    struct tr_shm_fds fds;
    cr_assert_eq(tr_shm_create(&config, &fds, NULL), 0);
    for (uint32_t i = 0; i < tr_layout_n_stats(&config); i++)
        must_stay_read_only(fds.stat[i].ro, tr_layout_region_bytes(&config, TR_REGION_STAT));
    must_stay_read_only(fds.slots.ro, tr_layout_region_bytes(&config, TR_REGION_SLOTS));
    must_stay_read_only(fds.processes.ro, tr_layout_region_bytes(&config, TR_REGION_PROCESSES));
    tr_shm_close_fds(&fds);
}

/* Writable mappings of observed regions that this process has. */
static unsigned writable_observed(void)
{
    char line[512], name[64];
    unsigned n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof(line), f))
        for (int k = TR_REGION_SLOTS; k <= TR_REGION_STAT; k++) {
            snprintf(name, sizeof(name), "memfd:tokenring-%d-", k);
            n += strstr(line, name) && strstr(line, " rw-s ");
        }
    if (f)
        fclose(f);
    return n;
}

static void one_writable(struct tr_shm *s)
{
    (void)s;
    _exit(writable_observed() == 1 ? 0 : 1);
}
static void two_writable(struct tr_shm *s)
{
    (void)s;
    _exit(writable_observed() == 2 ? 0 : 1);
}

Test(region, a_child_keeps_writable_what_is_its_own_and_no_seed)
{
    cr_assert_eq(in_child(TR_ROLE_FRONTEND, one_writable), 0);
    cr_assert_eq(in_child(TR_ROLE_LEDGER, one_writable), 0);
    cr_assert_eq(in_child(TR_ROLE_ENGINE, two_writable), 0, "statistics and slots");
}

/* The next frontend in this area has not opened its sockets yet: nobody leaves a connection to it, and
 * it holds no stream.  What was counted goes on. */
Test(region, a_new_frontend_does_not_show_the_load_of_the_one_before)
{
    struct tr_shm_fds fds;
    struct tr_shm s;
    int status;
    cr_assert_eq(tr_shm_create(&config, &fds, NULL), 0);
    for (uint32_t epoch = 1; epoch <= 2; epoch++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (tr_shm_attach(&s, &fds, TR_ROLE_FRONTEND, 0, epoch, NULL))
                _exit(99);
            struct tr_stat *mine = s.stat[TR_STAT_AREA0];
            uint64_t load = atomic_load(&mine->load);
            uint64_t held = atomic_load(&mine->value[TR_STAT_STREAMS_HELD]);
            atomic_store(&mine->load, 3);
            tr_stat_set(mine, TR_STAT_STREAMS_HELD, 5);
            tr_stat_add(mine, TR_STAT_RESUMED, 1);
            uint64_t resumed = atomic_load(&mine->value[TR_STAT_RESUMED]);
            _exit(load == TR_LOAD_CLOSED && held == 0 && resumed == epoch ? 0 : 1);
        }
        waitpid(pid, &status, 0);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "epoch %u", epoch);
    }
    tr_shm_close_fds(&fds);
}

/* A process that is started again attaches, whatever a hostile frontend left in the heads it can write. */
static void spoil_heads(struct tr_shm *s)
{
    memset(&s->area[0]->head, 0xff, sizeof(struct tr_region_head));
    memset(&s->claims->head, 0xff, sizeof(struct tr_region_head));
    memset(&s->stat[TR_STAT_AREA0]->head, 0xff, sizeof(struct tr_region_head));
}

Test(region, heads_that_a_frontend_can_write_stop_nobody_from_attaching)
{
    struct tr_shm_fds fds;
    struct tr_shm s;
    const enum tr_role roles[] = {TR_ROLE_ENGINE, TR_ROLE_LEDGER, TR_ROLE_SUPERVISOR};
    cr_assert_eq(tr_shm_create(&config, &fds, NULL), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (tr_shm_attach(&s, &fds, TR_ROLE_FRONTEND, 0, 1, NULL))
            _exit(99);
        spoil_heads(&s);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        pid = fork();
        if (pid == 0)
            _exit(tr_shm_attach(&s, &fds, roles[i], 0, 1, NULL) ? 1 : 0);
        waitpid(pid, &status, 0);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "role %d", (int)roles[i]);
    }
    tr_shm_close_fds(&fds);
}

Test(region, another_layout_is_refused)
{
    struct tr_shm_fds fds;
    struct tr_shm s;
    struct tr_errbuf err;
    cr_assert_eq(tr_shm_create(&config, &fds, &err), 0);
    fds.config.n_ctx = 128;
    cr_assert_lt(tr_shm_attach_all(&s, &fds, &err), 0);
    tr_shm_close_fds(&fds);
}

Test(region, impossible_sizes_are_refused_with_a_sentence)
{
    struct tr_errbuf err = {""};
    struct tr_shm_config c = config;
    c.n_slots = 0;
    cr_assert_lt(tr_layout_check(&c, &err), 0);
    cr_assert_gt(strlen(err.msg), 10);
    c = config;
    c.n_ctx = UINT32_MAX;
    cr_assert_lt(tr_layout_check(&c, &err), 0);
    c = config;
    c.n_areas = TR_MAX_AREAS + 1;
    cr_assert_lt(tr_layout_check(&c, &err), 0);
}

Test(region, wiping_gives_large_memory_back_and_leaves_the_neighbours)
{
    enum { PAGE = 4096, PAGES = 64 };
    struct stat st;
    int fd = memfd_create("wipe", MFD_CLOEXEC);
    cr_assert_eq(ftruncate(fd, PAGES * PAGE), 0);
    char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(p, MAP_FAILED);
    static const struct {
        size_t from, len, kept_pages;
    } c[] = {{100, 10, PAGES},
             {100, 3 * PAGE, PAGES},
             {100, 40 * PAGE, PAGES - 39},
             {PAGE, 40 * PAGE, PAGES - 40},
             {PAGE - 1, 40 * PAGE + 2, PAGES - 40}};
    for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
        memset(p, 1, PAGES * PAGE);
        tr_shm_wipe(p + c[i].from, c[i].len);
        fstat(fd, &st);
        cr_assert_eq((size_t)st.st_blocks * 512, c[i].kept_pages * PAGE, "%zu", i);
        for (size_t at = 0; at < PAGES * PAGE; at++)
            cr_assert_eq(p[at], at < c[i].from || at >= c[i].from + c[i].len, "%zu: %zu", i, at);
    }
}
