/* SPDX-License-Identifier: Apache-2.0 */
/* client/http_client.h - a reader of one HTTP/1.x response, fed with whatever a read returned.
 *
 * Framing (RFC 9112): chunked, content-length, or until the connection closes; interim 1xx
 * responses are skipped.  No I/O and no clock: the caller reads the socket and says when it ended.
 *
 * The server is hostile until proven otherwise.  Bounds: a line 8 KiB, head and trailers 64 KiB
 * each, eight interim responses, `body_limit` bytes of body.  Ambiguous framing (two lengths, an
 * unknown transfer coding, a chunk size that is not hex) is a fault, never a guess.  No memory is
 * allocated. */
#ifndef TR_CLIENT_HTTP_CLIENT_H
#define TR_CLIENT_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tr_httpc;

struct tr_httpc_ops {
    /* The head of the final response is complete.  May be NULL. */
    void (*head)(void *ctx, const struct tr_httpc *r);
    /* Some bytes of the body; borrowed.  A negative return stops the reader. */
    int (*body)(void *ctx, const char *bytes, size_t len);
};

enum tr_httpc_state {
    TR_HTTPC_STATUS_LINE,
    TR_HTTPC_HEADER,
    TR_HTTPC_LENGTH_BODY,
    TR_HTTPC_CLOSE_BODY,
    TR_HTTPC_CHUNK_SIZE,
    TR_HTTPC_CHUNK_DATA,
    TR_HTTPC_CHUNK_END,
    TR_HTTPC_TRAILER,
    TR_HTTPC_DONE
};

struct tr_httpc {
    const struct tr_httpc_ops *ops;
    void *ctx;
    enum tr_httpc_state state;
    int status; /* of the final response; 0 before it */
    bool chunked;
    bool has_length;
    bool has_retry_after;
    char content_type[64]; /* lower case, cut */
    uint64_t left;         /* bytes of the body or of the chunk still to come */
    uint64_t body_bytes;
    uint64_t body_limit;
    size_t head_bytes; /* of this head or of the trailers */
    unsigned interim;
    const char *fault; /* why push or eof said no; static storage */
    size_t line_len;
    char line[8192];
};

void tr_httpc_init(struct tr_httpc *r, uint64_t body_limit, const struct tr_httpc_ops *ops,
                   void *ctx);

/* 0: more is needed; 1: the response is complete (bytes after it are left alone); -EPROTO and
 * r->fault; or the negative value of the body callback. */
int tr_httpc_push(struct tr_httpc *r, const char *bytes, size_t len);

/* The peer closed.  1: the response was complete; -EPIPE and r->fault: it was cut. */
int tr_httpc_eof(struct tr_httpc *r);

/* Once, before many connections are opened: a descriptor for each, and the usual soft limit is 1024. */
void tr_client_raise_descriptors(void);

#endif
