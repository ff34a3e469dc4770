/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/sandbox.h"

#include "base/assert.h"
#include "sandbox/filter.h"
#include "sandbox/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static bool entered;

/* The leak sanitizer looks for leaks from a second process that traces the first: no sandbox has room
 * for that.  It asks this at the end of a process; leaks of sandboxed code are found by the unit tests
 * of the same code. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) /* NOLINT(bugprone-reserved-identifier): the sanitizer's name */
{
    return entered;
}

/* Of the calling thread: those of `keep` that it has, and no others. */
static int keep_capabilities(uint32_t keep)
{
    /* The bounding set needs a capability to be made smaller; without it no_new_privs does. */
    for (unsigned long c = 0; prctl(PR_CAPBSET_DROP, c, 0, 0, 0) == 0; c++)
        ;
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {{0}};
    if (keep && syscall(SYS_capget, &head, caps) < 0)
        return -errno;
    caps[0].effective &= keep;
    caps[0].permitted &= keep;
    caps[0].inheritable = 0;
    caps[1] = (struct __user_cap_data_struct){0};
    return syscall(SYS_capset, &head, caps) < 0 ? -errno : 0;
}

/* Which kinds of memory a core file gets: none. */
static int empty_core(void)
{
    int fd = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int ret = write(fd, "0", 1) == 1 ? 0 : -errno;
    close(fd);
    return ret;
}

int tr_sandbox_no_core(void)
{
    /* Where core files go to a program a limit of 0 is not asked, but 1 is what the kernel takes for
     * "not this one"; and no file is that small.  Who may not have 1 has 0, which is kept. */
    struct rlimit none = {1, 1};
    int ret = setrlimit(RLIMIT_CORE, &none) < 0 && errno != EPERM ? -errno : 0;
    int filter = empty_core();
    return ret ? ret : filter;
}

/* Whatever the service was started with, a terminal or a file, is not a frontend's to read or write;
 * its log is. */
static int close_standard_fds(void)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int ret = dup2(fd, STDIN_FILENO) < 0 || dup2(fd, STDOUT_FILENO) < 0 ? -errno : 0;
    if (fd > STDERR_FILENO)
        close(fd);
    return ret;
}

static int give_up(enum tr_sandbox who, const char **step)
{
    *step = "no new privileges";
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    *step = "no capabilities";
    int ret = keep_capabilities(0);
    if (ret || who != TR_SANDBOX_FRONTEND)
        return ret;
    *step = "no standard input and output";
    return close_standard_fds();
}

static int restrict_files(const char *const *folders, int n, bool client, const char **missing)
{
    int fd[TR_SANDBOX_FOLDERS], abi = tr_landlock_abi(), ret = 0, opened = 0;
    if (!abi) {
        *missing = "Landlock";
        return 0;
    }
    for (; opened < n && !ret; opened++) {
        fd[opened] = open(folders[opened], O_PATH | O_DIRECTORY | O_CLOEXEC);
        ret = fd[opened] < 0 ? -errno : 0;
    }
    if (!ret)
        ret = tr_landlock_only(abi, fd, n, client);
    while (opened--)
        if (fd[opened] >= 0)
            close(fd[opened]);
    return ret;
}

static int enter(enum tr_sandbox who, const char *const *folders, int n, const char **step,
                 const char **missing)
{
    int ret = give_up(who, step);
    if (ret)
        return ret;
    if (who != TR_SANDBOX_ENGINE && who != TR_SANDBOX_ENGINE_GPU) {
        *step = "Landlock";
        ret = restrict_files(folders, n, who == TR_SANDBOX_LEDGER_NET, missing);
        if (ret)
            return ret;
    }
    if (!tr_filter_available()) {
        *missing = *missing ? "Landlock and seccomp filters" : "seccomp filters";
        return 0;
    }
    *step = "seccomp";
    return tr_filter_load(who);
}

int tr_sandbox_prepare(struct tr_errbuf *err)
{
    int ret = keep_capabilities(1u << CAP_DAC_READ_SEARCH);
    return ret ? tr_errf(err, ret, "cannot give up capabilities: %s", strerror(-ret)) : 0;
}

int tr_sandbox_enter(enum tr_sandbox who, struct tr_errbuf *err)
{
    return tr_sandbox_enter_with(who, NULL, 0, err);
}

int tr_sandbox_enter_with(enum tr_sandbox who, const char *const *folders, int n,
                          struct tr_errbuf *err)
{
    const char *step = "", *missing = NULL;
    TR_ASSERT(n <= TR_SANDBOX_FOLDERS);
    tzset(); /* reads its file now: every line of the log asks for the time zone */
    int ret = enter(who, folders, n, &step, &missing);
    if (ret)
        return tr_errf(err, ret, "cannot enter the sandbox (%s): %s", step, strerror(-ret));
    entered = true;
    if (!missing)
        return 0;
    return tr_errf(err, 1, "this kernel lacks %s: the sandbox is weaker than it should be",
                   missing);
}
