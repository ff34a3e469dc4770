/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/pieces.c - see pieces.h. */
#include "grammar/pieces.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x50475254u /* "TRGP" */
#define VERSION 1u

_Static_assert(sizeof(struct tr_gpiece) == 16, "lies in an image");
_Static_assert(sizeof(struct tr_gpieces_head) == 40, "lies in an image");

/* clang-format off */
const uint8_t tr_gpiece_class[256] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,               /* blank to / */
    20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 21, 22, 23, 24, 25, 26,         /* digits : ; < = > ? */
    27, 28, 28, 28, 28, 28, 28, 29, 29, 29, 29, 29, 29, 29, 29, 29,         /* @ A-F G-O */
    29, 29, 29, 29, 29, 29, 29, 29, 29, 29, 29, 30, 31, 32, 33, 34,         /* P-Z [ \ ] ^ _ */
    35, 36, 36, 36, 36, 36, 36, 37, 37, 37, 37, 37, 37, 37, 37, 37,         /* ` a-f g-o */
    37, 37, 37, 37, 37, 37, 37, 37, 37, 37, 37, 38, 39, 40, 41, 42,         /* p-z { | } ~ DEL */
    43, 43, 43, 43, 43, 43, 43, 43, 43, 43, 43, 43, 43, 43, 43, 43,         /* 80-8f: 1st after f4 */
    44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44,
    45, 45, 45, 45, 45, 45, 45, 45, 45, 45, 45, 45, 45, 45, 45, 45,
    45, 45, 45, 45, 45, 45, 45, 45, 45, 45, 45, 45, 45, 45, 45, 45,
    46, 46, 47, 47, 47, 47, 47, 47, 47, 47, 47, 47, 47, 47, 47, 47,
    47, 47, 47, 47, 47, 47, 47, 47, 47, 47, 47, 47, 47, 47, 47, 47,
    48, 49, 49, 49, 49, 49, 49, 49, 49, 49, 49, 49, 49, 50, 49, 49,
    51, 52, 52, 52, 53, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46,
};
/* clang-format on */

struct text {
    const uint8_t *p;
    uint32_t len, id;
};

static int by_bytes(const void *va, const void *vb)
{
    const struct text *a = va, *b = vb;
    size_t n = a->len < b->len ? a->len : b->len;
    int c = memcmp(a->p, b->p, n);

    if (c)
        return c;
    if (a->len != b->len)
        return a->len < b->len ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static uint32_t common(const struct text *a, const struct text *b)
{
    uint32_t n = 0;

    while (n < a->len && n < b->len && a->p[n] == b->p[n])
        n++;
    return n;
}

/* Sorted texts are a depth-first walk: each opens the nodes that it does not share with the one before, after
 * those that are not shared were closed. */
static void plant(struct tr_gpiece *nodes, uint32_t *ids, const struct text *t, uint32_t n)
{
    uint32_t path[TR_GPIECE_MAX + 1] = {0}, depth = 0, v = 1;

    nodes[0] = (struct tr_gpiece){0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t keep = i ? common(&t[i - 1], &t[i]) : 0;
        for (; depth > keep; depth--)
            nodes[path[depth]].skip = v;
        for (; depth < t[i].len; depth++) {
            uint8_t byte = t[i].p[depth];
            path[depth + 1] = v;
            nodes[v++] = (struct tr_gpiece){.first_byte = i | (uint32_t)byte << 24};
        }
        ids[i] = t[i].id;
    }
    for (; depth > 0; depth--)
        nodes[path[depth]].skip = v;
    nodes[0].skip = v;
    nodes[v] = (struct tr_gpiece){.skip = v, .first_byte = n};
}

enum tr_gutf8 tr_gutf8_next(enum tr_gutf8 at, uint8_t b)
{
    bool more = b >= 0x80 && b <= 0xbf;

    switch (at) {
    case TR_GUTF8_BETWEEN:
        if (b < 0x80)
            return TR_GUTF8_BETWEEN;
        if (b < 0xc2 || b > 0xf4)
            return TR_GUTF8_NONE;
        if (b < 0xe0)
            return TR_GUTF8_LAST;
        if (b < 0xf0)
            return b == 0xe0 ? TR_GUTF8_E0 : b == 0xed ? TR_GUTF8_ED : TR_GUTF8_TWO;
        return b == 0xf0 ? TR_GUTF8_F0 : b == 0xf4 ? TR_GUTF8_F4 : TR_GUTF8_THREE;
    case TR_GUTF8_LAST:
        return more ? TR_GUTF8_BETWEEN : TR_GUTF8_NONE;
    case TR_GUTF8_TWO:
        return more ? TR_GUTF8_LAST : TR_GUTF8_NONE;
    case TR_GUTF8_E0:
        return more && b >= 0xa0 ? TR_GUTF8_LAST : TR_GUTF8_NONE;
    case TR_GUTF8_ED:
        return more && b <= 0x9f ? TR_GUTF8_LAST : TR_GUTF8_NONE;
    case TR_GUTF8_THREE:
        return more ? TR_GUTF8_TWO : TR_GUTF8_NONE;
    case TR_GUTF8_F0:
        return more && b >= 0x90 ? TR_GUTF8_TWO : TR_GUTF8_NONE;
    case TR_GUTF8_F4:
        return more && b <= 0x8f ? TR_GUTF8_TWO : TR_GUTF8_NONE;
    default:
        return TR_GUTF8_NONE;
    }
}

/* Children stand behind their parents, so from the last to the first each is whole before its parent asks.
 * good[v]: the states of UTF-8 from which all ways down are right. */
static void sum_classes(struct tr_gpiece *nodes, uint8_t *good, uint32_t n)
{
    for (uint32_t v = n; v-- > 0;) {
        uint32_t height = 0;
        good[v] = 0xff;
        for (uint32_t c = v + 1; c < nodes[v].skip; c = nodes[c].skip) {
            uint8_t byte = tr_gpiece_byte(&nodes[c]);
            nodes[v].below |= tr_gpiece_needs(&nodes[c]) & ~TR_GPIECE_BROKEN;
            height =
                tr_gpiece_height(&nodes[c]) + 1 > height ? tr_gpiece_height(&nodes[c]) + 1 : height;
            nodes[v].below |= UINT64_C(1) << tr_gpiece_class[byte];
            for (int at = 0; at < 8; at++) {
                enum tr_gutf8 to = tr_gutf8_next((enum tr_gutf8)at, byte);
                if (to == TR_GUTF8_NONE || !(good[c] >> to & 1))
                    good[v] &= (uint8_t) ~(1u << at);
            }
        }
        if (!(good[v] >> TR_GUTF8_BETWEEN & 1))
            nodes[v].below |= TR_GPIECE_BROKEN;
        if (height > TR_GPIECE_HEIGHT_MAX)
            height = TR_GPIECE_HEIGHT_MAX;
        nodes[v].below |= (uint64_t)height << TR_GPIECE_HEIGHT;
    }
}

static uint32_t count_nodes(const struct text *t, uint32_t n)
{
    uint32_t nodes = 1;

    for (uint32_t i = 0; i < n; i++)
        nodes += t[i].len - (i ? common(&t[i - 1], &t[i]) : 0);
    return nodes;
}

static int make(struct text *t, uint32_t n, const uint32_t *eog, uint32_t n_eog, uint32_t n_vocab,
                void **image, size_t *len)
{
    qsort(t, n, sizeof(*t), by_bytes);
    struct tr_gpieces_head h = {.magic = MAGIC, .version = VERSION, .n_vocab = n_vocab};
    h.n_ids = n;
    h.n_eog = n_eog;
    h.n_nodes = count_nodes(t, n);
    for (uint32_t i = 0; i < n; i++)
        if (t[i].len > h.max_len)
            h.max_len = t[i].len;
    size_t at_ids = sizeof(h) + ((size_t)h.n_nodes + 1) * sizeof(struct tr_gpiece);
    h.len = at_ids + ((size_t)n + n_eog) * sizeof(uint32_t);
    uint8_t *out = malloc(h.len), *good = calloc(h.n_nodes, 1);
    if (!out || !good) {
        free(out);
        free(good);
        return -ENOMEM;
    }
    memcpy(out, &h, sizeof(h));
    struct tr_gpiece *nodes = (struct tr_gpiece *)(out + sizeof(h));
    uint32_t *ids = (uint32_t *)(out + at_ids);
    plant(nodes, ids, t, n);
    sum_classes(nodes, good, h.n_nodes);
    free(good);
    if (n_eog)
        memcpy(ids + n, eog, n_eog * sizeof(*eog));
    *image = out;
    *len = h.len;
    return 0;
}

int tr_gpieces_build(uint32_t n_vocab, tr_gpiece_fn *of, void *arg, void **image, size_t *len)
{
    if (n_vocab >= TR_GPIECES_VOCAB_MAX)
        return -E2BIG;
    struct text *t = malloc(((size_t)n_vocab + 1) * sizeof(*t));
    uint32_t *eog = malloc(((size_t)n_vocab + 1) * sizeof(*eog));
    uint32_t n = 0, n_eog = 0;
    int rc = -ENOMEM;

    if (!t || !eog)
        goto out;
    for (uint32_t id = 0; id < n_vocab; id++) {
        struct tr_gpiece_of o = of(arg, id);
        if (o.kind == TR_GPIECE_EOG)
            eog[n_eog++] = id;
        else if (o.kind == TR_GPIECE_TEXT && o.len > 0 && o.len <= TR_GPIECE_MAX)
            t[n++] = (struct text){.p = o.bytes, .len = (uint32_t)o.len, .id = id};
    }
    rc = make(t, n, eog, n_eog, n_vocab, image, len);
out:
    free(t);
    free(eog);
    return rc;
}

/* Subtrees lie in one another, siblings are sorted, ids go up from node to node. */
static bool tree_is_sound(const struct tr_gpieces *v)
{
    uint32_t end[TR_GPIECE_MAX + 1], last[TR_GPIECE_MAX + 1], depth = 0;

    if (v->nodes[0].skip != v->n_nodes || tr_gpiece_first(&v->nodes[0]) != 0 ||
        tr_gpiece_first(&v->nodes[v->n_nodes]) != v->n_ids)
        return false;
    end[0] = v->n_nodes;
    last[0] = 0;
    for (uint32_t i = 1; i < v->n_nodes; i++) {
        const struct tr_gpiece *n = &v->nodes[i];
        uint32_t byte = 1 + (uint32_t)tr_gpiece_byte(n);
        while (i == end[depth])
            depth--;
        if (n->skip <= i || n->skip > end[depth] || byte <= last[depth] || depth == v->max_len ||
            tr_gpiece_first(n) < tr_gpiece_first(n - 1))
            return false;
        last[depth++] = byte;
        end[depth] = n->skip;
        last[depth] = 0;
    }
    return tr_gpiece_first(&v->nodes[v->n_nodes]) >= tr_gpiece_first(&v->nodes[v->n_nodes - 1]);
}

static bool ids_are_sound(const struct tr_gpieces *v)
{
    for (uint32_t i = 0; i < v->n_ids + v->n_eog; i++)
        if (v->ids[i] >= v->n_vocab)
            return false;
    return true;
}

int tr_gpieces_open(struct tr_gpieces *v, const void *image, size_t len, struct tr_errbuf *err)
{
    struct tr_gpieces_head h;

    if (len < sizeof(h) || (uintptr_t)image % 8 != 0)
        return tr_errf(err, -EINVAL, "an image of a vocabulary is cut");
    memcpy(&h, image, sizeof(h));
    if (h.magic != MAGIC || h.version != VERSION || h.len != len || h.max_len > TR_GPIECE_MAX ||
        h.n_vocab >= TR_GPIECES_VOCAB_MAX || h.n_ids > h.n_vocab || h.n_eog > h.n_vocab ||
        h.n_nodes == 0)
        return tr_errf(err, -EINVAL, "this is no image of a vocabulary of version %u", VERSION);
    size_t at_ids = sizeof(h) + ((size_t)h.n_nodes + 1) * sizeof(struct tr_gpiece);
    if (at_ids + ((size_t)h.n_ids + h.n_eog) * sizeof(uint32_t) != len)
        return tr_errf(err, -EINVAL,
                       "the parts of an image of a vocabulary do not make up its length");
    const uint8_t *base = image;
    struct tr_gpieces w = {
        .nodes = (const struct tr_gpiece *)(base + sizeof(h)),
        .ids = (const uint32_t *)(base + at_ids),
        .n_vocab = h.n_vocab,
        .n_nodes = h.n_nodes,
        .n_ids = h.n_ids,
        .n_eog = h.n_eog,
        .max_len = h.max_len,
    };
    w.eog = w.ids + h.n_ids;
    if (!tree_is_sound(&w) || !ids_are_sound(&w))
        return tr_errf(err, -EINVAL, "an image of a vocabulary is damaged");
    *v = w;
    return 0;
}
