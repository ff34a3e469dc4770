/* SPDX-License-Identifier: Apache-2.0 */
/* A dialect's table of fields: what it refuses, and the names that a fault of ours has there. */
#include "frontend/fields.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct tr_field_row rows[] = {
    TR_FIELD("max_output_tokens", "max_tokens", "0 …", "rest of the context", "how many"),
    TR_FIELD("input", "messages", "string or items", "required", "what is asked"),
    TR_FIELD_NEVER("previous_response_id", "", "Answers are not kept."),
    TR_FIELD_NEVER("tools", "Calling tools", "Leave them out."),
    TR_FIELD_IGNORED("truncation", "prompts that are too long are refused"),
};
enum { N = sizeof(rows) / sizeof(rows[0]) };

static int refuse(const char *body, struct tr_fault *f)
{
    struct tr_json_fault why;
    struct tr_json_doc *doc = tr_json_parse(body, strlen(body), &why);
    cr_assert(doc);
    int rc = tr_fields_refuse(rows, N, tr_json_root(doc), f);
    tr_json_free(doc);
    return rc;
}

Test(fields, what_is_refused_says_why)
{
    struct tr_fault f = {0};

    cr_expect(refuse("{\"x\":1,\"tools\":[1]}", &f) == -EINVAL);
    cr_expect_str_eq(f.param, "tools");
    cr_expect_str_eq(f.message, "Calling tools is not supported. Leave them out.");
    cr_expect(refuse("{\"previous_response_id\":\"r\"}", &f) == -EINVAL);
    cr_expect_str_eq(f.message, "previous_response_id is not supported. Answers are not kept.");
    cr_expect(f.err == TR_ERR_UNSUPPORTED_PARAM);
}

Test(fields, what_asks_for_nothing_is_taken)
{
    static const char *const none[] = {"null", "false", "\"\"", "[]", "{}"};
    static const char *const some[] = {"0", "true", "\"x\"", "[0]", "{\"a\":0}"};
    struct tr_fault f;
    char body[64];

    for (int i = 0; i < 5; i++) {
        snprintf(body, sizeof(body), "{\"tools\":%s}", none[i]);
        cr_expect(refuse(body, &f) == 0, "%s", body);
        snprintf(body, sizeof(body), "{\"tools\":%s}", some[i]);
        cr_expect(refuse(body, &f) == -EINVAL, "%s", body);
    }
    cr_expect(refuse("{\"truncation\":\"auto\",\"input\":5,\"tool\":1,\"toolsx\":1}", &f) == 0);
    cr_expect(refuse("{}", &f) == 0);
}

Test(fields, a_fault_of_ours_gets_their_name)
{
    static const char *const table[][2] = {
        {"max_tokens", "max_output_tokens"},
        {"messages", "input"},
        {"messages[2].content", "input[2].content"},
        {"messages_x", "messages_x"},
        {"tools", "tools"},
        {"", ""},
    };
    char out[64];

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        tr_fields_theirs(rows, N, table[i][0], out, sizeof(out));
        cr_expect_str_eq(out, table[i][1]);
    }
    tr_fields_theirs(rows, N, "messages[2].content", out, 8);
    cr_expect_str_eq(out, "input[2");
}
