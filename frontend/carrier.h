/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/carrier.h - what HTTP/1 and HTTP/2 do alike with a request and the head of its answer.
 *
 * Frontend only; only carriers of exchanges include it (conn_priv.h does). */
#ifndef TR_FRONTEND_CARRIER_H
#define TR_FRONTEND_CARRIER_H

#include "frontend/conn.h"
#include "base/emit.h"

enum {
    TR_CARRIER_ID_BYTES = 128,    /* longest x-request-id taken over */
    TR_CARRIER_EXTRA_BYTES = 2048 /* fields added by tr_exchange_header */
};

/* The client's x-request-id if it is short and printable, else one of ours. */
void tr_carrier_id(const struct tr_http *h, char id[TR_CARRIER_ID_BYTES + 1]);

/* What is wrong with a request whose head is fine, before its body; the answer has then been given.
 * Sets route, id_param and key of *rq, and the exchange's way to tell errors.  `overfull`: there are too
 * many connections.  *keep is made false before an answer after which nothing more is to come. */
bool tr_carrier_refuses(struct tr_httpd *d, struct tr_exchange *x, struct tr_http_request *rq,
                        bool overfull, bool *keep);

/* The body of a request, while it comes. */
struct tr_body {
    char *p;
    size_t len, cap;
};

/* Adds a piece.  TR_OK, or what to answer; *why is the sentence or NULL. */
enum tr_err tr_carrier_body(struct tr_httpd *d, struct tr_body *b, const struct tr_http *h,
                            struct tr_slice piece, const char **why);
/* It is the caller's from here on; NULL if there is none. */
char *tr_carrier_body_take(struct tr_httpd *d, struct tr_body *b);

/* When a body must go on: expected since body_ns, last bytes at piece_ns, seen so many; 0: never. */
uint64_t tr_carrier_body_deadline(const struct tr_http_limits *l, uint64_t body_ns,
                                  uint64_t piece_ns, uint64_t seen);

/* Fields of the next answer's head, as lines "Name: value". */
struct tr_head_extra {
    char *lines;
    size_t len;
};

/* tr_exchange_header. */
int tr_carrier_extra(struct tr_head_extra *e, const char *name, const char *value);
void tr_carrier_extra_drop(struct tr_head_extra *e);

void tr_carrier_field(struct tr_emit *t, const char *name, const char *value);
/* The fields of every answer, as lines; those of `extra` too. */
void tr_carrier_fields(struct tr_emit *t, const struct tr_http_limits *l, const char *type,
                       const char *request_id, const struct tr_head_extra *extra);
/* Those of a stream besides. */
void tr_carrier_stream_fields(struct tr_emit *t);

#endif
