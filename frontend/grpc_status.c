/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/grpc_status.c - see grpc_status.h. */
#include "frontend/grpc_status.h"

#include <errno.h>

static enum tr_grpc_code of_http(int status)
{
    switch (status) {
    case 200:
        return TR_GRPC_OK;
    case 401:
        return TR_GRPC_UNAUTHENTICATED;
    case 403:
        return TR_GRPC_PERMISSION_DENIED;
    case 404:
        return TR_GRPC_NOT_FOUND;
    case 405:
    case 501:
    case 505:
        return TR_GRPC_UNIMPLEMENTED;
    case 409:
    case 410:
        return TR_GRPC_ABORTED;
    case 413:
    case 429:
    case 431:
        return TR_GRPC_RESOURCE_EXHAUSTED;
    case 408:
    case 504:
        return TR_GRPC_DEADLINE_EXCEEDED;
    case 503:
        return TR_GRPC_UNAVAILABLE;
    default:
        return status < 500 ? TR_GRPC_INVALID_ARGUMENT : TR_GRPC_INTERNAL;
    }
}

const char *tr_grpc_code_word(enum tr_grpc_code code)
{
    static const char *const words[] = {[TR_GRPC_CANCELLED] = "cancelled",
                                        [TR_GRPC_INVALID_ARGUMENT] = "invalid_argument",
                                        [TR_GRPC_DEADLINE_EXCEEDED] = "deadline_exceeded",
                                        [TR_GRPC_NOT_FOUND] = "not_found",
                                        [TR_GRPC_PERMISSION_DENIED] = "permission_denied",
                                        [TR_GRPC_RESOURCE_EXHAUSTED] = "resource_exhausted",
                                        [TR_GRPC_ABORTED] = "aborted",
                                        [TR_GRPC_UNIMPLEMENTED] = "unimplemented",
                                        [TR_GRPC_INTERNAL] = "internal",
                                        [TR_GRPC_UNAVAILABLE] = "unavailable",
                                        [TR_GRPC_UNAUTHENTICATED] = "unauthenticated"};

    return (unsigned)code < sizeof(words) / sizeof(words[0]) ? words[code] : NULL;
}

enum tr_grpc_code tr_grpc_code_of(enum tr_err e)
{
    switch (e) {
    case TR_ERR_CANCELLED: /* by somebody else: the call was not */
    case TR_ERR_SLOW_CLIENT:
        return TR_GRPC_ABORTED;
    default:
        return of_http(tr_err_info(e)->status);
    }
}

void tr_grpc_message(const char *sentence, char out[3 * TR_GRPC_MESSAGE_MAX + 1])
{
    static const char hex[] = "0123456789ABCDEF";
    const unsigned char *p = (const unsigned char *)sentence;

    for (size_t n = 0; *p && n < TR_GRPC_MESSAGE_MAX; p++, n++) {
        if (*p >= 0x20 && *p <= 0x7e && *p != '%') {
            *out++ = (char)*p;
            continue;
        }
        *out++ = '%';
        *out++ = hex[*p >> 4];
        *out++ = hex[*p & 15];
    }
    *out = '\0';
}

static uint64_t unit_ns(char c)
{
    switch (c) {
    case 'H':
        return 3600 * 1000000000ull;
    case 'M':
        return 60 * 1000000000ull;
    case 'S':
        return 1000000000ull;
    case 'm':
        return 1000000;
    case 'u':
        return 1000;
    case 'n':
        return 1;
    default:
        return 0;
    }
}

int tr_grpc_timeout(const char *p, size_t len, uint64_t *ns)
{
    uint64_t v = 0, unit = len ? unit_ns(p[len - 1]) : 0;

    if (!unit || len < 2 || len > 9)
        return -EINVAL;
    for (size_t i = 0; i + 1 < len; i++) {
        if (p[i] < '0' || p[i] > '9')
            return -EINVAL;
        v = v * 10 + (uint64_t)(p[i] - '0');
    }
    *ns = v > UINT64_MAX / unit ? UINT64_MAX : v * unit;
    return 0;
}
