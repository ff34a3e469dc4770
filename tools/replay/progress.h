/* SPDX-License-Identifier: Apache-2.0 */
/* replay/progress.h - how far a run is: on a terminal one line that changes, otherwise a line now
 * and then. */
#ifndef TR_REPLAY_PROGRESS_H
#define TR_REPLAY_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct tr_progress {
    FILE *to; /* NULL: silent */
    bool tty;
    bool shown; /* a line that changes stands there */
    uint64_t next_ns;
};

struct tr_progress_at {
    const char *tag;
    double t_s;
    size_t sent, total, done, bad;
    unsigned open, streaming;
    double running, waiting; /* NAN: not known */
};

void tr_progress_init(struct tr_progress *p, FILE *to, bool quiet);

/* Is it time? */
bool tr_progress_due(const struct tr_progress *p, uint64_t now_ns);
void tr_progress_show(struct tr_progress *p, const struct tr_progress_at *at, uint64_t now_ns);

/* Takes the changing line away. */
void tr_progress_clear(struct tr_progress *p);

#endif
