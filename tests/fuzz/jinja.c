/* SPDX-License-Identifier: Apache-2.0 */
/* A template and the variables it is rendered with, both from the input: the bytes up to the first
 * 0xFF are the template, the rest becomes messages.  Whatever they are, parsing and rendering end
 * within their limits, and the spans of a rendered text are sorted, apart and inside it. */
#include "base/assert.h"
#include "text/chat.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Small pieces of the input as strings, numbers and nested values. */
static struct tr_jv *value(struct tr_jctx *c, const uint8_t *p, size_t n, int depth)
{
    struct tr_jv *v;
    if (!n)
        return tr_jv_none(c);
    switch (depth ? p[0] % 8 : 0) {
    case 1:
        return tr_jv_int(c, (int64_t)n - 4);
    case 2:
        return tr_jv_float(c, (double)n / 4);
    case 3:
        return tr_jv_bool(c, n & 1);
    case 4:
        v = tr_jv_list(c);
        (void)tr_jv_append(c, v, value(c, p + 1, n / 2, depth - 1));
        (void)tr_jv_append(c, v, value(c, p + n / 2, n - n / 2, depth - 1));
        return v;
    case 5:
        v = tr_jv_dict(c);
        (void)tr_jv_set(c, v, (const char *)p, 1, true, value(c, p + 1, n - 1, depth - 1));
        (void)tr_jv_set(c, v, "role", 4, true, tr_jv_str(c, "user", 4, true));
        return v;
    default:
        return tr_jv_str(c, (const char *)p, n, p[0] & 0x80);
    }
}

static void check(const struct tr_chat_text *t)
{
    TR_ASSERT(t->text[t->len] == '\0');
    for (size_t i = 0; i < t->n_user; i++) {
        TR_ASSERT(t->user[i].start < t->user[i].end);
        TR_ASSERT(t->user[i].end <= t->len);
        TR_ASSERT(!i || t->user[i - 1].end < t->user[i].start);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct tr_jlimits limits = {
        .memory = 8 << 20, .output = 1 << 16, .steps = 200000, .depth = 100};
    struct tr_errbuf err = {.msg = ""};
    const uint8_t *cut = size ? memchr(data, 0xFF, size) : NULL;
    size_t len = cut ? (size_t)(cut - data) : size;
    const uint8_t *rest = cut ? cut + 1 : data + size;
    struct tr_chat *chat = tr_chat_open((const char *)data, len, &err);
    if (!chat) {
        TR_ASSERT(err.msg[0]);
        return 0;
    }
    struct tr_jctx *c = tr_jctx_open(&limits);
    struct tr_jv *vars = tr_jv_dict(c);
    struct tr_jv *x = value(c, rest, (size_t)(data + size - rest), 6);
    struct tr_jv *m = tr_jv_dict(c);
    struct tr_jv *messages = tr_jv_list(c);
    (void)tr_jv_set(c, m, "role", 4, true, tr_jv_str(c, "user", 4, true));
    (void)tr_jv_set(c, m, "content", 7, true, x);
    (void)tr_jv_append(c, messages, m);
    (void)tr_jv_set(c, vars, "messages", 8, false, messages);
    (void)tr_jv_set(c, vars, "x", 1, false, x);
    struct tr_chat_text out;
    enum tr_jerr e = tr_chat_render(chat, c, vars, &out, &err);
    if (e)
        TR_ASSERT(err.msg[0] || e == TR_JERR_RAISED);
    else
        check(&out);
    tr_jctx_close(c);
    tr_chat_close(chat);
    return 0;
}
