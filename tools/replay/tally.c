/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/tally.h"

#include "client/scrape.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *metric[2], *label;
} counters_known[TR_COUNTERS] = {
    [TR_COUNTER_PROMPT] = {"prompt_tokens",
                           {"tokenring_tokens_total", "vllm:prompt_tokens_total"},
                           "kind=\"prompt\""},
    [TR_COUNTER_COMPLETION] = {"completion_tokens",
                               {"tokenring_tokens_total", "vllm:generation_tokens_total"},
                               "kind=\"completion\""},
    [TR_COUNTER_AVOIDED] = {"tokens_avoided",
                            {"tokenring_cancelled_tokens_avoided_total", NULL},
                            NULL},
    [TR_COUNTER_AFTER_DISCONNECT] = {"tokens_after_disconnect",
                                     {"tokenring_tokens_after_disconnect_total", NULL},
                                     NULL},
    [TR_COUNTER_DISCONNECTED] = {"ended_client_disconnected",
                                 {"tokenring_streams_ended_total", NULL},
                                 "reason=\"client_disconnected\""},
    [TR_COUNTER_SLOW] = {"ended_slow_client",
                         {"tokenring_streams_ended_total", NULL},
                         "reason=\"slow_client\""},
    [TR_COUNTER_PREEMPTIONS] = {"preemptions",
                                {"tokenring_preemptions_total", "vllm:num_preemptions_total"},
                                NULL},
};

const char *tr_counter_name(enum tr_counter c)
{
    return counters_known[c].name;
}

const char *tr_level_name(int level)
{
    static const char *const ours[] = {"open", "admitted", "streaming"};
    return level < TR_LEVEL_GAUGES ? ours[level]
                                   : tr_gauge_name((enum tr_gauge)(level - TR_LEVEL_GAUGES));
}

double tr_level_of(const struct tr_tick *t, int level)
{
    switch (level) {
    case TR_LEVEL_OPEN:
        return t->open;
    case TR_LEVEL_ADMITTED:
        return t->admitted;
    case TR_LEVEL_STREAMING:
        return t->streaming;
    default:
        return t->gauges[level - TR_LEVEL_GAUGES];
    }
}

/* "503 engine_overloaded" from "status 503, engine_overloaded: All places are taken", and
 * "deadline_exceeded" from the error of a stream. */
static void code_of(const struct tr_record *r, char *to, size_t size)
{
    const char *code = r->detail;
    const char *after = strstr(r->detail, ", ");
    if (!strncmp(r->detail, "status ", 7))
        code = after ? after + 2 : "";
    int n = (int)strcspn(code, ":");
    if (r->http_status != 200)
        snprintf(to, size, "%d%s%.*s", r->http_status, n ? " " : "", n, code);
    else
        snprintf(to, size, "%.*s", n, code);
}

static void count_code(struct tr_class_tally *c, const char *name)
{
    for (size_t i = 0; i < c->n_codes; i++) {
        if (!strcmp(c->codes[i].name, name)) {
            c->codes[i].n++;
            return;
        }
    }
    if (c->n_codes == TR_TALLY_CODES) {
        c->codes[TR_TALLY_CODES - 1].n++;
        return;
    }
    if (c->n_codes == TR_TALLY_CODES - 1)
        name = "other";
    snprintf(c->codes[c->n_codes].name, sizeof(c->codes[0].name), "%s", name);
    c->codes[c->n_codes++].n = 1;
}

static void add_fate(struct tr_class_tally *c, const struct tr_run_record *r)
{
    c->fates[r->fate]++;
    if (r->fate == TR_FATE_ABANDONED) {
        c->left_before_head += !r->rec.head_ns;
        c->left_before_content += r->rec.head_ns && !r->rec.first_ns;
        c->left_in_stream += r->rec.first_ns != 0;
    }
    c->without_retry_after += r->fate == TR_FATE_REFUSED && !r->rec.retry_after;
    if (r->fate == TR_FATE_REFUSED || r->fate == TR_FATE_ERROR || r->rec.outcome == TR_OUT_ERROR) {
        char name[48];
        code_of(&r->rec, name, sizeof(name));
        count_code(c, name);
    }
}

static void add_counts(struct tr_class_tally *c, const struct tr_run_record *r,
                       const struct tr_trace_entry *e)
{
    const struct tr_record *rec = &r->rec;
    c->n++;
    add_fate(c, r);
    c->late += rec->start_ns && rec->start_ns - r->due_ns > TR_RUN_LATE_NS;
    c->content_events += rec->content_events;
    c->late_cuts += rec->late_cut;
    if (!rec->has_usage)
        return;
    c->usage_requests++;
    c->usage.prompt += rec->usage.prompt;
    c->usage.cached += rec->usage.cached;
    c->usage.completion += rec->usage.completion;
    c->prompts_off += e->prompt_tokens && (uint64_t)rec->usage.prompt != e->prompt_tokens;
    c->lengths_off +=
        r->fate == TR_FATE_COMPLETE && (uint64_t)rec->usage.completion != e->max_tokens;
}

struct bags {
    struct tr_samples ttft, ttft_sent, e2e, rate;
};

static void add_times(struct bags *b, const struct tr_run_record *r)
{
    const struct tr_record *rec = &r->rec;
    if (rec->first_ns) {
        tr_samples_add(&b->ttft, (double)(rec->first_ns - r->due_ns) / 1e6);
        tr_samples_add(&b->ttft_sent, (double)(rec->first_ns - rec->start_ns) / 1e6);
    }
    if (r->fate != TR_FATE_COMPLETE)
        return;
    tr_samples_add(&b->e2e, (double)(rec->end_ns - r->due_ns) / 1e6);
    if (rec->has_usage && rec->usage.completion > 1 && rec->last_ns > rec->first_ns)
        tr_samples_add(&b->rate, (double)(rec->usage.completion - 1) * 1e9 /
                                     (double)(rec->last_ns - rec->first_ns));
}

static struct tr_summary close_bag(struct tr_samples *s)
{
    struct tr_summary sum = tr_samples_summary(s);
    tr_samples_fini(s);
    return sum;
}

/* `class_id` -1: all of them. */
static void sum_up(struct tr_class_tally *c, struct tr_run *run, int class_id, double wall_s)
{
    struct bags b = {0};
    for (size_t i = 0; i < run->trace->n; i++) {
        const struct tr_trace_entry *e = &run->trace->e[i];
        if (class_id >= 0 && e->class_id != (unsigned)class_id)
            continue;
        add_counts(c, &run->records[i], e);
        add_times(&b, &run->records[i]);
    }
    c->ttft = close_bag(&b.ttft);
    c->ttft_sent = close_bag(&b.ttft_sent);
    c->e2e = close_bag(&b.e2e);
    c->rate = close_bag(&b.rate);
    if (wall_s > 0)
        c->tok_s = (double)c->usage.completion / wall_s;
    if (class_id >= 0) {
        c->gap = tr_samples_summary(&run->gaps[class_id]);
        return;
    }
    struct tr_samples gaps = {0};
    for (unsigned k = 0; k < run->trace->n_classes; k++)
        for (size_t i = 0; i < run->gaps[k].len; i++)
            tr_samples_add(&gaps, run->gaps[k].v[i]);
    c->gap = close_bag(&gaps);
}

/* The tail, in which the last streams end and nobody comes, would only thin the mean. */
static void sum_levels(struct tr_tally *t)
{
    const struct tr_run *run = t->run;
    double last_s = (double)(run->records[run->trace->n - 1].due_ns - run->start_ns) / 1e9;
    for (int k = 0; k < TR_LEVELS; k++) {
        struct tr_level *v = &t->levels[k];
        double sum = 0;
        for (size_t i = 0; i < run->n_ticks; i++) {
            double x = tr_level_of(&run->ticks[i], k);
            if (isnan(x) || (run->ticks[i].t_s > last_s && v->n))
                continue;
            sum += x;
            v->n++;
            if (x > v->max)
                v->max = x;
        }
        v->mean = v->n ? sum / (double)v->n : 0;
    }
}

static void read_counters(struct tr_tally *t, const char *before, size_t before_len,
                          const char *after, size_t after_len)
{
    for (int i = 0; i < TR_COUNTERS; i++) {
        t->counters[i] = (double)NAN;
        for (int k = 0; before && after && k < 2 && counters_known[i].metric[k]; k++) {
            double a = 0, b = 0;
            const char *label = k ? NULL : counters_known[i].label;
            if (tr_scrape_value(after, after_len, counters_known[i].metric[k], label, &a))
                continue;
            if (tr_scrape_value(before, before_len, counters_known[i].metric[k], label, &b))
                b = 0;
            if (a >= b)
                t->counters[i] = a - b;
            break;
        }
    }
}

int tr_tally_make(struct tr_tally *t, struct tr_run *run, const char *before, size_t before_len,
                  const char *after, size_t after_len)
{
    memset(t, 0, sizeof(*t));
    t->run = run;
    t->wall_s = (double)(run->end_ns - run->start_ns) / 1e9;
    t->classes = calloc(run->trace->n_classes, sizeof(*t->classes));
    if (!t->classes)
        return -ENOMEM;
    t->all.name = "all";
    sum_up(&t->all, run, -1, t->wall_s);
    for (unsigned i = 0; i < run->trace->n_classes; i++) {
        t->classes[i].name = run->trace->classes[i];
        sum_up(&t->classes[i], run, (int)i, t->wall_s);
    }
    sum_levels(t);
    tr_server_hists_make(&t->server, before, before_len, after, after_len);
    if (run->opts->no_metrics)
        t->server.note = "/metrics was not asked for";
    read_counters(t, before, before_len, after, after_len);
    return 0;
}

void tr_tally_fini(struct tr_tally *t)
{
    free(t->classes);
    t->classes = NULL;
}

int tr_tally_exit(const struct tr_tally *t)
{
    const uint64_t *f = t->all.fates;
    if (t->run->interrupted)
        return 130;
    if (f[TR_FATE_UNREACHABLE] == t->all.n)
        return 3;
    for (int i = TR_FATE_ERROR; i <= TR_FATE_UNREACHABLE; i++)
        if (f[i])
            return 1;
    return 0;
}
