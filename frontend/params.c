/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/params.c - see params.h.
 *
 * Here are the fields that are obeyed.  Those that are refused are in params_refuse.c, the readers
 * of one value in params_value.c. */
#include "frontend/fields.h"
#include "frontend/params_priv.h"
#include "frontend/idempotency.h"
#include "frontend/plain.h"

#include <errno.h>
#include <string.h>

_Static_assert(TR_PRIORITY_MAX == 32767 && TR_MAX_TOP == 20 && TR_MAX_BIAS == 1024 &&
                   TR_MAX_STOP_IDS == 64 && TR_PARAMS_STOPS == 16 && TR_STOP_LEN_MAX == 1024,
               "params.def says so");

/* ---- fields with a shape ---- */

static int read_stream(struct tr_param_reader *r, enum tr_api api)
{
    struct tr_ask *a = r->a;
    const struct tr_json *o = r->v[F_stream_options];

    if (tr_param_bool(r, F_stream, &a->stream))
        return -EINVAL;
    if (api == TR_API_NATIVE || a->plain)
        a->stream = true;
    if (!o)
        return 0;
    if (o->type != TR_JSON_OBJECT)
        return TR_PARAM_BAD(r, F_stream_options, "stream_options must be an object.");
    if (!a->stream)
        return TR_PARAM_BAD(r, F_stream_options, "stream_options needs stream to be true.");
    for (struct tr_json_it it = tr_json_iter(o); tr_json_step(&it);) {
        bool usage = TR_JSON_EQ(it.key, "include_usage");
        if (!usage && !TR_JSON_EQ(it.key, "include_obfuscation"))
            continue;
        if (it.val->type == TR_JSON_NULL)
            continue;
        if (it.val->type != TR_JSON_BOOL)
            return tr_fault_set(r->f, TR_ERR_BAD_PARAM,
                                usage ? "stream_options.include_usage"
                                      : "stream_options.include_obfuscation",
                                "This must be true or false.");
        if (usage)
            a->include_usage = it.val->u.b;
    }
    return 0;
}

static int read_sampling(struct tr_param_reader *r)
{
    struct tr_params *p = &r->a->params;
    int64_t k = 0, seed = 0;

    if (tr_param_num(r, F_temperature, &p->temperature) || tr_param_num(r, F_top_p, &p->top_p) ||
        tr_param_num(r, F_min_p, &p->min_p) ||
        tr_param_num(r, F_presence_penalty, &p->presence_penalty) ||
        tr_param_num(r, F_frequency_penalty, &p->frequency_penalty) ||
        tr_param_num(r, F_repetition_penalty, &p->repetition_penalty) ||
        tr_param_int(r, F_top_k, &k))
        return -EINVAL;
    /* The nucleus always holds the most probable token: 0 is the smallest nucleus there is. */
    if (p->top_p < 1e-9)
        p->top_p = 1e-9;
    p->top_k = k > INT32_MAX ? INT32_MAX : (int32_t)k;
    if (r->v[F_seed]) {
        const struct tr_json *v = r->v[F_seed];
        if (v->type == TR_JSON_NUMBER && v->num == TR_JSON_UINT) {
            p->seed = v->u.u;
        } else {
            if (tr_json_i64(v, &seed))
                return TR_PARAM_BAD(r, F_seed, "seed must be a 64-bit integer.");
            p->seed = (uint64_t)seed;
        }
        r->a->has_seed = true;
    }
    return 0;
}

static int read_lengths(struct tr_param_reader *r)
{
    struct tr_ask *a = r->a;
    int64_t old = -1, min_tokens = 0;

    if (tr_param_int(r, F_max_tokens, &old))
        return -EINVAL;
    a->max_tokens = old;
    if (a->chat || r->v[F_max_completion_tokens]) {
        if (tr_param_int(r, F_max_completion_tokens, &a->max_tokens))
            return -EINVAL;
    }
    /* OpenAI's completions stop after 16 tokens by default; here, as for chat, the context is the
     * only limit that nobody asked for. */
    if (tr_param_int(r, F_min_tokens, &min_tokens))
        return -EINVAL;
    if (a->max_tokens >= 0 && min_tokens > a->max_tokens)
        return TR_PARAM_BAD(r, F_min_tokens, "min_tokens must not be larger than max_tokens.");
    if (min_tokens > a->fe->shm->config.n_ctx)
        return TR_PARAM_BAD(r, F_min_tokens, "min_tokens is larger than the context of %u tokens.",
                            a->fe->shm->config.n_ctx);
    a->params.min_tokens = (uint32_t)min_tokens;
    return 0;
}

static int read_choices(struct tr_param_reader *r)
{
    int64_t n = 1, best = 0, max = (int64_t)r->a->fe->cfg->max_choices;

    if (tr_param_int_in(r, F_n, 1, max, &n))
        return -EINVAL;
    r->a->n = (uint32_t)n;
    if (!r->v[F_best_of])
        return 0;
    if (tr_param_int_in(r, F_best_of, 1, max, &best))
        return -EINVAL;
    if (best < n)
        return TR_PARAM_BAD(r, F_best_of, "best_of must not be smaller than n.");
    if (best > n)
        return tr_param_unsupported(r, F_best_of, "best_of larger than n");
    return 0;
}

static int read_stop_string(struct tr_param_reader *r, const struct tr_json *v, struct tr_str *out)
{
    if (v->type != TR_JSON_STRING)
        return TR_PARAM_BAD(r, F_stop, "stop must be a string or an array of strings.");
    if (v->len == 0)
        return TR_PARAM_BAD(r, F_stop, "A stop string must not be empty.");
    if (v->len > TR_STOP_LEN_MAX)
        return TR_PARAM_BAD(r, F_stop, "A stop string is at most %d bytes long.", TR_STOP_LEN_MAX);
    out->p = v->u.s;
    out->len = v->len;
    return 0;
}

static int read_stop(struct tr_param_reader *r)
{
    struct tr_str s[TR_PARAMS_STOPS];
    const struct tr_json *v = r->v[F_stop];
    uint32_t n = 0;

    if (!v)
        return 0;
    if (v->type == TR_JSON_ARRAY) {
        if (v->len > TR_PARAMS_STOPS)
            return TR_PARAM_BAD(r, F_stop, "At most %d stop strings.", TR_PARAMS_STOPS);
        for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
            if (read_stop_string(r, it.val, &s[n++]))
                return -EINVAL;
    } else if (read_stop_string(r, v, &s[n++])) {
        return -EINVAL;
    }
    if (n == 0)
        return 0;
    int rc = tr_stopset_open(s, n, &r->a->stops);
    if (rc == -ENOMEM)
        return tr_fault_set(r->f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    if (rc)
        return TR_PARAM_BAD(r, F_stop, "A stop string is not valid.");
    return 0;
}

static int read_stop_ids(struct tr_param_reader *r)
{
    const struct tr_json *v = r->v[F_stop_token_ids];
    struct tr_extra *e = r->a->extra;

    if (!v)
        return 0;
    if (v->type != TR_JSON_ARRAY)
        return TR_PARAM_BAD(r, F_stop_token_ids, "stop_token_ids must be an array of token ids.");
    if (v->len > TR_MAX_STOP_IDS)
        return TR_PARAM_BAD(r, F_stop_token_ids, "At most %d stop token ids.", TR_MAX_STOP_IDS);
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) {
        int64_t id;
        if (tr_json_i64(it.val, &id) || id < 0 || id >= r->a->fe->shm->config.n_vocab)
            return TR_PARAM_BAD(r, F_stop_token_ids,
                                "stop_token_ids[%u] is no token id of this model.", it.index);
        e->stop_ids[e->n_stop++] = (uint32_t)id;
    }
    return 0;
}

/* Digits of a token id, no sign, no leading zero: two spellings of one id would be two keys. */
static int bias_id(const struct tr_json *key, uint32_t n_vocab, uint32_t *out)
{
    uint64_t id = 0;

    if (key->len == 0 || key->len > 10 || (key->u.s[0] == '0' && key->len > 1))
        return -EINVAL;
    for (uint32_t i = 0; i < key->len; i++) {
        if (key->u.s[i] < '0' || key->u.s[i] > '9')
            return -EINVAL;
        id = id * 10 + (uint64_t)(key->u.s[i] - '0');
    }
    if (id >= n_vocab)
        return -EINVAL;
    *out = (uint32_t)id;
    return 0;
}

static int read_bias(struct tr_param_reader *r)
{
    const struct tr_json *v = r->v[F_logit_bias];
    struct tr_extra *e = r->a->extra;

    if (!v)
        return 0;
    if (v->type != TR_JSON_OBJECT)
        return TR_PARAM_BAD(r, F_logit_bias,
                            "logit_bias must be an object from token ids to numbers.");
    if (v->len > TR_MAX_BIAS)
        return TR_PARAM_BAD(r, F_logit_bias, "logit_bias takes at most %d tokens.", TR_MAX_BIAS);
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) {
        struct tr_bias *b = &e->bias[e->n_bias];
        double d;
        if (bias_id(it.key, r->a->fe->shm->config.n_vocab, &b->id))
            return TR_PARAM_BAD(r, F_logit_bias,
                                "Each key of logit_bias must be a token id from 0 to %u.",
                                r->a->fe->shm->config.n_vocab - 1);
        if (tr_json_f64(it.val, &d) || !(d >= -100 && d <= 100))
            return TR_PARAM_BAD(r, F_logit_bias,
                                "Each value of logit_bias must be between -100 and 100.");
        b->value = (float)d;
        e->n_bias++;
    }
    return 0;
}

static int read_logprobs_chat(struct tr_param_reader *r)
{
    int64_t top = 0;

    if (tr_param_bool(r, F_logprobs, &r->a->logprobs) || tr_param_int(r, F_top_logprobs, &top))
        return -EINVAL;
    if (top > 0 && !r->a->logprobs)
        return TR_PARAM_BAD(r, F_top_logprobs, "top_logprobs needs logprobs to be true.");
    r->a->params.n_top = (uint32_t)top;
    return 0;
}

static int read_logprobs_completions(struct tr_param_reader *r)
{
    const struct tr_json *v = r->v[F_logprobs];
    int64_t top = 0;

    /* `false` is what chat-minded tools send; it asks for nothing. */
    if (!v || (v->type == TR_JSON_BOOL && !v->u.b))
        return 0;
    if (tr_param_int_in(r, F_logprobs, 0, TR_MAX_TOP, &top))
        return -EINVAL;
    r->a->logprobs = true;
    r->a->params.n_top = (uint32_t)top;
    return 0;
}

/* ---- all together ---- */

int tr_params_model(const struct tr_fe *fe, const struct tr_json *model, struct tr_fault *f)
{
    const char *stem = fe->cfg->model_stem;

    if (!model || model->type == TR_JSON_NULL)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "model", "model is required.");
    if (model->type != TR_JSON_STRING)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "model", "model must be a string.");
    if (tr_json_eq(model, fe->cfg->served_name, strlen(fe->cfg->served_name)) ||
        (stem && tr_json_eq(model, stem, strlen(stem))))
        return 0;
    return tr_fault_set(f, TR_ERR_MODEL_NOT_FOUND, "model",
                        "This model is not served here; the one that is has the name %s.",
                        fe->cfg->served_name);
}

static int read_input(struct tr_param_reader *r, enum tr_api api)
{
    struct tr_ask *a = r->a;

    a->messages = r->v[F_messages];
    a->prompt = r->v[F_prompt];
    if (api != TR_API_CHAT && api != TR_API_COMPLETIONS) {
        if (a->messages && a->prompt)
            return TR_PARAM_BAD(r, F_prompt, "Give either messages or prompt, not both.");
        a->chat = a->prompt == NULL;
    } else {
        a->chat = api == TR_API_CHAT;
    }
    if (a->chat) {
        if (!a->messages)
            return TR_PARAM_BAD(r, F_messages,
                                api == TR_API_NATIVE ? "messages or prompt is required."
                                                     : "messages is required.");
        if (a->messages->type != TR_JSON_ARRAY || a->messages->len == 0)
            return TR_PARAM_BAD(r, F_messages,
                                "messages must be an array with at least one message.");
        a->prompt = NULL;
    } else if (!a->prompt) {
        return TR_PARAM_BAD(r, F_prompt, "prompt is required.");
    }
    a->template_args = r->v[F_chat_template_kwargs];
    a->documents = r->v[F_documents];
    a->effort = r->v[F_reasoning_effort];
    return 0;
}

/* How the text of a chat ends: with the beginning of an answer, or with that of its last message. */
static int read_end_of_chat(struct tr_param_reader *r)
{
    struct tr_ask *a = r->a;

    if (tr_param_bool(r, F_add_generation_prompt, &a->generation_prompt) ||
        tr_param_bool(r, F_continue_final_message, &a->continue_final))
        return -EINVAL;
    if (a->continue_final && r->v[F_add_generation_prompt] && a->generation_prompt)
        return TR_PARAM_BAD(r, F_continue_final_message,
                            "Either the last message is continued or a new answer begins: "
                            "add_generation_prompt must not be true.");
    for (struct tr_json_it it = tr_json_iter(a->documents); tr_json_step(&it);)
        if (it.val->type != TR_JSON_OBJECT)
            return TR_PARAM_BAD(r, F_documents, "Each document must be an object.");
    return 0;
}

/* Whether the stream outlives its reader.  on_disconnect has been checked (params_refuse.c). */
static int read_resume(struct tr_param_reader *r)
{
    const struct tr_json *v = r->v[F_on_disconnect];
    struct tr_ask *a = r->a;
    bool hold = a->api == TR_API_NATIVE && a->fe->cfg->hold_on_disconnect;

    a->hold_asked = v ? TR_JSON_EQ(v, "hold") : a->resume_header;
    if (v)
        hold = a->hold_asked;
    if (!hold && !a->hold_asked)
        return 0;
    if (a->hold_asked && !a->stream)
        return tr_fault_set(r->f, TR_ERR_BAD_PARAM, "X-Tokenring-Resume",
                            "X-Tokenring-Resume needs stream to be true.");
    a->params.flags |= TR_REQ_RESUMABLE;
    if (tr_dialect_of(a->api)->cancel_keeps)
        a->params.flags |= TR_REQ_CANCEL_KEEPS;
    return 0;
}

/* Why this request can have no tools; NULL: it can. */
static const char *no_tools(const struct tr_ask *a)
{
    if (!a->chat)
        return "Tools need messages.";
    if (a->plain)
        return "Plain text has no room for tool calls.";
    if (!tr_dialect_of(a->api)->splits)
        return "This protocol has no room for tool calls.";
    return a->fe->tool_format ? NULL : "This server does not look for tool calls: --tool-format.";
}

static int read_tools(struct tr_param_reader *r)
{
    struct tr_ask *a = r->a;
    const struct tr_json *v = r->v[F_tools];
    const char *why = v && !tr_field_empty(v) ? no_tools(a) : NULL;
    bool many = true;

    if (why)
        return tr_fault_set(r->f, TR_ERR_UNSUPPORTED_PARAM, "tools", "%s", why);
    if (tr_tools_read(a->doc, v, r->v[F_tool_choice], &a->call, r->f) ||
        tr_param_bool(r, F_parallel_tool_calls, &many))
        return -EINVAL;
    a->call.one |= !many;
    a->tools = a->call.list;
    return 0;
}

/* What of the answer is no text. */
static int read_parts(struct tr_param_reader *r)
{
    struct tr_ask *a = r->a;
    bool shown = true, separate = true;

    if (read_tools(r))
        return -EINVAL;
    if (!a->chat)
        return 0;
    if (tr_param_bool(r, F_include_reasoning, &shown) ||
        tr_param_bool(r, F_separate_reasoning, &separate))
        return -EINVAL;
    if (a->plain || !tr_dialect_of(a->api)->splits)
        return 0;
    tr_ask_take_apart(a, a->call.list ? a->fe->tool_format : TR_TOOLS_NONE,
                      separate ? a->fe->reasoning_format : TR_REASONING_NONE);
    a->reasoning_hidden = !shown;
    return 0;
}

static int read_rest(struct tr_param_reader *r)
{
    struct tr_ask *a = r->a;
    bool ignore_eos = false, no_trim = false;
    double timeout_s = 0;
    int64_t priority = 0;

    if (tr_param_bool(r, F_ignore_eos, &ignore_eos) ||
        tr_param_bool(r, F_skip_special_tokens, &a->skip_special) ||
        tr_param_bool(r, F_include_stop_str_in_output, &a->include_stop) ||
        tr_param_bool(r, F_return_tokens_as_token_ids, &a->token_ids) ||
        tr_param_bool(r, F_no_stop_trim, &no_trim) || tr_param_int(r, F_priority, &priority) ||
        tr_param_num(r, F_timeout_s, &timeout_s))
        return -EINVAL;
    if (a->who && priority < 0)
        return tr_fault_set(
            r->f, TR_ERR_BAD_PARAM, "priority",
            "priority must be 0 or more: requests of an API key do not go before its "
            "others by their own word.");
    a->params.priority = (int32_t)priority;
    if (no_trim)
        a->include_stop = true;
    if (a->chat ? read_end_of_chat(r) : tr_param_bool(r, F_echo, &a->echo))
        return -EINVAL;
    if (r->v[F_timeout_s] && timeout_s <= 0)
        return TR_PARAM_BAD(r, F_timeout_s, "timeout_s must be larger than 0.");
    if (timeout_s > 0 && (!a->timeout_ns || timeout_s * 1e9 < (double)a->timeout_ns))
        a->timeout_ns = (uint64_t)(timeout_s * 1e9) + 1;
    if (ignore_eos)
        a->params.flags |= TR_REQ_IGNORE_EOS;
    if (a->stream)
        a->params.flags |= TR_REQ_STREAM;
    if (a->stops) /* read before: the engine's own end waits for our scan */
        a->params.flags |= TR_REQ_STOP_STRINGS;
    if (a->logprobs)
        a->params.flags |= TR_REQ_LOGPROBS | (a->echo ? TR_REQ_ECHO_LOGPROBS : 0);
    return read_resume(r);
}

int tr_params_read(struct tr_ask *a, enum tr_api api, struct tr_fault *f)
{
    struct tr_param_reader r = {.a = a, .f = f};

    tr_param_collect(&r);
    a->params = (struct tr_params){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    a->skip_special = true;
    a->generation_prompt = true;
    a->max_tokens = -1;
    a->api = api;
    if (read_input(&r, api) || tr_params_model(a->fe, r.v[F_model], f) || read_stream(&r, api) ||
        tr_param_refuse(&r) || read_sampling(&r) || read_lengths(&r) || read_choices(&r) ||
        read_stop(&r) || read_stop_ids(&r) || read_bias(&r) || tr_param_grammar(&r) ||
        (a->chat ? read_logprobs_chat(&r) : read_logprobs_completions(&r)) || read_parts(&r) ||
        read_rest(&r))
        return -EINVAL;
    if (tr_idempotency_check(a, f))
        return -EINVAL;
    return a->plain ? tr_plain_check(a, f) : 0;
}
