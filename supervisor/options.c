/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/options.h"

#include "shm/layout.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT, COUNT, SIZE, SECONDS, MILLIS, CHOICE, SWITCH };

struct row {
    size_t at; /* offset in struct tr_options */
    enum kind kind;
    const char *name, *def, *arg;
    double min, max;
    const char *help;
};

static const struct row rows[] = {
#define O(field, kind, name, def, arg, min, max, help)                                             \
    {offsetof(struct tr_options, field), kind, name, def, arg, (double)(min), (double)(max), help},
#include "supervisor/options.def"
#undef O
};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static void *field(struct tr_options *o, const struct row *r)
{
    return (char *)o + r->at;
}

/* ---- values ---- */

static int in_range(const struct row *r, double v, const char *text, struct tr_errbuf *err)
{
    if (v >= r->min && v <= r->max)
        return 0;
    return tr_errf(err, -EINVAL, "--%s %s is out of range: it is between %.16g and %.16g", r->name,
                   text, r->min, r->max);
}

static int set_whole(struct tr_options *o, const struct row *r, const char *text,
                     struct tr_errbuf *err)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    uint64_t unit = 1;
    if (r->kind == SIZE && *end) {
        const char *units = "KMG", *u = strchr(units, toupper((unsigned char)*end));
        if (u) {
            unit = 1ull << (10 * (u - units + 1));
            end++;
        }
    }
    if (!isdigit((unsigned char)*text) || *end || errno)
        return tr_errf(err, -EINVAL, "--%s takes a whole number%s, not '%s'", r->name,
                       r->kind == SIZE ? " with K, M or G" : "", text);
    if (in_range(r, (double)v * (double)unit, text, err))
        return -EINVAL;
    *(uint64_t *)field(o, r) = v * unit;
    return 0;
}

static int set_time(struct tr_options *o, const struct row *r, const char *text,
                    struct tr_errbuf *err)
{
    char *end;
    double v = strtod(text, &end); /* which also takes hexadecimal numbers */
    if (!(isdigit((unsigned char)*text) || *text == '.') || *end ||
        text[strspn(text, "0123456789.eE+-")] || !isfinite(v))
        return tr_errf(err, -EINVAL, "--%s takes a number, not '%s'", r->name, text);
    if (in_range(r, v, text, err))
        return -EINVAL;
    double ns = v * (r->kind == SECONDS ? 1e9 : 1e6);
    *(uint64_t *)field(o, r) = ns > 0 && ns < 1 ? 1 : (uint64_t)ns; /* 0 would be another thing */
    return 0;
}

static int set_choice(struct tr_options *o, const struct row *r, const char *text,
                      struct tr_errbuf *err)
{
    unsigned n = 0;
    size_t len = strlen(text);
    for (const char *p = r->arg + (r->kind == SWITCH); *p && *p != ']'; n++) {
        size_t word = strcspn(p, "|]");
        if (word == len && memcmp(p, text, len) == 0) {
            *(unsigned *)field(o, r) = n;
            return 0;
        }
        p += word + (p[word] == '|');
    }
    return tr_errf(err, -EINVAL, "--%s takes one of %s, not '%s'", r->name, r->arg, text);
}

static int set(struct tr_options *o, const struct row *r, const char *text, struct tr_errbuf *err)
{
    switch (r->kind) {
    case TEXT:
        *(const char **)field(o, r) = text;
        return 0;
    case COUNT:
    case SIZE:
        return set_whole(o, r, text, err);
    case SECONDS:
    case MILLIS:
        return set_time(o, r, text, err);
    case CHOICE:
    case SWITCH:
        return set_choice(o, r, text, err);
    }
    return -EINVAL;
}

/* ---- sources ---- */

static const char *from_environment(const struct row *r)
{
    char name[64] = "TOKENRING_";
    size_t n = strlen(name);
    for (const char *p = r->name; *p && n + 1 < sizeof(name); p++)
        name[n++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    name[n] = '\0';
    return getenv(name);
}

static const struct row *find(const char *name, size_t len)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strlen(rows[i].name) == len && memcmp(rows[i].name, name, len) == 0)
            return &rows[i];
    return NULL;
}

/* An address may hold a password: what comes behind "=" or "://" is not repeated. */
static int shown(const char *a)
{
    size_t n = strcspn(a, "=");
    const char *p = strstr(a, "://");
    return (int)(p && (size_t)(p - a) < n ? (size_t)(p - a) : n);
}

/* What the flag argv[*i] is set to: after its "=", or the next argument.  A switch alone is on.  NULL:
 * nothing, where something is needed. */
static const char *value_of(const struct row *r, int argc, char **argv, int *i)
{
    const char *eq = strchr(argv[*i], '=');
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    if (eq)
        return eq + 1;
    if (r->kind == SWITCH && (!next || (strcmp(next, "on") != 0 && strcmp(next, "off") != 0)))
        return "on";
    *i += 1;
    return next;
}

static int from_argv(struct tr_options *o, int argc, char **argv, struct tr_errbuf *err)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0)
            return 1;
        if (strncmp(a, "--", 2) != 0)
            return tr_errf(err, -EINVAL, "unexpected argument '%.*s' (see tokenring serve --help)",
                           shown(a), a);
        size_t len = strcspn(a + 2, "=");
        const struct row *r = find(a + 2, len);
        if (!r)
            return tr_errf(err, -EINVAL, "unknown flag '%.*s' (see tokenring serve --help)",
                           shown(a), a);
        const char *value = value_of(r, argc, argv, &i);
        if (!value)
            return tr_errf(err, -EINVAL, "--%s needs a value (%s)", r->name, r->arg);
        if (set(o, r, value, err))
            return -EINVAL;
    }
    return 0;
}

int tr_options_parse(struct tr_options *o, int argc, char **argv, struct tr_errbuf *err)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        const char *env = from_environment(&rows[i]);
        if (set(o, &rows[i], rows[i].def, err) || (env && set(o, &rows[i], env, err)))
            return -EINVAL;
    }
    return from_argv(o, argc, argv, err);
}

void tr_options_help(void)
{
    printf("usage: tokenring serve --model FILE|smollm2|sim [flags]\n\n"
           "Every flag has an environment twin: --stream-buffer 16K is "
           "TOKENRING_STREAM_BUFFER=16K.\n\n");
    for (size_t i = 0; i < N_ROWS; i++) {
        char left[128];
        snprintf(left, sizeof(left), "--%s %s", rows[i].name, rows[i].arg);
        printf("  %-34s %s", left, rows[i].help);
        if (*rows[i].def)
            printf(" (%s)", rows[i].def);
        printf("\n");
    }
}
