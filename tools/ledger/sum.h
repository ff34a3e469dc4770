/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ledger/sum.h - requests and tokens added up, by key, model, day, status or all together. */
#ifndef TR_LEDGER_TOOL_SUM_H
#define TR_LEDGER_TOOL_SUM_H

#include "ledger_tool/options.h"

#include <stdint.h>
#include <stdio.h>

struct tr_lt_sums {
    const struct tr_lt_options *opt; /* borrowed: by[], n_by, format */
    void *tree;                      /* of groups, by their words */
    uint64_t total[6];
    unsigned width[TR_LT_BY_COUNT + 6]; /* of the table's columns */
};

/* `s` zeroed but for opt.  0 or -ENOMEM. */
int tr_lt_sum_add(struct tr_lt_sums *s, const struct tr_row *r);

/* In the order of the words; the table ends with a line of all, if there is more than one. */
void tr_lt_sum_print(struct tr_lt_sums *s, FILE *to);

void tr_lt_sum_fini(struct tr_lt_sums *s);

#endif
