/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes to our parser and to http-parser: what we take, it takes too and understands alike. */
#include "base/assert.h"
#include "testoracle/http_oracle.h"

#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_agreed got;
    const char *why = http_disagree((const char *)data, size, &got);
    if (why)
        fprintf(stderr, "they differ in: %s\n", why);
    TR_ASSERT(!why);
    return 0;
}
