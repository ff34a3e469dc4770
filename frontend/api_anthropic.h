/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_anthropic.h - what the files of Anthropic's dialect share: how a body of Messages becomes
 * one of chat completions.
 *
 * Frontend only, for api_anthropic*.c; any thread, pure.  Functions that can refuse say 0 (or what they
 * found), or -EINVAL (or NULL) after setting the fault, which names the place in the client's own
 * body. */
#ifndef TR_FRONTEND_API_ANTHROPIC_H
#define TR_FRONTEND_API_ANTHROPIC_H

#include "frontend/event.h"
#include "frontend/fe.h"
#include "frontend/fields.h"

struct tr_anthropic {
    const struct tr_json_doc *doc; /* the client's */
    struct tr_emit *e;             /* the chat body so far */
    struct tr_fault *f;
};

/* Writes a body of Messages as one of chat completions.  `counting`: of count_tokens, which has no
 * max_tokens.  What was written is of no use if it is refused. */
int tr_anthropic_body(const struct tr_json_doc *doc, const struct tr_json *body, bool counting,
                      struct tr_emit *out, struct tr_fault *f);

/* The member `messages`, the system prompt first (api_anthropic_turns.c).  Both may be NULL. */
int tr_anthropic_turns(struct tr_anthropic *w, const struct tr_json *messages,
                       const struct tr_json *system);

/* ---- values (api_anthropic_body.c) ---- */

int tr_anthropic_bad(struct tr_anthropic *w, const struct tr_json *v, const char *why);
int tr_anthropic_unsupported(struct tr_anthropic *w, const struct tr_json *v, const char *why);

/* The member, or NULL if it is absent or null. */
const struct tr_json *tr_anthropic_get(const struct tr_json *obj, const char *name);

/* The string member that an object must have. */
const struct tr_json *tr_anthropic_string(struct tr_anthropic *w, const struct tr_json *obj,
                                          const char *name);

/* The value as it is, as the member `key`. */
int tr_anthropic_copy(struct tr_anthropic *w, const char *key, const struct tr_json *v);

/* ---- of the dialect's row (api_anthropic_event.c, event.h) ---- */

void tr_anthropic_event(struct tr_stream *s, const struct tr_event *ev);
void tr_anthropic_answer(struct tr_stream *s, struct tr_emit *e);

/* Every field that is known, sorted as strcmp does. */
extern const struct tr_field_row tr_anthropic_fields[];
extern const size_t tr_anthropic_n_fields;

/* {"type":"error","error":{type,message,details},"request_id"} */
tr_error_body tr_anthropic_error;

/* ---- models (api_anthropic_models.c) ---- */

/* Whether a client of Anthropic's asks (the header anthropic-version), on a path that is not Anthropic's
 * alone; from here on errors are said in its words. */
bool tr_anthropic_asks(struct tr_exchange *x, const struct tr_http_request *rq);
/* The model, and the list of models. */
void tr_anthropic_model(struct tr_emit *e, const struct tr_fe *fe);
void tr_anthropic_models(struct tr_emit *e, const struct tr_fe *fe,
                         const struct tr_http_request *rq);

#endif
