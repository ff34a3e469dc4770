/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/traceparent.c - see traceparent.h. */
#include "frontend/traceparent.h"

#include "frontend/http_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

enum {
    HEX_FLAGS = 53, /* where they stand in version 00 ... */
    LENGTH = 55,    /* ... which has so many bytes */
    MEMBERS = 32,
    KEY_BYTES = 256,
    LONG_MEMBER = 128
};

/* ---- traceparent ---- */

/* Lower case only, as the standard says; -1: none. */
static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool bytes_of(const char *p, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i++) {
        int hi = digit(p[2 * i]), lo = digit(p[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return false;
        out[i] = (uint8_t)(hi << 4 | lo);
    }
    return true;
}

static bool is_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

/* A later version may have more behind a dash; what is known of it is read as of this one. */
int tr_traceparent_read(struct tr_slice v, struct tr_trace *t)
{
    uint8_t version, trace[TR_TRACE_ID], parent[TR_SPAN_ID], flags;

    if (v.len < LENGTH || !bytes_of(v.p, 1, &version) || version == 0xff)
        return -EINVAL;
    if (version == 0 ? v.len != LENGTH : v.len > LENGTH && v.p[LENGTH] != '-')
        return -EINVAL;
    if (v.p[2] != '-' || v.p[35] != '-' || v.p[52] != '-' ||
        !bytes_of(v.p + 3, TR_TRACE_ID, trace) || !bytes_of(v.p + 36, TR_SPAN_ID, parent) ||
        !bytes_of(v.p + HEX_FLAGS, 1, &flags) || is_zero(trace, TR_TRACE_ID) ||
        is_zero(parent, TR_SPAN_ID))
        return -EINVAL;
    memcpy(t->trace_id, trace, TR_TRACE_ID);
    memcpy(t->parent_id, parent, TR_SPAN_ID);
    t->flags = flags & (TR_TRACE_SAMPLED | TR_TRACE_RANDOM);
    return 0;
}

/* ---- tracestate ---- */

struct members {
    struct tr_slice m[MEMBERS];
    size_t n, bytes; /* with the commas between them */
};

static bool is_key_mark(char c)
{
    return c == '_' || c == '-' || c == '*' || c == '/' || c == '@';
}

static bool is_key(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!((p[i] >= 'a' && p[i] <= 'z') || (p[i] >= '0' && p[i] <= '9') ||
              (i && is_key_mark(p[i]))))
            return false;
    return n > 0 && n <= KEY_BYTES;
}

static bool is_value(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] < 0x20 || p[i] > 0x7e || p[i] == '=')
            return false;
    return n > 0 && n <= KEY_BYTES;
}

static bool take_member(struct members *l, struct tr_slice m)
{
    const char *eq = m.len ? memchr(m.p, '=', m.len) : NULL;
    if (!m.len) /* which a list may have */
        return true;
    if (!eq || l->n == MEMBERS || !is_key(m.p, (size_t)(eq - m.p)) ||
        !is_value(eq + 1, m.len - (size_t)(eq - m.p) - 1))
        return false;
    l->bytes += m.len + (l->n > 0);
    l->m[l->n++] = m;
    return true;
}

static bool take_list(struct members *l, struct tr_slice v)
{
    for (size_t at = 0; at <= v.len;) {
        const char *comma = at < v.len ? memchr(v.p + at, ',', v.len - at) : NULL;
        size_t end = comma ? (size_t)(comma - v.p) : v.len;
        if (!take_member(l, trim((struct tr_slice){v.p + at, end - at})))
            return false;
        at = end + 1;
    }
    return true;
}

static void leave_out(struct members *l, size_t i)
{
    l->bytes -= l->m[i].len + (l->n > 1);
    memmove(&l->m[i], &l->m[i + 1], (--l->n - i) * sizeof(l->m[0]));
}

static void shorten(struct members *l)
{
    for (size_t i = l->n; i-- > 0 && l->bytes >= TR_TRACE_STATE_BYTES;)
        if (l->m[i].len > LONG_MEMBER)
            leave_out(l, i);
    while (l->bytes >= TR_TRACE_STATE_BYTES)
        leave_out(l, l->n - 1);
}

int tr_tracestate_read(const struct tr_http *h, char out[TR_TRACE_STATE_BYTES])
{
    static const char name[] = "tracestate";
    struct members l = {.n = 0};
    size_t at = 0;

    out[0] = '\0';
    for (size_t i = 0; i < h->n_fields; i++) {
        const struct tr_http_field *f = &h->fields[i];
        if (f->name_len == sizeof(name) - 1 && memcmp(h->head + f->name, name, f->name_len) == 0 &&
            !take_list(&l, (struct tr_slice){h->head + f->value, f->value_len}))
            return -EINVAL;
    }
    shorten(&l);
    for (size_t i = 0; i < l.n; i++) {
        if (i)
            out[at++] = ',';
        memcpy(out + at, l.m[i].p, l.m[i].len);
        at += l.m[i].len;
    }
    out[at] = '\0';
    return 0;
}

/* ---- a request ---- */

/* Not all 0, which means none. */
static void draw(uint8_t *id, size_t n)
{
    do
        while (getrandom(id, n, 0) != (ssize_t)n) /* so few never come in part */
            ;
    while (is_zero(id, n));
}

void tr_trace_begin(const struct tr_http *h, struct tr_trace *t)
{
    static const char name[] = "traceparent";

    memset(t, 0, sizeof(*t));
    draw(t->span_id, TR_SPAN_ID);
    if (h && tr_http_field_count(h, name) == 1 &&
        tr_traceparent_read(tr_http_field(h, name), t) == 0) {
        (void)tr_tracestate_read(h, t->state);
        return;
    }
    draw(t->trace_id, TR_TRACE_ID);
    t->flags = TR_TRACE_SAMPLED | TR_TRACE_RANDOM;
}
