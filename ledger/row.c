/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/row.h"

#include "base/clock.h"
#include "shm/close.h"

#include <stdio.h>
#include <string.h>

/* ---- text ---- */

/* Bytes of the character of UTF-8 at s, 0 if it is none or one that controls. */
static size_t character(const unsigned char *s)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t c = s[0];
    size_t n = c < 0x80 ? 1 : c >= 0xf0 && c < 0xf8 ? 4 : c >= 0xe0 ? 3 : 2;
    if (c >= 0xf8 || (c >= 0x80 && c < 0xc0))
        return 0;
    if (n > 1)
        c &= 0x7fu >> n;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) /* also the NUL at the end */
            return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
    return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) || control ? 0 : n;
}

static void clean_name(char *s)
{
    while (*s) {
        size_t n = character((const unsigned char *)s);
        if (!n)
            *s = '?';
        s += n ? n : 1;
    }
}

static void clean_ascii(char *s)
{
    for (; *s; s++)
        if (*s < 0x20 || *s > 0x7e)
            *s = '?';
}

void tr_row_clean(struct tr_row *r)
{
    clean_ascii(r->request_id);
    clean_ascii(r->key);
    clean_ascii(r->status);
    clean_ascii(r->reason);
    clean_name(r->model);
}

static void copy(char *to, size_t size, const char *from)
{
    size_t n = strnlen(from, size - 1);
    memcpy(to, from, n);
    memset(to + n, 0, size - n);
}

/* ---- numbers ---- */

/* One difference of the clocks for all times of a row, so that they keep their order. */
struct calendar {
    int64_t origin_us; /* wall clock at 0 of the other */
};

static struct calendar now(void)
{
    return (struct calendar){(int64_t)(tr_wall_of_ns(1) * 1e6)};
}

/* 0 for what did not happen, and for what is no time of this machine. */
static int64_t micros(struct calendar c, uint64_t ns)
{
    return ns && ns < INT64_MAX ? c.origin_us + (int64_t)(ns / 1000) : 0;
}

static int64_t count(uint64_t n)
{
    return n < INT64_MAX ? (int64_t)n : INT64_MAX;
}

/* ---- the two parts ---- */

void tr_row_of_bill(const struct tr_bill *b, const char *model, struct tr_entry *out)
{
    const struct tr_close_info *end = tr_close_info(tr_close_of(b->state, b->finish, b->err));
    struct calendar c = now();
    struct tr_row *r = &out->bill;
    *out = (struct tr_entry){.kind = TR_ENTRY_BILL};
    copy(r->request_id, sizeof(r->request_id), b->request_id);
    tr_stream_id_format((struct tr_stream_id){b->slot, b->gen, b->stream_rand}, r->stream_id);
    copy(r->key, sizeof(r->key), b->key);
    copy(r->model, sizeof(r->model), model);
    copy(r->status, sizeof(r->status), tr_state_name(end->state));
    copy(r->reason, sizeof(r->reason), end->reason);
    r->created_us = micros(c, b->arrival_ns);
    r->first_token_us = micros(c, b->first_token_ns);
    r->finished_us = micros(c, b->finished_ns);
    r->choices = b->choices;
    r->prompt_tokens = count(b->prompt_tokens);
    r->cached_tokens = count(b->cached_tokens);
    r->completion_tokens = count(b->completion_tokens);
    r->overrun_tokens = count(b->overrun_tokens);
    r->last_token = b->last_token == UINT32_MAX ? -1 : (int64_t)b->last_token;
    r->disconnect_us = micros(c, b->disconnect_ns);
    r->cancel_ack_us = micros(c, b->cancel_ack_ns);
    tr_row_clean(r);
}

void tr_row_of_delivery(const struct tr_delivery *d, struct tr_entry *out)
{
    struct calendar c = now();
    *out = (struct tr_entry){.kind = TR_ENTRY_DELIVERY};
    tr_stream_id_format((struct tr_stream_id){d->slot, d->gen, d->stream_rand},
                        out->delivery.stream_id);
    out->delivery.first_byte_us = micros(c, d->first_byte_ns);
    out->delivery.delivered_tokens = d->delivered_tokens;
    out->delivery.closed_us = micros(c, d->closed_ns);
}
