/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/trace.h"

void tr_trace_hex(const uint8_t *id, size_t n, char *out)
{
    static const char hex[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        out[2 * i] = hex[id[i] >> 4];
        out[2 * i + 1] = hex[id[i] & 15];
    }
    out[2 * n] = '\0';
}
