/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/prompt.h"
#include "replay/trace.h"
#include "replay/traces.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOOD "{\"at\":1,\"prompt_tokens\":5,\"max_tokens\":7}\n"

static int parse(struct tr_trace *t, const char *text, struct tr_errbuf *err)
{
    /* A copy of its own size, so that a byte too far is seen by the sanitizer. */
    size_t len = strlen(text);
    char *copy = malloc(len ? len : 1);
    memcpy(copy, text, len);
    int rc = tr_trace_parse(t, "f", copy, len, err);
    free(copy);
    return rc;
}

Test(trace, every_field_is_read)
{
    struct tr_trace t;
    struct tr_errbuf err = {0};
    cr_assert_eq(parse(&t,
                       "{\"at\":2.5,\"prompt\":\"w\xC3\xB6rld\",\"max_tokens\":7,\"abandon_s\":0.5,"
                       "\"class\":\"b\",\"read_bps\":0,\"stream\":false}\r\n"
                       "\n  \n" GOOD
                       "{\"at\":0,\"prompt_tokens\":9,\"max_tokens\":1,\"class\":\"b\","
                       "\"abandon_after_first_s\":3,\"read_bps\":12.5,\"stream\":null}",
                       &err),
                 0, "%s", err.msg);
    cr_assert_eq(t.n, 3);
    cr_assert_eq(t.n_classes, 2);
    const struct tr_trace_entry *e = &t.e[0];
    cr_expect_eq(e->line, 5, "sorted by arrival, lines counted with the blank ones");
    cr_expect_eq(e->prompt_tokens, 9);
    cr_expect_eq(e->abandon_after_first_s, 3);
    cr_expect_lt(e->abandon_s, 0);
    cr_expect(e->paced && e->stream);
    cr_expect_eq(e->read_bps, 12.5);
    e = &t.e[1];
    cr_expect_eq(e->line, 4);
    cr_expect(!e->paced && e->stream && !e->prompt);
    cr_expect_eq(e->max_tokens, 7);
    cr_expect_str_eq(t.classes[e->class_id], "default");
    cr_expect(e->abandon_s < 0 && e->abandon_after_first_s < 0);
    e = &t.e[2];
    cr_expect_str_eq(e->prompt, "w\xC3\xB6rld");
    cr_expect_eq(e->abandon_s, 0.5);
    cr_expect(e->paced && e->read_bps == 0 && !e->stream);
    cr_expect_str_eq(t.classes[e->class_id], "b");
    tr_trace_fini(&t);
}

Test(trace, a_bad_line_is_named_with_what_was_expected)
{
    static const struct {
        const char *line, *says;
    } bad[] = {
        {"{\"prompt_tokens\":5,\"max_tokens\":7}", "no arrival time (at)"},
        {"{\"at\":null,\"prompt_tokens\":5,\"max_tokens\":7}", "no arrival time (at)"},
        {"{\"at\":1,\"prompt_tokens\":5}", "no max_tokens"},
        {"{\"at\":1,\"max_tokens\":7}", "either prompt or prompt_tokens"},
        {"{\"at\":1,\"max_tokens\":7,\"prompt\":\"a\",\"prompt_tokens\":5}", "either prompt or"},
        {"{\"at\":-1,\"prompt_tokens\":5,\"max_tokens\":7}", "at must be a number of seconds"},
        {"{\"at\":\"1\",\"prompt_tokens\":5,\"max_tokens\":7}", "at must be a number of seconds"},
        {"{\"at\":1e300,\"prompt_tokens\":5,\"max_tokens\":7}", "at must be a number of seconds"},
        {"{\"at\":1,\"prompt_tokens\":0,\"max_tokens\":7}", "prompt_tokens must be an integer"},
        {"{\"at\":1,\"prompt_tokens\":2.5,\"max_tokens\":7}", "prompt_tokens must be an integer"},
        {"{\"at\":1,\"prompt_tokens\":99999999999,\"max_tokens\":7}", "prompt_tokens must be"},
        {"{\"at\":1,\"prompt_tokens\":5,\"max_tokens\":-7}", "max_tokens must be an integer"},
        {"{\"at\":1,\"prompt\":\"\",\"max_tokens\":7}", "prompt must be a text"},
        {"{\"at\":1,\"prompt\":\"a\",\"max_tokens\":7,\"read_bps\":-1}", "read_bps must be"},
        {"{\"at\":1,\"prompt\":\"a\",\"max_tokens\":7,\"abandon_s\":true}", "abandon_s must be"},
        {"{\"at\":1,\"prompt\":\"a\",\"max_tokens\":7,\"stream\":1}", "stream must be true"},
        {"{\"at\":1,\"prompt\":\"a\",\"max_tokens\":7,\"class\":\"\"}", "class must be a name"},
        {"{\"at\":1,\"prompt\":\"a\",\"max_tokens\":7,\"stream\":false,"
         "\"abandon_after_first_s\":1}",
         "abandon_after_first_s needs a stream"},
        {"{\"at\":1,\"prompt\":\"a\",\"max_tokens\":7,\"chat\":1}", "chat needs prompt_tokens"},
        {"{\"at\":1,\"prompt_tokens\":5,\"max_tokens\":7,\"chat\":\"a\"}", "chat must be an"},
        {"{\"at\":1,\"at\":2,\"prompt_tokens\":5,\"max_tokens\":7}", "not JSON: duplicate"},
        {"{\"at\":1", "not JSON: "},
        {"{} {}", "not JSON: "},
        {"[1]", "not a JSON object"},
        {"# a comment", "not JSON: "},
        {"{\"at\":1,\"prompt\":\"\xff\",\"max_tokens\":7}", "not JSON: "},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[512], where[600];
        struct tr_trace t;
        struct tr_errbuf err = {0};
        snprintf(text, sizeof(text), GOOD "\n%s\n" GOOD, bad[i].line);
        snprintf(where, sizeof(where), "f:3: %s", bad[i].says);
        cr_expect_eq(parse(&t, text, &err), -EINVAL, "%s", bad[i].line);
        cr_expect(!strncmp(err.msg, where, strlen(where)), "%s: %s", bad[i].line, err.msg);
        tr_trace_fini(&t);
    }
}

Test(trace, no_request_and_too_many_classes_are_refused)
{
    struct tr_trace t;
    struct tr_errbuf err = {0};
    cr_expect_eq(parse(&t, "", &err), -EINVAL);
    cr_expect_str_eq(err.msg, "f: no request in it");
    tr_trace_fini(&t);
    cr_expect_eq(parse(&t, "\n \n\r\n", &err), -EINVAL);
    tr_trace_fini(&t);

    char text[8192];
    size_t n = 0;
    for (int i = 0; i <= TR_TRACE_CLASSES_MAX; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n,
                              "{\"at\":1,\"prompt_tokens\":5,\"max_tokens\":7,\"class\":\"c%d\"}\n",
                              i);
    cr_expect_eq(parse(&t, text, &err), -EINVAL);
    cr_expect_str_eq(err.msg, "f:33: more than 32 classes");
    tr_trace_fini(&t);
}

Test(trace, unknown_fields_are_ignored_and_noted_once)
{
    struct tr_trace t;
    struct tr_errbuf err = {0};
    cr_assert_eq(
        parse(&t,
              "{\"at\":1,\"prompt_tokens\":5,\"max_tokens\":7,\"priority\":3,\"x\\u001b\":1}\n"
              "{\"at\":1,\"prompt_tokens\":5,\"max_tokens\":7,\"priority\":[]}\n" GOOD,
              &err),
        0);
    cr_expect_eq(t.n, 3);
    cr_expect_eq(t.n_unknown, 2);
    cr_expect_str_eq(t.unknown[0], "priority");
    cr_expect_str_eq(t.unknown[1], "x?", "what a terminal shows is printable");
    cr_expect_eq(t.unknown_lines, 2);
    tr_trace_fini(&t);
}

Test(trace, a_file_that_is_not_there_is_told)
{
    struct tr_trace t;
    struct tr_errbuf err = {0};
    cr_expect_eq(tr_trace_load(&t, "/nonexistent/trace", &err), -EINVAL);
    cr_expect(strstr(err.msg, "/nonexistent/trace: No such file"), "%s", err.msg);
    tr_trace_fini(&t);
}

static char *printed(const struct tr_trace *t)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    tr_trace_print(t, f);
    fclose(f);
    return text;
}

Test(trace, the_built_in_ones_are_the_same_for_a_seed_and_can_be_printed_and_read)
{
    static const char *const names[] = {"chat", "mixed", "abandonment", "turns"};
    for (int i = 0; i < 4; i++) {
        struct tr_trace a, b, other, back;
        struct tr_errbuf err = {0};
        cr_assert_eq(tr_traces_make(&a, names[i], 1), 0);
        cr_assert_eq(tr_traces_make(&b, names[i], 1), 0);
        cr_assert_eq(tr_traces_make(&other, names[i], 2), 0);
        char *x = printed(&a), *y = printed(&b), *z = printed(&other);
        cr_expect_str_eq(x, y);
        cr_expect_str_neq(x, z);
        cr_assert_eq(parse(&back, x, &err), 0, "%s", err.msg);
        char *again = printed(&back);
        cr_expect_str_eq(again, x, "nothing is lost in print");
        cr_expect_gt(a.n, 40);
        for (size_t k = 1; k < a.n; k++)
            cr_expect_leq(a.e[k - 1].at_s, a.e[k].at_s);
        free(x), free(y), free(z), free(again);
        tr_trace_fini(&a), tr_trace_fini(&b), tr_trace_fini(&other), tr_trace_fini(&back);
    }
    struct tr_trace none;
    cr_expect_eq(tr_traces_make(&none, "nothing", 1), -ENOENT);
    tr_trace_fini(&none);
}

Test(trace, chats_grow_from_turn_to_turn_up_to_4000_tokens)
{
    struct tr_trace t;
    uint64_t prompt[9] = {0}, most = 0;
    double at[9] = {0};
    cr_assert_eq(tr_traces_make(&t, "turns", 1), 0);
    for (size_t i = 0; i < t.n; i++) {
        const struct tr_trace_entry *e = &t.e[i];
        cr_assert(e->chat >= 1 && e->chat <= 8);
        cr_expect_str_eq(t.classes[e->class_id], prompt[e->chat] ? "later" : "first");
        cr_expect_gt(e->prompt_tokens, prompt[e->chat]);
        cr_expect(e->at_s >= at[e->chat] + (prompt[e->chat] ? 4 : 0));
        prompt[e->chat] = e->prompt_tokens;
        at[e->chat] = e->at_s;
        most = e->prompt_tokens > most ? e->prompt_tokens : most;
    }
    for (int chat = 1; chat <= 8; chat++)
        cr_expect_gt(prompt[chat], 2000);
    cr_expect(most > 3500 && most <= 4000);
    tr_trace_fini(&t);
}

static char *body_of(const struct tr_prompts *p, struct tr_trace_entry *e, size_t line)
{
    static const struct tr_replay_opts o = {.seed = 1, .to.url = {.host = "h", .port = "1"}};
    size_t len;
    e->line = line;
    char *all = tr_prompt_request(p, &o, "m", e, "id", &len);
    cr_assert(all);
    char *ids = strstr(all, "\"prompt\":[");
    cr_assert(ids);
    ids = strdup(ids + strlen("\"prompt\":["));
    *strchr(ids, ']') = 0;
    free(all);
    return ids;
}

Test(trace, prompts_of_a_chat_begin_alike_and_others_do_not)
{
    struct tr_prompts p = {.n = 30};
    for (int i = 0; i < 30; i++)
        p.ids[i] = 100 + i;
    struct tr_trace_entry turn = {.prompt_tokens = 40, .max_tokens = 1, .chat = 3};
    struct tr_trace_entry next = {.prompt_tokens = 90, .max_tokens = 1, .chat = 3};
    struct tr_trace_entry other = {.prompt_tokens = 40, .max_tokens = 1, .chat = 4};
    struct tr_trace_entry alone = {.prompt_tokens = 40, .max_tokens = 1};
    char *a = body_of(&p, &turn, 1), *b = body_of(&p, &next, 2), *c = body_of(&p, &other, 3);
    char *d = body_of(&p, &alone, 3), *e = body_of(&p, &alone, 4);
    cr_expect(strlen(b) > strlen(a) && !strncmp(a, b, strlen(a)) && b[strlen(a)] == ',');
    cr_expect_str_neq(a, c);
    cr_expect_str_neq(c, d);
    cr_expect_str_neq(d, e);
    free(a), free(b), free(c), free(d), free(e);
}

Test(trace, a_limit_keeps_the_first)
{
    struct tr_trace t;
    cr_assert_eq(tr_traces_make(&t, "chat", 1), 0);
    double third = t.e[2].at_s;
    tr_trace_limit(&t, 3);
    cr_expect_eq(t.n, 3);
    cr_expect_eq(t.e[2].at_s, third);
    tr_trace_limit(&t, 10);
    cr_expect_eq(t.n, 3);
    tr_trace_fini(&t);
}
