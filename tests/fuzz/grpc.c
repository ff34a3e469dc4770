/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a gRPC call from any bytes.  The first byte says in what pieces it arrives: what comes out
 * must not depend on it.  Each message is read as a ModelInferRequest, and what that becomes is JSON. */
#include "base/assert.h"
#include "frontend/grpc_read.h"
#include "base/json.h"
#include "frontend/oip.h"
#include "pieces.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_MESSAGE = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t mix(uint64_t sum, const char *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        sum = (sum ^ (unsigned char)p[i]) * 1099511628211ull;
    return sum;
}

static uint64_t read_request(const char *msg, uint32_t len, uint64_t sum)
{
    struct tr_oip_infer q = {.stream = true};
    struct tr_fault f = {0};
    struct tr_emit out;

    tr_emit_init(&out);
    int rc = tr_oip_infer_open(&q, msg, len, &f);
    TR_ASSERT(strlen(q.id) <= TR_OIP_ID_MAX);
    if (rc == 0)
        rc = tr_oip_infer_body(&q, 0, &out, &f);
    TR_ASSERT((rc == 0) == (f.err == TR_OK));
    if (rc == 0) {
        struct tr_json_fault why;
        struct tr_json_doc *doc = tr_json_parse(out.buf, out.len, &why);
        TR_ASSERT(doc && tr_json_root(doc)->type == TR_JSON_OBJECT);
        tr_json_free(doc);
        sum = mix(sum, out.buf, out.len);
    }
    sum = mix(sum, f.message, strlen(f.message));
    tr_oip_infer_close(&q);
    tr_emit_fini(&out);
    return sum;
}

static uint64_t digest(const char *s, size_t len, size_t step)
{
    uint64_t sum = 14695981039346656037ull;
    struct tr_grpc_reader r;

    tr_grpc_reader_init(&r, MAX_MESSAGE);
    for (size_t at = 0; at < len;) {
        size_t used, n = len - at < step ? len - at : step;
        enum tr_grpc_got got = tr_grpc_read(&r, s + at, n, &used);
        TR_ASSERT(used <= n && r.cap <= MAX_MESSAGE);
        if (got == TR_GRPC_BAD) {
            TR_ASSERT(r.code != TR_GRPC_OK && r.why);
            sum = mix(sum, r.why, strlen(r.why));
            break;
        }
        TR_ASSERT(got == TR_GRPC_MESSAGE || used == n);
        at += used;
        if (got != TR_GRPC_MESSAGE)
            continue;
        uint32_t m_len;
        char *m = tr_grpc_take(&r, &m_len);
        sum = read_request(m, m_len, sum ^ m_len);
        free(m);
    }
    sum ^= tr_grpc_between(&r);
    tr_grpc_reader_fini(&r);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return tr_fuzz_pieces(data, size, digest);
}
