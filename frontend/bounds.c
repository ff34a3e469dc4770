/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/bounds.c - how much memory one stream can take; said at start. */
#include "frontend/conn_priv.h"
#include "frontend/access.h"
#include "frontend/grpc.h"
#include "frontend/h2.h"
#include "frontend/stream.h"
#include "frontend/ws_stream.h"

enum {
    JSON_BYTES = 6,       /* of one byte of text: \u00XX */
    WSLAY_BYTES = 5 << 10 /* its state of one connection, a frame's head and 4 KiB of input */
};

void tr_stream_bounds(const struct tr_frontend_config *c, struct tr_stream_bounds *b)
{
    struct tr_http_limits l = tr_http_limits_default;

    l.stream_buffer = c->stream_buffer;
    *b = (struct tr_stream_bounds){
        .state = sizeof(struct tr_stream) + sizeof(struct tr_conn) + l.max_header,
        .choice = sizeof(struct tr_choice),
        .held = sizeof(struct tr_stream) + sizeof(struct tr_choice),
        .unsent = c->stream_buffer + (size_t)TR_EVENT_TEXT_CAP * JSON_BYTES,
        .logprobs = TR_EVENT_ENTRIES * tr_lp_estimate(true, TR_MAX_TOP),
        .access = sizeof(struct tr_access),
        .access_waiting = TR_ACCESS_WAITING * sizeof(struct tr_access),
        .kept = TR_VIEW_KEPT_BYTES,
        .ws = sizeof(struct tr_ws) + WSLAY_BYTES,
        .ws_stream = sizeof(struct tr_ws_stream) + 2 * sizeof(struct tr_ws_delivery),
        .ws_replies = TR_WS_REPLIES,
        .kernel = tr_conn_kernel_bytes(&l),
        .h2_conn = tr_h2_conn_bytes(),
        .h2_stream = tr_h2_stream_bytes() + l.max_header,
        .h2_streams = TR_H2_STREAMS,
        .grpc_call = tr_grpc_call_bytes(),
        .grpc_request = tr_grpc_request_bytes(),
        .grpc_requests = TR_GRPC_REQUESTS,
        .tls = c->tls_cert ? TR_TLS_BYTES : 0,
        .tls_busy = TR_TLS_BUSY_BYTES,
        .tls_idle = TR_TLS_IDLE_BYTES,
    };
}
