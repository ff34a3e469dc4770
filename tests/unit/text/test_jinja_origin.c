/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of a rendered text count as the user's. */
#include "text/chat.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* Renders with u = "U<x>U" from the user, s = "S" from the server, n = 7, l = ["a", "b"] and
 * d = {"k": "v"} from the user.  The text comes back with the user's parts in «». */
static const char *marked(const char *tmpl)
{
    static char shown[4096];
    struct tr_errbuf err = {.msg = ""};
    struct tr_chat_text out;
    struct tr_jctx *c = tr_jctx_open(NULL);
    struct tr_chat *chat = tr_chat_open(tmpl, strlen(tmpl), &err);
    cr_assert(chat, "%s", err.msg);
    struct tr_jv *vars = tr_jv_dict(c);
    struct tr_jv *l = tr_jv_list(c);
    struct tr_jv *d = tr_jv_dict(c);
    tr_jv_append(c, l, tr_jv_str(c, "a", 1, true));
    tr_jv_append(c, l, tr_jv_str(c, "b", 1, true));
    tr_jv_set(c, d, "k", 1, true, tr_jv_str(c, "v", 1, true));
    tr_jv_set(c, vars, "u", 1, false, tr_jv_str(c, "U<x>U", 5, true));
    tr_jv_set(c, vars, "s", 1, false, tr_jv_str(c, "S", 1, false));
    tr_jv_set(c, vars, "n", 1, false, tr_jv_int(c, 7));
    tr_jv_set(c, vars, "l", 1, false, l);
    tr_jv_set(c, vars, "d", 1, false, d);
    enum tr_jerr e = tr_chat_render(chat, c, vars, &out, &err);
    cr_assert_eq(e, TR_JERR_OK, "%s", err.msg);
    char *w = shown;
    size_t k = 0;
    for (size_t i = 0; i <= out.len; i++) {
        if (k < out.n_user && out.user[k].end == i) {
            w = stpcpy(w, "»");
            k++;
        }
        if (k < out.n_user && out.user[k].start == i)
            w = stpcpy(w, "«");
        if (i < out.len)
            *w++ = out.text[i];
    }
    *w = '\0';
    tr_chat_close(chat);
    tr_jctx_close(c);
    return shown;
}

#define SHOWS(tmpl, want) cr_expect_str_eq(marked(tmpl), want, "%s: %s", tmpl, marked(tmpl))

Test(jinja_origin, plain_output_and_concatenation_keep_it)
{
    SHOWS("<{{ u }}>{{ s }}", "<«U<x>U»>S");
    SHOWS("{{ '<' + u + '>' ~ s ~ u }}", "<«U<x>U»>S«U<x>U»");
    SHOWS("{{ u }}{{ u }}", "«U<x>UU<x>U»");
    SHOWS("{{ u ~ n }}", "«U<x>U7»");
}

Test(jinja_origin, cutting_keeps_it)
{
    SHOWS("{{ ('[' ~ u ~ ']')[1:3] }}", "«U<»");
    SHOWS("{{ ('[' ~ u ~ ']')[:2] }}", "[«U»");
    SHOWS("{{ ('[' ~ u ~ ']')[::-1] }}", "]«U>x<U»[");
    SHOWS("{{ ('[' ~ u ~ ']')[0] }}{{ u[0] }}", "[«U»");
    SHOWS("{{ ('  a' ~ u ~ '  ') | trim }}", "a«U<x>U»");
    SHOWS("{{ ('a' ~ u ~ 'b').strip('aU') }}", "«<x>U»b");
    SHOWS("{{ ('a' ~ u ~ 'b').split('x') | join('|') }}", "a«U<»|«>U»b");
    SHOWS("{{ ('a-' ~ u).partition('-')[2] }}", "«U<x>U»");
    SHOWS("{% for ch in 'a' ~ u[:2] %}{{ ch }},{% endfor %}", "a,«U»,«<»,");
}

Test(jinja_origin, rewriting_keeps_it)
{
    SHOWS("{{ ('a' ~ u) | upper }}", "A«U<X>U»");
    SHOWS("{{ ('a' ~ u).replace('x', 'yy') }}", "a«U<»yy«>U»");
    SHOWS("{{ 'axa'.replace('x', u) }}", "a«U<x>U»a");
    SHOWS("{{ u | e }}", "«U&lt;x&gt;U»");
    SHOWS("{{ '%s-%s' % (u, s) }}", "«U<x>U»-S");
    SHOWS("{{ '{}-{}'.format(s, u) }}", "S-«U<x>U»");
    SHOWS("{{ u.center(7, '*') }}", "*«U<x>U»*");
    SHOWS("{{ (s ~ '\n' ~ u) | indent(2) }}", "S\n  «U<x>U»");
    SHOWS("{{ u * 2 }}", "«U<x>UU<x>U»");
    SHOWS("{{ l | join('-') }}", "«a»-«b»");
    SHOWS("{{ ('aa ' ~ u ~ ' bb') | wordwrap(5) }}", "aa\n«U<x>U»\nbb");
    SHOWS("{{ u | wordwrap(2, true, '|') }}", "«U<»|«x>»|«U»");
    SHOWS("{{ ('a' ~ u).casefold() }}", "a«u<x>u»");
    SHOWS("{{ ('\t' ~ u).expandtabs(2) }}", "  «U<x>U»");
    SHOWS("{{ '{:*^7}|{:>2}'.format(u, s) }}", "*«U<x>U»*| S");
    SHOWS("{{ '{:03d}'.format(l | length) }}", "002");
    SHOWS("{{ u | forceescape }}", "«U&lt;x&gt;U»");
}

Test(jinja_origin, blocks_and_macros_keep_it)
{
    SHOWS("{% set b %}<{{ u }}>{% endset %}{{ b }}", "<«U<x>U»>");
    SHOWS("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(u) }}", "<«U<x>U»>");
    SHOWS("{% filter upper %}a{{ u }}{% endfilter %}", "A«U<X>U»");
}

Test(jinja_origin, json_and_repr_of_what_the_request_sent_are_wholly_the_users)
{
    SHOWS("{{ d | tojson }}", "«{\"k\": \"v\"}»");
    SHOWS("[{{ l }}]", "[«['a', 'b']»]");
    SHOWS("{{ d.items() | list }}", "«[('k', 'v')]»");
    SHOWS("{{ n }}{{ n | tojson }}", "«77»");
}

Test(jinja_origin, json_of_the_templates_own_containers_marks_only_the_users_text)
{
    SHOWS("{{ {'a': u, 'b': s} | tojson }}", "{\"a\": \"«U<x>U»\", \"b\": \"S\"}");
    SHOWS("{{ [u] }}", "['«U<x>U»']");
}

Test(jinja_origin, comparison_ignores_it)
{
    SHOWS("{{ u == 'U<x>U' }}{{ 'x' in u }}{{ {'U<x>U': 1}[u] }}", "TrueTrue1");
}

Test(jinja_origin, a_character_made_of_a_number_is_the_users)
{
    SHOWS("{{ '%c' % 60 }}", "«<»");
}
