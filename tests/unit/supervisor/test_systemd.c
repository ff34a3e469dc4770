/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/systemd.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tr_systemd d;
static struct tr_errbuf err;

/* The variables must be writable strings of the environment, as setenv makes them. */
static void set_pid(const char *name, int more)
{
    char text[32];
    snprintf(text, sizeof(text), "%d", (int)getpid() + more);
    setenv(name, text, 1);
}

/* Listening sockets at descriptors 3 and up. */
static void pass(unsigned n, int family)
{
    for (unsigned i = 0; i < n; i++) {
        int fd = fcntl(socket(family, SOCK_STREAM, 0), F_DUPFD, 64);
        listen(fd, 1);
        dup2(fd, 3 + (int)i);
    }
}

Test(systemd, without_a_manager_nothing_is_told_and_nothing_fails)
{
    cr_assert_eq(tr_systemd_init(&d, &err), 0);
    cr_expect_eq(d.to_len, 0);
    cr_expect_eq(d.watchdog_ns, 0);
    cr_expect_eq(d.n_fds, 0);
    cr_expect_eq(tr_systemd_tell(&d, "READY=1\n"), 0);
}

Test(systemd, what_is_meant_for_another_process_is_none_of_ours)
{
    setenv("WATCHDOG_USEC", "1000000", 1);
    set_pid("WATCHDOG_PID", 1);
    setenv("LISTEN_FDS", "2", 1);
    set_pid("LISTEN_PID", 1);
    cr_assert_eq(tr_systemd_init(&d, &err), 0);
    cr_expect_eq(d.watchdog_ns, 0);
    cr_expect_eq(d.n_fds, 0);
    set_pid("WATCHDOG_PID", 0);
    setenv("WATCHDOG_USEC", "1000000", 1);
    cr_assert_eq(tr_systemd_init(&d, &err), 0);
    cr_expect_eq(d.watchdog_ns, 1000000000);
}

Test(systemd, the_variables_are_empty_afterwards)
{
    setenv("NOTIFY_SOCKET", "/nowhere", 1);
    setenv("WATCHDOG_USEC", "5", 1);
    cr_assert_eq(tr_systemd_init(&d, &err), 0);
    cr_expect_str_eq(getenv("NOTIFY_SOCKET"), "");
    cr_expect_str_eq(getenv("WATCHDOG_USEC"), "");
    cr_expect_eq(tr_systemd_tell(&d, "READY=1\n"), -ENOENT);
}

Test(systemd, nonsense_is_refused_with_a_sentence)
{
    static const char *const bad[][2] = {{"NOTIFY_SOCKET", "relative"}, {"NOTIFY_SOCKET", "@"},
                                         {"WATCHDOG_USEC", "0"},        {"WATCHDOG_USEC", "-3"},
                                         {"WATCHDOG_USEC", "1x"},       {"LISTEN_FDS", "1000"},
                                         {"LISTEN_FDS", "-1"}};
    char path[200];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        set_pid("LISTEN_PID", 0);
        setenv(bad[i][0], bad[i][1], 1);
        *err.msg = '\0';
        cr_expect_eq(tr_systemd_init(&d, &err), -EINVAL, "%s=%s", bad[i][0], bad[i][1]);
        cr_expect_neq(*err.msg, '\0');
    }
    memset(path, 'a', sizeof(path));
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    setenv("NOTIFY_SOCKET", path, 1);
    cr_expect_eq(tr_systemd_init(&d, &err), -EINVAL, "longer than an address");
}

/* The caller tries again: nothing is lost and nothing waits. */
Test(systemd, a_manager_that_takes_nothing_is_an_error_at_once)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0), told = 0, ret;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char name[64], text[64];
    snprintf(name, sizeof(name), "@tokenring-unit-%d", (int)getpid());
    memcpy(a.sun_path + 1, name + 1, strlen(name) - 1);
    cr_assert_eq(bind(fd, (struct sockaddr *)&a,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
                 0);
    setenv("NOTIFY_SOCKET", name, 1);
    cr_assert_eq(tr_systemd_init(&d, &err), 0);
    while ((ret = tr_systemd_tell(&d, "READY=1\n")) == 0 && told < 100000)
        told++;
    cr_expect_eq(ret, -EAGAIN);
    cr_assert_eq(recv(fd, text, sizeof(text), 0), 8);
    cr_expect_eq(memcmp(text, "READY=1\n", 8), 0);
    cr_expect_eq(tr_systemd_tell(&d, "READY=1\n"), 0, "there is room again");
    close(fd);
}

/* Descriptors 3 and up are Criterion's: in a child, which tells the line of what was wrong. */
#define CHECK(good)                                                                                \
    do {                                                                                           \
        if (!(good))                                                                               \
            _exit(__LINE__ - first_line);                                                          \
    } while (0)
enum { first_line = __LINE__ };

static int in_child(void (*fn)(void))
{
    int status = -1;
    pid_t pid = fork();
    if (!pid) {
        fn();
        _exit(0);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) ? first_line + WEXITSTATUS(status) : status;
}

static int taken(unsigned i, int *grpc)
{
    int fd = -1;
    unsigned port = 0;
    int ret = tr_systemd_socket(&d, i, &fd, &port, grpc, &err);
    return ret ? ret : fd == 3 + (int)i && port > 0 ? 0 : -EBADF;
}

static void take_named(void)
{
    int grpc;
    pass(3, AF_INET);
    set_pid("LISTEN_PID", 0);
    setenv("LISTEN_FDS", "3", 1);
    setenv("LISTEN_FDNAMES", "grpc2:grpc", 1);
    CHECK(tr_systemd_init(&d, &err) == 0 && d.n_fds == 3);
    for (unsigned i = 0; i < 3; i++) {
        CHECK(taken(i, &grpc) == 0);
        CHECK(grpc == (i == 1));
        CHECK(fcntl(3 + (int)i, F_GETFL) & O_NONBLOCK);
        CHECK(fcntl(3 + (int)i, F_GETFD) & FD_CLOEXEC);
    }
}

Test(systemd, sockets_have_names_as_far_as_there_are)
{
    cr_expect_eq(in_child(take_named), 0);
}

static void take_others(void)
{
    int grpc;
    close(3);
    set_pid("LISTEN_PID", 0);
    setenv("LISTEN_FDS", "1", 1);
    CHECK(tr_systemd_init(&d, &err) == 0);
    CHECK(taken(0, &grpc) == -EINVAL); /* none */
    dup2(open("/dev/null", O_RDWR), 3);
    CHECK(taken(0, &grpc) == -EINVAL); /* no socket */
    dup2(socket(AF_INET, SOCK_DGRAM, 0), 3);
    CHECK(taken(0, &grpc) == -EINVAL); /* no stream */
    dup2(socket(AF_INET, SOCK_STREAM, 0), 3);
    CHECK(taken(0, &grpc) == -EINVAL); /* does not listen */
    sa_family_t un = AF_UNIX;
    dup2(socket(AF_UNIX, SOCK_STREAM, 0), 3);
    CHECK(bind(3, (struct sockaddr *)&un, sizeof(un)) == 0 && listen(3, 1) == 0);
    CHECK(taken(0, &grpc) == -EINVAL); /* not TCP */
}

Test(systemd, only_tcp_sockets_that_listen_are_taken)
{
    cr_expect_eq(in_child(take_others), 0);
}
