/* SPDX-License-Identifier: Apache-2.0 */
/* base/cpus.h - how many processors this process may use: not how many the machine has.
 *
 * For processes that may still read files: before the sandbox. */
#ifndef TR_BASE_CPUS_H
#define TR_BASE_CPUS_H

#include <stdint.h>

/* Processors in the affinity mask, or fewer if a control group's quota allows less time than they
 * have; at least 1. */
uint32_t tr_cpus_usable(void);

/* The quota in processors, rounded up, of the control group that `membership` (as /proc/self/cgroup)
 * names below `root` (as /sys/fs/cgroup), or of one it lies in: the least.  Version 2 (cpu.max) and
 * version 1 (cpu.cfs_quota_us).  UINT32_MAX: none. */
uint32_t tr_cpus_quota(const char *membership, const char *root);

#endif
