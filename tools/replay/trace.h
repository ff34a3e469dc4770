/* SPDX-License-Identifier: Apache-2.0 */
/* replay/trace.h - what is to be sent, when, and how its reader behaves.
 *
 * A trace is JSON lines, one request each; the fields are in docs/replay.md and in --help.  It is
 * input: the first line that is wrong is named with its number and what was expected.  Fields that
 * are not known are ignored and noted. */
#ifndef TR_REPLAY_TRACE_H
#define TR_REPLAY_TRACE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TR_TRACE_ENTRIES_MAX 1000000
#define TR_TRACE_CLASSES_MAX 32
#define TR_TRACE_CLASS_NAME 32
#define TR_TRACE_UNKNOWN_MAX 8
#define TR_TRACE_NEVER (-1.0)

struct tr_trace_entry {
    double at_s;            /* arrival, seconds from the start of the trace */
    char *prompt;           /* text; NULL: prompt_tokens of them */
    uint64_t prompt_tokens; /* 0 with a text */
    uint64_t chat;          /* whose made-up tokens its prompt begins with; 0: nobody else's */
    uint64_t max_tokens;
    double abandon_s;             /* the client leaves so long after its arrival, or NEVER */
    double abandon_after_first_s; /* the same, after the first content it read */
    double read_bps;              /* counts when paced; 0: reads nothing */
    bool paced;
    bool stream;
    unsigned class_id;
    size_t line; /* of the file, from 1 */
};

/* All zero is an empty trace. */
struct tr_trace {
    struct tr_trace_entry *e; /* [n], by arrival */
    size_t n, cap;
    char classes[TR_TRACE_CLASSES_MAX][TR_TRACE_CLASS_NAME];
    unsigned n_classes;
    /* Fields that were ignored. */
    char unknown[TR_TRACE_UNKNOWN_MAX][TR_TRACE_CLASS_NAME];
    unsigned n_unknown;
    uint64_t unknown_lines;
};

/* The number of a class, made when it is new.  -ENOSPC when there are too many. */
int tr_trace_class(struct tr_trace *t, const char *name);

/* Takes e->prompt also on failure.  0, -ENOSPC, -ENOMEM. */
int tr_trace_add(struct tr_trace *t, const struct tr_trace_entry *e);

/* Stable, by arrival. */
void tr_trace_sort(struct tr_trace *t);

/* Parses and sorts; `name` stands in the sentences.  0, -EINVAL or -ENOMEM and a sentence.
 * tr_trace_fini in any case. */
int tr_trace_parse(struct tr_trace *t, const char *name, const char *bytes, size_t len,
                   struct tr_errbuf *err);

/* The same from a file; "-" is standard input. */
int tr_trace_load(struct tr_trace *t, const char *path, struct tr_errbuf *err);

/* As JSON lines that tr_trace_parse reads back. */
void tr_trace_print(const struct tr_trace *t, FILE *out);

/* Keeps the first n requests. */
void tr_trace_limit(struct tr_trace *t, size_t n);

void tr_trace_fini(struct tr_trace *t);

#endif
