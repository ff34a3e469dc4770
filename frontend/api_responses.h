/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_responses.h - what the files of OpenAI's Responses dialect share.
 *
 * Frontend only.  api_responses.c: a request as one of chat completions, the row of the dialect;
 * api_responses_input.c: its input items; api_responses_event.c: events, bodies;
 * api_responses_object.c: the response object; api_responses_item.c: the items of its output; api_responses_id.c: what is asked about a response by its
 * id; api_responses_page.c: the list of its input items.
 *
 * A request's own words that the object repeats are *kept* with the ask (ask.h), as a JSON object of
 * those fields that were given: instructions, tools, metadata, ... and, of a background response, the
 * input, to be listed.  They travel through the ring and are parsed whenever an object is written, so
 * nothing that another process wrote gets into an answer unchecked. */
#ifndef TR_FRONTEND_API_RESPONSES_H
#define TR_FRONTEND_API_RESPONSES_H

#include "frontend/api.h"
#include "frontend/retell.h"

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

/* Name of a status in objects. */
const char *tr_response_word(enum tr_response_status s);

/* What became of a request: status and *err.  `e` is the error it ended with, TR_OK for none. */
enum tr_response_status tr_response_end(enum tr_err e, bool length);

enum { TR_RESPONSE_ID_BYTES = 64 };

/* ---- api_responses_item.c ---- */

/* Whose items they are. */
struct tr_response_who {
    const char *id; /* the response's */
    struct tr_stream_id name;
    enum tr_tool_format format;
};

struct tr_response_item {
    enum tr_part_kind kind; /* TEXT: a message, REASONING, or CALL */
    uint32_t index;         /* in the output */
    uint32_t call;          /* CALL: which of the answer's, from 0 */
    bool done;              /* CALL: it is complete */
    uint32_t name_len;      /* CALL */
    char name[TR_SPLIT_NAME];
};

/* The item's id. */
void tr_response_item_id(const char *id, const struct tr_response_item *it,
                         char out[TR_RESPONSE_ID_BYTES]);

/* An item before its text, in progress. */
void tr_response_item_empty(struct tr_emit *e, const struct tr_response_who *w,
                            const struct tr_response_item *it, const char *name, size_t name_len);

/* The one part of a message or of what was thought: up to the key of its text, whose value is the caller's;
 * and the rest of it, with the entries of a message's, or NULL. */
void tr_response_part_open(struct tr_emit *e, enum tr_part_kind kind);
void tr_response_part_close(struct tr_emit *e, enum tr_part_kind kind, struct tr_lp_text *lp);

/* A way through an answer, with its items counted: zero but for `tell` at its beginning.  Copied by
 * assignment. */
struct tr_response_walk {
    struct tr_retell tell;
    uint32_t n;                 /* items begun */
    struct tr_response_item it; /* the last of them */
};

/* Takes a part (tr_retell_take): whether an item begins with it. */
bool tr_response_note(struct tr_response_walk *k, const struct tr_part *p, const char *text);

enum tr_response_form {
    TR_RESPONSE_ALL,  /* all items, with commas between */
    TR_RESPONSE_ITEM, /* one */
    TR_RESPONSE_TEXT  /* inside of the string that is its text, or its arguments */
};

/* Writes items, or a part of one, in pieces. */
struct tr_response_writer {
    struct tr_response_walk walk;
    enum tr_response_form form;
    uint32_t item; /* not ALL: which */
    bool length;   /* the answer was cut by the token limit */
    bool open;     /* an item is */
    bool over;
    struct tr_emit *e;                 /* in tr_response_write alone */
    const struct tr_response_who *who; /* the same */
    uint64_t comma;                    /* where `e` stands between two pieces */
    unsigned depth;
};

/* `from`: a way that is not behind the first part of `item`. */
void tr_response_write_begin(struct tr_response_writer *w, const struct tr_response_walk *from,
                             enum tr_response_form form, uint32_t item, bool length);
/* Goes on, until `e` has at least `upto` bytes or *budget tokens, which it counts down, are used.  True: it
 * is complete. */
bool tr_response_write(struct tr_response_writer *w, const struct tr_response_who *who,
                       struct tr_emit *e, size_t upto, uint64_t *budget);

struct tr_sections;

/* All of them at once, in an array that is open; `lp`: entries of the answer, or NULL: they stand in its first
 * message. */
void tr_response_items_put(struct tr_emit *e, const struct tr_response_who *who,
                           const struct tr_sections *of, bool length, struct tr_lp_text *lp);

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
void tr_responses_again(struct tr_fe *fe, struct tr_exchange *x, struct tr_stream_id id,
                        const char *key);

/* Looks at questions that wait. */
bool tr_responses_turn(struct tr_fe *fe);

#endif
