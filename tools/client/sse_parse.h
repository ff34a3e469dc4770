/* SPDX-License-Identifier: Apache-2.0 */
/* client/sse_parse.h - a reader of text/event-stream, fed with whatever a read returned.
 *
 * Grammar: the WHATWG HTML standard, "Server-sent events": lines end with LF, CRLF or CR, one BOM
 * at the start is skipped, a comment starts with a colon, one space after a field's colon is
 * dropped, several data lines are joined with LF, an event without a data line is not dispatched.
 * One departure, as every client of our field has it: when the body ends cleanly within an event,
 * that event is dispatched too (tr_sse_parser_end).
 *
 * Bounded: a line plus the data gathered so far may hold `limit` bytes; the buffers grow only with
 * bytes that have arrived.  Single-threaded, no I/O, no clock. */
#ifndef TR_CLIENT_SSE_PARSE_H
#define TR_CLIENT_SSE_PARSE_H

#include "client/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Borrowed by the callback, gone when it returns. */
struct tr_sse_event {
    const char *name; /* the event field, cut at 63 bytes; "" when there was none */
    const char *data; /* data_len bytes, then a NUL that is not counted */
    size_t data_len;
};

/* 0 goes on; a negative errno stops the parser, and tr_sse_parser_push returns it. */
typedef int tr_sse_event_fn(void *ctx, const struct tr_sse_event *ev);

struct tr_sse_parser {
    tr_sse_event_fn *on_event;
    void *ctx;
    size_t limit;
    struct tr_buf line;
    struct tr_buf data; /* each data line followed by LF */
    char name[64];
    char last_id[128]; /* the last id field, cut at 127 bytes */
    uint64_t retry_ms; /* the last retry field; 0: none */
    bool past_first_line;
    bool after_cr; /* the next LF belongs to a CR that already ended the line */
    /* What was seen, for tests and reports. */
    uint64_t events;   /* dispatched */
    uint64_t comments; /* comment lines */
    uint64_t dataless; /* named blocks without data, not dispatched */
};

void tr_sse_parser_init(struct tr_sse_parser *p, size_t limit, tr_sse_event_fn *fn, void *ctx);
void tr_sse_parser_fini(struct tr_sse_parser *p);

/* 0; -EMSGSIZE when an event passes the limit; -ENOMEM; or what the callback returned.  After an
 * error the parser may only be finished. */
int tr_sse_parser_push(struct tr_sse_parser *p, const char *bytes, size_t len);

/* The body has ended cleanly: dispatches what is pending.  Not to be called after a cut, where
 * the pending bytes may be half an event.  Returns as tr_sse_parser_push. */
int tr_sse_parser_end(struct tr_sse_parser *p);

#endif
