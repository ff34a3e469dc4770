/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/report.h"

#include "base/clock.h"
#include "base/emit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELL_BYTES = 128 };

struct cell {
    char text[CELL_BYTES];
    bool number;
};

static struct {
    const char *stage, *table;
    const char *column[TR_REPORT_COLUMNS];
    struct cell cell[TR_REPORT_COLUMNS];
    uint32_t n_columns, n_cells;
    bool has_head, is_late;
    uint64_t end_ns;
    FILE *md, *jsonl;
} r;

static FILE *open_file(const char *dir, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "ae");
    if (!f) {
        fprintf(stderr, "%s: cannot be written\n", path);
        exit(1);
    }
    return f;
}

void tr_report_open(const char *dir, const char *stage, double seconds)
{
    r.stage = stage;
    r.end_ns = tr_now_ns() + (uint64_t)(seconds * 1e9);
    if (!dir)
        return;
    r.md = open_file(dir, "results.md");
    r.jsonl = open_file(dir, "results.jsonl");
}

void tr_report_table(const char *name, uint32_t n, const char *const *columns)
{
    if (r.table && strcmp(r.table, name) == 0 && r.n_cells == 0)
        return; /* its rows go on */
    r.table = name;
    r.n_columns = n;
    r.n_cells = 0;
    r.has_head = false;
    memcpy(r.column, columns, n * sizeof(*columns));
}

/* ---- writing ---- */

static void write_cells(FILE *f)
{
    if (!f)
        return;
    if (!r.has_head) {
        fprintf(f, "\n**%s**\n\n|", r.table);
        for (uint32_t i = 0; i < r.n_columns; i++)
            fprintf(f, " %s |", r.column[i]);
        fprintf(f, "\n|");
        for (uint32_t i = 0; i < r.n_columns; i++)
            fprintf(f, "---|");
        fprintf(f, "\n");
    }
    fprintf(f, "|");
    for (uint32_t i = 0; i < r.n_columns; i++)
        fprintf(f, " %s |", r.cell[i].text);
    fprintf(f, "\n");
    fflush(f);
}

static void write_json(void)
{
    struct tr_emit e;
    if (!r.jsonl)
        return;
    tr_emit_init(&e);
    tr_emit_obj(&e);
    tr_emit_kstr(&e, "stage", r.stage);
    tr_emit_kstr(&e, "table", r.table);
    for (uint32_t i = 0; i < r.n_columns; i++) {
        const struct cell *c = &r.cell[i];
        tr_emit_key(&e, r.column[i]);
        if (c->number)
            tr_emit_raw(&e, c->text, strlen(c->text));
        else
            tr_emit_str(&e, c->text[0] ? c->text : NULL);
    }
    tr_emit_obj_end(&e);
    if (!e.failed)
        fprintf(r.jsonl, "%.*s\n", (int)e.len, e.buf);
    fflush(r.jsonl);
    tr_emit_fini(&e);
}

static void next_cell(void)
{
    if (++r.n_cells < r.n_columns)
        return;
    write_cells(stdout);
    write_cells(r.md);
    write_json();
    r.has_head = true;
    r.n_cells = 0;
}

void tr_report_text(const char *cell)
{
    struct cell *c = &r.cell[r.n_cells];
    c->number = false;
    snprintf(c->text, sizeof(c->text), "%s", cell);
    next_cell();
}

void tr_report_number(double v, int digits)
{
    struct cell *c = &r.cell[r.n_cells];
    c->number = true;
    snprintf(c->text, sizeof(c->text), "%.*f", digits, v);
    next_cell();
}

void tr_report_nothing(void)
{
    tr_report_text("");
}

void tr_report_say(const char *format, ...)
{
    char text[512];
    va_list a;
    va_start(a, format);
    vsnprintf(text, sizeof(text), format, a);
    va_end(a);
    printf("%s\n", text);
    fflush(stdout);
    if (!r.md)
        return;
    fprintf(r.md, "\n%s\n", text);
    fflush(r.md);
}

bool tr_report_has_time(double seconds)
{
    if (tr_now_ns() + (uint64_t)(seconds * 1e9) < r.end_ns)
        return true;
    if (!r.is_late)
        tr_report_say("(%s: its time is over, what would follow is left out)", r.stage);
    r.is_late = true;
    return false;
}
