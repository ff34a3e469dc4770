/* SPDX-License-Identifier: Apache-2.0 */
/* tools/top/render.h - figures as lines of ASCII, fitted to a screen, or as JSON. */
#ifndef TR_TOP_RENDER_H
#define TR_TOP_RENDER_H

#include "top/figure.h"

#include <stdio.h>

enum { TR_TOP_LINES = 512, TR_TOP_COLUMNS = 240 };

struct tr_top_text {
    unsigned n;
    struct {
        bool head; /* a table begins */
        char s[TR_TOP_COLUMNS + 1];
    } line[TR_TOP_LINES];
};

/* At most `rows` lines of at most `cols` characters.  What does not fit goes in this order: slots
 * but a few, processes, latencies, the rest of the slots, the last lines of the summary.
 * `then` is the former look, for the rates of single processes. */
void tr_top_render(struct tr_top_text *t, const struct tr_top_figures *f,
                   const struct tr_top_snap *then, unsigned rows, unsigned cols);

/* Everything, with the first `slots` of the slots. */
void tr_top_render_all(struct tr_top_text *t, const struct tr_top_figures *f,
                       const struct tr_top_snap *then, unsigned slots);

/* One object on one line. */
void tr_top_render_json(FILE *to, const struct tr_top_figures *f, const struct tr_top_snap *then,
                        unsigned slots);

#endif
