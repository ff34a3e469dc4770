/* SPDX-License-Identifier: Apache-2.0 */
/* text/split.h - the text of an answer taken apart: what is said, what is thought, what is called.
 *
 * Path: http > tokens > subq > engine > step > ring > [detok] > event > frame > socket
 *
 * Behind text/scan.h, for requests with tools or a model that reasons.  Markers (text/tool_format.h) are
 * taken away; what begins like one is held until it is decided, so no part of a marker is ever shown and
 * nothing that was given out is taken back.  The parts of a text do not depend on how it was cut.
 *
 *   call      CALL (its name), ARGS one or more (joined: a JSON object, as the model wrote it), CALL_DONE
 *   cut       an answer that ends inside a call has no CALL_DONE for it; one that ends between an opening
 *             marker and the name shows nothing of it
 *   not one   what stands behind an opening and is no call is text, its opening included
 *   blanks    those around reasoning and between calls are the format's; behind a call they are kept if
 *             text follows
 *
 * An object is a call if its members before "arguments" (or "parameters") are strings, the name among
 * them; members behind are left out.  Without arguments they are {}, behind a marker; an object without one
 * is text then, as it may be data.
 *
 * Most formats of reasoning have words that a model may also write to speak of them, or in a string of
 * JSON: in the midst of text these are text (tr_reasoning_syntax).
 *
 * The state is plain: copy it by assignment.  No allocation. */
#ifndef TR_TEXT_SPLIT_H
#define TR_TEXT_SPLIT_H

#include "text/scan.h"
#include "text/tool_format.h"

enum {
    TR_SPLIT_HELD = 512, /* bytes from an opening to the arguments; more, and it is no call */
    TR_SPLIT_BLANKS = 16,
    TR_SPLIT_NAME = 128 /* bytes of a function's name */
};

enum tr_part_kind {
    TR_PART_TEXT,
    TR_PART_REASONING,
    TR_PART_CALL,     /* text: the name */
    TR_PART_ARGS,     /* text: a piece of the arguments */
    TR_PART_CALL_DONE /* no text */
};

struct tr_part {
    enum tr_part_kind kind;
    uint32_t call; /* of CALL, ARGS, CALL_DONE: which of the answer's, from 0 */
    uint32_t at;   /* its text in tr_parts.text */
    uint32_t len;
};

#define TR_SPLIT_TEXT_MAX (TR_SCAN_TEXT_MAX + TR_SPLIT_HELD + TR_SPLIT_BLANKS)
#define TR_PARTS_MAX (TR_SPLIT_TEXT_MAX / 4 + 16)

/* What one push gives; TEXT, REASONING and ARGS are never empty, and two of a kind never follow each
 * other. */
struct tr_parts {
    uint32_t n;
    uint32_t len; /* bytes of text */
    struct tr_part part[TR_PARTS_MAX];
    char text[TR_SPLIT_TEXT_MAX];
};

struct tr_split {
    const struct tr_tool_syntax *tools;
    const struct tr_reasoning_syntax *reasoning;
    uint8_t mode, head, edge; /* see split.c */
    bool by_marker;           /* the header began with an opening marker, not with a brace */
    bool list, inside;        /* of calls; where more of them may follow without an opening */
    bool objects;             /* the call is an object */
    bool in_string, escaped;
    uint32_t depth;
    uint32_t calls; /* complete ones, and the one that is under way is number `calls` */
    uint16_t n_held, n_blanks;
    uint16_t word; /* in held: where the key, string or name that is read begins */
    uint16_t name, n_name;
    bool is_name, is_args; /* the key of the member that is read */
    char held[TR_SPLIT_HELD];
    char blanks[TR_SPLIT_BLANKS];
};

/* open: the prompt ends inside reasoning (tr_reasoning_is_open). */
void tr_split_init(struct tr_split *s, enum tr_tool_format tools,
                   enum tr_reasoning_format reasoning, bool open);

/* Takes whole characters, at most TR_SCAN_TEXT_MAX bytes; *out is what is certain now. */
void tr_split_push(struct tr_split *s, const char *text, size_t len, struct tr_parts *out);

/* No more text comes. */
void tr_split_flush(struct tr_split *s, struct tr_parts *out);

/* Whether something is held. */
static inline bool tr_split_holds(const struct tr_split *s)
{
    return s->n_held || s->n_blanks;
}

#endif
