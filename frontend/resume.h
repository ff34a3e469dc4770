/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/resume.h - a reader who comes (back) to a resumable stream.
 *
 * Path: http > tokens > subq > engine > step > ring > [detok > event > frame] > socket
 *
 * Its events are made again from the ring, from the one after the last that the reader has.  The newest
 * reader wins: one who still reads, here or at another frontend, is cut so that it shows.  A stream that
 * is not ours yet (hold.h) is waited for, some seconds at most.
 *
 * Frontend only, event loop only. */
#ifndef TR_FRONTEND_RESUME_H
#define TR_FRONTEND_RESUME_H

#include "frontend/stream.h"

/* Gives the stream to the reader, whose connection has no owner yet, or answers why not: 400 for a
 * position beyond what there is, 204 for one after which nothing comes any more. */
void tr_resume_give(struct tr_stream *s, const struct tr_reader *r);

/* After what there is was gone through, while the head of the answer has not been sent: sends it if the
 * reader's position was reached.  `all_out`: what is left comes with the end.  False: there is no such
 * event, the reader has been told and the stream is held again, or gone. */
bool tr_resume_reached(struct tr_stream *s, bool all_out);

/* His position was reached: what he says that he has is noted. */
void tr_resume_begins(struct tr_stream *s);

/* The end has been gone through and nothing was written: the reader has all, or claims to have more. */
void tr_resume_nothing(struct tr_stream *s);

/* The same as soon as it is ours. */
void tr_resume_wait(struct tr_stream *s, const struct tr_reader *r);

/* Gives it to the reader who waits.  Whether it has a reader now. */
bool tr_resume_waiter(struct tr_stream *s);

/* Whether somebody waits; who has waited for too long is answered. */
bool tr_resume_is_waited_for(struct tr_stream *s, uint64_t now_ns);

/* Answers who waits, if anybody does. */
void tr_resume_refuse(struct tr_stream *s, enum tr_err e);

#endif
