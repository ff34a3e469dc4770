/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat_traits.h"

#include <string.h>

/* Of one probe; a template that needs more is not asked further. */
#define PROBE_MEMORY ((size_t)64 << 20)
#define PROBE_STEPS ((uint64_t)2 << 20)

enum form { STRING, PARTS, NONE, ABSENT };

/* A message to be made. */
struct turn {
    const char *role;
    const char *text;
    enum form form;
    bool calls; /* with a tool call */
};

/* One conversation and what it was rendered to; "" if the template refused it. */
struct probe {
    struct tr_jctx *ctx;
    struct tr_chat_text out;
};

/* How a template is asked. */
struct asker {
    const struct tr_chat *chat;
    bool text_arguments;
    bool tools; /* there are some: a few templates take no conversation without */
};

static const char call_name[] = "zq_call", call_value[] = "zqvalue", tool_name[] = "zq_tool";

static struct tr_jv *str(struct tr_jctx *c, const char *s)
{
    return tr_jv_str(c, s, strlen(s), false);
}

static void set(struct tr_jctx *c, struct tr_jv *d, const char *key, struct tr_jv *v)
{
    (void)tr_jv_set(c, d, key, strlen(key), false, v); /* no memory shows when it is rendered */
}

static struct tr_jv *list_of(struct tr_jctx *c, struct tr_jv *item)
{
    struct tr_jv *l = tr_jv_list(c);
    (void)tr_jv_append(c, l, item);
    return l;
}

static struct tr_jv *make_parts(struct tr_jctx *c, const char *text)
{
    struct tr_jv *part = tr_jv_dict(c);
    set(c, part, "type", str(c, "text"));
    set(c, part, "text", str(c, text));
    return list_of(c, part);
}

/* The identifier is one that templates of all families take. */
static struct tr_jv *make_calls(struct tr_jctx *c, bool text_arguments)
{
    struct tr_jv *call = tr_jv_dict(c), *function = tr_jv_dict(c), *arguments = tr_jv_dict(c);
    set(c, arguments, "zqkey", str(c, call_value));
    set(c, function, "name", str(c, call_name));
    set(c, function, "arguments", text_arguments ? str(c, "{\"zqkey\": \"zqvalue\"}") : arguments);
    set(c, call, "id", str(c, "call00001"));
    set(c, call, "type", str(c, "function"));
    set(c, call, "function", function);
    return list_of(c, call);
}

static struct tr_jv *make_tools(struct tr_jctx *c)
{
    struct tr_jv *tool = tr_jv_dict(c), *function = tr_jv_dict(c), *schema = tr_jv_dict(c),
                 *properties = tr_jv_dict(c), *property = tr_jv_dict(c);
    set(c, property, "type", str(c, "string"));
    set(c, property, "description", str(c, "which"));
    set(c, properties, "zqkey", property);
    set(c, schema, "type", str(c, "object"));
    set(c, schema, "properties", properties);
    set(c, schema, "required", list_of(c, str(c, "zqkey")));
    set(c, function, "name", str(c, tool_name));
    set(c, function, "description", str(c, "does it"));
    set(c, function, "parameters", schema);
    set(c, tool, "type", str(c, "function"));
    set(c, tool, "function", function);
    return list_of(c, tool);
}

static struct tr_jv *make_message(struct tr_jctx *c, const struct turn *t, bool text_arguments)
{
    struct tr_jv *m = tr_jv_dict(c);
    set(c, m, "role", str(c, t->role));
    if (t->form == STRING)
        set(c, m, "content", str(c, t->text));
    else if (t->form == PARTS)
        set(c, m, "content", make_parts(c, t->text));
    else if (t->form == NONE)
        set(c, m, "content", tr_jv_none(c));
    if (t->calls)
        set(c, m, "tool_calls", make_calls(c, text_arguments));
    if (!strcmp(t->role, "tool")) {
        set(c, m, "name", str(c, call_name));
        set(c, m, "tool_call_id", str(c, "call00001"));
    }
    return m;
}

static void probe_close(struct probe *p)
{
    tr_jctx_close(p->ctx);
    *p = (struct probe){.out.text = ""};
}

/* The probe is to be closed whatever became of it. */
static void probe_open(struct probe *p, const struct asker *a, const struct turn *turns, size_t n)
{
    static const struct tm now = {.tm_year = 124, .tm_mon = 6, .tm_mday = 26, .tm_yday = 207};
    const struct tr_jlimits limits = {.memory = PROBE_MEMORY, .steps = PROBE_STEPS};
    struct tr_errbuf ignored;

    *p = (struct probe){.out.text = ""};
    struct tr_jctx *c = p->ctx = tr_jctx_open(&limits);
    if (!c)
        return;
    tr_jctx_set_now(c, &now); /* two renderings of the same are the same */
    struct tr_jv *vars = tr_jv_dict(c), *messages = tr_jv_list(c);
    for (size_t i = 0; i < n; i++)
        (void)tr_jv_append(c, messages, make_message(c, &turns[i], a->text_arguments));
    set(c, vars, "messages", messages);
    set(c, vars, "tools", a->tools ? make_tools(c) : tr_jv_none(c));
    set(c, vars, "documents", tr_jv_none(c));
    set(c, vars, "add_generation_prompt", tr_jv_bool(c, true));
    set(c, vars, "bos_token", str(c, ""));
    set(c, vars, "eos_token", str(c, ""));
    if (tr_chat_render(a->chat, c, vars, &p->out, &ignored))
        p->out = (struct tr_chat_text){.text = ""};
}

static bool has(const struct probe *p, const char *word)
{
    return p->out.len && memmem(p->out.text, p->out.len, word, strlen(word));
}

static bool same(const struct probe *a, const struct probe *b)
{
    return a->out.len == b->out.len && !memcmp(a->out.text, b->out.text, a->out.len);
}

/* `word` with a quotation mark before it: it was printed as part of a list. */
static bool is_quoted(const struct probe *p, const char *word)
{
    const char *at = memmem(p->out.text, p->out.len, word, strlen(word));
    return at && at > p->out.text && strchr("'\"", at[-1]);
}

/* What form the content of turn k may have. */
static enum tr_chat_content ask_content(const struct asker *a, const struct turn *turns, size_t n,
                                        size_t k)
{
    enum tr_chat_content answer = TR_CHAT_STRING;
    struct turn changed[4];
    struct probe s, p;

    memcpy(changed, turns, n * sizeof(*turns));
    changed[k].form = PARTS;
    probe_open(&s, a, turns, n);
    probe_open(&p, a, changed, n);
    if (has(&s, turns[k].text))
        answer = same(&s, &p) ? TR_CHAT_EITHER : TR_CHAT_STRING;
    else if (has(&p, turns[k].text) && !is_quoted(&p, turns[k].text))
        answer = TR_CHAT_PARTS;
    probe_close(&s);
    probe_close(&p);
    return answer;
}

static void ask_contents(const struct asker *a, struct tr_chat_traits *out)
{
    static const struct turn system[] = {{"system", "zqsystem", STRING, false},
                                         {"user", "zquser", STRING, false}},
                             talk[] = {{"user", "zquser", STRING, false},
                                       {"assistant", "zqanswer", STRING, false},
                                       {"user", "zqthanks", STRING, false}};

    out->content[TR_CHAT_SYSTEM] = ask_content(a, system, 2, 0);
    out->content[TR_CHAT_USER] = ask_content(a, talk, 3, 0);
    /* Where the user's are lists, a conversation of strings says nothing about others. */
    struct turn mixed[3];
    memcpy(mixed, talk, sizeof(mixed));
    if (out->content[TR_CHAT_USER] == TR_CHAT_PARTS)
        mixed[0].form = mixed[2].form = PARTS;
    out->content[TR_CHAT_ASSISTANT] = ask_content(a, mixed, 3, 1);
}

static bool shows(const struct asker *a, const struct turn *turns, size_t n, const char *word)
{
    struct probe p;

    probe_open(&p, a, turns, n);
    bool yes = has(&p, word);
    probe_close(&p);
    return yes;
}

static struct asker with_text(const struct asker *a, bool text)
{
    return (struct asker){a->chat, text, a->tools};
}

/* Which form of the arguments is printed as JSON; an object if both are. */
static bool wants_text(const struct asker *a, const struct turn *turns, size_t n)
{
    const struct asker with = with_text(a, true), without = with_text(a, false);
    struct probe object, text;

    probe_open(&object, &without, turns, n);
    probe_open(&text, &with, turns, n);
    bool object_fits = has(&object, call_value) && !has(&object, "'zqkey'");
    bool text_fits = has(&text, "{\"zqkey\": \"zqvalue\"}");
    probe_close(&object);
    probe_close(&text);
    return text_fits && !object_fits;
}

static void ask_calls(struct asker *a, struct tr_chat_traits *out)
{
    static const enum form blanks[] = {STRING, NONE, ABSENT};
    const struct asker with = with_text(a, true), without = with_text(a, false);
    enum form user = out->content[TR_CHAT_USER] == TR_CHAT_PARTS ? PARTS : STRING;
    struct turn turns[] = {{"user", "zquser", user, false},
                           {"assistant", "", STRING, true},
                           {"tool", "zqresult", STRING, false}};

    for (size_t i = 0; i < 3 && !out->shows_calls; i++) {
        turns[1].form = blanks[i];
        out->shows_calls =
            (shows(&without, turns, 3, call_name) || shows(&with, turns, 3, call_name)) &&
            !(i && shows(&without, turns, 3, "None"));
        if (out->shows_calls)
            out->blank = (enum tr_chat_blank)i;
    }
    if (!out->shows_calls)
        turns[1].form = STRING;
    out->text_arguments = out->shows_calls && wants_text(a, turns, 3);
    a->text_arguments = out->text_arguments;
    out->content[TR_CHAT_TOOL] = ask_content(a, turns, 3, 2);
    turns[2].form = out->content[TR_CHAT_TOOL] == TR_CHAT_PARTS ? PARTS : STRING;
    out->shows_results = shows(a, turns, 3, "zqresult");
}

/* Whether the template takes a user's message with tools, or without. */
static bool takes(const struct tr_chat *chat, bool tools, const char *word)
{
    const struct asker a = {chat, false, tools};
    const struct turn string = {"user", "zquser", STRING, false},
                      parts = {"user", "zquser", PARTS, false};

    return shows(&a, &string, 1, word) || shows(&a, &parts, 1, word);
}

void tr_chat_traits(const struct tr_chat *chat, struct tr_chat_traits *out)
{
    struct asker a = {.chat = chat};

    memset(out, 0, sizeof(*out));
    out->shows_tools = takes(chat, true, tool_name);
    a.tools = out->shows_tools && !takes(chat, false, "zquser");
    ask_contents(&a, out);
    a.tools = out->shows_tools;
    ask_calls(&a, out);
}
