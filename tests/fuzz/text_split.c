/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as an answer: its parts do not depend on how it was cut, and calls follow their order.  The
 * first two bytes choose formats and cut. */
#include "base/utf8.h"
#include "text/split.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct told {
    char text[1 << 15];
    size_t len;
    int last; /* kind of the last part, -1 none */
};

static void tell(struct told *t, const struct tr_parts *parts)
{
    for (uint32_t i = 0; i < parts->n; i++) {
        const struct tr_part *p = &parts->part[i];
        bool joins = t->last == (int)p->kind && p->len;
        bool args = p->kind == TR_PART_ARGS || p->kind == TR_PART_CALL_DONE;
        if (args && t->last != TR_PART_CALL && t->last != TR_PART_ARGS)
            abort();
        if (!joins)
            t->text[t->len++] = (char)('0' + p->kind);
        memcpy(t->text + t->len, parts->text + p->at, p->len);
        t->len += p->len;
        t->last = (int)p->kind;
    }
}

static void take(struct told *t, const uint8_t *how, const char *text, size_t len, size_t cut)
{
    static struct tr_parts parts;
    struct tr_split s;
    size_t from = 0;

    t->len = 0;
    t->last = -1;
    tr_split_init(&s, (enum tr_tool_format)(how[0] % TR_TOOL_FORMATS),
                  (enum tr_reasoning_format)(how[0] / 16 % TR_REASONING_FORMATS), how[1] & 1);
    for (size_t i = 1; i <= len; i++) {
        if (i < len && ((text[i] & 0xc0) == 0x80 || i - from < cut))
            continue;
        tr_split_push(&s, text + from, i - from, &parts);
        tell(t, &parts);
        from = i;
    }
    tr_split_flush(&s, &parts);
    tell(t, &parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct told whole, cut;
    static char text[TR_UTF8_OUT_MAX(1024)];

    if (size < 2 || size > 1026)
        return 0;
    struct tr_utf8 u = {0};
    size_t len = tr_utf8_push(&u, (const char *)data + 2, size - 2, text);
    take(&whole, data, text, len, sizeof(text));
    take(&cut, data, text, len, 1 + data[1] / 2 % 16);
    if (whole.len != cut.len || memcmp(whole.text, cut.text, whole.len) != 0)
        abort();
    return 0;
}
