/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/exposition.c - see exposition.h. */
#include "frontend/exposition.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void text(const struct tr_expo *x, const char *s)
{
    tr_emit_bytes(x->e, s, strlen(s));
}

static void number(const struct tr_expo *x, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void number(const struct tr_expo *x, const char *fmt, ...)
{
    char buf[64];
    va_list ap;

    va_start(ap, fmt);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it loses va_start when it inlines this */
    int n = vsnprintf(buf, sizeof(buf), fmt, ap);
    va_end(ap);
    tr_emit_bytes(x->e, buf, (size_t)n < sizeof(buf) ? (size_t)n : sizeof(buf) - 1);
}

static bool ends_with(const char *s, size_t len, const char *end)
{
    size_t n = strlen(end);
    return len >= n && memcmp(s + len - n, end, n) == 0;
}

/* What a family is called: in OpenMetrics without the suffix that its samples have by their type. */
static size_t family_len(const struct tr_expo *x, const char *name, enum tr_expo_kind kind)
{
    size_t len = strlen(name);

    if (x->open && kind == TR_EXPO_COUNTER && ends_with(name, len, "_total"))
        return len - sizeof("_total") + 1;
    if (x->open && kind == TR_EXPO_INFO && ends_with(name, len, "info"))
        return len - sizeof("info") + 1;
    return len;
}

static void put_about(const struct tr_expo *x, const char *what, const char *name, size_t len)
{
    size_t prefix = strlen(x->prefix);

    /* An info that is named like its prefix: tokenring_info is of the family tokenring. */
    if (!len && prefix && x->prefix[prefix - 1] == '_')
        prefix--;
    else if (len && name[len - 1] == '_')
        len--;
    text(x, "# ");
    text(x, what);
    tr_emit_bytes(x->e, " ", 1);
    tr_emit_bytes(x->e, x->prefix, prefix);
    tr_emit_bytes(x->e, name, len);
    tr_emit_bytes(x->e, " ", 1);
}

static const char *type_word(const struct tr_expo *x, enum tr_expo_kind kind)
{
    static const char *const words[] = {"counter", "gauge", "histogram", "info"};
    return words[kind == TR_EXPO_INFO && !x->open ? TR_EXPO_GAUGE : kind];
}

void tr_expo_family(const struct tr_expo *x, const char *name, enum tr_expo_kind kind,
                    const char *help)
{
    static const char *const units[] = {"seconds", "bytes"};
    size_t len = family_len(x, name, kind);

    put_about(x, "HELP", name, len);
    for (const char *p = help; *p; p++) {
        if (*p == '\n')
            text(x, "\\n");
        else if (*p == '\\' || (*p == '"' && x->open))
            number(x, "\\%c", *p);
        else
            tr_emit_bytes(x->e, p, 1);
    }
    text(x, "\n");
    put_about(x, "TYPE", name, len);
    text(x, type_word(x, kind));
    text(x, "\n");
    for (size_t i = 0; x->open && i < sizeof(units) / sizeof(units[0]); i++)
        if (ends_with(name, len, units[i])) {
            put_about(x, "UNIT", name, len);
            text(x, units[i]);
            text(x, "\n");
        }
}

static void put_name(const struct tr_expo *x, const char *name, const char *suffix,
                     const char *labels)
{
    text(x, x->prefix);
    text(x, name);
    text(x, suffix);
    if (*x->common || *labels) {
        text(x, "{");
        text(x, x->common);
        if (*x->common && *labels)
            text(x, ",");
        text(x, labels);
        text(x, "}");
    }
    text(x, " ");
}

void tr_expo_count(const struct tr_expo *x, const char *name, const char *labels, uint64_t value)
{
    put_name(x, name, "", labels);
    number(x, "%llu\n", (unsigned long long)value);
}

void tr_expo_real(const struct tr_expo *x, const char *name, const char *labels, double value)
{
    put_name(x, name, "", labels);
    number(x, "%.9g\n", value);
}

/* As OpenMetrics wants bounds, and most libraries write them: with a point or an exponent. */
static void bound_label(char out[48], double bound)
{
    bool whole = bound == (double)(uint64_t)bound;
    snprintf(out, 48, whole ? "le=\"%.1f\"" : "le=\"%g\"", bound);
}

void tr_expo_hist(const struct tr_expo *x, const char *name, enum tr_hist_scale scale,
                  const struct tr_expo_hist *h)
{
    uint64_t run = 0;
    char le[48];

    for (unsigned b = 0; b < TR_HIST_BUCKETS; b++) {
        run += h->bucket[b];
        bound_label(le, tr_hist_bounds[scale][b]);
        put_name(x, name, "_bucket", le);
        number(x, "%llu\n", (unsigned long long)run);
    }
    /* The count is the one that fits the buckets, which were read one by one while others wrote. */
    run += h->bucket[TR_HIST_BUCKETS];
    put_name(x, name, "_bucket", "le=\"+Inf\"");
    number(x, "%llu\n", (unsigned long long)run);
    put_name(x, name, "_sum", "");
    if (scale == TR_SCALE_TOKENS)
        number(x, "%llu\n", (unsigned long long)h->sum);
    else
        number(x, "%.9f\n", (double)h->sum / 1e9);
    put_name(x, name, "_count", "");
    number(x, "%llu\n", (unsigned long long)run);
}

void tr_expo_end(const struct tr_expo *x)
{
    if (x->open)
        text(x, "# EOF\n");
}

/* One character of a label's value, escaped; 0 if it is not UTF-8. */
static size_t escape(char out[4], const unsigned char *p, size_t left)
{
    size_t n = tr_utf8_len(p, left);

    if (n == 1 && (*p == '\n' || *p == '"' || *p == '\\')) {
        out[0] = '\\';
        out[1] = *p == '\n' ? 'n' : (char)*p;
        return 2;
    }
    memcpy(out, p, n);
    return n;
}

size_t tr_expo_label(char *to, size_t cap, const char *name, const char *value)
{
    int head = snprintf(to, cap, "%s=\"", name);
    size_t at = head > 0 ? (size_t)head : 0, left = strlen(value);
    static const char unknown[3] = {'\xef', '\xbf', '\xbd'};
    const unsigned char *p = (const unsigned char *)value;

    if (at + 2 > cap)
        return 0;
    while (left) {
        char c[4];
        size_t n = tr_utf8_len(p, left), out = n ? escape(c, p, left) : 3;
        if (!n)
            memcpy(c, unknown, sizeof(unknown));
        if (at + out + 2 > cap)
            break;
        memcpy(to + at, c, out);
        at += out;
        p += n ? n : 1;
        left -= n ? n : 1;
    }
    to[at++] = '"';
    to[at] = '\0';
    return at;
}
