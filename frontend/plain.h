/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/plain.h - answers as plain text: just the words, for curl in a terminal.
 *
 * Path: http > tokens > subq > engine > step > ring > detok > event > [frame] > socket
 *
 * A body of chat completions, completions or native streams whose request has text/plain as the first
 * range of Accept.  It is always streamed and has one choice.  Nothing but the text can be said, so:
 *
 *   - the head waits for the first byte of text: until then an error is a real status
 *   - any end but a completed one (a limit as well) is a cut that shows, once the client's kernel has
 *     acknowledged the text, or nothing of it for --write-deadline-s
 *   - there are no keep-alives; a client that closes its sending side is gone, since nothing could be
 *     written to see whether it is
 *   - it cannot be resumed
 *
 * Frontend only. */
#ifndef TR_FRONTEND_PLAIN_H
#define TR_FRONTEND_PLAIN_H

#include "frontend/event.h"
#include "frontend/exchange.h"

struct tr_ask;

/* Whether the client asks for it. */
bool tr_plain_wanted(const struct tr_http_request *rq);

/* The events of this API as plain text (frame TR_TEXT); NULL: it has none. */
const struct tr_dialect *tr_plain_dialect(enum tr_api api);

/* What a request for it cannot have: 0, or -EINVAL with *f.  After its fields have been read. */
int tr_plain_check(struct tr_ask *a, struct tr_fault *f);

/* Whether the end, error or none, shows as a cut. */
bool tr_plain_cuts(const struct tr_stream *s, enum tr_err e);

/* Whether the cut may come: all is acknowledged, or nothing was for long enough.  If not, it is looked
 * at again. */
bool tr_plain_is_out(struct tr_stream *s);

#endif
