/* SPDX-License-Identifier: Apache-2.0 */
#include "testoracle/http_oracle.h"

#include "base/emit.h"
#include "frontend/http.h"

#include <http_parser.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* One request as one of the two sees it.  `fields` holds "name\0value\n" for each. */
struct view {
    bool head, end;
    size_t head_end, used;
    int method, minor; /* -1: a method without a name */
    bool keep;
    struct tr_emit path, query, fields, body;
};

static void view_init(struct view *v)
{
    *v = (struct view){.method = -1};
    tr_emit_init(&v->path);
    tr_emit_init(&v->query);
    tr_emit_init(&v->fields);
    tr_emit_init(&v->body);
}

static void view_fini(struct view *v)
{
    tr_emit_fini(&v->path);
    tr_emit_fini(&v->query);
    tr_emit_fini(&v->fields);
    tr_emit_fini(&v->body);
}

static bool same(const struct tr_emit *a, const struct tr_emit *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->buf, b->buf, a->len) == 0);
}

/* ---- ours ------------------------------------------------------------------------------ */

static void our_head(const struct tr_http *h, struct view *v)
{
    v->head = true;
    for (int m = 0; m < HTTP_SOURCE + 1; m++)
        if (strcmp(http_method_str((enum http_method)m), tr_http_method_name(h->method)) == 0)
            v->method = m;
    v->minor = h->minor;
    v->keep = h->keep_alive;
    tr_emit_bytes(&v->path, h->path.p, h->path.len);
    if (h->query.len)
        tr_emit_bytes(&v->query, h->query.p, h->query.len);
    for (size_t i = 0; i < h->n_fields; i++) {
        const struct tr_http_field *f = &h->fields[i];
        tr_emit_bytes(&v->fields, h->head + f->name, f->name_len);
        tr_emit_bytes(&v->fields, "", 1);
        tr_emit_bytes(&v->fields, h->head + f->value, f->value_len);
        tr_emit_bytes(&v->fields, "\n", 1);
    }
}

static void read_ours(struct tr_http *h, const char *s, size_t len, struct view *v)
{
    enum tr_http_ev ev;
    do {
        size_t used;
        struct tr_slice piece;
        ev = tr_http_feed(h, s + v->used, len - v->used, &used, &piece);
        v->used += used;
        if (ev == TR_HTTP_HEAD) {
            our_head(h, v);
            v->head_end = v->used;
        } else if (ev == TR_HTTP_BODY)
            tr_emit_bytes(&v->body, piece.p, piece.len);
    } while (ev == TR_HTTP_HEAD || ev == TR_HTTP_BODY);
    v->end = ev == TR_HTTP_END;
}

/* ---- theirs ---------------------------------------------------------------------------- */

struct theirs {
    struct view v;
    struct tr_emit url, value;
    bool in_value;
    unsigned fault; /* enum http_errno */
};

static struct theirs *of(http_parser *p)
{
    return p->data;
}

/* A value is complete when the next name begins: blanks at its end are not part of it. */
static void end_value(struct theirs *t)
{
    size_t n = t->value.len;
    while (n && (t->value.buf[n - 1] == ' ' || t->value.buf[n - 1] == '\t'))
        n--;
    tr_emit_bytes(&t->v.fields, "", 1);
    if (n)
        tr_emit_bytes(&t->v.fields, t->value.buf, n);
    tr_emit_bytes(&t->v.fields, "\n", 1);
    tr_emit_reset(&t->value);
    t->in_value = false;
}

static int on_url(http_parser *p, const char *at, size_t len)
{
    tr_emit_bytes(&of(p)->url, at, len);
    return 0;
}

static int on_name(http_parser *p, const char *at, size_t len)
{
    struct theirs *t = of(p);
    if (t->v.head)
        return 0; /* of a trailer */
    if (t->in_value)
        end_value(t);
    for (size_t i = 0; i < len; i++) {
        char c = at[i] >= 'A' && at[i] <= 'Z' ? (char)(at[i] + 32) : at[i];
        tr_emit_bytes(&t->v.fields, &c, 1);
    }
    return 0;
}

static int on_value(http_parser *p, const char *at, size_t len)
{
    struct theirs *t = of(p);
    if (t->v.head)
        return 0;
    t->in_value = true;
    tr_emit_bytes(&t->value, at, len);
    return 0;
}

/* The path and query of what stands in the request line, by a second, slower reading of the rules:
 * decode everything, then squeeze the slashes. */
static void split_url(struct theirs *t)
{
    const char *u = t->url.buf;
    size_t n = t->url.len, at = 0;
    size_t scheme = n > 8 && strncasecmp(u, "https://", 8) == 0  ? 8
                    : n > 7 && strncasecmp(u, "http://", 7) == 0 ? 7
                                                                 : 0;
    if (scheme)
        for (at = scheme; at < n && u[at] != '/' && u[at] != '?';)
            at++;
    const char *q = memchr(u + at, '?', n - at);
    size_t end = q ? (size_t)(q - u) : n, m = 0;
    if (q && n - end > 1)
        tr_emit_bytes(&t->v.query, q + 1, n - end - 1);
    char *p = malloc(end - at + 2);
    if (!p)
        abort();
    for (; at < end; at++) {
        char two[3] = {0};
        if (u[at] == '%' && end - at > 2) {
            memcpy(two, u + at + 1, 2);
            p[m++] = (char)strtol(two, NULL, 16);
            at += 2;
        } else {
            p[m++] = u[at];
        }
    }
    if (m == 0)
        p[m++] = '/';
    char last = 0;
    for (size_t i = 0; i < m; last = p[i++])
        if (!(p[i] == '/' && last == '/'))
            tr_emit_bytes(&t->v.path, p + i, 1);
    if (t->v.path.len > 1 && last == '/')
        t->v.path.len--;
    free(p);
}

static int on_head(http_parser *p)
{
    struct theirs *t = of(p);
    if (t->in_value || (t->v.fields.len && t->v.fields.buf[t->v.fields.len - 1] != '\n'))
        end_value(t);
    t->v.head = true;
    t->v.method = (int)p->method;
    t->v.minor = (int)p->http_minor;
    t->v.keep = http_should_keep_alive(p) != 0;
    split_url(t);
    return 0;
}

static int on_body(http_parser *p, const char *at, size_t len)
{
    tr_emit_bytes(&of(p)->v.body, at, len);
    return 0;
}

static int on_end(http_parser *p)
{
    of(p)->v.end = true;
    http_parser_pause(p, 1);
    return 0;
}

static void read_theirs(const char *s, size_t len, struct theirs *t)
{
    static const http_parser_settings set = {.on_url = on_url,
                                             .on_header_field = on_name,
                                             .on_header_value = on_value,
                                             .on_headers_complete = on_head,
                                             .on_body = on_body,
                                             .on_message_complete = on_end};
    http_parser p;
    memset(t, 0, sizeof(*t));
    view_init(&t->v);
    tr_emit_init(&t->url);
    tr_emit_init(&t->value);
    http_parser_init(&p, HTTP_REQUEST);
    p.data = t;
    t->v.used = http_parser_execute(&p, &set, s, len);
    t->fault = p.http_errno;
}

static void theirs_fini(struct theirs *t)
{
    view_fini(&t->v);
    tr_emit_fini(&t->url);
    tr_emit_fini(&t->value);
}

/* ---- beside each other ------------------------------------------------------------------- */

/* Whether http-parser's fault is one of those in the header. */
static bool known(const struct tr_http *h, const struct view *ours, const struct theirs *t,
                  const char *s, size_t len)
{
    bool long_name = false;
    for (size_t i = 0; i < h->n_fields; i++)
        long_name |= h->fields[i].name_len > 17 &&
                     memcmp(h->head + h->fields[i].name, "transfer-encoding", 17) == 0;
    switch (t->fault) {
    case HPE_INVALID_METHOD:
        return ours->method < 0;
    case HPE_INVALID_TRANSFER_ENCODING:
        return long_name || h->trailers;
    case HPE_INVALID_CONTENT_LENGTH:
        return h->content_length == INT64_MAX || h->trailers;
    case HPE_UNEXPECTED_CONTENT_LENGTH:
        return long_name || h->trailers;
    case HPE_INVALID_CHUNK_SIZE:
        return memchr(s, '\t', len) != NULL;
    default:
        return false;
    }
}

static bool is_token(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool letter = (p[i] | 0x20) >= 'a' && (p[i] | 0x20) <= 'z';
        if (!letter && (p[i] == '\0' || !strchr("!#$%&'*+-.^_`|~0123456789", p[i])))
            return false;
    }
    return n > 0;
}

/* Whether it is the begin of a word that http-parser looks for: it then misses the comma after. */
static bool is_begin(const char *p, size_t n)
{
    static const char *const words[] = {"close", "keep-alive", "upgrade"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (n < strlen(words[i]) && strncasecmp(p, words[i], n) == 0)
            return true;
    return false;
}

/* Whether http-parser does not read Connection to its end. */
static bool odd_connection(const struct tr_http *h)
{
    for (size_t i = 0; i < h->n_fields; i++) {
        const struct tr_http_field *f = &h->fields[i];
        const char *v = h->head + f->value, *end = v + f->value_len;
        if (f->name_len != 10 || memcmp(h->head + f->name, "connection", 10) != 0)
            continue;
        if (memchr(v - 1, '\t', (size_t)(strchr(v, '\r') - v) + 1))
            return true;
        while (v < end) {
            const char *comma = memchr(v, ',', (size_t)(end - v));
            const char *stop = comma ? comma : end, *last = stop;
            while (v < last && *v == ' ')
                v++;
            while (v < last && last[-1] == ' ')
                last--;
            if (!is_token(v, (size_t)(last - v)) || is_begin(v, (size_t)(last - v)))
                return true;
            v = stop + 1;
        }
    }
    return h->minor == 0;
}

struct framing {
    unsigned hosts, lengths, codings;
    bool odd; /* a length that is no number, a coding that is not chunked */
};

static bool starts(const char *p, size_t n, const char *name)
{
    return n > strlen(name) && strncasecmp(p, name, strlen(name)) == 0 && p[strlen(name)] == ':';
}

/* One line of a head we took: what is wrong with it, by a second reading of the rules. */
static const char *unclean_line(const char *p, size_t n, bool first, struct framing *f)
{
    size_t spaces = 0, name = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return "a control character was taken";
        spaces += c == ' ';
    }
    if (first)
        return spaces == 2 && !memchr(p, '\t', n) ? NULL : "a request line of other than 3 words";
    while (name < n && is_token(p + name, 1))
        name++;
    if (name == 0 || name == n || p[name] != ':')
        return "a field without its name";
    const char *v = p + name + 1, *end = p + n;
    while (v < end && *v == ' ')
        v++;
    while (v < end && end[-1] == ' ')
        end--;
    f->hosts += starts(p, n, "host");
    if (starts(p, n, "content-length")) {
        f->lengths++;
        f->odd |= v == end || strspn(v, "0123456789") != (size_t)(end - v);
    }
    if (starts(p, n, "transfer-encoding")) {
        f->codings++;
        f->odd |= end - v != 7 || strncasecmp(v, "chunked", 7) != 0;
    }
    return NULL;
}

/* What is wrong with a head that we took, or NULL. */
static const char *unclean_head(const struct view *v, const char *s)
{
    struct framing f = {0};
    const char *p = s, *end = s + v->head_end, *lf;
    bool first = true;
    if (v->head_end > 2 && memcmp(p, "\r\n", 2) == 0)
        p += 2;
    for (; p < end; p = lf + 1, first = false) {
        lf = memchr(p, '\n', (size_t)(end - p));
        if (!lf || lf == p || lf[-1] != '\r')
            return "a line that does not end in CR LF was taken";
        if (lf + 1 == end)
            break; /* the empty one */
        const char *why = unclean_line(p, (size_t)(lf - p) - 1, first, &f);
        if (why)
            return why;
    }
    if (f.hosts > 1 || (f.hosts == 0 && v->minor == 1))
        return "other than one Host was taken";
    if (f.lengths + f.codings > 1 || f.odd || (f.codings && v->minor == 0))
        return "framing with two readings was taken";
    return NULL;
}

/* The line at *p, which then stands behind its CR LF; its length, or -1. */
static ptrdiff_t clean_line(const char **p, const char *end)
{
    const char *begin = *p, *lf = memchr(begin, '\n', (size_t)(end - begin));
    if (!lf || lf == begin || lf[-1] != '\r' || memchr(begin, '\r', (size_t)(lf - begin) - 1))
        return -1;
    *p = lf + 1;
    return lf - 1 - begin;
}

/* What is wrong with a chunked body that we took whole, read once more; or NULL.  The library that
 * is installed does not look at the line ends of chunks. */
static const char *unclean_chunks(const struct view *v, const char *s)
{
    const char *p = s + v->head_end, *end = s + v->used;
    size_t at = 0;
    for (;;) {
        const char *line = p;
        ptrdiff_t n = clean_line(&p, end);
        char *stop;
        if (n <= 0 || !strchr("0123456789abcdefABCDEF", *line))
            return "a chunk size that is none was taken";
        size_t size = strtoull(line, &stop, 16); /* ended by CR at the latest */
        if (stop != line + n && *stop != ';' && *stop != ' ' && *stop != '\t')
            return "something else than an extension was taken after a chunk size";
        if (size == 0)
            break;
        if (size > (size_t)(end - p) || size > v->body.len - at ||
            memcmp(p, v->body.buf + at, size) != 0)
            return "a chunk's data";
        at += size;
        p += size;
        if (clean_line(&p, end) != 0)
            return "a chunk that does not end where its size says was taken";
    }
    for (ptrdiff_t n; (n = clean_line(&p, end)) != 0;)
        if (n < 0)
            return "a trailer that is no line was taken";
    return at == v->body.len && p == end ? NULL : "where a chunked body ends";
}

static const char *difference(const struct tr_http *h, const struct view *a, const struct view *b)
{
    if (!b->head)
        return "http-parser does not take the head";
    if (a->method >= 0 && a->method != b->method)
        return "method";
    if (a->minor != b->minor)
        return "version";
    if (!same(&a->path, &b->path))
        return "path";
    if (!same(&a->query, &b->query))
        return "query";
    if (!same(&a->fields, &b->fields))
        return "fields";
    if (a->keep != b->keep && !odd_connection(h))
        return "whether the connection is kept";
    if (!same(&a->body, &b->body))
        return "body";
    if (a->end != b->end)
        return "whether the request is complete";
    if (a->end && a->used != b->used)
        return "where the request ends";
    return NULL;
}

/* One request.  Whether another may follow. */
static bool compare(struct tr_http *h, const char *s, size_t len, struct http_agreed *got,
                    const char **why)
{
    struct view ours;
    struct theirs t;
    bool more = false;
    view_init(&ours);
    read_ours(h, s, len, &ours);
    read_theirs(s, len, &t);
    bool over = !ours.end && h->err != TR_OK; /* refused in the body: only the head was taken */
    if (over && ours.head) {
        tr_emit_reset(&ours.body);
        tr_emit_reset(&t.v.body);
        t.v.end = false;
    }
    if (ours.head)
        *why = unclean_head(&ours, s);
    if (ours.end && h->chunked && !*why)
        *why = unclean_chunks(&ours, s);
    if (ours.head && !*why && !known(h, &ours, &t, s, len)) {
        *why = difference(h, &ours, &t.v);
        got->heads += !*why;
        got->requests += !*why && ours.end;
        got->body_bytes += ours.body.len;
        got->bytes += ours.end ? ours.used : 0;
        more = !*why && ours.end && ours.used;
    }
    view_fini(&ours);
    theirs_fini(&t);
    return more;
}

const char *http_disagree(const char *s, size_t len, struct http_agreed *got)
{
    const char *why = NULL;
    struct tr_http h;
    *got = (struct http_agreed){0};
    tr_http_init(&h, HTTP_ORACLE_HEADER);
    while (compare(&h, s + got->bytes, len - got->bytes, got, &why))
        tr_http_next(&h);
    tr_http_fini(&h);
    return why;
}
