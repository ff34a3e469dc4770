/* SPDX-License-Identifier: Apache-2.0 */
/* Requests one after the other from any bytes.  The first byte says in what pieces they arrive:
 * the verdicts must not depend on it, memory stays within the bound, and every byte is used once. */
#include "base/assert.h"
#include "frontend/http.h"
#include "pieces.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 2048 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
