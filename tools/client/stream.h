/* SPDX-License-Identifier: Apache-2.0 */
/* client/stream.h - one streamed request: its socket, its two parsers, and what is written down
 * about it.
 *
 * The caller owns the loop: it starts a stream, calls tr_client_stream_io whenever the socket is ready and
 * tr_client_stream_expire when the clock says so, until one of them says that the record is settled.
 *
 * Every stream ends in exactly one outcome, whatever the server does: sizes are bounded (an event
 * TR_STREAM_EVENT_MAX, a response TR_STREAM_BODY_MAX, kept text TR_STREAM_TEXT_MAX) and time by
 * the deadline. */
#ifndef TR_CLIENT_STREAM_H
#define TR_CLIENT_STREAM_H

#include "client/buf.h"
#include "client/chunk.h"
#include "client/http_client.h"
#include "client/samples.h"
#include "client/sse_parse.h"
#include "client/url.h"

#include <stdbool.h>
#include <stdint.h>

#define TR_STREAM_EVENT_MAX ((size_t)4 << 20)
#define TR_STREAM_BODY_MAX ((uint64_t)256 << 20)
#define TR_STREAM_TEXT_MAX ((size_t)1 << 20)

/* Looked at in this order of precedence when a stream has ended:
 *   refused, aborted (both ours), error, complete, timeout, malformed, truncated. */
enum tr_outcome {
    TR_OUT_COMPLETE,  /* a finish_reason, then [DONE] or a clean end of the body */
    TR_OUT_TRUNCATED, /* cut, or ended without a finish_reason, or with one that says it broke */
    TR_OUT_ERROR,     /* an error object within the stream, or a status other than 200 */
    TR_OUT_TIMEOUT,   /* our deadline came first */
    TR_OUT_MALFORMED, /* broken HTTP, an event that is not JSON, or a bound above */
    TR_OUT_REFUSED,   /* no connection */
    TR_OUT_ABORTED,   /* hung up on purpose */
    TR_OUT_COUNT
};

const char *tr_outcome_name(enum tr_outcome o);

/* Times are CLOCK_MONOTONIC, taken when read() returned the bytes; 0: did not happen. */
struct tr_record {
    enum tr_outcome outcome;
    char detail[224]; /* why, printable ASCII; "" when complete */
    int http_status;  /* 0: none */
    char finish[32];  /* the first finish_reason seen */
    bool done;        /* [DONE] seen */
    bool retry_after; /* the answer had that header */
    bool late_cut;    /* complete, but the connection did not end cleanly */
    bool has_usage;
    struct tr_usage usage; /* of the last usage block */
    uint64_t events, content_events, comments, foreign, empty, undecodable, after_done;
    uint64_t start_ns;   /* before connect */
    uint64_t connect_ns; /* the connection is there */
    uint64_t head_ns;    /* the response's head is complete */
    uint64_t first_ns;   /* first non-empty content */
    uint64_t last_ns;    /* last non-empty content */
    uint64_t end_ns;     /* [DONE], else the end of the connection */
    uint64_t gap_max_ns;
    uint64_t text_hash; /* FNV-1a over all content of choice 0 */
    uint64_t text_len;  /* bytes of it, kept or not */
    char *text;         /* the beginning of it, when asked for; tr_record_fini frees */
    size_t text_kept;
};

/* All zero but the timeout: a stream that is read as it comes. */
struct tr_client_stream_rules {
    uint64_t abort_after; /* content events; 0: never */
    uint64_t timeout_ns;
    bool keep_text;
    bool whole;      /* the answer is one JSON object, not a stream */
    bool paced;      /* a slow reader: read_bps counts, and the kernel's buffer is small */
    double read_bps; /* bytes per second of a 200 answer's body; 0: none of it */
};

struct tr_client_stream {
    int fd; /* -1: not open */
    bool connecting;
    bool event_stream; /* the body goes to the SSE parser, else to `plain` or `whole` */
    bool paused;       /* a slow reader that has had its share */
    uint64_t wake_ns;  /* when it may read again; UINT64_MAX: never */
    uint64_t body_read;
    const char *req;
    size_t req_len, req_sent;
    uint64_t deadline_ns;
    uint64_t now_ns; /* when the bytes at hand were read */
    char error[192]; /* in-band error, "" if none */
    bool has_error;
    char plain[2048]; /* beginning of a body that is no event stream */
    size_t plain_len;
    struct tr_buf whole;
    const struct tr_client_stream_rules *rules;
    struct tr_record *rec;
    struct tr_samples *gaps; /* ms */
    struct tr_httpc http;
    struct tr_sse_parser sse;
};

/* Begins the connection.  `req` and all the rest are borrowed until tr_client_stream_fini.  True when the
 * record is settled at once (refused). */
bool tr_client_stream_start(struct tr_client_stream *s, const struct tr_url *url, const char *req,
                            size_t req_len, const struct tr_client_stream_rules *rules,
                            struct tr_record *rec, struct tr_samples *gaps);

/* The socket is ready for something.  Reads once at most, so that no stream starves another.
 * True when the record is settled. */
bool tr_client_stream_io(struct tr_client_stream *s);

/* Waiting for the socket to take bytes?  To have some?  A slow reader that has had its share wants
 * none before wake_ns. */
bool tr_client_stream_wants_write(const struct tr_client_stream *s);
bool tr_client_stream_wants_read(struct tr_client_stream *s, uint64_t now_ns);

/* The caller hangs up, for a reason of its own. */
void tr_client_stream_hang_up(struct tr_client_stream *s, const char *why);

/* The socket has an error or a hang-up while the stream does not read: it was cut. */
void tr_client_stream_cut(struct tr_client_stream *s);

/* The deadline has passed. */
void tr_client_stream_expire(struct tr_client_stream *s);

void tr_client_stream_fini(struct tr_client_stream *s);
void tr_record_fini(struct tr_record *r);

#endif
