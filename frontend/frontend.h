/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/frontend.h - the body of a frontend process: one event loop over sockets and rings.
 *
 * Path: [http > tokens > subq] > engine > step > [ring > detok > event > socket]
 *
 * A frontend reads requests from its sockets, claims slots for them, follows their rings and writes
 * what they hold to the sockets.  It owns no tensor and no KV block; all it shares with the engine is
 * shm/.  Killing it loses its sockets and nothing else.
 *
 *   I1  the loop never waits for anything but its descriptors and timers; work longer than a few
 *       milliseconds (tokenising more than 16 KiB) happens on its worker threads
 *   I2  memory for one stream is bounded by constants and by --stream-buffer; a reader that does not
 *       read stops its own sequence through the cursors
 *   I3  every admitted request is ended towards its client by one terminal event or by a visible cut
 *
 * Engine dead or not ready: new requests get 503, open streams are told by their rings.  Supervisor
 * dead: the kernel ends this process.  Draining: the control page says how far.  Retiring (it says
 * that too): nothing is accepted any more, what is open goes on to its end, each answer is its
 * connection's last, then the process ends. */
#ifndef TR_FRONTEND_FRONTEND_H
#define TR_FRONTEND_FRONTEND_H

#include "shm/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The flags of DESIGN 8 that a frontend needs; the supervisor fills it before it forks.  Strings and
 * arrays are borrowed for the life of the process.  Times are nanoseconds, 0 = off where a flag may be
 * switched off. */
enum { TR_TICKET_BYTES = 80 /* as OpenSSL has them: a name of 16, keys of 32 for HMAC and AES */ };

struct tr_keys;

enum tr_access_wanted { TR_ACCESS_ON, TR_ACCESS_NO_ADDRESS, TR_ACCESS_OFF };

struct tr_frontend_config {
    unsigned number;       /* which frontend: "tokenring: frontend N" */
    const int *listen_fds; /* listening sockets, non-blocking; shared with the other frontends */
    unsigned n_listen;
    unsigned n_grpc; /* the last so many of them are for gRPC */

    const char *model_path;    /* GGUF file; NULL: the sim vocabulary */
    const char *served_name;   /* --served-name, or the file's stem, or "sim" */
    const char *model_stem;    /* accepted as a model name too; NULL: none */
    const char *chat_template; /* --chat-template: NULL the file's own, "none", else a path */
    int tool_format; /* --tool-format, --reasoning: enum tr_tool_format, enum tr_reasoning_format; -1: by */
    int reasoning;       /* the template */
    const char *version; /* of tokenring, for /version and tokenring_info */
    const char *backend; /* "cpu", "cuda", "sim": for /server_info and tokenring_info */
    bool deterministic;  /* for tokenring_info: promise P10 holds */
    bool compat_metrics; /* --compat-metrics */
    uint32_t kv_block;   /* tokens in a KV block, for --compat-metrics */
    uint64_t created_s;  /* of the model: seconds since 1970, the same in all frontends */

    uint64_t heartbeat_ns;      /* keep-alive after so long without a byte; 0 never */
    uint64_t write_deadline_ns; /* nothing could be written for so long: slow_client; 0 never */
    uint64_t min_drain_bps;     /* bytes per second over the write deadline; 0 off */
    uint64_t timeout_ns;        /* --timeout-s: deadline of every request; 0 off */
    uint64_t max_stream_ns;     /* 0 off */
    uint64_t coalesce_ns;       /* 0: every token its own event */
    int access_log;             /* --access-log: enum tr_access_wanted */
    uint64_t ledger_wait_ns;    /* how long a terminal event waits for its record */
    size_t stream_buffer;       /* unsent bytes of a stream at which framing stops */

    bool hold_on_disconnect;   /* --on-disconnect hold: native streams that do not say */
    uint64_t resume_window_ns; /* a stream without a reader is kept for so long; 0: not at all */
    uint32_t hold_slots;       /* at most so many of them, over all frontends */

    uint64_t
        idempotency_ns; /* an answer is kept so long for its Idempotency-Key; 0: none have one */
    uint64_t idempotency_seed; /* of hashes; the same in all frontends of a service, random */

    size_t max_body;            /* bytes of a request body, and of a non-streamed answer */
    uint32_t max_connections;   /* of this process, over all ports */
    uint32_t max_choices;       /* n x prompts, <= TR_MAX_CHOICES */
    uint64_t header_timeout_ns; /* first byte of a request to the end of its headers */
    uint64_t body_timeout_ns;   /* without a byte of the body */
    uint64_t keepalive_ns;      /* idle connection */
    const char *tls_cert;       /* --tls-cert, --tls-key: both or none (NULL) */
    const char *tls_key;
    unsigned char
        tls_tickets[TR_TICKET_BYTES]; /* keys of the tickets, random: those of all frontends */
    const struct tr_keys *keys;       /* --api-keys, --admin-key (key.h); NULL: neither */
    const char *cors_origin;          /* --cors: value of Access-Control-Allow-Origin; NULL: none */
};

/* What one stream can take in a frontend, in bytes; sums of constants and flags. */
struct tr_stream_bounds {
    size_t state;    /* the stream and its connection, without the request's text */
    size_t choice;   /* for each choice: scanning states, receipts */
    size_t held;     /* all of it without a reader, the request's text as above */
    size_t unsent;   /* framed and not yet taken by the kernel: --stream-buffer and one event */
    size_t logprobs; /* more in that event if log-probabilities were asked for */
    size_t access;   /* what is noted of each request, until its last byte is acknowledged */
    size_t access_waiting; /* of all requests of a frontend that are over and wait for that */
    size_t kept; /* of Responses: what the request said, besides; and unsent up to three times */
    size_t ws;   /* a WebSocket besides its connection */
    size_t ws_stream;  /* each of its streams, in place of a connection */
    size_t ws_replies; /* owed for what its client sent, unsent besides */
    size_t kernel;     /* SO_SNDBUF as the kernel counts */
    /* a connection of HTTP/2 carries up to h2_streams requests; besides what each takes: */
    size_t h2_conn, h2_stream;
    unsigned h2_streams;
    size_t grpc_call;          /* one of gRPC, which is such a request */
    size_t grpc_request;       /* in it, besides the stream */
    size_t grpc_requests;      /* of one call at a time */
    size_t tls;                /* of a connection in its handshake, besides; 0: plain */
    size_t tls_busy, tls_idle; /* then, with records under way and without */
};
void tr_stream_bounds(const struct tr_frontend_config *c, struct tr_stream_bounds *b);

/* How many answers a frontend keeps for their Idempotency-Keys alone, at most (hold.c). */
uint32_t tr_hold_answers(const struct tr_frontend_config *c, uint32_t n_areas);

/* Runs until the drain is through.  Called in the child after tr_shm_attach with role FRONTEND (the
 * area and epoch are in *s) and after privileges were dropped; the model file is opened, read and
 * closed here.  Returns the exit status of the process: 0 after a drain or retired, 1 when it could not start
 * (the reason is logged). */
int tr_frontend_main(struct tr_shm *s, const struct tr_frontend_config *c);

#endif
