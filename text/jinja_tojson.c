/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_tojson.c - the tojson filter: json.dumps as chat templates get it, that is without
 * HTML escaping and with ensure_ascii off by default. */
#include "text/jinja_priv.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dump {
    struct tr_jctx *c;
    struct tr_jbuf b;
    struct tr_jstr item_sep;
    struct tr_jstr key_sep;
    struct tr_jstr indent;
    bool pretty;
    bool ascii;
    bool sorted;
    int64_t level;
};

static void dump_value(struct dump *d, const struct tr_jv *v);

static void dump_u(struct dump *d, unsigned v, bool user)
{
    char text[8];
    (void)snprintf(text, sizeof text, "\\u%04x", v & 0xFFFF);
    tr_jbuf_add(&d->b, text, 6, user);
}

static void dump_char(struct dump *d, struct tr_jstr s, size_t i, size_t n, int32_t ch)
{
    static const char from[] = "\"\\\n\r\t\f\b";
    static const char to[] = "\"\\nrtfb";
    bool user = tr_jstr_user(s, i, i + n);
    const char *hit = ch > 0 && ch < 0x80 ? strchr(from, ch) : NULL;
    if (hit) {
        char text[2] = {'\\', to[hit - from]};
        tr_jbuf_add(&d->b, text, 2, user);
    } else if ((ch >= 0 && ch < 0x20) || (d->ascii && ch >= 0x7F && ch <= 0xFFFF)) {
        dump_u(d, (unsigned)ch, user);
    } else if (d->ascii && ch > 0xFFFF) {
        dump_u(d, 0xD7C0 + ((unsigned)ch >> 10), user);
        dump_u(d, 0xDC00 + ((unsigned)ch & 0x3FF), user);
    } else if (d->ascii && ch < 0) {
        tr_jfail(d->c, TR_JERR_UNSUPPORTED, "tojson with ensure_ascii of a text that is not UTF-8");
        d->b.bad = true;
    } else {
        tr_jbuf_add(&d->b, s.p + i, n, user);
    }
}

static void dump_str(struct dump *d, struct tr_jstr s)
{
    size_t n;
    tr_jbuf_puts(&d->b, "\"");
    for (size_t i = 0; i < s.len && !d->b.bad; i += n) {
        int32_t ch = tr_jchar(s, i, &n);
        dump_char(d, s, i, n, ch);
    }
    tr_jbuf_puts(&d->b, "\"");
}

static void newline(struct dump *d)
{
    if (!d->pretty)
        return;
    tr_jbuf_puts(&d->b, "\n");
    tr_jbuf_fill(&d->b, d->indent, d->level);
}

static void dump_list(struct dump *d, const struct tr_jlist *l)
{
    if (!l->n) {
        tr_jbuf_puts(&d->b, "[]");
        return;
    }
    tr_jbuf_puts(&d->b, "[");
    d->level++;
    for (size_t i = 0; i < l->n && !d->b.bad; i++) {
        if (i)
            tr_jbuf_add_str(&d->b, d->item_sep);
        newline(d);
        dump_value(d, l->v[i]);
    }
    d->level--;
    newline(d);
    tr_jbuf_puts(&d->b, "]");
}

static void dump_key(struct dump *d, const struct tr_jv *k)
{
    switch (k->type) {
    case TR_JV_STR:
        dump_str(d, k->s);
        return;
    case TR_JV_NONE:
    case TR_JV_BOOL:
    case TR_JV_INT:
    case TR_JV_BIG:
    case TR_JV_FLOAT:
        tr_jbuf_puts(&d->b, "\"");
        dump_value(d, k);
        tr_jbuf_puts(&d->b, "\"");
        return;
    default:
        tr_jfail(d->c, TR_JERR_RUNTIME, "keys must be str, int, float, bool or None, not %s",
                 tr_jtype_name(k));
        d->b.bad = true;
    }
}

/* The order in which entries are written: indices into the dict, or NULL on an error. */
static size_t *entry_order(struct dump *d, const struct tr_jdict *dict)
{
    size_t *order = tr_jalloc_n(d->c, dict->n, sizeof *order);
    struct tr_jlist keys = {0};
    if (!order)
        return NULL;
    for (size_t i = 0; i < dict->n; i++) {
        order[i] = i;
        if (!tr_jlist_add(d->c, &keys, dict->k[i]))
            return NULL;
    }
    if (d->sorted && !tr_jsort(d->c, order, keys.v, dict->n, false))
        return NULL;
    return order;
}

static void dump_dict(struct dump *d, const struct tr_jdict *dict)
{
    if (!dict->n) {
        tr_jbuf_puts(&d->b, "{}");
        return;
    }
    const size_t *order = entry_order(d, dict);
    tr_jbuf_puts(&d->b, "{");
    d->level++;
    for (size_t i = 0; order && i < dict->n && !d->b.bad; i++) {
        if (i)
            tr_jbuf_add_str(&d->b, d->item_sep);
        newline(d);
        dump_key(d, dict->k[order[i]]);
        tr_jbuf_add_str(&d->b, d->key_sep);
        dump_value(d, dict->v[order[i]]);
    }
    d->level--;
    newline(d);
    tr_jbuf_puts(&d->b, "}");
}

static void dump_value(struct dump *d, const struct tr_jv *v)
{
    size_t from = d->b.len;
    if (d->b.bad || !tr_jenter(d->c)) {
        d->b.bad = true;
        return;
    }
    switch (v->type) {
    case TR_JV_NONE:
        tr_jbuf_puts(&d->b, "null");
        break;
    case TR_JV_BOOL:
        tr_jbuf_puts(&d->b, v->b ? "true" : "false");
        break;
    case TR_JV_INT:
    case TR_JV_BIG:
        tr_jbuf_add_repr(&d->b, v);
        break;
    case TR_JV_FLOAT:
        if (isfinite(v->f))
            tr_jbuf_add_repr(&d->b, v);
        else
            tr_jbuf_puts(&d->b, isnan(v->f) ? "NaN" : v->f < 0 ? "-Infinity" : "Infinity");
        break;
    case TR_JV_STR:
        dump_str(d, v->s);
        break;
    case TR_JV_LIST:
    case TR_JV_TUPLE:
        dump_list(d, &v->l);
        break;
    case TR_JV_DICT:
        dump_dict(d, &v->d);
        break;
    default:
        tr_jfail(d->c, TR_JERR_RUNTIME, "Object of type %s is not JSON serializable",
                 tr_jtype_name(v));
        d->b.bad = true;
    }
    tr_jleave(d->c);
    if (v->type != TR_JV_STR && v->user)
        tr_jbuf_mark(&d->b, from);
}

static bool set_indent(struct dump *d, const struct tr_jv *v)
{
    int64_t n;
    if (!v || v->type == TR_JV_NONE)
        return true;
    d->pretty = true;
    d->item_sep = tr_jstr_of(",");
    if (v->type == TR_JV_STR) {
        d->indent = v->s;
        return true;
    }
    if (!tr_jas_int(v, &n)) {
        tr_jfail(d->c, TR_JERR_RUNTIME, "tojson: indent must be a number or a string");
        return false;
    }
    struct tr_jbuf b;
    tr_jbuf_init(&b, d->c);
    tr_jbuf_fill(&b, tr_jstr_of(" "), n);
    d->indent = tr_jbuf_str(&b);
    return !b.bad;
}

static bool set_separators(struct dump *d, struct tr_jv *v)
{
    struct tr_jlist l;
    if (!v || v->type == TR_JV_NONE)
        return true;
    if (!tr_jiterate(d->c, v, &l))
        return false;
    if (l.n != 2 || l.v[0]->type != TR_JV_STR || l.v[1]->type != TR_JV_STR) {
        tr_jfail(d->c, TR_JERR_RUNTIME, "tojson: separators must be two strings");
        return false;
    }
    d->item_sep = l.v[0]->s;
    d->key_sep = l.v[1]->s;
    return true;
}

struct tr_jv *tr_jfilter_tojson(struct tr_jctx *c, struct tr_jv *self, const struct tr_jargs *a)
{
    struct dump d = {.c = c, .item_sep = tr_jstr_of(", "), .key_sep = tr_jstr_of(": ")};
    tr_jbuf_init(&d.b, c);
    d.ascii = a->pos[0] && tr_jtruth(a->pos[0]);
    d.sorted = a->pos[3] && tr_jtruth(a->pos[3]);
    if (!set_indent(&d, a->pos[1]) || !set_separators(&d, a->pos[2]))
        return NULL;
    dump_value(&d, self);
    return tr_jbuf_value(&d.b);
}
