/* SPDX-License-Identifier: Apache-2.0 */
#include "top/term.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int put(const char *s, size_t n)
{
    while (n) {
        ssize_t w = write(STDOUT_FILENO, s, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return -errno;
        s += w;
        n -= (size_t)w;
    }
    return 0;
}

int tr_top_term_enter(struct tr_top_term *t)
{
    if (tcgetattr(STDIN_FILENO, &t->before) < 0)
        return -errno;
    struct termios keys = t->before;
    keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO); /* Ctrl-C stays a signal */
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &keys) < 0)
        return -errno;
    t->on = true;
    static const char enter[] = "\033[?1049h\033[?25l\033[2J"; /* other screen, no cursor */
    return put(enter, sizeof(enter) - 1);
}

void tr_top_term_leave(struct tr_top_term *t)
{
    static const char leave[] = "\033[0m\033[?25h\033[?1049l";
    if (!t->on)
        return;
    t->on = false;
    (void)put(leave, sizeof(leave) - 1);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &t->before);
}

void tr_top_term_size(unsigned *rows, unsigned *cols)
{
    struct winsize w = {0};
    (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &w);
    *rows = w.ws_row ? w.ws_row : 24;
    *cols = w.ws_col ? w.ws_col : 80;
}

int tr_top_term_draw(const struct tr_top_text *text)
{
    static char buf[TR_TOP_LINES * (TR_TOP_COLUMNS + 16) + 16];
    char *p = stpcpy(buf, "\033[H");
    for (unsigned i = 0; i < text->n; i++) {
        /* The rest of the line is wiped before it is written: at the last column, after it, the
         * terminal would wipe the last character. */
        p = stpcpy(p, i ? "\r\n\033[K" : "\033[K");
        p = stpcpy(p, text->line[i].head ? "\033[7m" : "");
        p = stpcpy(p, text->line[i].s);
        p = stpcpy(p, text->line[i].head ? "\033[0m" : "");
    }
    if (text->n == 0)
        p = stpcpy(p, "\033[2J");
    int ret = put(buf, (size_t)(p - buf));
    unsigned rows, cols;
    tr_top_term_size(&rows, &cols);
    /* Below the last line, only if there is a below. */
    if (!ret && text->n && text->n < rows)
        ret = put("\r\n\033[J", 5);
    return ret;
}
