/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/landlock.h"

#include <errno.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's structure as of ABI 6; the headers of a distribution may be older than the kernel that
 * runs.  Older kernels take the longer one as long as what they do not know is zero. */
struct ruleset {
    uint64_t fs;
    uint64_t net;
    uint64_t scoped;
};

/* Rights by the version that brought them; file rights count up from bit 0. */
enum {
    FS_1 = 13,
    FS_2_REFER = 14,
    FS_3_TRUNCATE = 15,
    FS_5_IOCTL_DEV = 16,
    NET_4_BIND_CONNECT = 3,
    SCOPE_6_ABSTRACT_SIGNAL = 3
};

int tr_landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return abi > 0 ? (int)abi : 0;
}

static uint64_t fs_rights(int abi)
{
    int n = abi >= 5 ? FS_5_IOCTL_DEV : abi >= 3 ? FS_3_TRUNCATE : abi >= 2 ? FS_2_REFER : FS_1;
    return (1ull << n) - 1;
}

int tr_landlock_nothing(int abi)
{
    struct ruleset r = {.fs = fs_rights(abi),
                        .net = abi >= 4 ? NET_4_BIND_CONNECT : 0,
                        .scoped = abi >= 6 ? SCOPE_6_ABSTRACT_SIGNAL : 0};
    /* All of this is handled and no rule allows any of it. */
    int fd = (int)syscall(SYS_landlock_create_ruleset, &r, sizeof(r), 0);
    if (fd < 0)
        return -errno;
    int ret = syscall(SYS_landlock_restrict_self, fd, 0) < 0 ? -errno : 0;
    close(fd);
    return ret;
}
