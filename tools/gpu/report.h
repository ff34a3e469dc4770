/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gpu/report.h - what a stage of tools/gpu_check has found, told as soon as it is known.
 *
 * A stage opens tables and adds rows.  Each row goes at once to standard output and, if there is a folder
 * for results, to results.md there (tables as people read them) and to results.jsonl (an object for each row:
 * stage, table, and a value for each column), so that what was found stays when the run is cut short. */
#ifndef TR_TOOLS_GPU_REPORT_H
#define TR_TOOLS_GPU_REPORT_H

#include <stdbool.h>
#include <stdint.h>

enum { TR_REPORT_COLUMNS = 12 };

#ifdef __cplusplus
extern "C" {
#endif

/* Once.  `dir` NULL: standard output alone.  The stage may take `seconds` from now. */
void tr_report_open(const char *dir, const char *stage, double seconds);

/* A table with n columns; its head is written with its first row.  The table that was begun last may be begun
 * again: its rows go on. */
void tr_report_table(const char *name, uint32_t n, const char *const *columns);

/* Cells are collected, the last one ends the row.  What is not known has a cell too. */
void tr_report_text(const char *cell);
void tr_report_number(double v, int digits); /* behind the point */
void tr_report_nothing(void);

/* A sentence between tables. */
__attribute__((format(printf, 1, 2))) void tr_report_say(const char *format, ...);

/* Whether there is time for something that takes about so many seconds; says once if there is not, and that
 * the stage ends early. */
bool tr_report_has_time(double seconds);

#ifdef __cplusplus
}
#endif

#endif
