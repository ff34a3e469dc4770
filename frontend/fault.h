/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/fault.h - why a request is refused: row of the error table, field, sentence.
 *
 * Frontend only; plain memory of the caller. */
#ifndef TR_FRONTEND_FAULT_H
#define TR_FRONTEND_FAULT_H

#include "base/err.h"

struct tr_fault {
    enum tr_err err;
    char param[200];   /* "" : none */
    char message[512]; /* "" : the table's sentence */
};

/* Fills *f; `param` may be NULL; returns -EINVAL, so that a check can be one line. */
int tr_fault_set(struct tr_fault *f, enum tr_err e, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
