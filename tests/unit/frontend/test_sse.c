/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/sse.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <string.h>

static void expect(struct tr_emit *e, const char *want)
{
    cr_expect(e->len == strlen(want) && memcmp(e->buf, want, e->len) == 0, "%.*s is not %s",
              (int)e->len, e->buf, want);
    tr_emit_reset(e);
}

Test(sse, each_shape_has_its_own_lines)
{
    struct tr_emit e;
    tr_emit_init(&e);
    cr_expect_eq(tr_frame_event(&e, TR_SSE_BARE, "7", "t", "{}", 2), 0);
    expect(&e, "data: {}\n\n");
    cr_expect_eq(tr_frame_event(&e, TR_SSE_TYPED, "7", "t", "{}", 2), 0);
    expect(&e, "event: t\ndata: {}\n\n");
    cr_expect_eq(tr_frame_event(&e, TR_SSE_NATIVE, "s:7", "t", "{}", 2), 0);
    expect(&e, "id: s:7\nevent: t\ndata: {}\n\n");
    cr_expect_eq(tr_frame_event(&e, TR_SSE_NATIVE, NULL, "t", "{}", 2), 0);
    expect(&e, "event: t\ndata: {}\n\n");
    cr_expect_eq(tr_frame_event(&e, TR_NDJSON, "7", "t", "{}", 2), 0);
    expect(&e, "{}\n");
    tr_emit_fini(&e);
}

Test(sse, done_and_keepalives_fit_their_shape)
{
    struct tr_emit e;
    tr_emit_init(&e);
    tr_frame_done(&e, TR_SSE_BARE);
    expect(&e, "data: [DONE]\n\n");
    tr_frame_done(&e, TR_SSE_NATIVE);
    tr_frame_done(&e, TR_NDJSON);
    expect(&e, "");
    tr_frame_keepalive(&e, TR_SSE_BARE);
    expect(&e, ": keepalive\n\n");
    tr_frame_keepalive(&e, TR_SSE_NATIVE);
    expect(&e, ": keepalive\n");
    tr_frame_keepalive(&e, TR_NDJSON);
    expect(&e, "{\"type\":\"keepalive\"}\n");
    tr_frame_ping(&e);
    expect(&e, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
    cr_expect_str_eq(tr_frame_content_type(TR_SSE_BARE), "text/event-stream; charset=utf-8");
    cr_expect_str_eq(tr_frame_content_type(TR_NDJSON), "application/x-ndjson");
    tr_frame_done(&e, TR_TEXT);
    tr_frame_keepalive(&e, TR_TEXT);
    cr_expect_eq(e.len, 0, "nothing but the words");
    cr_expect_str_eq(tr_frame_content_type(TR_TEXT), "text/plain; charset=utf-8");
    tr_emit_fini(&e);
}

Test(sse, a_line_end_in_any_part_is_refused_and_nothing_is_written)
{
    struct tr_emit e;
    tr_emit_init(&e);
    cr_expect_eq(tr_frame_event(&e, TR_SSE_BARE, NULL, NULL, "{\n}", 3), -EINVAL);
    cr_expect_eq(tr_frame_event(&e, TR_SSE_TYPED, NULL, "a\rb", "{}", 2), -EINVAL);
    cr_expect_eq(tr_frame_event(&e, TR_SSE_NATIVE, "1\n", "t", "{}", 2), -EINVAL);
    cr_expect_eq(e.len, 0);
    tr_emit_fini(&e);
}
