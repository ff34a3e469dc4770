/* SPDX-License-Identifier: Apache-2.0 */
/* Grammar: RFC 9112 (HTTP/1.1) and RFC 9110 (fields). */
#include "frontend/http_priv.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    FIRST_HEAD_BYTES = 1024,
    KEEP_HEAD_BYTES = 4096,
    MAX_SIZE_DIGITS = 15,
    MAX_EXT_BYTES = 4096,
    REQUEST_LINE_REST = 64 /* method, version and spaces beside the target */
};

enum state {
    START,
    HEAD,
    BODY,
    SIZE,
    SIZE_SPACE,
    EXT,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_START,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    LAST_LF,
    DONE,
    BAD
};

static const char *const method_name[TR_HTTP_METHODS] = {
    [TR_HTTP_GET] = "GET",         [TR_HTTP_HEAD_METHOD] = "HEAD", [TR_HTTP_POST] = "POST",
    [TR_HTTP_PUT] = "PUT",         [TR_HTTP_DELETE] = "DELETE",    [TR_HTTP_PATCH] = "PATCH",
    [TR_HTTP_OPTIONS] = "OPTIONS", [TR_HTTP_OTHER] = "",
};

const char *tr_http_method_name(enum tr_http_method m)
{
    return m < TR_HTTP_METHODS ? method_name[m] : "";
}

void tr_http_init(struct tr_http *h, size_t max_header)
{
    memset(h, 0, sizeof(*h));
    h->max_header = max_header;
}

void tr_http_fini(struct tr_http *h)
{
    free(h->head);
    h->head = NULL;
}

void tr_http_next(struct tr_http *h)
{
    char *head = h->head;
    size_t cap = h->head_cap;
    if (cap > KEEP_HEAD_BYTES) {
        free(head);
        head = NULL;
        cap = 0;
    }
    size_t max = h->max_header;
    tr_http_init(h, max);
    h->head = head;
    h->head_cap = cap;
}

bool tr_http_begun(const struct tr_http *h)
{
    return h->state != START;
}

enum tr_http_ev tr_http_bad(struct tr_http *h, enum tr_err err, const char *why)
{
    h->state = BAD;
    h->err = err;
    h->why = why;
    return TR_HTTP_BAD;
}

/* ---- characters ------------------------------------------------------------------------ */

/* May stand in a line of the head: no control character but HT. */
static bool is_text(unsigned char c)
{
    return (c >= 0x20 && c != 0x7f) || c == '\t';
}

/* ---- request line ---------------------------------------------------------------------- */

static enum tr_http_ev set_version(struct tr_http *h, const char *v, size_t len)
{
    if (len != 8 || memcmp(v, "HTTP/", 5) != 0 || !is_digit((unsigned char)v[5]) || v[6] != '.' ||
        !is_digit((unsigned char)v[7]))
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "The request line is not METHOD TARGET HTTP/1.1.");
    if (v[5] != '1' || v[7] > '1')
        return tr_http_bad(h, TR_ERR_HTTP_VERSION, NULL);
    h->minor = v[7] - '0';
    return TR_HTTP_MORE;
}

static enum tr_http_ev request_line(struct tr_http *h, size_t len)
{
    const char *l = h->head;
    size_t m = 0;
    while (m < len && is_token((unsigned char)l[m]))
        m++;
    const char *last = memrchr(l, ' ', len);
    /* The last space is the second one, with a target between. */
    if (m == 0 || m == len || l[m] != ' ' || last <= l + m + 1)
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "The request line is not METHOD TARGET HTTP/1.1.");
    h->method = TR_HTTP_OTHER;
    for (int i = 0; i < TR_HTTP_OTHER; i++)
        if (m == strlen(method_name[i]) && memcmp(l, method_name[i], m) == 0)
            h->method = (enum tr_http_method)i;
    size_t target = m + 1, end = (size_t)(last - l);
    if (set_version(h, last + 1, len - end - 1) == TR_HTTP_BAD)
        return TR_HTTP_BAD;
    if (m == 7 && memcmp(l, "CONNECT", 7) == 0)
        return tr_http_bad(h, TR_ERR_NOT_IMPLEMENTED, NULL);
    return tr_http_set_target(h, target, end - target);
}

/* ---- fields ---------------------------------------------------------------------------- */

static bool any_list_has(const struct tr_http *h, const char *name, const char *token)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < h->n_fields; i++) {
        const struct tr_http_field *f = &h->fields[i];
        if (f->name_len == len && memcmp(h->head + f->name, name, len) == 0 &&
            tr_http_list_has(slice_of(h, f->value, f->value_len), token))
            return true;
    }
    return false;
}

static bool is_framing(struct tr_slice name)
{
    return same(name, "content-length") || same(name, "transfer-encoding");
}

/* One line "name: value" at [line, line+len) of the head. */
static enum tr_http_ev field_line(struct tr_http *h, size_t len)
{
    char *l = h->head + h->line;
    size_t n = 0;
    if (is_space(l[0]))
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "A header field must not be folded.");
    if (h->n_fields == TR_HTTP_MAX_FIELDS)
        return tr_http_bad(h, TR_ERR_HEADERS_TOO_LARGE, NULL);
    for (; n < len && is_token((unsigned char)l[n]); n++)
        if (l[n] >= 'A' && l[n] <= 'Z')
            l[n] = (char)(l[n] | 0x20);
    if (n == 0 || n == len || l[n] != ':')
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "A header field is not NAME: VALUE.");
    /* A tab is a blank like a space, but there are readers that do not know. */
    if (is_framing((struct tr_slice){l, n}) && memchr(l + n + 1, '\t', len - n - 1))
        return tr_http_bad(h, TR_ERR_BAD_HTTP,
                           "A tab stands beside Content-Length or Transfer-Encoding.");
    struct tr_slice v = trim((struct tr_slice){l + n + 1, len - n - 1});
    h->fields[h->n_fields++] = (struct tr_http_field){
        .name = (uint32_t)h->line,
        .name_len = (uint32_t)n,
        .value = (uint32_t)(v.p - h->head),
        .value_len = (uint32_t)v.len,
    };
    return TR_HTTP_MORE;
}

/* ---- what the head as a whole means ------------------------------------------------------ */

static enum tr_http_ev check_host(struct tr_http *h)
{
    size_t n = tr_http_field_count(h, "host");
    if (n > 1 || (n == 0 && h->minor == 1))
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "A request needs exactly one Host.");
    struct tr_slice v = tr_http_field(h, "host"); /* empty: the target has no authority */
    if (v.len && !tr_http_authority(v))
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "Host is not a host.");
    return TR_HTTP_MORE;
}

static enum tr_http_ev check_length(struct tr_http *h)
{
    size_t n = tr_http_field_count(h, "content-length");
    struct tr_slice v = tr_http_field(h, "content-length");
    if (n == 0)
        return TR_HTTP_MORE;
    if (n > 1 || v.len == 0)
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "Content-Length must be one number.");
    uint64_t len = 0;
    for (size_t i = 0; i < v.len; i++) {
        if (!is_digit((unsigned char)v.p[i]))
            return tr_http_bad(h, TR_ERR_BAD_HTTP, "Content-Length must be one number.");
        uint64_t d = (uint64_t)(v.p[i] - '0');
        /* Beyond int64 it is only "more than anything we take". */
        len = len > (INT64_MAX - d) / 10 ? INT64_MAX : len * 10 + d;
    }
    h->content_length = len;
    h->has_body = len > 0;
    return TR_HTTP_MORE;
}

static enum tr_http_ev check_transfer_encoding(struct tr_http *h)
{
    size_t n = tr_http_field_count(h, "transfer-encoding");
    struct tr_slice v = tr_http_field(h, "transfer-encoding");
    if (n == 0)
        return TR_HTTP_MORE;
    if (h->minor == 0)
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "HTTP/1.0 has no Transfer-Encoding.");
    if (tr_http_field_count(h, "content-length"))
        return tr_http_bad(h, TR_ERR_BAD_HTTP,
                           "Content-Length and Transfer-Encoding exclude each other.");
    if (n > 1 || !same(v, "chunked"))
        return tr_http_bad(h, TR_ERR_BAD_HTTP,
                           "Transfer-Encoding must be chunked and nothing else.");
    h->chunked = true;
    h->has_body = true;
    return TR_HTTP_MORE;
}

static void check_rest(struct tr_http *h)
{
    h->keep_alive = h->minor == 1 ? !any_list_has(h, "connection", "close")
                                  : any_list_has(h, "connection", "keep-alive") &&
                                        !any_list_has(h, "connection", "close");
    size_t n = tr_http_field_count(h, "expect");
    if (n && h->minor == 1) {
        if (n > 1 || !same(tr_http_field(h, "expect"), "100-continue"))
            h->refuse = TR_ERR_EXPECTATION;
        else
            h->expect_continue = h->has_body;
    }
    struct tr_slice ce = tr_http_field(h, "content-encoding");
    if (h->refuse == TR_OK &&
        ((ce.len && !same(ce, "identity")) || tr_http_field_count(h, "content-encoding") > 1))
        h->refuse = TR_ERR_MEDIA_TYPE;
}

static enum tr_http_ev finish_head(struct tr_http *h)
{
    if (check_host(h) == TR_HTTP_BAD || check_length(h) == TR_HTTP_BAD ||
        check_transfer_encoding(h) == TR_HTTP_BAD)
        return TR_HTTP_BAD;
    check_rest(h);
    h->path = slice_of(h, h->target[0].off, h->target[0].len);
    h->query = slice_of(h, h->target[1].off, h->target[1].len);
    h->left = h->content_length;
    h->state = h->chunked ? SIZE : h->content_length ? BODY : DONE;
    return TR_HTTP_HEAD;
}

/* ---- the head, byte by byte ---------------------------------------------------------------- */

static enum tr_http_ev end_of_line(struct tr_http *h)
{
    if (h->head_len == h->line || h->head[h->head_len - 1] != '\r')
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "A line must end in CR LF.");
    size_t len = h->head_len - 1 - h->line;
    h->head[h->head_len++] = '\n';
    if (len == 0)
        return h->line == 0 ? tr_http_bad(h, TR_ERR_BAD_HTTP, "The request line is empty.")
                            : finish_head(h);
    enum tr_http_ev ev = h->line == 0 ? request_line(h, len) : field_line(h, len);
    h->line = h->head_len;
    return ev;
}

static bool head_room(struct tr_http *h)
{
    if (h->head_len + 2 <= h->head_cap)
        return true;
    size_t cap = h->head_cap ? h->head_cap * 2 : FIRST_HEAD_BYTES;
    char *p = realloc(h->head, cap);
    if (!p)
        return false;
    h->head = p;
    h->head_cap = cap;
    return true;
}

static enum tr_http_ev head_byte(struct tr_http *h, char c)
{
    if (h->line == 0 && h->head_len > TR_HTTP_MAX_TARGET + REQUEST_LINE_REST)
        return tr_http_bad(h, TR_ERR_URI_TOO_LONG, NULL);
    if (h->head_len >= h->max_header)
        return tr_http_bad(h, TR_ERR_HEADERS_TOO_LARGE, NULL);
    if (!head_room(h))
        return tr_http_bad(h, TR_ERR_INTERNAL, NULL);
    if (c == '\n')
        return end_of_line(h);
    if (h->head_len > h->line && h->head[h->head_len - 1] == '\r')
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "A CR must be followed by LF.");
    if (c != '\r' && !is_text((unsigned char)c))
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "A control character stands in the request head.");
    h->head[h->head_len++] = c;
    return TR_HTTP_MORE;
}

/* One empty line before a request is forgiven (RFC 9112 2.2): old clients end a body with it. */
static enum tr_http_ev start_byte(struct tr_http *h, char c, bool *eaten)
{
    *eaten = true;
    if (h->blank_seen && h->left == 1) {
        h->left = 0;
        return c == '\n' ? TR_HTTP_MORE
                         : tr_http_bad(h, TR_ERR_BAD_HTTP, "A CR must be followed by LF.");
    }
    if (c == '\r' && !h->blank_seen) {
        h->blank_seen = true;
        h->left = 1;
        return TR_HTTP_MORE;
    }
    *eaten = false;
    h->state = HEAD;
    return TR_HTTP_MORE;
}

/* ---- bodies ---------------------------------------------------------------------------- */

static enum tr_http_ev size_byte(struct tr_http *h, char c)
{
    int d = tr_hex_digit((unsigned char)c);
    if (d >= 0) {
        if (h->size_digits++ == MAX_SIZE_DIGITS)
            return tr_http_bad(h, TR_ERR_BAD_HTTP, "A chunk size is too long.");
        h->left = h->left << 4 | (uint64_t)d;
        return TR_HTTP_MORE;
    }
    if (h->size_digits == 0 || (c != ';' && c != '\r' && !is_space(c)))
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "A chunk size is not a hexadecimal number.");
    h->state = c == ';' ? EXT : c == '\r' ? SIZE_LF : SIZE_SPACE;
    return TR_HTTP_MORE;
}

/* Blanks may stand before an extension (RFC 9112 7.1.1), not before the end of the line. */
static enum tr_http_ev size_space(struct tr_http *h, char c)
{
    if ((c != ';' && !is_space(c)) || ++h->ext_bytes > MAX_EXT_BYTES)
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "A chunk size is not a hexadecimal number.");
    h->state = c == ';' ? EXT : SIZE_SPACE;
    return TR_HTTP_MORE;
}

/* Extensions mean nothing to anybody; they are passed over, and may be 4 KiB longer than the data. */
static enum tr_http_ev ext_byte(struct tr_http *h, char c)
{
    if (c == '\r') {
        h->state = SIZE_LF;
        return TR_HTTP_MORE;
    }
    if (!is_text((unsigned char)c) || ++h->ext_bytes > MAX_EXT_BYTES)
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "A chunk extension is too long or not text.");
    return TR_HTTP_MORE;
}

/* Trailers are checked for their shape, counted and dropped. */
static enum tr_http_ev trailer_byte(struct tr_http *h, char ch)
{
    unsigned char c = (unsigned char)ch;
    if (++h->trailer_bytes > h->max_header)
        return tr_http_bad(h, TR_ERR_HEADERS_TOO_LARGE, NULL);
    switch (h->state) {
    case TRAILER_START:
        if (c == '\r') {
            h->state = LAST_LF;
            return TR_HTTP_MORE;
        }
        if (++h->trailers > TR_HTTP_MAX_FIELDS)
            return tr_http_bad(h, TR_ERR_HEADERS_TOO_LARGE, NULL);
        h->state = TRAILER_NAME;
        return is_token(c) ? TR_HTTP_MORE
                           : tr_http_bad(h, TR_ERR_BAD_HTTP, "A trailer has no name.");
    case TRAILER_NAME:
        if (c == ':')
            h->state = TRAILER_VALUE;
        else if (!is_token(c))
            return tr_http_bad(h, TR_ERR_BAD_HTTP, "A trailer is not NAME: VALUE.");
        return TR_HTTP_MORE;
    case TRAILER_VALUE:
        if (c == '\r')
            h->state = TRAILER_LF;
        else if (!is_text(c))
            return tr_http_bad(h, TR_ERR_BAD_HTTP, "A control character stands in a trailer.");
        return TR_HTTP_MORE;
    default:
        if (c != '\n')
            return tr_http_bad(h, TR_ERR_BAD_HTTP, "A CR must be followed by LF.");
        h->state = h->state == LAST_LF ? DONE : TRAILER_START;
        return TR_HTTP_MORE;
    }
}

static enum tr_http_ev expect_byte(struct tr_http *h, char c, char want, int next)
{
    if (c != want)
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "A chunk does not end where its size says.");
    h->state = next;
    return TR_HTTP_MORE;
}

static enum tr_http_ev size_lf(struct tr_http *h, char c)
{
    if (c != '\n')
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "A CR must be followed by LF.");
    h->state = h->left ? DATA : TRAILER_START;
    h->ext_bytes -= h->left < h->ext_bytes ? (size_t)h->left : h->ext_bytes;
    h->size_digits = 0;
    return TR_HTTP_MORE;
}

/* Everything that is read byte by byte. */
static enum tr_http_ev one_byte(struct tr_http *h, char c, bool *eaten)
{
    switch (h->state) {
    case START:
        return start_byte(h, c, eaten);
    case HEAD:
        return head_byte(h, c);
    case SIZE:
        return size_byte(h, c);
    case SIZE_SPACE:
        return size_space(h, c);
    case EXT:
        return ext_byte(h, c);
    case SIZE_LF:
        return size_lf(h, c);
    case DATA_CR:
        return expect_byte(h, c, '\r', DATA_LF);
    case DATA_LF:
        return expect_byte(h, c, '\n', SIZE);
    default:
        return trailer_byte(h, c);
    }
}

static enum tr_http_ev body_piece(struct tr_http *h, const char *data, size_t len, size_t *used,
                                  struct tr_slice *body)
{
    size_t n = len < h->left ? len : (size_t)h->left;
    *body = (struct tr_slice){data, n};
    *used += n;
    h->left -= n;
    if (h->left == 0)
        h->state = h->state == DATA ? DATA_CR : DONE;
    return TR_HTTP_BODY;
}

enum tr_http_ev tr_http_feed(struct tr_http *h, const char *data, size_t len, size_t *used,
                             struct tr_slice *body)
{
    *used = 0;
    for (;;) {
        if (h->state == DONE)
            return TR_HTTP_END;
        if (h->state == BAD)
            return TR_HTTP_BAD;
        if (*used == len)
            return TR_HTTP_MORE;
        if (h->state == BODY || h->state == DATA)
            return body_piece(h, data + *used, len - *used, used, body);
        bool eaten = true;
        enum tr_http_ev ev = one_byte(h, data[*used], &eaten);
        *used += eaten;
        if (ev != TR_HTTP_MORE)
            return ev;
    }
}
