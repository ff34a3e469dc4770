/* SPDX-License-Identifier: Apache-2.0 */
/* text/chat.h - a chat template: parsed once, rendered for every request.
 *
 * Path: http > [template] > tokens > subq > engine > step > ring > detok > event > socket
 *
 * Runs in a frontend.  A struct tr_chat is immutable after tr_chat_open: any number of threads may
 * render from it, each with its own context.
 *
 * The language is Jinja as transformers sets it up for chat templates: immutable sandbox,
 * trim_blocks, lstrip_blocks, break and continue, the generation tag, tojson that escapes no HTML,
 * raise_exception, strftime_now.  What is not supported is refused by name, at open or at the
 * rendering; it never renders as something else.
 *
 * Always true of a rendered text:
 *   I1  `user` is sorted, disjoint, merged, and within [0, len)
 *   I2  every byte that came from a string marked as the user's, or whose origin cannot be told,
 *       is inside a span of `user`: control tokens are looked for outside of them only
 *
 * Limits (tr_jctx_open) bound steps, nesting, memory and output; nothing recurses on data or on a
 * template beyond them. */
#ifndef TR_TEXT_CHAT_H
#define TR_TEXT_CHAT_H

#include "base/err.h"
#include "text/jinja_value.h"
#include "text/span.h"

#include <stddef.h>

/* Why a template could not be parsed or rendered. */
enum tr_jerr {
    TR_JERR_OK = 0,
    TR_JERR_RAISED,    /* raise_exception: the message is the template's own sentence; the client's
                          * fault */
    TR_JERR_UNDEFINED, /* something missing was used, e.g. a message without content */
    TR_JERR_RUNTIME,   /* wrong types, division by zero, ... */
    TR_JERR_SECURITY,  /* the sandbox forbids it */
    TR_JERR_SYNTAX,    /* the template itself is wrong */
    TR_JERR_UNSUPPORTED, /* Jinja can, this interpreter cannot; the message names it */
    TR_JERR_LIMIT,       /* steps, nesting, memory or output */
};

/* "raised", "undefined", ...; for logs and tests. */
const char *tr_jerr_name(enum tr_jerr e);

struct tr_chat;

/* Parses `tmpl` (copied).  NULL and a sentence with the line number on a fault. */
struct tr_chat *tr_chat_open(const char *tmpl, size_t len, struct tr_errbuf *err);
void tr_chat_close(struct tr_chat *chat); /* NULL is fine */

/* A rendered text; lives in the context until tr_jctx_close. */
struct tr_chat_text {
    const char *text; /* may contain NUL; a NUL follows it */
    size_t len;
    const struct tr_span *user; /* [n_user] */
    size_t n_user;
};

/* Renders with `vars`, a dict: messages, tools, documents, add_generation_prompt, bos_token,
 * eos_token and the request's template arguments.  On an error `out` is untouched, `err` holds one
 * sentence, and the context may only be closed. */
enum tr_jerr tr_chat_render(const struct tr_chat *chat, struct tr_jctx *ctx, struct tr_jv *vars,
                            struct tr_chat_text *out, struct tr_errbuf *err);

/* Put behind the text that is to be continued, in the variables; the blank at its end tells whether the
 * template trims what it prints. */
#define TR_CHAT_CONTINUE "ZQ-CONTINUED-FROM-HERE "

/* Cuts a rendered text where TR_CHAT_CONTINUE stands in it, as transformers does for
 * continue_final_message; `text` is the message without it.  -ENOENT if the template did not print it
 * whole, -ENOMEM at a limit.  No NUL follows the text then. */
int tr_chat_continue(struct tr_jctx *ctx, struct tr_chat_text *out, const char *text, size_t len);

#endif
