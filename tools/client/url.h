/* SPDX-License-Identifier: Apache-2.0 */
/* client/url.h - the address of the server under test: http://host[:port][/base].
 *
 * No TLS: a client through a TLS proxy would time the handshake library as well; put it
 * behind the proxy instead.  The name is resolved once, at the start. */
#ifndef TR_CLIENT_URL_H
#define TR_CLIENT_URL_H

#include "base/err.h"

#include <stdint.h>
#include <sys/socket.h>

struct tr_url {
    char host[256]; /* without brackets */
    char port[8];
    char authority[272]; /* as it goes into the Host header */
    char base[256];      /* "" or "/path", without a slash at the end and without a final /v1 */
    struct sockaddr_storage addr;
    socklen_t addr_len; /* 0: not resolved */
};

/* 0, or -EINVAL and a sentence; *u is untouched on failure. */
int tr_url_parse(struct tr_url *u, const char *text, struct tr_errbuf *err);

/* Fills addr with the first address the resolver gives.  0, or -EHOSTUNREACH and a sentence. */
int tr_url_resolve(struct tr_url *u, struct tr_errbuf *err);

/* A non-blocking TCP socket whose connect has begun or is already done; `rcvbuf` bounds what its
 * kernel buffer takes, 0: as usual.  The descriptor, or -errno. */
int tr_url_connect(const struct tr_url *u, int rcvbuf);

#endif
