/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api.h - handlers of the outside interface and what they share.
 *
 * Frontend only.  Each api_*.c is one dialect, the only code that knows its field names;
 * api_openai.c holds those that two of them share. */
#ifndef TR_FRONTEND_API_H
#define TR_FRONTEND_API_H

#include "frontend/exchange.h"
#include "frontend/event.h"
#include "frontend/fault.h"
#include "frontend/route.h"
#include "frontend/stream.h"

struct tr_task;

/* All routes of a frontend, those of the dialects and the others, and how many; ctx of every handler is
 * its struct tr_fe. */
const struct tr_route *tr_api_routes(size_t *n);

/* What the access log calls a dialect. */
const char *tr_dialect_word(unsigned api);

/* The way of every POST that starts work: parse, check, encode (a worker if it is long), admit. */
void tr_api_post(struct tr_exchange *x, const struct tr_http_request *rq, struct tr_fe *fe,
                 const struct tr_dialect *dialect, enum tr_frame frame);

/* Of a task with its dialect: parses, checks and encodes its ask (a `make` of task.h). */
int tr_api_make(struct tr_task *t);

/* Answers the fault with its status and counts it. */
void tr_api_refuse(struct tr_fe *fe, struct tr_exchange *x, const struct tr_fault *f);

/* Answers fe->json. */
void tr_api_reply(struct tr_fe *fe, struct tr_exchange *x);

/* Answers what a task has written (an `answer` of task.h). */
void tr_api_reply_made(struct tr_task *t, struct tr_fe *fe, struct tr_exchange *x);

/* The way of every POST that starts no work: `make` writes the answer of the body (task.h); `dialect`
 * NULL: it needs none. */
void tr_api_ask(struct tr_exchange *x, const struct tr_http_request *rq, struct tr_fe *fe,
                const struct tr_dialect *dialect, int (*make)(struct tr_task *t));

/* The id of the key, as it stands in rings and records; "" without. */
void tr_api_key(const struct tr_http_request *rq, char key[TR_KEY_BYTES]);

/* A reader for the resumable stream of this id, or why he cannot have it. */
void tr_api_resume_as(struct tr_fe *fe, const struct tr_http_request *rq, struct tr_stream_id id,
                      const struct tr_reader *r);

/* A whole number without sign or blanks; 0 or -EINVAL. */
int tr_api_read_number(const char *text, size_t len, int64_t *out);

/* The object {"prompt_tokens":...} as the value of `usage`. */
void tr_api_usage(struct tr_emit *e, const struct tr_usage *u);

tr_handler tr_api_resume, tr_api_ws, tr_api_models, tr_api_model, tr_api_tokenize,
    tr_api_detokenize, tr_api_health, tr_api_livez, tr_api_startupz, tr_api_version,
    tr_api_server_info, tr_api_model_info, tr_api_metrics, tr_api_debug_streams;

/* NDJSON, or SSE with ids: by Accept (api_native.c). */
enum tr_frame tr_api_native_frame(const struct tr_http_request *rq);

/* DELETE of this stream (api_native.c). */
void tr_api_native_cancel(struct tr_exchange *x, const struct tr_http_request *rq, struct tr_fe *fe,
                          struct tr_stream_id id);

/* DELETEs that wait for the end of a stream (api_native.c): looks, answers.  True if any ended. */
bool tr_api_native_pump(struct tr_fe *fe);

#endif
