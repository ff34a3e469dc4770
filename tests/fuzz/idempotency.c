/* SPDX-License-Identifier: Apache-2.0 */
/* Idempotency-Key comes from sockets: what is taken is printable and not too long, is the value
 * itself if that has no quotes, and written as a structured field's string it is the same key again. */
#include "base/assert.h"
#include "frontend/idempotency.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char key[TR_IDEMPOTENCY_BYTES], again[TR_IDEMPOTENCY_BYTES];
    char quoted[2 + 2 * TR_IDEMPOTENCY_BYTES];
    size_t n = 0;
    int len = tr_idempotency_parse((struct tr_slice){(const char *)data, size}, key);

    if (len < 0)
        return 0;
    TR_ASSERT(len >= 1 && len <= TR_IDEMPOTENCY_BYTES && (size_t)len <= size);
    if (data[0] != '"')
        TR_ASSERT((size_t)len == size && memcmp(key, data, size) == 0);
    quoted[n++] = '"';
    for (int i = 0; i < len; i++) {
        TR_ASSERT(key[i] >= 0x20 && key[i] <= 0x7e);
        if (key[i] == '"' || key[i] == '\\')
            quoted[n++] = '\\';
        quoted[n++] = key[i];
    }
    quoted[n++] = '"';
    TR_ASSERT(tr_idempotency_parse((struct tr_slice){quoted, n}, again) == len);
    TR_ASSERT(memcmp(key, again, (size_t)len) == 0);
    return 0;
}
