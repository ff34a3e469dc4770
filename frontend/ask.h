/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/ask.h - a request as a frontend understands it: checked fields, then token ids.
 *
 * Path: http > [ask] > tokens > subq > engine > step > ring > detok > event > socket
 *
 * Life: tr_ask_new, tr_ask_parse (JSON) > tr_params_read (fields, params.h) > tr_ask_encode
 * (template, tokens; on any thread) > tr_admit (slots, admit.h).  It owns the body, so it does not
 * depend on the connection that brought it.
 *
 *   I1  after tr_params_read every number is within the ranges of shm/request.h
 *   I2  after tr_ask_encode each prompt has 1 .. n_ctx ids below n_vocab, or the ask is refused */
#ifndef TR_FRONTEND_ASK_H
#define TR_FRONTEND_ASK_H

#include "frontend/event.h"
#include "frontend/fault.h"
#include "frontend/fe.h"
#include "frontend/grammar.h"
#include "frontend/tools.h"
#include "base/json.h"
#include "shm/extra.h"
#include "text/split.h"
#include "text/stop.h"

struct tr_prompt {
    int32_t *ids;
    size_t n;
};

struct tr_ask {
    const struct tr_fe *fe;
    char *text; /* the body; freed by tr_ask_encode with doc */
    size_t text_len;
    struct tr_json_doc *doc;
    const struct tr_json *body;

    /* Set by the handler from the request. */
    char request_id[TR_ID_BYTES];
    char key[TR_KEY_BYTES];
    struct tr_idem idem; /* all 0: without Idempotency-Key (idempotency.h) */
    const struct tr_key
        *who; /* its key, for its limits; NULL: it has none, or the file has it no more */
    uint64_t arrival_ns;
    struct tr_trace trace;
    struct tr_stages stage; /* how far it has come, and when */
    uint64_t created;       /* wall clock of the arrival, seconds */
    bool resume_header;     /* X-Tokenring-Resume: 1 */
    bool plain;             /* the answer is plain text (plain.h) */
    bool counting;          /* only the number of its tokens is wanted, however many */
    uint64_t timeout_ns;    /* the shortest of field, header and --timeout-s; 0 none */

    char *kept; /* of a translation: what the dialect keeps of the request; or NULL */
    size_t kept_len;
    bool detached; /* of a translation: nobody reads what comes of it */

    /* Set by tr_params_read. */
    enum tr_api api;
    bool hold_asked; /* the client asked for TR_REQ_RESUMABLE, it is no default */
    bool chat;       /* messages, not prompt */
    bool stream;
    bool include_usage;
    bool echo;
    bool logprobs;
    bool token_ids; /* tokens are called by their ids in them */
    bool has_seed;
    bool skip_special;
    bool include_stop;
    bool generation_prompt;
    bool continue_final;
    struct tr_tools call; /* what may be called; in the document */
    /* How the answer is taken apart, if it is (tr_ask_take_apart). */
    enum tr_tool_format tool_format;
    enum tr_reasoning_format reasoning_format;
    int32_t marker[TR_MARKER_IDS];
    uint32_t n_markers;
    bool reasoning_hidden; /* nothing of it is shown */
    uint32_t n;
    int64_t max_tokens; /* -1: as many as fit */
    /* In the document, NULL if absent; given to the template: messages.h. */
    const struct tr_json *messages, *prompt, *tools, *template_args, *documents, *effort;
    struct tr_wish wish;      /* what the answer must obey */
    struct tr_stopset *stops; /* or NULL */
    struct tr_params params;  /* max_tokens, seed, choice and some flags come at admission */
    struct tr_extra *extra;   /* after tr_ask_admitted NULL, unless there are stop ids */

    /* Set by tr_ask_encode. */
    uint8_t *grammar;    /* the program that extra->grammar is, or NULL; until tr_ask_admitted */
    bool reasoning_open; /* the prompt ends inside reasoning */
    uint32_t n_prompts;
    struct tr_prompt *prompts;
};

/* An ask that owns the body (from malloc, NULL if empty), not yet parsed.  NULL: out of memory, the
 * body is freed. */
struct tr_ask *tr_ask_new(const struct tr_fe *fe, char *body, size_t len);

/* Parses it, to an object.  Any thread.  0, or -EINVAL with *f; it may then only be closed. */
int tr_ask_parse(struct tr_ask *a, struct tr_fault *f);

/* The body in the words of another dialect becomes one of those that tr_params_read knows.  Any
 * thread.  0, or -EINVAL with *f; it may then only be closed. */
int tr_ask_translate(struct tr_ask *a, const struct tr_dialect *d, struct tr_fault *f);

void tr_ask_close(struct tr_ask *a); /* NULL is fine */

/* Whether the answer is taken apart (text/split.h). */
static inline bool tr_ask_splits(const struct tr_ask *a)
{
    return a->tool_format || a->reasoning_format;
}

/* Says how; the markers that are tokens are looked up. */
void tr_ask_take_apart(struct tr_ask *a, enum tr_tool_format tools,
                       enum tr_reasoning_format reasoning);

/* The states with which every answer to it is read, from its first token. */
void tr_ask_scan(const struct tr_ask *a, struct tr_scan *scan);
void tr_ask_split(const struct tr_ask *a, struct tr_split *split);

/* ---- between frontends (ask_view.c) ---- */

/* Writes the variable part of the request (shm/extra.h); with what another frontend needs to go on if
 * it is resumable or has an Idempotency-Key.  Bytes, 0 if there is nothing to say, or -ENOSPC. */
int tr_ask_pack(const struct tr_ask *a, uint8_t *out, size_t cap);

/* The ask of a resumable request that is in the ring of this slot and generation, whoever admitted
 * it, as it is after tr_ask_admitted; the caller owns it.  All of it is checked: another frontend
 * wrote what the engine copied.  NULL: not this generation, nothing admitted, not resumable, garbled,
 * or out of memory. */
struct tr_ask *tr_ask_from_ring(const struct tr_fe *fe, uint32_t slot, uint32_t gen);

/* Renders the template (chat) and encodes.  Any thread.  0 or -EINVAL with *f. */
int tr_ask_encode(struct tr_ask *a, struct tr_fault *f);

/* All is in the request area by now: gives the memory of prompts and of what only the engine needs
 * back. */
void tr_ask_admitted(struct tr_ask *a);

#endif
