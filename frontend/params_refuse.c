/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/params_refuse.c - fields that would change the answer and are not there: refused by name,
 * unless their value asks for nothing. */
#include "frontend/params_priv.h"

#include <errno.h>

static bool empty(const struct tr_json *v)
{
    switch ((enum tr_json_type)v->type) {
    case TR_JSON_ARRAY:
    case TR_JSON_OBJECT:
    case TR_JSON_STRING:
        return v->len == 0;
    case TR_JSON_BOOL:
        return !v->u.b;
    case TR_JSON_NULL:
        return true;
    case TR_JSON_NUMBER:
        break;
    }
    return false;
}

static int refuse_tools(struct tr_param_reader *r)
{
    const struct tr_json *v;

    if (tr_param_type(r, F_tools, TR_JSON_ARRAY, "an array") ||
        tr_param_type(r, F_functions, TR_JSON_ARRAY, "an array"))
        return -EINVAL;
    if ((v = r->v[F_tools]) && !empty(v))
        return tr_param_unsupported(r, F_tools, "Calling tools");
    if ((v = r->v[F_functions]) && !empty(v))
        return tr_param_unsupported(r, F_functions, "Calling functions");
    v = r->v[F_tool_choice];
    if (v && !TR_JSON_EQ(v, "none") && !TR_JSON_EQ(v, "auto"))
        return tr_param_unsupported(r, F_tool_choice, "A tool_choice other than \"none\"");
    v = r->v[F_function_call];
    if (v && !TR_JSON_EQ(v, "none") && !TR_JSON_EQ(v, "auto"))
        return tr_param_unsupported(r, F_function_call, "A function_call other than \"none\"");
    return 0;
}

static int refuse_formats(struct tr_param_reader *r)
{
    const struct tr_json *v;

    if ((v = r->v[F_response_format])) {
        const struct tr_json *t = TR_JSON_GET(v, "type");
        if (v->type != TR_JSON_OBJECT || !tr_json_is(t, TR_JSON_STRING))
            return TR_PARAM_BAD(r, F_response_format,
                                "response_format must be an object with a type that is a string.");
        if (!TR_JSON_EQ(t, "text"))
            return tr_param_unsupported(r, F_response_format, "A response_format other than text");
    }
    if ((v = r->v[F_modalities])) {
        if (v->type != TR_JSON_ARRAY)
            return TR_PARAM_BAD(r, F_modalities, "modalities must be an array.");
        for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
            if (!TR_JSON_EQ(it.val, "text"))
                return tr_param_unsupported(r, F_modalities, "A modality other than text");
    }
    if ((v = r->v[F_on_disconnect])) {
        if (!TR_JSON_EQ(v, "cancel") && !TR_JSON_EQ(v, "hold"))
            return TR_PARAM_BAD(r, F_on_disconnect,
                                "on_disconnect must be \"cancel\" or \"hold\".");
        if (TR_JSON_EQ(v, "hold") && r->a->api != TR_API_NATIVE)
            return TR_PARAM_BAD(r, F_on_disconnect,
                                "Streams of this endpoint are held by the header "
                                "X-Tokenring-Resume: 1.");
    }
    return 0;
}

int tr_param_refuse(struct tr_param_reader *r)
{
    static const enum tr_field never[] = {
        F_allowed_token_ids,
        F_audio,
        F_bad_words,
        F_chat_template,
        F_grammar,
        F_guided_choice,
        F_guided_grammar,
        F_guided_json,
        F_guided_regex,
        F_json_schema,
        F_prompt_logprobs,
        F_structured_outputs,
        F_suffix,
        F_store,
        F_continue_final_message,
        F_truncate_prompt_tokens,
        F_use_beam_search,
        F_web_search_options,
    };

    if (tr_param_type(r, F_store, TR_JSON_BOOL, "true or false") ||
        tr_param_type(r, F_suffix, TR_JSON_STRING, "a string") ||
        tr_param_type(r, F_user, TR_JSON_STRING, "a string") ||
        tr_param_type(r, F_metadata, TR_JSON_OBJECT, "an object") ||
        tr_param_type(r, F_parallel_tool_calls, TR_JSON_BOOL, "true or false"))
        return -EINVAL;
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
        if (r->v[never[i]] && !empty(r->v[never[i]]))
            return tr_param_unsupported(r, never[i], NULL);
    return refuse_tools(r) || refuse_formats(r) ? -EINVAL : 0;
}
