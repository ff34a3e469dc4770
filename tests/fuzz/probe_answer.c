/* SPDX-License-Identifier: Apache-2.0 */
/* What a server may answer the probe: HTTP framing, then events, then JSON.  The first byte says
 * how many bytes a read returns (0: all at once); any cutting must give the same result. */
#include "client/chunk.h"
#include "client/http_client.h"
#include "client/sse_parse.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EVENT_MAX 4096
#define BODY_MAX 65536

struct result {
    int rc;
    uint64_t events, bytes, comments, contents, hash;
};

struct reading {
    struct tr_sse_parser sse;
    struct result *r;
};

static int on_event(void *ctx, const struct tr_sse_event *ev)
{
    struct reading *g = ctx;
    struct tr_chunk c;
    if (ev->data_len > EVENT_MAX || ev->data[ev->data_len] || strlen(ev->name) > 63)
        abort();
    tr_chunk_read(&c, ev->name, ev->data, ev->data_len);
    g->r->contents += c.has_content;
    for (size_t i = 0; i < c.text_len; i++)
        g->r->hash = g->r->hash * 31 + (unsigned char)c.text[i];
    tr_chunk_fini(&c);
    return 0;
}

static int on_body(void *ctx, const char *bytes, size_t len)
{
    struct reading *g = ctx;
    g->r->bytes += len;
    return tr_sse_parser_push(&g->sse, bytes, len);
}

static struct result read_answer(const char *p, size_t len, size_t step)
{
    static const struct tr_httpc_ops ops = {NULL, on_body};
    struct result r = {0};
    struct reading g = {.r = &r};
    struct tr_httpc http;
    tr_sse_parser_init(&g.sse, EVENT_MAX, on_event, &g);
    tr_httpc_init(&http, BODY_MAX, &ops, &g);
    for (size_t i = 0; !r.rc && i < len; i += step)
        r.rc = tr_httpc_push(&http, p + i, step < len - i ? step : len - i);
    if (!r.rc)
        r.rc = tr_httpc_eof(&http);
    if (r.rc == 1) {
        int rc = tr_sse_parser_end(&g.sse);
        r.rc = rc ? rc : 1;
    }
    r.events = g.sse.events;
    r.comments = g.sse.comments;
    if (!r.rc || r.bytes > BODY_MAX)
        abort();
    tr_sse_parser_fini(&g.sse);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const char *p = (const char *)data + 1;
    size_t len = size - 1;
    struct result a = read_answer(p, len, data[0] ? data[0] : len);
    struct result b = read_answer(p, len, 1);
    /* The body bytes before an over-long event differ with the cutting; nothing else may. */
    if (a.rc != b.rc || a.events != b.events || a.comments != b.comments ||
        a.contents != b.contents || a.hash != b.hash)
        abort();
    return 0;
}
