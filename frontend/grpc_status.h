/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/grpc_status.h - how gRPC says the end of a call, and its deadline.
 *
 * Frontend only, pure.
 *
 * Format: PROTOCOL-HTTP2 of gRPC; numbers of the codes: statuscodes of gRPC. */
#ifndef TR_FRONTEND_GRPC_STATUS_H
#define TR_FRONTEND_GRPC_STATUS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tr_grpc_code {
    TR_GRPC_OK = 0,
    TR_GRPC_CANCELLED = 1, /* only where the call itself was cancelled: nobody hears it */
    TR_GRPC_INVALID_ARGUMENT = 3,
    TR_GRPC_DEADLINE_EXCEEDED = 4,
    TR_GRPC_NOT_FOUND = 5,
    TR_GRPC_PERMISSION_DENIED = 7,
    TR_GRPC_RESOURCE_EXHAUSTED = 8,
    TR_GRPC_ABORTED = 10,
    TR_GRPC_UNIMPLEMENTED = 12,
    TR_GRPC_INTERNAL = 13,
    TR_GRPC_UNAVAILABLE = 14,
    TR_GRPC_UNAUTHENTICATED = 16
};

/* As the access log calls it: "unimplemented"; NULL: OK. */
const char *tr_grpc_code_word(enum tr_grpc_code code);

/* What a row of base/err.def is in gRPC. */
enum tr_grpc_code tr_grpc_code_of(enum tr_err e);

enum { TR_GRPC_MESSAGE_MAX = 511 }; /* bytes of a sentence in grpc-message; longer ones are cut */

/* The value of grpc-message: bytes outside printable ASCII, and '%', as %XX.  Ended by NUL. */
void tr_grpc_message(const char *sentence, char out[3 * TR_GRPC_MESSAGE_MAX + 1]);

/* The value of grpc-timeout: one to eight digits and a unit (H M S m u n).  0, or -EINVAL; more than
 * fits is UINT64_MAX. */
int tr_grpc_timeout(const char *p, size_t len, uint64_t *ns);

#endif
