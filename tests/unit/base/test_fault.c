/* SPDX-License-Identifier: Apache-2.0 */
/* base/fault.c: what an armed point does, to whom and how often. */
#include "base/fault.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A table in a file of its own, shared with children. */
static char path[] = "/tmp/tokenring-fault-XXXXXX";

static void map_file(void)
{
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    close(fd);
    setenv("TOKENRING_FAULT", path, 1);
    struct tr_errbuf err = {""};
    cr_assert_eq(tr_fault_map(&err), 0, "%s", err.msg);
}

static void unmap_file(void)
{
    unlink(path);
}

static struct tr_fault_point *arm(enum tr_fault_id id, enum tr_fault_action a, uint64_t left)
{
    struct tr_fault_point *p = &tr_fault_table->point[id];
    p->left = left;
    p->skip = p->hits = p->fired = 0;
    p->matching = 0;
    atomic_store(&p->action, a);
    return p;
}

/* The status of a child that passes the point `n` times and then ends with 0. */
static int child_passes(unsigned n, uint64_t value)
{
    pid_t pid = fork();
    if (pid == 0) {
        for (unsigned i = 0; i < n; i++)
            TR_FAULT_FOR(ENGINE_STEP_PUSH, value);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    return status;
}

TestSuite(fault, .init = map_file, .fini = unmap_file);

Test(fault, names_begin_with_a_process_and_are_in_the_file)
{
    static const char *const roles[] = {"engine.", "frontend.", "ledger.", "supervisor."};
    for (unsigned i = 0; i < TR_FAULT_POINTS; i++) {
        bool good = false;
        for (unsigned r = 0; r < 4; r++)
            good |= strncmp(tr_fault_table->point[i].name, roles[r], strlen(roles[r])) == 0;
        cr_expect(good, "%s", tr_fault_table->point[i].name);
    }
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    cr_expect_eq((size_t)st.st_size, sizeof(struct tr_fault_table));
}

Test(fault, a_point_that_is_not_armed_does_nothing)
{
    cr_expect_eq(child_passes(10, 0), 0);
    cr_expect_eq(tr_fault_table->point[TR_FAULT_ENGINE_STEP_PUSH].hits, 0);
}

Test(fault, each_action_ends_the_process_in_its_own_way)
{
    static const int signals[] = {
        [TR_FAULT_KILL] = SIGKILL, [TR_FAULT_SEGV] = SIGSEGV, [TR_FAULT_ABORT] = SIGABRT};
    for (enum tr_fault_action a = TR_FAULT_KILL; a <= TR_FAULT_ABORT; a++) {
        arm(TR_FAULT_ENGINE_STEP_PUSH, a, 1);
        int status = child_passes(1, 0);
        cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == signals[a], "action %d: %x", a,
                  status);
    }
    arm(TR_FAULT_ENGINE_STEP_PUSH, TR_FAULT_EXIT, 1);
    int status = child_passes(1, 0);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == TR_FAULT_STATUS, "%x", status);
}

Test(fault, who_is_stopped_goes_on_where_it_was)
{
    struct tr_fault_point *p = arm(TR_FAULT_ENGINE_STEP_PUSH, TR_FAULT_STOP, 1);
    pid_t pid = fork();
    if (pid == 0) {
        TR_FAULT(ENGINE_STEP_PUSH);
        _exit(7);
    }
    int status;
    waitpid(pid, &status, WUNTRACED);
    cr_expect(WIFSTOPPED(status));
    cr_expect_eq(p->pid, (uint64_t)pid);
    cr_expect_eq(p->fired, 1);
    kill(pid, SIGCONT);
    waitpid(pid, &status, 0);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

Test(fault, once_means_once_over_all_processes)
{
    enum { N = 16 };
    struct tr_fault_point *p = arm(TR_FAULT_ENGINE_STEP_PUSH, TR_FAULT_KILL, 3);
    pid_t pid[N];
    for (int i = 0; i < N; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            for (int k = 0; k < 1000; k++)
                TR_FAULT(ENGINE_STEP_PUSH);
            _exit(0);
        }
    }
    int killed = 0;
    for (int i = 0; i < N; i++) {
        int status;
        waitpid(pid[i], &status, 0);
        killed += WIFSIGNALED(status);
    }
    cr_expect_eq(killed, 3);
    cr_expect_eq(p->fired, 3);
    cr_expect_eq(p->left, 0);
    cr_expect_geq(p->hits, (N - 3) * 1000 + 3);
}

Test(fault, skips_and_counts_before_it_acts)
{
    struct tr_fault_point *p = arm(TR_FAULT_ENGINE_STEP_PUSH, TR_FAULT_EXIT, 1);
    p->skip = 5;
    cr_expect_eq(child_passes(5, 0), 0);
    cr_expect_eq(p->hits, 5);
    cr_expect_neq(child_passes(1, 0), 0);
    cr_expect_eq(child_passes(9, 0), 0);
    cr_expect_eq(p->hits, 15);
}

Test(fault, only_the_value_that_is_meant)
{
    struct tr_fault_point *p = arm(TR_FAULT_ENGINE_STEP_PUSH, TR_FAULT_EXIT, UINT64_MAX);
    p->matching = 1;
    p->match = 42;
    cr_expect_eq(child_passes(5, 41), 0);
    cr_expect_eq(p->hits, 0);
    cr_expect_neq(child_passes(1, 42), 0);
    cr_expect_neq(child_passes(1, 42), 0);
}

Test(fault, a_file_of_another_build_is_refused)
{
    struct tr_errbuf err = {""};
    struct tr_fault_table *mapped = tr_fault_table;
    mapped->n_points++;
    cr_expect_eq(tr_fault_map(&err), -EINVAL);
    cr_expect(strstr(err.msg, "another build") != NULL, "%s", err.msg);
    cr_expect_eq(truncate(path, 100), 0);
    cr_expect_eq(tr_fault_map(&err), -EINVAL);
    cr_expect(tr_fault_table == mapped);
    setenv("TOKENRING_FAULT", "/nonexistent/file", 1);
    cr_expect_eq(tr_fault_map(&err), -ENOENT);
}
