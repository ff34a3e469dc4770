/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes to our parser and to jansson: both take the same texts and read the same in them. */
#include "base/assert.h"
#include "testoracle/json_oracle.h"

#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool both;
    const char *why = json_disagree((const char *)data, size, &both);
    if (why)
        fprintf(stderr, "they differ in: %s\n", why);
    TR_ASSERT(!why);
    return 0;
}
