/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/probe.h"

#include "client/fetch.h"
#include "client/http_client.h"
#include "probe/load.h"
#include "probe/options.h"
#include "probe/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_COMPLETE = 0, EXIT_BROKEN = 1, EXIT_USAGE = 2, EXIT_UNREACHABLE = 3 };

static int complain(FILE *to, const struct tr_errbuf *err, int status)
{
    fprintf(to, "tokenring probe: %s\n", err->msg);
    return status;
}

static struct tr_page read_metrics(const struct tr_probe_opts *o)
{
    return o->no_metrics ? (struct tr_page){0} : tr_fetch_metrics(&o->to);
}

static int show(const struct tr_report *r, FILE *out, FILE *complaints)
{
    if (!r->opts->json) {
        tr_report_text(r, out);
    } else if (tr_report_json(r, out)) {
        fputs("tokenring probe: the report could not be written\n", complaints);
        return EXIT_BROKEN;
    }
    return tr_report_exit(r);
}

static int run(const struct tr_probe_opts *o, const char *model, FILE *out, FILE *complaints)
{
    struct tr_errbuf err = {0};
    struct tr_report *r = malloc(sizeof(*r));
    struct tr_load load;
    struct tr_page before = read_metrics(o), after = {0};
    int status;
    if (tr_load_run(&load, o, model, &err) || !r) {
        status = complain(complaints, &err, EXIT_BROKEN);
        goto out;
    }
    tr_report_make(r, o, &load, model);
    if (!o->no_metrics) {
        after = read_metrics(o);
        tr_server_hists_make(&r->server, before.p, before.len, after.p, after.len);
    }
    status = show(r, out, complaints);
out:
    tr_load_fini(&load);
    free(before.p);
    free(after.p);
    free(r);
    return status;
}

int tr_probe_run(int argc, char **argv, FILE *out, FILE *complaints)
{
    struct tr_errbuf err = {0};
    struct tr_probe_opts o;
    char *found = NULL;
    int rc, status;
    if (tr_probe_opts_parse(&o, argc, argv, &err)) {
        status = complain(complaints, &err, EXIT_USAGE);
        goto out;
    }
    if (o.help) {
        tr_probe_opts_help(out);
        status = EXIT_COMPLETE;
        goto out;
    }
    tr_client_raise_descriptors();
    if (tr_url_resolve(&o.to.url, &err)) {
        status = complain(complaints, &err, EXIT_UNREACHABLE);
        goto out;
    }
    if (!o.model) {
        found = tr_fetch_model(&o.to, &rc, &err);
        if (!found) {
            status =
                complain(complaints, &err, rc == -ECONNREFUSED ? EXIT_UNREACHABLE : EXIT_BROKEN);
            goto out;
        }
    }
    status = run(&o, o.model ? o.model : found, out, complaints);
out:
    free(found);
    tr_probe_opts_fini(&o);
    return status;
}

int tr_probe_main(int argc, char **argv)
{
    int status = tr_probe_run(argc, argv, stdout, stderr);
    if (fflush(stdout) && status == EXIT_COMPLETE)
        status = EXIT_BROKEN;
    return status;
}
