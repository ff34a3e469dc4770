/* SPDX-License-Identifier: Apache-2.0 */
#include "client/scrape.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A number of at most 63 bytes; +Inf and NaN are understood by strtod. */
static bool number(const char *p, const char *end, double *out)
{
    char buf[64];
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    size_t n = 0;
    while (p + n < end && p[n] != ' ' && p[n] != '\t' && p[n] != '\r')
        n++;
    if (!n || n >= sizeof(buf))
        return false;
    memcpy(buf, p, n);
    buf[n] = 0;
    char *stop;
    *out = strtod(buf, &stop);
    return !*stop && !isnan(*out);
}

/* Walks {a="b",le="0.5"} from just after the brace; *le is set when that label is there.  Returns
 * the byte after the closing brace, or NULL. */
static const char *labels(const char *p, const char *end, double *le, bool *has_le)
{
    while (p < end && *p != '}') {
        const char *name = p;
        while (p < end && *p != '=' && *p != '}')
            p++;
        if (end - p < 2 || p[0] != '=' || p[1] != '"')
            return NULL;
        size_t name_len = (size_t)(p - name);
        const char *v = p += 2;
        while (p < end && *p != '"')
            p += *p == '\\' ? 2 : 1;
        if (p >= end)
            return NULL;
        if (name_len == 2 && !memcmp(name, "le", 2))
            *has_le = number(v, p, le);
        p++;
        while (p < end && (*p == ',' || *p == ' '))
            p++;
    }
    return p < end ? p + 1 : NULL;
}

static int add_bucket(struct tr_hist *h, double le, double v)
{
    size_t i = 0;
    while (i < h->len && h->le[i] < le)
        i++;
    if (i < h->len && h->le[i] == le) {
        h->cum[i] += v;
        return 0;
    }
    if (h->len == TR_HIST_BUCKETS)
        return -E2BIG;
    memmove(h->le + i + 1, h->le + i, (h->len - i) * sizeof(*h->le));
    memmove(h->cum + i + 1, h->cum + i, (h->len - i) * sizeof(*h->cum));
    h->le[i] = le;
    h->cum[i] = v;
    h->len++;
    return 0;
}

/* One sample line, [p, end).  -E2BIG, or 0 also for lines that are not ours. */
static int take_line(struct tr_hist *h, const char *p, const char *end, const char *name,
                     bool *found)
{
    size_t name_len = strlen(name);
    if ((size_t)(end - p) <= name_len || memcmp(p, name, name_len) != 0)
        return 0;
    p += name_len;
    static const char *const suffix[] = {"_bucket", "_sum", "_count"};
    int which = -1;
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(suffix[i]);
        if ((size_t)(end - p) > n && !memcmp(p, suffix[i], n) && strchr("{ \t", p[n])) {
            which = i;
            p += n;
            break;
        }
    }
    if (which < 0)
        return 0;
    double le = 0, v = 0;
    bool has_le = false;
    if (*p == '{')
        p = labels(p + 1, end, &le, &has_le);
    if (!p || !number(p, end, &v))
        return 0;
    if (which == 0) {
        if (!has_le)
            return 0;
        *found = true;
        return add_bucket(h, le, v);
    }
    *(which == 1 ? &h->sum : &h->count) += v;
    return 0;
}

int tr_scrape_hist(const char *page, size_t len, const char *name, struct tr_hist *out)
{
    struct tr_hist h = {0};
    bool found = false;
    const char *end = page + len;
    for (const char *p = page; p < end;) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        const char *stop = lf ? lf : end;
        int rc = take_line(&h, p, stop, name, &found);
        if (rc)
            return rc;
        p = stop + 1;
    }
    if (!found)
        return -ENOENT;
    *out = h;
    return 0;
}

int tr_scrape_value(const char *page, size_t len, const char *name, const char *label, double *out)
{
    size_t name_len = strlen(name);
    double sum = 0;
    bool found = false;
    const char *end = page + len;
    for (const char *p = page, *stop; p < end; p = stop + 1) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        stop = lf ? lf : end;
        if ((size_t)(stop - p) <= name_len || memcmp(p, name, name_len) != 0 ||
            !strchr("{ \t", p[name_len]))
            continue;
        const char *v = p + name_len, *from = v;
        double le, one;
        bool has_le;
        if (*v == '{')
            v = labels(v + 1, stop, &le, &has_le);
        if (!v || (label && !memmem(from, (size_t)(v - from), label, strlen(label))) ||
            !number(v, stop, &one))
            continue;
        sum += one;
        found = true;
    }
    if (!found)
        return -ENOENT;
    *out = sum;
    return 0;
}

static double cum_at(const struct tr_hist *h, double le)
{
    for (size_t i = 0; h && i < h->len; i++)
        if (h->le[i] == le)
            return h->cum[i];
    return 0;
}

int tr_hist_diff(const struct tr_hist *before, const struct tr_hist *after, struct tr_hist *out)
{
    struct tr_hist d = *after;
    if (before) {
        d.count -= before->count;
        d.sum -= before->sum;
    }
    for (size_t i = 0; i < d.len; i++) {
        d.cum[i] -= cum_at(before, d.le[i]);
        if (d.cum[i] < 0)
            return -ERANGE;
    }
    if (d.count < 0)
        return -ERANGE;
    *out = d;
    return 0;
}

double tr_hist_quantile(const struct tr_hist *h, double q)
{
    double total = h->len ? h->cum[h->len - 1] : 0;
    if (!(total > 0))
        return 0;
    double rank = q * total;
    for (size_t i = 0; i < h->len; i++) {
        if (h->cum[i] < rank || h->cum[i] <= 0)
            continue;
        double low = i ? h->le[i - 1] : 0, below = i ? h->cum[i - 1] : 0;
        if (isinf(h->le[i]))
            return low;
        if (h->cum[i] <= below)
            return h->le[i];
        return low + (h->le[i] - low) * (rank - below) / (h->cum[i] - below);
    }
    return h->len > 1 ? h->le[h->len - 2] : 0;
}
