/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/fields.h - the fields of the bodies of one dialect that is written as another one.
 *
 * Chat completions, completions and native streams have theirs in params.def.  Any other dialect has a
 * table in its own file, api_NAME.c, of these rows; the table of docs/api.md between
 * "table: fields_NAME" marks is made from them (tests/docs/tables BINARY --write), and
 * tests/system/39_fields.py holds them against the program (its BODIES has a smallest body for NAME):
 *
 *   static const struct tr_field_row fields[] = {
 *       TR_FIELD("max_output_tokens", "max_tokens", "0 …", "rest of the context", "how many at most"),
 *       TR_FIELD_NEVER("previous_response_id", "", "Answers are not kept."),
 *       TR_FIELD_IGNORED("truncation", "prompts that are too long are refused"),
 *   };
 *
 * The texts are Markdown, may be several literals, and hold no other macro; those of NEVER are sentences
 * that the client gets.
 *
 * Frontend only, pure. */
#ifndef TR_FRONTEND_FIELDS_H
#define TR_FRONTEND_FIELDS_H

#include "frontend/fault.h"
#include "base/json.h"

#include <stddef.h>

enum tr_field_kind { TR_FIELD_OBEYED, TR_FIELD_REFUSED, TR_FIELD_TAKEN };

struct tr_field_row {
    const char *theirs;
    const char *ours; /* the field of chat completions or completions that it becomes; "": none */
    enum tr_field_kind kind;
    const char *what;  /* REFUSED: subject of "... is not supported.", "": the field's name */
    const char *words; /* REFUSED: the sentence that follows it */
};

/* Obeyed: range, default and effect are the documentation's. */
#define TR_FIELD(theirs, ours, range, fallback, effect)                                            \
    {                                                                                              \
        theirs, ours, TR_FIELD_OBEYED, "", effect                                                  \
    }
/* 400 unsupported_parameter, unless it is empty: null, false, "", [], {}. */
#define TR_FIELD_NEVER(theirs, what, why)                                                          \
    {                                                                                              \
        theirs, "", TR_FIELD_REFUSED, what, why                                                    \
    }
/* Taken, whatever it is, without effect. */
#define TR_FIELD_IGNORED(theirs, why)                                                              \
    {                                                                                              \
        theirs, "", TR_FIELD_TAKEN, "", why                                                        \
    }

/* Whether a value asks for nothing. */
bool tr_field_empty(const struct tr_json *v);

/* Refuses what the rows refuse: 0, or -EINVAL with *f. */
int tr_fields_refuse(const struct tr_field_row *rows, size_t n, const struct tr_json *body,
                     struct tr_fault *f);

/* Writes the name that a param of ours has in the dialect: the first row whose `ours` it is, or begins
 * with ("messages[2].content"), has that part replaced.  As it is if there is none. */
void tr_fields_theirs(const struct tr_field_row *rows, size_t n, const char *ours, char *out,
                      size_t size);

#endif
