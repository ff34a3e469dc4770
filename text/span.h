/* SPDX-License-Identifier: Apache-2.0 */
/* text/span.h - a range of bytes in a text: [start, end). */
#ifndef TR_TEXT_SPAN_H
#define TR_TEXT_SPAN_H

#include <stddef.h>

/* A list of spans is sorted, its members are not empty, do not overlap and do not touch. */
struct tr_span {
    size_t start;
    size_t end;
};

#endif
