/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/options.h - the flags of `tokenring serve`, from one table (options.def). */
#ifndef TR_SUPERVISOR_OPTIONS_H
#define TR_SUPERVISOR_OPTIONS_H

#include "base/err.h"

#include <stdint.h>

/* The kinds as C types: strings are borrowed from argv, the environment or the table. */
#define TR_OPT_TEXT const char *
#define TR_OPT_COUNT uint64_t
#define TR_OPT_SIZE uint64_t
#define TR_OPT_SECONDS uint64_t
#define TR_OPT_MILLIS uint64_t
#define TR_OPT_CHOICE unsigned
#define TR_OPT_SWITCH unsigned

struct tr_options {
#define O(field, kind, name, def, arg, min, max, help) TR_OPT_##kind field;
#include "supervisor/options.def"
#undef O
};

/* Defaults, then the environment, then argv[1..]; the last word wins.  0; -EINVAL and a sentence; or
 * 1 when --help was asked for.  `--flag value` and `--flag=value` are the same;
 * a switch alone is on. */
int tr_options_parse(struct tr_options *o, int argc, char **argv, struct tr_errbuf *err);

/* The page of --help, to stdout. */
void tr_options_help(void);

#endif
