/* SPDX-License-Identifier: Apache-2.0 */
#include "client/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int tr_buf_append(struct tr_buf *b, const char *bytes, size_t len)
{
    if (b->cap - b->len < len + 1) {
        size_t cap = b->cap ? b->cap : 256;
        while (cap - b->len < len + 1)
            cap *= 2;
        char *p = realloc(b->p, cap);
        if (!p)
            return -ENOMEM;
        b->p = p;
        b->cap = cap;
    }
    if (len)
        memcpy(b->p + b->len, bytes, len);
    b->len += len;
    b->p[b->len] = 0;
    return 0;
}
