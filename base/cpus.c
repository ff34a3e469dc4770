/* SPDX-License-Identifier: Apache-2.0 */
/* base/cpus.c - how many processors this process may use. */
#include "base/cpus.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first line of root/dir/name, in `line`; false if there is no such file. */
static bool read_line(const char *root, const char *dir, const char *name, char *line, int size)
{
    char path[4096];
    int n = snprintf(path, sizeof(path), "%s%s/%s", root, dir, name);
    FILE *f = n > 0 && (size_t)n < sizeof(path) ? fopen(path, "re") : NULL;
    if (!f)
        return false;
    bool got = fgets(line, size, f) != NULL;
    fclose(f);
    return got;
}

static uint32_t cpus_of(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return UINT32_MAX;                  /* "max", -1 */
    long long n = (quota - 1) / period + 1; /* whatever the file says, it fits */
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* What one group allows: "QUOTA PERIOD" in one file, or each in its own. */
static uint32_t group_quota(const char *root, const char *dir, bool v2)
{
    char line[64];
    char *end;
    if (v2) {
        if (!read_line(root, dir, "cpu.max", line, sizeof(line)))
            return UINT32_MAX;
        long long quota = strtoll(line, &end, 10); /* 0 for "max" */
        return cpus_of(quota, strtoll(end, NULL, 10));
    }
    if (!read_line(root, dir, "cpu.cfs_quota_us", line, sizeof(line)))
        return UINT32_MAX;
    long long quota = strtoll(line, NULL, 10);
    if (!read_line(root, dir, "cpu.cfs_period_us", line, sizeof(line)))
        return UINT32_MAX;
    return cpus_of(quota, strtoll(line, NULL, 10));
}

/* The least of a group and all that it lies in.  Cuts `dir`. */
static uint32_t least_quota(const char *root, char *dir, bool v2)
{
    uint32_t least = UINT32_MAX;
    for (;;) {
        uint32_t q = group_quota(root, dir, v2);
        least = q < least ? q : least;
        char *slash = strrchr(dir, '/');
        if (!slash)
            return least;
        *slash = 0;
    }
}

/* Whether "cpu" is one of the controllers "a,b,c". */
static bool has_cpu(const char *controllers)
{
    for (const char *p = controllers; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, "cpu", 3) == 0 && (p[3] == ',' || p[3] == 0))
            return true;
    return false;
}

uint32_t tr_cpus_quota(const char *membership, const char *root)
{
    char line[4096];
    char v1[4096];
    uint32_t least = UINT32_MAX;
    FILE *f = fopen(membership, "re");
    if (!f)
        return UINT32_MAX;
    snprintf(v1, sizeof(v1), "%s/cpu", root);
    /* Lines "number:controllers:path"; version 2 has number 0 and no controllers. */
    while (fgets(line, sizeof(line), f)) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        bool v2 = controllers[1] == 0;
        if (!v2 && !has_cpu(controllers + 1))
            continue;
        uint32_t q = least_quota(v2 ? root : v1, path, v2);
        least = q < least ? q : least;
    }
    fclose(f);
    return least;
}

uint32_t tr_cpus_usable(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    uint32_t quota = tr_cpus_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    uint32_t cpus = n > 0 ? (uint32_t)n : 1;
    return quota < cpus ? quota : cpus;
}
