/* SPDX-License-Identifier: Apache-2.0 */
/* shm/observe.h - what the supervisor hands to an observer: one message, descriptors with it.
 *
 * Over a UNIX stream socket, sent at once after the connection, which then ends; nothing is read
 * from the observer.  The descriptors (SCM_RIGHTS, read-only, sealed against writers) are the
 * observed regions: n_stats statistics in the order of their index, then slots, then processes.
 *
 * The observer takes the message and everything in the regions as input: a service of another
 * version, or something that only looks like a service, gets a sentence. */
#ifndef TR_SHM_OBSERVE_H
#define TR_SHM_OBSERVE_H

#include "shm/stat.h"

#define TR_OBSERVE_MAGIC 0x65767265736f6274u

enum { TR_OBSERVE_MAX_FDS = TR_MAX_STATS + 2 };

struct tr_observe {
    uint64_t magic;
    uint32_t bytes;          /* of this message */
    uint32_t layout_version; /* TR_LAYOUT_VERSION */
    uint32_t n_values;       /* TR_STAT_N, TR_HIST_N, sizeof(struct tr_stat): another build's */
    uint32_t n_hists;        /* statistics would be read as something else */
    uint32_t stat_bytes;
    uint32_t n_fds; /* n_stats + 2 */
    struct tr_shm_config config;
    uint32_t pid; /* of the supervisor */
    uint32_t port;
    uint64_t started_ns; /* monotonic */
    uint32_t n_frontends;
    uint32_t pad;
    char version[32]; /* ends with a NUL, as all three */
    char backend[16];
    char model[128];
};

/* The fields that only say which build it is. */
static inline struct tr_observe tr_observe_of_this_build(const struct tr_shm_config *c)
{
    return (struct tr_observe){.magic = TR_OBSERVE_MAGIC,
                               .bytes = sizeof(struct tr_observe),
                               .layout_version = TR_LAYOUT_VERSION,
                               .n_values = TR_STAT_N,
                               .n_hists = TR_HIST_N,
                               .stat_bytes = sizeof(struct tr_stat),
                               .n_fds = tr_layout_n_stats(c) + 2,
                               .config = *c};
}

/* ---- where the socket is ---- */

enum tr_observe_place {
    TR_OBSERVE_RUNTIME, /* $RUNTIME_DIRECTORY, as a service manager gives it */
    TR_OBSERVE_USER,    /* $XDG_RUNTIME_DIR */
    TR_OBSERVE_SYSTEM,  /* /run/tokenring: where an observer finds a service of the system */
    TR_OBSERVE_TMP,     /* /tmp */
    TR_OBSERVE_PLACES
};

/* The default path in one of the places: DIR/tokenring-PORT.sock.  0; -ENOENT if the environment
 * does not name this place, -ENAMETOOLONG. */
int tr_observe_path(enum tr_observe_place place, unsigned port, char *out, size_t cap);

#endif
