/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/supervise.h"

#include "base/fault.h"
#include "base/log.h"
#include "shm/bell.h"
#include "shm/stat.h"
#include "supervisor/supervise_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { TICK_MS = 20 }; /* starts, limits and stalls are looked at so often */

void tr_sup_publish(struct tr_supervisor *v)
{
    TR_FAULT(SUPERVISOR_PUBLISH);
    tr_control_publish(v->s.control);
    tr_bell_ring_engine(&v->s);
    for (uint32_t a = 0; a < v->s.config.n_areas; a++)
        tr_bell_ring_area(&v->s, a);
}

void tr_sup_set(_Atomic uint32_t *p, uint32_t v)
{
    /* Relaxed: tr_control_publish releases it. */
    atomic_store_explicit(p, v, memory_order_relaxed);
}

/* Room for the lines below: a pipe that polls as writable takes PIPE_BUF bytes at once.  What is
 * neither a pipe nor a terminal always does. */
static bool has_room(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) == 1;
}

static void announce(struct tr_supervisor *v)
{
    const struct tr_heritage *h = v->h;
    const char *host = strcmp(h->opt.host, "0.0.0.0") == 0 || strcmp(h->opt.host, "::") == 0
                           ? "127.0.0.1"
                           : h->opt.host;
    const char *scheme = *h->opt.tls_cert ? "https" : "http";
    const char *open = strchr(host, ':') ? "[" : "", *close = *open ? "]" : "";
    char grpc[300] = "";
    v->announced = true;
    if (h->grpc_port)
        snprintf(grpc, sizeof(grpc), "; gRPC on %s%s%s:%u", open, host, close, h->grpc_port);
    if (!has_room(STDOUT_FILENO)) {
        tr_log(TR_LOG_WARN, "ready; standard output has no room for the line that says so");
        return;
    }
    printf("tokenring ready on %s://%s%s%s:%u (model %s, %u frontends%s)\n"
           "  curl -N %s://%s%s%s:%u/v1/%s -H 'Content-Type: application/json'%s -d "
           "'{\"model\":\"%s\",\"stream\":true,%s}'\n",
           scheme, open, host, close, h->port, h->served_name, v->n_front, grpc, scheme, open, host,
           close, h->port, h->chats ? "chat/completions" : "completions",
           h->keys.needed ? " -H \"Authorization: Bearer $KEY\"" : "", h->served_name,
           h->chats ? "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me about the sea.\"}]"
                    : "\"prompt\":\"The sea is\"");
    fflush(stdout);
}

/* ---- the loop ---- */

static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGQUIT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGTTIN);
    sigaddset(&set, SIGTTOU);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Whoever started us at a terminal means us to end with it, unless hang-ups were to be ignored
 * (nohup). */
static bool has_terminal(void)
{
    int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool ends_with_terminal(void)
{
    struct sigaction old;
    return sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler != SIG_IGN && has_terminal();
}

static void hung_up(struct tr_supervisor *v)
{
    if (!v->at_terminal || has_terminal()) {
        tr_replace_all(v);
        return;
    }
    v->at_terminal = false; /* the kernel and a shell may both tell */
    tr_drain_ask(v);
}

static void take_signal(struct tr_supervisor *v, uint32_t signo)
{
    bool change = signo == SIGHUP || signo == SIGTTIN || signo == SIGTTOU;
    if (signo == SIGCHLD || (change && v->drain != TR_DRAIN_NO))
        return; /* who drains needs no other frontends */
    if (signo == SIGHUP)
        hung_up(v);
    else if (signo == SIGTTIN)
        tr_replace_more(v);
    else if (signo == SIGTTOU)
        tr_replace_fewer(v);
    else
        tr_drain_ask(v);
}

static void take_signals(struct tr_supervisor *v)
{
    struct signalfd_siginfo si;
    while (read(v->h->signals, &si, sizeof(si)) == (ssize_t)sizeof(si))
        take_signal(v, si.ssi_signo);
    tr_child_reap(v);
}

static int run(struct tr_supervisor *v)
{
    struct pollfd p[2] = {{.fd = v->h->signals, .events = POLLIN}, {.events = POLLIN}};
    for (;;) {
        tr_child_start_due(v);
        p[1].fd = tr_observe_pollfd(&v->h->observer);
        poll(p, 2, TICK_MS);
        take_signals(v);
        tr_child_look(v);
        tr_tell(v);
        tr_observe_serve(&v->h->observer, &v->h->fds);
        if (!v->announced && tr_child_all_served(v))
            announce(v);
        tr_manager_tell(v);
        if (v->failed && !v->announced)
            return 1;
        /* Streams get their end and their record as far as the processes left can do it. */
        if (v->failed && v->drain != TR_DRAIN_CUT)
            tr_drain_to(v, TR_DRAIN_CUT);
        if (v->drain != TR_DRAIN_NO && tr_drain_on(v))
            return v->failed;
        tr_child_stalls(v);
        if (v->drain == TR_DRAIN_NO && v->announced)
            tr_replace_on(v);
    }
}

int tr_supervise(struct tr_heritage *h)
{
    struct tr_supervisor v = {.h = h, .n_front = h->n_frontends, .n_wanted = h->n_frontends};
    struct tr_errbuf err;
    if (tr_shm_attach(&v.s, &h->fds, TR_ROLE_SUPERVISOR, 0, 0, &err)) {
        tr_log(TR_LOG_ERROR, "%s", err.msg);
        return 1;
    }
    h->signals = open_signals();
    if (h->signals < 0) {
        tr_log(TR_LOG_ERROR, "cannot take signals: %s", strerror(errno));
        return 1;
    }
    v.at_terminal = ends_with_terminal();
    tr_manager_begin(&v);
    int status = run(&v);
    /* After a failure children may still live: PDEATHSIG ends them, the ledger last. */
    close(h->signals);
    tr_shm_detach(&v.s);
    return status;
}
