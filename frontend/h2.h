/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/h2.h - HTTP/2: the streams of one connection, and who serves them.
 *
 * Path: http [h2] > tokens > subq > engine > step > ring > detok > event > frame > socket [h2]
 *
 * Frontend only, event loop only.  A connection speaks HTTP/2 from its first bytes on (prior knowledge)
 * or because TLS agreed on it.  Each stream is served either as an ordinary request (h2_http.c makes an
 * exchange of it: same routes, same handlers, same limits as on HTTP/1) or by a *service*, which sees
 * the request's bytes as they come and writes head, bytes and trailers itself (gRPC).
 *
 *   H1  callbacks of a service are made from the event loop only, never from inside a tr_h2_* call;
 *       they may call all of tr_h2_*
 *   H2  `gone` is the last call for a stream, exactly once, in every case: also after tr_h2_end, when
 *       all is sent, and after tr_h2_reset.  It frees the state.  Until then the stream may be named
 *   H3  a stream that may not be written (the peer's windows, no room in the socket) holds up to
 *       stream_buffer unsent bytes of its own and stalls nobody else; one that takes none of them for
 *       write_deadline_ns is reset and `gone` with TR_GONE_SLOW, as is the whole connection when the
 *       kernel takes nothing for so long
 *   H4  what is written to all streams in a turn of the loop leaves in one sendmsg
 *   H5  a stream's reset by the peer is `gone` in the turn in which it is read
 *
 * Bounds of a connection: TR_H2_STREAMS streams at once (more are refused by RST_STREAM), TR_H2_MEMORY
 * bytes of the library's (more: it is closed), heads and trailers of max_header bytes; floods of
 * control frames, resets and CONTINUATION close it with ENHANCE_YOUR_CALM. */
#ifndef TR_FRONTEND_H2_H
#define TR_FRONTEND_H2_H

#include "frontend/conn.h"

struct tr_h2_stream;

enum {
    TR_H2_STREAMS = 128,
    TR_H2_MEMORY = 1 << 20 /* of one connection: tables, frames in the making */
};

/* Error codes of RFC 9113 7 that others than h2.c need. */
enum {
    TR_H2_NO_ERROR = 0,
    TR_H2_INTERNAL_ERROR = 2,
    TR_H2_CANCEL = 8,
    TR_H2_ENHANCE_YOUR_CALM = 11
};

/* `name` in lower case; a pseudo header is none of it. */
struct tr_h2_field {
    const char *name, *value;
};

struct tr_h2_service {
    /* Whether a request is its own: its head is complete and valid, its body not read.  The first
     * service that says yes has it; routes come after services. */
    bool (*takes)(void *ctx, const struct tr_http *head);
    /* Its state for a stream, not NULL.  `head` (pseudo headers as request line and Host, te and all
     * other fields as sent) is valid until `gone`.  Nothing may have been answered before. */
    void *(*open)(void *ctx, struct tr_h2_stream *s, const struct tr_http *head);
    /* A piece of the body, len > 0, borrowed.  The peer may send 64 KiB before tr_h2_consume is called
     * for what was given here; call it at once for what needs no holding back. */
    void (*data)(void *state, const char *data, size_t len);
    /* The request is whole (trailers, if it has some, are dropped). */
    void (*end)(void *state);
    /* There was no room, and all of it is on its way now. */
    void (*writable)(void *state);
    /* The FIN of the connection was seen, once: what was sent is still answered. */
    void (*half_closed)(void *state);
    /* Reset by the peer, the connection is gone, or (SHUT) the stream came to its end by our doing. */
    void (*gone)(void *state, enum tr_gone why);
};

/* Services are asked in this order; borrowed.  At most TR_H2_SERVICES of a process. */
enum { TR_H2_SERVICES = 4 };
void tr_h2_serve(struct tr_httpd *d, const struct tr_h2_service *service, void *ctx);

/* ---- answering ---------------------------------------------------------------------------- */

/* The head, once.  `end`: nothing follows (what gRPC calls trailers-only). */
void tr_h2_head(struct tr_h2_stream *s, int status, const struct tr_h2_field *f, size_t n,
                bool end);

/* Bytes of the answer, after its head.  Always takes them (ask tr_h2_room first). */
void tr_h2_write(struct tr_h2_stream *s, const char *data, size_t len);

/* The same with bytes from malloc, which are the stream's from here on in every case.  Nothing may be
 * written after it. */
void tr_h2_give(struct tr_h2_stream *s, char *data, size_t len);

/* The end, when what was written has been sent: trailers if n > 0 (copied). */
void tr_h2_end(struct tr_h2_stream *s, const struct tr_h2_field *f, size_t n);

/* RST_STREAM: what was written and does not leave in this turn is lost. */
void tr_h2_reset(struct tr_h2_stream *s, uint32_t code);

/* Makes what was written leave now instead of at the end of the turn. */
void tr_h2_flush(struct tr_h2_stream *s);

/* So many bytes of the body are done with: the peer may send as many more. */
void tr_h2_consume(struct tr_h2_stream *s, size_t len);

/* As those of exchange.h, for bytes given to tr_h2_write and _give. */
size_t tr_h2_unsent(const struct tr_h2_stream *s);
size_t tr_h2_room(struct tr_h2_stream *s);
uint64_t tr_h2_accepted(const struct tr_h2_stream *s);
uint64_t tr_h2_acked(struct tr_h2_stream *s);
uint64_t tr_h2_blocked_ns(const struct tr_h2_stream *s);
bool tr_h2_half_closed(const struct tr_h2_stream *s);
void tr_h2_deliver(struct tr_h2_stream *s, struct tr_delivered *d);

/* A PING on the connection, unless one is under way. */
void tr_h2_ping(struct tr_h2_stream *s);

/* Whether its connection is one too many: what asks is refused; GOAWAY is said, and no more is taken.  Once
 * for each stream: it is counted. */
bool tr_h2_is_overfull(struct tr_h2_stream *s);

struct tr_httpd *tr_h2_httpd(struct tr_h2_stream *s);
const struct tr_peer *tr_h2_peer(const struct tr_h2_stream *s);
uint64_t tr_h2_arrived_ns(const struct tr_h2_stream *s);

/* ---- inside (intake.c, tls.c) -------------------------------------------------------------- */

/* The connection has sent the first line of HTTP/2's preface (16 bytes; what follows it comes as input),
 * or, with `whole`, it will send the preface. */
void tr_h2_begin(struct tr_conn *c, bool whole);

/* Bytes of one connection and of one stream, without bodies and heads. */
size_t tr_h2_conn_bytes(void);
size_t tr_h2_stream_bytes(void);

#endif
