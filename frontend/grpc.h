/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/grpc.h - the gRPC services of one frontend: Open Inference Protocol and health.
 *
 * Path: http [grpc] > tokens > subq > engine > step > ring > detok > event > frame > socket [grpc]
 *
 * Frontend only, event loop only.  A call is one stream of HTTP/2 (h2.h, whose service this is); each
 * request in it is an exchange (exchange.h) with the dialect `oip`: ModelInfer has one, ModelStreamInfer
 * one for every message of the client, as many at a time as TR_GRPC_REQUESTS.
 *
 *   G1  every call ends with a status, or with a reset where the answer was cut; CANCELLED is said to
 *       nobody, since who cancels does not listen
 *   G2  a request in a stream ends with exactly one response that is the last (triton_final_response),
 *       good or bad, and changes nothing for the others
 *   G3  a call that is cancelled, or whose connection is gone, cancels its requests in the same turn
 *   G4  the deadline of a call is the deadline of each of its requests; when the last of them has said
 *       so, the call ends with DEADLINE_EXCEEDED
 *
 * A long message is read and put into the words of a completion by a worker; the loop goes on meanwhile.
 *
 * Bounds: messages of --max-body bytes, those that are being received 32 times as much together;
 * TR_GRPC_REQUESTS requests of a call.  What is beyond is refused by RESOURCE_EXHAUSTED, or by an error in
 * the stream.  A client that does not read stops the streams of that call (H3 in h2.h), no other.
 *
 * Draining: calls with work go on to its end, calls that wait for more are ended with UNAVAILABLE, health
 * says NOT_SERVING. */
#ifndef TR_FRONTEND_GRPC_H
#define TR_FRONTEND_GRPC_H

#include <stdbool.h>
#include <stddef.h>

struct tr_exchange;
struct tr_fe;
struct tr_grpc;
struct tr_httpd;

enum { TR_GRPC_REQUESTS = 64 /* of one call at a time */ };

/* Serves everything that comes as HTTP/2 to `d`.  NULL: out of memory. */
struct tr_grpc *tr_grpc_new(struct tr_fe *fe, struct tr_httpd *d);
/* After tr_httpd_free.  NULL is fine. */
void tr_grpc_free(struct tr_grpc *g);

/* Several times a second: tells those who watch the health, and ends calls that wait when draining. */
void tr_grpc_tick(struct tr_grpc *g);

/* How a request's answer is written (api_oip.c). */
struct tr_grpc_answer {
    const char *id;
    unsigned wants;   /* TR_OIP_* */
    bool in_stream;   /* of ModelStreamInfer */
    bool empty_final; /* the text of a whole answer and its end are two responses */
};
const struct tr_grpc_answer *tr_grpc_answer_of(const struct tr_exchange *x);

/* Bytes of one call and of one request in it, without their messages and texts. */
size_t tr_grpc_call_bytes(void);
size_t tr_grpc_request_bytes(void);

#endif
