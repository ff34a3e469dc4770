/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/logprobs.c - see logprobs.h. */
#include "frontend/logprobs.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- queue ---- */

int tr_lpq_push(struct tr_lpq *q, const struct tr_lp_item *it)
{
    if (q->n == q->cap) {
        uint32_t cap = q->cap ? 2 * q->cap : 4;
        struct tr_lp_item *p = realloc(q->item, cap * sizeof(*p));
        if (!p)
            return -ENOMEM;
        q->item = p;
        q->cap = cap;
    }
    q->item[q->n++] = *it;
    return 0;
}

uint32_t tr_lpq_certain(const struct tr_lpq *q, uint64_t shown)
{
    uint32_t k = 0;

    while (k < q->n) {
        const struct tr_lp_item *it = &q->item[k];
        bool certain = it->start < shown || (it->empty && it->start == shown);
        if (!certain && q->n - k <= TR_LPQ_MAX)
            break;
        k++;
    }
    return k;
}

void tr_lpq_drop(struct tr_lpq *q, uint32_t n)
{
    q->n -= n;
    if (q->n)
        memmove(q->item, q->item + n, q->n * sizeof(*q->item));
}

void tr_lpq_fini(struct tr_lpq *q)
{
    free(q->item);
    memset(q, 0, sizeof(*q));
}

/* ---- JSON of one token ---- */

enum { NAME_CAP = 6 + 4 * TR_VOCAB_PIECE_MAX };

static size_t id_name(uint32_t id, char *buf, const char **out)
{
    *out = buf;
    return (size_t)snprintf(buf, NAME_CAP, "token_id:%u", id);
}

/* The name of a token in a JSON object: its text, or for bytes that are no text by themselves the
 * notation bytes:\xf0\x9f, as keys must differ. */
static size_t token_name(const struct tr_lp_style *y, uint32_t id, char *buf, size_t cap,
                         const char **out)
{
    static const char hex[] = "0123456789abcdef";
    size_t len, n = 6;

    if (y->ids)
        return id_name(id, buf, out);
    const char *p = tr_vocab_bytes(y->vocab, (int32_t)id, &len);

    *out = p ? p : "";
    if (!p || tr_utf8_is_valid(p, len))
        return p ? len : 0;
    memcpy(buf, "bytes:", sizeof("bytes:"));
    for (size_t i = 0; i < len && n + 4 <= cap; i++) {
        buf[n++] = '\\';
        buf[n++] = 'x';
        buf[n++] = hex[(uint8_t)p[i] >> 4];
        buf[n++] = hex[(uint8_t)p[i] & 15];
    }
    *out = buf;
    return n;
}

static void emit_chat_token(struct tr_emit *e, const struct tr_lp_style *y, uint32_t id,
                            float logprob)
{
    char buf[NAME_CAP];
    const char *name;
    size_t len, n;
    const char *p = tr_vocab_bytes(y->vocab, (int32_t)id, &len);

    if (y->ids) {
        n = id_name(id, buf, &name);
        tr_emit_kstrn(e, "token", name, n);
    } else {
        tr_emit_kstrn(e, "token", p ? p : "", len);
    }
    tr_emit_key(e, "logprob");
    tr_emit_f32(e, logprob);
    tr_emit_key(e, "bytes");
    tr_emit_arr(e);
    for (size_t i = 0; p && i < len; i++)
        tr_emit_u64(e, (uint8_t)p[i]);
    tr_emit_arr_end(e);
}

static void emit_chat_item(struct tr_emit *e, const struct tr_lp_style *y,
                           const struct tr_lp_item *it)
{
    tr_emit_obj(e);
    emit_chat_token(e, y, it->lp.id, it->lp.logprob);
    tr_emit_key(e, "top_logprobs");
    tr_emit_arr(e);
    for (uint32_t i = 0; i < it->lp.n_top && i < y->n_top; i++) {
        tr_emit_obj(e);
        emit_chat_token(e, y, it->lp.top_id[i], it->lp.top_logprob[i]);
        tr_emit_obj_end(e);
    }
    tr_emit_arr_end(e);
    tr_emit_obj_end(e);
}

static void emit_name(struct tr_emit *e, const struct tr_lp_style *y, uint32_t id, bool key)
{
    char buf[NAME_CAP];
    const char *p;
    size_t len = token_name(y, id, buf, sizeof(buf), &p);

    if (key)
        tr_emit_keyn(e, p, len);
    else
        tr_emit_strn(e, p, len);
}

/* Two ids may stand for the same bytes; a JSON object has each key once. */
static bool same_bytes(const struct tr_vocab *v, uint32_t a, uint32_t b)
{
    size_t na, nb;
    const char *pa = tr_vocab_bytes(v, (int32_t)a, &na), *pb = tr_vocab_bytes(v, (int32_t)b, &nb);

    return na == nb && (na == 0 || memcmp(pa, pb, na) == 0);
}

static void emit_top(struct tr_emit *e, const struct tr_lp_style *y, const struct tr_lp_item *it)
{
    if (it->first) {
        tr_emit_null(e);
        return;
    }
    tr_emit_obj(e);
    for (uint32_t i = 0; i < it->lp.n_top && i < y->n_top; i++) {
        bool seen = false;
        for (uint32_t j = 0; j < i && !seen; j++)
            seen = !y->ids && same_bytes(y->vocab, it->lp.top_id[i], it->lp.top_id[j]);
        if (seen)
            continue;
        emit_name(e, y, it->lp.top_id[i], true);
        tr_emit_f32(e, it->lp.top_logprob[i]);
    }
    tr_emit_obj_end(e);
}

/* One entry of array `which` of the completions shape. */
static void emit_part(struct tr_emit *e, unsigned which, const struct tr_lp_style *y,
                      const struct tr_lp_item *it)
{
    if (which == 0)
        emit_name(e, y, it->lp.id, false);
    else if (which == 2)
        emit_top(e, y, it);
    else if (which == 3)
        tr_emit_u64(e, it->text_offset);
    else if (it->first)
        tr_emit_null(e);
    else
        tr_emit_f32(e, it->lp.logprob);
}

static const char *const part_key[4] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};

/* ---- values ---- */

void tr_lp_emit_items(struct tr_emit *e, const struct tr_lp_style *y, const struct tr_lp_item *it,
                      uint32_t n)
{
    tr_emit_arr(e);
    for (uint32_t i = 0; i < n; i++)
        emit_chat_item(e, y, &it[i]);
    tr_emit_arr_end(e);
}

void tr_lp_emit_chat(struct tr_emit *e, const struct tr_lp_style *y, const struct tr_lp_item *it,
                     uint32_t n)
{
    tr_emit_obj(e);
    tr_emit_key(e, "content");
    tr_lp_emit_items(e, y, it, n);
    tr_emit_knull(e, "refusal");
    tr_emit_obj_end(e);
}

void tr_lp_emit_completions(struct tr_emit *e, const struct tr_lp_style *y,
                            const struct tr_lp_item *it, uint32_t n)
{
    tr_emit_obj(e);
    for (unsigned k = 0; k < 4; k++) {
        tr_emit_key(e, part_key[k]);
        tr_emit_arr(e);
        for (uint32_t i = 0; i < n; i++)
            emit_part(e, k, y, &it[i]);
        tr_emit_arr_end(e);
    }
    tr_emit_obj_end(e);
}

/* ---- answers that are not streamed ---- */

static void text_open(struct tr_lp_text *t)
{
    if (t->open)
        return;
    for (unsigned k = 0; k < 4; k++) {
        tr_emit_init(&t->a[k]);
        tr_emit_arr(&t->a[k]);
    }
    t->open = true;
}

void tr_lp_text_fini(struct tr_lp_text *t)
{
    if (t->open)
        for (unsigned k = 0; k < 4; k++)
            tr_emit_fini(&t->a[k]);
    t->open = false;
}

size_t tr_lp_text_bytes(const struct tr_lp_text *t)
{
    return t->open ? t->a[0].len + t->a[1].len + t->a[2].len + t->a[3].len : 0;
}

void tr_lp_text_add(struct tr_lp_text *t, bool chat, const struct tr_lp_style *y,
                    const struct tr_lp_item *it, uint32_t n)
{
    text_open(t);
    for (uint32_t i = 0; i < n; i++) {
        if (chat)
            emit_chat_item(&t->a[0], y, &it[i]);
        for (unsigned k = 0; k < 4 && !chat; k++)
            emit_part(&t->a[k], k, y, &it[i]);
    }
}

static void put_list(struct tr_emit *e, struct tr_emit *list)
{
    tr_emit_arr_end(list);
    if (list->failed)
        e->failed = true;
    else
        tr_emit_raw(e, list->buf, list->len);
}

void tr_lp_emit_list(struct tr_emit *e, struct tr_lp_text *t)
{
    text_open(t);
    put_list(e, &t->a[0]);
}

void tr_lp_emit_text(struct tr_emit *e, bool chat, struct tr_lp_text *t)
{
    text_open(t);
    tr_emit_obj(e);
    for (unsigned k = 0; k < (chat ? 1 : 4); k++) {
        tr_emit_key(e, chat ? "content" : part_key[k]);
        put_list(e, &t->a[k]);
    }
    if (chat)
        tr_emit_knull(e, "refusal");
    tr_emit_obj_end(e);
}

size_t tr_lp_estimate(bool chat, uint32_t n_top)
{
    /* Measured on ordinary text: an alternative of the chat shape has its keys, a short token, a
     * number and a few bytes as decimal numbers. */
    return chat ? 96 + (size_t)n_top * 72 : 48 + (size_t)n_top * 24;
}
