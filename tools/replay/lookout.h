/* SPDX-License-Identifier: Apache-2.0 */
/* replay/lookout.h - looks at the server's gauges while a run goes on, without ever waiting for it:
 * one GET /metrics at a time, its socket in the run's own epoll set. */
#ifndef TR_REPLAY_LOOKOUT_H
#define TR_REPLAY_LOOKOUT_H

#include "client/buf.h"
#include "client/http_client.h"
#include "client/target.h"

#include <stdbool.h>
#include <stdint.h>

enum tr_gauge { TR_GAUGE_RUNNING, TR_GAUGE_WAITING, TR_GAUGE_PARKED, TR_GAUGE_KV_USED, TR_GAUGES };

const char *tr_gauge_name(enum tr_gauge g);

/* NAN where the page (may be NULL) has none. */
void tr_gauges_read(double gauges[TR_GAUGES], const char *page, size_t len);

struct tr_lookout {
    const struct tr_target *target;
    int fd; /* -1: no GET under way */
    char *req;
    size_t req_len, req_sent;
    struct tr_buf page;
    struct tr_httpc http;
};

/* 0 or -ENOMEM. */
int tr_lookout_init(struct tr_lookout *w, const struct tr_target *t);
void tr_lookout_fini(struct tr_lookout *w);

/* Begins a GET; a descriptor to wait for, or -errno. */
int tr_lookout_begin(struct tr_lookout *w);

/* The descriptor is ready.  0: more to come; 1: the gauges are there; negative: it failed.  Ended
 * either way, the descriptor is closed. */
int tr_lookout_io(struct tr_lookout *w, double gauges[TR_GAUGES]);

/* Gives up on the GET under way. */
void tr_lookout_stop(struct tr_lookout *w);

/* Is there more to send? */
bool tr_lookout_wants_write(const struct tr_lookout *w);

#endif
