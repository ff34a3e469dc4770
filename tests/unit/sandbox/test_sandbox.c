/* SPDX-License-Identifier: Apache-2.0 */
/* A claim of docs/security.md each: children enter a sandbox and try. */
#include "base/log.h"
#include "sandbox/filter.h"
#include "sandbox/landlock.h"
#include "sandbox/sandbox.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENTER_FAILED = 200, LIMIT_S = 60 };

/* What a test needs from before the sandbox. */
static int sock, listener, port, file, quiet[2], go[2];
static pid_t parent;
static void *page;   /* anonymous, private */
static void *shared; /* of a descriptor without write access */

static void need(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        abort();
    }
}

static void prepare(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    char path[64];
    parent = getpid();
    need((listener = socket(AF_INET, SOCK_STREAM, 0)) >= 0, "socket");
    need(bind(listener, (struct sockaddr *)&a, sizeof(a)) == 0, "bind");
    need(listen(listener, 4) == 0, "listen");
    need(getsockname(listener, (struct sockaddr *)&a, &len) == 0, "getsockname");
    port = ntohs(a.sin_port);
    need((sock = socket(AF_INET, SOCK_STREAM, 0)) >= 0, "socket");
    need((file = memfd_create("a file", 0)) >= 0 && ftruncate(file, 4096) == 0, "memfd_create");
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    int ro = open(path, O_RDONLY);
    need(ro >= 0, path);
    shared = mmap(NULL, 4096, PROT_READ, MAP_SHARED, ro, 0);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(shared != MAP_FAILED && page != MAP_FAILED, "mmap");
    close(ro);
    need(pipe(quiet) == 0 && pipe(go) == 0, "pipe");
}

/* The wait status of a child that enters, with n folders of its own, and acts; what `act` returns is its
 * exit status. */
static int inside_with(enum tr_sandbox who, const char *const *folders, int n,
                       int (*act)(const void *), const void *arg)
{
    pid_t pid = fork();
    need(pid >= 0, "fork");
    if (!pid) {
        struct tr_errbuf err;
        alarm(LIMIT_S);
        /* Its standard error stays: a sanitizer's report is wanted. */
        if (tr_sandbox_enter_with(who, folders, n, &err) < 0) {
            fprintf(stderr, "%s\n", err.msg);
            _exit(ENTER_FAILED);
        }
        _exit(act(arg));
    }
    int status = 0;
    need(waitpid(pid, &status, 0) == pid, "waitpid");
    return status;
}

static int inside(enum tr_sandbox who, int (*act)(const void *), const void *arg)
{
    return inside_with(who, NULL, 0, act, arg);
}

static bool filtered(void)
{
    if (!tr_filter_available())
        cr_skip_test("this kernel has no seccomp filters");
    return true;
}

#define ENDS(who, act, arg, claim)                                                                 \
    do {                                                                                           \
        int st_ = inside(who, act, arg);                                                           \
        cr_expect(WIFEXITED(st_) && WEXITSTATUS(st_) == 0, "%s: status %#x", claim, st_);          \
    } while (0)
#define KILLED(who, act, arg, claim)                                                               \
    do {                                                                                           \
        int st_ = inside(who, act, arg);                                                           \
        cr_expect(WIFSIGNALED(st_) && WTERMSIG(st_) == SIGSYS, "%s: status %#x", claim, st_);      \
    } while (0)

/* ---- calls that kill ---- */

struct
try {
    const char *claim;
    long call;
    long arg[5];
};

static int make_call(const void *arg)
{
    const struct try *t = arg;
    long r = syscall(t->call, t->arg[0], t->arg[1], t->arg[2], t->arg[3], t->arg[4]);
    return r < 0 ? errno : 0;
}

static void all_kill(enum tr_sandbox who, const struct try *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        KILLED(who, make_call, &t[i], t[i].claim);
}
#define ALL_KILL(who, t) all_kill(who, t, sizeof(t) / sizeof((t)[0]))

Test(sandbox, a_frontend_makes_no_process_and_runs_no_program, .init = prepare)
{
    static char *argv[] = {"true", NULL};
    const struct try t[] = {
        {"execve", SYS_execve, {(long)"/bin/true", (long)argv, 0}},
        {"execveat", SYS_execveat, {AT_FDCWD, (long)"/bin/true", (long)argv, 0, 0}},
        {"fork", SYS_fork, {0}},
        {"vfork", SYS_vfork, {0}},
        {"clone of a process", SYS_clone, {SIGCHLD, 0}},
        {"clone that shares memory but is no thread", SYS_clone, {CLONE_VM | SIGCHLD, 0}},
    };
    if (filtered())
        ALL_KILL(TR_SANDBOX_FRONTEND, t);
}

Test(sandbox, a_frontend_gets_no_socket_but_by_accept, .init = prepare)
{
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)port)};
    const struct try t[] = {
        {"socket", SYS_socket, {AF_INET, SOCK_STREAM, 0}},
        {"UNIX socket", SYS_socket, {AF_UNIX, SOCK_STREAM, 0}},
        {"netlink socket", SYS_socket, {AF_NETLINK, SOCK_RAW, 0}},
        {"socketpair", SYS_socketpair, {AF_UNIX, SOCK_STREAM, 0, (long)quiet}},
        {"connect", SYS_connect, {sock, (long)&a, sizeof(a)}},
        {"bind", SYS_bind, {sock, (long)&a, sizeof(a)}},
        {"listen", SYS_listen, {sock, 1}},
        {"a program on a socket", SYS_setsockopt, {sock, SOL_SOCKET, SO_ATTACH_FILTER, 0, 0}},
        {"another option", SYS_setsockopt, {sock, SOL_SOCKET, SO_REUSEPORT, (long)page, 4}},
        {"recvmsg, which takes descriptors", SYS_recvmsg, {sock, 0, 0}},
    };
    if (filtered())
        ALL_KILL(TR_SANDBOX_FRONTEND, t);
}

Test(sandbox, a_frontend_reaches_no_other_process, .init = prepare)
{
    const struct try t[] = {
        {"kill", SYS_kill, {parent, 0}},
        {"kill of everybody", SYS_kill, {-1, 0}},
        {"tgkill of another process", SYS_tgkill, {parent, parent, 0}},
        {"tkill", SYS_tkill, {parent, 0}},
        {"ptrace", SYS_ptrace, {PTRACE_ATTACH, parent, 0, 0}},
        {"process_vm_readv", SYS_process_vm_readv, {parent, 0, 0, 0, 0}},
        {"process_vm_writev", SYS_process_vm_writev, {parent, 0, 0, 0, 0}},
        {"pidfd_open", SYS_pidfd_open, {parent, 0}},
        {"pidfd_getfd", SYS_pidfd_getfd, {0, 0, 0}},
        {"prlimit", SYS_prlimit64, {parent, RLIMIT_CORE, 0, (long)page}},
        {"sched_setaffinity", SYS_sched_setaffinity, {parent, 8, (long)page}},
        {"nice of another", SYS_setpriority, {PRIO_PROCESS, parent, 0}},
    };
    if (filtered())
        ALL_KILL(TR_SANDBOX_FRONTEND, t);
}

Test(sandbox, a_frontend_gets_no_executable_memory, .init = prepare)
{
    const int rwx = PROT_READ | PROT_WRITE | PROT_EXEC;
    const struct try t[] = {
        {"mmap", SYS_mmap, {0, 4096, rwx, MAP_PRIVATE | MAP_ANONYMOUS, -1}},
        {"mmap of a file", SYS_mmap, {0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file}},
        {"mprotect", SYS_mprotect, {(long)page, 4096, PROT_READ | PROT_EXEC}},
        {"pkey_mprotect", SYS_pkey_mprotect, {(long)page, 4096, PROT_READ | PROT_EXEC, -1}},
        {"remap_file_pages", SYS_remap_file_pages, {(long)page, 4096, 0, 0, 0}},
        {"memfd_create", SYS_memfd_create, {(long)"x", 0}},
        {"personality", SYS_personality, {0x0400000}}, /* READ_IMPLIES_EXEC */
    };
    if (filtered())
        ALL_KILL(TR_SANDBOX_FRONTEND, t);
}

Test(sandbox, a_frontend_changes_no_file_it_has_no_descriptor_of, .init = prepare)
{
    const struct try t[] = {
        {"unlink", SYS_unlink, {(long)"/tmp/none"}},
        {"unlinkat", SYS_unlinkat, {AT_FDCWD, (long)"/tmp/none", 0}},
        {"rename", SYS_rename, {(long)"/tmp/none", (long)"/tmp/none2"}},
        {"mkdir", SYS_mkdir, {(long)"/tmp/none", 0}},
        {"chmod", SYS_chmod, {(long)"/tmp/none", 0}},
        {"truncate", SYS_truncate, {(long)"/tmp/none", 0}},
        {"openat2", SYS_openat2, {AT_FDCWD, (long)"/etc/passwd", (long)page, 24}},
        {"stat", SYS_newfstatat, {AT_FDCWD, (long)"/etc/passwd", (long)page, 0}},
#ifndef __SANITIZE_ADDRESS__ /* there it is refused: a report asks for it */
        {"readlink", SYS_readlink, {(long)"/proc/self/exe", (long)page, 8}},
#endif
        {"chdir", SYS_chdir, {(long)"/"}},
        {"chroot", SYS_chroot, {(long)"/"}},
        {"mount", SYS_mount, {0, (long)"/", 0, 0, 0}},
        {"ftruncate", SYS_ftruncate, {file, 0}},
        {"pwrite", SYS_pwrite64, {file, (long)page, 1, 0}},
    };
    if (filtered())
        ALL_KILL(TR_SANDBOX_FRONTEND, t);
}

Test(sandbox, a_frontend_has_no_other_part_of_the_kernel, .init = prepare)
{
    const struct try t[] = {
        {"prctl", SYS_prctl, {PR_SET_NAME, (long)"x"}},
        {"another filter", SYS_seccomp, {0, 0, 0}},
        {"setuid", SYS_setuid, {0}},
        {"capset", SYS_capset, {0, 0}},
        {"unshare", SYS_unshare, {CLONE_NEWUSER}},
        {"setns", SYS_setns, {0, 0}},
        {"io_uring", SYS_io_uring_setup, {1, (long)page}},
        {"bpf", SYS_bpf, {0, 0, 0}},
        {"perf_event_open", SYS_perf_event_open, {0, 0, 0, 0, 0}},
        {"userfaultfd", SYS_userfaultfd, {0}},
        {"keyctl", SYS_keyctl, {0, 0, 0, 0, 0}},
        {"a terminal's input", SYS_ioctl, {0, TIOCSTI, (long)page}},
        {"an unknown call", 100000, {0}},
#ifdef __x86_64__
        {"the same number in another ABI (x32)", 0x40000000 | SYS_getpid, {0}},
#endif
    };
    if (filtered())
        ALL_KILL(TR_SANDBOX_FRONTEND, t);
}

#ifdef __x86_64__
static int call_32(const void *arg)
{
    (void)arg;
    long r;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(20) : "memory"); /* getpid of i386 */
    return 0;
}

Test(sandbox, a_call_by_the_32_bit_gate_kills, .init = prepare)
{
    if (filtered())
        KILLED(TR_SANDBOX_FRONTEND, call_32, NULL, "int 0x80");
}
#endif

/* ---- refusals ---- */

static int opens_nothing(const void *arg)
{
    (void)arg;
    static const char *const path[] = {"/etc/passwd", "/proc/self/maps", "/dev/null", "/", "x"};
    for (size_t i = 0; i < sizeof(path) / sizeof(path[0]); i++)
        for (int flags = 0; flags < 2; flags++)
            if (open(path[i], flags ? O_CREAT | O_WRONLY : O_RDONLY, 0600) >= 0 || errno != EACCES)
                return 1;
    return 0;
}

static int no_write_by_mprotect(const void *arg)
{
    (void)arg;
    return mprotect(shared, 4096, PROT_READ | PROT_WRITE) == 0 || errno != EACCES;
}

static int clone3_is_not_there(const void *arg)
{
    (void)arg;
    struct clone_args a = {.exit_signal = SIGCHLD};
    return syscall(SYS_clone3, &a, sizeof(a)) >= 0 || errno != ENOSYS;
}

Test(sandbox, neither_frontend_nor_engine_opens_a_file, .init = prepare)
{
    if (!filtered())
        return;
    ENDS(TR_SANDBOX_FRONTEND, opens_nothing, NULL, "frontend");
    ENDS(TR_SANDBOX_ENGINE, opens_nothing, NULL, "engine");
}

Test(sandbox, a_region_mapped_read_only_stays_so, .init = prepare)
{
    ENDS(TR_SANDBOX_FRONTEND, no_write_by_mprotect, NULL, "frontend");
}

Test(sandbox, clone3_is_refused_so_that_libraries_use_clone, .init = prepare)
{
    if (filtered())
        ENDS(TR_SANDBOX_FRONTEND, clone3_is_not_there, NULL, "clone3");
}

/* ---- what is needed works ---- */

static void *work(void *arg)
{
    (void)arg;
    /* An arena of its own that grows and is given back. */
    for (int i = 0; i < 50; i++) {
        char *p[64];
        for (int k = 0; k < 64; k++) {
            p[k] = malloc(100000);
            if (!p[k])
                abort();
            memset(p[k], 1, 100000);
        }
        for (int k = 0; k < 64; k++)
            free(p[k]);
    }
    return NULL;
}

static int threads_and_memory(const void *arg)
{
    (void)arg;
    pthread_t t[3];
    for (int i = 0; i < 3; i++)
        if (pthread_create(&t[i], NULL, work, NULL))
            return 1;
    for (int i = 0; i < 3; i++)
        if (pthread_join(t[i], NULL))
            return 2;
    char *p = NULL;
    for (size_t n = 1 << 16; n <= 1 << 26; n *= 2) {
        char *q = realloc(p, n);
        if (!q)
            return 3;
        p = q;
        p[n - 1] = 1;
    }
    free(p);
    return 0;
}

static int serves(const void *arg)
{
    (void)arg;
    struct linger hard = {1, 0};
    int one = 1, n = -1, c = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (c < 0 || setsockopt(c, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof(one)) ||
        setsockopt(c, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)))
        return 1;
    if (ioctl(c, FIONREAD, &n) || n < 0 || send(c, "x", 1, 0) != 1)
        return 2;
    tr_log(TR_LOG_INFO, "the log's clock needs no file");
    return shutdown(c, SHUT_RDWR) || close(c);
}

static int aborts(const void *arg)
{
    (void)arg;
    abort();
}

Test(sandbox, threads_start_and_memory_grows, .init = prepare)
{
    ENDS(TR_SANDBOX_FRONTEND, threads_and_memory, NULL, "frontend");
    ENDS(TR_SANDBOX_ENGINE, threads_and_memory, NULL, "engine");
}

Test(sandbox, a_client_is_accepted_and_served, .init = prepare)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                            .sin_port = htons((uint16_t)port)};
    need(connect(sock, (struct sockaddr *)&a, sizeof(a)) == 0, "connect");
    ENDS(TR_SANDBOX_FRONTEND, serves, NULL, "frontend");
}

Test(sandbox, a_failed_assertion_is_an_abort, .init = prepare)
{
    int status = inside(TR_SANDBOX_FRONTEND, aborts, NULL);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %#x", status);
}

/* ---- every thread ---- */

static void *early_thread(void *arg)
{
    char c;
    (void)!read(go[0], &c, 1);
    (void)socket(AF_INET, SOCK_STREAM, 0);
    return arg;
}

Test(sandbox, threads_from_before_are_filtered_too, .init = prepare)
{
    if (!filtered())
        return;
    pid_t pid = fork();
    if (!pid) {
        pthread_t t;
        struct tr_errbuf err;
        alarm(LIMIT_S);
        if (pthread_create(&t, NULL, early_thread, NULL) ||
            tr_sandbox_enter(TR_SANDBOX_ENGINE, &err) < 0 || write(go[1], "x", 1) != 1)
            _exit(1);
        pthread_join(t, NULL);
        _exit(0);
    }
    int status = 0;
    need(waitpid(pid, &status, 0) == pid, "waitpid");
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "status %#x", status);
}

/* ---- seen from outside ---- */

static int stays(const void *arg)
{
    (void)arg;
    char c = 'x';
    return write(quiet[1], &c, 1) != 1 || read(go[0], &c, 1) != 1;
}

static bool file_has(pid_t pid, const char *name, const char *text)
{
    char path[64], buf[8192];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY);
    need(fd >= 0, path);
    ssize_t n = read(fd, buf, sizeof(buf) - 1);
    close(fd);
    buf[n > 0 ? n : 0] = 0;
    return strstr(buf, text) != NULL;
}

static bool is_null(pid_t pid, int fd)
{
    char path[64], to[64] = "";
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
    return readlink(path, to, sizeof(to) - 1) > 0 && strcmp(to, "/dev/null") == 0;
}

Test(sandbox, rights_limits_and_standard_descriptors_are_gone, .init = prepare)
{
    pid_t pid = fork();
    if (!pid) {
        struct tr_errbuf err;
        alarm(LIMIT_S);
        _exit(tr_sandbox_enter(TR_SANDBOX_FRONTEND, &err) < 0 ? ENTER_FAILED : stays(NULL));
    }
    char c;
    need(read(quiet[0], &c, 1) == 1, "read");
    cr_expect(file_has(pid, "status", "NoNewPrivs:\t1"));
    cr_expect(file_has(pid, "status", "CapEff:\t0000000000000000"));
    cr_expect(file_has(pid, "status", "CapPrm:\t0000000000000000"));
    cr_expect(!tr_filter_available() || file_has(pid, "status", "Seccomp:\t2"));
    cr_expect(is_null(pid, 0) && is_null(pid, 1));
    int status = 0;
    need(write(go[1], "x", 1) == 1 && waitpid(pid, &status, 0) == pid, "waitpid");
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
}

/* A child that ends by a signal that asks for a core file, in an empty folder. */
static void dies_with_a_core(const char *folder)
{
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_CORE, &all); /* as much as may be */
    if (chdir(folder) || tr_sandbox_no_core())
        _exit(ENTER_FAILED);
    abort();
}

Test(sandbox, no_core_file_is_left_and_no_memory_given_to_who_collects_them, .init = prepare)
{
    char folder[] = "/tmp/tokenring-core-XXXXXX";
    need(mkdtemp(folder) != NULL, "mkdtemp");
    pid_t pid = fork();
    if (!pid)
        dies_with_a_core(folder);
    int status = 0;
    need(waitpid(pid, &status, 0) == pid, "waitpid");
    cr_expect(WIFSIGNALED(status) && !WCOREDUMP(status), "status %#x", status);
    cr_expect(rmdir(folder) == 0, "the folder is empty");

    pid = fork();
    if (!pid) {
        alarm(LIMIT_S);
        _exit(tr_sandbox_no_core() ? ENTER_FAILED : stays(NULL));
    }
    char c;
    need(read(quiet[0], &c, 1) == 1, "read");
    cr_expect(file_has(pid, "coredump_filter", "00000000"));
    cr_expect(file_has(pid, "limits", "Max core file size        1                    1 ") ||
              file_has(pid, "limits", "Max core file size        0                    0 "));
    need(write(go[1], "x", 1) == 1 && waitpid(pid, &status, 0) == pid, "waitpid");
}

/* ---- Landlock alone: the filter would be first ---- */

static int landlocked(int (*act)(int abi))
{
    int abi = tr_landlock_abi();
    if (!abi)
        cr_skip_test("this kernel has no Landlock");
    pid_t pid = fork();
    if (!pid) {
        alarm(LIMIT_S);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || tr_landlock_only(abi, NULL, 0, false))
            _exit(ENTER_FAILED);
        _exit(act(abi));
    }
    int status = 0;
    need(waitpid(pid, &status, 0) == pid, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int no_files(int abi)
{
    (void)abi;
    char path[64];
    snprintf(path, sizeof(path), "/tmp/tokenring-landlock-%d", (int)getpid());
    if (open("/etc/passwd", O_RDONLY) >= 0 || errno != EACCES)
        return 1;
    if (open("/", O_RDONLY | O_DIRECTORY) >= 0 || errno != EACCES)
        return 2;
    if (open(path, O_CREAT | O_WRONLY, 0600) >= 0 || errno != EACCES)
        return 3;
    if (mkdir(path, 0700) == 0 || errno != EACCES)
        return 4;
    static char *argv[] = {"true", NULL};
    execv("/bin/true", argv);
    return errno == EACCES ? 0 : 5;
}

/* Where the kernel is too old for a part, that part must not be claimed: it is then allowed. */
static int no_network(int abi)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                            .sin_port = htons((uint16_t)port)};
    int want = abi >= 4 ? EACCES : 0;
    int got = connect(sock, (struct sockaddr *)&a, sizeof(a)) ? errno : 0;
    if (got != want)
        return 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    a.sin_port = 0;
    got = bind(fd, (struct sockaddr *)&a, sizeof(a)) ? errno : 0;
    return got == want ? 0 : 2;
}

static int no_signals(int abi)
{
    int got = kill(parent, 0) ? errno : 0;
    return got == (abi >= 6 ? EPERM : 0) ? 0 : 1;
}

Test(landlock, no_file_is_opened_made_or_run, .init = prepare)
{
    cr_expect_eq(landlocked(no_files), 0);
}

Test(landlock, no_tcp_socket_is_bound_or_connected, .init = prepare)
{
    cr_expect_eq(landlocked(no_network), 0);
}

Test(landlock, nobody_outside_is_signalled, .init = prepare)
{
    cr_expect_eq(landlocked(no_signals), 0);
}

/* ---- kernels that have less ---- */

/* A child for which these calls are not there; its exit status says what entering returned. */
static int without(const int *calls, int n, const char *word)
{
    pid_t pid = fork();
    if (!pid) {
        alarm(LIMIT_S);
        scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
        for (int i = 0; i < n; i++)
            seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), calls[i], 0);
        struct tr_errbuf err = {""};
        if (seccomp_load(f))
            _exit(ENTER_FAILED);
        int ret = tr_sandbox_enter(TR_SANDBOX_FRONTEND, &err);
        _exit(ret == 1 && strstr(err.msg, word) ? 0 : 1);
    }
    int status = 0;
    need(waitpid(pid, &status, 0) == pid, "waitpid");
    return status;
}

Test(sandbox, a_kernel_without_landlock_is_told_and_the_rest_holds, .init = prepare)
{
    static const int calls[] = {SCMP_SYS(landlock_create_ruleset)};
    if (filtered())
        cr_expect_eq(without(calls, 1, "this kernel lacks Landlock:"), 0);
}

Test(sandbox, a_kernel_without_filters_is_told, .init = prepare)
{
    static const int calls[] = {SCMP_SYS(seccomp), SCMP_SYS(landlock_create_ruleset)};
    if (!filtered())
        return;
    cr_expect_eq(without(calls, 1, "this kernel lacks seccomp filters:"), 0);
    cr_expect_eq(without(calls, 2, "this kernel lacks Landlock and seccomp filters:"), 0);
}

/* ---- the others ---- */

static int writes_its_file(const void *arg)
{
    char c[4];
    (void)arg;
    return pwrite(file, "row\n", 4, 0) != 4 || pread(file, c, 4, 0) != 4 || fdatasync(file) ||
           fsync(file) || ftruncate(file, 4);
}

Test(sandbox, the_ledger_writes_files_and_does_nothing_else, .init = prepare)
{
    const struct try t[] = {
        {"socket", SYS_socket, {AF_INET, SOCK_STREAM, 0}},
        {"accept", SYS_accept4, {listener, 0, 0, 0}},
        {"send", SYS_sendto, {sock, (long)page, 1, 0, 0}},
        {"execve", SYS_execve, {(long)"/bin/true", 0, 0}},
        {"a process", SYS_clone, {SIGCHLD, 0}},
        {"kill", SYS_kill, {parent, 0}},
        {"mkdir", SYS_mkdir, {(long)"/tmp/none", 0}},
        {"link", SYS_link, {(long)"/tmp/none", (long)"/tmp/none2"}},
        {"executable memory", SYS_mprotect, {(long)page, 4096, PROT_READ | PROT_EXEC}},
    };
    ENDS(TR_SANDBOX_LEDGER, writes_its_file, NULL, "ledger");
    ENDS(TR_SANDBOX_LEDGER, threads_and_memory, NULL, "its thread");
    if (filtered())
        ALL_KILL(TR_SANDBOX_LEDGER, t);
}

/* In a folder of its own, and in one that is not. */
static int files_of_its_folder(const void *arg)
{
    char name[2][96];
    const char *const *folder = arg;
    for (int i = 0; i < 2; i++)
        snprintf(name[i], sizeof(name[i]), "%s/%d", folder[0], i);
    int fd = open(name[0], O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || write(fd, "x", 1) != 1 || close(fd) ||
        renameat(AT_FDCWD, name[0], AT_FDCWD, name[1]))
        return 1;
    fd = open(name[1], O_RDONLY);
    if (fd < 0 || close(fd) || unlink(name[1]))
        return 2;
    snprintf(name[0], sizeof(name[0]), "%s/x", folder[1]);
    if (open(name[0], O_RDWR | O_CREAT, 0600) >= 0 || errno != EACCES)
        return 3;
    if (open("/etc/passwd", O_RDONLY) >= 0 || errno != EACCES)
        return 4;
    return symlink("/etc/passwd", name[0]) == 0;
}

Test(sandbox, the_ledger_has_the_files_of_its_folder_and_no_others)
{
    static char own[] = "/tmp/tr-sandbox-XXXXXX", other[] = "/tmp/tr-sandbox-XXXXXX";
    const char *const folders[] = {own, other};
    if (!tr_landlock_abi())
        cr_skip_test("this kernel has no Landlock");
    need(mkdtemp(own) && mkdtemp(other), "mkdtemp");
    int status = inside_with(TR_SANDBOX_LEDGER, folders, 1, files_of_its_folder, folders);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "up to the link: status %#x",
              status);
    rmdir(own);
    rmdir(other);
}

/* ---- a ledger whose database is behind a socket ---- */

/* All on this machine: a TCP connection with its options, a UNIX socket, a name. */
static int reaches_a_server(const void *arg)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                            .sin_port = htons((uint16_t)port)};
    struct sockaddr_un u = {.sun_family = AF_UNIX, .sun_path = "/nonexistent/socket"};
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int one = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t len = sizeof(one);
    (void)arg;
    if (s < 0 || setsockopt(s, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof(one)) ||
        setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)))
        return 1;
    if (connect(s, (struct sockaddr *)&a, sizeof(a)) && errno != EINPROGRESS)
        return 2;
    struct pollfd f = {.fd = s, .events = POLLOUT};
    if (poll(&f, 1, -1) != 1 || getsockopt(s, SOL_SOCKET, SO_ERROR, &one, &len) || one ||
        send(s, "x", 1, MSG_NOSIGNAL) != 1 || (recv(s, &one, 1, 0) >= 0 || errno != EAGAIN))
        return 3;
    int l = socket(AF_UNIX, SOCK_STREAM, 0);
    if (l < 0 || connect(l, (struct sockaddr *)&u, sizeof(u)) == 0 || errno != ENOENT)
        return 4;
    if (getaddrinfo("localhost", "5432", &hints, &found) == 0)
        freeaddrinfo(found);
    (void)!getaddrinfo("name.invalid", "5432", &hints, &found); /* whatever the answer is */
    return close(s) || close(l);
}

/* What libraries try and do without. */
static int loads_no_code(const void *arg)
{
    (void)arg;
    return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) != MAP_FAILED ||
           errno != EACCES;
}

static int abi_of_the_kernel; /* asked before */

/* With Landlock: it reads what its user may read and writes in its folder. */
static int reads_but_does_not_write(const void *arg)
{
    char name[96];
    const char *const *folder = arg;
    int fd = open("/etc/passwd", O_RDONLY);
    if (fd < 0 || close(fd))
        return 1;
    snprintf(name, sizeof(name), "%s/x", folder[0]);
    fd = open(name, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || close(fd) || unlink(name))
        return 2;
    snprintf(name, sizeof(name), "%s/x", folder[1]);
    if (open(name, O_RDWR | O_CREAT, 0600) >= 0 || errno != EACCES)
        return 3;
    if (abi_of_the_kernel < 4)
        return 0;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int s = socket(AF_INET, SOCK_STREAM, 0);
    return s < 0 || bind(s, (struct sockaddr *)&a, sizeof(a)) == 0 || errno != EACCES;
}

Test(sandbox, a_ledger_with_a_server_reaches_it_and_nothing_else, .init = prepare)
{
    const struct try t[] = {
        {"listen", SYS_listen, {sock, 1}},
        {"accept", SYS_accept4, {listener, 0, 0, 0}},
        {"sendmsg, which gives descriptors away", SYS_sendmsg, {sock, 0, 0}},
        {"a packet socket", SYS_socket, {AF_PACKET, SOCK_RAW, 0}},
        {"the kernel's audit", SYS_socket, {AF_NETLINK, SOCK_RAW, 9}},
        {"a pair beyond this machine", SYS_socketpair, {AF_INET, SOCK_STREAM, 0, (long)quiet}},
        {"a program on a socket", SYS_setsockopt, {sock, SOL_SOCKET, SO_ATTACH_FILTER, 0, 0}},
        {"execve", SYS_execve, {(long)"/bin/true", 0, 0}},
        {"a process", SYS_clone, {SIGCHLD, 0}},
        {"kill", SYS_kill, {parent, 0}},
        {"ptrace", SYS_ptrace, {PTRACE_ATTACH, parent, 0, 0}},
        {"mkdir", SYS_mkdir, {(long)"/tmp/none", 0}},
        {"executable memory", SYS_mprotect, {(long)page, 4096, PROT_READ | PROT_EXEC}},
    };
    ENDS(TR_SANDBOX_LEDGER_NET, reaches_a_server, NULL, "a server");
    ENDS(TR_SANDBOX_LEDGER_NET, threads_and_memory, NULL, "its thread");
    if (filtered()) {
        ENDS(TR_SANDBOX_LEDGER_NET, loads_no_code, NULL, "no code");
        ALL_KILL(TR_SANDBOX_LEDGER_NET, t);
    }
}

Test(sandbox, a_ledger_with_a_server_reads_files_and_writes_its_own)
{
    static char own[] = "/tmp/tr-sandbox-XXXXXX", other[] = "/tmp/tr-sandbox-XXXXXX";
    const char *const folders[] = {own, other};
    abi_of_the_kernel = tr_landlock_abi();
    if (!abi_of_the_kernel)
        cr_skip_test("this kernel has no Landlock");
    need(mkdtemp(own) && mkdtemp(other), "mkdtemp");
    int status = inside_with(TR_SANDBOX_LEDGER_NET, folders, 1, reads_but_does_not_write, folders);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
    rmdir(own);
    rmdir(other);
}

/* The file is no device: the kernel says so where the filter lets the number pass. */
static int driver_is_asked(const void *arg)
{
    (void)arg;
    const unsigned long numbers[] = {_IOWR('F', 0x2a, char[32]), _IOWR('F', 200, char[8]), 33, 75,
                                     0x30000002};
    for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (ioctl(file, numbers[i], page) != -1 || (errno != ENOTTY && errno != EINVAL))
            return 1;
    return threads_and_memory(NULL);
}

Test(sandbox, an_engine_on_a_gpu_reaches_the_driver_and_no_other_device, .init = prepare)
{
    const struct try t[] = {
        {"a terminal's input", SYS_ioctl, {0, TIOCSTI, (long)page}},
        {"bytes to read", SYS_ioctl, {sock, FIONREAD, (long)page}},
        {"another driver", SYS_ioctl, {file, _IOWR('d', 2, char[32]), (long)page}},
    };
    const struct try driver[] = {
        {"the driver", SYS_ioctl, {file, _IOWR('F', 0x2a, char[32]), (long)page}}};
    ENDS(TR_SANDBOX_ENGINE_GPU, driver_is_asked, NULL, "an engine on a GPU");
    if (!filtered())
        return;
    ALL_KILL(TR_SANDBOX_ENGINE_GPU, t);
    ALL_KILL(TR_SANDBOX_ENGINE, driver);
}

Test(sandbox, the_engine_has_neither_sockets_nor_files, .init = prepare)
{
    const struct try t[] = {
        {"socket", SYS_socket, {AF_INET, SOCK_STREAM, 0}},
        {"accept", SYS_accept4, {listener, 0, 0, 0}},
        {"send", SYS_sendto, {sock, (long)page, 1, 0, 0}},
        {"pwrite", SYS_pwrite64, {file, (long)page, 1, 0}},
        {"fork", SYS_fork, {0}},
        {"execve", SYS_execve, {(long)"/bin/true", 0, 0}},
        {"kill", SYS_kill, {parent, 0}},
        {"ptrace", SYS_ptrace, {PTRACE_ATTACH, parent, 0, 0}},
        {"executable memory", SYS_mprotect, {(long)page, 4096, PROT_READ | PROT_EXEC}},
    };
    if (!filtered())
        return;
    ALL_KILL(TR_SANDBOX_ENGINE, t);
    ALL_KILL(TR_SANDBOX_ENGINE_GPU, t);
}

#if defined(__SANITIZE_ADDRESS__)
/* ---- reports of sanitizers: the first of a process asks for more than the process itself ever does ---- */

static int overflows(const void *arg)
{
    volatile int x = INT_MAX;
    (void)arg;
    x = x + 1;
    return 0;
}

static int reads_beyond(const void *arg)
{
    char *volatile p = malloc(8); /* where it came from is forgotten */
    volatile int at = 8;
    (void)arg;
    return p[at];
}

/* A child's report comes whole, whatever it may not do. */
static void is_reported(enum tr_sandbox who, int (*act)(const void *), const char *what)
{
    char text[16384];
    size_t len = 0;
    int out[2], old = dup(STDERR_FILENO);
    need(old >= 0 && pipe(out) == 0 && dup2(out[1], STDERR_FILENO) >= 0, "pipe");
    close(out[1]);
    int status = inside(who, act, NULL);
    need(dup2(old, STDERR_FILENO) >= 0, "dup2");
    close(old);
    for (ssize_t n;
         len < sizeof(text) - 1 && (n = read(out[0], text + len, sizeof(text) - 1 - len)) > 0;)
        len += (size_t)n;
    text[len] = '\0';
    close(out[0]);
    cr_expect(strstr(text, what), "%d: %s: %s", who, what, text);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status), "%d: %s: to its end: status %#x: %s", who,
              what, status, text);
}

Test(sandbox, a_sanitizers_report_comes_out_of_it)
{
    for (enum tr_sandbox who = TR_SANDBOX_FRONTEND; who <= TR_SANDBOX_LEDGER_NET; who++) {
        is_reported(who, overflows, "runtime error: signed integer overflow");
        is_reported(who, reads_beyond, "AddressSanitizer: heap-buffer-overflow");
    }
}
#endif
