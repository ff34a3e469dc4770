/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/ask.c - see ask.h. */
#include "frontend/ask.h"

#include "base/clock.h"
#include "frontend/answer_grammar.h"
#include "frontend/messages.h"
#include "frontend/tools_prompt.h"
#include "text/encode.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct tr_ask *tr_ask_new(const struct tr_fe *fe, char *body, size_t len)
{
    struct tr_ask *a = calloc(1, sizeof(*a));

    if (!a) {
        free(body);
        return NULL;
    }
    a->fe = fe;
    a->text = body;
    a->text_len = len;
    a->extra = calloc(1, sizeof(*a->extra));
    if (!a->extra) {
        tr_ask_close(a);
        return NULL;
    }
    return a;
}

int tr_ask_parse(struct tr_ask *a, struct tr_fault *f)
{
    struct tr_json_fault jf;

    a->doc = tr_json_parse(a->text ? a->text : "", a->text_len, &jf);
    if (!a->doc && jf.no_memory)
        return tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    if (!a->doc)
        return tr_fault_set(f, TR_ERR_BAD_JSON, NULL,
                            "The body is not valid JSON: %s (at byte %zu).", jf.why, jf.off);
    a->body = tr_json_root(a->doc);
    if (a->body->type != TR_JSON_OBJECT)
        return tr_fault_set(f, TR_ERR_BAD_REQUEST, NULL, "The body must be a JSON object.");
    return 0;
}

/* Takes over what was written; empty is NULL. */
static char *take(struct tr_emit *e, size_t *len)
{
    char *p = e->buf;

    *len = e->len;
    tr_emit_init(e);
    return p;
}

static void drop_body(struct tr_ask *a)
{
    tr_json_free(a->doc);
    free(a->text);
    a->doc = NULL;
    a->text = NULL;
    a->wish.value = NULL;
    a->body = a->messages = a->prompt = a->tools = NULL;
    a->template_args = a->documents = a->effort = NULL;
}

static void drop_prompts(struct tr_ask *a)
{
    for (uint32_t i = 0; a->prompts && i < a->n_prompts; i++)
        free(a->prompts[i].ids);
    free(a->prompts);
    a->prompts = NULL;
}

int tr_ask_translate(struct tr_ask *a, const struct tr_dialect *d, struct tr_fault *f)
{
    struct tr_translation t;

    if (!d->translate)
        return 0;
    tr_emit_init(&t.body);
    tr_emit_init(&t.keep);
    t.detached = false;
    int rc = d->translate(a->doc, a->body, &t, f);
    if (rc == 0 && (t.body.failed || t.keep.failed))
        rc = tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    if (rc == 0) {
        drop_body(a);
        a->text = take(&t.body, &a->text_len);
        a->kept = take(&t.keep, &a->kept_len);
        a->detached = t.detached;
        rc = tr_ask_parse(a, f);
    }
    tr_emit_fini(&t.body);
    tr_emit_fini(&t.keep);
    return rc;
}

static void drop_grammar(struct tr_ask *a)
{
    free(a->grammar);
    a->grammar = NULL;
    if (!a->extra)
        return;
    a->extra->grammar = NULL;
    a->extra->grammar_len = 0;
}

void tr_ask_admitted(struct tr_ask *a)
{
    drop_prompts(a);
    drop_grammar(a);
    if (a->extra->n_stop)
        return;
    free(a->extra);
    a->extra = NULL;
}

void tr_ask_close(struct tr_ask *a)
{
    if (!a)
        return;
    drop_body(a);
    drop_prompts(a);
    drop_grammar(a);
    tr_stopset_close(a->stops);
    free(a->extra);
    free(a->kept);
    free(a);
}

void tr_ask_take_apart(struct tr_ask *a, enum tr_tool_format tools,
                       enum tr_reasoning_format reasoning)
{
    a->tool_format = tools;
    a->reasoning_format = reasoning;
    a->n_markers = tr_marker_ids(a->fe->vocab, tools, reasoning, a->marker);
}

void tr_ask_scan(const struct tr_ask *a, struct tr_scan *scan)
{
    tr_scan_init(scan, a->fe->vocab, a->stops, a->skip_special);
    scan->include_stop = a->include_stop;
    scan->shown = a->marker;
    scan->n_shown = a->n_markers;
}

void tr_ask_split(const struct tr_ask *a, struct tr_split *split)
{
    tr_split_init(split, a->tool_format, a->reasoning_format, a->reasoning_open);
}

/* ---- token ids ---- */

static int too_long(const struct tr_ask *a, const char *about, size_t n, struct tr_fault *f)
{
    return tr_fault_set(
        f, TR_ERR_CONTEXT_LENGTH, a->chat ? "messages" : "prompt",
        "The context of this model is %u tokens, the prompt has %s%zu; at least one "
        "place is needed for the answer.",
        a->fe->shm->config.n_ctx, about, n);
}

static bool fits(const struct tr_ask *a, size_t n)
{
    return a->counting || n + (a->max_tokens == 0 ? 0 : 1) <= a->fe->shm->config.n_ctx;
}

static int check_length(const struct tr_ask *a, size_t n, struct tr_fault *f)
{
    if (n == 0)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, a->chat ? "messages" : "prompt",
                            "The prompt has no tokens.");
    return fits(a, n) ? 0 : too_long(a, "", n, f);
}

/* Encodes text into a prompt; `user` spans never become control tokens. */
static int encode(const struct tr_ask *a, const char *text, size_t len, const struct tr_span *user,
                  size_t n_user, bool bos, struct tr_prompt *p, struct tr_fault *f)
{
    uint32_t n_ctx = a->fe->shm->config.n_ctx;
    size_t n = 0, at = bos ? 1 : 0, least = tr_encode_least(a->fe->vocab, text, len) + at;

    if (!fits(a, least)) /* said before the work of encoding, which for megabytes is seconds */
        return too_long(a, "at least ", least, f);
    p->ids = malloc(((size_t)n_ctx + 1) * sizeof(*p->ids));
    if (!p->ids)
        return tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    if (bos)
        p->ids[0] = tr_vocab_bos(a->fe->vocab);
    int rc = tr_encode_spans(a->fe->vocab, text, len, user, n_user, p->ids + at, n_ctx, &n);
    if (rc == -E2BIG)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, a->chat ? "messages" : "prompt",
                            "The text cannot be cut into tokens.");
    if (rc && rc != -ENOSPC)
        return tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    p->n = n + at;
    if (check_length(a, p->n, f))
        return -EINVAL;
    /* Most prompts are far shorter than the context; they wait for slots or die, so give it back. */
    int32_t *fit = p->n && !rc ? realloc(p->ids, p->n * sizeof(*p->ids)) : NULL;
    if (fit)
        p->ids = fit;
    return 0;
}

static int encode_ids(const struct tr_ask *a, const struct tr_json *list, struct tr_prompt *p,
                      struct tr_fault *f)
{
    if (list->len == 0)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "prompt", "The prompt has no tokens.");
    if (check_length(a, list->len, f))
        return -EINVAL;
    p->ids = malloc(list->len * sizeof(*p->ids));
    if (!p->ids)
        return tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    for (struct tr_json_it it = tr_json_iter(list); tr_json_step(&it);) {
        int64_t id;
        if (tr_json_i64(it.val, &id) || id < 0 || id >= a->fe->shm->config.n_vocab)
            return tr_fault_set(f, TR_ERR_BAD_PARAM, "prompt",
                                "Token %u of the prompt is no token id from 0 to %u.", it.index,
                                a->fe->shm->config.n_vocab - 1);
        p->ids[p->n++] = (int32_t)id;
    }
    return 0;
}

static int encode_text(const struct tr_ask *a, const struct tr_json *s, struct tr_prompt *p,
                       struct tr_fault *f)
{
    /* The whole text is the client's: its control tokens stay text.  A client that wants some sends
     * token ids. */
    struct tr_span all = {0, s->len};

    return encode(a, s->u.s, s->len, &all, 1, tr_vocab_add_bos(a->fe->vocab), p, f);
}

static int make_prompts(struct tr_ask *a, uint32_t n, struct tr_fault *f)
{
    const struct tr_shm_config *k = &a->fe->shm->config;
    uint32_t max = a->fe->cfg->max_choices;

    if (k->n_admit < max)
        max = k->n_admit; /* more can never be open at once */
    if ((uint64_t)n * a->n > max)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, a->n > 1 ? "n" : "prompt",
                            "n times the number of prompts is at most %u.", max);
    if (a->plain && n > 1)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "prompt", "Plain text has room for one answer.");
    if ((a->params.flags & TR_REQ_IDEMPOTENT) && n > 1)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "Idempotency-Key",
                            "Only a request with one prompt can have an Idempotency-Key.");
    if ((a->params.flags & TR_REQ_RESUMABLE) && n * a->n > 1) {
        if (a->hold_asked)
            return tr_fault_set(f, TR_ERR_BAD_PARAM, a->n > 1 ? "n" : "prompt",
                                "A stream that can be resumed has one choice.");
        a->params.flags &= ~(uint32_t)TR_REQ_RESUMABLE;
    }
    a->prompts = calloc(n, sizeof(*a->prompts));
    if (!a->prompts)
        return tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    a->n_prompts = n;
    return 0;
}

static int encode_list(struct tr_ask *a, struct tr_fault *f)
{
    const struct tr_json *list = a->prompt;
    struct tr_json_it it = tr_json_iter(list);

    if (!tr_json_step(&it))
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "prompt", "The prompt is empty.");
    enum tr_json_type t = (enum tr_json_type)it.val->type;
    if (t == TR_JSON_NUMBER)
        return make_prompts(a, 1, f) ? -EINVAL : encode_ids(a, list, &a->prompts[0], f);
    if (t != TR_JSON_STRING && t != TR_JSON_ARRAY)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "prompt",
                            "prompt must be a string, token ids, or a list of either.");
    if (make_prompts(a, list->len, f))
        return -EINVAL;
    do {
        struct tr_prompt *p = &a->prompts[it.index];
        if (it.val->type != t)
            return tr_fault_set(f, TR_ERR_BAD_PARAM, "prompt",
                                "A list of prompts must be all strings or all token ids.");
        if (t == TR_JSON_STRING ? encode_text(a, it.val, p, f) : encode_ids(a, it.val, p, f))
            return -EINVAL;
    } while (tr_json_step(&it));
    return 0;
}

/* ---- chat ---- */

static int encode_chat(struct tr_ask *a, struct tr_fault *f)
{
    struct tr_messages m = {.doc = a->doc,
                            .messages = a->messages,
                            .tools = a->tools,
                            .documents = a->documents,
                            .args = a->template_args,
                            .effort = a->effort,
                            .generation_prompt = a->generation_prompt,
                            .continue_final = a->continue_final};
    const struct tr_chat_traits *traits = &a->fe->traits;
    struct tr_json_doc *doc = NULL; /* the messages as text, and it */
    char *text = NULL;
    struct tr_chat_text out;

    if (!a->fe->chat)
        return tr_fault_set(f, TR_ERR_UNSUPPORTED_PARAM, "messages",
                            "This model has no chat template; use /v1/completions.");
    struct tr_jctx *ctx = tr_jctx_open(NULL);
    if (!ctx)
        return tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    int rc = make_prompts(a, 1, f);
    if (rc == 0 && tr_tools_prompt_wanted(&m, traits))
        rc = tr_tools_prompt(&m, traits, a->fe->tool_format, &doc, &text, f);
    if (rc == 0)
        rc = tr_messages_render(&m, a->fe->chat, traits, a->fe->vocab, ctx, &out, f);
    if (rc == 0) {
        a->stage.rendered_ns = tr_now_ns();
        const struct tr_json *own = a->continue_final ? tr_messages_final(m.messages) : NULL;
        a->reasoning_open =
            tr_reasoning_is_open(a->reasoning_format, out.text, out.len, own ? own->len : 0);
        rc = encode(a, out.text, out.len, out.user, out.n_user, false, &a->prompts[0], f);
    }
    if (rc && tr_jctx_no_memory(ctx)) /* whatever it looked like */
        tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    tr_jctx_close(ctx);
    tr_json_free(doc);
    free(text);
    return rc;
}

int tr_ask_encode(struct tr_ask *a, struct tr_fault *f)
{
    int rc;

    if (a->chat)
        rc = encode_chat(a, f);
    else if (a->prompt->type == TR_JSON_STRING)
        rc = make_prompts(a, 1, f) ? -EINVAL : encode_text(a, a->prompt, &a->prompts[0], f);
    else if (a->prompt->type == TR_JSON_ARRAY)
        rc = encode_list(a, f);
    else
        rc = tr_fault_set(f, TR_ERR_BAD_PARAM, "prompt",
                          "prompt must be a string, token ids, or a list of either.");
    if (rc == 0)
        a->stage.encoded_ns = tr_now_ns();
    if (rc == 0)
        rc = tr_answer_grammar(a, f);
    drop_body(a);
    return rc;
}
