/* SPDX-License-Identifier: Apache-2.0 */
/* A body with messages, tools, documents and arguments of a template, rendered through templates that want
 * them in different forms: each is taken or refused with a sentence and a field, what is rendered ends where a
 * message that is continued does, and no text of it counts as the template's. */
#include "base/assert.h"
#include "frontend/messages.h"
#include "text/vocab.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const templates[] = {
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ m.tool_calls | tojson }}{% endfor %}"
    "{{ tools | tojson }}{{ documents | tojson }}{{ args }}",
    "{% for m in messages %}<{% for p in m.content %}{{ p.text }}{% endfor %}>{% endfor %}",
    "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}{{ "
    "c.function.name + "
    "c.function.arguments }}{% endfor %}{% else %}{{ m.content | trim }}{% endif %}{% endfor %}",
};
enum { N = sizeof templates / sizeof templates[0] };

static struct {
    struct tr_chat *chat;
    struct tr_chat_traits traits;
} made[N];
static struct tr_vocab *vocab;

static void make(void)
{
    struct tr_errbuf err;

    vocab = tr_vocab_sim();
    for (int i = 0; i < N; i++) {
        made[i].chat = tr_chat_open(templates[i], strlen(templates[i]), &err);
        TR_ASSERT(made[i].chat);
        tr_chat_traits(made[i].chat, &made[i].traits);
    }
}

static void render(const struct tr_json_doc *doc, int i, bool continued)
{
    const struct tr_jlimits limits = {.memory = 32 << 20, .output = 1 << 20, .steps = 400000};
    const struct tr_json *body = tr_json_root(doc);
    const struct tr_messages m = {.doc = doc,
                                  .messages = TR_JSON_GET(body, "messages"),
                                  .tools = TR_JSON_GET(body, "tools"),
                                  .documents = TR_JSON_GET(body, "documents"),
                                  .args = TR_JSON_GET(body, "args"),
                                  .generation_prompt = true,
                                  .continue_final = continued};
    struct tr_fault f = {.err = TR_OK};
    struct tr_chat_text out;

    if (!tr_json_is(m.messages, TR_JSON_ARRAY) || m.messages->len == 0)
        return;
    struct tr_jctx *ctx = tr_jctx_open(&limits);
    if (tr_messages_render(&m, made[i].chat, &made[i].traits, vocab, ctx, &out, &f))
        TR_ASSERT(f.err && f.param[0]);
    else
        TR_ASSERT(out.n_user == 0 || out.user[out.n_user - 1].end <= out.len);
    tr_jctx_close(ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tr_json_fault fault;

    if (!vocab)
        make();
    struct tr_json_doc *doc = tr_json_parse((const char *)data, size, &fault);
    for (int i = 0; doc && i < N; i++) {
        render(doc, i, false);
        render(doc, i, true);
    }
    tr_json_free(doc);
    return 0;
}
