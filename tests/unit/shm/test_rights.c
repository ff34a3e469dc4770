/* SPDX-License-Identifier: Apache-2.0 */
/* Who may write and who may read which region: the table of shm/README.md, tried in a real process of
 * each role by every way there is to write memory that is not one's own. */
#include "shm/region.h"

#include "shm/process_stat.h"
#include "shm/slot_stat.h"
#include "shm/stat.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AREA = 1, N_AREAS = 4, MAX_FD = 1024, PLAIN_USER = 65534 };

static const struct tr_shm_config config = {.n_ctx = 64,
                                            .n_vocab = 100,
                                            .n_slots = 4,
                                            .n_admit = 4,
                                            .max_seqs = 2,
                                            .n_areas = N_AREAS,
                                            .window = 8,
                                            .ledger = 1};
static struct tr_shm_fds fds;
static struct tr_shm s;

TestSuite(rights, .timeout = 60);

/* ---- the table ---- */

/* W: written by the role; R: read only; '-': not even mapped. */
struct right {
    enum tr_region_kind kind;
    char frontend, engine, ledger, supervisor;
};

static const struct right table[] = {
    {TR_REGION_CONTROL, 'R', 'R', 'R', 'W'},    {TR_REGION_RINGS, 'R', 'W', 'R', 'R'},
    {TR_REGION_ACCOUNTING, '-', 'W', 'R', '-'}, {TR_REGION_CLAIMS, 'W', 'W', '-', '-'},
    {TR_REGION_LEDGER, 'R', 'R', 'W', 'R'},     {TR_REGION_SLOTS, '-', 'W', '-', '-'},
    {TR_REGION_PROCESSES, '-', '-', '-', 'W'},
};

static char of_role(const struct right *r, enum tr_role role)
{
    return role == TR_ROLE_FRONTEND ? r->frontend
           : role == TR_ROLE_ENGINE ? r->engine
           : role == TR_ROLE_LEDGER ? r->ledger
                                    : r->supervisor;
}

static char right_of(enum tr_role role, enum tr_region_kind kind, uint32_t index)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].kind == kind)
            return of_role(&table[i], role);
    if (kind == TR_REGION_STAT) {
        bool own = (role == TR_ROLE_ENGINE && index == TR_STAT_ENGINE) ||
                   (role == TR_ROLE_LEDGER && index == TR_STAT_LEDGER) ||
                   (role == TR_ROLE_SUPERVISOR && index == TR_STAT_SUPERVISOR) ||
                   (role == TR_ROLE_FRONTEND && index == TR_STAT_AREA0 + AREA);
        return own ? 'W' : 'R';
    }
    if (role == TR_ROLE_FRONTEND)
        return index == AREA ? 'W' : '-';
    return role == TR_ROLE_ENGINE ? 'W' : 'R';
}

static void *mapping(enum tr_region_kind kind, uint32_t index)
{
    switch (kind) {
    case TR_REGION_CONTROL:
        return s.control;
    case TR_REGION_RINGS:
        return s.rings;
    case TR_REGION_ACCOUNTING:
        return s.accounting;
    case TR_REGION_CLAIMS:
        return s.claims;
    case TR_REGION_LEDGER:
        return s.ledger;
    case TR_REGION_SLOTS:
        return s.slots;
    case TR_REGION_PROCESSES:
        return s.processes;
    case TR_REGION_STAT:
        return s.stat[index];
    case TR_REGION_AREA:
        return s.area[index];
    }
    return NULL;
}

static uint32_t n_of(enum tr_region_kind kind)
{
    return kind == TR_REGION_STAT   ? tr_layout_n_stats(&config)
           : kind == TR_REGION_AREA ? config.n_areas
                                    : 1;
}

/* ---- ways to write; each true when it went through ---- */

static sigjmp_buf back;

static void on_fault(int sig)
{
    siglongjmp(back, sig);
}

/* Straight: the same byte once more. */
static bool store(void *p, size_t bytes)
{
    volatile char *c = (volatile char *)p + bytes - 1;
    if (sigsetjmp(back, 1))
        return false;
    *c = *c;
    return true;
}

static bool after_mprotect(void *p, size_t bytes)
{
    return mprotect(p, bytes, PROT_READ | PROT_WRITE) == 0;
}

/* A second mapping of the same pages, and one that goes on behind them. */
static bool after_mremap(void *p, size_t bytes)
{
    char *again = mremap(p, 0, bytes, MREMAP_MAYMOVE);
    bool wrote = again != MAP_FAILED && (store(again, bytes) || after_mprotect(again, bytes));
    if (again != MAP_FAILED)
        munmap(again, bytes);
    return wrote;
}

static bool through_proc(void *p, size_t bytes)
{
    char c = *((char *)p + bytes - 1);
    int fd = open("/proc/self/mem", O_RDWR);
    if (fd < 0)
        return false;
    bool wrote = pwrite(fd, &c, 1, (off_t)(uintptr_t)((char *)p + bytes - 1)) == 1;
    close(fd);
    return wrote;
}

static bool through_vm(void *p, size_t bytes)
{
    char c = *((char *)p + bytes - 1);
    struct iovec from = {&c, 1}, to = {(char *)p + bytes - 1, 1};
    return process_vm_writev(getpid(), &from, 1, &to, 1, 0) == 1;
}

static bool through_map_files(void *p, size_t bytes)
{
    char path[96];
    snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)(uintptr_t)p,
             (unsigned long)(uintptr_t)p + bytes);
    int fd = open(path, O_RDWR);
    if (fd < 0)
        return false;
    close(fd);
    return true;
}

static const struct way {
    const char *name;
    bool (*wrote)(void *p, size_t bytes);
} ways[] = {{"a store", store},
            {"mprotect", after_mprotect},
            {"mremap", after_mremap},
            {"/proc/self/mem", through_proc},
            {"process_vm_writev", through_vm},
            {"/proc/self/map_files", through_map_files}};

/* ---- a process of the role ---- */

static void say(const char *what, enum tr_region_kind kind, uint32_t index)
{
    fprintf(stderr, "rights: %s, region %d of kind %u\n", what, (int)index, (unsigned)kind);
}

static int try_region(enum tr_role role, enum tr_region_kind kind, uint32_t index)
{
    void *p = mapping(kind, index);
    size_t bytes = tr_layout_region_bytes(&config, kind);
    char right = right_of(role, kind, index);
    int bad = 0;
    if ((right == '-') != !p) {
        say(p ? "is mapped" : "is not mapped", kind, index);
        return 1;
    }
    if (right == 'W' && !store(p, bytes)) {
        say("cannot be written by its writer", kind, index);
        bad = 1;
    }
    for (size_t i = 0; right == 'R' && i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (ways[i].wrote(p, bytes)) {
            say(ways[i].name, kind, index);
            bad = 1;
        }
    }
    return bad;
}

/* What the kernel says is mapped: nothing that no pointer tells of (a seed that was forgotten), and
 * nothing writable or to become so beyond the table. */
static int look_at_maps(enum tr_role role)
{
    char line[512], perms[8];
    FILE *f = fopen("/proc/self/maps", "r");
    int bad = !f;
    while (f && fgets(line, sizeof(line), f)) {
        unsigned kind, index;
        const char *name = strstr(line, "memfd:tokenring-");
        if (!name || sscanf(name, "memfd:tokenring-%u-%u", &kind, &index) != 2 ||
            sscanf(line, "%*s %7s", perms) != 1)
            continue;
        char right = right_of(role, (enum tr_region_kind)kind, index);
        if (right == '-' || (right == 'R' && strchr(perms, 'w'))) {
            say(line, (enum tr_region_kind)kind, index);
            bad = 1;
        }
    }
    if (f)
        fclose(f);
    return bad;
}

/* No descriptor of a region is left, under any number, to be mapped or opened again. */
static int look_at_descriptors(void)
{
    int bad = 0;
    for (int fd = 3; fd < MAX_FD; fd++) {
        char path[64], target[256] = "";
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof(target) - 1) > 0 && strstr(target, "memfd:tokenring")) {
            fprintf(stderr, "rights: descriptor %d is %s\n", fd, target);
            bad = 1;
        }
    }
    return bad;
}

static int try_all(enum tr_role role)
{
    int bad = 0;
    if (tr_shm_attach(&s, &fds, role, AREA, 1, NULL))
        return 2;
    /* As the service does; root may open anything. */
    if (geteuid() == 0 && (setresgid(PLAIN_USER, PLAIN_USER, PLAIN_USER) ||
                           setresuid(PLAIN_USER, PLAIN_USER, PLAIN_USER)))
        return 3;
    prctl(PR_SET_DUMPABLE, 1); /* else /proc/self is shut for a reason that is not asked about */
    signal(SIGSEGV, on_fault);
    signal(SIGBUS, on_fault);
    for (int kind = TR_REGION_CONTROL; kind <= TR_REGION_AREA; kind++)
        for (uint32_t i = 0; i < n_of((enum tr_region_kind)kind); i++)
            bad |= try_region(role, (enum tr_region_kind)kind, i);
    /* The supervisor makes, keeps and hands down all of it. */
    if (role != TR_ROLE_SUPERVISOR)
        bad |= look_at_maps(role) | look_at_descriptors();
    return bad;
}

static void holds_for(enum tr_role role)
{
    cr_assert_eq(tr_shm_create(&config, &fds, NULL), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(try_all(role));
    int status;
    waitpid(pid, &status, 0);
    tr_shm_close_fds(&fds);
    cr_assert(WIFEXITED(status), "signal %d", WTERMSIG(status));
    cr_assert_eq(WEXITSTATUS(status), 0, "see stderr");
}

Test(rights, of_a_frontend)
{
    holds_for(TR_ROLE_FRONTEND);
}

Test(rights, of_the_engine)
{
    holds_for(TR_ROLE_ENGINE);
}

Test(rights, of_the_ledger)
{
    holds_for(TR_ROLE_LEDGER);
}

Test(rights, of_the_supervisor)
{
    holds_for(TR_ROLE_SUPERVISOR);
}

/* ---- an observer: descriptors of the observed regions and nothing else ---- */

static bool writes_through(int fd, size_t bytes)
{
    char c = 0, path[64];
    bool wrote = pwrite(fd, &c, 1, (off_t)bytes - 1) == 1 || ftruncate(fd, 0) == 0 ||
                 ftruncate(fd, (off_t)bytes * 2) == 0 ||
                 fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0 ||
                 mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED;
    void *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    for (size_t i = 0; p != MAP_FAILED && i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(ways[i].name, "/proc/self/map_files") != 0)
            wrote |= ways[i].wrote(p, bytes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR);
    if (again >= 0) {
        wrote |= pwrite(again, &c, 1, (off_t)bytes - 1) == 1 ||
                 fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0 ||
                 mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) != MAP_FAILED;
        close(again);
    }
    return wrote;
}

static int observe(void)
{
    size_t stat = tr_layout_region_bytes(&config, TR_REGION_STAT);
    int bad = 0;
    signal(SIGSEGV, on_fault);
    signal(SIGBUS, on_fault);
    for (uint32_t i = 0; i < tr_layout_n_stats(&config); i++)
        bad |= writes_through(fds.stat[i].ro, stat);
    bad |= writes_through(fds.slots.ro, tr_layout_region_bytes(&config, TR_REGION_SLOTS)) << 1;
    bad |= writes_through(fds.processes.ro, tr_layout_region_bytes(&config, TR_REGION_PROCESSES))
           << 2;
    return bad;
}

Test(rights, of_an_observer)
{
    cr_assert_eq(tr_shm_create(&config, &fds, NULL), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(observe());
    int status;
    waitpid(pid, &status, 0);
    tr_shm_close_fds(&fds);
    cr_assert(WIFEXITED(status), "signal %d", WTERMSIG(status));
    cr_assert_eq(WEXITSTATUS(status), 0, "statistics 1, slots 2, processes 4: %d",
                 WEXITSTATUS(status));
}
