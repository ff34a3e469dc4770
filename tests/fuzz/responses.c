/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of the Responses API: what is taken becomes one JSON object on one line, and what is kept of it
 * another one, within its bound. */
#include "base/assert.h"
#include "frontend/event.h"
#include "base/json.h"
#include "shm/extra.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_object(const struct tr_emit *e, size_t most)
{
    struct tr_json_fault why;
    struct tr_json_doc *doc = tr_json_parse(e->buf, e->len, &why);

    TR_ASSERT(!e->failed && doc && e->len <= most);
    TR_ASSERT(tr_json_root(doc)->type == TR_JSON_OBJECT && !memchr(e->buf, '\n', e->len));
    tr_json_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tr_json_fault why;
    struct tr_json_doc *doc = tr_json_parse((const char *)data, size, &why);
    struct tr_translation t = {.detached = false};
    struct tr_fault f = {.err = TR_OK};

    if (!doc || tr_json_root(doc)->type != TR_JSON_OBJECT) {
        tr_json_free(doc);
        return 0;
    }
    if (tr_dialect_responses.translate(doc, tr_json_root(doc), &t, &f) == 0) {
        check_object(&t.body, SIZE_MAX);
        check_object(&t.keep, TR_VIEW_KEPT_BYTES);
    } else {
        TR_ASSERT(f.err != TR_OK && memchr(f.param, '\0', sizeof(f.param)));
    }
    tr_emit_fini(&t.body);
    tr_emit_fini(&t.keep);
    tr_json_free(doc);
    return 0;
}
