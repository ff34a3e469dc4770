/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ledger/columns.h - rows as JSON lines or CSV (RFC 4180, with a header line).
 *
 * A row is a sequence of calls, one for each column, always the same ones: the header is made of them. */
#ifndef TR_LEDGER_TOOL_COLUMNS_H
#define TR_LEDGER_TOOL_COLUMNS_H

#include "ledger/row.h"
#include "ledger_tool/options.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct tr_columns {
    FILE *to;
    enum tr_lt_format format; /* TR_LT_JSONL or TR_LT_CSV */
    bool head;                /* this is the header: names instead of values */
    bool any;                 /* the row has begun */
};

void tr_columns_text(struct tr_columns *c, const char *name, const char *value);
void tr_columns_number(struct tr_columns *c, const char *name, int64_t value);
/* Seconds with fraction; 0 is null. */
void tr_columns_time(struct tr_columns *c, const char *name, int64_t us);
void tr_columns_null(struct tr_columns *c, const char *name);
void tr_columns_end(struct tr_columns *c);

/* A row of `export`. */
void tr_columns_row(struct tr_columns *c, const struct tr_row_whole *r);

#endif
