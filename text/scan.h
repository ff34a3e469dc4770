/* SPDX-License-Identifier: Apache-2.0 */
/* text/scan.h - token ids to the text a client may see: detokenisation and stop strings together.
 *
 * Path: http > tokens > subq > engine > step > ring > [detok] > event > frame > socket
 *
 * What a frontend runs over every token of a stream on arrival, and a second time, from a copy of
 * the state, when it frames.  Text that was given out is never taken back: unfinished characters
 * and beginnings of stop strings are held until they are decided.  Joined, what push and flush give
 * is the text of the whole answer.
 *
 * The state is plain: copy it by assignment.  The same ids from the same state give the same text.
 * Vocabulary and stop set are borrowed and outlive all copies.  No allocation. */
#ifndef TR_TEXT_SCAN_H
#define TR_TEXT_SCAN_H

#include "text/detok.h"
#include "text/stop.h"

struct tr_scan {
    struct tr_detok detok;
    const struct tr_stopset *stops; /* or NULL */
    tr_stop_state state;
    bool include_stop; /* the stop string that matched is part of the text */
    int16_t stop;      /* index of the stop string that matched, -1: none yet */
    /* Control tokens that give their name although the others give nothing: markers that are looked for
     * in the text (text/split.h).  Borrowed; set before the first push. */
    const int32_t *shown;
    uint32_t n_shown;
};

/* Most bytes one call can give: the text of the token and what was held of a stop string. */
#define TR_SCAN_TEXT_MAX (TR_DETOK_TEXT_MAX + TR_STOP_LEN_MAX)

enum { TR_SCAN_GO = 0, TR_SCAN_STOPPED = 1 };

/* stops may be NULL.  include_stop starts as false; set the field before the first push. */
void tr_scan_init(struct tr_scan *s, const struct tr_vocab *v, const struct tr_stopset *stops,
                  bool skip_special);

/* Takes one id; writes the text that may be shown now (valid UTF-8, whole characters) to `out`, room for
 * TR_SCAN_TEXT_MAX, and its length to *len.
 *
 * TR_SCAN_GO; TR_SCAN_STOPPED once a stop string has matched (s->stop tells which): the text of
 * the answer is complete, later calls give nothing; -EINVAL for an id outside the vocabulary: state
 * and *len are unchanged. */
int tr_scan_push(struct tr_scan *s, int32_t id, char *out, size_t *len);

/* No more ids come: gives what is held (an unfinished character as U+FFFD).  Same results as
 * tr_scan_push: that U+FFFD may complete a stop string. */
int tr_scan_flush(struct tr_scan *s, char *out, size_t *len);

/* True while any byte is held back.  False after a stop. */
bool tr_scan_held(const struct tr_scan *s);

#endif
