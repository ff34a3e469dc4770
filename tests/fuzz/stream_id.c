/* SPDX-License-Identifier: Apache-2.0 */
/* Stream ids come from URLs: what is accepted is spelt as we spell it, and nothing else is. */
#include "base/assert.h"
#include "shm/stream_id.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tr_stream_id id, any = {0}, back;
    char text[TR_STREAM_ID_BYTES];
    if (tr_stream_id_parse((const char *)data, size, &id) == 0) {
        tr_stream_id_format(id, text);
        TR_ASSERT(strlen(text) == size && memcmp(text, data, size) == 0);
    }
    memcpy(&any, data, size < sizeof(any) ? size : sizeof(any));
    tr_stream_id_format(any, text);
    TR_ASSERT(tr_stream_id_parse(text, strlen(text), &back) == 0);
    TR_ASSERT(back.slot == any.slot && back.gen == any.gen && back.rand == any.rand);
    return 0;
}
