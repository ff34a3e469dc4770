/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/decimal.c - see decimal.h.  The automaton reads digit by digit and remembers how what it has
 * read compares with the same digits of either bound, how many there were, and the remainder. */
#include "grammar/decimal.h"

#include <errno.h>
#include <string.h>

enum {
    DIGITS_WHOLE = 18,
    DIGITS_REAL = 15, /* what a double keeps of any decimal */
    STEP_STATES = 7000
};

/* ---- reading ---- */

/* Digit number k of the digits text[0, len), which may have a point among them. */
static int digit_at(const char *text, size_t n_digits, size_t point, int64_t k)
{
    if (k < 0 || (uint64_t)k >= n_digits)
        return 0;
    return text[(size_t)k + ((size_t)k >= point)] - '0';
}

static int64_t read_exponent(const char *text, size_t len)
{
    int64_t v = 0;
    size_t i = 0;
    bool neg = len && text[0] == '-';
    if (len && (text[0] == '-' || text[0] == '+'))
        i++;
    for (; i < len; i++)
        v = v > 1000000 ? v : v * 10 + (text[i] - '0');
    return neg ? -v : v;
}

int tr_dec_read(const char *text, size_t len, struct tr_dec *d)
{
    struct tr_dec v = {.neg = len && text[0] == '-'};
    text += v.neg;
    len -= v.neg;
    size_t end = 0; /* of the digits and the point */
    while (end < len && text[end] != 'e' && text[end] != 'E')
        end++;
    int64_t exponent = end < len ? read_exponent(text + end + 1, len - end - 1) : 0;
    const char *dot = memchr(text, '.', end);
    size_t point = dot ? (size_t)(dot - text) : end;
    size_t n = end - (dot != NULL);
    /* Digit k stands for 10^(top - k). */
    int64_t top = (int64_t)point - 1 + exponent;
    size_t first = 0;
    while (first < n && digit_at(text, n, point, (int64_t)first) == 0)
        first++;
    size_t last = n;
    while (last > first && digit_at(text, n, point, (int64_t)last - 1) == 0)
        last--;
    if (first == last) {
        *d = (struct tr_dec){.neg = false};
        return 0;
    }
    int64_t high = top - (int64_t)first;
    int64_t low = top - (int64_t)last + 1;
    if (low < -TR_DEC_FRAC)
        return -ERANGE;
    if (high >= TR_DEC_INT) {
        v.huge = true;
        *d = v;
        return 0;
    }
    for (int64_t p = high; p >= 0; p--)
        v.i[v.n_int++] = (uint8_t)digit_at(text, n, point, top - p);
    for (int64_t p = -1; p >= low; p--)
        v.f[v.n_frac++] = (uint8_t)digit_at(text, n, point, top - p);
    *d = v;
    return 0;
}

static int cmp_size(const struct tr_dec *a, const struct tr_dec *b)
{
    if (a->huge || b->huge)
        return a->huge - b->huge;
    if (a->n_int != b->n_int)
        return a->n_int < b->n_int ? -1 : 1;
    int c = memcmp(a->i, b->i, a->n_int);
    return c ? c : memcmp(a->f, b->f, TR_DEC_FRAC);
}

int tr_dec_cmp(const struct tr_dec *a, const struct tr_dec *b)
{
    if (a->neg != b->neg)
        return a->neg ? -1 : 1;
    return a->neg ? cmp_size(b, a) : cmp_size(a, b);
}

/* ---- the automaton ---- */

enum phase { START, SIGN, ZERO, INT, POINT, FRAC };

/* What a state remembers.  Compared as bytes: no padding. */
struct at {
    uint8_t phase;
    uint8_t neg;
    uint8_t n_int, n_frac;
    int8_t lo, hi; /* how the digits compare with those of the bound */
    uint16_t zero;
    uint32_t rem;
};
_Static_assert(sizeof(struct at) == 12, "a key without padding");

/* The bounds of the absolute value on one side of zero. */
struct side {
    bool some; /* there is a number on this side */
    bool has_lo, has_hi, lo_open, hi_open;
    struct tr_dec lo, hi;
};

struct shape {
    const struct tr_drange *r;
    struct side side[2]; /* positive with zero, negative without */
    unsigned digits, fraction;
};

static struct side positive(const struct tr_drange *r)
{
    struct side s = {.some = true};
    const struct tr_dec zero = {.neg = false};
    s.has_lo = r->has_lo && tr_dec_cmp(&r->lo, &zero) >= 0;
    s.lo = r->lo;
    s.lo_open = r->lo_open;
    s.has_hi = r->has_hi;
    s.hi = r->hi;
    s.hi_open = r->hi_open;
    if (r->has_hi && r->hi.neg)
        s.some = false;
    return s;
}

static struct side negative(const struct tr_drange *r)
{
    struct side s = {.some = true, .has_lo = true, .lo_open = true};
    if (r->has_hi && r->hi.neg) {
        s.lo = r->hi;
        s.lo_open = r->hi_open;
    }
    s.has_hi = r->has_lo;
    s.hi = r->lo;
    s.hi_open = r->lo_open;
    if (r->has_lo && !r->lo.neg)
        s.some = false;
    s.lo.neg = s.hi.neg = false;
    return s;
}

static int sign(int v)
{
    return (v > 0) - (v < 0);
}

/* Comparison with bound b after one more digit of the integer part, the n-th. */
static int8_t cmp_int(int8_t was, const struct tr_dec *b, unsigned n, int digit)
{
    if (b->huge)
        return -1;
    if (n > b->n_int)
        return 1;
    return was ? was : (int8_t)sign(digit - b->i[n - 1]);
}

/* ... when the integer part of n digits has ended. */
static int8_t cmp_int_end(int8_t was, const struct tr_dec *b, unsigned n)
{
    return n < b->n_int ? -1 : was;
}

static int8_t cmp_frac(int8_t was, const struct tr_dec *b, unsigned n, int digit)
{
    return was ? was : (int8_t)sign(digit - (n <= b->n_frac ? b->f[n - 1] : 0));
}

/* The comparison of the whole number that ends in state t. */
static int cmp_end(int8_t was, const struct tr_dec *b, const struct at *t)
{
    if (b->huge)
        return -1;
    if (t->phase != FRAC)
        was = cmp_int_end(was, b, t->n_int);
    return was ? was : t->n_frac < b->n_frac ? -1 : 0;
}

static bool is_end(const struct shape *s, const struct at *t)
{
    const struct side *b = &s->side[t->neg];
    if (t->phase != ZERO && t->phase != INT && t->phase != FRAC)
        return false;
    int lo = b->has_lo ? cmp_end(t->lo, &b->lo, t) : 1;
    int hi = b->has_hi ? cmp_end(t->hi, &b->hi, t) : -1;
    if (lo < 0 || (lo == 0 && b->lo_open) || hi > 0 || (hi == 0 && b->hi_open))
        return false;
    uint64_t rem = t->rem;
    for (unsigned i = t->n_frac; s->r->step && i < s->r->step_scale; i++)
        rem = rem * 10 % s->r->step;
    return rem == 0;
}

/* The state after the digit; false if it may not stand here. */
static bool take_digit(const struct shape *s, struct at *t, int digit)
{
    const struct side *b = &s->side[t->neg];
    if (t->phase == ZERO)
        return false;
    if (t->phase == START || t->phase == SIGN) {
        t->phase = digit ? INT : ZERO;
        if (!b->some)
            return false;
        if (!digit)
            return true;
        /* Without bounds the sign is of no importance any more. */
        if (!s->r->has_lo && !s->r->has_hi)
            t->neg = 0;
        b = &s->side[t->neg];
    }
    if (t->phase == INT) {
        if (++t->n_int > s->digits)
            return false;
        t->lo = b->has_lo ? cmp_int(t->lo, &b->lo, t->n_int, digit) : 0;
        t->hi = b->has_hi ? cmp_int(t->hi, &b->hi, t->n_int, digit) : 0;
    } else {
        t->phase = FRAC;
        if (++t->n_frac > s->fraction)
            return false;
        t->lo = b->has_lo ? cmp_frac(t->lo, &b->lo, t->n_frac, digit) : 0;
        t->hi = b->has_hi ? cmp_frac(t->hi, &b->hi, t->n_frac, digit) : 0;
    }
    if (s->r->step)
        t->rem = (uint32_t)(((uint64_t)t->rem * 10 + (uint64_t)digit) % s->r->step);
    return true;
}

static bool take_point(const struct shape *s, struct at *t)
{
    const struct side *b = &s->side[t->neg];
    if ((t->phase != INT && t->phase != ZERO) || !s->fraction)
        return false;
    t->phase = POINT;
    t->lo = b->has_lo ? cmp_int_end(t->lo, &b->lo, t->n_int) : 0;
    t->hi = b->has_hi ? cmp_int_end(t->hi, &b->hi, t->n_int) : 0;
    t->n_int = 0; /* no longer told apart */
    return true;
}

static void expand(struct tr_fa_maker *m, uint32_t state, const struct shape *s, const struct at *t)
{
    struct at to = *t;
    if (is_end(s, t))
        tr_fa_final(m, state);
    if (t->phase == START && s->side[1].some) {
        to.phase = SIGN;
        to.neg = 1;
        tr_fa_edge(m, state, '-', '-', tr_fa_state(m, &to, sizeof to));
    }
    to = *t;
    if (take_point(s, &to))
        tr_fa_edge(m, state, '.', '.', tr_fa_state(m, &to, sizeof to));
    for (int d = 0; d <= 9; d++) {
        to = *t;
        if (take_digit(s, &to, d))
            tr_fa_edge(m, state, (uint32_t)('0' + d), (uint32_t)('0' + d),
                       tr_fa_state(m, &to, sizeof to));
    }
}

/* How many digits there may be. */
static void measure(struct shape *s)
{
    const struct tr_drange *r = s->r;
    s->digits = r->whole ? DIGITS_WHOLE : DIGITS_REAL;
    if (r->step && s->digits * (uint64_t)r->step > STEP_STATES)
        s->digits = STEP_STATES / r->step ? STEP_STATES / r->step : 1;
    unsigned longest = 1;
    if (r->has_lo && r->lo.n_int > longest)
        longest = r->lo.n_int;
    if (r->has_hi && r->hi.n_int > longest)
        longest = r->hi.n_int;
    s->fraction = longest < DIGITS_REAL ? DIGITS_REAL - longest : 0;
    if (r->step && s->fraction > r->step_scale)
        s->fraction = r->step_scale;
    if (r->whole)
        s->fraction = 0;
}

const struct tr_fa *tr_dec_fa(struct tr_gbudget *w, const struct tr_drange *r)
{
    struct shape s = {.r = r, .side = {positive(r), negative(r)}};
    struct tr_fa_maker *m = tr_fa_new(w);
    if (!m)
        return NULL;
    measure(&s);
    struct at t = {.phase = START};
    (void)tr_fa_state(m, &t, sizeof t);
    for (uint32_t i = 0; i < tr_fa_count(m); i++) {
        size_t len;
        memcpy(&t, tr_fa_key(m, i, &len), sizeof t);
        expand(m, i, &s, &t);
    }
    return tr_fa_finish(m);
}
