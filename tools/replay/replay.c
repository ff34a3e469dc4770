/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/replay.h"

#include "base/clock.h"
#include "client/fetch.h"
#include "client/http_client.h"
#include "replay/options.h"
#include "replay/progress.h"
#include "replay/prompt.h"
#include "replay/report.h"
#include "replay/run.h"
#include "replay/trace.h"
#include "replay/traces.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EXIT_GOOD = 0, EXIT_BAD = 1, EXIT_USAGE = 2, EXIT_UNREACHABLE = 3 };

/* How long the server may take to come to rest; other clients may keep it from that. */
#define REST_BEFORE_NS 2000000000u
#define REST_AFTER_NS 10000000000u
#define REST_BETWEEN_NS 60000000000u

/* One pass and what it came to. */
struct pass {
    struct tr_run run;
    struct tr_tally tally;
    struct tr_page before, after;
};

struct job {
    struct tr_replay_opts opts;
    struct tr_trace trace;
    struct tr_prompts prompts;
    const char *model;
    char *model_found;
    struct pass passes[2];
    int n_passes;
};

static volatile sig_atomic_t stopped;
static const volatile int *stop_flag(void)
{
    _Static_assert(sizeof(sig_atomic_t) == sizeof(int), "one flag for both");
    return &stopped;
}

static void on_signal(int sig)
{
    (void)sig;
    stopped = 1;
}

/* The first signal ends the run, the second one the program. */
static void watch_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&sa.sa_mask);
    (void)sigaction(SIGINT, &sa, NULL);
    (void)sigaction(SIGTERM, &sa, NULL);
}

static int complain(const struct tr_errbuf *err, int status)
{
    fprintf(stderr, "tokenring replay: %s\n", err->msg);
    return status;
}

static struct tr_page read_metrics(const struct job *j)
{
    return j->opts.no_metrics ? (struct tr_page){0} : tr_fetch_metrics(&j->opts.to);
}

static bool at_rest(const struct tr_page *page)
{
    double g[TR_GAUGES], busy = 0;
    tr_gauges_read(g, page->p, page->len);
    for (int i = TR_GAUGE_RUNNING; i <= TR_GAUGE_PARKED; i++)
        busy += isnan(g[i]) ? 0 : g[i];
    return busy == 0;
}

/* The page once nothing runs any more: what was left behind must not weigh on the next pass, and its
 * tokens belong to this one. */
static struct tr_page read_metrics_at_rest(const struct job *j, uint64_t limit_ns)
{
    uint64_t until = tr_now_ns() + limit_ns;
    for (;;) {
        struct tr_page page = read_metrics(j);
        if (!page.p || at_rest(&page) || stopped || tr_now_ns() > until)
            return page;
        free(page.p);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
}

static int load_trace(struct job *j, struct tr_errbuf *err)
{
    struct tr_replay_opts *o = &j->opts;
    int rc = tr_traces_make(&j->trace, o->trace, o->seed);
    if (rc == -ENOENT)
        rc = tr_trace_load(&j->trace, o->trace, err);
    else if (rc)
        tr_errf(err, rc, "%s", strerror(-rc));
    if (!rc && o->limit)
        tr_trace_limit(&j->trace, (size_t)o->limit);
    return rc;
}

/* 0, or the exit status. */
static int find_server(struct job *j, struct tr_errbuf *err)
{
    int rc;
    if (tr_url_resolve(&j->opts.to.url, err))
        return complain(err, EXIT_UNREACHABLE);
    j->model = j->opts.model;
    if (!j->model) {
        j->model = j->model_found = tr_fetch_model(&j->opts.to, &rc, err);
        if (!j->model)
            return complain(err, rc == -ECONNREFUSED ? EXIT_UNREACHABLE : EXIT_BAD);
    }
    tr_prompts_learn(&j->prompts, &j->opts.to, j->model);
    return 0;
}

static int make_pass(struct job *j, bool abandon, struct tr_errbuf *err)
{
    struct pass *p = &j->passes[j->n_passes];
    struct tr_progress progress;
    p->run = (struct tr_run){.opts = &j->opts,
                             .trace = &j->trace,
                             .tag = abandon ? "trace" : "stay",
                             .abandon = abandon};
    p->before = read_metrics_at_rest(j, j->n_passes ? REST_BETWEEN_NS : REST_BEFORE_NS);
    tr_progress_init(&progress, stderr, j->opts.quiet);
    int rc = tr_run(&p->run, &j->prompts, j->model, &progress, stop_flag(), err);
    if (!rc) {
        p->after = read_metrics_at_rest(j, REST_AFTER_NS);
        rc =
            tr_tally_make(&p->tally, &p->run, p->before.p, p->before.len, p->after.p, p->after.len);
        if (rc)
            tr_errf(err, rc, "%s", strerror(-rc));
    }
    if (rc)
        tr_run_fini(&p->run);
    else
        j->n_passes++;
    return rc;
}

static int report(const struct job *j)
{
    struct tr_replay_report r = {.opts = &j->opts,
                                 .trace = &j->trace,
                                 .model = j->model,
                                 .exact_prompts = j->prompts.n > 0,
                                 .n_runs = j->n_passes};
    int status = EXIT_GOOD;
    for (int i = 0; i < j->n_passes; i++) {
        int one = tr_tally_exit(&j->passes[i].tally);
        r.runs[i] = &j->passes[i].tally;
        status = one > status ? one : status;
    }
    if (!j->opts.json)
        tr_replay_report_text(&r, stdout);
    else if (tr_replay_report_json(&r, stdout))
        fputs("tokenring replay: the report could not be written\n", stderr), status = EXIT_BAD;
    return status;
}

static int replay(struct job *j)
{
    struct tr_errbuf err = {0};
    tr_client_raise_descriptors();
    int status = find_server(j, &err);
    if (status)
        return status;
    watch_signals();
    int rc = make_pass(j, !j->opts.no_abandon, &err);
    if (!rc && j->opts.compare && !stopped)
        rc = make_pass(j, false, &err);
    if (rc)
        complain(&err, EXIT_BAD);
    status = j->n_passes ? report(j) : EXIT_BAD;
    return rc && status == EXIT_GOOD ? EXIT_BAD : status;
}

static void fini(struct job *j)
{
    for (int i = 0; i < 2; i++) {
        struct pass *p = &j->passes[i];
        tr_tally_fini(&p->tally);
        if (i < j->n_passes)
            tr_run_fini(&p->run);
        free(p->before.p);
        free(p->after.p);
    }
    tr_trace_fini(&j->trace);
    free(j->model_found);
}

int tr_replay_main(int argc, char **argv)
{
    static struct job job;
    struct tr_errbuf err = {0};
    int status = EXIT_GOOD;
    if (tr_replay_opts_parse(&job.opts, argc, argv, &err))
        return complain(&err, EXIT_USAGE);
    if (job.opts.help) {
        tr_replay_opts_help(stdout);
    } else if (load_trace(&job, &err)) {
        status = complain(&err, EXIT_USAGE);
    } else if (job.opts.show_trace) {
        tr_trace_print(&job.trace, stdout);
    } else {
        status = replay(&job);
    }
    fini(&job);
    if (fflush(stdout) && status == EXIT_GOOD)
        status = EXIT_BAD;
    return status;
}
