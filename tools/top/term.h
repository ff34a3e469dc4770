/* SPDX-License-Identifier: Apache-2.0 */
/* tools/top/term.h - the terminal: keys one by one, a screen of its own, both given back.
 *
 * ANSI sequences that every terminal of the last decades knows; no terminal database. */
#ifndef TR_TOP_TERM_H
#define TR_TOP_TERM_H

#include "top/render.h"

#include <termios.h>

struct tr_top_term {
    struct termios before;
    bool on;
};

/* Keys from stdin, lines to stdout, both terminals: 0, or -errno. */
int tr_top_term_enter(struct tr_top_term *t);
/* As it was; a second time does nothing. */
void tr_top_term_leave(struct tr_top_term *t);

/* At least 1 x 1; 24 x 80 where the terminal does not say. */
void tr_top_term_size(unsigned *rows, unsigned *cols);

/* One write of the whole screen.  -errno when the terminal is gone. */
int tr_top_term_draw(const struct tr_top_text *text);

#endif
