/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/accept.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct tr_media text = {"text", "plain", "0.0.4"};
static const struct tr_media open = {"application", "openmetrics-text", "1.0.0"};

static unsigned q_of(const char *field, const struct tr_media *m)
{
    return tr_accept_q((struct tr_slice){field, strlen(field)}, m, false);
}

Test(accept, no_field_takes_everything)
{
    cr_assert_eq(tr_accept_q((struct tr_slice){NULL, 0}, &text, false), 1000);
    cr_assert_eq(tr_accept_q((struct tr_slice){NULL, 0}, &text, true), 0, "and names nothing");
    cr_assert_eq(q_of("", &text), 0, "an empty one takes nothing");
}

Test(accept, q_is_read_to_three_digits)
{
    static const struct {
        const char *field;
        unsigned q;
    } rows[] = {
        {"text/plain", 1000},         {"text/plain;q=0.5", 500}, {"text/plain ; Q=0.123", 123},
        {"TEXT/Plain;q=1.000", 1000}, {"text/plain;q=0", 0},     {"text/plain;q=1.001", 0},
        {"text/plain;q=0.1234", 0},   {"text/plain;q=2", 0},     {"text/plain;q=-1", 0},
        {"text/plain;q=", 0},         {"text/plain;q=0.x", 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        cr_expect_eq(q_of(rows[i].field, &text), rows[i].q, "%s", rows[i].field);
}

Test(accept, the_most_specific_element_counts)
{
    cr_assert_eq(q_of("*/*;q=0.9, text/*;q=0.3, text/plain;q=0.1", &text), 100);
    cr_assert_eq(q_of("*/*;q=0.9, text/*;q=0.3", &text), 300);
    cr_assert_eq(q_of("*/*;q=0.9, image/*", &text), 900);
    cr_assert_eq(q_of("image/*, */json", &text), 0);
    cr_assert_eq(q_of("text/plain;q=0.2, text/plain;version=0.0.4;q=0.7", &text), 700);
}

Test(accept, another_version_is_another_type)
{
    cr_assert_eq(q_of("application/openmetrics-text;version=0.0.1", &open), 0);
    cr_assert_eq(q_of("application/openmetrics-text; version=\"1.0.0\" ;q=0.4", &open), 400);
    cr_assert_eq(q_of("application/openmetrics-text", &open), 1000);
}

Test(accept, who_asks_whether_it_is_named_gets_no_wildcard)
{
    const char any[] = "application/*, */*";
    cr_assert_eq(tr_accept_q((struct tr_slice){any, strlen(any)}, &open, true), 0);
}

Test(accept, quoted_commas_and_semicolons_end_nothing)
{
    cr_assert_eq(q_of("a/b;x=\"q, text/plain;\\\",q=1\", text/plain;q=0.6", &text), 600);
    cr_assert_eq(q_of("text/plain;x=\"unending, text/plain;q=0.6", &text), 1000);
}

/* As Prometheus 2.42 and 3.5 ask. */
Test(accept, prometheus_would_rather_have_openmetrics)
{
    static const char *const fields[] = {
        "application/openmetrics-text;version=1.0.0,application/"
        "openmetrics-text;version=0.0.1;q=0.75,"
        "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
        "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;"
        "escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"};
    for (size_t i = 0; i < 2; i++)
        cr_assert(q_of(fields[i], &open) > q_of(fields[i], &text) && q_of(fields[i], &text));
}
