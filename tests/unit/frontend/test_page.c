/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/page.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static int describe(const char *html, struct tr_page_head *h)
{
    memset(h, 0, sizeof(*h));
    return tr_page_describe(html, strlen(html), h);
}

static bool known(const char *field, const char *tag)
{
    return tr_page_known((struct tr_slice){field, strlen(field)}, tag);
}

/* The sums: printf 'a{}' | openssl dgst -sha256 -binary | base64, and of x(). */
Test(page, policy_has_the_hashes_of_what_is_between_the_tags)
{
    struct tr_page_head h;

    cr_assert_eq(describe("<style>a{}</style><script>x()</script>", &h), 0);
    cr_assert(strstr(h.policy, "style-src 'sha256-X1RutGBrXCt9KkSaXMK7tHftWiRscFHOhxsS8tv8hBk='"),
              "%s", h.policy);
    cr_assert(strstr(h.policy, "script-src 'sha256-D6IGS8VMvCoyaR/l0h9tERrBTATY01CoPS7l6xDv0kI='"),
              "%s", h.policy);
    cr_assert(strstr(h.policy, "default-src 'none'"));
}

Test(page, tag_is_quoted_and_changes_with_any_byte)
{
    struct tr_page_head a, b;

    cr_assert_eq(describe("<style></style><script></script>", &a), 0);
    cr_assert_eq(describe("<style></style><script></script> ", &b), 0);
    cr_assert_eq(strlen(a.tag), 34);
    cr_assert(a.tag[0] == '"' && a.tag[33] == '"');
    cr_assert_str_neq(a.tag, b.tag);
}

Test(page, what_the_policy_would_not_run_is_refused)
{
    struct tr_page_head h;

    cr_assert_eq(describe("", &h), -EINVAL);
    cr_assert_eq(describe("<style></style>", &h), -EINVAL);
    cr_assert_eq(describe("<style></style><script>", &h), -EINVAL);
    cr_assert_eq(describe("<style></style><script></script><script></script>", &h), -EINVAL);
    cr_assert_eq(describe("<style></style><script src=x></script>", &h), -EINVAL);
}

Test(page, tag_is_found_in_any_form_of_if_none_match)
{
    cr_assert(known("\"ab\"", "\"ab\""));
    cr_assert(known("W/\"ab\"", "\"ab\""));
    cr_assert(known("\"x\", \"ab\"", "\"ab\""));
    cr_assert(known("*", "\"ab\""));
    cr_assert_not(known("\"abc\"", "\"ab\""));
    cr_assert_not(known("ab", "\"ab\""));
    cr_assert_not(known("", "\"ab\""));
    cr_assert_not(tr_page_known((struct tr_slice){NULL, 0}, "\"ab\""));
}
