/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a body of Messages holds: it is refused with a sentence and a place, or becomes a chat body
 * that is JSON again, with messages whose contents chat takes. */
#include "base/assert.h"
#include "frontend/api_anthropic.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_chat(const char *text, size_t len)
{
    struct tr_json_fault jf = {0};
    struct tr_json_doc *d = tr_json_parse(text, len, &jf);

    TR_ASSERT(d && !memchr(text, '\n', len));
    const struct tr_json *messages = TR_JSON_GET(tr_json_root(d), "messages");
    TR_ASSERT(tr_json_is(messages, TR_JSON_ARRAY));
    for (struct tr_json_it it = tr_json_iter(messages); tr_json_step(&it);) {
        const struct tr_json *content = TR_JSON_GET(it.val, "content");
        TR_ASSERT(tr_json_is(TR_JSON_GET(it.val, "role"), TR_JSON_STRING));
        TR_ASSERT(tr_json_is(content, TR_JSON_STRING) || tr_json_is(content, TR_JSON_ARRAY));
    }
    tr_json_free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tr_json_fault jf = {0};
    struct tr_json_doc *d = tr_json_parse((const char *)data, size, &jf);

    if (!d)
        return 0;
    for (int counting = 0; counting < 2 && tr_json_is(tr_json_root(d), TR_JSON_OBJECT);
         counting++) {
        struct tr_fault f = {0};
        struct tr_emit e;
        tr_emit_init(&e);
        if (tr_anthropic_body(d, tr_json_root(d), counting, &e, &f) == 0)
            check_chat(e.buf, e.len);
        else
            TR_ASSERT(f.err && f.message[0] && memchr(f.param, '\0', sizeof(f.param)));
        TR_ASSERT(!e.failed);
        tr_emit_fini(&e);
    }
    tr_json_free(d);
    return 0;
}
