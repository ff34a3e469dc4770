/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/ws_accept.h - the handshake of a WebSocket (RFC 6455 section 4.2), as far as it is a
 * question of fields.
 *
 * Frontend only, pure.  Nothing is negotiated but the subprotocol's name: an extension that a client
 * offers is not taken, so no bit of a frame is reserved for one. */
#ifndef TR_FRONTEND_WS_ACCEPT_H
#define TR_FRONTEND_WS_ACCEPT_H

#include "frontend/http.h"

/* What a client may ask for as Sec-WebSocket-Protocol; it need not. */
#define TR_WS_PROTOCOL "tokenring.events.v1"

enum { TR_WS_ACCEPT_BYTES = 29 };

/* Whether this request opens a WebSocket.  `cors` is the allowed origin ("*" or one), or NULL: a page
 * of another origin than the server's own is refused, since browsers ask nobody before they connect.
 * TR_OK and the value of Sec-WebSocket-Accept, or the error and *why (static).  To TR_ERR_UPGRADE the
 * fields `Upgrade: websocket` and `Sec-WebSocket-Version: 13` belong. */
enum tr_err tr_ws_accept(const struct tr_http *h, const char *cors, char accept[TR_WS_ACCEPT_BYTES],
                         const char **why);

/* Whether the client named our subprotocol; the answer then names it too, for a browser that asked
 * and is told nothing gives up. */
bool tr_ws_wants_protocol(const struct tr_http *h);

#endif
