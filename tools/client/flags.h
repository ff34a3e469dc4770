/* SPDX-License-Identifier: Apache-2.0 */
/* client/flags.h - the command line of a subcommand, from one table: each row is a flag, its
 * environment twin (--max-tokens = PREFIX_MAX_TOKENS; a flag wins) and its line in --help. */
#ifndef TR_CLIENT_FLAGS_H
#define TR_CLIENT_FLAGS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TR_FLAGS_MAX 64

struct tr_flag {
    const char *name, *arg, *help; /* arg NULL: a switch */
};

/* Takes the value of row `id` (NULL for a switch).  0, or -EINVAL with a sentence or without. */
typedef int tr_flag_set_fn(void *ctx, int id, const char *v, struct tr_errbuf *err);

struct tr_flags {
    const struct tr_flag *rows; /* [n] */
    int n;                      /* at most TR_FLAGS_MAX; the last row is --help, also -h */
    const char *env_prefix;     /* "TOKENRING_PROBE_" */
    tr_flag_set_fn *set;
    void *ctx;
};

/* The environment, then argv; argv[0] is the name of the subcommand.  0, or -EINVAL and a
 * sentence. */
int tr_flags_parse(const struct tr_flags *f, int argc, char **argv, struct tr_errbuf *err);

/* The lines of --help. */
void tr_flags_help(const struct tr_flag *rows, int n, FILE *out);

/* 0, or -EINVAL and *out as it was. */
int tr_take_u64(const char *v, uint64_t min, uint64_t max, uint64_t *out);
int tr_take_double(const char *v, double min, double max, double *out);

/* Not empty; borrowed. */
int tr_take_text(const char **to, const char *v);

/* Sets a switch; always 0. */
int tr_take_switch(bool *to);

#endif
