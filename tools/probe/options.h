/* SPDX-License-Identifier: Apache-2.0 */
/* probe/options.h - what the command line of `tokenring probe` says.
 *
 * One table (options.c) holds every flag, its environment twin (--max-tokens =
 * TOKENRING_PROBE_MAX_TOKENS; a flag wins) and its line in --help. */
#ifndef TR_PROBE_OPTIONS_H
#define TR_PROBE_OPTIONS_H

#include "base/err.h"
#include "client/target.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TR_PROBE_PARALLEL_MAX 8192
#define TR_PROBE_REQUESTS_MAX 100000

enum tr_route { TR_ROUTE_CHAT, TR_ROUTE_COMPLETIONS };

struct tr_probe_opts {
    struct tr_target to;
    enum tr_route route;
    const char *model; /* NULL: the first of /v1/models */
    uint64_t parallel;
    uint64_t requests; /* in all; 0 becomes `parallel` */
    uint64_t max_tokens;
    const char *prompt;     /* borrowed from argv or from prompt_owned */
    char *prompt_owned;     /* of --prompt-file */
    uint64_t prompt_tokens; /* 0: no synthetic prompt */
    bool distinct;          /* another prompt for every request */
    double temperature;
    bool has_temperature;
    uint64_t seed;
    bool has_seed;
    uint64_t force_token;
    bool has_force_token;
    bool ignore_eos;
    uint64_t stagger_ms;
    uint64_t abort_after; /* content events; 0: never */
    double timeout_s;
    bool json;
    bool no_metrics;
    bool check_text;
    bool show_text;
    bool help;
};

/* Fills *o from argv and the environment; argv[0] is the name of the subcommand.  Strings are
 * borrowed from both.  0, or -EINVAL and a sentence; tr_probe_opts_fini in any case. */
int tr_probe_opts_parse(struct tr_probe_opts *o, int argc, char **argv, struct tr_errbuf *err);
void tr_probe_opts_fini(struct tr_probe_opts *o);

/* The whole of --help. */
void tr_probe_opts_help(FILE *out);

#endif
