/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/listen.h - takes connections from a listening socket shared with other frontends.
 *
 * Frontend only.  The socket is inherited, already bound, listening and non-blocking; all frontends
 * accept from it, a few at a time, and whoever has more to do than others leaves connections to them
 * (frontend/balance.h).
 *
 * Full (EMFILE, ENFILE, ENOBUFS, ENOMEM): accepting rests for 100 ms; the backlog holds the
 * clients and nothing is lost.  Above max_connections, and no sibling has room: 503 as JSON, then
 * closed. */
#ifndef TR_FRONTEND_LISTEN_H
#define TR_FRONTEND_LISTEN_H

#include "frontend/balance.h"
#include "frontend/conn.h"

struct tr_listen;

/* The fd is borrowed, and `b` too; b NULL: there are no siblings.  NULL when out of memory. */
struct tr_listen *tr_listen_new(struct tr_httpd *d, struct event_base *base, int fd,
                                struct tr_balance *b);
/* Takes all that wait, whoever they would be left to: a connection in a socket that is closed is
 * reset, and its client never hears why. */
void tr_listen_drain(struct tr_listen *l);
/* Stops accepting; connections live on.  NULL is fine. */
void tr_listen_free(struct tr_listen *l);

#endif
