/* SPDX-License-Identifier: Apache-2.0 */
/* client/server_hist.h - the server's own latencies: the known histograms of its /metrics, after a
 * run minus before it. */
#ifndef TR_CLIENT_SERVER_HIST_H
#define TR_CLIENT_SERVER_HIST_H

#include "client/scrape.h"

#include <stdio.h>

enum tr_server_hist {
    TR_SERVER_TTFT,
    TR_SERVER_FIRST_BYTE,
    TR_SERVER_QUEUE,
    TR_SERVER_PREFILL,
    TR_SERVER_INTER_TOKEN,
    TR_SERVER_E2E,
    TR_SERVER_HISTS
};

struct tr_server_hists {
    struct {
        const char *metric; /* NULL: the server has none */
        struct tr_hist diff;
    } of[TR_SERVER_HISTS];
    const char *note; /* why there are no figures; NULL if there are */
};

const char *tr_server_hist_name(enum tr_server_hist h);

/* The difference of two pages; NULL pages mean that they could not be read. */
void tr_server_hists_make(struct tr_server_hists *s, const char *before, size_t before_len,
                          const char *after, size_t after_len);

/* Rows of a table in ms: name, p50, p90, p99, an empty column, mean, n. */
void tr_server_hists_text(const struct tr_server_hists *s, FILE *out);

#endif
