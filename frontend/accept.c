/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/accept.c - see accept.h. */
#include "frontend/accept.h"

#include "frontend/http_priv.h"

enum { MOST = 1000 };

struct range {
    struct tr_slice type, subtype, version;
    bool has_version;
    unsigned q;
};

/* Takes what stands before the next `end` that is not in a quoted string; *rest goes on behind it. */
static struct tr_slice take(struct tr_slice *rest, char end)
{
    struct tr_slice out = {rest->p, 0};
    bool quoted = false;

    for (; out.len < rest->len && (quoted || rest->p[out.len] != end); out.len++) {
        if (rest->p[out.len] == '"')
            quoted = !quoted;
        else if (quoted && rest->p[out.len] == '\\' && out.len + 1 < rest->len)
            out.len++;
    }
    size_t used = out.len < rest->len ? out.len + 1 : out.len;
    rest->p += used;
    rest->len -= used;
    return trim(out);
}

/* qvalue = ( "0" [ "." 0*3DIGIT ] ) / ( "1" [ "." 0*3("0") ] ); anything else is 0. */
static unsigned qvalue(struct tr_slice s)
{
    unsigned q = 0, scale = MOST;

    if (!s.len || s.len > 5 || (s.p[0] != '0' && s.p[0] != '1') || (s.len > 1 && s.p[1] != '.'))
        return 0;
    q = s.p[0] == '1' ? MOST : 0;
    for (size_t i = 2; i < s.len; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return 0;
        scale /= 10;
        q += (unsigned)(s.p[i] - '0') * scale;
    }
    return q <= MOST ? q : 0;
}

static void read_parameter(struct tr_slice p, struct range *r)
{
    struct tr_slice name = take(&p, '='), value = trim(p);

    if (value.len >= 2 && value.p[0] == '"' && value.p[value.len - 1] == '"') {
        value.p++;
        value.len -= 2;
    }
    if (same(name, "q"))
        r->q = qvalue(value);
    else if (same(name, "version")) {
        r->has_version = true;
        r->version = value;
    }
}

static struct range read_range(struct tr_slice element)
{
    struct range r = {.q = MOST};
    struct tr_slice media = take(&element, ';');

    r.type = take(&media, '/');
    r.subtype = trim(media);
    while (element.len)
        read_parameter(take(&element, ';'), &r);
    return r;
}

/* 0: another type; else the larger, the closer. */
static unsigned closeness(const struct range *r, const struct tr_media *m, bool named)
{
    if (same(r->type, m->type) && same(r->subtype, m->subtype)) {
        if (!r->has_version)
            return 3;
        return same(r->version, m->version) ? 4 : 0;
    }
    if (named || !same(r->subtype, "*"))
        return 0;
    if (same(r->type, m->type))
        return 2;
    return same(r->type, "*") ? 1 : 0;
}

unsigned tr_accept_q(struct tr_slice field, const struct tr_media *m, bool named)
{
    unsigned best = 0, q = 0;

    if (!field.p)
        return named ? 0 : MOST;
    while (field.len) {
        struct range r = read_range(take(&field, ','));
        unsigned c = closeness(&r, m, named);
        if (c > best || (c && c == best && r.q > q)) {
            best = c;
            q = r.q;
        }
    }
    return q;
}
