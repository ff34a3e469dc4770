/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ledger/options.h - the command line of `tokenring ledger`. */
#ifndef TR_LEDGER_TOOL_OPTIONS_H
#define TR_LEDGER_TOOL_OPTIONS_H

#include "base/err.h"
#include "ledger/sink.h"

#include <stdbool.h>

enum tr_lt_action { TR_LT_VERIFY, TR_LT_SUM, TR_LT_EXPORT };
enum tr_lt_format { TR_LT_TABLE, TR_LT_JSONL, TR_LT_CSV };
enum tr_lt_by { TR_LT_KEY, TR_LT_MODEL, TR_LT_DAY, TR_LT_STATUS, TR_LT_BY_COUNT };

/* Text is borrowed from argv and the environment. */
struct tr_lt_options {
    enum tr_lt_action action;
    const char *ledger; /* address: a file, or postgresql:// */
    const char *spool;  /* "": where the service has it */
    enum tr_lt_format format;
    struct tr_sink_filter filter;
    enum tr_lt_by by[TR_LT_BY_COUNT]; /* [n_by], in this order, each once */
    unsigned n_by;
};

/* The words of enum tr_lt_by. */
extern const char *const tr_lt_by_word[TR_LT_BY_COUNT];

/* 0; 1 when --help was asked for; -EINVAL and a sentence. */
int tr_lt_options_parse(struct tr_lt_options *o, int argc, char **argv, struct tr_errbuf *err);

void tr_lt_options_help(void);

#endif
