/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/grpc_read.h - messages of a gRPC call from the bytes of its body.
 *
 * Frontend only, pure.  A message is one byte of flags, four of length (big endian), and so many bytes.
 * Pieces may be cut anywhere.  Memory grows with the bytes that have come, never with a length that
 * was only announced, and is at most `max` for a call.
 *
 * Format: PROTOCOL-HTTP2 of gRPC, "Length-Prefixed-Message". */
#ifndef TR_FRONTEND_GRPC_READ_H
#define TR_FRONTEND_GRPC_READ_H

#include "frontend/grpc_status.h"

#include <stddef.h>
#include <stdint.h>

enum { TR_GRPC_PREFIX = 5 };

enum tr_grpc_got {
    TR_GRPC_MORE,    /* all input used */
    TR_GRPC_MESSAGE, /* a message is whole: tr_grpc_take before more input */
    TR_GRPC_BAD      /* `code` and `why` say it; no more input is taken */
};

struct tr_grpc_reader {
    uint32_t max; /* bytes of a message */

    /* valid at TR_GRPC_BAD */
    enum tr_grpc_code code;
    const char *why; /* static */

    /* private */
    unsigned char head[TR_GRPC_PREFIX];
    unsigned n_head;
    uint32_t len, got;
    size_t cap; /* bytes of memory */
    char *buf;
};

void tr_grpc_reader_init(struct tr_grpc_reader *r, uint32_t max);
void tr_grpc_reader_fini(struct tr_grpc_reader *r);

/* Takes input; *used says how much of it. */
enum tr_grpc_got tr_grpc_read(struct tr_grpc_reader *r, const char *data, size_t len, size_t *used);

/* The whole message, the caller's from here on (free); NULL if it is empty.  The next one may come. */
char *tr_grpc_take(struct tr_grpc_reader *r, uint32_t *len);

/* Whether the body may end here. */
bool tr_grpc_between(const struct tr_grpc_reader *r);

/* The five bytes before a message of this length. */
void tr_grpc_prefix(unsigned char out[TR_GRPC_PREFIX], uint32_t len);

#endif
