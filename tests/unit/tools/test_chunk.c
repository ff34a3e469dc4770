/* SPDX-License-Identifier: Apache-2.0 */
#include "client/chunk.h"

#include <criterion/criterion.h>
#include <string.h>

static struct tr_chunk read_chunk(const char *name, const char *json)
{
    struct tr_chunk c;
    tr_chunk_read(&c, name, json, strlen(json));
    return c;
}

static void expect_kind(const char *name, const char *json, enum tr_chunk_kind want)
{
    struct tr_chunk c = read_chunk(name, json);
    cr_expect_eq(c.kind, want, "%s: kind %d", json, (int)c.kind);
    tr_chunk_fini(&c);
}

Test(chunk, kinds_are_told_apart)
{
    expect_kind("", "[DONE]", TR_CHUNK_DONE);
    expect_kind("", "", TR_CHUNK_EMPTY);
    expect_kind("", "  ", TR_CHUNK_EMPTY);
    expect_kind("ping", "{}", TR_CHUNK_FOREIGN);
    expect_kind("", "[]", TR_CHUNK_FOREIGN);
    expect_kind("", "17", TR_CHUNK_FOREIGN);
    expect_kind("", "{\"choices\":{}}", TR_CHUNK_FOREIGN);
    expect_kind("", "{\"choices\":[]}", TR_CHUNK_PLAIN);
    expect_kind("", "{\"choices\":[7,null,{\"delta\":3}],\"error\":null}", TR_CHUNK_PLAIN);
    expect_kind("", "{\"choices\":[", TR_CHUNK_BAD);
    expect_kind("", "\xff", TR_CHUNK_BAD);
}

Test(chunk, errors_are_known_in_all_their_shapes)
{
    struct tr_chunk c = read_chunk(
        "", "{\"error\":{\"message\":\"no\\u001b\",\"type\":\"t\",\"param\":null,\"code\":null}}");
    cr_expect_eq(c.kind, TR_CHUNK_ERROR);
    cr_expect_str_eq(c.error, "t: no?");
    tr_chunk_fini(&c);
    expect_kind("", "{\"error\":\"no\"}", TR_CHUNK_ERROR);
    expect_kind("", "{\"object\":\"error\",\"message\":\"no\",\"code\":400}", TR_CHUNK_ERROR);
    expect_kind("error", "{\"message\":\"no\"}", TR_CHUNK_ERROR);
}

Test(chunk, text_comes_from_choice_zero_and_content_from_any)
{
    struct tr_chunk c = read_chunk("", "{\"choices\":[{\"index\":1,\"delta\":{\"content\":\"b\"}},"
                                       "{\"index\":0,\"delta\":{\"content\":\"a\\u0000c\"}}]}");
    cr_expect(c.has_content);
    cr_expect_eq(c.text_len, 3);
    cr_expect_eq(memcmp(c.text, "a\0c", 3), 0);
    tr_chunk_fini(&c);

    c = read_chunk("", "{\"choices\":[{\"index\":1,\"text\":\"b\"}]}");
    cr_expect(c.has_content);
    cr_expect_null(c.text);
    tr_chunk_fini(&c);

    c = read_chunk("", "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"}}]}");
    cr_expect_not(c.has_content);
    tr_chunk_fini(&c);
}

Test(chunk, usage_is_read_wherever_it_stands_and_never_negative)
{
    struct tr_chunk c =
        read_chunk("", "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],"
                       "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":-2,"
                       "\"prompt_tokens_details\":{\"cached_tokens\":3}}}");
    cr_expect_str_eq(c.finish, "stop");
    cr_expect(c.has_usage);
    cr_expect_eq(c.usage.prompt, 5);
    cr_expect_eq(c.usage.completion, 0);
    cr_expect_eq(c.usage.cached, 3);
    tr_chunk_fini(&c);

    c = read_chunk("", "{\"choices\":[],\"usage\":null}");
    cr_expect_not(c.has_usage);
    tr_chunk_fini(&c);
}

Test(chunk, an_answer_in_one_piece_is_read_as_well)
{
    struct tr_chunk c = read_chunk(
        "", "{\"object\":\"chat.completion\",\"choices\":[{\"index\":0,\"message\":{\"content\":"
            "\"Hi\"},\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":2}}");
    cr_expect_eq(c.kind, TR_CHUNK_PLAIN);
    cr_expect(c.has_content && c.text_len == 2 && !memcmp(c.text, "Hi", 2));
    cr_expect_str_eq(c.finish, "stop");
    cr_expect_eq(c.usage.completion, 2);
    tr_chunk_fini(&c);
}
