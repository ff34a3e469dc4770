/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/sse.h - frames one event, whose JSON is ready, as SSE or NDJSON bytes.
 *
 * Path: http > tokens > subq > engine > step > ring > detok > event [frame] > socket
 *
 * A frame is appended to `e` by tr_emit_bytes; one frame is one tr_exchange_stream_write, so one HTTP
 * chunk.  Line ends are LF; the JSON is one line (the emitter never writes a raw line end, and a
 * payload that holds one is refused).  Shapes, chosen by route and never mixed:
 *
 *   TR_SSE_BARE    data: J                      chat, completions
 *   TR_SSE_TYPED   event: T / data: J           Responses, Messages
 *   TR_SSE_NATIVE  id: I / event: T / data: J   /v1/streams
 *   TR_NDJSON      J                            /v1/streams with Accept: application/x-ndjson
 *   TR_JSON        J without a line end         a carrier that has messages of its own
 *   TR_PROTO       nothing is done here: the dialect frames its messages itself (gRPC)
 *   TR_TEXT        no events: the words          Accept: text/plain (plain.h)
 *
 * Format: the HTML standard, server-sent events.  Keep-alives: DESIGN section 7.  A comment with
 * its blank line after an `id:` crashes several client libraries (they dispatch an event that has
 * only an id), so the native shape sends the comment line alone. */
#ifndef TR_FRONTEND_SSE_H
#define TR_FRONTEND_SSE_H

#include "base/emit.h"

enum tr_frame { TR_SSE_BARE, TR_SSE_TYPED, TR_SSE_NATIVE, TR_NDJSON, TR_JSON, TR_PROTO, TR_TEXT };

/* The value of Content-Type for a stream in this shape. */
const char *tr_frame_content_type(enum tr_frame f);

/* Appends one frame.  `type` is used by TYPED and NATIVE, `id` by NATIVE (NULL: an event without
 * number: no id line); both are ours and hold no line end.  0, or -EINVAL if json, type or id
 * holds CR, LF or NUL (nothing is appended), -ENOMEM. */
int tr_frame_event(struct tr_emit *e, enum tr_frame f, const char *id, const char *type,
                   const char *json, size_t len);

/* Appends "data: [DONE]" as bare and typed streams end; nothing for the other shapes. */
void tr_frame_done(struct tr_emit *e, enum tr_frame f);

/* Appends the keep-alive of this shape (TR_TEXT and TR_PROTO have none); also the probe that is
 * written when the client has half closed. */
void tr_frame_keepalive(struct tr_emit *e, enum tr_frame f);

/* Appends Anthropic's keep-alive, `event: ping`. */
void tr_frame_ping(struct tr_emit *e);

#endif
