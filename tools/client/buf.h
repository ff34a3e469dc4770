/* SPDX-License-Identifier: Apache-2.0 */
/* client/buf.h - bytes that grow as they arrive.  All zero is empty.
 *
 * Single-threaded.  The bound is the caller's. */
#ifndef TR_CLIENT_BUF_H
#define TR_CLIENT_BUF_H

#include <stddef.h>

struct tr_buf {
    char *p; /* len bytes, then a NUL that is not counted; NULL until the first append; free it */
    size_t len, cap;
};

/* 0 or -ENOMEM; b is then unchanged. */
int tr_buf_append(struct tr_buf *b, const char *bytes, size_t len);

#endif
