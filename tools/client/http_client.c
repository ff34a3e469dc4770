/* SPDX-License-Identifier: Apache-2.0 */
#include "client/http_client.h"

#include "base/hex.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>

#define HEAD_MAX (64u << 10)
#define INTERIM_MAX 8

static int fault(struct tr_httpc *r, const char *why)
{
    r->fault = why;
    return -EPROTO;
}

/* HTTP/1.x SP 3DIGIT, then a space or the end. */
static int read_status_line(struct tr_httpc *r)
{
    const char *l = r->line;
    if (r->line_len < 12 || memcmp(l, "HTTP/1.", 7) != 0 || (l[7] != '0' && l[7] != '1') ||
        l[8] != ' ')
        return fault(r, "not an HTTP/1.x status line");
    int status = 0;
    for (int i = 9; i < 12; i++) {
        if (l[i] < '0' || l[i] > '9')
            return fault(r, "not an HTTP/1.x status line");
        status = status * 10 + (l[i] - '0');
    }
    if ((l[12] && l[12] != ' ') || status < 100)
        return fault(r, "not an HTTP/1.x status line");
    r->status = status;
    r->state = TR_HTTPC_HEADER;
    return 0;
}

static int read_length(struct tr_httpc *r, const char *v)
{
    uint64_t n = 0;
    size_t len = strlen(v);
    if (!len || len > 18 || strspn(v, "0123456789") != len)
        return fault(r, "content-length is not a number");
    for (size_t i = 0; i < len; i++)
        n = n * 10 + (uint64_t)(v[i] - '0');
    if (r->has_length && n != r->left)
        return fault(r, "two different content-lengths");
    r->has_length = true;
    r->left = n;
    return 0;
}

static int read_header(struct tr_httpc *r)
{
    char *colon = strchr(r->line, ':');
    if (!colon || colon == r->line || r->line[0] == ' ' || r->line[0] == '\t')
        return fault(r, "a header line without a name");
    *colon = 0;
    char *v = colon + 1 + strspn(colon + 1, " \t");
    char *end = r->line + r->line_len;
    while (end > v && (end[-1] == ' ' || end[-1] == '\t'))
        *--end = 0;

    if (!strcasecmp(r->line, "content-length"))
        return read_length(r, v);
    if (!strcasecmp(r->line, "transfer-encoding")) {
        if (r->chunked || strcasecmp(v, "chunked") != 0)
            return fault(r, "a transfer-encoding other than chunked");
        r->chunked = true;
    } else if (!strcasecmp(r->line, "content-encoding")) {
        if (strcasecmp(v, "identity") != 0)
            return fault(r, "a content-encoding that was not asked for");
    } else if (!strcasecmp(r->line, "retry-after")) {
        r->has_retry_after = *v != 0;
    } else if (!strcasecmp(r->line, "content-type")) {
        size_t n = strnlen(v, sizeof(r->content_type) - 1);
        for (size_t i = 0; i < n; i++)
            r->content_type[i] = (char)(v[i] >= 'A' && v[i] <= 'Z' ? v[i] + 32 : v[i]);
        r->content_type[n] = 0;
    }
    return 0;
}

static int end_head(struct tr_httpc *r)
{
    r->head_bytes = 0;
    if (r->status < 200) {
        if (r->status == 101 || ++r->interim > INTERIM_MAX)
            return fault(r, "interim responses without an end");
        r->status = 0;
        r->has_length = r->chunked = r->has_retry_after = false;
        r->left = 0;
        r->content_type[0] = 0;
        r->state = TR_HTTPC_STATUS_LINE;
        return 0;
    }
    bool bodyless = r->status == 204 || r->status == 304;
    if (bodyless || (!r->chunked && r->has_length && !r->left))
        r->state = TR_HTTPC_DONE;
    else if (r->chunked) /* a length beside it does not count (RFC 9112, 6.3) */
        r->state = TR_HTTPC_CHUNK_SIZE;
    else
        r->state = r->has_length ? TR_HTTPC_LENGTH_BODY : TR_HTTPC_CLOSE_BODY;
    if (r->ops->head)
        r->ops->head(r->ctx, r);
    return 0;
}

/* 1*HEXDIG, then nothing, white space or an extension, which is ignored. */
static int read_chunk_size(struct tr_httpc *r)
{
    uint64_t n = 0;
    size_t i = 0;
    for (; tr_hex_digit(r->line[i]) >= 0; i++) {
        if (i == 15)
            return fault(r, "a chunk size that is too large");
        n = n << 4 | (uint64_t)tr_hex_digit(r->line[i]);
    }
    char after = r->line[i];
    if (!i || (after && after != ';' && after != ' ' && after != '\t'))
        return fault(r, "a chunk size that is not a hex number");
    r->left = n;
    r->state = n ? TR_HTTPC_CHUNK_DATA : TR_HTTPC_TRAILER;
    return 0;
}

static int end_line(struct tr_httpc *r)
{
    if (r->line_len && r->line[r->line_len - 1] == '\r')
        r->line_len--;
    r->line[r->line_len] = 0;
    if (memchr(r->line, 0, r->line_len))
        return fault(r, "a NUL byte in the head");
    switch (r->state) {
    case TR_HTTPC_STATUS_LINE:
        return read_status_line(r);
    case TR_HTTPC_HEADER:
        return r->line_len ? read_header(r) : end_head(r);
    case TR_HTTPC_CHUNK_SIZE:
        return read_chunk_size(r);
    case TR_HTTPC_CHUNK_END:
        if (r->line_len)
            return fault(r, "a chunk longer than its size");
        r->state = TR_HTTPC_CHUNK_SIZE;
        return 0;
    default: /* TR_HTTPC_TRAILER */
        if (!r->line_len)
            r->state = TR_HTTPC_DONE;
        return 0;
    }
}

/* Takes bytes of the current line and acts on it when its LF is there.  Returns the bytes used or
 * a negative errno. */
static long push_line(struct tr_httpc *r, const char *bytes, size_t len)
{
    const char *lf = memchr(bytes, '\n', len);
    size_t n = lf ? (size_t)(lf - bytes) : len;
    if (n >= sizeof(r->line) - r->line_len)
        return fault(r, "a line over 8 KiB in the head or the chunk framing");
    memcpy(r->line + r->line_len, bytes, n);
    r->line_len += n;
    if (r->state != TR_HTTPC_CHUNK_SIZE && r->state != TR_HTTPC_CHUNK_END) {
        r->head_bytes += n + 1;
        if (r->head_bytes > HEAD_MAX)
            return fault(r, "a head or trailers over 64 KiB");
    }
    if (!lf)
        return (long)n;
    int rc = end_line(r);
    r->line_len = 0;
    return rc ? rc : (long)n + 1;
}

static long push_body(struct tr_httpc *r, const char *bytes, size_t len)
{
    if (r->state != TR_HTTPC_CLOSE_BODY && len > r->left)
        len = (size_t)r->left;
    r->body_bytes += len;
    if (r->body_bytes > r->body_limit)
        return fault(r, "a body over the limit");
    int rc = r->ops->body(r->ctx, bytes, len);
    if (rc)
        return rc;
    if (r->state == TR_HTTPC_CLOSE_BODY)
        return (long)len;
    r->left -= len;
    if (!r->left)
        r->state = r->state == TR_HTTPC_CHUNK_DATA ? TR_HTTPC_CHUNK_END : TR_HTTPC_DONE;
    return (long)len;
}

int tr_httpc_push(struct tr_httpc *r, const char *bytes, size_t len)
{
    while (len && r->state != TR_HTTPC_DONE) {
        bool body = r->state == TR_HTTPC_LENGTH_BODY || r->state == TR_HTTPC_CLOSE_BODY ||
                    r->state == TR_HTTPC_CHUNK_DATA;
        long n = body ? push_body(r, bytes, len) : push_line(r, bytes, len);
        if (n < 0)
            return (int)n;
        bytes += n;
        len -= (size_t)n;
    }
    return r->state == TR_HTTPC_DONE;
}

int tr_httpc_eof(struct tr_httpc *r)
{
    if (r->state == TR_HTTPC_DONE || r->state == TR_HTTPC_CLOSE_BODY) {
        r->state = TR_HTTPC_DONE;
        return 1;
    }
    if (r->state == TR_HTTPC_STATUS_LINE)
        r->fault = "closed before an answer";
    else if (r->state == TR_HTTPC_HEADER)
        r->fault = "closed within the head";
    else
        r->fault = "closed within the body";
    return -EPIPE;
}

void tr_httpc_init(struct tr_httpc *r, uint64_t body_limit, const struct tr_httpc_ops *ops,
                   void *ctx)
{
    memset(r, 0, offsetof(struct tr_httpc, line));
    r->line[0] = 0;
    r->body_limit = body_limit;
    r->ops = ops;
    r->ctx = ctx;
}

void tr_client_raise_descriptors(void)
{
    struct rlimit r;
    if (!getrlimit(RLIMIT_NOFILE, &r)) {
        r.rlim_cur = r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r);
    }
}
