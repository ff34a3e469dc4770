/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat.h"

#include "text/jinja_ast.h"
#include "text/jinja_eval.h"
#include "text/jinja_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What a template may take when it is parsed.  Nesting is as deep as at a rendering. */
#define TEMPLATE_MAX ((size_t)4 << 20)
#define PARSE_MEMORY ((size_t)1 << 30)

struct tr_chat {
    struct tr_jctx *parsed; /* owns the tree and its constants */
    const struct tr_jn *body;
};

const char *tr_jerr_name(enum tr_jerr e)
{
    static const char *const names[] = {"ok",       "raised", "undefined",   "runtime",
                                        "security", "syntax", "unsupported", "limit"};
    size_t i = (size_t)e;
    return i < sizeof names / sizeof names[0] ? names[i] : "unknown";
}

struct tr_chat *tr_chat_open(const char *tmpl, size_t len, struct tr_errbuf *err)
{
    const struct tr_jlimits limits = {
        .memory = PARSE_MEMORY, .depth = 200, .steps = UINT64_MAX / 2};
    if (len > TEMPLATE_MAX) {
        (void)tr_errf(err, -EINVAL, "the chat template is too long");
        return NULL;
    }
    struct tr_chat *chat = calloc(1, sizeof *chat);
    struct tr_jctx *c = tr_jctx_open(&limits);
    if (!chat || !c) {
        (void)tr_errf(err, -ENOMEM, "no memory for the chat template");
        free(chat);
        tr_jctx_close(c);
        return NULL;
    }
    chat->parsed = c;
    chat->body = tr_jparse(c, tmpl, len);
    if (c->err) {
        (void)tr_errf(err, -EINVAL, "chat template: %s", c->msg);
        tr_chat_close(chat);
        return NULL;
    }
    return chat;
}

void tr_chat_close(struct tr_chat *chat)
{
    if (!chat)
        return;
    tr_jctx_close(chat->parsed);
    free(chat);
}

/* A raised sentence is the template's own and goes to the client as it is. */
static enum tr_jerr report(const struct tr_jctx *c, struct tr_errbuf *err)
{
    if (c->err == TR_JERR_RAISED)
        (void)tr_errf(err, 0, "%s", c->msg);
    else
        (void)tr_errf(err, 0, "chat template, line %u: %s", c->line, c->msg);
    return c->err;
}

enum tr_jerr tr_chat_render(const struct tr_chat *chat, struct tr_jctx *ctx, struct tr_jv *vars,
                            struct tr_chat_text *out, struct tr_errbuf *err)
{
    struct tr_jbuf b;
    struct tr_jev e = {.c = ctx, .scope = tr_jscope_new(ctx, NULL), .out = &b};
    tr_jbuf_init(&b, ctx);
    if (!vars || vars->type != TR_JV_DICT)
        tr_jfail(ctx, TR_JERR_LIMIT, "the variables take too much memory");
    ctx->vars = vars;
    if (ctx->err || !e.scope || tr_jexec(&e, chat->body) == TR_JFLOW_ERROR)
        return report(ctx, err);
    struct tr_jstr text = tr_jbuf_str(&b);
    *out = (struct tr_chat_text){
        .text = text.p, .len = text.len, .user = text.user, .n_user = text.n_user};
    return TR_JERR_OK;
}

int tr_chat_continue(struct tr_jctx *ctx, struct tr_chat_text *out, const char *text, size_t len)
{
    static const char tag[] = TR_CHAT_CONTINUE;
    struct tr_jstr all = {
        .p = out->text, .len = out->len, .user = out->user, .n_user = out->n_user};
    struct tr_jstr word = tr_jstr_of(tag), trimmed = {.p = tag, .len = sizeof tag - 2};
    struct tr_jstr wanted =
        tr_jstr_strip(ctx, (struct tr_jstr){.p = text, .len = len}, NULL, true, true);
    int64_t at = tr_jstr_rfind(all, trimmed, 0, all.len);

    if (at < 0 || tr_jstr_find(all, wanted, 0, all.len) < 0)
        return ctx->err ? -ENOMEM : -ENOENT;
    bool kept = all.len - (size_t)at >= word.len && !memcmp(all.p + at, word.p, word.len);
    struct tr_jstr cut = tr_jstr_part(ctx, all, 0, (size_t)at);
    if (!kept) /* it trims: what is before the tag was to be at the end */
        cut = tr_jstr_strip(ctx, cut, NULL, false, true);
    if (ctx->err)
        return -ENOMEM;
    *out = (struct tr_chat_text){
        .text = cut.p, .len = cut.len, .user = cut.user, .n_user = cut.n_user};
    return 0;
}
