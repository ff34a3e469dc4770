/* SPDX-License-Identifier: Apache-2.0 */
/* replay/options.h - what the command line of `tokenring replay` says. */
#ifndef TR_REPLAY_OPTIONS_H
#define TR_REPLAY_OPTIONS_H

#include "base/err.h"
#include "client/target.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct tr_replay_opts {
    struct tr_target to;
    const char *model; /* NULL: the first of /v1/models */
    const char *trace; /* a built-in name, a path, or "-" */
    double speed;      /* arrivals come so many times as fast */
    uint64_t limit;    /* first requests of the trace; 0: all */
    uint64_t seed;
    double temperature;
    bool has_temperature;
    double timeout_s;
    uint64_t sample_ms;
    const char *request_id; /* prefix */
    bool no_abandon;
    bool compare;
    bool no_metrics;
    bool quiet;
    bool json;
    bool show_trace;
    bool help;
};

/* Fills *o from argv and the environment (TOKENRING_REPLAY_...); argv[0] is the name of the
 * subcommand.  Strings are borrowed from both.  0, or -EINVAL and a sentence. */
int tr_replay_opts_parse(struct tr_replay_opts *o, int argc, char **argv, struct tr_errbuf *err);

/* The whole of --help. */
void tr_replay_opts_help(FILE *out);

#endif
