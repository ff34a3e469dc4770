/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes are: the parser ends, its memory is bounded, and what it accepts comes out of
 * the emitter as a text that is accepted again. */
#include "base/assert.h"
#include "base/emit.h"
#include "base/json.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tr_json_fault f = {0};
    struct tr_json_doc *d = tr_json_parse((const char *)data, size, &f);
    if (!d) {
        TR_ASSERT(f.why && f.off <= size);
        return 0;
    }
    TR_ASSERT(tr_json_bytes(d) <= 64 * 48 + 24 * 2 * size + size + 256);
    const struct tr_json *root = tr_json_root(d);
    char param[64];
    for (uint32_t i = 0; i < root->skip && i < 64; i++) {
        size_t n = tr_json_param(d, root + i, param, sizeof(param));
        TR_ASSERT(n < sizeof(param) && param[n] == '\0');
    }
    struct tr_emit e;
    tr_emit_init(&e);
    tr_emit_json(&e, d, root);
    TR_ASSERT(!e.failed && !memchr(e.buf, '\n', e.len));
    struct tr_json_doc *again = tr_json_parse(e.buf, e.len, &f);
    TR_ASSERT(again);
    tr_json_free(again);
    tr_emit_fini(&e);
    tr_json_free(d);
    return 0;
}
