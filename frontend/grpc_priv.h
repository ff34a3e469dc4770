/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/grpc_priv.h - what grpc.c (methods, health), grpc_call.c (one call), grpc_message.c (one message)
 * and grpc_infer.c (one request) share.
 *
 * Nobody else includes it. */
#ifndef TR_FRONTEND_GRPC_PRIV_H
#define TR_FRONTEND_GRPC_PRIV_H

#include "frontend/access.h"
#include "frontend/exchange.h"
#include "frontend/fe.h"
#include "frontend/grpc.h"
#include "frontend/grpc_read.h"
#include "frontend/h2.h"
#include "frontend/oip.h"
#include "shm/layout.h"

#include <event2/event_struct.h>

struct tr_grpc_call;

struct tr_grpc_method {
    const char *path;
    bool in_stream; /* both sides send any number of messages */
    bool keyed;     /* it is not for everybody */
    /* One message of the client, from malloc and ours. */
    void (*message)(struct tr_grpc_call *c, char *msg, uint32_t len);
};

struct tr_grpc_request {
    struct tr_exchange x;              /* first */
    struct tr_grpc_call *call;         /* NULL: the call is gone */
    TAILQ_ENTRY(tr_grpc_request) link; /* in the call, or among the dead */
    struct tr_grpc_answer answer;
    bool done; /* it has its last response, or lost its call: freed at the end of the turn */
    uint64_t accepted; /* done: the count then */
    char *body;        /* in the words of a completion; NULL: taken */
    char id[TR_OIP_ID_MAX + 1];
    char request_id[TR_ID_BYTES];
};
TAILQ_HEAD(tr_grpc_requests, tr_grpc_request);

struct tr_grpc_call {
    struct tr_grpc *g;
    struct tr_h2_stream *s;
    const struct tr_http *head;
    const struct tr_grpc_method *method; /* NULL: refused */
    const struct tr_key *key;            /* whose it is; NULL: no key was needed */
    TAILQ_ENTRY(tr_grpc_call) link;
    struct tr_grpc_requests requests; /* under way */
    unsigned n_requests;
    struct tr_grpc_reader in;
    size_t counted;      /* its share of g->in_bytes */
    uint64_t message_ns; /* a message is expected since; 0: it may take its time */
    uint64_t piece_ns;   /* its last bytes came */
    TAILQ_ENTRY(tr_grpc_call) receiving_link; /* message_ns is set */
    struct event timer;                       /* of the deadline */
    uint64_t deadline_ns;                     /* 0: none */
    bool head_sent;
    bool got_message;
    bool input_ended; /* the client sends no more */
    bool expired, leaving;
    struct tr_access *access; /* of a call in which there has been no request; or NULL */
    bool ended;               /* the status is out, or on its way */
    enum tr_health told;      /* to one who watches; 0: none does */
};
TAILQ_HEAD(tr_grpc_calls, tr_grpc_call);

struct tr_grpc {
    struct tr_fe *fe;
    struct tr_grpc_calls calls, receiving;
    struct tr_grpc_requests dead; /* to be freed when nobody is on the stack */
    struct event *reap;
    size_t in_bytes;       /* of messages that are being received */
    bool leaving;          /* no new work */
    enum tr_health health; /* what those who watch know */
};

/* grpc_call.c: the service of h2.h; what is answered in a call.  `data`: whole messages with their
 * prefixes. */
extern const struct tr_h2_service tr_grpc_service;
void tr_grpc_call_write(struct tr_grpc_call *c, const char *data, size_t len);
void tr_grpc_call_end(struct tr_grpc_call *c, enum tr_grpc_code code, const char *message);
/* Ends those whose message does not come as fast as the body of a request has to. */
void tr_grpc_calls_look(struct tr_grpc *g);
/* Ends it if nothing is under way and nothing more will come. */
void tr_grpc_call_look(struct tr_grpc_call *c);

/* grpc.c */
const struct tr_grpc_method *tr_grpc_find_method(struct tr_slice path);

/* What a message became. */
struct tr_grpc_message {
    char id[TR_OIP_ID_MAX + 1];
    unsigned wants; /* TR_OIP_* */
    bool empty_final;
    uint64_t arrived_ns;
    enum tr_err refusal; /* not the message's fault: it was not read; or TR_OK */
    int rc;              /* 0, or -EINVAL with fault */
    struct tr_emit body; /* in the words of a completion */
    struct tr_fault fault;
};

/* grpc_message.c: reads it, and goes on with tr_grpc_start: at once, or from the loop when a worker has
 * done it and the request is still there.  0, the message (from malloc) is then its; or -ENOMEM. */
int tr_grpc_read_message(struct tr_grpc_request *r, char *msg, uint32_t len);

/* grpc_infer.c */
void tr_grpc_infer(struct tr_grpc_call *c, char *msg, uint32_t len);
/* Admits the request, or answers why not.  It may take the body. */
void tr_grpc_start(struct tr_grpc_request *r, struct tr_grpc_message *m);
/* Why a request of this call, itself counted, is not taken, whatever it says.  TR_OK: it is. */
enum tr_err tr_grpc_turned_away(const struct tr_grpc_call *c);
/* They have lost their reader. */
void tr_grpc_drop_requests(struct tr_grpc_call *c, enum tr_gone why);
void tr_grpc_free_requests(struct tr_grpc_requests *list);

#endif
