/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define COLUMNS_MAX 6
#define BUCKETS 12

/* A column of a table: a class of request, in one of the runs. */
struct column {
    const char *title;
    const struct tr_class_tally *c;
};

/* ---- cells ---- */

static void cell_count(FILE *out, uint64_t v)
{
    if (v)
        fprintf(out, " %14" PRIu64, v);
    else
        fprintf(out, " %14s", "-");
}

static void cell_number(FILE *out, double v)
{
    if (isnan(v))
        fprintf(out, " %14s", "-");
    else
        fprintf(out, " %14.*f", fabs(v) < 1000 ? 2 : 0, v);
}

static void cell_ms(FILE *out, const struct tr_summary *s, double v)
{
    cell_number(out, s->n ? v : (double)NAN);
}

static bool any_fate(const struct column *col, int n, int fate)
{
    for (int i = 0; i < n; i++)
        if (col[i].c->fates[fate])
            return true;
    return false;
}

static void fate_rows(FILE *out, const struct column *col, int n)
{
    for (int f = 0; f < TR_FATES; f++) {
        if (f != TR_FATE_COMPLETE && !any_fate(col, n, f))
            continue;
        fprintf(out, "  %-22s", tr_fate_name((enum tr_fate)f));
        for (int i = 0; i < n; i++)
            cell_count(out, col[i].c->fates[f]);
        fputs("\n", out);
    }
}

/* The figures of a class that are counts. */
static const struct {
    const char *name;
    size_t at;
} counts[] = {
    {"  left before the head", offsetof(struct tr_class_tally, left_before_head)},
    {"  left before content", offsetof(struct tr_class_tally, left_before_content)},
    {"  left in the stream", offsetof(struct tr_class_tally, left_in_stream)},
    {"503 w/o Retry-After", offsetof(struct tr_class_tally, without_retry_after)},
    {"sent late", offsetof(struct tr_class_tally, late)},
    {"other prompt length", offsetof(struct tr_class_tally, prompts_off)},
    {"other answer length", offsetof(struct tr_class_tally, lengths_off)},
    {"unclean end", offsetof(struct tr_class_tally, late_cuts)},
};

static uint64_t count_of(const struct tr_class_tally *c, size_t k)
{
    uint64_t v;
    memcpy(&v, (const char *)c + counts[k].at, sizeof(v));
    return v;
}

static void count_rows(FILE *out, const struct column *col, int n)
{
    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        bool any = false;
        for (int i = 0; i < n; i++)
            any |= count_of(col[i].c, k) != 0;
        if (!any)
            continue;
        fprintf(out, "  %-22s", counts[k].name);
        for (int i = 0; i < n; i++)
            cell_count(out, count_of(col[i].c, k));
        fputs("\n", out);
    }
}

static void summary_rows(FILE *out, const struct column *col, int n, const char *name, size_t at,
                         bool with_max)
{
    static const struct {
        const char *name;
        size_t at;
    } of[] = {
        {"p50", offsetof(struct tr_summary, p50)},
        {"p90", offsetof(struct tr_summary, p90)},
        {"p99", offsetof(struct tr_summary, p99)},
        {"max", offsetof(struct tr_summary, max)},
    };
    for (int k = 0; k < (with_max ? 4 : 3); k++) {
        fprintf(out, "  %-10s %-11s", k ? "" : name, of[k].name);
        for (int i = 0; i < n; i++) {
            struct tr_summary s;
            double v;
            memcpy(&s, (const char *)col[i].c + at, sizeof(s));
            memcpy(&v, (const char *)&s + of[k].at, sizeof(v));
            cell_ms(out, &s, v);
        }
        fputs("\n", out);
    }
}

static void token_rows(FILE *out, const struct column *col, int n)
{
    fprintf(out, "  %-22s", "answer tokens told");
    for (int i = 0; i < n; i++)
        cell_count(out, (uint64_t)col[i].c->usage.completion);
    fprintf(out, "\n  %-22s", "tok/s told");
    for (int i = 0; i < n; i++)
        cell_number(out, col[i].c->tok_s);
    fprintf(out, "\n  %-22s", "tok/s of a stream, p50");
    for (int i = 0; i < n; i++)
        cell_ms(out, &col[i].c->rate, col[i].c->rate.p50);
    fputs("\n", out);
}

static void table(FILE *out, const char *title, const struct column *col, int n)
{
    fprintf(out, "\n%-24s", title);
    for (int i = 0; i < n; i++)
        fprintf(out, " %14.14s", col[i].title);
    fprintf(out, "\n  %-22s", "requests");
    for (int i = 0; i < n; i++)
        cell_count(out, col[i].c->n);
    fputs("\n", out);
    fate_rows(out, col, n);
    count_rows(out, col, n);
    summary_rows(out, col, n, "ttft ms", offsetof(struct tr_class_tally, ttft), true);
    summary_rows(out, col, n, " from send", offsetof(struct tr_class_tally, ttft_sent), false);
    summary_rows(out, col, n, "gap ms", offsetof(struct tr_class_tally, gap), true);
    summary_rows(out, col, n, "e2e ms", offsetof(struct tr_class_tally, e2e), false);
    token_rows(out, col, n);
}

/* ---- sections ---- */

static const char *run_title(const struct tr_replay_report *r, int i)
{
    return r->runs[i]->run->abandon ? "as the trace" : "nobody leaves";
}

static void class_tables(const struct tr_replay_report *r, FILE *out)
{
    struct column col[COLUMNS_MAX];
    unsigned n_classes = r->trace->n_classes;
    if (r->n_runs == 1) {
        const struct tr_tally *t = r->runs[0];
        col[0] = (struct column){"all", &t->all};
        int n = 1;
        for (unsigned k = 0; n_classes > 1 && k < n_classes; k++) {
            col[n++] = (struct column){t->classes[k].name, &t->classes[k]};
            if (n == COLUMNS_MAX) {
                table(out, "class", col, n);
                n = 0;
            }
        }
        if (n)
            table(out, "class", col, n);
        return;
    }
    for (unsigned k = 0; k <= n_classes; k++) {
        if (n_classes == 1 && k)
            break;
        for (int i = 0; i < 2; i++)
            col[i] = (struct column){run_title(r, i),
                                     k ? &r->runs[i]->classes[k - 1] : &r->runs[i]->all};
        table(out, col[0].c->name, col, 2);
    }
}

static void hist_row(const struct tr_replay_report *r, FILE *out, enum tr_server_hist h, double q,
                     const char *name)
{
    fprintf(out, "  %-10s %-11s", q == 0.5 ? tr_server_hist_name(h) : "", name);
    for (int i = 0; i < r->n_runs; i++) {
        const struct tr_server_hists *s = &r->runs[i]->server;
        bool known = s->of[h].metric && s->of[h].diff.count > 0;
        double mean = known ? s->of[h].diff.sum / s->of[h].diff.count : 0;
        double v = q > 0 && known ? tr_hist_quantile(&s->of[h].diff, q) : mean;
        cell_number(out, known ? v * 1e3 : (double)NAN);
    }
    fputs("\n", out);
}

static void server_rows(const struct tr_replay_report *r, FILE *out)
{
    static const enum tr_server_hist shown[] = {TR_SERVER_QUEUE, TR_SERVER_PREFILL, TR_SERVER_TTFT,
                                                TR_SERVER_INTER_TOKEN};
    for (size_t k = 0; k < sizeof(shown) / sizeof(shown[0]); k++) {
        hist_row(r, out, shown[k], 0.5, "ms p50");
        hist_row(r, out, shown[k], 0.99, "ms p99");
        hist_row(r, out, shown[k], 0, "ms mean");
    }
    for (int c = 0; c < TR_COUNTERS; c++) {
        fprintf(out, "  %-25.25s", tr_counter_name((enum tr_counter)c));
        for (int i = 0; i < r->n_runs; i++) {
            double v = r->runs[i]->counters[c];
            if (isnan(v))
                fprintf(out, " %*s", i ? 14 : 11, "-");
            else
                fprintf(out, " %*.0f", i ? 14 : 11, v);
        }
        fputs("\n", out);
    }
    fprintf(out, "  %-22s", "tok/s generated");
    for (int i = 0; i < r->n_runs; i++)
        cell_number(out, r->runs[i]->counters[TR_COUNTER_COMPLETION] / r->runs[i]->wall_s);
    fputs("\n", out);
}

/* Concurrency while requests arrive: the replay's own count, then the server's. */
static void level_rows(const struct tr_replay_report *r, FILE *out)
{
    for (int k = 0; k < TR_LEVELS; k++) {
        for (int what = 0; what < 2; what++) {
            fprintf(out, "  %-10s %-11s", what ? "" : tr_level_name(k), what ? "max" : "mean");
            for (int i = 0; i < r->n_runs; i++) {
                const struct tr_level *v = &r->runs[i]->levels[k];
                cell_number(out, !v->n ? (double)NAN : what ? v->max : v->mean);
            }
            fputs("\n", out);
        }
    }
}

static void run_titles(const struct tr_replay_report *r, FILE *out, const char *title)
{
    fprintf(out, "\n%-24s", title);
    for (int i = 0; i < r->n_runs; i++)
        fprintf(out, " %14s", run_title(r, i));
    fputs("\n", out);
}

static double mean_between(const struct tr_run *run, int level, double from_s, double to_s)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < run->n_ticks; i++) {
        double v = tr_level_of(&run->ticks[i], level);
        if (isnan(v) || run->ticks[i].t_s < from_s || run->ticks[i].t_s >= to_s)
            continue;
        sum += v;
        n++;
    }
    return n ? sum / (double)n : (double)NAN;
}

static void timeline(const struct tr_replay_report *r, FILE *out, int which)
{
    static const int shown[] = {
        TR_LEVEL_OPEN, TR_LEVEL_STREAMING, TR_LEVEL_GAUGES + TR_GAUGE_RUNNING,
        TR_LEVEL_GAUGES + TR_GAUGE_WAITING, TR_LEVEL_GAUGES + TR_GAUGE_PARKED};
    const struct tr_tally *t = r->runs[which];
    fprintf(out, "\n%-24s", r->n_runs == 1 ? "over time, from s" : run_title(r, which));
    for (size_t k = 0; k < sizeof(shown) / sizeof(shown[0]); k++)
        fprintf(out, " %14s", tr_level_name(shown[k]));
    fputs("\n", out);
    for (int b = 0; b < BUCKETS; b++) {
        double from = t->wall_s * b / BUCKETS, to = t->wall_s * (b + 1) / BUCKETS;
        fprintf(out, "  %-22.1f", from);
        for (size_t k = 0; k < sizeof(shown) / sizeof(shown[0]); k++)
            cell_number(out, mean_between(t->run, shown[k], from, to));
        fputs("\n", out);
    }
}

static void errors(const struct tr_tally *t, FILE *out)
{
    for (size_t i = 0; i < t->all.n_codes; i++)
        fprintf(out, "errors    %" PRIu64 " %s\n", t->all.codes[i].n, t->all.codes[i].name);
    /* A few reasons are enough for a person; --json has them all. */
    int shown = 0;
    for (size_t i = 0; i < t->run->trace->n && shown < 5; i++) {
        const struct tr_run_record *r = &t->run->records[i];
        if (r->fate < TR_FATE_ERROR || r->fate > TR_FATE_UNREACHABLE)
            continue;
        fprintf(out, "  line %zu %s: %s\n", t->run->trace->e[i].line, tr_fate_name(r->fate),
                r->rec.detail);
        shown++;
    }
}

static void head(const struct tr_replay_report *r, FILE *out)
{
    char model[128];
    tr_copy_clean(model, sizeof(model), r->model, strlen(r->model));
    fprintf(out, "replay    %s, model %s, trace %s: %zu requests over %.1f s, speed %g\n",
            r->opts->to.url_text, model, r->opts->trace, r->trace->n,
            r->trace->e[r->trace->n - 1].at_s / r->opts->speed, r->opts->speed);
    if (!r->exact_prompts)
        fputs("noted     the server has no /tokenize: prompt lengths are about right\n", out);
    if (r->trace->n_unknown) {
        fprintf(out, "noted     fields that were ignored, in %" PRIu64 " lines:",
                r->trace->unknown_lines);
        for (unsigned i = 0; i < r->trace->n_unknown; i++)
            fprintf(out, " %s", r->trace->unknown[i]);
        fputs("\n", out);
    }
    for (int i = 0; i < r->n_runs; i++) {
        const struct tr_run *run = r->runs[i]->run;
        fprintf(out, "run       %s: %.2f s, %" PRIu64 " sent late (at most %.1f ms)%s\n",
                run_title(r, i), r->runs[i]->wall_s, run->late, (double)run->late_max_ns / 1e6,
                run->interrupted ? ", interrupted" : "");
        if (run->delay_max_ns > 1000000)
            fprintf(out, "noted     bytes waited up to %.1f ms for the replay itself\n",
                    (double)run->delay_max_ns / 1e6);
        errors(r->runs[i], out);
        if (r->runs[i]->server.note)
            fprintf(out, "server    %s\n", r->runs[i]->server.note);
    }
}

void tr_replay_report_text(const struct tr_replay_report *r, FILE *out)
{
    head(r, out);
    class_tables(r, out);
    run_titles(r, out, "server");
    server_rows(r, out);
    run_titles(r, out, "concurrency");
    level_rows(r, out);
    for (int i = 0; i < r->n_runs; i++)
        timeline(r, out, i);
}
