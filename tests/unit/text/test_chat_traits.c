/* SPDX-License-Identifier: Apache-2.0 */
/* What is found out about templates of the usual makes. */
#include "text/chat_traits.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

static struct tr_chat_traits traits;

static void ask(const char *tmpl)
{
    struct tr_errbuf err = {.msg = ""};
    struct tr_chat *chat = tr_chat_open(tmpl, strlen(tmpl), &err);

    cr_assert(chat, "%s", err.msg);
    tr_chat_traits(chat, &traits);
    tr_chat_close(chat);
}

static void ask_file(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "rb");

    cr_assert(f, "%s", path);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    (void)fclose(f);
    ask(text);
}

static bool is_all(enum tr_chat_content form)
{
    for (int i = 0; i < TR_CHAT_ROLES; i++)
        if (traits.content[i] != form)
            return false;
    return true;
}

Test(chat_traits, templates_of_turns_read_strings_and_no_tools)
{
    ask_file("tests/golden/templates/smollm2.jinja");
    cr_expect(is_all(TR_CHAT_STRING) && !traits.shows_tools && !traits.shows_calls);
    cr_expect(traits.shows_results, "a role like others");
    ask_file("tests/golden/templates/gemma_turns.jinja");
    cr_expect(traits.content[TR_CHAT_USER] == TR_CHAT_EITHER && !traits.shows_tools);
}

Test(chat_traits, templates_of_tools_are_seen_to_read_them)
{
    ask_file("tests/golden/templates/chatml_tools.jinja");
    cr_expect(traits.shows_tools && traits.shows_calls && traits.shows_results);
    cr_expect(!traits.text_arguments && traits.blank == TR_CHAT_EMPTY);
}

Test(chat_traits, content_is_asked_of_each_role)
{
    ask("{% for m in messages %}{% if m.role == 'user' %}{% for p in m.content %}"
        "{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% else %}{{ m.content }}"
        "{% endif %}{% endfor %}");
    cr_expect_eq(traits.content[TR_CHAT_USER], TR_CHAT_PARTS);
    cr_expect_eq(traits.content[TR_CHAT_SYSTEM], TR_CHAT_STRING);
    cr_expect_eq(traits.content[TR_CHAT_ASSISTANT], TR_CHAT_STRING);
    ask("{% for m in messages %}{% for p in m.content %}{{ p['text'] }}{% endfor %}{% endfor %}");
    cr_expect(is_all(TR_CHAT_PARTS));
    ask("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
        "{{ m.content[0].text }}{% endif %}{% endfor %}");
    cr_expect(is_all(TR_CHAT_EITHER));
    ask("{% for m in messages %}{{ m.content | tojson }}{% endfor %}");
    cr_expect(is_all(TR_CHAT_STRING), "a list that is printed as a list");
}

Test(chat_traits, calls_may_need_text_or_the_absence_of_content)
{
    ask("{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}"
        "{{ '```' + c.function.name + c.function.arguments }}{% endfor %}{% else %}"
        "{{ m.content }}{% endif %}{% endfor %}");
    cr_expect(traits.shows_calls && traits.text_arguments && traits.blank == TR_CHAT_NONE);
    ask("{% for m in messages %}{% if 'content' in m %}{{ m.content }}{% else %}"
        "{{ m.tool_calls[0].function | tojson }}{% endif %}{% endfor %}");
    cr_expect(traits.shows_calls && !traits.text_arguments && traits.blank == TR_CHAT_ABSENT);
}

Test(chat_traits, a_template_that_takes_nothing_without_tools_is_asked_with_them)
{
    ask("{% for t in tools %}{{ t.function.name }}{% endfor %}{% for m in messages %}"
        "{% if m.content is string %}{{ m.content }}{% else %}{{ m.content[0].text }}{% endif %}"
        "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}");
    cr_expect(traits.shows_tools && traits.shows_calls && traits.shows_results);
    cr_expect(is_all(TR_CHAT_EITHER));
}

Test(chat_traits, a_template_that_refuses_or_never_ends_is_asked_no_more)
{
    ask("{{ raise_exception('no') }}");
    cr_expect(is_all(TR_CHAT_STRING) && !traits.shows_tools && !traits.shows_calls);
    ask("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}");
    cr_expect(is_all(TR_CHAT_STRING));
}
