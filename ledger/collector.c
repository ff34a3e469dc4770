/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/collector.h"

#include "base/hex.h"
#include "base/json.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECT_MS = 5000, URL_BYTES = 2048, HEADER_BYTES = 4096, RETRY_MAX_S = 120 };

static const char path[] = "/v1/traces";

struct tr_collector {
    CURL *curl;
    struct curl_slist *headers;
    const atomic_bool *give_up;
    char answer[TR_COLLECTOR_ANSWER];
    size_t answer_len;
    size_t head_len; /* of fields, trailers and interim answers included */
    bool head_over;
};

/* ---- the flags ---- */

/* Behind "http://" or "https://"; NULL: it is neither. */
static const char *authority(const char *url)
{
    if (strncasecmp(url, "http://", 7) == 0)
        return url + 7;
    return strncasecmp(url, "https://", 8) == 0 ? url + 8 : NULL;
}

static bool is_printable(const char *s)
{
    for (; *s; s++)
        if (*s <= 0x20 || *s > 0x7e)
            return false;
    return true;
}

static int check_url(const char *url, struct tr_errbuf *err)
{
    const char *host = authority(url);
    if (!host || !*host || *host == '/' || !is_printable(url) || strpbrk(host, "?#") ||
        strlen(url) > URL_BYTES - sizeof(path))
        return tr_errf(err, -EINVAL, "--otlp takes http://HOST:PORT or https://HOST:PORT");
    if (memchr(host, '@', strcspn(host, "/")))
        return tr_errf(err, -EINVAL, "--otlp takes no user and password: --otlp-headers does");
    return 0;
}

static bool is_name(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!((p[i] >= 'a' && p[i] <= 'z') || (p[i] >= 'A' && p[i] <= 'Z') ||
              (p[i] >= '0' && p[i] <= '9') || p[i] == '-' || p[i] == '_'))
            return false;
    return n > 0;
}

/* One "name=value" as a header; its length, or -EINVAL. */
static int header_of(const char *p, size_t n, char out[HEADER_BYTES])
{
    const char *eq = memchr(p, '=', n);
    size_t at = eq ? (size_t)(eq - p) : 0;
    if (!eq || !is_name(p, at) || n + 3 > HEADER_BYTES)
        return -EINVAL;
    memcpy(out, p, at);
    memcpy(out + at, ": ", 2);
    size_t len = at + 2;
    for (size_t i = at + 1; i < n; i++) {
        int c = (unsigned char)p[i];
        if (c == '%' && i + 2 < n && tr_hex_digit(p[i + 1]) >= 0 && tr_hex_digit(p[i + 2]) >= 0) {
            c = tr_hex_digit(p[i + 1]) << 4 | tr_hex_digit(p[i + 2]);
            i += 2;
        }
        if (c < 0x20 || c > 0x7e)
            return -EINVAL;
        out[len++] = (char)c;
    }
    out[len] = '\0';
    return len > at + 2 ? (int)len : -EINVAL;
}

/* Adds all of them to *list, if it is not NULL. */
static int read_headers(const char *s, struct curl_slist **list, struct tr_errbuf *err)
{
    char line[HEADER_BYTES];
    int ret = 0;
    while (*s && !ret) {
        size_t n = strcspn(s, ",");
        bool good = header_of(s, n, line) >= 0;
        struct curl_slist *more = good && list ? curl_slist_append(*list, line) : NULL;
        if (!good)
            ret = tr_errf(err, -EINVAL, "--otlp-headers takes NAME=VALUE,NAME=VALUE");
        else if (list && !more)
            ret = tr_errf(err, -ENOMEM, "no memory for --otlp-headers");
        else if (list)
            *list = more;
        s += n + (s[n] == ',');
    }
    explicit_bzero(line, sizeof(line));
    return ret;
}

int tr_collector_check(const char *url, const char *headers, struct tr_errbuf *err)
{
    int ret = check_url(url, err);
    return ret ? ret : read_headers(headers, NULL, err);
}

/* ---- the conversation ---- */

/* More than is read ends it; what it is, the status has said by then. */
static size_t take(char *data, size_t size, size_t n, void *arg)
{
    struct tr_collector *c = arg;
    size_t len = size * n;
    if (len > sizeof(c->answer) - c->answer_len)
        return 0;
    memcpy(c->answer + c->answer_len, data, len);
    c->answer_len += len;
    return len;
}

/* The library keeps every field, those of trailers without a bound. */
static size_t hear(char *data, size_t size, size_t n, void *arg)
{
    struct tr_collector *c = arg;
    size_t len = size * n;
    if (len > 5 && memcmp(data, "HTTP/", 5) == 0)
        c->head_over = false;
    else if (len && (*data == '\r' || *data == '\n'))
        c->head_over = true;
    c->head_len += len;
    return c->head_len <= TR_COLLECTOR_ANSWER ? len : 0;
}

static int look(void *arg, curl_off_t dt, curl_off_t dn, curl_off_t ut, curl_off_t un)
{
    const struct tr_collector *c = arg;
    (void)dt, (void)dn, (void)ut, (void)un;
    return atomic_load_explicit(c->give_up, memory_order_relaxed);
}

static int set_options(struct tr_collector *c, const char *url, const char *ca)
{
    char full[URL_BYTES];
    size_t n = strlen(url);
    while (n && url[n - 1] == '/')
        n--;
    bool whole =
        n >= sizeof(path) - 1 && memcmp(url + n - (sizeof(path) - 1), path, sizeof(path) - 1) == 0;
    snprintf(full, sizeof(full), "%.*s%s", (int)n, url, whole ? "" : path);
    CURL *k = c->curl;
    bool bad =
        curl_easy_setopt(k, CURLOPT_URL, full) ||
        curl_easy_setopt(k, CURLOPT_PROTOCOLS_STR, "http,https") ||
        curl_easy_setopt(k, CURLOPT_HTTPHEADER, c->headers) ||
        curl_easy_setopt(k, CURLOPT_POST, 1L) || curl_easy_setopt(k, CURLOPT_NOSIGNAL, 1L) ||
        curl_easy_setopt(k, CURLOPT_PROXY, "") || curl_easy_setopt(k, CURLOPT_FOLLOWLOCATION, 0L) ||
        curl_easy_setopt(k, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS) ||
        curl_easy_setopt(k, CURLOPT_TIMEOUT_MS, (long)TR_COLLECTOR_MS) ||
        curl_easy_setopt(k, CURLOPT_WRITEFUNCTION, take) ||
        curl_easy_setopt(k, CURLOPT_WRITEDATA, c) ||
        curl_easy_setopt(k, CURLOPT_HEADERFUNCTION, hear) ||
        curl_easy_setopt(k, CURLOPT_HEADERDATA, c) || curl_easy_setopt(k, CURLOPT_NOPROGRESS, 0L) ||
        curl_easy_setopt(k, CURLOPT_XFERINFOFUNCTION, look) ||
        curl_easy_setopt(k, CURLOPT_XFERINFODATA, c) ||
        curl_easy_setopt(k, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) ||
        (*ca && curl_easy_setopt(k, CURLOPT_CAINFO, ca));
    return bad ? -ENOMEM : 0;
}

int tr_collector_open(struct tr_collector **out, const char *url, const char *headers,
                      const char *ca, const atomic_bool *give_up, struct tr_errbuf *err)
{
    int ret = tr_collector_check(url, headers, err);
    struct tr_collector *c = ret ? NULL : calloc(1, sizeof(*c));
    if (ret)
        return ret;
    if (!c || curl_global_init(CURL_GLOBAL_DEFAULT) || !(c->curl = curl_easy_init())) {
        free(c);
        return tr_errf(err, -ENOMEM, "cannot prepare the export of traces");
    }
    c->give_up = give_up;
    c->headers = curl_slist_append(NULL, "Content-Type: application/json");
    ret = read_headers(headers, &c->headers, err);
    if (!ret && set_options(c, url, *ca ? ca : ""))
        ret = tr_errf(err, -ENOMEM, "cannot prepare the export of traces");
    if (ret) {
        tr_collector_close(c);
        return ret;
    }
    *out = c;
    return 0;
}

void tr_collector_close(struct tr_collector *c)
{
    if (!c)
        return;
    curl_easy_cleanup(c->curl);
    curl_slist_free_all(c->headers);
    curl_global_cleanup();
    free(c);
}

uint64_t tr_collector_rejected(const char *body, size_t len)
{
    struct tr_json_fault f;
    struct tr_json_doc *doc = tr_json_parse(body, len, &f);
    int64_t n = 0;
    if (!doc)
        return 0;
    const struct tr_json *root = tr_json_root(doc);
    const struct tr_json *part =
        tr_json_is(root, TR_JSON_OBJECT) ? TR_JSON_GET(root, "partialSuccess") : NULL;
    const struct tr_json *v =
        tr_json_is(part, TR_JSON_OBJECT) ? TR_JSON_GET(part, "rejectedSpans") : NULL;
    char text[24];
    if (tr_json_is(v, TR_JSON_STRING) &&
        v->len < sizeof(text)) { /* as 64-bit numbers are written */
        memcpy(text, v->u.s, v->len);
        text[v->len] = '\0';
        n = strtoll(text, NULL, 10);
    } else if (v && v->type == TR_JSON_NUMBER && tr_json_i64(v, &n)) {
        n = 0;
    }
    tr_json_free(doc);
    return n > 0 ? (uint64_t)n : 0;
}

static enum tr_collected judge(struct tr_collector *c, long status, struct tr_collector_answer *a)
{
    curl_off_t retry = 0;
    if (status >= 200 && status < 300) {
        a->rejected = tr_collector_rejected(c->answer, c->answer_len);
        return TR_COLLECTED;
    }
    tr_errf(&a->why, 0, "the collector of traces answers with status %ld", status);
    if (status != 429 && status != 502 && status != 503 && status != 504)
        return TR_COLLECTOR_REFUSES;
    curl_easy_getinfo(c->curl, CURLINFO_RETRY_AFTER, &retry);
    a->retry_s = retry <= 0 ? 0 : retry < RETRY_MAX_S ? (unsigned)retry : RETRY_MAX_S;
    return TR_COLLECTOR_BUSY;
}

enum tr_collected tr_collector_post(struct tr_collector *c, const char *body, size_t len,
                                    struct tr_collector_answer *a)
{
    long status = 0;
    memset(a, 0, sizeof(*a));
    c->answer_len = c->head_len = 0;
    c->head_over = false;
    curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE, (long)len);
    CURLcode rc = curl_easy_perform(c->curl);
    curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
    if (rc == CURLE_OK || (rc == CURLE_WRITE_ERROR && status >= 200 && c->head_over))
        return judge(c, status, a);
    tr_errf(&a->why, 0, "the collector of traces cannot be reached: %s", curl_easy_strerror(rc));
    return TR_COLLECTOR_BUSY;
}
