/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/progress.h"

#include "base/clock.h"

#include <math.h>
#include <unistd.h>

#define TTY_NS 250000000u
#define PLAIN_NS 5000000000u

void tr_progress_init(struct tr_progress *p, FILE *to, bool quiet)
{
    *p = (struct tr_progress){.to = quiet ? NULL : to};
    p->tty = p->to && isatty(fileno(to));
    p->next_ns = tr_now_ns() + (p->tty ? TTY_NS : PLAIN_NS);
}

bool tr_progress_due(const struct tr_progress *p, uint64_t now_ns)
{
    return p->to && now_ns >= p->next_ns;
}

void tr_progress_show(struct tr_progress *p, const struct tr_progress_at *at, uint64_t now_ns)
{
    p->next_ns = now_ns + (p->tty ? TTY_NS : PLAIN_NS);
    fprintf(p->to, "%s%s %.0f s: %zu of %zu sent, %u open, %u streaming, %zu ended",
            p->tty ? "\r\033[K" : "", at->tag, at->t_s, at->sent, at->total, at->open,
            at->streaming, at->done);
    if (at->bad)
        fprintf(p->to, ", %zu badly", at->bad);
    if (!isnan(at->running))
        fprintf(p->to, "; server: %.0f running, %.0f waiting", at->running,
                isnan(at->waiting) ? 0 : at->waiting);
    fputs(p->tty ? "" : "\n", p->to);
    fflush(p->to);
    p->shown = p->tty;
}

void tr_progress_clear(struct tr_progress *p)
{
    if (p->to && p->shown)
        fputs("\r\033[K", p->to);
    p->shown = false;
}
