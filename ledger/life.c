/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/life.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

void tr_life_open(struct tr_life *l, int parent)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR2); /* the supervisor died (PDEATHSIG) */
    sigprocmask(SIG_BLOCK, &set, NULL);
    *l = (struct tr_life){.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
                          .parent = parent};
}

void tr_life_close(struct tr_life *l)
{
    if (l->signals >= 0)
        close(l->signals);
    l->signals = -1;
}

void tr_life_look(struct tr_life *l)
{
    struct signalfd_siginfo si;
    while (read(l->signals, &si, sizeof(si)) == (ssize_t)sizeof(si))
        if (si.ssi_signo == SIGTERM && (int)si.ssi_pid == l->parent)
            l->stop = true;
}

bool tr_life_is_orphan(const struct tr_life *l)
{
    return getppid() != l->parent;
}
