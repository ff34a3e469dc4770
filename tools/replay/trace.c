/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/trace.h"

#include "client/buf.h"
#include "client/chunk.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)256 << 20)
#define SECONDS_MAX 1e7
#define TOKENS_MAX 10000000

int tr_trace_class(struct tr_trace *t, const char *name)
{
    char clean[TR_TRACE_CLASS_NAME];
    tr_copy_clean(clean, sizeof(clean), name, strlen(name));
    for (unsigned i = 0; i < t->n_classes; i++)
        if (!strcmp(t->classes[i], clean))
            return (int)i;
    if (t->n_classes == TR_TRACE_CLASSES_MAX)
        return -ENOSPC;
    memcpy(t->classes[t->n_classes], clean, sizeof(clean));
    return (int)t->n_classes++;
}

int tr_trace_add(struct tr_trace *t, const struct tr_trace_entry *e)
{
    int rc = 0;
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 256;
        struct tr_trace_entry *p =
            t->n < TR_TRACE_ENTRIES_MAX ? realloc(t->e, cap * sizeof(*p)) : NULL;
        if (p) {
            t->e = p;
            t->cap = cap;
        } else {
            rc = t->n < TR_TRACE_ENTRIES_MAX ? -ENOMEM : -ENOSPC;
        }
    }
    if (rc)
        free(e->prompt);
    else
        t->e[t->n++] = *e;
    return rc;
}

static int earlier(const void *a, const void *b)
{
    const struct tr_trace_entry *x = a, *y = b;
    if (x->at_s != y->at_s)
        return x->at_s < y->at_s ? -1 : 1;
    return (x->line > y->line) - (x->line < y->line);
}

void tr_trace_sort(struct tr_trace *t)
{
    if (t->n)
        qsort(t->e, t->n, sizeof(*t->e), earlier);
}

void tr_trace_limit(struct tr_trace *t, size_t n)
{
    while (t->n > n)
        free(t->e[--t->n].prompt);
}

void tr_trace_fini(struct tr_trace *t)
{
    tr_trace_limit(t, 0);
    free(t->e);
    memset(t, 0, sizeof(*t));
}

/* ---- one line ---- */

struct line {
    struct tr_trace *t;
    struct tr_trace_entry e;
    bool has_at, has_max;
    struct tr_errbuf *err;
};

static int want(struct line *l, const char *key, const char *what)
{
    return tr_errf(l->err, -EINVAL, "%s must be %s", key, what);
}

static int take_seconds(struct line *l, const char *key, const json_t *v, double *to)
{
    double d = json_is_number(v) ? json_number_value(v) : -1;
    if (!isfinite(d) || d < 0 || d > SECONDS_MAX)
        return want(l, key, "a number of seconds, 0 to 10000000");
    *to = d;
    return 0;
}

static int take_tokens(struct line *l, const char *key, const json_t *v, uint64_t *to)
{
    json_int_t n = json_is_integer(v) ? json_integer_value(v) : 0;
    if (n < 1 || n > TOKENS_MAX)
        return want(l, key, "an integer, 1 to 10000000");
    *to = (uint64_t)n;
    return 0;
}

static int take_at(struct line *l, const char *key, const json_t *v)
{
    l->has_at = true;
    return take_seconds(l, key, v, &l->e.at_s);
}

static int take_prompt(struct line *l, const char *key, const json_t *v)
{
    if (!json_is_string(v) || !json_string_length(v) ||
        strlen(json_string_value(v)) != json_string_length(v))
        return want(l, key, "a text that is not empty and holds no NUL");
    l->e.prompt = strdup(json_string_value(v));
    return l->e.prompt ? 0 : tr_errf(l->err, -ENOMEM, "no memory");
}

static int take_prompt_tokens(struct line *l, const char *key, const json_t *v)
{
    return take_tokens(l, key, v, &l->e.prompt_tokens);
}

static int take_chat(struct line *l, const char *key, const json_t *v)
{
    return take_tokens(l, key, v, &l->e.chat);
}

static int take_max_tokens(struct line *l, const char *key, const json_t *v)
{
    l->has_max = true;
    return take_tokens(l, key, v, &l->e.max_tokens);
}

static int take_abandon(struct line *l, const char *key, const json_t *v)
{
    return take_seconds(l, key, v, &l->e.abandon_s);
}

static int take_abandon_after_first(struct line *l, const char *key, const json_t *v)
{
    return take_seconds(l, key, v, &l->e.abandon_after_first_s);
}

static int take_read(struct line *l, const char *key, const json_t *v)
{
    double d = json_is_number(v) ? json_number_value(v) : -1;
    if (!isfinite(d) || d < 0 || d > 1e12)
        return want(l, key, "a number of bytes per second, 0 or more");
    l->e.read_bps = d;
    l->e.paced = true;
    return 0;
}

static int take_class(struct line *l, const char *key, const json_t *v)
{
    size_t n = json_is_string(v) ? json_string_length(v) : 0;
    if (!n || n >= TR_TRACE_CLASS_NAME)
        return want(l, key, "a name of 1 to 31 bytes");
    int id = tr_trace_class(l->t, json_string_value(v));
    if (id < 0)
        return tr_errf(l->err, -EINVAL, "more than %d classes", TR_TRACE_CLASSES_MAX);
    l->e.class_id = (unsigned)id;
    return 0;
}

static int take_stream(struct line *l, const char *key, const json_t *v)
{
    if (!json_is_boolean(v))
        return want(l, key, "true or false");
    l->e.stream = json_is_true(v);
    return 0;
}

static const struct {
    const char *key;
    int (*take)(struct line *l, const char *key, const json_t *v);
} fields[] = {
    {"at", take_at},
    {"prompt", take_prompt},
    {"prompt_tokens", take_prompt_tokens},
    {"chat", take_chat},
    {"max_tokens", take_max_tokens},
    {"abandon_s", take_abandon},
    {"abandon_after_first_s", take_abandon_after_first},
    {"read_bps", take_read},
    {"class", take_class},
    {"stream", take_stream},
};
enum { N_FIELDS = sizeof(fields) / sizeof(fields[0]) };

static void note_unknown(struct tr_trace *t, const char *key)
{
    char clean[TR_TRACE_CLASS_NAME];
    tr_copy_clean(clean, sizeof(clean), key, strlen(key));
    for (unsigned i = 0; i < t->n_unknown; i++)
        if (!strcmp(t->unknown[i], clean))
            return;
    if (t->n_unknown < TR_TRACE_UNKNOWN_MAX)
        memcpy(t->unknown[t->n_unknown++], clean, sizeof(clean));
}

static int take_fields(struct line *l, json_t *o)
{
    const char *key;
    json_t *v;
    bool unknown = false;
    json_object_foreach(o, key, v)
    {
        int i = 0;
        while (i < N_FIELDS && strcmp(fields[i].key, key) != 0)
            i++;
        if (i == N_FIELDS) {
            note_unknown(l->t, key);
            unknown = true;
        } else if (!json_is_null(v)) {
            int rc = fields[i].take(l, key, v);
            if (rc)
                return rc;
        }
    }
    l->t->unknown_lines += unknown;
    return 0;
}

static int check(struct line *l)
{
    if (!l->has_at)
        return tr_errf(l->err, -EINVAL, "no arrival time (at)");
    if (!l->has_max)
        return tr_errf(l->err, -EINVAL, "no max_tokens");
    if (!l->e.prompt == !l->e.prompt_tokens)
        return tr_errf(l->err, -EINVAL, "either prompt or prompt_tokens is needed");
    if (l->e.chat && l->e.prompt)
        return tr_errf(l->err, -EINVAL, "chat needs prompt_tokens");
    if (!l->e.stream && l->e.abandon_after_first_s >= 0)
        return tr_errf(l->err, -EINVAL, "abandon_after_first_s needs a stream");
    return 0;
}

static int take_line(struct line *l, const char *bytes, size_t len)
{
    json_error_t bad;
    json_t *o = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, &bad);
    l->e = (struct tr_trace_entry){.abandon_s = TR_TRACE_NEVER,
                                   .abandon_after_first_s = TR_TRACE_NEVER,
                                   .stream = true,
                                   .class_id = UINT32_MAX,
                                   .line = l->e.line};
    l->has_at = l->has_max = false;
    int rc = json_is_object(o) ? take_fields(l, o)
             : o               ? tr_errf(l->err, -EINVAL, "not a JSON object")
                               : tr_errf(l->err, -EINVAL, "not JSON: %s", bad.text);
    json_decref(o);
    if (!rc)
        rc = check(l);
    if (!rc && l->e.class_id == UINT32_MAX) {
        int id = tr_trace_class(l->t, "default");
        rc = id < 0 ? tr_errf(l->err, -EINVAL, "more than %d classes", TR_TRACE_CLASSES_MAX) : 0;
        l->e.class_id = (unsigned)id;
    }
    if (rc) {
        free(l->e.prompt);
        return rc;
    }
    rc = tr_trace_add(l->t, &l->e);
    return rc ? tr_errf(l->err, rc, rc == -ENOMEM ? "no memory" : "more than a million requests")
              : 0;
}

static bool blank(const char *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!strchr(" \t\r", p[i]))
            return false;
    return true;
}

int tr_trace_parse(struct tr_trace *t, const char *name, const char *bytes, size_t len,
                   struct tr_errbuf *err)
{
    struct tr_errbuf own = {0};
    struct line l = {.t = t, .err = &own};
    const char *end = bytes + len;
    memset(t, 0, sizeof(*t));
    for (const char *p = bytes, *stop; p < end; p = stop + 1) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        stop = lf ? lf : end;
        l.e.line++;
        if (blank(p, (size_t)(stop - p)))
            continue;
        int rc = take_line(&l, p, (size_t)(stop - p));
        if (rc)
            return tr_errf(err, rc, "%s:%zu: %s", name, l.e.line, own.msg);
    }
    if (!t->n)
        return tr_errf(err, -EINVAL, "%s: no request in it", name);
    tr_trace_sort(t);
    return 0;
}

int tr_trace_load(struct tr_trace *t, const char *path, struct tr_errbuf *err)
{
    bool standard = !strcmp(path, "-");
    FILE *f = standard ? stdin : fopen(path, "rb");
    struct tr_buf b = {0};
    char part[65536];
    int rc = 0;
    memset(t, 0, sizeof(*t));
    if (!f)
        return tr_errf(err, -EINVAL, "%s: %s (built-in traces: chat, mixed, abandonment, turns)",
                       path, strerror(errno));
    for (size_t n; !rc && (n = fread(part, 1, sizeof(part), f)) > 0;)
        rc = b.len + n > FILE_BYTES_MAX ? -EFBIG : tr_buf_append(&b, part, n);
    if (!rc && ferror(f))
        rc = -EIO;
    if (!standard)
        fclose(f);
    if (rc)
        rc = tr_errf(err, -EINVAL, "%s: %s", path, strerror(-rc));
    else
        rc = tr_trace_parse(t, standard ? "standard input" : path, b.p ? b.p : "", b.len, err);
    free(b.p);
    return rc;
}

static void print_text(const char *key, const char *v, FILE *out)
{
    json_t *s = json_string(v);
    char *text = s ? json_dumps(s, JSON_ENCODE_ANY) : NULL;
    fprintf(out, ",\"%s\":%s", key, text ? text : "null");
    free(text);
    json_decref(s);
}

void tr_trace_print(const struct tr_trace *t, FILE *out)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct tr_trace_entry *e = &t->e[i];
        fprintf(out, "{\"at\":%.3f", e->at_s);
        print_text("class", t->classes[e->class_id], out);
        if (e->prompt)
            print_text("prompt", e->prompt, out);
        else
            fprintf(out, ",\"prompt_tokens\":%llu", (unsigned long long)e->prompt_tokens);
        if (e->chat)
            fprintf(out, ",\"chat\":%llu", (unsigned long long)e->chat);
        fprintf(out, ",\"max_tokens\":%llu", (unsigned long long)e->max_tokens);
        if (e->abandon_s >= 0)
            fprintf(out, ",\"abandon_s\":%.3f", e->abandon_s);
        if (e->abandon_after_first_s >= 0)
            fprintf(out, ",\"abandon_after_first_s\":%.3f", e->abandon_after_first_s);
        if (e->paced)
            fprintf(out, ",\"read_bps\":%.0f", e->read_bps);
        fprintf(out, "%s}\n", e->stream ? "" : ",\"stream\":false");
    }
}
