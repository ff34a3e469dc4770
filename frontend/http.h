/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/http.h - strict incremental parser of HTTP/1.0 and HTTP/1.1 requests.
 *
 * Path: http [head, body framing] > tokens > subq > engine > step > ring > detok > event > socket
 *
 * Bytes in, events out; no I/O, no clock, no callback.  Frontend only.  Where RFC 9112 leaves two
 * readings of a message, it is refused: whoever stands in front of us may have taken the other one.
 * Always true: the parser never holds more than limits.max_header bytes of a head (or of
 * trailers); body bytes are handed through and never kept.
 *
 * Broken framing (TR_HTTP_BAD) leaves no way to find the next request: answer `err` and close.
 * A request whose framing is sound but that cannot be served here (`refuse` set at TR_HTTP_HEAD:
 * expectation, content coding) can be answered on a connection that lives on. */
#ifndef TR_FRONTEND_HTTP_H
#define TR_FRONTEND_HTTP_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that are not ended by NUL. */
struct tr_slice {
    const char *p;
    size_t len;
};

enum tr_http_method {
    TR_HTTP_GET,
    TR_HTTP_HEAD_METHOD,
    TR_HTTP_POST,
    TR_HTTP_PUT,
    TR_HTTP_DELETE,
    TR_HTTP_PATCH,
    TR_HTTP_OPTIONS,
    TR_HTTP_OTHER, /* a well-formed token that means nothing here: 501 */
    TR_HTTP_METHODS
};

/* "GET", ...; "" for OTHER. */
const char *tr_http_method_name(enum tr_http_method m);

enum { TR_HTTP_MAX_FIELDS = 100, TR_HTTP_MAX_TARGET = 8192 };

enum tr_http_ev {
    TR_HTTP_MORE, /* all input used, nothing to report */
    TR_HTTP_HEAD, /* the head is complete and valid; look at the request */
    TR_HTTP_BODY, /* *body is a piece of the body, borrowed from the input */
    TR_HTTP_END,  /* the request is complete; tr_http_next before more input */
    TR_HTTP_BAD   /* `err` and `why` say it; the parser takes no more input */
};

struct tr_http_field {
    uint32_t name, name_len; /* offsets into head; names are lower case */
    uint32_t value, value_len;
};

struct tr_http_place {
    uint32_t off, len;
};

struct tr_http {
    /* valid from TR_HTTP_HEAD to tr_http_next */
    enum tr_http_method method;
    int minor;             /* HTTP/1.minor, 0 or 1 */
    struct tr_slice path;  /* decoded; "//" and a final "/" removed; "*" for OPTIONS * */
    struct tr_slice query; /* after '?', as sent; empty if none */
    bool keep_alive;       /* what the client wants */
    bool chunked;
    bool expect_continue;    /* HTTP/1.1, a body follows, nothing of it is promised yet */
    bool has_body;           /* Content-Length above 0, or chunked */
    uint64_t content_length; /* if not chunked; saturated at INT64_MAX */
    enum tr_err refuse;      /* TR_OK, or why a soundly framed request is not served */
    size_t n_fields;

    /* valid at TR_HTTP_BAD */
    enum tr_err err;
    const char *why; /* one sentence, static */

    /* private */
    size_t max_header;
    int state;
    char *head; /* bytes of the head so far */
    size_t head_len, head_cap;
    size_t line;                    /* where the present line begins in head; 0: the request line */
    struct tr_http_place target[2]; /* path and query in head, until the slices can be set */
    uint64_t left;                  /* bytes of the body or chunk still to come */
    unsigned size_digits;           /* of the present chunk size */
    size_t ext_bytes;               /* of chunk extensions beyond the data that came with them */
    size_t trailer_bytes, trailers;
    bool blank_seen; /* the one empty line that may come before a request */
    struct tr_http_field fields[TR_HTTP_MAX_FIELDS];
};

/* max_header: bytes of request line + fields (each of head and trailers). */
void tr_http_init(struct tr_http *h, size_t max_header);
void tr_http_fini(struct tr_http *h);

/* Ready for the next request on the connection; memory of a large head is given back. */
void tr_http_next(struct tr_http *h);

/* Takes input; *used says how much.  Call again with the rest until it says MORE, BAD or (after
 * END) tr_http_next was called.  An allocation that fails is TR_HTTP_BAD with TR_ERR_INTERNAL. */
enum tr_http_ev tr_http_feed(struct tr_http *h, const char *data, size_t len, size_t *used,
                             struct tr_slice *body);

/* Whether bytes of a request have arrived that is not complete (what a timeout then means).  The
 * empty line that may come before one is none of it. */
bool tr_http_begun(const struct tr_http *h);

/* The first field with this (lower case) name; p is NULL if there is none. */
struct tr_slice tr_http_field(const struct tr_http *h, const char *name);
size_t tr_http_field_count(const struct tr_http *h, const char *name);

/* Whether a comma list holds this (lower case) token, case-insensitively. */
bool tr_http_list_has(struct tr_slice value, const char *token);

/* The value of `name` in the query ("a=1&b=2"), percent-decoded into buf and ended by NUL.
 * Its length, -ENOENT if absent, -EINVAL for a bad escape, -E2BIG if it does not fit. */
int tr_http_query(const struct tr_http *h, const char *name, char *buf, size_t cap);

/* The reason phrase of a status. */
const char *tr_http_reason(int status);

#endif
