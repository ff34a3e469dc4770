/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/report.h"

#include <inttypes.h>
#include <string.h>

static void count_finish(struct tr_report *r, const char *name)
{
    for (size_t i = 0; i < r->n_finish; i++) {
        if (!strcmp(r->finish[i].name, name)) {
            r->finish[i].n++;
            return;
        }
    }
    if (r->n_finish == TR_FINISH_NAMES) {
        r->finish[TR_FINISH_NAMES - 1].n++;
        return;
    }
    if (r->n_finish == TR_FINISH_NAMES - 1)
        name = "other";
    snprintf(r->finish[r->n_finish].name, sizeof(r->finish[0].name), "%s", name);
    r->finish[r->n_finish++].n = 1;
}

static void add_counts(struct tr_report *r, const struct tr_record *rec)
{
    r->outcomes[rec->outcome]++;
    r->late_cuts += rec->late_cut;
    if (rec->finish[0])
        count_finish(r, rec->finish);
    if (rec->has_usage) {
        r->usage_streams++;
        r->usage.prompt += rec->usage.prompt;
        r->usage.cached += rec->usage.cached;
        r->usage.completion += rec->usage.completion;
    }
    r->sums.events += rec->events;
    r->sums.content_events += rec->content_events;
    r->sums.comments += rec->comments;
    r->sums.foreign += rec->foreign;
    r->sums.empty += rec->empty;
    r->sums.undecodable += rec->undecodable;
    r->sums.after_done += rec->after_done;
}

static void add_since_start(struct tr_samples *s, const struct tr_record *rec, uint64_t at_ns)
{
    if (at_ns)
        tr_samples_add(s, (double)(at_ns - rec->start_ns) / 1e6);
}

static struct tr_summary close_bag(struct tr_samples *s)
{
    struct tr_summary sum = tr_samples_summary(s);
    tr_samples_fini(s);
    return sum;
}

static void add_times(struct tr_report *r, const struct tr_load *load)
{
    struct tr_samples connect = {0}, headers = {0}, ttft = {0}, e2e = {0}, rate = {0};
    for (size_t i = 0; i < load->n; i++) {
        const struct tr_record *rec = &load->records[i];
        add_since_start(&connect, rec, rec->connect_ns);
        add_since_start(&headers, rec, rec->head_ns);
        add_since_start(&ttft, rec, rec->first_ns);
        if (rec->outcome != TR_OUT_COMPLETE)
            continue;
        add_since_start(&e2e, rec, rec->end_ns);
        /* The first token's time is the prompt's; the rate is over the ones after it. */
        if (rec->has_usage && rec->usage.completion > 1 && rec->last_ns > rec->first_ns)
            tr_samples_add(&rate, (double)(rec->usage.completion - 1) * 1e9 /
                                      (double)(rec->last_ns - rec->first_ns));
    }
    r->connect = close_bag(&connect);
    r->headers = close_bag(&headers);
    r->ttft = close_bag(&ttft);
    r->e2e = close_bag(&e2e);
    r->rate = close_bag(&rate);
}

/* Against the first complete stream: with one prompt all must have said the same. */
static void check_text(struct tr_report *r, const struct tr_load *load)
{
    const struct tr_record *first = NULL;
    for (size_t i = 0; i < load->n; i++) {
        const struct tr_record *rec = &load->records[i];
        if (rec->outcome != TR_OUT_COMPLETE)
            continue;
        r->text_checked++;
        if (!first)
            first = rec;
        if (rec->text_len == first->text_len && rec->text_hash == first->text_hash)
            continue;
        if (!r->text_mismatches++)
            r->first_mismatch = i;
    }
}

void tr_report_make(struct tr_report *r, const struct tr_probe_opts *o, struct tr_load *load,
                    const char *model)
{
    memset(r, 0, sizeof(*r));
    r->opts = o;
    r->load = load;
    r->model = model;
    r->wall_s = (double)(load->end_ns - load->start_ns) / 1e9;
    r->server.note = "/metrics was not asked for";
    for (size_t i = 0; i < load->n; i++)
        add_counts(r, &load->records[i]);
    add_times(r, load);
    r->gaps_zero = load->gaps.zeros;
    r->gap = tr_samples_summary(&load->gaps);
    if (r->wall_s > 0)
        r->tok_s = (double)r->usage.completion / r->wall_s;
    if (o->check_text)
        check_text(r, load);
}

int tr_report_exit(const struct tr_report *r)
{
    uint64_t good = r->outcomes[TR_OUT_COMPLETE] + r->outcomes[TR_OUT_ABORTED];
    if (r->outcomes[TR_OUT_REFUSED] == r->load->n)
        return 3;
    return good != r->load->n || r->text_mismatches;
}

static void text_row(FILE *out, const char *name, const struct tr_summary *s)
{
    if (!s->n) {
        fprintf(out, "  %-12s %10s\n", name, "-");
        return;
    }
    fprintf(out, "  %-12s %10.2f %10.2f %10.2f %10.2f %10.2f %9" PRIu64 "\n", name, s->p50, s->p90,
            s->p99, s->max, s->mean, s->n);
}

static void text_outcomes(const struct tr_report *r, FILE *out)
{
    const char *sep = "";
    fputs("outcome   ", out);
    for (int i = 0; i < TR_OUT_COUNT; i++) {
        if (!r->outcomes[i])
            continue;
        fprintf(out, "%s%" PRIu64 " %s", sep, r->outcomes[i], tr_outcome_name((enum tr_outcome)i));
        sep = ", ";
    }
    sep = "\nfinish    ";
    for (size_t i = 0; i < r->n_finish; i++) {
        fprintf(out, "%s%" PRIu64 " %s", sep, r->finish[i].n, r->finish[i].name);
        sep = ", ";
    }
    fputs("\n", out);
    /* A few reasons are enough for a person; --json has them all. */
    int shown = 0;
    for (size_t i = 0; i < r->load->n; i++) {
        const struct tr_record *rec = &r->load->records[i];
        if (rec->outcome == TR_OUT_COMPLETE || rec->outcome == TR_OUT_ABORTED)
            continue;
        if (++shown > 5) {
            fputs("  ...\n", out);
            break;
        }
        fprintf(out, "  stream %zu %s: %s\n", i, tr_outcome_name(rec->outcome), rec->detail);
    }
}

static void text_tokens(const struct tr_report *r, FILE *out)
{
    if (!r->usage_streams) {
        fputs("tokens    no stream sent a usage block\n", out);
        return;
    }
    fprintf(out,
            "tokens    %" PRId64 " prompt (%" PRId64 " cached), %" PRId64
            " completion; usage from %" PRIu64 " of %zu streams\n",
            r->usage.prompt, r->usage.cached, r->usage.completion, r->usage_streams, r->load->n);
    fprintf(out, "rate      %.1f tok/s in all", r->tok_s);
    if (r->rate.n)
        fprintf(out, ", %.1f tok/s per stream (p50; slowest %.1f)", r->rate.p50, r->rate.min);
    fputs("\n", out);
}

static void text_oddities(const struct tr_report *r, FILE *out)
{
    const struct {
        uint64_t n;
        const char *what;
    } odd[] = {
        {r->sums.comments, "comments"},
        {r->sums.foreign, "foreign events"},
        {r->sums.empty, "empty events"},
        {r->sums.undecodable, "events that are not JSON"},
        {r->sums.after_done, "events after [DONE]"},
        {r->late_cuts, "complete streams without a clean end of the connection"},
        {r->gaps_zero, "gaps of zero (contents that came in one read)"},
        {r->gap.left_out, "gaps left out of the percentiles"},
    };
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++)
        if (odd[i].n)
            fprintf(out, "noted     %" PRIu64 " %s\n", odd[i].n, odd[i].what);
    if (r->load->delay_max_ns > 1000000)
        fprintf(out, "noted     bytes waited up to %.1f ms for the probe itself\n",
                (double)r->load->delay_max_ns / 1e6);
    if (!r->opts->check_text)
        return;
    fprintf(out, "text      %" PRIu64 " streams compared, %" PRIu64 " differ", r->text_checked,
            r->text_mismatches);
    if (r->text_mismatches)
        fprintf(out, " (the first: stream %zu)", r->first_mismatch);
    fputs("\n", out);
}

/* Text may go to a terminal: control bytes other than LF and TAB are shown as '?'. */
static void text_said(const struct tr_report *r, FILE *out)
{
    for (size_t i = 0; r->opts->show_text && i < r->load->n; i++) {
        const struct tr_record *rec = &r->load->records[i];
        fprintf(out, "\n--- stream %zu, %s%s\n", i, tr_outcome_name(rec->outcome),
                rec->text_kept < rec->text_len ? ", its beginning" : "");
        for (size_t k = 0; k < rec->text_kept; k++) {
            unsigned char c = (unsigned char)rec->text[k];
            putc((c < ' ' && c != '\n' && c != '\t') || c == 127 ? '?' : c, out);
        }
        fputs("\n", out);
    }
}

void tr_report_text(const struct tr_report *r, FILE *out)
{
    const struct tr_probe_opts *o = r->opts;
    char model[128];
    tr_copy_clean(model, sizeof(model), r->model, strlen(r->model));
    fprintf(out,
            "probe     %s, %s, model %s\n"
            "load      %" PRIu64 " streams, %" PRIu64 " at a time, max_tokens %" PRIu64
            ", %.2f s\n",
            o->to.url_text, o->route == TR_ROUTE_CHAT ? "chat" : "completions", model, o->requests,
            o->parallel, o->max_tokens, r->wall_s);
    text_outcomes(r, out);
    text_tokens(r, out);
    text_oddities(r, out);
    fprintf(out, "\n  %-12s %10s %10s %10s %10s %10s %9s\nprobe\n", "ms", "p50", "p90", "p99",
            "max", "mean", "n");
    text_row(out, "connect", &r->connect);
    text_row(out, "headers", &r->headers);
    text_row(out, "ttft", &r->ttft);
    text_row(out, "gap", &r->gap);
    text_row(out, "e2e", &r->e2e);
    tr_server_hists_text(&r->server, out);
    text_said(r, out);
}
