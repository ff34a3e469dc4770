/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/call_id.h - the id of a tool call: a function of its stream, choice and number, so that every
 * reader of the ring says the same.
 *
 * Frontend only, pure.  Clients send it back in the next request, and templates look at it: Mistral's
 * refuse any that is not nine letters and digits, so all of their calls have such a one, whatever the
 * dialect. */
#ifndef TR_FRONTEND_CALL_ID_H
#define TR_FRONTEND_CALL_ID_H

#include "shm/stream_id.h"
#include "text/tool_format.h"

enum { TR_CALL_ID_BYTES = 32 };

/* `prefix`: of the dialect, at most 8 bytes. */
void tr_call_id(struct tr_stream_id stream, enum tr_tool_format f, uint32_t choice, uint32_t call,
                const char *prefix, char out[TR_CALL_ID_BYTES]);

#endif
