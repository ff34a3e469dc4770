/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/landlock.h"

#include <errno.h>
#include <fcntl.h>
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
    NET_4_BIND = 1,
    NET_4_BIND_CONNECT = 3,
    SCOPE_6_SIGNAL = 2,
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

static int allow(int ruleset, int abi, int folder, uint64_t rights)
{
    struct landlock_path_beneath_attr a = {.parent_fd = folder,
                                           .allowed_access = rights & fs_rights(abi)};
    return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &a, 0) < 0 ? -errno
                                                                                          : 0;
}

static const uint64_t READ = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
static const uint64_t WRITE = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
                              LANDLOCK_ACCESS_FS_REMOVE_FILE | 1ull << (FS_3_TRUNCATE - 1);

static int allow_reading(int ruleset, int abi)
{
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return -errno;
    int ret = allow(ruleset, abi, root, READ);
    close(root);
    return ret;
}

int tr_landlock_only(int abi, const int *folders, int n, bool client)
{
    struct ruleset r = {.fs = fs_rights(abi),
                        .net = abi < 4  ? 0
                               : client ? NET_4_BIND
                                        : NET_4_BIND_CONNECT,
                        .scoped = abi < 6  ? 0
                                  : client ? SCOPE_6_SIGNAL
                                           : SCOPE_6_ABSTRACT_SIGNAL};
    /* All of this is handled, and allowed is only what the rules say. */
    int fd = (int)syscall(SYS_landlock_create_ruleset, &r, sizeof(r), 0), ret = 0;
    if (fd < 0)
        return -errno;
    for (int i = 0; i < n && !ret; i++)
        ret = allow(fd, abi, folders[i], READ | WRITE);
    if (!ret && client)
        ret = allow_reading(fd, abi);
    if (!ret && syscall(SYS_landlock_restrict_self, fd, 0) < 0)
        ret = -errno;
    close(fd);
    return ret;
}
