/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/process.h"

#include "base/fault.h"
#include "base/log.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

extern char **environ;

/* ---- names ---- */

static char *title_start;
static size_t title_room;

void tr_title_init(int argc, char **argv)
{
    /* argv and the environment lie in one piece; the environment is moved away, so that a long
     * title fits.  If it cannot be moved, the title gets the room of argv alone. */
    char *end = argv[argc - 1] + strlen(argv[argc - 1]) + 1;
    size_t n = 0;
    while (environ[n])
        n++;
    char **copy = calloc(n + 1, sizeof(*copy));
    bool whole = copy != NULL;
    for (size_t i = 0; whole && i < n; i++) {
        if (environ[i] == end)
            end += strlen(environ[i]) + 1;
        copy[i] = strdup(environ[i]);
        whole = copy[i] != NULL;
    }
    if (whole) {
        environ = copy;
    } else {
        free(copy); /* its strings are lost at start-up, a few bytes */
        end = argv[argc - 1] + strlen(argv[argc - 1]) + 1;
    }
    title_start = argv[0];
    title_room = (size_t)(end - argv[0]);
    /* Options are borrowed from argv: they must not lie where the title is written. */
    for (int i = 1; i < argc; i++) {
        char *own = strdup(argv[i]);
        if (!own)
            title_room = 0;
        else
            argv[i] = own;
    }
}

void tr_title_set(const char *title)
{
    prctl(PR_SET_NAME, title); /* cut to 15 bytes by the kernel */
    if (!title_room)
        return;
    memset(title_start, 0, title_room);
    size_t n = strlen(title);
    memcpy(title_start, title, n < title_room ? n : title_room - 1);
}

/* ---- what every child does first ---- */

/* `death` is sent by the kernel when the supervisor dies.  It is set before the check: a supervisor
 * that died in between shows as another parent. */
static void become(struct tr_heritage *h, const char *title, int death)
{
    tr_title_set(title);
    close(h->signals);
    if (h->observer.fd >= 0)
        close(h->observer.fd);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    /* Signals for the group (a terminal's Ctrl-C, a service manager's SIGTERM) are the supervisor's
     * business: a child learns of the drain from the control page. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGTTIN, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    /* A death signal that is to be read, not to kill, stays blocked; so does then the one that asks
     * for the end, which may come before there is anybody to read it. */
    sigset_t mask;
    sigemptyset(&mask);
    if (death != SIGKILL) {
        sigaddset(&mask, death);
        sigaddset(&mask, SIGTERM);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    prctl(PR_SET_PDEATHSIG, death);
    if (getppid() != h->supervisor)
        _exit(1);
}

/* Clients are the frontends'. */
static void leave_clients(struct tr_heritage *h)
{
    tr_heritage_drop_secrets(h);
    for (unsigned i = 0; i < h->n_listen; i++)
        close(h->listen_fds[i]);
}

/* Only engines have it. */
static void close_weights(struct tr_heritage *h)
{
    if (h->engine.backend.weights_fd > 0)
        close(h->engine.backend.weights_fd);
    close(h->pieces.fd);
}

static void attach(struct tr_heritage *h, struct tr_shm *s, enum tr_role role, uint32_t area,
                   uint32_t epoch)
{
    struct tr_errbuf err;
    if (tr_shm_attach(s, &h->fds, role, area, epoch, &err)) {
        tr_log(TR_LOG_ERROR, "%s", err.msg);
        _exit(1);
    }
}

static pid_t fork_child(void)
{
    /* Nothing half-written may leave twice. */
    fflush(NULL);
    TR_FAULT(SUPERVISOR_FORK);
    pid_t pid = fork();
    return pid < 0 ? -errno : pid;
}

/* ---- the roles ---- */

pid_t tr_process_engine(struct tr_heritage *h, uint32_t epoch)
{
    pid_t pid = fork_child();
    if (pid)
        return pid;
    struct tr_shm s;
    become(h, "tokenring: engine", SIGKILL);
    tr_log_init("engine", h->opt.log_format);
    tr_heritage_drop_collector(h);
    leave_clients(h);
    attach(h, &s, TR_ROLE_ENGINE, 0, epoch);
    int status = tr_engine_main(&s, &h->engine);
    /* The library of a GPU's driver has an end of its own at exit, which may need more than its passes, so more than
     * the sandbox gives.  The kernel takes back what it holds. */
    if (h->engine.ops == &tr_backend_cuda)
        _exit(status);
    exit(status);
}

pid_t tr_process_frontend(struct tr_heritage *h, unsigned number, uint32_t area, uint32_t epoch)
{
    pid_t pid = fork_child();
    if (pid)
        return pid;
    struct tr_shm s;
    char title[40];
    snprintf(title, sizeof(title), "tokenring: frontend %u", number);
    become(h, title, SIGKILL);
    close_weights(h);
    tr_heritage_drop_collector(h);
    tr_log_init(strdup(title + strlen("tokenring: ")), h->opt.log_format);
    attach(h, &s, TR_ROLE_FRONTEND, area, epoch);
    h->frontend.number = number;
    exit(tr_frontend_main(&s, &h->frontend));
}

pid_t tr_process_ledger(struct tr_heritage *h)
{
    pid_t pid = fork_child();
    if (pid)
        return pid;
    struct tr_shm s;
    /* Not killed with the supervisor: it settles first.  SIGTERM must reach it from there. */
    become(h, "tokenring: ledger", SIGUSR2);
    close_weights(h);
    signal(SIGTERM, SIG_DFL);
    tr_log_init("ledger", h->opt.log_format);
    leave_clients(h);
    attach(h, &s, TR_ROLE_LEDGER, 0, 1);
    exit(tr_ledger_main(&s, &h->ledger));
}
