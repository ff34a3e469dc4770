/* SPDX-License-Identifier: Apache-2.0 */
#include "client/sse_parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int dispatch(struct tr_sse_parser *p)
{
    int rc = 0;
    if (p->data.len) {
        /* The LF after the last data line is not part of the data. */
        p->data.p[--p->data.len] = 0;
        struct tr_sse_event ev = {p->name, p->data.p, p->data.len};
        p->events++;
        rc = p->on_event(p->ctx, &ev);
    } else if (p->name[0]) {
        p->dataless++;
    }
    p->data.len = 0;
    p->name[0] = 0;
    return rc;
}

static void copy_cut(char *to, size_t size, const char *from, size_t len)
{
    if (len >= size)
        len = size - 1;
    memcpy(to, from, len);
    to[len] = 0;
}

static void take_retry(struct tr_sse_parser *p, const char *v, size_t len)
{
    uint64_t ms = 0;
    if (!len || len > 12)
        return;
    for (size_t i = 0; i < len; i++) {
        if (v[i] < '0' || v[i] > '9')
            return;
        ms = ms * 10 + (uint64_t)(v[i] - '0');
    }
    p->retry_ms = ms;
}

static int take_field(struct tr_sse_parser *p, const char *line, size_t len)
{
    const char *colon = memchr(line, ':', len);
    size_t name_len = colon ? (size_t)(colon - line) : len;
    const char *v = colon ? colon + 1 : line + len;
    size_t v_len = len - (size_t)(v - line);
    if (v_len && *v == ' ') {
        v++;
        v_len--;
    }
    if (name_len == 4 && !memcmp(line, "data", 4)) {
        int rc = tr_buf_append(&p->data, v, v_len);
        return rc ? rc : tr_buf_append(&p->data, "\n", 1);
    }
    if (name_len == 5 && !memcmp(line, "event", 5))
        copy_cut(p->name, sizeof(p->name), v, v_len);
    else if (name_len == 2 && !memcmp(line, "id", 2) && !memchr(v, 0, v_len))
        copy_cut(p->last_id, sizeof(p->last_id), v, v_len);
    else if (name_len == 5 && !memcmp(line, "retry", 5))
        take_retry(p, v, v_len);
    return 0;
}

static int end_line(struct tr_sse_parser *p)
{
    const char *line = p->line.p ? p->line.p : "";
    size_t len = p->line.len;
    p->line.len = 0;
    if (!p->past_first_line) {
        p->past_first_line = true;
        if (len >= 3 && !memcmp(line, "\xEF\xBB\xBF", 3)) {
            line += 3;
            len -= 3;
        }
    }
    if (!len)
        return dispatch(p);
    if (line[0] == ':') {
        p->comments++;
        return 0;
    }
    return take_field(p, line, len);
}

/* One pass: two calls of memchr would look at the rest of the buffer again for every line of a
 * stream that uses only the other line end. */
static size_t span_of_line(const char *bytes, size_t len)
{
    size_t n = 0;
    while (n < len && bytes[n] != '\n' && bytes[n] != '\r')
        n++;
    return n;
}

int tr_sse_parser_push(struct tr_sse_parser *p, const char *bytes, size_t len)
{
    while (len) {
        if (p->after_cr) {
            p->after_cr = false;
            if (*bytes == '\n') {
                bytes++;
                len--;
                continue;
            }
        }
        size_t n = span_of_line(bytes, len);
        if (n > p->limit - p->line.len || p->line.len + n > p->limit - p->data.len)
            return -EMSGSIZE;
        int rc = tr_buf_append(&p->line, bytes, n);
        if (!rc && n < len) {
            p->after_cr = bytes[n] == '\r';
            n++;
            rc = end_line(p);
        }
        if (rc)
            return rc;
        bytes += n;
        len -= n;
    }
    return 0;
}

int tr_sse_parser_end(struct tr_sse_parser *p)
{
    int rc = p->line.len ? end_line(p) : 0;
    return rc ? rc : dispatch(p);
}

void tr_sse_parser_init(struct tr_sse_parser *p, size_t limit, tr_sse_event_fn *fn, void *ctx)
{
    memset(p, 0, sizeof(*p));
    p->limit = limit;
    p->on_event = fn;
    p->ctx = ctx;
}

void tr_sse_parser_fini(struct tr_sse_parser *p)
{
    free(p->line.p);
    free(p->data.p);
    p->line = p->data = (struct tr_buf){0};
}
