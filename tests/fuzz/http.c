/* SPDX-License-Identifier: Apache-2.0 */
/* Requests one after the other from any bytes.  The first byte says in what pieces they arrive:
 * the verdicts must not depend on it, memory stays within the bound, and every byte is used once. */
#include "base/assert.h"
#include "frontend/http.h"
#include "frontend/key.h"
#include "frontend/traceparent.h"
#include "pieces.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 2048 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What a head says of its trace: the same whatever the pieces were; a state is printable and ends. */
static uint64_t trace_of(const struct tr_http *h)
{
    struct tr_trace t = {.flags = 0};
    struct tr_slice v = tr_http_field(h, "traceparent");
    uint64_t sum = v.p && tr_traceparent_read(v, &t) == 0;

    sum += t.flags;
    if (tr_tracestate_read(h, t.state))
        TR_ASSERT(t.state[0] == '\0');
    TR_ASSERT(memchr(t.state, '\0', sizeof(t.state)));
    for (const char *p = t.state; *p; p++) {
        TR_ASSERT(*p >= 0x20 && *p <= 0x7e);
        sum = (sum ^ (unsigned char)*p) * 1099511628211ull;
    }
    tr_trace_begin(h, &t);
    TR_ASSERT(t.span_id[0] | t.span_id[1] | t.span_id[2] | t.span_id[3] | t.span_id[4] |
              t.span_id[5] | t.span_id[6] | t.span_id[7]);
    return sum;
}

/* Which key a head brings: a known one is told only of its own text, and the same whatever the pieces. */
static uint64_t key_of(const struct tr_http *h)
{
    static struct tr_keys keys;
    const struct tr_key *found;

    if (!keys.n)
        for (const char *const *k = (const char *const[]){"k", "tr-2", NULL}; *k; k++) {
            struct tr_key *row = &keys.row[keys.n++];
            TR_ASSERT(tr_digest(*k, strlen(*k), row->hash) == 0);
            row->name[0] = (*k)[0];
        }
    enum tr_key_found f = tr_keys_find(&keys, h, &found);
    TR_ASSERT((f == TR_KEY_GOOD) == (found != NULL));
    TR_ASSERT(!found || memmem(h->head, h->head_len, found == &keys.row[0] ? "k" : "tr-2",
                               found == &keys.row[0] ? 1 : 4));
    return (uint64_t)f * 3 + (found ? (uint64_t)(found - keys.row) : 0);
}

/* A digest of all events: what happened, and where. */
static uint64_t digest(const char *s, size_t len, size_t step)
{
    struct tr_http h;
    uint64_t sum = 14695981039346656037ull;
    size_t at = 0;
    tr_http_init(&h, MAX_HEADER);
    for (;;) {
        size_t used, n = len - at < step ? len - at : step;
        struct tr_slice body = {NULL, 0};
        enum tr_http_ev ev = tr_http_feed(&h, s + at, n, &used, &body);
        TR_ASSERT(used <= n && h.head_len <= MAX_HEADER + 2 && h.n_fields <= TR_HTTP_MAX_FIELDS);
        if (ev == TR_HTTP_BODY) {
            TR_ASSERT(body.len > 0 && body.p >= s + at && body.p + body.len <= s + at + used);
            for (size_t i = 0; i < body.len; i++)
                sum = (sum ^ (unsigned char)body.p[i]) * 1099511628211ull;
        }
        at += used;
        if (ev == TR_HTTP_HEAD) {
            TR_ASSERT(h.path.len > 0 && (h.path.p[0] == '/' || h.path.p[0] == '*'));
            for (size_t i = 0; i < h.path.len; i++)
                sum = (sum ^ (unsigned char)h.path.p[i]) * 1099511628211ull;
            char q[16];
            (void)tr_http_query(&h, "a", q, sizeof(q));
            sum = (sum ^ trace_of(&h)) * 1099511628211ull;
            sum = (sum ^ key_of(&h)) * 1099511628211ull;
        }
        if (ev == TR_HTTP_HEAD || ev == TR_HTTP_END || ev == TR_HTTP_BAD)
            sum = (sum ^ (uint64_t)ev ^ (uint64_t)at << 8) * 1099511628211ull;
        if (ev == TR_HTTP_BAD) {
            TR_ASSERT(h.err != TR_OK);
            break;
        }
        if (ev == TR_HTTP_END)
            tr_http_next(&h);
        if (ev == TR_HTTP_MORE && at == len)
            break;
    }
    tr_http_fini(&h);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return tr_fuzz_pieces(data, size, digest);
}
