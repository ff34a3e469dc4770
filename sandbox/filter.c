/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/filter.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

enum {
    F = 1u << TR_SANDBOX_FRONTEND,
    G = 1u << TR_SANDBOX_ENGINE_GPU,
    E = 1u << TR_SANDBOX_ENGINE | G,
    N = 1u << TR_SANDBOX_LEDGER_NET,
    L = 1u << TR_SANDBOX_LEDGER | N
};

/* Stands in calls.def for a value that is known only when the filter is made. */
enum { OWN_PID = INT32_MAX };

struct row {
    int call;
    unsigned who;
    uint32_t action;
    unsigned n_args;
    struct scmp_arg_cmp arg[2];
};

/* Arguments are 32 bits wide where the kernel takes an int; the upper half may be anything. */
#define IS(i, value)                                                                               \
    {                                                                                              \
        (i), SCMP_CMP_MASKED_EQ, 0xffffffffu, (uint32_t)(value)                                    \
    }
/* Of these bits of an int, this value. */
#define AMONG(i, bits, value)                                                                      \
    {                                                                                              \
        (i), SCMP_CMP_MASKED_EQ, (bits), (value)                                                   \
    }
#define HAS(i, bits)                                                                               \
    {                                                                                              \
        (i), SCMP_CMP_MASKED_EQ, (bits), (bits)                                                    \
    }
#define LACKS(i, bits)                                                                             \
    {                                                                                              \
        (i), SCMP_CMP_MASKED_EQ, (bits), 0                                                         \
    }

#define CALL(w, name, why) {.call = SCMP_SYS(name), .who = (w), .action = SCMP_ACT_ALLOW},
#define CALL_IF(w, name, a, why)                                                                   \
    {.call = SCMP_SYS(name), .who = (w), .action = SCMP_ACT_ALLOW, .n_args = 1, .arg = {a}},
#define CALL_IF2(w, name, a, b, why)                                                               \
    {.call = SCMP_SYS(name), .who = (w), .action = SCMP_ACT_ALLOW, .n_args = 2, .arg = {a, b}},
#define REFUSE(w, name, error, why)                                                                \
    {.call = SCMP_SYS(name), .who = (w), .action = SCMP_ACT_ERRNO(error)},
#define REFUSE_IF(w, name, a, error, why)                                                          \
    {.call = SCMP_SYS(name), .who = (w), .action = SCMP_ACT_ERRNO(error), .n_args = 1, .arg = {a}},

static const struct row rows[] = {
#include "sandbox/calls.def"
};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static int add(scmp_filter_ctx f, const struct row *r)
{
    struct scmp_arg_cmp arg[2] = {r->arg[0], r->arg[1]};
    for (unsigned i = 0; i < r->n_args; i++)
        if (arg[i].datum_b == OWN_PID)
            arg[i].datum_b = (uint32_t)getpid();
    return seccomp_rule_add_array(f, r->action, r->call, r->n_args, arg);
}

bool tr_filter_available(void)
{
    const uint32_t action = SECCOMP_RET_KILL_PROCESS;
    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

int tr_filter_load(enum tr_sandbox who)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_KILL_PROCESS);
    if (!f)
        return -ENOMEM;
    int ret = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (!ret)
        ret = seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);
    /* Wishes, which an old kernel or library may not have.  A tree instead of a chain; and no slower
     * stores for it (SSBD on kernels before 5.16): no foreign code runs in these processes. */
    (void)seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    (void)seccomp_attr_set(f, SCMP_FLTATR_CTL_SSB, 1);
    for (int i = 0; i < N_ROWS && !ret; i++)
        if (rows[i].who & 1u << who)
            ret = add(f, &rows[i]);
    if (!ret)
        ret = seccomp_load(f);
    seccomp_release(f);
    return ret;
}
