/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/row.h"

#include "base/clock.h"
#include "shm/close.h"
#include "shm/stream_id.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct line {
    char *p;
    size_t len;
};

static void put(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(struct line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(l->p + l->len, TR_ROW_BYTES - l->len, fmt, ap);
    va_end(ap);
    if (n > 0)
        l->len += (size_t)n < TR_ROW_BYTES - l->len ? (size_t)n : TR_ROW_BYTES - l->len - 1;
}

/* Printable ASCII as it is, everything else as \u00XX: ids are ASCII by contract, and a byte that
 * is not cannot break the line. */
static void put_string(struct line *l, const char *key, const char *s)
{
    put(l, "\"%s\":\"", key);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < 0x20 || c > 0x7e || c == '"' || c == '\\')
            put(l, "\\u%04x", c);
        else
            put(l, "%c", c);
    }
    put(l, "\",");
}

static void put_time(struct line *l, const char *key, uint64_t ns)
{
    if (ns)
        put(l, "\"%s\":%.6f,", key, tr_wall_of_ns(ns));
    else
        put(l, "\"%s\":null,", key);
}

size_t tr_row_bill(const struct tr_bill *b, const char *model, char out[TR_ROW_BYTES])
{
    struct line l = {.p = out};
    char id[TR_STREAM_ID_BYTES];
    tr_stream_id_format((struct tr_stream_id){b->slot, b->gen, b->stream_rand}, id);
    put(&l, "{");
    put_string(&l, "request_id", b->request_id);
    put_string(&l, "stream_id", id);
    put_string(&l, "key", b->key);
    put_string(&l, "model", model);
    const struct tr_close_info *end = tr_close_info(tr_close_of(b->state, b->finish, b->err));
    put_string(&l, "status", tr_state_name(end->state));
    put_string(&l, "reason", end->reason);
    put_time(&l, "created_at", b->arrival_ns);
    put_time(&l, "first_token_at", b->first_token_ns);
    put_time(&l, "finished_at", b->finished_ns);
    put(&l, "\"choices\":%" PRIu32 ",\"prompt_tokens\":%" PRIu64 ",\"cached_tokens\":%" PRIu64,
        b->choices, b->prompt_tokens, b->cached_tokens);
    put(&l, ",\"completion_tokens\":%" PRIu64 ",\"overrun_tokens\":%" PRIu64 ",",
        b->completion_tokens, b->overrun_tokens);
    if (b->last_token == UINT32_MAX)
        put(&l, "\"last_token\":null,");
    else
        put(&l, "\"last_token\":%" PRIu32 ",", b->last_token);
    put_time(&l, "disconnect_at", b->disconnect_ns);
    put_time(&l, "cancel_ack_at", b->cancel_ack_ns);
    l.len--; /* the comma */
    put(&l, "}\n");
    return l.len;
}

size_t tr_row_delivery(const struct tr_delivery *d, char out[TR_ROW_BYTES])
{
    struct line l = {.p = out};
    put(&l, "{");
    put_string(&l, "request_id", d->request_id);
    put(&l, "\"stream_rand\":\"%016" PRIx64 "\",", d->stream_rand);
    put_time(&l, "first_byte_at", d->first_byte_ns);
    put(&l, "\"delivered_tokens\":%" PRIu32 ",", d->delivered_tokens);
    put_time(&l, "closed_at", d->closed_ns);
    l.len--;
    put(&l, "}\n");
    return l.len;
}
