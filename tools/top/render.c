/* SPDX-License-Identifier: Apache-2.0 */
#include "top/render.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { BAR = 30, SLOT_BAR = 8, FEW = 3, MANY = 12 };

/* ---- lines ---- */

static void add(struct tr_top_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void line(struct tr_top_text *t, bool head);

/* Goes on in the line that was begun last. */
static void add(struct tr_top_text *t, const char *fmt, ...)
{
    char *s = t->line[t->n - 1].s;
    size_t used = strlen(s);
    va_list ap;
    va_start(ap, fmt);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it loses va_start when it inlines this */
    vsnprintf(s + used, sizeof(t->line[0].s) - used, fmt, ap);
    va_end(ap);
}

static void line(struct tr_top_text *t, bool head)
{
    if (t->n < TR_TOP_LINES)
        t->n++;
    t->line[t->n - 1].head = head;
    t->line[t->n - 1].s[0] = 0;
}

/* ---- values ---- */

struct word {
    char s[24];
};

/* 3 s, 4 min, 5 h 06, 7 d 08 h: within 9 characters for any number of seconds below a century. */
static struct word duration(double s)
{
    struct word w;
    if (s < 10)
        snprintf(w.s, sizeof(w.s), "%.2f s", s);
    else if (s < 120)
        snprintf(w.s, sizeof(w.s), "%.0f s", s);
    else if (s < 7200)
        snprintf(w.s, sizeof(w.s), "%.0f min", floor(s / 60));
    else if (s < 172800)
        snprintf(w.s, sizeof(w.s), "%.0f h %02.0f", floor(s / 3600), floor(fmod(s, 3600) / 60));
    else
        snprintf(w.s, sizeof(w.s), "%.0f d", floor(s / 86400));
    return w;
}

/* A latency: what the buckets cannot tell apart is not printed. */
static struct word latency(double s)
{
    struct word w = {"-"};
    if (isnan(s))
        return w;
    if (s < 0.001)
        snprintf(w.s, sizeof(w.s), "%.0f us", s * 1e6);
    else if (s < 0.1)
        snprintf(w.s, sizeof(w.s), "%.1f ms", s * 1e3);
    else if (s < 1)
        snprintf(w.s, sizeof(w.s), "%.0f ms", s * 1e3);
    else
        snprintf(w.s, sizeof(w.s), "%.1f s", s);
    return w;
}

static struct word bytes(uint64_t n)
{
    static const char units[] = {'K', 'M', 'G', 'T', 'P', 'E'};
    struct word w;
    double v = (double)n;
    int u = -1;
    for (; v >= 1000 && u < 5; u++)
        v /= 1024;
    if (u < 0)
        snprintf(w.s, sizeof(w.s), "%llu", (unsigned long long)n);
    else
        snprintf(w.s, sizeof(w.s), v < 10 ? "%.1f%c" : "%.0f%c", v, units[u]);
    return w;
}

/* Counts of anything: 6 characters. */
static struct word count(uint64_t n)
{
    struct word w;
    if (n < 1000000)
        snprintf(w.s, sizeof(w.s), "%llu", (unsigned long long)n);
    else if (n < 100000000)
        snprintf(w.s, sizeof(w.s), "%.1fM", (double)n / 1e6);
    else
        snprintf(w.s, sizeof(w.s), "%.3g", (double)n);
    return w;
}

static void bar(struct tr_top_text *t, double part, int width, char mark)
{
    int n = part > 0 ? (int)(part * width + 0.5) : 0;
    n = part > 0 && n == 0 ? 1 : n;
    n = n > width ? width : n;
    add(t, "%.*s", n,
        mark == '#' ? "##############################" : "==============================");
}

/* ---- summary ---- */

static void service(struct tr_top_text *t, const struct tr_top_figures *f)
{
    const struct tr_observe *h = f->hello;
    double up =
        f->snap->now_ns > h->started_ns ? (double)(f->snap->now_ns - h->started_ns) * 1e-9 : 0;
    line(t, false);
    add(t, "tokenring %s  %s  %s (%s)  port %u  pid %u  up %s", h->version, tr_top_phase(f->snap),
        h->model, h->backend, h->port, h->pid, duration(up).s);
}

static void tokens(struct tr_top_text *t, const struct tr_top_figures *f)
{
    line(t, false);
    add(t, "tokens    %.1f/s  through the model %.1f/s  steps %.1f/s  engine busy %.0f %%",
        f->rate[TR_STAT_PUBLISHED], f->rate[TR_STAT_ROWS], f->step_s, f->busy * 100);
}

static void requests(struct tr_top_text *t, const struct tr_top_figures *f)
{
    const uint32_t *n = f->by_state;
    line(t, false);
    add(t,
        "slots     queue %u  prefill %u  running %u  parked %u  ended %llu  open %llu  free %llu",
        n[TR_WAITING], n[TR_PREFILL], n[TR_RUNNING], n[TR_PARKED],
        (unsigned long long)f->total[TR_STAT_SLOTS_ENDED],
        (unsigned long long)f->total[TR_STAT_SLOTS_OPEN],
        (unsigned long long)f->total[TR_STAT_SLOTS_FREE]);
}

static void blocks(struct tr_top_text *t, const struct tr_top_figures *f)
{
    double used = (double)f->total[TR_STAT_KV_USED], cached = (double)f->total[TR_STAT_KV_CACHED];
    double all = used + cached + (double)f->total[TR_STAT_KV_FREE];
    line(t, false);
    add(t, "kv        [");
    size_t from = strlen(t->line[t->n - 1].s);
    bar(t, all > 0 ? used / all : 0, BAR, '#');
    bar(t, all > 0 ? cached / all : 0, BAR, '=');
    size_t marks = strlen(t->line[t->n - 1].s) - from;
    if (marks > BAR) /* both rounded up */
        t->line[t->n - 1].s[from + BAR] = 0;
    add(t, "%*s]  used %s", marks < BAR ? (int)(BAR - marks) : 0, "",
        count(f->total[TR_STAT_KV_USED]).s);
    add(t, "  cached %s  free %s", count(f->total[TR_STAT_KV_CACHED]).s,
        count(f->total[TR_STAT_KV_FREE]).s);
}

static void buffered(struct tr_top_text *t, const struct tr_top_figures *f)
{
    line(t, false);
    add(t, "buffered  ring %s", bytes(f->total[TR_STAT_BUFFERED_RING]).s);
    add(t, "  pending %s", bytes(f->total[TR_STAT_BUFFERED_PENDING]).s);
    add(t, "  kernel %s", bytes(f->total[TR_STAT_BUFFERED_KERNEL]).s);
    add(t, "  ledger behind %s", latency((double)f->total[TR_STAT_LEDGER_LAG_US] * 1e-6).s);
}

static void restarts(struct tr_top_text *t, const struct tr_top_figures *f)
{
    line(t, false);
    add(t, "restarts  engine %s", count(f->total[TR_STAT_RESTART_ENGINE]).s);
    add(t, "  ledger %s", count(f->total[TR_STAT_RESTART_LEDGER]).s);
    add(t, "  frontends %s", count(f->total[TR_STAT_RESTART_FRONTEND]).s);
}

static void clients(struct tr_top_text *t, const struct tr_top_figures *f)
{
    line(t, false);
    add(t, "clients   connections %s", count(f->total[TR_STAT_CONNECTIONS]).s);
    add(t, "  streams %s", count(f->total[TR_STAT_STREAMS]).s);
    add(t, "  held %s", count(f->total[TR_STAT_STREAMS_HELD]).s);
    add(t, "  requests %.1f/s", f->rate[TR_STAT_HTTP_REQUESTS]);
}

/* The rows of one metric that ever counted: rate, and total in brackets. */
static void rates_of(struct tr_top_text *t, const struct tr_top_figures *f, const char *title,
                     const char *metric)
{
    bool any = false;
    line(t, false);
    add(t, "%-9s", title);
    for (unsigned k = 0; k < TR_STAT_N; k++) {
        int n;
        const char *reason = tr_top_label((enum tr_stat_id)k, &n);
        if (strcmp(tr_stat_rows[k].metric, metric) != 0 || !f->total[k])
            continue;
        add(t, " %s%.*s %.1f (%s)", any ? " " : "", n, reason, f->rate[k], count(f->total[k]).s);
        any = true;
    }
    if (!any)
        add(t, " none");
}

static void summary(struct tr_top_text *t, const struct tr_top_figures *f)
{
    service(t, f);
    tokens(t, f);
    requests(t, f);
    blocks(t, f);
    buffered(t, f);
    clients(t, f);
    rates_of(t, f, "ended/s", "streams_ended_total");
    rates_of(t, f, "refused/s", "requests_refused_total");
    restarts(t, f);
}

/* ---- latencies ---- */

enum { LATENCY_LINES = 1 + TR_TOP_LATENCIES };

static void spread(struct tr_top_text *t, const struct tr_top_spread *s)
{
    add(t, "%8s", latency(s->p50).s);
    add(t, "%8s", latency(s->p90).s);
    add(t, "%8s", latency(s->p99).s);
    add(t, "%8s", count(s->n).s);
}

/* Left over the last interval, right since the service began. */
static void latencies(struct tr_top_text *t, const struct tr_top_figures *f)
{
    line(t, true);
    add(t, "%-14s%8s%8s%8s%8s%8s%8s%8s%8s", "latency", "p50", "p90", "p99", "n last", "p50", "p90",
        "p99", "n all");
    for (unsigned k = 0; k < TR_TOP_LATENCIES; k++) {
        char name[16];
        snprintf(name, sizeof(name), "%s", tr_top_latency_names[k]);
        for (char *p = name; *p; p++)
            *p = *p == '_' ? ' ' : *p;
        line(t, false);
        add(t, "%-14s", name);
        spread(t, &f->last[k]);
        spread(t, &f->all[k]);
    }
}

/* ---- processes ---- */

static unsigned process_lines(const struct tr_top_snap *s)
{
    unsigned n = 1;
    for (uint32_t i = 0; i < s->n_stats; i++)
        n += tr_top_shown(s, i);
    return n;
}

static void process(struct tr_top_text *t, const struct tr_top_figures *f,
                    const struct tr_top_snap *then, uint32_t i)
{
    const struct tr_top_snap *s = f->snap;
    const struct tr_top_process *p = &s->process[i];
    bool alive = tr_top_lives(p), front = i >= TR_STAT_AREA0;
    char name[24];
    snprintf(name, sizeof(name), front ? "%s %u" : "%s", tr_top_role(i), p->number);
    line(t, false);
    add(t, "%-12s%8u %-9s", name, p->pid, tr_top_health(s, i));
    add(t, "%9s", alive ? duration((double)(s->now_ns - p->started_ns) * 1e-9).s : "-");
    add(t, "%9s",
        alive && p->heartbeat_ns ? latency((double)(s->now_ns - p->heartbeat_ns) * 1e-9).s : "-");
    if (front && alive) {
        add(t, "%7s", count(s->value[i][TR_STAT_CONNECTIONS]).s);
        add(t, "%8s", count(s->value[i][TR_STAT_STREAMS]).s);
        add(t, "%8.1f", tr_top_rate(then, s, i, TR_STAT_HTTP_REQUESTS));
    }
}

static void processes(struct tr_top_text *t, const struct tr_top_figures *f,
                      const struct tr_top_snap *then, unsigned room)
{
    unsigned left = process_lines(f->snap);
    line(t, true);
    add(t, "%-12s%8s %-9s%9s%9s%7s%8s%8s", "process", "pid", "state", "up", "beat", "conns",
        "streams", "req/s");
    left--;
    room--;
    for (uint32_t i = 0; i < f->snap->n_stats && room; i++) {
        if (!tr_top_shown(f->snap, i))
            continue;
        if (room == 1 && left > 1) {
            line(t, false);
            add(t, "... %u more", left);
            return;
        }
        process(t, f, then, i);
        room--;
        left--;
    }
}

/* ---- slots ---- */

static void slot(struct tr_top_text *t, const struct tr_top_figures *f, const struct tr_top_live *l)
{
    const struct tr_top_slot *s = &f->snap->slot[l->slot];
    char of[16], owner[12] = "-", window[SLOT_BAR + 8] = "-", lag[12] = "-";
    snprintf(of, sizeof(of), "%u/%u", s->published, s->max_tokens);
    if (s->area != TR_TOP_NOBODY)
        snprintf(owner, sizeof(owner), "%u", f->snap->process[TR_STAT_AREA0 + s->area].number);
    line(t, false);
    add(t, "%-8u%-11s%8s%8u%14s%8.1f ", l->slot, tr_top_state_name(s->state), duration(l->age_s).s,
        s->prompt_len, of, l->tokens_s);
    if (!tr_state_terminal(s->state)) {
        int n = (int)(l->fill * SLOT_BAR + 0.5);
        n = n > SLOT_BAR ? SLOT_BAR : n;
        snprintf(window, sizeof(window), "%.*s%*s%4.0f%%", n, "########", SLOT_BAR - n, "",
                 fmin(l->fill * 100, 999));
        snprintf(lag, sizeof(lag), "%u", l->lag);
    }
    add(t, "%*s%7s%4s", SLOT_BAR + 5, window, lag, owner);
}

static void slots(struct tr_top_text *t, const struct tr_top_figures *f, unsigned room)
{
    line(t, true);
    add(t, "%-8s%-11s%8s%8s%14s%8s %*s%7s%4s", "slot", "state", "age", "prompt", "tokens", "tok/s",
        SLOT_BAR + 5, "window", "lag", "fe");
    for (uint32_t i = 0; i < f->n_live && i + 1 < room; i++)
        slot(t, f, &f->live[i]);
}

/* ---- fitting ---- */

static void cut(struct tr_top_text *t, unsigned rows, unsigned cols)
{
    if (t->n > rows)
        t->n = rows;
    for (unsigned i = 0; cols < TR_TOP_COLUMNS && i < t->n; i++)
        t->line[i].s[cols] = 0;
}

void tr_top_render(struct tr_top_text *t, const struct tr_top_figures *f,
                   const struct tr_top_snap *then, unsigned rows, unsigned cols)
{
    t->n = 0;
    rows = rows < TR_TOP_LINES ? rows : TR_TOP_LINES;
    summary(t, f);
    unsigned few = 1 + (f->n_live < FEW ? f->n_live : FEW);
    if (rows >= t->n + few + LATENCY_LINES)
        latencies(t, f);
    if (rows >= t->n + few + 2) {
        unsigned room = rows - t->n - few, want = process_lines(f->snap);
        /* Of a tall screen very many processes leave the slots a third. */
        if (room >= MANY && want > room - room / 3 && f->n_live > FEW)
            room -= room / 3;
        if (room >= 2)
            processes(t, f, then, want < room ? want : room);
    }
    if (rows > t->n)
        slots(t, f, rows - t->n);
    cut(t, rows, cols);
}

void tr_top_render_all(struct tr_top_text *t, const struct tr_top_figures *f,
                       const struct tr_top_snap *then, unsigned n_slots)
{
    t->n = 0;
    summary(t, f);
    latencies(t, f);
    processes(t, f, then, TR_TOP_LINES);
    unsigned room = TR_TOP_LINES - t->n;
    slots(t, f, n_slots + 1 < room ? n_slots + 1 : room);
    if (f->n_live > n_slots && t->n < TR_TOP_LINES) {
        line(t, false);
        add(t, "... %u more", f->n_live - n_slots);
    }
}
