/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/whole.h - an answer that is not streamed, made when it has ended.
 *
 * Path: http > tokens > subq > engine > step > ring > [detok] > event > socket
 *
 * Frontend only, event loop only.  Many choices with many tokens take tens of milliseconds: they are
 * made in pieces, a turn's share at a time, so that streams go on meanwhile.  Memory is the text's own
 * and lives from the end of the request to its answer.
 *
 * Out of memory: the stream's failure is set. */
#ifndef TR_FRONTEND_WHOLE_H
#define TR_FRONTEND_WHOLE_H

#include <stdbool.h>
#include <stdint.h>

struct tr_emit;
struct tr_sections;
struct tr_stream;
struct tr_whole;

enum { TR_WHOLE_TURN = 4096 }; /* tokens that one turn may make into text, over all streams */

/* Goes on with at most *budget tokens, which it counts down.  True: all of it is there. */
bool tr_whole_render(struct tr_stream *s, uint64_t *budget);

/* Of a choice, when all have been rendered: its sections, borrowed until the stream ends; what is said in
 * it, without reasoning and calls, as one JSON string; whether that is nothing at all. */
const struct tr_sections *tr_whole_sections(const struct tr_stream *s, uint32_t choice);
void tr_whole_text(const struct tr_stream *s, uint32_t choice, struct tr_emit *e);
bool tr_whole_is_empty(const struct tr_stream *s, uint32_t choice);

/* NULL is fine. */
void tr_whole_free(struct tr_whole *w);

#endif
