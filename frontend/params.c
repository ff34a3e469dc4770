/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/params.c - see params.h.
 *
 * The members of the body are sorted into an array by one pass, so that a body of half a million
 * unknown members costs half a million small searches and not sixty times as many. */
#include "frontend/params.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Known fields, in the order of strcmp (asserted by the unit test). */
#define FIELDS(X)                                                                                  \
    X(add_generation_prompt)                                                                       \
    X(allowed_token_ids)                                                                           \
    X(audio)                                                                                       \
    X(bad_words)                                                                                   \
    X(best_of)                                                                                     \
    X(chat_template)                                                                               \
    X(chat_template_kwargs)                                                                        \
    X(continue_final_message)                                                                      \
    X(documents)                                                                                   \
    X(echo)                                                                                        \
    X(frequency_penalty)                                                                           \
    X(function_call)                                                                               \
    X(functions)                                                                                   \
    X(grammar)                                                                                     \
    X(guided_choice)                                                                               \
    X(guided_grammar)                                                                              \
    X(guided_json)                                                                                 \
    X(guided_regex)                                                                                \
    X(ignore_eos)                                                                                  \
    X(include_stop_str_in_output)                                                                  \
    X(json_schema)                                                                                 \
    X(logit_bias)                                                                                  \
    X(logprobs)                                                                                    \
    X(max_completion_tokens)                                                                       \
    X(max_tokens)                                                                                  \
    X(messages)                                                                                    \
    X(metadata)                                                                                    \
    X(min_p)                                                                                       \
    X(min_tokens)                                                                                  \
    X(modalities)                                                                                  \
    X(model)                                                                                       \
    X(n)                                                                                           \
    X(no_stop_trim)                                                                                \
    X(on_disconnect)                                                                               \
    X(parallel_tool_calls)                                                                         \
    X(presence_penalty)                                                                            \
    X(prompt)                                                                                      \
    X(prompt_logprobs)                                                                             \
    X(repetition_penalty)                                                                          \
    X(response_format)                                                                             \
    X(seed)                                                                                        \
    X(skip_special_tokens)                                                                         \
    X(stop)                                                                                        \
    X(stop_token_ids)                                                                              \
    X(store)                                                                                       \
    X(stream)                                                                                      \
    X(stream_options)                                                                              \
    X(structured_outputs)                                                                          \
    X(suffix)                                                                                      \
    X(temperature)                                                                                 \
    X(timeout_s)                                                                                   \
    X(tool_choice)                                                                                 \
    X(tools)                                                                                       \
    X(top_k)                                                                                       \
    X(top_logprobs)                                                                                \
    X(top_p)                                                                                       \
    X(truncate_prompt_tokens)                                                                      \
    X(use_beam_search)                                                                             \
    X(user)                                                                                        \
    X(web_search_options)

enum field {
#define X(name) F_##name,
    FIELDS(X)
#undef X
        F_COUNT
};

static const char *const field_name[F_COUNT] = {
#define X(name) #name,
    FIELDS(X)
#undef X
};

struct reader {
    struct tr_ask *a;
    struct tr_fault *f;
    const struct tr_json *v[F_COUNT]; /* NULL: absent or null */
};

static int find_field(const char *key, size_t len)
{
    int lo = 0, hi = F_COUNT - 1;

    while (lo <= hi) {
        int mid = (lo + hi) / 2;
        size_t n = strlen(field_name[mid]);
        int c = memcmp(key, field_name[mid], len < n ? len : n);
        if (c == 0 && len == n)
            return mid;
        if (c < 0 || (c == 0 && len < n))
            hi = mid - 1;
        else
            lo = mid + 1;
    }
    return -1;
}

static void collect(struct reader *r)
{
    for (struct tr_json_it it = tr_json_iter(r->a->body); tr_json_step(&it);) {
        int k = find_field(it.key->u.s, it.key->len);
        if (k >= 0 && it.val->type != TR_JSON_NULL)
            r->v[k] = it.val;
    }
}

#define BAD(r, k, ...) tr_fault_set((r)->f, TR_ERR_BAD_PARAM, field_name[k], __VA_ARGS__)

static int unsupported(struct reader *r, enum field k, const char *what)
{
    return tr_fault_set(r->f, TR_ERR_UNSUPPORTED_PARAM, field_name[k], "%s is not supported.",
                        what ? what : field_name[k]);
}

/* ---- single values ---- */

static int read_bool(struct reader *r, enum field k, bool *out)
{
    if (!r->v[k])
        return 0;
    if (r->v[k]->type != TR_JSON_BOOL)
        return BAD(r, k, "%s must be true or false.", field_name[k]);
    *out = r->v[k]->u.b;
    return 0;
}

static int read_num(struct reader *r, enum field k, double min, double max, double *out)
{
    double d;

    if (!r->v[k])
        return 0;
    int rc = tr_json_f64(r->v[k], &d);
    if (rc == -EINVAL)
        return BAD(r, k, "%s must be a number.", field_name[k]);
    if (rc || !(d >= min && d <= max))
        return BAD(r, k, "%s must be between %g and %g.", field_name[k], min, max);
    *out = d == 0 ? 0 : d; /* -0.0 is 0 */
    return 0;
}

/* An integer in [min, INT64_MAX]; what is larger than 64 bits but finite becomes INT64_MAX. */
static int read_int(struct reader *r, enum field k, int64_t min, int64_t max, int64_t *out)
{
    int64_t i;
    double d;

    if (!r->v[k])
        return 0;
    int rc = tr_json_i64(r->v[k], &i);
    if (rc == -ERANGE && tr_json_f64(r->v[k], &d) == 0 && fabs(d) < 1e300) {
        i = d > 0 ? INT64_MAX : INT64_MIN;
        rc = 0;
    }
    if (rc)
        return BAD(r, k, "%s must be an integer.", field_name[k]);
    if (i < min || i > max) {
        if (max == INT64_MAX)
            return BAD(r, k, "%s must be at least %" PRId64 ".", field_name[k], min);
        return BAD(r, k, "%s must be between %" PRId64 " and %" PRId64 ".", field_name[k], min,
                   max);
    }
    *out = i;
    return 0;
}

static int read_type(struct reader *r, enum field k, enum tr_json_type t, const char *what)
{
    if (r->v[k] && r->v[k]->type != t)
        return BAD(r, k, "%s must be %s.", field_name[k], what);
    return 0;
}

/* ---- fields with a shape ---- */

static int read_stream(struct reader *r, enum tr_api api)
{
    struct tr_ask *a = r->a;
    const struct tr_json *o = r->v[F_stream_options];

    if (read_bool(r, F_stream, &a->stream))
        return -EINVAL;
    if (api == TR_API_NATIVE)
        a->stream = true;
    if (!o)
        return 0;
    if (o->type != TR_JSON_OBJECT)
        return BAD(r, F_stream_options, "stream_options must be an object.");
    if (!a->stream)
        return BAD(r, F_stream_options, "stream_options needs stream to be true.");
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

static int read_sampling(struct reader *r)
{
    struct tr_params *p = &r->a->params;
    int64_t k = 0, seed = 0;

    if (read_num(r, F_temperature, 0, 2, &p->temperature) ||
        read_num(r, F_top_p, 0, 1, &p->top_p) || read_num(r, F_min_p, 0, 1, &p->min_p) ||
        read_num(r, F_presence_penalty, -2, 2, &p->presence_penalty) ||
        read_num(r, F_frequency_penalty, -2, 2, &p->frequency_penalty) ||
        read_num(r, F_repetition_penalty, 0.01, 100, &p->repetition_penalty) ||
        read_int(r, F_top_k, -1, INT64_MAX, &k))
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
                return BAD(r, F_seed, "seed must be a 64-bit integer.");
            p->seed = (uint64_t)seed;
        }
        r->a->has_seed = true;
    }
    return 0;
}

static int read_lengths(struct reader *r)
{
    struct tr_ask *a = r->a;
    int64_t old = -1, min_tokens = 0;

    if (read_int(r, F_max_tokens, 0, INT64_MAX, &old))
        return -EINVAL;
    a->max_tokens = old;
    if (a->chat || r->v[F_max_completion_tokens]) {
        if (read_int(r, F_max_completion_tokens, 0, INT64_MAX, &a->max_tokens))
            return -EINVAL;
    }
    /* OpenAI's completions stop after 16 tokens by default; here, as for chat, the context is the
     * only limit that nobody asked for. */
    if (read_int(r, F_min_tokens, 0, INT64_MAX, &min_tokens))
        return -EINVAL;
    if (a->max_tokens >= 0 && min_tokens > a->max_tokens)
        return BAD(r, F_min_tokens, "min_tokens must not be larger than max_tokens.");
    if (min_tokens > a->fe->shm->config.n_ctx)
        return BAD(r, F_min_tokens, "min_tokens is larger than the context of %u tokens.",
                   a->fe->shm->config.n_ctx);
    a->params.min_tokens = (uint32_t)min_tokens;
    return 0;
}

static int read_choices(struct reader *r)
{
    int64_t n = 1, best = 0, max = (int64_t)r->a->fe->cfg->max_choices;

    if (read_int(r, F_n, 1, max, &n))
        return -EINVAL;
    r->a->n = (uint32_t)n;
    if (!r->v[F_best_of])
        return 0;
    if (read_int(r, F_best_of, 1, max, &best))
        return -EINVAL;
    if (best < n)
        return BAD(r, F_best_of, "best_of must not be smaller than n.");
    if (best > n)
        return unsupported(r, F_best_of, "best_of larger than n");
    return 0;
}

static int read_stop_string(struct reader *r, const struct tr_json *v, struct tr_str *out)
{
    if (v->type != TR_JSON_STRING)
        return BAD(r, F_stop, "stop must be a string or an array of strings.");
    if (v->len == 0)
        return BAD(r, F_stop, "A stop string must not be empty.");
    if (v->len > TR_STOP_LEN_MAX)
        return BAD(r, F_stop, "A stop string is at most %d bytes long.", TR_STOP_LEN_MAX);
    out->p = v->u.s;
    out->len = v->len;
    return 0;
}

static int read_stop(struct reader *r)
{
    struct tr_str s[TR_PARAMS_STOPS];
    const struct tr_json *v = r->v[F_stop];
    uint32_t n = 0;

    if (!v)
        return 0;
    if (v->type == TR_JSON_ARRAY) {
        if (v->len > TR_PARAMS_STOPS)
            return BAD(r, F_stop, "At most %d stop strings.", TR_PARAMS_STOPS);
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
        return BAD(r, F_stop, "A stop string is not valid.");
    return 0;
}

static int read_stop_ids(struct reader *r)
{
    const struct tr_json *v = r->v[F_stop_token_ids];
    struct tr_extra *e = &r->a->extra;

    if (!v)
        return 0;
    if (v->type != TR_JSON_ARRAY)
        return BAD(r, F_stop_token_ids, "stop_token_ids must be an array of token ids.");
    if (v->len > TR_MAX_STOP_IDS)
        return BAD(r, F_stop_token_ids, "At most %d stop token ids.", TR_MAX_STOP_IDS);
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) {
        int64_t id;
        if (tr_json_i64(it.val, &id) || id < 0 || id >= r->a->fe->shm->config.n_vocab)
            return BAD(r, F_stop_token_ids, "stop_token_ids[%u] is no token id of this model.",
                       it.index);
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

static int read_bias(struct reader *r)
{
    const struct tr_json *v = r->v[F_logit_bias];
    struct tr_extra *e = &r->a->extra;

    if (!v)
        return 0;
    if (v->type != TR_JSON_OBJECT)
        return BAD(r, F_logit_bias, "logit_bias must be an object from token ids to numbers.");
    if (v->len > TR_MAX_BIAS)
        return BAD(r, F_logit_bias, "logit_bias takes at most %d tokens.", TR_MAX_BIAS);
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) {
        struct tr_bias *b = &e->bias[e->n_bias];
        double d;
        if (bias_id(it.key, r->a->fe->shm->config.n_vocab, &b->id))
            return BAD(r, F_logit_bias, "Each key of logit_bias must be a token id from 0 to %u.",
                       r->a->fe->shm->config.n_vocab - 1);
        if (tr_json_f64(it.val, &d) || !(d >= -100 && d <= 100))
            return BAD(r, F_logit_bias, "Each value of logit_bias must be between -100 and 100.");
        b->value = (float)d;
        e->n_bias++;
    }
    return 0;
}

static int read_logprobs_chat(struct reader *r)
{
    int64_t top = 0;

    if (read_bool(r, F_logprobs, &r->a->logprobs) ||
        read_int(r, F_top_logprobs, 0, TR_MAX_TOP, &top))
        return -EINVAL;
    if (top > 0 && !r->a->logprobs)
        return BAD(r, F_top_logprobs, "top_logprobs needs logprobs to be true.");
    r->a->params.n_top = (uint32_t)top;
    return 0;
}

static int read_logprobs_completions(struct reader *r)
{
    const struct tr_json *v = r->v[F_logprobs];
    int64_t top = 0;

    /* `false` is what chat-minded tools send; it asks for nothing. */
    if (!v || (v->type == TR_JSON_BOOL && !v->u.b))
        return 0;
    if (read_int(r, F_logprobs, 0, TR_MAX_TOP, &top))
        return -EINVAL;
    r->a->logprobs = true;
    r->a->params.n_top = (uint32_t)top;
    return 0;
}

/* ---- fields that would change the answer and are not there ---- */

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

static int refuse_tools(struct reader *r)
{
    const struct tr_json *v;

    if (read_type(r, F_tools, TR_JSON_ARRAY, "an array") ||
        read_type(r, F_functions, TR_JSON_ARRAY, "an array"))
        return -EINVAL;
    if ((v = r->v[F_tools]) && !empty(v))
        return unsupported(r, F_tools, "Calling tools");
    if ((v = r->v[F_functions]) && !empty(v))
        return unsupported(r, F_functions, "Calling functions");
    v = r->v[F_tool_choice];
    if (v && !TR_JSON_EQ(v, "none") && !TR_JSON_EQ(v, "auto"))
        return unsupported(r, F_tool_choice, "A tool_choice other than \"none\"");
    v = r->v[F_function_call];
    if (v && !TR_JSON_EQ(v, "none") && !TR_JSON_EQ(v, "auto"))
        return unsupported(r, F_function_call, "A function_call other than \"none\"");
    return 0;
}

static int refuse_formats(struct reader *r)
{
    const struct tr_json *v;

    if ((v = r->v[F_response_format])) {
        const struct tr_json *t = TR_JSON_GET(v, "type");
        if (v->type != TR_JSON_OBJECT || !tr_json_is(t, TR_JSON_STRING))
            return BAD(r, F_response_format,
                       "response_format must be an object with a type that is a string.");
        if (!TR_JSON_EQ(t, "text"))
            return unsupported(r, F_response_format, "A response_format other than text");
    }
    if ((v = r->v[F_modalities])) {
        if (v->type != TR_JSON_ARRAY)
            return BAD(r, F_modalities, "modalities must be an array.");
        for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
            if (!TR_JSON_EQ(it.val, "text"))
                return unsupported(r, F_modalities, "A modality other than text");
    }
    if ((v = r->v[F_on_disconnect])) {
        if (!TR_JSON_EQ(v, "cancel") && !TR_JSON_EQ(v, "hold"))
            return BAD(r, F_on_disconnect, "on_disconnect must be \"cancel\" or \"hold\".");
        if (TR_JSON_EQ(v, "hold"))
            return unsupported(r, F_on_disconnect, "Holding a stream after a disconnect");
    }
    return 0;
}

static int refuse_unsupported(struct reader *r)
{
    static const enum field never[] = {
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

    if (read_type(r, F_store, TR_JSON_BOOL, "true or false") ||
        read_type(r, F_suffix, TR_JSON_STRING, "a string") ||
        read_type(r, F_user, TR_JSON_STRING, "a string") ||
        read_type(r, F_metadata, TR_JSON_OBJECT, "an object") ||
        read_type(r, F_parallel_tool_calls, TR_JSON_BOOL, "true or false"))
        return -EINVAL;
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
        if (r->v[never[i]] && !empty(r->v[never[i]]))
            return unsupported(r, never[i], NULL);
    return refuse_tools(r) || refuse_formats(r) ? -EINVAL : 0;
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

static int read_input(struct reader *r, enum tr_api api)
{
    struct tr_ask *a = r->a;

    a->messages = r->v[F_messages];
    a->prompt = r->v[F_prompt];
    if (api == TR_API_NATIVE) {
        if (a->messages && a->prompt)
            return BAD(r, F_prompt, "Give either messages or prompt, not both.");
        a->chat = a->prompt == NULL;
    } else {
        a->chat = api == TR_API_CHAT;
    }
    if (a->chat) {
        if (!a->messages)
            return BAD(r, F_messages,
                       api == TR_API_NATIVE ? "messages or prompt is required."
                                            : "messages is required.");
        if (a->messages->type != TR_JSON_ARRAY || a->messages->len == 0)
            return BAD(r, F_messages, "messages must be an array with at least one message.");
        a->prompt = NULL;
    } else if (!a->prompt) {
        return BAD(r, F_prompt, "prompt is required.");
    }
    if (read_type(r, F_chat_template_kwargs, TR_JSON_OBJECT, "an object") ||
        read_type(r, F_documents, TR_JSON_ARRAY, "an array") ||
        read_bool(r, F_add_generation_prompt, &a->generation_prompt))
        return -EINVAL;
    a->template_args = r->v[F_chat_template_kwargs];
    a->documents = r->v[F_documents];
    return 0;
}

static int read_rest(struct reader *r)
{
    struct tr_ask *a = r->a;
    bool ignore_eos = false, no_trim = false;
    double timeout_s = 0;

    if (read_bool(r, F_ignore_eos, &ignore_eos) ||
        read_bool(r, F_skip_special_tokens, &a->skip_special) ||
        read_bool(r, F_include_stop_str_in_output, &a->include_stop) ||
        read_bool(r, F_no_stop_trim, &no_trim) || read_num(r, F_timeout_s, 0, 1e9, &timeout_s))
        return -EINVAL;
    if (no_trim)
        a->include_stop = true;
    if (!a->chat && read_bool(r, F_echo, &a->echo))
        return -EINVAL;
    if (r->v[F_timeout_s] && timeout_s <= 0)
        return BAD(r, F_timeout_s, "timeout_s must be larger than 0.");
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
    return 0;
}

int tr_params_read(struct tr_ask *a, enum tr_api api, struct tr_fault *f)
{
    struct reader r = {.a = a, .f = f};

    collect(&r);
    a->params = (struct tr_params){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    a->skip_special = true;
    a->generation_prompt = true;
    a->max_tokens = -1;
    if (read_input(&r, api) || tr_params_model(a->fe, r.v[F_model], f) || read_stream(&r, api) ||
        refuse_unsupported(&r) || read_sampling(&r) || read_lengths(&r) || read_choices(&r) ||
        read_stop(&r) || read_stop_ids(&r) || read_bias(&r) ||
        (a->chat ? read_logprobs_chat(&r) : read_logprobs_completions(&r)) || read_rest(&r))
        return -EINVAL;
    return 0;
}
