/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/observe.h - the control socket: observers get read-only descriptors there.
 *
 * The supervisor's, in its loop.  An observer connects, is sent one message with the descriptors
 * (shm/observe.h) and is forgotten: nothing is read from it, nothing is kept for it, nothing waits
 * for it.  Who it may be is what the kernel says of the peer: this service's user, or root.
 *
 * Many at once: so many in a turn, the rest in the next; the queue before that is the kernel's.
 * Out of descriptors: the next turn tries again. */
#ifndef TR_SUPERVISOR_OBSERVE_H
#define TR_SUPERVISOR_OBSERVE_H

#include "base/err.h"
#include "shm/observe.h"
#include "shm/region.h"

#include <stdbool.h>
#include <sys/types.h>

struct tr_observer {
    int fd; /* listens; -1: there is none */
    bool full;
    char path[108]; /* as in sockaddr_un */
    dev_t dev;      /* of the file that we made */
    ino_t ino;
    struct tr_observe message;
};

/* `where` is the flag: a path, auto (the first place of shm/observe.h that can be used) or off.  A
 * socket that nobody listens on is replaced, whatever else stands there is left alone: -EADDRINUSE
 * and a sentence.  Other failures: -errno and a sentence; o->fd is then -1. */
int tr_observe_open(struct tr_observer *o, const char *where, const struct tr_observe *message,
                    struct tr_errbuf *err);

/* What to poll for POLLIN; -1 (which poll passes over) while there is nothing to wait for. */
int tr_observe_pollfd(struct tr_observer *o);

/* Those who have connected.  Never blocks. */
void tr_observe_serve(struct tr_observer *o, const struct tr_shm_fds *fds);

/* Closes; removes the file if it is still the one that was made.  A child only closes the fd. */
void tr_observe_close(struct tr_observer *o);

#endif
