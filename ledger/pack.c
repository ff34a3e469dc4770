/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/pack.h"

#include "base/assert.h"

#include <errno.h>
#include <msgpack/pack.h>
#include <string.h>

/* A column: text of `size` bytes, or an int64_t (size 0) that is not below `least`. */
struct column {
    const char *name;
    size_t at, size;
    int64_t least;
};

#define TEXT(type, field)                                                                          \
    {                                                                                              \
#field, offsetof(struct type, field), sizeof(((struct type *)0)->field), 0                 \
    }
#define NUMBER(type, field)                                                                        \
    {                                                                                              \
#field, offsetof(struct type, field), 0, 0                                                 \
    }

static const struct column bill_columns[] = {
    TEXT(tr_row, request_id),
    TEXT(tr_row, stream_id),
    TEXT(tr_row, key),
    TEXT(tr_row, model),
    TEXT(tr_row, status),
    TEXT(tr_row, reason),
    NUMBER(tr_row, created_us),
    NUMBER(tr_row, first_token_us),
    NUMBER(tr_row, finished_us),
    NUMBER(tr_row, choices),
    NUMBER(tr_row, prompt_tokens),
    NUMBER(tr_row, cached_tokens),
    NUMBER(tr_row, completion_tokens),
    NUMBER(tr_row, overrun_tokens),
    {"last_token", offsetof(struct tr_row, last_token), 0, -1},
    NUMBER(tr_row, disconnect_us),
    NUMBER(tr_row, cancel_ack_us),
};

static const struct column delivery_columns[] = {
    TEXT(tr_row_delivery, stream_id),
    NUMBER(tr_row_delivery, first_byte_us),
    NUMBER(tr_row_delivery, delivered_tokens),
    NUMBER(tr_row_delivery, closed_us),
};

struct table {
    const struct column *c;
    size_t n;
};

static struct table table_of(enum tr_entry_kind kind)
{
    if (kind == TR_ENTRY_BILL)
        return (struct table){bill_columns, sizeof(bill_columns) / sizeof(bill_columns[0])};
    return (struct table){delivery_columns, sizeof(delivery_columns) / sizeof(delivery_columns[0])};
}

static void *body(struct tr_entry *e)
{
    return e->kind == TR_ENTRY_BILL ? (void *)&e->bill : (void *)&e->delivery;
}

/* ---- packing ---- */

struct out {
    uint8_t *p;
    size_t len;
};

static int out_write(void *data, const char *buf, size_t len)
{
    struct out *o = data;
    TR_ASSERT(len <=
              TR_PACK_MAX - o->len); /* the columns' sizes are ours: test_pack fills them all */
    memcpy(o->p + o->len, buf, len);
    o->len += len;
    return 0;
}

static void put_text(msgpack_packer *p, const char *s, size_t size)
{
    msgpack_pack_str_with_body(p, s, strnlen(s, size - 1));
}

size_t tr_pack(const struct tr_entry *e, uint8_t out[TR_PACK_MAX])
{
    struct out o = {.p = out};
    struct table t = table_of(e->kind);
    const char *from =
        e->kind == TR_ENTRY_BILL ? (const void *)&e->bill : (const void *)&e->delivery;
    msgpack_packer p;
    msgpack_packer_init(&p, &o, out_write);
    msgpack_pack_map(&p, t.n + 1);
    put_text(&p, "kind", sizeof("kind"));
    msgpack_pack_int64(&p, e->kind);
    for (size_t i = 0; i < t.n; i++) {
        const struct column *c = &t.c[i];
        int64_t v;
        put_text(&p, c->name, strlen(c->name) + 1);
        if (c->size) {
            put_text(&p, from + c->at, c->size);
        } else {
            memcpy(&v, from + c->at, sizeof(v));
            msgpack_pack_int64(&p, v);
        }
    }
    return o.len;
}

/* ---- reading: maps, text and whole numbers, bounded ---- */

struct in {
    const uint8_t *p, *end;
};

/* A key or a value: text lies in the input, or a number. */
struct item {
    const char *text; /* NULL: a number */
    size_t len;
    int64_t number;
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

static bool get_text(struct in *in, uint64_t len, struct item *it)
{
    if ((uint64_t)(in->end - in->p) < len)
        return false;
    *it = (struct item){.text = (const char *)in->p, .len = (size_t)len};
    in->p += len;
    return true;
}

/* A number of 1, 2, 4 or 8 bytes that has a sign. */
static int64_t with_sign(uint64_t v, unsigned bytes)
{
    switch (bytes) {
    case 1:
        return (int8_t)v;
    case 2:
        return (int16_t)v;
    case 4:
        return (int32_t)v;
    default:
        return (int64_t)v;
    }
}

static bool get_number(struct in *in, unsigned tag, struct item *it)
{
    uint64_t v;
    unsigned bytes = 1u << (tag & 3); /* cc..cf without, d0..d3 with a sign */
    if (!get_be(in, bytes, &v))
        return false;
    if (tag < 0xd0 && v > INT64_MAX)
        return false;
    *it = (struct item){.number = tag < 0xd0 ? (int64_t)v : with_sign(v, bytes)};
    return true;
}

static bool get_item(struct in *in, struct item *it)
{
    uint64_t tag, len;
    if (!get_be(in, 1, &tag))
        return false;
    if (tag < 0x80 || tag >= 0xe0) {
        *it = (struct item){.number = tag < 0x80 ? (int64_t)tag : (int64_t)tag - 256};
        return true;
    }
    if ((tag & 0xe0) == 0xa0)
        return get_text(in, tag & 0x1f, it);
    if (tag == 0xd9 || tag == 0xda || tag == 0xdb)
        return get_be(in, 1u << (tag - 0xd9), &len) && get_text(in, len, it);
    return tag >= 0xcc && tag <= 0xd3 && get_number(in, (unsigned)tag, it);
}

static bool get_map(struct in *in, uint64_t *n)
{
    uint64_t tag;
    if (!get_be(in, 1, &tag))
        return false;
    if ((tag & 0xf0) == 0x80) {
        *n = tag & 0x0f;
        return true;
    }
    return tag == 0xde ? get_be(in, 2, n) : tag == 0xdf && get_be(in, 4, n);
}

static bool is(const struct item *it, const char *word)
{
    return it->text && it->len == strlen(word) && memcmp(it->text, word, it->len) == 0;
}

static bool store(struct tr_entry *e, const struct column *c, const struct item *it)
{
    char *to = (char *)body(e) + c->at;
    if (c->size == 0) {
        if (it->text || it->number < c->least)
            return false;
        memcpy(to, &it->number, sizeof(it->number));
        return true;
    }
    if (!it->text || it->len >= c->size || memchr(it->text, '\0', it->len))
        return false;
    memcpy(to, it->text, it->len);
    to[it->len] = '\0';
    return true;
}

static bool set_column(struct tr_entry *e, const struct item *key, const struct item *value)
{
    struct table t = table_of(e->kind);
    for (size_t i = 0; i < t.n; i++)
        if (is(key, t.c[i].name))
            return store(e, &t.c[i], value);
    return key->text != NULL;
}

static bool known_kind(struct in *in, struct tr_entry *e)
{
    struct item key, value;
    if (!get_item(in, &key) || !is(&key, "kind") || !get_item(in, &value) || value.text ||
        (value.number != TR_ENTRY_BILL && value.number != TR_ENTRY_DELIVERY))
        return false;
    *e = (struct tr_entry){.kind = (enum tr_entry_kind)value.number};
    if (e->kind == TR_ENTRY_BILL)
        e->bill.last_token = -1;
    return true;
}

int tr_unpack(const uint8_t *in, size_t len, struct tr_entry *e)
{
    struct in r = {.p = in, .end = in + len};
    struct item key, value;
    struct tr_stream_id id;
    uint64_t n;
    if (!get_map(&r, &n) || n == 0 || !known_kind(&r, e))
        return -EINVAL;
    for (uint64_t i = 1; i < n; i++)
        if (!get_item(&r, &key) || !get_item(&r, &value) || !set_column(e, &key, &value))
            return -EINVAL;
    const char *name = e->kind == TR_ENTRY_BILL ? e->bill.stream_id : e->delivery.stream_id;
    if (r.p != r.end || tr_stream_id_parse(name, strlen(name), &id))
        return -EINVAL;
    if (e->kind == TR_ENTRY_BILL)
        tr_row_clean(&e->bill);
    return 0;
}
