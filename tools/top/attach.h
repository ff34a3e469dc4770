/* SPDX-License-Identifier: Apache-2.0 */
/* tools/top/attach.h - a service's observed regions, mapped for reading.
 *
 * What the socket sends and what the regions hold is input: a service of another version, or
 * something that is none, is refused with a sentence.  The mappings cannot shrink under the reader
 * (seals are looked at), and stay when the service ends. */
#ifndef TR_TOP_ATTACH_H
#define TR_TOP_ATTACH_H

#include "base/err.h"
#include "shm/observe.h"
#include "shm/process_stat.h"
#include "shm/slot_stat.h"

#include <stdbool.h>

struct tr_top_view {
    struct tr_observe hello; /* checked; its strings are short printable ASCII */
    const struct tr_stat *stat[TR_MAX_STATS];
    const struct tr_slot_stats *slots;
    const struct tr_processes *processes;
    int pidfd; /* of the supervisor; -1 where it cannot be had (another PID namespace) */
};

/* The message and its descriptors, as they came: checks, maps and closes them all, also when it
 * fails.  0, or -EPROTO and a sentence. */
int tr_top_take(struct tr_top_view *v, const struct tr_observe *hello, const int *fds, uint32_t n,
                struct tr_errbuf *err);

/* From the socket at `path`; if NULL, from the first of the default places where a service of this
 * port answers.  0, or -errno and a sentence. */
int tr_top_attach(struct tr_top_view *v, const char *path, unsigned port, struct tr_errbuf *err);

/* The service is over: its supervisor has ended, or (without pidfd) has been silent for 10 s. */
bool tr_top_is_gone(const struct tr_top_view *v);

void tr_top_detach(struct tr_top_view *v);

#endif
