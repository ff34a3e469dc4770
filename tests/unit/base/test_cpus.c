/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpus.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/tokenring-cpus-XXXXXX";

/* A file below the root, its folders made. */
static void put(const char *path, const char *text)
{
    char full[256];
    snprintf(full, sizeof(full), "%s/%s", root, path);
    for (char *p = strchr(full + sizeof(root), '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        cr_assert(mkdir(full, 0700) == 0 || errno == EEXIST);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    cr_assert_not_null(f);
    fputs(text, f);
    fclose(f);
}

static uint32_t quota(const char *membership)
{
    char file[256];
    put("cgroup", membership);
    snprintf(file, sizeof(file), "%s/cgroup", root);
    return tr_cpus_quota(file, root);
}

static void make_root(void)
{
    cr_assert_not_null(mkdtemp(root));
}

static void remove_root(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", root);
    cr_assert_eq(system(command), 0);
}

TestSuite(cpus, .init = make_root, .fini = remove_root);

Test(cpus, are_those_of_the_affinity_mask_at_most)
{
    cpu_set_t set;
    cr_assert_eq(sched_getaffinity(0, sizeof(set), &set), 0);
    cr_assert_leq(tr_cpus_usable(), (uint32_t)CPU_COUNT(&set));
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &set))
            continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
        cr_assert_eq(tr_cpus_usable(), 1);
    }
}

Test(cpus, a_quota_is_rounded_up_and_the_least_on_the_way_up_holds)
{
    put("a/cpu.max", "250000 100000\n");
    put("a/b/cpu.max", "max 100000\n");
    put("a/c/cpu.max", "50000 100000\n");
    cr_assert_eq(quota("0::/a\n"), 3);
    cr_assert_eq(quota("0::/a/b\n"), 3);
    cr_assert_eq(quota("0::/a/c\n"), 1);
    cr_assert_eq(quota("0::/elsewhere\n"), UINT32_MAX);
    put("cpu.max", "200000 100000\n");
    cr_assert_eq(quota("0::/\n"), 2);
    cr_assert_eq(quota("0::/a\n"), 2);
}

Test(cpus, the_first_version_of_control_groups_is_read_too)
{
    put("cpu/x/cpu.cfs_quota_us", "150000\n");
    put("cpu/x/cpu.cfs_period_us", "100000\n");
    put("cpu/y/cpu.cfs_quota_us", "-1\n");
    put("cpu/y/cpu.cfs_period_us", "100000\n");
    cr_assert_eq(quota("7:blkio:/x\n3:cpu,cpuacct:/x\n0::/\n"), 2);
    cr_assert_eq(quota("3:cpuacct,cpu:/y\n"), UINT32_MAX);
    cr_assert_eq(quota("3:cpuset:/x\n"), UINT32_MAX);
}

Test(cpus, what_cannot_be_read_is_no_quota)
{
    cr_assert_eq(tr_cpus_quota("/nonexistent/cgroup", root), UINT32_MAX);
    cr_assert_eq(quota(""), UINT32_MAX);
    cr_assert_eq(quota("nonsense\n::\n0::\n"), UINT32_MAX);
    put("z/cpu.max", "what is this");
    cr_assert_eq(quota("0::/z\n"), UINT32_MAX);
    put("z/cpu.max", "99999999999999999999 100000");
    cr_assert_eq(quota("0::/z\n"), UINT32_MAX);
    put("z/cpu.max", "9223372036854775807 9223372036854775807");
    cr_assert_eq(quota("0::/z\n"), 1);
}
