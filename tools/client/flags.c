/* SPDX-License-Identifier: Apache-2.0 */
#include "client/flags.h"

#include "base/assert.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void tr_flags_help(const struct tr_flag *rows, int n, FILE *out)
{
    for (int i = 0; i < n; i++) {
        const struct tr_flag *r = &rows[i];
        char flag[40];
        snprintf(flag, sizeof(flag), "--%s%s%s", r->name, r->arg ? " " : "", r->arg ? r->arg : "");
        fprintf(out, "  %-22s %s\n", flag, r->help);
    }
}

int tr_take_u64(const char *v, uint64_t min, uint64_t max, uint64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)*v))
        return -EINVAL;
    errno = 0;
    unsigned long long n = strtoull(v, &end, 10);
    if (errno || *end || n < min || n > max)
        return -EINVAL;
    *out = n;
    return 0;
}

int tr_take_double(const char *v, double min, double max, double *out)
{
    char *end;
    double d = strtod(v, &end);
    if (end == v || *end || !isfinite(d) || d < min || d > max)
        return -EINVAL;
    *out = d;
    return 0;
}

int tr_take_text(const char **to, const char *v)
{
    *to = v;
    return *v ? 0 : -EINVAL;
}

int tr_take_switch(bool *to)
{
    *to = true;
    return 0;
}

static int set_or_say(const struct tr_flags *f, int id, const char *v, const char *who,
                      struct tr_errbuf *err)
{
    err->msg[0] = 0;
    int rc = f->set(f->ctx, id, v, err);
    if (rc && !err->msg[0])
        tr_errf(err, rc, "%s: \"%s\" is not a value for it (see --help)", who, v);
    return rc;
}

static int from_environment(const struct tr_flags *f, struct tr_errbuf *err)
{
    for (int i = 0; i < f->n - 1; i++) {
        char name[64];
        size_t n = (size_t)snprintf(name, sizeof(name), "%s%s", f->env_prefix, f->rows[i].name);
        for (size_t c = 0; c < n && c < sizeof(name); c++)
            name[c] = (char)(name[c] == '-' ? '_' : toupper((unsigned char)name[c]));
        bool is_switch = !f->rows[i].arg;
        const char *v = getenv(name);
        if (!v || !*v || (is_switch && !strcmp(v, "0")))
            continue;
        if (is_switch && strcmp(v, "1") != 0)
            return tr_errf(err, -EINVAL, "%s: 0 or 1, not \"%s\"", name, v);
        int rc = set_or_say(f, i, v, name, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int from_argv(const struct tr_flags *f, int argc, char **argv, struct tr_errbuf *err)
{
    struct option longs[TR_FLAGS_MAX + 1] = {0};
    for (int i = 0; i < f->n; i++)
        longs[i] = (struct option){f->rows[i].name,
                                   f->rows[i].arg ? required_argument : no_argument, NULL, 256 + i};
    optind = 0; /* glibc: start afresh, the caller has its own subcommand in argv[0] */
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":h", longs, NULL)) != -1;) {
        const char *said = optind > 0 && optind <= argc ? argv[optind - 1] : "";
        if (c == 'h')
            c = 256 + f->n - 1;
        if (c == '?')
            return tr_errf(err, -EINVAL, "%s: no such option (see --help)", said);
        if (c == ':')
            return tr_errf(err, -EINVAL, "%s: needs a value", said);
        char who[40];
        snprintf(who, sizeof(who), "--%s", f->rows[c - 256].name);
        int rc = set_or_say(f, c - 256, optarg, who, err);
        if (rc)
            return rc;
    }
    if (optind < argc)
        return tr_errf(err, -EINVAL, "%s: not an option (see --help)", argv[optind]);
    return 0;
}

int tr_flags_parse(const struct tr_flags *f, int argc, char **argv, struct tr_errbuf *err)
{
    TR_ASSERT(f->n > 0 && f->n <= TR_FLAGS_MAX);
    int rc = from_environment(f, err);
    return rc ? rc : from_argv(f, argc, argv, err);
}
