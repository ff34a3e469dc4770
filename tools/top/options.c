/* SPDX-License-Identifier: Apache-2.0 */
#include "top/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int take_number(const char *name, const char *v, double min, double max, double *out,
                       struct tr_errbuf *err)
{
    char *end;
    double d = strtod(v, &end);
    if (!(isdigit((unsigned char)*v) || *v == '.') || *end || !(d >= min && d <= max))
        return tr_errf(err, -EINVAL, "%s takes a number between %g and %g, not '%s'", name, min,
                       max, v);
    *out = d;
    return 0;
}

static int take_whole(const char *name, const char *v, double max, unsigned *out,
                      struct tr_errbuf *err)
{
    double d = 0;
    int ret = take_number(name, v, 0, max, &d, err);
    if (!ret && d != floor(d))
        ret = tr_errf(err, -EINVAL, "%s takes a whole number, not '%s'", name, v);
    if (!ret)
        *out = (unsigned)d;
    return ret;
}

static int take_sort(const char *v, enum tr_top_sort *out, struct tr_errbuf *err)
{
    static const char *const words[] = {
        [TR_TOP_BY_FILL] = "window", [TR_TOP_BY_RATE] = "tokens", [TR_TOP_BY_AGE] = "age"};
    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(v, words[i]) == 0) {
            *out = (enum tr_top_sort)i;
            return 0;
        }
    return tr_errf(err, -EINVAL, "--sort takes window, tokens or age, not '%s'", v);
}

static int take_value(struct tr_top_options *o, const char *name, const char *v,
                      struct tr_errbuf *err)
{
    if (strcmp(name, "--socket") == 0)
        o->socket = v;
    else if (strcmp(name, "--port") == 0)
        return take_whole(name, v, 65535, &o->port, err);
    else if (strcmp(name, "--interval") == 0)
        return take_number(name, v, 0.05, 3600, &o->interval_s, err);
    else if (strcmp(name, "--slots") == 0)
        return take_whole(name, v, 1 << 20, &o->slots, err);
    else
        return take_sort(v, &o->sort, err);
    return 0;
}

static bool takes_value(const char *name)
{
    static const char *const names[] = {"--socket", "--port", "--interval", "--slots", "--sort"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* argv[*i], and its value if it has one. */
static int take_flag(struct tr_top_options *o, int argc, char **argv, int *i, struct tr_errbuf *err)
{
    char name[32];
    const char *a = argv[*i], *v = strchr(a, '=');
    snprintf(name, sizeof(name), "%.*s", (int)(v ? v - a : (long)strlen(a)), a);
    if (strcmp(a, "--once") == 0)
        o->once = true;
    else if (strcmp(a, "--json") == 0)
        o->json = true;
    else if (!takes_value(name))
        return tr_errf(err, -EINVAL, "unknown flag '%s' (see tokenring top --help)", a);
    else if (!v && *i + 1 == argc)
        return tr_errf(err, -EINVAL, "%s needs a value", name);
    else
        return take_value(o, name, v ? v + 1 : argv[++*i], err);
    return 0;
}

int tr_top_options_parse(struct tr_top_options *o, int argc, char **argv, struct tr_errbuf *err)
{
    *o = (struct tr_top_options){.port = 8080, .interval_s = 1, .slots = 20};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return 1;
        int ret = take_flag(o, argc, argv, &i, err);
        if (ret)
            return ret;
    }
    return 0;
}

void tr_top_options_help(void)
{
    fputs("usage: tokenring top [--port N | --socket PATH] [flags]\n\n"
          "A running service, live: slots, tokens, windows, buffers, KV blocks, processes,\n"
          "latencies. It reads the service's own statistics and costs it nothing.\n\n"
          "  --port N        port of the service: its control socket is looked for (8080)\n"
          "  --socket PATH   the control socket itself, as `serve --control-socket` names it\n"
          "  --interval S    seconds between two looks; rates are over it (1)\n"
          "  --sort WHAT     window (fullest first), tokens (fastest first) or age (oldest first)\n"
          "  --once          one look after one interval, as plain text\n"
          "  --json          a JSON object for each interval; with --once a single one\n"
          "  --slots N       live slots in plain text and JSON (20)\n\n"
          "Keys: w, t, a sort by window, tokens, age; q or Ctrl-C ends.\n"
          "Exit status: 0; 1 when there is no service or when it ends; 2 for a wrong flag.\n",
          stdout);
}
