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

static int allow_folder(int ruleset, int abi, int folder)
{
    struct landlock_path_beneath_attr a = {
        .parent_fd = folder,
        .allowed_access = (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
                           LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
                           LANDLOCK_ACCESS_FS_REMOVE_FILE | 1ull << (FS_3_TRUNCATE - 1)) &
                          fs_rights(abi)};
    return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &a, 0) < 0 ? -errno
                                                                                          : 0;
}

int tr_landlock_only(int abi, const int *folders, int n)
{
    struct ruleset r = {.fs = fs_rights(abi),
                        .net = abi >= 4 ? NET_4_BIND_CONNECT : 0,
                        .scoped = abi >= 6 ? SCOPE_6_ABSTRACT_SIGNAL : 0};
    /* All of this is handled, and allowed is only what the folders' rules say. */
    int fd = (int)syscall(SYS_landlock_create_ruleset, &r, sizeof(r), 0), ret = 0;
    if (fd < 0)
        return -errno;
    for (int i = 0; i < n && !ret; i++)
        ret = allow_folder(fd, abi, folders[i]);
    if (!ret && syscall(SYS_landlock_restrict_self, fd, 0) < 0)
        ret = -errno;
    close(fd);
    return ret;
}
