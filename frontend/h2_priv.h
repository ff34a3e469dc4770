/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/h2_priv.h - what h2.c (the connection), h2_session.c (the library), h2_head.c (heads), h2_stream.c (one stream's bytes)
 * and h2_http.c (one stream as an exchange) share.
 *
 * Nobody else includes it. */
#ifndef TR_FRONTEND_H2_PRIV_H
#define TR_FRONTEND_H2_PRIV_H

#include "frontend/conn_priv.h"
#include "base/emit.h"
#include "frontend/h2.h"
#include "frontend/marks.h"
#include "frontend/protocol.h"

#include <nghttp2/nghttp2.h>

struct tr_h2_stream {
    struct tr_h2 *h;
    int32_t id;
    const struct tr_h2_service *service; /* NULL: not yet known, or `gone` has been called */
    void *state;

    /* request */
    struct tr_emit text;                    /* its head as HTTP/1.1 says it, while it comes */
    struct tr_emit cookie;                  /* the pieces of a Cookie field */
    char *method, *path, *authority, *host; /* NULL: absent; from malloc */
    size_t head_bytes;                      /* as SETTINGS_MAX_HEADER_LIST_SIZE counts */
    bool has_length;
    struct tr_http http;
    enum tr_err bad; /* of the head; TR_OK so far */
    const char *bad_why;
    uint64_t since_ns;  /* its first frame */
    uint64_t body_ns;   /* body expected since; 0: not */
    uint64_t piece_ns;  /* its last bytes came; body_ns before the first */
    uint64_t body_seen; /* bytes of it */
    bool headed;        /* the head is complete */
    bool whole;         /* the request is */

    /* answer */
    struct tr_outbuf out; /* not yet in the connection's output */
    uint64_t accepted;
    struct tr_marks marks; /* of what is in the connection's output */
    size_t emitting;       /* bytes in the frame that is made */
    uint64_t blocked_ns; /* bytes wait and the last pass has taken none of them since; 0: not so */
    STAILQ_HEAD(, tr_delivered) deliveries; /* of bytes that are not yet emitted */
    char *trailers;                         /* lines as those of a head */
    size_t trailers_len;
    uint32_t reset_code;
    bool head_sent, ended; /* the answer has begun; nothing is written to it any more */
    bool finished;         /* it ended well: END_STREAM follows its bytes */
    bool no_data;          /* its head was all of it */
    bool deferred;         /* the library asks for bytes when told that there are some */
    bool want_writable;
    bool resetting, closed; /* RST_STREAM is due; the library has forgotten it */
    enum tr_gone why;       /* closed: what to say */

    bool is_ready, is_waiting, is_telling, is_dying;
    TAILQ_ENTRY(tr_h2_stream) open_link, ready_link, waiting_link, telling_link, dying_link;
};

TAILQ_HEAD(tr_h2_list, tr_h2_stream);

struct tr_h2 {
    struct tr_conn *c;
    struct tr_httpd *d;
    nghttp2_session *session;
    size_t memory; /* the library's */
    struct tr_h2_list open;
    unsigned n_open;
    struct tr_h2_list ready;       /* their request is whole, or was refused: to be served */
    struct tr_h2_list waiting;     /* have bytes that are not emitted */
    struct tr_h2_list telling;     /* `writable` is due */
    struct tr_h2_list dying;       /* to be reset or freed at the end of the turn */
    struct tr_h2_stream *emitting; /* whose bytes are in the frame that is made */
    struct event timer;
    uint64_t armed_ns;
    uint64_t began_ns, idle_ns, ping_ns, sent_ns, drain_ns; /* 0: not so */
    uint64_t tokens_ns;
    unsigned tokens; /* control frames that it may still send */
    bool in_library; /* which must not be asked to send then */
    bool receiving;  /* in it, from the loop */
    bool served_one; /* the idle time is that between requests */
    bool last_said;  /* the GOAWAY that names the last stream is out */
    bool overfull;   /* beyond max_connections: 503 */
    bool fin;        /* the peer's was seen */
    bool rearm;      /* a deadline may have come nearer */
    bool peer_broke; /* it is the peer's fault that it ends */
    bool broken;     /* ours, or no memory: it ends */
};

/* h2.c */
void tr_h2_send(struct tr_h2 *h); /* everything that may go, into the connection's output */
void tr_h2_ping_conn(struct tr_h2 *h);
void tr_h2_last_word(struct tr_h2 *h);

/* h2_session.c: 0, or an error of the library; the session may be there all the same. */
int tr_h2_session_open(struct tr_h2 *h);

/* h2_head.c: one field of a request's head; the head is complete, and s->http says it, or s->bad; lines
 * "Name: value" of an answer's head or trailers, which are changed.  0 or an error of the library. */
void tr_h2_head_field(struct tr_h2_stream *s, struct tr_slice name, struct tr_slice value);
void tr_h2_head_done(struct tr_h2_stream *s, bool end);
void tr_h2_head_fini(struct tr_h2_stream *s);
int tr_h2_head_send(struct tr_h2_stream *s, int status, char *lines, size_t len,
                    const nghttp2_data_provider *body);
int tr_h2_trailers_send(struct tr_h2_stream *s);

/* h2_stream.c */
struct tr_h2_stream *tr_h2_stream_new(struct tr_h2 *h, int32_t id);
void tr_h2_stream_emitted(
    struct tr_h2_stream *s); /* what was read for a frame is in the output now */
void tr_h2_stream_refused(struct tr_h2_stream *s); /* bytes are left after everything was sent */
void tr_h2_stream_gone(struct tr_h2_stream *s, enum tr_gone why); /* tells its service, once */
void tr_h2_stream_dying(struct tr_h2_stream *s);                  /* looked at when the turn ends */
void tr_h2_stream_free(struct tr_h2_stream *s, enum tr_gone why);
void tr_h2_stream_delivery_clock(struct tr_h2_stream *s, uint64_t now);
/* As tr_h2_head, with the fields as lines, which are changed. */
void tr_h2_head_lines(struct tr_h2_stream *s, int status, char *lines, size_t len, bool end);

/* h2_http.c: the service for everything that no other takes; those whose request is whole are
 * handled, as many as one turn may have; the body did not come in time. */
extern const struct tr_h2_service tr_h2_http;
void tr_h2_http_run(struct tr_h2 *h);
void tr_h2_http_timeout(struct tr_h2_stream *s);
size_t tr_h2_http_bytes(void);

#endif
