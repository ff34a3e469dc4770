/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger_tool/columns.h"

#include <inttypes.h>
#include <string.h>

static void json_text(FILE *to, const char *s)
{
    fputc('"', to);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fprintf(to, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            fprintf(to, "\\u%04x", (unsigned char)*s);
        else
            fputc(*s, to);
    }
    fputc('"', to);
}

static void csv_text(FILE *to, const char *s)
{
    if (!strpbrk(s, ",\"\r\n")) {
        fputs(s, to);
        return;
    }
    fputc('"', to);
    for (; *s; s++) {
        if (*s == '"')
            fputc('"', to);
        fputc(*s, to);
    }
    fputc('"', to);
}

/* What stands before a value.  False: there is none to write, this is the header. */
static bool begin(struct tr_columns *c, const char *name)
{
    bool json = c->format == TR_LT_JSONL;
    fputs(c->any ? "," : json ? "{" : "", c->to);
    c->any = true;
    if (json)
        fprintf(c->to, "\"%s\":", name);
    else if (c->head)
        fputs(name, c->to);
    return !c->head;
}

void tr_columns_text(struct tr_columns *c, const char *name, const char *value)
{
    if (begin(c, name))
        (c->format == TR_LT_JSONL ? json_text : csv_text)(c->to, value);
}

void tr_columns_number(struct tr_columns *c, const char *name, int64_t value)
{
    if (begin(c, name))
        fprintf(c->to, "%" PRId64, value);
}

void tr_columns_null(struct tr_columns *c, const char *name)
{
    if (begin(c, name) && c->format == TR_LT_JSONL)
        fputs("null", c->to);
}

void tr_columns_time(struct tr_columns *c, const char *name, int64_t us)
{
    if (us <= 0)
        tr_columns_null(c, name);
    else if (begin(c, name))
        fprintf(c->to, "%" PRId64 ".%06" PRId64, us / 1000000, us % 1000000);
}

void tr_columns_end(struct tr_columns *c)
{
    fputs(c->format == TR_LT_JSONL ? "}\n" : "\r\n", c->to);
    c->any = false;
}

void tr_columns_row(struct tr_columns *c, const struct tr_row_whole *w)
{
    const struct tr_row *r = &w->bill;
    const struct tr_row_delivery *d = &w->delivery;
    tr_columns_text(c, "request_id", r->request_id);
    tr_columns_text(c, "stream_id", r->stream_id);
    tr_columns_text(c, "key", r->key);
    tr_columns_text(c, "model", r->model);
    tr_columns_text(c, "status", r->status);
    tr_columns_text(c, "reason", r->reason);
    tr_columns_time(c, "created_at", r->created_us);
    tr_columns_time(c, "first_token_at", r->first_token_us);
    tr_columns_time(c, "finished_at", r->finished_us);
    tr_columns_number(c, "choices", r->choices);
    tr_columns_number(c, "prompt_tokens", r->prompt_tokens);
    tr_columns_number(c, "cached_tokens", r->cached_tokens);
    tr_columns_number(c, "completion_tokens", r->completion_tokens);
    tr_columns_number(c, "overrun_tokens", r->overrun_tokens);
    if (r->last_token < 0)
        tr_columns_null(c, "last_token");
    else
        tr_columns_number(c, "last_token", r->last_token);
    tr_columns_time(c, "disconnect_at", r->disconnect_us);
    tr_columns_time(c, "cancel_ack_at", r->cancel_ack_us);
    tr_columns_time(c, "first_byte_at", w->delivered ? d->first_byte_us : 0);
    if (w->delivered)
        tr_columns_number(c, "delivered_tokens", d->delivered_tokens);
    else
        tr_columns_null(c, "delivered_tokens");
    tr_columns_time(c, "closed_at", w->delivered ? d->closed_us : 0);
    tr_columns_end(c);
}
