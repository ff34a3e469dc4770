/* SPDX-License-Identifier: Apache-2.0 */
/* tests/golden/templates.c - the recorded renderings of the reference Jinja.
 *
 * Each row must give exactly the recorded text, or an error where an error was recorded (the
 * same sentence where the template raised it).  Rows that the interpreter does not support have
 * `refused`; they must be refused as unsupported.  Every row is rendered with its
 * strings as the server's and as the user's: the text is the same.  jinja_generated.jsonl is made by chance
 * (make_jinja.py).
 *
 * jinja_corners.jsonl has the form of jinja_snippets.jsonl and was recorded for this test with
 * Jinja 3.1.6 under Python 3.11 in the same environment (immutable sandbox, trim_blocks,
 * lstrip_blocks, loopcontrols, generation, tojson, raise_exception, strftime_now). */
#include "text/chat.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int passed;
static int failed;

static void report(bool good, const char *set, const char *row, const char *what)
{
    if (good) {
        passed++;
        return;
    }
    failed++;
    printf("FAIL %s %s: %s\n", set, row, what);
}

static struct tr_jv *convert(struct tr_jctx *c, const json_t *j, bool user)
{
    struct tr_jv *v;
    const char *key;
    size_t key_len;
    json_t *item;
    size_t i;
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        v = tr_jv_dict(c);
        json_object_keylen_foreach(
            (json_t *)j, key, key_len,
            item) if (tr_jv_set(c, v, key, key_len, user, convert(c, item, user))) return NULL;
        return v;
    case JSON_ARRAY:
        v = tr_jv_list(c);
        json_array_foreach(j, i, item) if (tr_jv_append(c, v, convert(c, item, user))) return NULL;
        return v;
    case JSON_STRING:
        return tr_jv_str(c, json_string_value(j), json_string_length(j), user);
    case JSON_INTEGER:
        return tr_jv_int(c, json_integer_value(j));
    case JSON_REAL:
        return tr_jv_float(c, json_real_value(j));
    case JSON_TRUE:
    case JSON_FALSE:
        return tr_jv_bool(c, json_is_true(j));
    default:
        return tr_jv_none(c);
    }
}

/* Spans sorted, apart from each other, inside the text. */
static bool spans_fit(const struct tr_chat_text *t)
{
    size_t at = 0;
    for (size_t i = 0; i < t->n_user; i++) {
        if (t->user[i].start >= t->user[i].end || t->user[i].end > t->len ||
            (i && t->user[i].start <= at))
            return false;
        at = t->user[i].end;
    }
    return true;
}

static bool is_refused(const json_t *row)
{
    return json_is_true(json_object_get(row, "refused"));
}

static void check_error(const json_t *want, enum tr_jerr e, const struct tr_errbuf *err,
                        const char *set, const char *name)
{
    const char *kind = json_string_value(json_object_get(want, "error"));
    const char *message = json_string_value(json_object_get(want, "error_message"));
    report(e != TR_JERR_OK, set, name, "an error was expected");
    bool same_kind = !strcmp(kind, tr_jerr_name(e)) ||
                     /* an unknown name in an if statement: the reference sees it when it runs */
                     (!strcmp(kind, "runtime") && e == TR_JERR_SYNTAX);
    report(same_kind, set, name, err->msg);
    if (!strcmp(kind, "raised"))
        report(e == TR_JERR_RAISED && !strcmp(message, err->msg), set, name, err->msg);
}

static void render(const char *tmpl, size_t len, const json_t *row, const json_t *vars,
                   const json_t *want, const char *set, const char *name, bool user)
{
    static const struct tm now = {.tm_year = 124,
                                  .tm_mon = 6,
                                  .tm_mday = 26,
                                  .tm_hour = 13,
                                  .tm_min = 5,
                                  .tm_sec = 9,
                                  .tm_wday = 5,
                                  .tm_yday = 207};
    struct tr_errbuf err = {.msg = ""};
    struct tr_chat_text out = {.text = ""};
    struct tr_jctx *c = tr_jctx_open(NULL);
    struct tr_chat *chat = tr_chat_open(tmpl, len, &err);
    enum tr_jerr e = TR_JERR_SYNTAX;
    tr_jctx_set_now(c, &now);
    if (chat)
        e = tr_chat_render(chat, c, convert(c, vars, user), &out, &err);
    const json_t *text = json_object_get(want, "expected");
    if (is_refused(row)) {
        bool refused = e == TR_JERR_UNSUPPORTED || (!chat && strstr(err.msg, "not supported"));
        report(refused, set, name, "must be refused as unsupported");
    } else if (!text) {
        check_error(want, e, &err, set, name);
    } else if (e) {
        report(false, set, name, err.msg);
    } else {
        bool same = out.len == json_string_length(text) &&
                    !memcmp(out.text, json_string_value(text), out.len);
        report(same, set, name, out.text);
        report(spans_fit(&out), set, name, "spans are wrong");
    }
    tr_chat_close(chat);
    tr_jctx_close(c);
}

#define MARK "<|zq|>"

/* The text of a marker behind all that a person, a tool or a model may have said. */
static void mark_strings(json_t *j)
{
    static const char *const said[] = {"content",           "text",    "name", "arguments",
                                       "description",       "title",   "city", "tool_call_id",
                                       "reasoning_content", "thinking"};
    char marked[4096];
    const char *key;
    json_t *item;
    size_t i;
    json_array_foreach(j, i, item) mark_strings(item);
    if (!json_is_object(j))
        return;
    json_object_foreach(j, key, item)
    {
        bool is_said = false;
        for (i = 0; i < sizeof said / sizeof said[0]; i++)
            is_said = is_said || !strcmp(key, said[i]);
        if (!json_is_string(item)) {
            mark_strings(item);
        } else if (is_said && json_string_length(item) < sizeof marked / 2) {
            (void)snprintf(marked, sizeof marked, "%s" MARK, json_string_value(item));
            json_string_set(item, marked);
        }
    }
}

static int marks_seen;

/* Whatever a template does with what was said: a marker in it is never taken for the template's own. */
static void check_marks(const char *tmpl, size_t len, const json_t *vars, const char *set,
                        const char *name)
{
    struct tr_errbuf err;
    struct tr_chat_text out;
    struct tr_jctx *c = tr_jctx_open(NULL);
    struct tr_chat *chat = tr_chat_open(tmpl, len, &err);
    json_t *copy = json_deep_copy(vars);
    mark_strings(json_object_get(copy, "messages"));
    mark_strings(json_object_get(copy, "tools"));
    mark_strings(json_object_get(copy, "documents"));
    if (chat && tr_chat_render(chat, c, convert(c, copy, true), &out, &err) == TR_JERR_OK) {
        size_t span = 0;
        const char *at = out.text;
        while ((at = memmem(at, out.len - (size_t)(at - out.text), MARK, sizeof MARK - 1))) {
            size_t from = (size_t)(at - out.text), to = from + sizeof MARK - 1;
            while (span < out.n_user && out.user[span].end < to)
                span++;
            report(span < out.n_user && out.user[span].start <= from, set, name,
                   "what was said counts as the template's");
            marks_seen++;
            at++;
        }
    }
    json_decref(copy);
    tr_chat_close(chat);
    tr_jctx_close(c);
}

static char *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    char *p = malloc(1 << 20);
    if (!f || !p) {
        printf("cannot read %s\n", path);
        exit(1);
    }
    *len = fread(p, 1, 1 << 20, f);
    (void)fclose(f);
    return p;
}

/* Rows that make up a file by chance share their context: it is a row of its own, the first. */
static void run_snippet(const json_t *row)
{
    static json_t *shared;
    char name[32];
    const json_t *t = json_object_get(row, "template");
    const json_t *context = json_object_get(row, "context");
    if (!t) {
        json_decref(shared);
        shared = json_deep_copy(context);
        return;
    }
    (void)snprintf(name, sizeof name, "%d", (int)json_integer_value(json_object_get(row, "n")));
    for (int user = 0; user < 2; user++)
        render(json_string_value(t), json_string_length(t), row, context ? context : shared, row,
               "snippet", name, user);
    if (json_object_get(context, "messages"))
        check_marks(json_string_value(t), json_string_length(t), context, "snippet", name);
}

static void run_template(const json_t *row)
{
    char path[256];
    size_t len;
    const char *t = json_string_value(json_object_get(row, "template"));
    const char *name = json_string_value(json_object_get(row, "name"));
    json_t *vars = json_object_get(row, "variables");
    const json_t *dropped = json_object_get(row, "none_keys_dropped");
    (void)snprintf(path, sizeof path, "tests/golden/templates/%s.jinja", t);
    char *text = read_file(path, &len);
    for (int user = 0; user < 2; user++)
        render(text, len, row, vars, row, t, name, user);
    check_marks(text, len, vars, t, name);
    if (dropped) {
        size_t i;
        json_t *m;
        json_t *copy = json_deep_copy(vars);
        json_array_foreach(json_object_get(copy, "messages"), i, m)
        {
            const char *key;
            void *next;
            json_t *v;
            json_object_foreach_safe(m, next, key, v) if (json_is_null(v)) json_object_del(m, key);
        }
        render(text, len, row, copy, dropped, t, name, true);
        json_decref(copy);
    }
    free(text);
}

static void run_rows(const char *path, void (*run)(const json_t *row))
{
    char *line = NULL;
    size_t cap = 0;
    int rows = 0;
    FILE *f = fopen(path, "rb");
    if (!f) {
        report(false, path, "", "cannot be opened");
        return;
    }
    while (getline(&line, &cap, f) > 0) {
        json_error_t e;
        json_t *row = json_loads(line, JSON_ALLOW_NUL | JSON_DECODE_ANY, &e);
        if (row)
            run(row);
        report(row != NULL, path, "", "a row is no JSON");
        json_decref(row);
        rows++;
    }
    report(rows > 100, path, "", "rows are missing");
    free(line);
    (void)fclose(f);
}

/* A file of rows in the form of jinja_snippets.jsonl may be given (make_jinja.py). */
int main(int argc, char **argv)
{
    if (argc > 1) {
        run_rows(argv[1], run_snippet);
        printf("%d passed, %d failed\n", passed, failed);
        return failed != 0;
    }
    run_rows("tests/golden/jinja_snippets.jsonl", run_snippet);
    run_rows("tests/golden/jinja_corners.jsonl", run_snippet);
    run_rows("tests/golden/jinja_generated.jsonl", run_snippet);
    run_rows("tests/golden/chat_templates.jsonl", run_template);
    report(marks_seen > 500, "marks", "", "too few were seen");
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
