/* SPDX-License-Identifier: Apache-2.0 */
/* tools/top/options.h - the flags of `tokenring top`. */
#ifndef TR_TOP_OPTIONS_H
#define TR_TOP_OPTIONS_H

#include "base/err.h"
#include "top/figure.h"

struct tr_top_options {
    const char *socket; /* NULL: looked for by port */
    unsigned port;
    double interval_s;
    unsigned slots; /* in plain text and JSON */
    enum tr_top_sort sort;
    bool once, json;
};

/* 0; 1 when --help was asked for; -EINVAL and a sentence. */
int tr_top_options_parse(struct tr_top_options *o, int argc, char **argv, struct tr_errbuf *err);

void tr_top_options_help(void);

#endif
