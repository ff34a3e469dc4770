/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/extra.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Reading: just the types of the format, bounded, nothing allocated. */

struct in {
    const uint8_t *p, *end;
};

static bool get_be(struct in *in, unsigned n, uint64_t *v)
{
    if ((size_t)(in->end - in->p) < n)
        return false;
    *v = 0;
    while (n--)
        *v = *v << 8 | *in->p++;
    return true;
}

static bool get_uint(struct in *in, uint64_t *v)
{
    uint64_t t;
    if (!get_be(in, 1, &t))
        return false;
    if (t < 0x80) {
        *v = t;
        return true;
    }
    if (t < 0xcc || t > 0xcf)
        return false;
    return get_be(in, 1u << (t - 0xcc), v);
}

static bool get_f64(struct in *in, double *v)
{
    uint64_t t, bits;
    if (!get_be(in, 1, &t) || t != 0xcb || !get_be(in, 8, &bits))
        return false;
    memcpy(v, &bits, sizeof(bits));
    return true;
}

static bool get_array(struct in *in, uint64_t *n)
{
    uint64_t t;
    if (!get_be(in, 1, &t))
        return false;
    if ((t & 0xf0) == 0x90) {
        *n = t & 0x0f;
        return true;
    }
    return t == 0xdc ? get_be(in, 2, n) : t == 0xdd ? get_be(in, 4, n) : false;
}

static bool get_key(struct in *in, const char *key)
{
    size_t len = strlen(key);
    if ((size_t)(in->end - in->p) < len + 1 || in->p[0] != (0xa0 | len) ||
        memcmp(in->p + 1, key, len) != 0)
        return false;
    in->p += len + 1;
    return true;
}

static bool get_bias(struct in *in, uint32_t n_vocab, struct tr_extra *e)
{
    uint64_t n;
    if (!get_array(in, &n) || n % 2 || n / 2 > TR_MAX_BIAS)
        return false;
    e->n_bias = (uint32_t)(n / 2);
    for (uint32_t i = 0; i < e->n_bias; i++) {
        uint64_t id;
        double v;
        if (!get_uint(in, &id) || id >= n_vocab || !get_f64(in, &v) || !isfinite(v) ||
            fabs(v) > 100.0)
            return false;
        e->bias[i] = (struct tr_bias){.id = (uint32_t)id, .value = (float)v};
    }
    return true;
}

static bool get_stop(struct in *in, uint32_t n_vocab, struct tr_extra *e)
{
    uint64_t n;
    if (!get_array(in, &n) || n > TR_MAX_STOP_IDS)
        return false;
    e->n_stop = (uint32_t)n;
    for (uint32_t i = 0; i < e->n_stop; i++) {
        uint64_t id;
        if (!get_uint(in, &id) || id >= n_vocab)
            return false;
        e->stop_ids[i] = (uint32_t)id;
    }
    return true;
}

/* A text of at most `max` bytes, in any of the lengths msgpack has for that. */
static bool get_text(struct in *in, size_t max, struct tr_str *out)
{
    uint64_t t, n;
    if (!get_be(in, 1, &t))
        return false;
    bool is_short = (t & 0xe0) == 0xa0;
    n = t & 0x1f;
    if (!is_short && (t < 0xd9 || t > 0xda || !get_be(in, (unsigned)(t - 0xd8), &n)))
        return false;
    if (n > max || n > (size_t)(in->end - in->p))
        return false;
    *out = (struct tr_str){.p = (const char *)in->p, .len = n};
    in->p += n;
    return true;
}

static bool get_view(struct in *in, struct tr_view *v)
{
    uint64_t n, dialect, flags;
    if (!get_array(in, &n) || n != 6 || !get_uint(in, &dialect) || dialect > 255 ||
        !get_uint(in, &flags) || flags & ~(uint64_t)TR_VIEW_FLAGS || !get_uint(in, &v->created) ||
        !get_uint(in, &v->timeout_ns) || !get_array(in, &n) || n > TR_VIEW_STOPS)
        return false;
    v->dialect = (uint32_t)dialect;
    v->flags = (uint32_t)flags;
    v->n_stop = (uint32_t)n;
    for (uint32_t i = 0; i < v->n_stop; i++)
        if (!get_text(in, TR_VIEW_STOP_BYTES, &v->stop[i]) || v->stop[i].len == 0)
            return false;
    return get_text(in, TR_VIEW_KEPT_BYTES, &v->kept);
}

/* 1 to TR_GRAMMAR_BYTES bytes, in any of the lengths msgpack has for them. */
static bool get_grammar(struct in *in, struct tr_extra *e)
{
    uint64_t t, n;
    if (!get_be(in, 1, &t) || t < 0xc4 || t > 0xc6 || !get_be(in, 1u << (t - 0xc4), &n) || n == 0 ||
        n > TR_GRAMMAR_BYTES || n > (size_t)(in->end - in->p))
        return false;
    e->grammar = in->p;
    e->grammar_len = (uint32_t)n;
    in->p += n;
    return true;
}

int tr_extra_view(const uint8_t *in, size_t len, uint32_t n_vocab, struct tr_extra *e,
                  struct tr_view *v)
{
    struct in r = {.p = in, .end = in + len};
    e->n_bias = e->n_stop = e->grammar_len = 0;
    e->grammar = NULL;
    if (len == 0)
        return -ENOENT;
    uint64_t keys;
    bool ok = get_be(&r, 1, &keys) && keys >= 0x82 && keys <= 0x84 && get_key(&r, "bias") &&
              get_bias(&r, n_vocab, e) && get_key(&r, "stop") && get_stop(&r, n_vocab, e);
    bool view = ok && get_key(&r, "view");
    ok = ok && (!view || get_view(&r, v));
    bool grammar = ok && get_key(&r, "grammar");
    ok = ok && (!grammar || get_grammar(&r, e)) && keys == 0x82u + view + grammar && r.p == r.end;
    return !ok ? -EINVAL : view ? 0 : -ENOENT;
}

int tr_extra_unpack(const uint8_t *in, size_t len, uint32_t n_vocab, struct tr_extra *e)
{
    struct tr_view v;
    return tr_extra_view(in, len, n_vocab, e, &v) == -EINVAL ? -EINVAL : 0;
}
