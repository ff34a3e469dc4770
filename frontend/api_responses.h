/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_responses.h - what the files of OpenAI's Responses dialect share.
 *
 * Frontend only.  api_responses.c: a request as one of chat completions, the row of the dialect;
 * api_responses_input.c: its input items; api_responses_event.c: events, bodies;
 * api_responses_object.c: the response object; api_responses_id.c: what is asked about a response by its
 * id; api_responses_page.c: the list of its input items.
 *
 * A request's own words that the object repeats are *kept* with the ask (ask.h), as a JSON object of
 * those fields that were given: instructions, tools, metadata, ... and, of a background response, the
 * input, to be listed.  They travel through the ring and are parsed whenever an object is written, so
 * nothing that another process wrote gets into an answer unchecked. */
#ifndef TR_FRONTEND_API_RESPONSES_H
#define TR_FRONTEND_API_RESPONSES_H

#include "frontend/api.h"

/* ---- api_responses.c, api_responses_input.c: any thread ---- */

/* A request that is being translated. */
struct tr_responses_in {
    const struct tr_json_doc *doc;
    const struct tr_json *body;
    struct tr_emit *out;
    struct tr_fault *f;
};

/* A fault at `v`: -EINVAL. */
int tr_responses_bad(const struct tr_responses_in *t, const struct tr_json *v, const char *why);
int tr_responses_unsupported(const struct tr_responses_in *t, const struct tr_json *v,
                             const char *why);
/* A field of the body; NULL if it is absent or null. */
const struct tr_json *tr_responses_field(const struct tr_responses_in *t, const char *name);

/* Writes `messages`: instructions and input.  0, or -EINVAL with the fault. */
int tr_responses_messages(const struct tr_responses_in *t);

/* ---- api_responses_event.c: of the dialect's row (event.h) ---- */

void tr_responses_event(struct tr_stream *s, const struct tr_event *ev);
enum tr_closing tr_responses_close(struct tr_stream *s);
void tr_responses_body(struct tr_stream *s, struct tr_emit *e);

/* ---- api_responses_object.c ---- */

enum tr_response_status {
    TR_RESPONSE_QUEUED,
    TR_RESPONSE_IN_PROGRESS,
    TR_RESPONSE_COMPLETED,
    TR_RESPONSE_INCOMPLETE,
    TR_RESPONSE_FAILED,
    TR_RESPONSE_CANCELLED
};

/* All that an object tells. */
struct tr_response {
    const struct tr_fe *fe;
    const struct tr_ask *ask;
    const char *id;
    enum tr_response_status status;
    uint64_t completed_ns; /* COMPLETED: monotonic */
    enum tr_err err;       /* FAILED */
    struct tr_usage usage; /* from COMPLETED on */
};

/* The object as one value of `e`, up to and with the opening of its array of output items; and the rest
 * of it. */
void tr_response_open(struct tr_emit *e, const struct tr_response *r);
void tr_response_close(struct tr_emit *e, const struct tr_response *r);

/* The message of the answer as one value: up to the key of its text, whose value is the caller's; and the
 * rest of it.  `status` as the item's, which is IN_PROGRESS, COMPLETED or INCOMPLETE. */
void tr_response_item_empty(struct tr_emit *e, const char *id); /* before its first part */
void tr_response_item_open(struct tr_emit *e, const char *id, enum tr_response_status status);
/* `lp`: entries of the answer so far, or NULL. */
void tr_response_item_close(struct tr_emit *e, struct tr_lp_text *lp);
/* Its one part in the same way. */
void tr_response_part_open(struct tr_emit *e);
void tr_response_part_close(struct tr_emit *e, struct tr_lp_text *lp);

/* Name of a status in objects. */
const char *tr_response_word(enum tr_response_status s);

/* What became of a request: status and *err.  `e` is the error it ended with, TR_OK for none. */
enum tr_response_status tr_response_end(enum tr_err e, bool length);

enum { TR_RESPONSE_ID_BYTES = 64 };

/* The id of the response's message, from the response's. */
void tr_response_item_id(const char *id, char out[TR_RESPONSE_ID_BYTES]);

/* ---- api_responses_page.c ---- */

enum { TR_RESPONSE_ITEMS = 20 }; /* in a page, unless it is said */

/* A page of input items. */
struct tr_response_page {
    uint32_t limit;
    bool ascending;
    int64_t after; /* -1: from the beginning */
};

/* ?limit, ?order, ?after: the name of an item.  0, or -EINVAL with *f. */
int tr_response_page_read(const struct tr_http_request *rq, struct tr_response_page *g,
                          struct tr_fault *f);

/* The items of the page, of an array that is open, and the members of the list that follow it.  `doc`: what
 * is kept of the request, which another process may have written; NULL: nothing. */
void tr_response_page_put(struct tr_emit *e, const struct tr_response_page *g,
                          struct tr_stream_id id, const struct tr_json_doc *doc);

/* ---- api_responses_id.c ---- */

/* GET and DELETE /v1/responses/{id}, cancel, input_items. */
tr_handler tr_responses_get, tr_responses_delete, tr_responses_cancel, tr_responses_items;

/* Answers a POST with `background` and without `stream`: the object as soon as the engine has the
 * request. */
void tr_responses_accepted(struct tr_stream *s, struct tr_exchange *x);

/* Looks at questions that wait. */
bool tr_responses_turn(struct tr_fe *fe);

#endif
