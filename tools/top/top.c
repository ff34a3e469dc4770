/* SPDX-License-Identifier: Apache-2.0 */
#include "top/top.h"

#include "base/clock.h"
#include "top/options.h"
#include "top/render.h"
#include "top/term.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* The first screen comes early, over a short interval. */
enum { FIRST_MS = 250, GONE_EVERY_MS = 200 };

struct top {
    struct tr_top_options opt;
    struct tr_top_view view;
    struct tr_top_snap *then, *now;
    struct tr_top_figures figures;
    struct tr_top_term term;
    struct tr_top_text text;
    int signals;
};

/* ---- looking ---- */

static void look(struct top *t)
{
    struct tr_top_snap *old = t->then;
    t->then = t->now;
    t->now = old;
    tr_top_snap_take(t->now, &t->view, tr_now_ns());
}

static void figure(struct top *t)
{
    tr_top_figure(&t->figures, &t->view.hello, t->then, t->now, t->opt.sort);
}

static int open_snaps(struct top *t, struct tr_errbuf *err)
{
    const struct tr_shm_config *c = &t->view.hello.config;
    t->then = tr_top_snap_new(c);
    t->now = tr_top_snap_new(c);
    t->figures.live = calloc(c->n_slots, sizeof(*t->figures.live));
    if (!t->then || !t->now || !t->figures.live)
        return tr_errf(err, -ENOMEM, "no memory for %u slots", c->n_slots);
    return 0;
}

static int gone(const struct top *t)
{
    fprintf(stderr, "tokenring top: the service (pid %u) has ended\n", t->view.hello.pid);
    return 1;
}

/* ---- for scripts ---- */

/* False when the service ended meanwhile. */
static bool wait_for_it(const struct top *t)
{
    uint64_t end = tr_now_ns() + (uint64_t)(t->opt.interval_s * 1e9);
    for (uint64_t now; (now = tr_now_ns()) < end;) {
        uint64_t ms = (end - now + 999999) / 1000000;
        if (tr_top_is_gone(&t->view))
            return false;
        poll(NULL, 0, ms < GONE_EVERY_MS ? (int)ms : GONE_EVERY_MS);
    }
    return !tr_top_is_gone(&t->view);
}

static void print_text(struct top *t)
{
    tr_top_render_all(&t->text, &t->figures, t->then, t->opt.slots);
    for (unsigned i = 0; i < t->text.n; i++)
        printf("%s%s\n", t->text.line[i].head ? "\n" : "", t->text.line[i].s);
}

static int run_plain(struct top *t)
{
    look(t);
    do {
        if (!wait_for_it(t))
            return gone(t);
        look(t);
        figure(t);
        if (t->opt.json)
            tr_top_render_json(stdout, &t->figures, t->then, t->opt.slots);
        else
            print_text(t);
        if (fflush(stdout) != 0)
            return 1;
    } while (!t->opt.once);
    return 0;
}

/* ---- live ---- */

static int draw(struct top *t)
{
    unsigned rows, cols;
    tr_top_term_size(&rows, &cols);
    tr_top_render(&t->text, &t->figures, t->then, rows, cols);
    return tr_top_term_draw(&t->text);
}

static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    sigaddset(&set, SIGTSTP);
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* True when it is time to end. */
static bool take_signals(struct top *t)
{
    struct signalfd_siginfo si;
    while (read(t->signals, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
        if (si.ssi_signo == SIGTSTP) { /* Ctrl-Z: the shell gets its terminal as it was */
            tr_top_term_leave(&t->term);
            raise(SIGSTOP);
            if (tr_top_term_enter(&t->term))
                return true;
        } else if (si.ssi_signo != SIGWINCH) {
            return true;
        }
    }
    return false;
}

static bool take_keys(struct top *t)
{
    char keys[32];
    ssize_t n = read(STDIN_FILENO, keys, sizeof(keys));
    for (ssize_t i = 0; i < n; i++) {
        if (keys[i] == 'w')
            t->opt.sort = TR_TOP_BY_FILL;
        else if (keys[i] == 't')
            t->opt.sort = TR_TOP_BY_RATE;
        else if (keys[i] == 'a')
            t->opt.sort = TR_TOP_BY_AGE;
        else if (keys[i] == 'q' || keys[i] == 'Q')
            return true;
    }
    return n <= 0; /* the terminal is gone */
}

static int run_live(struct top *t)
{
    struct pollfd p[3] = {{.fd = STDIN_FILENO, .events = POLLIN},
                          {.fd = t->signals, .events = POLLIN},
                          {.fd = t->view.pidfd, .events = POLLIN}};
    uint64_t due = tr_now_ns() + FIRST_MS * 1000000ull;
    look(t);
    tr_top_snap_take(t->then, &t->view, t->now->now_ns); /* until the second look: no rates */
    for (;;) {
        uint64_t now = tr_now_ns();
        poll(p, 3, now < due ? (int)((due - now + 999999) / 1000000) : 0);
        if ((p[1].revents && take_signals(t)) || (p[0].revents && take_keys(t)))
            return 0;
        if (tr_top_is_gone(&t->view))
            return -1;
        if (tr_now_ns() >= due) {
            look(t);
            due = t->now->now_ns + (uint64_t)(t->opt.interval_s * 1e9);
        }
        figure(t);
        if (draw(t))
            return 1;
    }
}

static int live(struct top *t)
{
    t->signals = open_signals();
    int status = t->signals < 0 || tr_top_term_enter(&t->term) ? 1 : run_live(t);
    tr_top_term_leave(&t->term);
    return status < 0 ? gone(t) : status;
}

/* ---- main ---- */

int tr_top_main(int argc, char **argv)
{
    static struct top t;
    struct tr_errbuf err = {""};
    int ret = tr_top_options_parse(&t.opt, argc, argv, &err);
    if (ret > 0) {
        tr_top_options_help();
        return 0;
    }
    bool plain = t.opt.once || t.opt.json;
    if (!ret && !plain && !(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)))
        ret = tr_errf(&err, -EINVAL, "this is no terminal: --once or --json are for scripts");
    if (ret) {
        fprintf(stderr, "tokenring top: %s\n", err.msg);
        return 2;
    }
    if (tr_top_attach(&t.view, t.opt.socket, t.opt.port, &err) || open_snaps(&t, &err)) {
        fprintf(stderr, "tokenring top: %s\n", err.msg);
        return 1;
    }
    int status = plain ? run_plain(&t) : live(&t);
    tr_top_detach(&t.view);
    free(t.then);
    free(t.now);
    free(t.figures.live);
    return status;
}
