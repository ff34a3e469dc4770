/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/tls.h - TLS on the sockets of clients.
 *
 * Path: http [tls] > tokens > subq > engine > step > ring > detok > event > frame > socket [tls]
 *
 * Frontend only.  A connection that has it reads and writes through it in the two places where it would
 * call recv and sendmsg, so everything above sees plain bytes: bounds, deadlines, turns and the end of
 * a connection are the same.  TLS 1.2 and 1.3; ALPN says whether HTTP/1.1 or HTTP/2 is spoken.
 *
 *   T1  what counts as written stands in records that the kernel has taken whole; of it no more counts
 *       as acknowledged than the peer's kernel has acknowledged of those records
 *   T2  the end of an answer shows as close_notify before the FIN; a cut has none
 *   T3  files are read when the context is made, before the sandbox
 *
 * Memory: TR_TLS_BYTES for each connection in its handshake, which may bring 16 KiB; the buffers of records
 * are given back while it is idle. */
#ifndef TR_FRONTEND_TLS_H
#define TR_FRONTEND_TLS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct tr_tls;      /* what all connections share: certificate, key, choices */
struct tr_tls_conn; /* one of them */

/* Of one connection, measured with OpenSSL 3.0.19 by tests/unit/frontend/test_tls.c, and some room: at
 * most (70.8 KiB, in the handshake), with a record under way in both directions (45.7), idle (13.2). */
enum { TR_TLS_BYTES = 80 << 10, TR_TLS_BUSY_BYTES = 52 << 10, TR_TLS_IDLE_BYTES = 16 << 10 };

/* NULL with a sentence that names the file.  `tickets`: TR_TICKET_BYTES (frontend.h), copied; what one who
 * had the same gave to a client is good here too. */
struct tr_tls *tr_tls_open(const char *cert, const char *key, const unsigned char *tickets,
                           struct tr_errbuf *err);
void tr_tls_close(struct tr_tls *t);

/* For the server's side of fd, which is borrowed.  NULL: no memory. */
struct tr_tls_conn *tr_tls_conn_new(struct tr_tls *t, int fd);
void tr_tls_conn_free(struct tr_tls_conn *t);

/* Goes on with the handshake as far as the socket allows: 1 it is over, 0 not yet, -1 it has failed (the
 * peer was told). */
int tr_tls_shake(struct tr_tls_conn *t);
/* Over: whether HTTP/2 was agreed on. */
bool tr_tls_is_h2(const struct tr_tls_conn *t);

/* As recv and send on a socket that does not block: bytes, 0 at the peer's end, or -1 with errno (EAGAIN;
 * anything else: broken).  A send that said EAGAIN must be repeated with the same bytes, and may have
 * more behind them. */
ssize_t tr_tls_recv(struct tr_tls_conn *t, char *buf, size_t len);
ssize_t tr_tls_send(struct tr_tls_conn *t, const char *data, size_t len);

/* close_notify, if the socket takes it now. */
void tr_tls_bye(struct tr_tls_conn *t);

/* Of the bytes that tr_tls_send took, those that are acknowledged when the socket's queue holds `queued`
 * bytes. */
uint64_t tr_tls_acked(struct tr_tls_conn *t, size_t queued);

#endif
