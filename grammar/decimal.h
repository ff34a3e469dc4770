/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/decimal.h - numbers of JSON as the decimal digits they are written in, so that nothing is
 * rounded, and the automata of the numbers between two of them.  Pure. */
#ifndef TR_GRAMMAR_DECIMAL_H
#define TR_GRAMMAR_DECIMAL_H

#include "grammar/build.h"
#include "grammar/fa.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TR_DEC_INT = 19, TR_DEC_FRAC = 15 };

/* Without zeros at either end: 0 has no digits at all. */
struct tr_dec {
    bool neg;  /* never for 0 */
    bool huge; /* 10^TR_DEC_INT or more; then no digits */
    uint8_t n_int, n_frac;
    uint8_t i[TR_DEC_INT], f[TR_DEC_FRAC]; /* values 0..9 */
};

/* The number text[0, len) of JSON.  -ERANGE: more than TR_DEC_FRAC digits behind the point. */
int tr_dec_read(const char *text, size_t len, struct tr_dec *d);

/* < 0, 0, > 0.  Huge ones of one sign are equal. */
int tr_dec_cmp(const struct tr_dec *a, const struct tr_dec *b);

static inline bool tr_dec_is_zero(const struct tr_dec *d)
{
    return !d->huge && !d->n_int && !d->n_frac;
}

struct tr_drange {
    bool has_lo, has_hi;
    bool lo_open, hi_open; /* the bound itself is outside */
    struct tr_dec lo, hi;
    bool whole;         /* integers only, written without a fraction */
    uint32_t step;      /* a multiple of step / 10^step_scale; 0: any */
    uint8_t step_scale; /* <= TR_DEC_FRAC */
};

/* The automaton of the ways to write the numbers of r: without exponent, at most 18 digits (15 when
 * there may be a fraction; fewer with a large step) and so many behind the point that a double tells
 * them from the bounds.  -0 is not among them.  NULL: a bound of w. */
const struct tr_fa *tr_dec_fa(struct tr_gbudget *w, const struct tr_drange *r);

#endif
