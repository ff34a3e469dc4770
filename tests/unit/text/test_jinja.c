/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the language that are easy to get wrong.  Many more cases are in tests/golden. */
#include "text/chat.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* The rendered text, or "!" and the kind of error. */
static const char *shown(const char *tmpl)
{
    static char text[4096];
    struct tr_errbuf err = {.msg = ""};
    struct tr_chat_text out;
    struct tr_chat *chat = tr_chat_open(tmpl, strlen(tmpl), &err);
    struct tr_jctx *c = tr_jctx_open(NULL);
    enum tr_jerr e = TR_JERR_SYNTAX;
    if (chat)
        e = tr_chat_render(chat, c, tr_jv_dict(c), &out, &err);
    if (e)
        (void)snprintf(text, sizeof text, "!%s", tr_jerr_name(e));
    else
        (void)snprintf(text, sizeof text, "%.*s", (int)out.len, out.text);
    tr_jctx_close(c);
    tr_chat_close(chat);
    return text;
}

#define SHOWS(tmpl, want) cr_expect_str_eq(shown(tmpl), want, "%s: %s", tmpl, shown(tmpl))

Test(jinja, a_set_in_a_loop_ends_with_its_turn)
{
    SHOWS("{% set x = 5 %}{% for i in [1, 2] %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
          "51525");
}

Test(jinja, a_macro_sees_later_assignments_around_it)
{
    SHOWS("{% macro m() %}{{ g }}{% endmacro %}{% set g = 'G' %}{{ m() }}", "G");
    SHOWS("{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "12");
}

Test(jinja, a_generator_is_read_once)
{
    SHOWS("{% set g = [1, 2] | map('string') %}{{ g | list }}{{ g | list }}", "['1', '2'][]");
}

Test(jinja, a_key_that_is_a_methods_name_is_found_by_subscript_only)
{
    SHOWS("{{ {'items': 5}['items'] }}{{ {'items': 5}.items is callable }}", "5True");
}

Test(jinja, powers_bind_as_jinja_binds_them)
{
    SHOWS("{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }}", "64 4");
}

Test(jinja, division_rounds_down)
{
    SHOWS("{{ -7 // 2 }} {{ -7 % 3 }} {{ 7.5 % -2 }} {{ 6.0 // 0.1 }}", "-4 2 -0.5 59.0");
}

Test(jinja, floats_are_the_shortest_that_read_back)
{
    SHOWS("{{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 5e-324 }}",
          "0.30000000000000004 1e+16 1000000000000000.0 5e-324");
}

Test(jinja, integers_and_floats_compare_exactly)
{
    SHOWS("{{ 9007199254740993 == 9007199254740992.0 }}{{ 1 == true }}", "FalseTrue");
}

Test(jinja, case_mappings_may_change_the_length)
{
    SHOWS("{{ 'ß' | upper }}{{ 'ΑΣ' | lower }}{{ 'ﬁ' | title }}", "SSαςFI");
}

Test(jinja, the_sandbox_hides_internals_and_mutators)
{
    SHOWS("{{ ''.__class__ }}", "");
    SHOWS("{{ ''.__class__.__mro__ }}", "!security");
    SHOWS("{{ [1].append(2) }}", "!security");
    SHOWS("{{ {}.update({}) }}", "!security");
}

Test(jinja, break_does_not_reach_out_of_a_call_block)
{
    SHOWS("{% for x in [1] %}{% call m() %}{% break %}{% endcall %}{% endfor %}", "!syntax");
    SHOWS("{% for x in [1, 2] %}{% set q %}{% break %}{% endset %}{% endfor %}z", "z");
}

Test(jinja, template_newlines_are_normalised_and_one_at_the_end_goes)
{
    SHOWS("a\r\nb\rc\r\n", "a\nb\nc");
}
