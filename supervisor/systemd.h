/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/systemd.h - what a service manager gives at start and is told: sd_notify(3),
 * sd_listen_fds(3), sd_watchdog_enabled(3), spoken by hand, not by libsystemd: its sd_notify() waits when
 * the manager's queue is full, and the supervisor may not; it reads the environment each time, which is
 * emptied here; and every process, sandboxed frontends too, would map its compressors and libgcrypt.
 *
 * The supervisor's.  No descriptor is kept: a message is a datagram of a socket of its own, so children
 * inherit nothing and, as the variables are emptied, cannot speak for the service.
 * A manager that takes nothing now is told later: nothing waits for it. */
#ifndef TR_SUPERVISOR_SYSTEMD_H
#define TR_SUPERVISOR_SYSTEMD_H

#include "base/err.h"

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { TR_STATUS_BYTES = 256 };

/* What of it has been told (manager.c). */
enum tr_manager_phase { TR_PHASE_STARTING, TR_PHASE_READY, TR_PHASE_RELOADING, TR_PHASE_STOPPING };

struct tr_systemd {
    struct sockaddr_un to; /* where messages go */
    socklen_t to_len;      /* 0: nobody listens */
    uint64_t watchdog_ns;  /* 0: none */
    uint64_t fed_ns;
    unsigned n_fds; /* sockets that were passed: descriptors 3 and up */
    char *names;    /* of them, separated by colons; NULL: none */
    enum tr_manager_phase phase;
    char status[TR_STATUS_BYTES];
};

/* Reads the variables and empties them.  What is meant for another process (LISTEN_PID,
 * WATCHDOG_PID) is none of ours.  0; -EINVAL and a sentence when it makes no sense. */
int tr_systemd_init(struct tr_systemd *d, struct tr_errbuf *err);
void tr_systemd_fini(struct tr_systemd *d);

/* One message of lines "NAME=value".  0, also when nobody listens; -errno: not told. */
int tr_systemd_tell(const struct tr_systemd *d, const char *message);

/* Socket i < n_fds, made ready to be shared by frontends: *fd, *port, and whether its name is "grpc".  -EINVAL
 * and a sentence when it is not a TCP socket that listens. */
int tr_systemd_socket(const struct tr_systemd *d, unsigned i, int *fd, unsigned *port, int *grpc,
                      struct tr_errbuf *err);

#endif
