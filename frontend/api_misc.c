/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_misc.c - models, tokens, and what platforms and routers ask. */
#include "base/clock.h"
#include "frontend/api.h"
#include "frontend/api_anthropic.h"
#include "frontend/params.h"
#include "frontend/task.h"
#include "text/encode.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- models ---- */

static void emit_model(struct tr_emit *e, const struct tr_fe *fe)
{
    tr_emit_obj(e);
    tr_emit_kstr(e, "id", fe->cfg->served_name);
    tr_emit_kstr(e, "object", "model");
    tr_emit_ku64(e, "created", fe->cfg->created_s);
    tr_emit_kstr(e, "owned_by", "tokenring");
    tr_emit_ku64(e, "max_model_len", fe->shm->config.n_ctx);
    tr_emit_obj_end(e);
}

void tr_api_models(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    struct tr_fe *fe = ctx;
    struct tr_emit *e = &fe->json;

    tr_emit_reset(e);
    if (tr_anthropic_asks(x, rq)) {
        tr_anthropic_models(e, fe, rq);
        tr_api_reply(fe, x);
        return;
    }
    tr_emit_obj(e);
    tr_emit_kstr(e, "object", "list");
    tr_emit_key(e, "data");
    tr_emit_arr(e);
    emit_model(e, fe);
    tr_emit_arr_end(e);
    tr_emit_obj_end(e);
    tr_api_reply(fe, x);
}

static bool same(struct tr_slice a, const char *b)
{
    return b && a.len == strlen(b) && memcmp(a.p, b, a.len) == 0;
}

void tr_api_model(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    struct tr_fe *fe = ctx;
    bool theirs = tr_anthropic_asks(x, rq);

    if (!same(rq->id_param, fe->cfg->served_name) && !same(rq->id_param, fe->cfg->model_stem)) {
        tr_exchange_error(x, TR_ERR_MODEL_NOT_FOUND, NULL, "model");
        return;
    }
    tr_emit_reset(&fe->json);
    if (theirs)
        tr_anthropic_model(&fe->json, fe);
    else
        emit_model(&fe->json, fe);
    tr_api_reply(fe, x);
}

/* ---- tokens ---- */

static void emit_tokens(const struct tr_fe *fe, struct tr_emit *e, const struct tr_prompt *p,
                        bool with_strings)
{
    tr_emit_obj(e);
    tr_emit_ku64(e, "count", p->n);
    tr_emit_ku64(e, "max_model_len", fe->shm->config.n_ctx);
    tr_emit_key(e, "tokens");
    tr_emit_arr(e);
    for (size_t i = 0; i < p->n; i++)
        tr_emit_i64(e, p->ids[i]);
    tr_emit_arr_end(e);
    if (with_strings) {
        tr_emit_key(e, "token_strs");
        tr_emit_arr(e);
        for (size_t i = 0; i < p->n; i++) {
            size_t len;
            const char *s = tr_vocab_bytes(fe->vocab, p->ids[i], &len);
            tr_emit_strn(e, s ? s : "", len);
        }
        tr_emit_arr_end(e);
    } else {
        tr_emit_knull(e, "token_strs");
    }
    tr_emit_obj_end(e);
}

static int read_flag(const struct tr_json *body, const char *name, bool *out, struct tr_fault *f)
{
    const struct tr_json *v = tr_json_get(body, name, strlen(name));

    if (!v || v->type == TR_JSON_NULL)
        return 0;
    if (v->type != TR_JSON_BOOL)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, name, "%s must be true or false.", name);
    *out = v->u.b;
    return 0;
}

/* Any text, also one that is longer than the context: counting is what this is for. */
static int encode_text(const struct tr_fe *fe, const struct tr_json *s, bool special,
                       struct tr_prompt *p, struct tr_fault *f)
{
    size_t at = special && tr_vocab_add_bos(fe->vocab) ? 1 : 0, n = 0;

    p->ids = malloc((s->len + 1 + at) * sizeof(*p->ids));
    if (!p->ids)
        return tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    if (at)
        p->ids[0] = tr_vocab_bos(fe->vocab);
    /* No byte makes more than one token; a blank that the tokeniser adds may be one more. */
    int rc = tr_encode(fe->vocab, s->u.s, s->len, false, p->ids + at, s->len + 1, &n);
    if (rc == -ENOSPC) { /* but normalising may have made bytes */
        int32_t *more = realloc(p->ids, (n + at) * sizeof(*more));
        if (!more)
            return tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
        p->ids = more;
        rc = tr_encode(fe->vocab, s->u.s, s->len, false, p->ids + at, n, &n);
    }
    if (rc == -ENOMEM)
        return tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    if (rc)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "prompt", "The text cannot be cut into tokens.");
    p->n = n + at;
    return 0;
}

static const struct tr_json *present(const struct tr_json *v)
{
    return v && v->type != TR_JSON_NULL ? v : NULL;
}

static int read_typed(const struct tr_json *body, const char *name, enum tr_json_type type,
                      const struct tr_json **out, struct tr_fault *f)
{
    *out = present(tr_json_get(body, name, strlen(name)));
    if (!*out || (*out)->type == type)
        return 0;
    return tr_fault_set(f, TR_ERR_BAD_PARAM, name, "%s must be an %s.", name,
                        type == TR_JSON_ARRAY ? "array" : "object");
}

static int tokenize_chat(struct tr_ask *a, struct tr_fault *f)
{
    if (a->messages->type != TR_JSON_ARRAY || a->messages->len == 0)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "messages",
                            "messages must be an array with at least one message.");
    if (read_flag(a->body, "continue_final_message", &a->continue_final, f) ||
        read_typed(a->body, "chat_template_kwargs", TR_JSON_OBJECT, &a->template_args, f) ||
        read_typed(a->body, "tools", TR_JSON_ARRAY, &a->tools, f) ||
        read_typed(a->body, "documents", TR_JSON_ARRAY, &a->documents, f))
        return -EINVAL;
    a->chat = true;
    a->n = 1;
    return tr_ask_encode(a, f);
}

static int tokenize(struct tr_ask *a, struct tr_prompt *p, bool *strings, struct tr_fault *f)
{
    const struct tr_json *prompt = present(TR_JSON_GET(a->body, "prompt"));
    const struct tr_json *model = present(TR_JSON_GET(a->body, "model"));
    bool special = true;

    a->generation_prompt = true;
    if ((model && tr_params_model(a->fe, model, f)) ||
        read_flag(a->body, "return_token_strs", strings, f) ||
        read_flag(a->body, "add_special_tokens", &special, f) ||
        read_flag(a->body, "add_generation_prompt", &a->generation_prompt, f))
        return -EINVAL;
    a->messages = present(TR_JSON_GET(a->body, "messages"));
    if (a->messages && prompt)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "prompt",
                            "Give either messages or prompt, not both.");
    if (a->messages) {
        if (tokenize_chat(a, f))
            return -EINVAL;
        *p = a->prompts[0]; /* moved */
        a->prompts[0] = (struct tr_prompt){0};
        return 0;
    }
    if (!prompt)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "prompt", "prompt or messages is required.");
    if (prompt->type != TR_JSON_STRING)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "prompt", "prompt must be a string.");
    return encode_text(a->fe, prompt, special, p, f);
}

static int make_tokens(struct tr_task *t)
{
    struct tr_prompt p = {0};
    bool strings = false;
    int rc = tr_ask_parse(t->ask, &t->fault);

    if (rc == 0)
        rc = tokenize(t->ask, &p, &strings, &t->fault);
    if (rc == 0)
        emit_tokens(t->ask->fe, &t->out, &p, strings);
    free(p.ids);
    return rc;
}

void tr_api_tokenize(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    tr_api_ask(x, rq, ctx, NULL, make_tokens);
}

/* text: scratch of TR_EVENT_TEXT_CAP. */
static int detokenize(const struct tr_fe *fe, const struct tr_json *tokens, char *text,
                      struct tr_emit *e, struct tr_fault *f)
{
    struct tr_detok d;
    size_t len;

    tr_detok_init(&d, fe->vocab, false);
    tr_detok_begins(&d);
    tr_emit_str_open(e);
    for (struct tr_json_it it = tr_json_iter(tokens); tr_json_step(&it);) {
        int64_t id;
        if (tr_json_i64(it.val, &id) || id < 0 || id >= fe->shm->config.n_vocab ||
            tr_detok_push(&d, (int32_t)id, text, &len))
            return tr_fault_set(f, TR_ERR_BAD_PARAM, "tokens",
                                "tokens[%u] is no token id from 0 to %u.", it.index,
                                fe->shm->config.n_vocab - 1);
        tr_emit_str_piece(e, text, len);
    }
    tr_emit_str_piece(e, text, tr_detok_flush(&d, text));
    tr_emit_str_close(e);
    return 0;
}

static int make_text(struct tr_task *t)
{
    if (tr_ask_parse(t->ask, &t->fault))
        return -EINVAL;
    const struct tr_json *tokens = TR_JSON_GET(t->ask->body, "tokens");
    if (!tr_json_is(tokens, TR_JSON_ARRAY))
        return tr_fault_set(&t->fault, TR_ERR_BAD_PARAM, "tokens",
                            "tokens must be an array of token ids.");
    char *text = malloc(TR_EVENT_TEXT_CAP);
    if (!text)
        return tr_fault_set(&t->fault, TR_ERR_INTERNAL, NULL, "Out of memory.");
    tr_emit_obj(&t->out);
    tr_emit_key(&t->out, "prompt");
    int rc = detokenize(t->ask->fe, tokens, text, &t->out, &t->fault);
    if (rc == 0)
        tr_emit_obj_end(&t->out);
    free(text);
    return rc;
}

void tr_api_detokenize(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    tr_api_ask(x, rq, ctx, NULL, make_text);
}

/* ---- probes ---- */

static void reply_status(struct tr_fe *fe, struct tr_exchange *x, const char *status)
{
    tr_emit_reset(&fe->json);
    tr_emit_obj(&fe->json);
    tr_emit_kstr(&fe->json, "status", status);
    tr_emit_obj_end(&fe->json);
    tr_api_reply(fe, x);
}

void tr_api_health(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    enum tr_err e = tr_fe_ready(ctx);

    (void)rq;
    if (e)
        tr_exchange_error(x, e, NULL, NULL);
    else
        reply_status(ctx, x, "ok");
}

void tr_api_livez(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)rq;
    reply_status(ctx, x, "ok"); /* the loop turns, or nobody would answer */
}

void tr_api_startupz(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    struct tr_fe *fe = ctx;

    (void)rq;
    if (fe->was_ready || tr_fe_ready(fe) == TR_OK)
        reply_status(fe, x, "ok");
    else
        tr_exchange_error(x, TR_ERR_ENGINE_DOWN, NULL, NULL);
}

void tr_api_version(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    struct tr_fe *fe = ctx;

    (void)rq;
    tr_emit_reset(&fe->json);
    tr_emit_obj(&fe->json);
    tr_emit_kstr(&fe->json, "version", fe->cfg->version);
    tr_emit_obj_end(&fe->json);
    tr_api_reply(fe, x);
}

void tr_api_server_info(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    struct tr_fe *fe = ctx;
    struct tr_emit *e = &fe->json;
    const struct tr_shm_config *k = &fe->shm->config;

    (void)rq;
    tr_emit_reset(e);
    tr_emit_obj(e);
    tr_emit_kstr(e, "server", "tokenring");
    tr_emit_kstr(e, "version", fe->cfg->version);
    tr_emit_kstr(e, "model_id", fe->cfg->served_name);
    tr_emit_kstr(e, "served_model_name", fe->cfg->served_name);
    tr_emit_kstr(e, "backend", fe->cfg->backend);
    tr_emit_ku64(e, "max_model_len", k->n_ctx);
    tr_emit_ku64(e, "max_num_seqs", k->max_seqs);
    tr_emit_ku64(e, "max_streams", k->n_slots);
    tr_emit_ku64(e, "window", k->window);
    tr_emit_obj_end(e);
    tr_api_reply(fe, x);
}

void tr_api_model_info(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    struct tr_fe *fe = ctx;
    struct tr_emit *e = &fe->json;

    (void)rq;
    tr_emit_reset(e);
    tr_emit_obj(e);
    tr_emit_kstr(e, "model_path", fe->cfg->served_name);
    tr_emit_kstr(e, "tokenizer_path", fe->cfg->served_name);
    tr_emit_kbool(e, "is_generation", true);
    tr_emit_ku64(e, "max_model_len", fe->shm->config.n_ctx);
    tr_emit_ku64(e, "vocab_size", fe->shm->config.n_vocab);
    tr_emit_kbool(e, "has_chat_template", fe->chat != NULL);
    tr_emit_obj_end(e);
    tr_api_reply(fe, x);
}
