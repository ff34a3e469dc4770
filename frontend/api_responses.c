/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_responses.c - POST /v1/responses: a request of OpenAI's Responses API as one of chat
 * completions; and what the dialect has.
 *
 * Input items become messages: a function_call joins the assistant's message before it, or begins one;
 * its output is a message of the role tool; reasoning items are reasoning_content of the assistant's message.
 * What cannot be honoured is refused here in the client's words; what chat completions refuse too (tools,
 * formats, ranges) goes through to where they do it. */
#include "frontend/api_responses.h"

#include "frontend/task.h"
#include "shm/extra.h"

#include <errno.h>
#include <string.h>

enum {
    WORD_BYTES = 512, /* of a string that objects repeat */
    METADATA_PAIRS = 16
};

static const struct tr_field_row fields[] = {
    TR_FIELD("background", "", "true or false", "false",
             "it goes on without a reader: see [background](#background)"),
    TR_FIELD("frequency_penalty", "", "-2 … 2", "0", "over the answer's tokens"),
    TR_FIELD("include", "", "array", "none",
             "`message.output_text.logprobs` asks for log-probabilities; what else it names is not "
             "made here"),
    TR_FIELD("input", "messages", "string, or array of items", "required",
             "messages, `function_call` and `function_call_output`; a `reasoning` item is the "
             "`reasoning_content` of the assistant's message behind it. Content is text"),
    TR_FIELD("instructions", "", "string", "none", "a system message before the input"),
    TR_FIELD("max_output_tokens", "max_completion_tokens", "0 …", "rest of the context",
             "the context is a limit as well"),
    TR_FIELD("max_tool_calls", "", "number", "none", "repeated in the object"),
    TR_FIELD("metadata", "", "object of at most 16 strings of at most 512 bytes", "none",
             "repeated in the object"),
    TR_FIELD("model", "", "string", "required", "as in chat completions"),
    TR_FIELD("parallel_tool_calls", "", "true or false", "true", "`false`: no more than one call"),
    TR_FIELD("presence_penalty", "", "-2 … 2", "0", "over the answer's tokens"),
    TR_FIELD("prompt_cache_key", "", "string of at most 512 bytes", "none",
             "repeated in the object"),
    TR_FIELD("reasoning", "", "object", "none",
             "`effort` is `reasoning_effort` of chat; repeated in the object"),
    TR_FIELD("safety_identifier", "", "string of at most 512 bytes", "none",
             "repeated in the object"),
    TR_FIELD("stream", "", "true or false", "false", "events as they come"),
    TR_FIELD("stream_options", "", "object; needs `stream`", "none",
             "`include_obfuscation` is taken and ignored"),
    TR_FIELD("temperature", "", "0 … 2", "1", "0 is greedy"),
    TR_FIELD("text", "", "object", "none", "`format`; `verbosity` is taken and ignored"),
    TR_FIELD("text.format", "response_format", "`text`, `json_object` or `json_schema` as `type`",
             "`text`", "what the answer is: [structured output](structured-output.md)"),
    TR_FIELD("tool_choice", "tool_choice",
             "`none`, `auto`, `required`, `{\"type\":\"function\",\"name\":…}`, "
             "`{\"type\":\"allowed_tools\",\"mode\":…,\"tools\":[…]}`",
             "`auto`", "whether one is called, and which"),
    TR_FIELD("tools", "tools", "array of at most 128 functions", "none",
             "functions that the answer may call: [tools.md](tools.md)"),
    TR_FIELD("top_logprobs", "", "0 … 20", "0", "alternatives to each token; asks for `include`"),
    TR_FIELD("top_p", "", "0 … 1", "1",
             "the most probable tokens that have this probability together"),
    TR_FIELD("truncation", "", "`disabled`", "`disabled`", "input that is too long is refused"),
    TR_FIELD_NEVER("conversation", "", "Responses are not stored: send all of it as input."),
    TR_FIELD_NEVER("previous_response_id", "",
                   "Responses are not stored: send all of the conversation as input."),
    TR_FIELD_NEVER("prompt", "", "Templates are not stored: send instructions and input."),
    TR_FIELD_NEVER("store", "", "Responses are not stored: leave it out, or send false."),
    TR_FIELD_IGNORED("service_tier", "there is one, and it is called `default`"),
    TR_FIELD_IGNORED("user", "keys tell who it is"),
};

/* ---- faults ---- */

int tr_responses_bad(const struct tr_responses_in *t, const struct tr_json *v, const char *why)
{
    char param[sizeof(t->f->param)];

    tr_json_param(t->doc, v, param, sizeof(param));
    return tr_fault_set(t->f, TR_ERR_BAD_PARAM, param, "%s", why);
}

int tr_responses_unsupported(const struct tr_responses_in *t, const struct tr_json *v,
                             const char *why)
{
    tr_responses_bad(t, v, why);
    t->f->err = TR_ERR_UNSUPPORTED_PARAM;
    return -EINVAL;
}

const struct tr_json *tr_responses_field(const struct tr_responses_in *t, const char *name)
{
    const struct tr_json *v = tr_json_get(t->body, name, strlen(name));

    return v && v->type != TR_JSON_NULL ? v : NULL;
}

/* ---- what cannot be honoured ---- */

static int refuse(const struct tr_responses_in *t)
{
    const struct tr_json *v = tr_responses_field(t, "truncation");

    if (v && TR_JSON_EQ(v, "auto"))
        return tr_responses_unsupported(
            t, v, "Input is not cut: truncation must be \"disabled\" or absent.");
    if (v && !TR_JSON_EQ(v, "disabled"))
        return tr_responses_bad(t, v, "truncation must be \"disabled\".");
    return tr_fields_refuse(fields, sizeof(fields) / sizeof(fields[0]), t->body, t->f);
}

/* Fields that are only repeated, or not even that, still have a type. */
static int check_types(const struct tr_responses_in *t)
{
    static const struct {
        const char *name;
        enum tr_json_type type;
        const char *why;
    } typed[] = {
        {"background", TR_JSON_BOOL, "background must be true or false."},
        {"include", TR_JSON_ARRAY, "include must be an array."},
        {"instructions", TR_JSON_STRING, "instructions must be a string."},
        {"max_output_tokens", TR_JSON_NUMBER, "max_output_tokens must be an integer."},
        {"max_tool_calls", TR_JSON_NUMBER, "max_tool_calls must be an integer."},
        {"metadata", TR_JSON_OBJECT, "metadata must be an object."},
        {"parallel_tool_calls", TR_JSON_BOOL, "parallel_tool_calls must be true or false."},
        {"prompt_cache_key", TR_JSON_STRING, "prompt_cache_key must be a string."},
        {"reasoning", TR_JSON_OBJECT, "reasoning must be an object."},
        {"safety_identifier", TR_JSON_STRING, "safety_identifier must be a string."},
        {"stream", TR_JSON_BOOL, "stream must be true or false."},
        {"text", TR_JSON_OBJECT, "text must be an object."},
        {"tools", TR_JSON_ARRAY, "tools must be an array."},
    };

    for (size_t i = 0; i < sizeof(typed) / sizeof(typed[0]); i++) {
        const struct tr_json *v = tr_responses_field(t, typed[i].name);
        if (v && v->type != typed[i].type)
            return tr_responses_bad(t, v, typed[i].why);
    }
    return 0;
}

/* Strings that every object repeats are short. */
static int check_words(const struct tr_responses_in *t)
{
    static const char *const words[] = {"prompt_cache_key", "safety_identifier"};
    const struct tr_json *m = tr_responses_field(t, "metadata");

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const struct tr_json *v = tr_responses_field(t, words[i]);
        if (v && v->len > WORD_BYTES)
            return tr_responses_bad(t, v, "This is longer than 512 bytes.");
    }
    if (m && m->len > METADATA_PAIRS)
        return tr_responses_bad(t, m, "metadata has at most 16 members.");
    for (struct tr_json_it it = tr_json_iter(m); tr_json_step(&it);)
        if (it.val->type != TR_JSON_STRING || it.key->len > WORD_BYTES || it.val->len > WORD_BYTES)
            return tr_responses_bad(t, it.val, "metadata holds strings of at most 512 bytes.");
    return 0;
}

/* ---- other fields ---- */

/* It would come out with a null in its middle. */
static int too_deep(const struct tr_responses_in *t, const struct tr_json *v)
{
    return tr_responses_bad(t, v, "This is nested too deeply.");
}

/* Those that chat completions call the same, and those of ours that every dialect has. */
static int copy_fields(const struct tr_responses_in *t)
{
    static const char *const same[] = {"model",
                                       "temperature",
                                       "top_p",
                                       "top_logprobs",
                                       "seed",
                                       "stop",
                                       "stop_token_ids",
                                       "top_k",
                                       "min_p",
                                       "min_tokens",
                                       "ignore_eos",
                                       "presence_penalty",
                                       "logit_bias",
                                       "priority",
                                       "frequency_penalty",
                                       "timeout_s",
                                       "documents",
                                       "repetition_penalty",
                                       "metadata",
                                       "skip_special_tokens",
                                       "stream_options",
                                       "chat_template",
                                       "chat_template_kwargs",
                                       "parallel_tool_calls",
                                       "include_stop_str_in_output",
                                       "no_stop_trim"};

    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        const struct tr_json *v = tr_responses_field(t, same[i]);
        if (!v)
            continue;
        if (!tr_emit_may_copy(v))
            return too_deep(t, v);
        tr_emit_key(t->out, same[i]);
        tr_emit_json(t->out, t->doc, v);
    }
    return 0;
}

/* What is flat here is an object of its own there: all of `from` but its type under `name`. */
static void nest(const struct tr_responses_in *t, const struct tr_json *from, const char *name)
{
    struct tr_emit *e = t->out;

    tr_emit_obj(e);
    tr_emit_kstr(e, "type", name);
    tr_emit_key(e, name);
    tr_emit_obj(e);
    for (struct tr_json_it it = tr_json_iter(from); tr_json_step(&it);) {
        if (TR_JSON_EQ(it.key, "type"))
            continue;
        tr_emit_keyn(e, it.key->u.s, it.key->len);
        tr_emit_json(e, t->doc, it.val);
    }
    tr_emit_obj_end(e);
    tr_emit_obj_end(e);
}

static void put_or_nest(const struct tr_responses_in *t, const struct tr_json *v)
{
    if (tr_json_is(v, TR_JSON_OBJECT) && TR_JSON_EQ(TR_JSON_GET(v, "type"), "function"))
        nest(t, v, "function");
    else
        tr_emit_json(t->out, t->doc, v);
}

static void tool_list(const struct tr_responses_in *t, const struct tr_json *list)
{
    tr_emit_arr(t->out);
    for (struct tr_json_it it = tr_json_iter(list); tr_json_step(&it);)
        put_or_nest(t, it.val);
    tr_emit_arr_end(t->out);
}

/* {"type": "allowed_tools", "mode": ..., "tools": [...]} */
static void allowed(const struct tr_responses_in *t, const struct tr_json *choice)
{
    struct tr_emit *e = t->out;

    tr_emit_obj(e);
    tr_emit_kstr(e, "type", "allowed_tools");
    tr_emit_key(e, "allowed_tools");
    tr_emit_obj(e);
    for (struct tr_json_it it = tr_json_iter(choice); tr_json_step(&it);) {
        if (TR_JSON_EQ(it.key, "type"))
            continue;
        tr_emit_keyn(e, it.key->u.s, it.key->len);
        if (TR_JSON_EQ(it.key, "tools") && it.val->type == TR_JSON_ARRAY)
            tool_list(t, it.val);
        else
            tr_emit_json(e, t->doc, it.val);
    }
    tr_emit_obj_end(e);
    tr_emit_obj_end(e);
}

static void tools(const struct tr_responses_in *t)
{
    const struct tr_json *list = tr_responses_field(t, "tools"),
                         *choice = tr_responses_field(t, "tool_choice");
    const struct tr_json *format = TR_JSON_GET(tr_responses_field(t, "text"), "format");

    if (list) {
        tr_emit_key(t->out, "tools");
        tool_list(t, list);
    }
    if (choice) {
        tr_emit_key(t->out, "tool_choice");
        if (tr_json_is(choice, TR_JSON_OBJECT) &&
            TR_JSON_EQ(TR_JSON_GET(choice, "type"), "allowed_tools"))
            allowed(t, choice);
        else
            put_or_nest(t, choice);
    }
    if (format && format->type != TR_JSON_NULL) {
        tr_emit_key(t->out, "response_format"); /* which takes it flat, as it is here */
        tr_emit_json(t->out, t->doc, format);
    }
}

static void effort(const struct tr_responses_in *t)
{
    const struct tr_json *v = TR_JSON_GET(tr_responses_field(t, "reasoning"), "effort");

    if (!tr_json_is(v, TR_JSON_STRING))
        return;
    tr_emit_key(t->out, "reasoning_effort");
    tr_emit_strn(t->out, v->u.s, v->len);
}

static bool wants_logprobs(const struct tr_responses_in *t)
{
    const struct tr_json *top = tr_responses_field(t, "top_logprobs");
    int64_t n = 0;

    for (struct tr_json_it it = tr_json_iter(tr_responses_field(t, "include")); tr_json_step(&it);)
        if (TR_JSON_EQ(it.val, "message.output_text.logprobs"))
            return true;
    return top && tr_json_i64(top, &n) == 0 && n > 0;
}

static bool is_true(const struct tr_json *v)
{
    return tr_json_is(v, TR_JSON_BOOL) && v->u.b;
}

static int other_fields(const struct tr_responses_in *t, bool background)
{
    const struct tr_json *max = tr_responses_field(t, "max_output_tokens");
    struct tr_emit *e = t->out;

    if (copy_fields(t))
        return -EINVAL;
    tools(t);
    effort(t);
    if (max) {
        tr_emit_key(e, "max_completion_tokens");
        tr_emit_json(e, t->doc, max);
    }
    if (wants_logprobs(t))
        tr_emit_kbool(e, "logprobs", true);
    tr_emit_kbool(e, "stream", background || is_true(tr_responses_field(t, "stream")));
    tr_emit_kstr(e, "on_disconnect", background ? "hold" : "cancel");
    return 0;
}

/* ---- what is kept ---- */

/* Fields that objects repeat, the long ones last. */
static const char *const repeated[] = {"max_output_tokens",
                                       "max_tool_calls",
                                       "parallel_tool_calls",
                                       "tool_choice",
                                       "reasoning",
                                       "safety_identifier",
                                       "prompt_cache_key",
                                       "metadata",
                                       "stream_options",
                                       "text",
                                       "tools",
                                       "instructions"};

static int keep_field(struct tr_emit *e, const struct tr_responses_in *t, const char *name)
{
    const struct tr_json *v = tr_responses_field(t, name);

    if (!v)
        return 0;
    if (!tr_emit_may_copy(v))
        return too_deep(t, v);
    tr_emit_key(e, name);
    tr_emit_json(e, t->doc, v);
    return 0;
}

/* Without `background` what does not fit is not repeated. */
static int keep(const struct tr_responses_in *t, struct tr_emit *e, bool background)
{
    tr_emit_obj(e);
    for (size_t i = 0; i < sizeof(repeated) / sizeof(repeated[0]); i++) {
        struct tr_emit before = *e;
        if (keep_field(e, t, repeated[i]))
            return -EINVAL;
        if (!background && e->len + 1 > TR_VIEW_KEPT_BYTES) {
            e->len = before.len;
            e->comma = before.comma;
        }
    }
    if (background && keep_field(e, t, "input"))
        return -EINVAL;
    tr_emit_obj_end(e);
    if (e->len <= TR_VIEW_KEPT_BYTES)
        return 0;
    return tr_fault_set(t->f, TR_ERR_BAD_PARAM, "background",
                        "Input, instructions and what else a background response keeps to tell it "
                        "again are at most %d bytes of JSON; these are %zu.",
                        TR_VIEW_KEPT_BYTES, e->len);
}

static int translate(const struct tr_json_doc *doc, const struct tr_json *body,
                     struct tr_translation *out, struct tr_fault *f)
{
    struct tr_responses_in t = {.doc = doc, .body = body, .out = &out->body, .f = f};

    if (check_types(&t) || check_words(&t) || refuse(&t))
        return -EINVAL;
    bool background = is_true(tr_responses_field(&t, "background"));
    tr_emit_obj(t.out);
    if (tr_responses_messages(&t))
        return -EINVAL;
    if (keep(&t, &out->keep, background) || other_fields(&t, background))
        return -EINVAL;
    tr_emit_obj_end(t.out);
    out->detached = background && !is_true(tr_responses_field(&t, "stream"));
    return 0;
}

static void cut_out(char *from, const char *word)
{
    char *at = strstr(from, word);
    size_t len = strlen(word);

    if (at && strchr(".[", at[len]))
        memmove(at, at + len, strlen(at + len) + 1);
}

/* What was nested is flat again. */
static void inner_names(char *param)
{
    bool choice = strncmp(param, "tool_choice.", 12) == 0;

    if (!choice && strncmp(param, "tools[", 6) != 0)
        return;
    if (choice)
        cut_out(param, ".allowed_tools");
    cut_out(param, ".function");
}

/* ---- requests ---- */

static void post(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    tr_api_post(x, rq, ctx, &tr_dialect_responses, TR_SSE_TYPED);
}

static int count(struct tr_task *t)
{
    t->ask->counting = true;
    if (tr_api_make(t))
        return -EINVAL;
    tr_emit_obj(&t->out);
    tr_emit_kstr(&t->out, "object", "response.input_tokens");
    tr_emit_ku64(&t->out, "input_tokens", t->ask->prompts[0].n);
    tr_emit_obj_end(&t->out);
    return 0;
}

static void input_tokens(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    tr_api_ask(x, rq, ctx, &tr_dialect_responses, count);
}

static void compact(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)rq;
    (void)ctx;
    tr_exchange_error(x, TR_ERR_NOT_FOUND, "Conversations are not compacted here.", NULL);
}

/* One of its clients takes an error for none if `param` is no string. */
static void error_body(struct tr_emit *e, const struct tr_problem *p)
{
    struct tr_problem named = *p;

    named.param = p->param ? p->param : "";
    tr_error_body_openai(e, &named);
}

#define ROUTE(m, path, fn)                                                                         \
    {                                                                                              \
        .method = (m), .pattern = (path), .handler = (fn), .errors = error_body                    \
    }

static const struct tr_route routes[] = {
    ROUTE(TR_HTTP_POST, "/v1/responses", post),
    ROUTE(TR_HTTP_POST, "/v1/responses/input_tokens", input_tokens),
    ROUTE(TR_HTTP_POST, "/v1/responses/compact", compact),
    ROUTE(TR_HTTP_GET, "/v1/responses/{id}", tr_responses_get),
    ROUTE(TR_HTTP_DELETE, "/v1/responses/{id}", tr_responses_delete),
    {.method = TR_HTTP_POST,
     .pattern = "/v1/responses/{id}/cancel",
     .handler = tr_responses_cancel,
     .errors = error_body,
     .flags = TR_ROUTE_FREE},
    ROUTE(TR_HTTP_GET, "/v1/responses/{id}/input_items", tr_responses_items)};

const struct tr_dialect tr_dialect_responses = {.api = TR_API_RESPONSES,
                                                .id_prefix = "resp_",
                                                .frame = TR_SSE_TYPED,
                                                .lifecycle = true,
                                                .splits = true,
                                                .translate = translate,
                                                .fields = fields,
                                                .n_fields = sizeof(fields) / sizeof(fields[0]),
                                                .inner_names = inner_names,
                                                .event = tr_responses_event,
                                                .close = tr_responses_close,
                                                .body = tr_responses_body,
                                                .accepted = tr_responses_accepted,
                                                .again = tr_responses_again,
                                                .turn = tr_responses_turn,
                                                .position = "starting_after",
                                                .cancel_keeps = true,
                                                .routes = routes,
                                                .n_routes = sizeof(routes) / sizeof(routes[0])};
