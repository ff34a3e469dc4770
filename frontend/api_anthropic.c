/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_anthropic.c - POST /v1/messages: the fields of Anthropic's Messages, its routes and what the
 * dialect has. */
#include "frontend/api_anthropic.h"

#include "frontend/api.h"
#include "frontend/task.h"

#include <errno.h>
#include <string.h>

/* ---- requests ---- */

static int translate(const struct tr_json_doc *doc, const struct tr_json *body,
                     struct tr_translation *t, struct tr_fault *f)
{
    return tr_anthropic_body(doc, body, false, &t->body, f);
}

static void post(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    tr_api_post(x, rq, ctx, &tr_dialect_anthropic, TR_SSE_TYPED);
}

const struct tr_field_row tr_anthropic_fields[] = {
    TR_FIELD_IGNORED("cache_control", "the cache needs no marks"),
    TR_FIELD("chat_template_kwargs", "chat_template_kwargs", "object", "none",
             "given to the template"),
    TR_FIELD_NEVER("container", "", "There is no code execution."),
    TR_FIELD_IGNORED("context_management", "nothing is taken out of a prompt"),
    TR_FIELD_IGNORED("diagnostics", "there are none"),
    TR_FIELD("documents", "documents", "array", "none", "given to the template"),
    TR_FIELD("frequency_penalty", "frequency_penalty", "-2 … 2", "0", "over the answer's tokens"),
    TR_FIELD("ignore_eos", "ignore_eos", "true or false", "false",
             "end-of-turn tokens are tokens like any other"),
    TR_FIELD("include_stop_str_in_output", "include_stop_str_in_output", "true or false", "false",
             "the stop sequence is shown"),
    TR_FIELD_IGNORED("inference_geo", "there is one place"),
    TR_FIELD("logit_bias", "logit_bias", "object of at most 1024 token ids to -100 … 100", "none",
             "added to the logits of these tokens"),
    TR_FIELD("max_tokens", "max_tokens", "0 …", "required",
             "the context is a limit as well, which `stop_reason` tells apart"),
    TR_FIELD_NEVER("mcp_servers", "", "Tools are not called."),
    TR_FIELD("messages", "messages", "array, not empty; the last one not the assistant's",
             "required",
             "roles `user`, `assistant` and `system`; content is a string or blocks of `text`, in "
             "the assistant's `tool_use` and `thinking`, in the user's `tool_result` as well"),
    TR_FIELD("metadata", "metadata", "object", "none", "taken and ignored"),
    TR_FIELD("min_p", "min_p", "0 … 1", "0",
             "tokens less probable than this part of the most probable one are left out"),
    TR_FIELD("min_tokens", "min_tokens", "0 … `max_tokens`", "0", "no end of turn before"),
    TR_FIELD("model", "model", "string", "required", "the served name, or the file's stem"),
    TR_FIELD("output_config", "", "object", "none",
             "`format`; `effort` is `reasoning_effort` of chat"),
    TR_FIELD("output_config.format", "response_format",
             "object of type `json_schema` with a `schema`", "none",
             "what the answer is: [structured output](structured-output.md)"),
    TR_FIELD_NEVER("output_format", "", "Its place is output_config.format."),
    TR_FIELD("presence_penalty", "presence_penalty", "-2 … 2", "0", "over the answer's tokens"),
    TR_FIELD("priority", "priority", "-32767 … 32767", "0", "lower goes first"),
    TR_FIELD("repetition_penalty", "repetition_penalty", "0.01 … 100", "1",
             "over prompt and answer"),
    TR_FIELD("seed", "seed", "64-bit integer", "drawn",
             "same seed, same tokens, whatever else runs"),
    TR_FIELD_IGNORED("service_tier", "there is one"),
    TR_FIELD("skip_special_tokens", "skip_special_tokens", "true or false", "true",
             "false shows control tokens in the text"),
    TR_FIELD_IGNORED("speed", "there is one"),
    TR_FIELD("stop_sequences", "stop", "array of at most 16 strings of 1 to 1024 bytes", "none",
             "neither it nor anything after it is shown; `stop_sequence` tells which"),
    TR_FIELD("stop_token_ids", "stop_token_ids", "at most 64 token ids", "none",
             "end the answer like an end of turn"),
    TR_FIELD("stream", "stream", "true or false", "false", "events as they come"),
    TR_FIELD("system", "", "string, or blocks of `text`", "none",
             "a message of the system before all others"),
    TR_FIELD("temperature", "temperature", "0 … 2", "1", "0 is greedy, ties to the lowest id"),
    TR_FIELD(
        "thinking", "", "object with a `type`", "none",
        "`enabled` and `disabled`: templates get `enable_thinking`, unless "
        "`chat_template_kwargs` has one; `adaptive` and `between_tools` leave it to the model"),
    TR_FIELD("timeout_s", "timeout_s", "> 0", "none", "deadline, queue included"),
    TR_FIELD("tool_choice", "tool_choice", "object with a `type`", "none",
             "`auto`, `any`, `tool` or `none`; `disable_parallel_tool_use`: no more than one call"),
    TR_FIELD("tools", "tools", "array", "none",
             "functions that the answer may call: [tools.md](tools.md)"),
    TR_FIELD("top_k", "top_k", "-1 …", "0", "so many of the most probable tokens; 0 and -1: off"),
    TR_FIELD("top_p", "top_p", "0 … 1", "1",
             "the most probable tokens that have this probability together"),
    TR_FIELD_IGNORED("user_profile_id", "there are no profiles"),
    TR_FIELD_IGNORED("workspace_id", "there are no workspaces"),
};
/* Cuts `word` out of the param and puts a shorter one there. */
static bool put_instead(char *param, const char *word, const char *other)
{
    char *at = strstr(param, word), *rest = at ? at + strlen(word) : NULL;

    if (!at || (*rest && *rest != '.' && *rest != '['))
        return false;
    while (*other)
        *at++ = *other++;
    memmove(at, rest, strlen(rest) + 1);
    return true;
}

/* A tool is flat here, and its parameters are its input_schema. */
static void inner_names(char *param)
{
    if (strncmp(param, "tools[", 6) != 0 && strncmp(param, "tool_choice.", 12) != 0)
        return;
    if (!put_instead(param, ".function.parameters", ".input_schema"))
        put_instead(param, ".function", "");
}

enum { N_FIELDS = sizeof(tr_anthropic_fields) / sizeof(tr_anthropic_fields[0]) };
const size_t tr_anthropic_n_fields = N_FIELDS;

/* ---- count_tokens ---- */

static int translate_count(const struct tr_json_doc *doc, const struct tr_json *body,
                           struct tr_translation *t, struct tr_fault *f)
{
    return tr_anthropic_body(doc, body, true, &t->body, f);
}

/* The way of a message up to its tokens, whose number is the answer, also beyond the context. */
static int make_count(struct tr_task *t)
{
    t->ask->counting = true;
    if (tr_api_make(t))
        return -EINVAL;
    tr_emit_obj(&t->out);
    tr_emit_ku64(&t->out, "input_tokens", t->ask->prompts[0].n);
    tr_emit_obj_end(&t->out);
    return 0;
}

static void count(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    static const struct tr_dialect as_counted = {.api = TR_API_ANTHROPIC,
                                                 .translate = translate_count,
                                                 .fields = tr_anthropic_fields,
                                                 .n_fields = N_FIELDS,
                                                 .inner_names = inner_names};

    tr_api_ask(x, rq, ctx, &as_counted, make_count);
}

/* ---- the dialect ---- */

static const struct tr_route routes[] = {
    {.method = TR_HTTP_POST,
     .pattern = "/v1/messages",
     .handler = post,
     .errors = tr_anthropic_error,
     .flags = TR_ROUTE_ANTHROPIC},
    {.method = TR_HTTP_POST,
     .pattern = "/v1/messages/count_tokens",
     .handler = count,
     .errors = tr_anthropic_error,
     .flags = TR_ROUTE_ANTHROPIC},
    /* Nothing is there, and that is said as a client of these routes reads it. */
    {.pattern = "/v1/messages/{id*}", .errors = tr_anthropic_error, .flags = TR_ROUTE_ANTHROPIC},
};

const struct tr_dialect tr_dialect_anthropic = {.api = TR_API_ANTHROPIC,
                                                .id_prefix = "msg_",
                                                .frame = TR_SSE_TYPED,
                                                .translate = translate,
                                                .fields = tr_anthropic_fields,
                                                .n_fields = N_FIELDS,
                                                .inner_names = inner_names,
                                                .splits = true,
                                                .event = tr_anthropic_event,
                                                .body = tr_anthropic_answer,
                                                .keepalive = tr_frame_ping,
                                                .routes = routes,
                                                .n_routes = sizeof(routes) / sizeof(routes[0])};
