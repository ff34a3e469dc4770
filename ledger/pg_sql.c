/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/pg_sql.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A statement that waits for so long (another service brings the schema up to date, say) is ended by
 * the server. */
#define LIMIT "SET LOCAL statement_timeout = 20000;"

/* In what tr_row says of its times: no instant beyond the year 9999. */
static const int64_t LAST_US = 253402300799999999;

/* ---- the text ---- */

static bool reserve(struct tr_pg_sql *q, size_t more)
{
    if (q->len + more < q->cap)
        return true;
    size_t cap = q->cap ? 2 * q->cap : 4096;
    while (cap <= q->len + more)
        cap *= 2;
    char *s = q->failed ? NULL : realloc(q->s, cap);
    if (!s) {
        q->failed = true;
        return false;
    }
    q->s = s;
    q->cap = cap;
    return true;
}

static void put(struct tr_pg_sql *q, const char *s)
{
    size_t n = strlen(s);
    if (!reserve(q, n))
        return;
    memcpy(q->s + q->len, s, n + 1);
    q->len += n;
}

__attribute__((format(printf, 2, 3))) static void putf(struct tr_pg_sql *q, const char *fmt, ...)
{
    char line[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    put(q, line);
}

/* As E'...', which means the same whatever the server's standard_conforming_strings is. */
static void put_text(struct tr_pg_sql *q, const char *s)
{
    put(q, "E'");
    if (!reserve(q, 2 * strlen(s)))
        return;
    for (; *s; s++) {
        char c = q->ascii && (unsigned char)*s >= 0x80 ? '?' : *s;
        if (c == '\'' || c == '\\')
            q->s[q->len++] = c;
        q->s[q->len++] = c;
    }
    q->s[q->len] = '\0';
    put(q, "'");
}

static void put_time(struct tr_pg_sql *q, int64_t us)
{
    if (us <= 0) {
        put(q, "NULL");
        return;
    }
    if (us > LAST_US)
        us = LAST_US;
    time_t s = (time_t)(us / 1000000);
    struct tm t;
    gmtime_r(&s, &t);
    putf(q, "'%04d-%02d-%02d %02d:%02d:%02d.%06d+00'::timestamptz", t.tm_year + 1900, t.tm_mon + 1,
         t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec, (int)(us % 1000000));
}

static void put_count(struct tr_pg_sql *q, int64_t n)
{
    putf(q, "%" PRId64 "::bigint", n < 0 ? 0 : n);
}

/* ---- writing ---- */

static void put_bill(struct tr_pg_sql *q, const struct tr_row *r)
{
    const char *const text[] = {r->stream_id, r->request_id, r->key,
                                r->model,     r->status,     r->reason};
    const int64_t time[] = {r->created_us, r->first_token_us, r->finished_us, r->disconnect_us,
                            r->cancel_ack_us};
    const int64_t count[] = {r->choices, r->prompt_tokens, r->cached_tokens, r->completion_tokens,
                             r->overrun_tokens};
    put(q, "(");
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
        put_text(q, text[i]);
        put(q, ",");
    }
    for (size_t i = 0; i < sizeof(time) / sizeof(time[0]); i++) {
        put_time(q, time[i]);
        put(q, ",");
    }
    for (size_t i = 0; i < sizeof(count) / sizeof(count[0]); i++) {
        put_count(q, count[i]);
        put(q, ",");
    }
    if (r->last_token < 0)
        put(q, "NULL)");
    else
        putf(q, "%" PRId64 ")", r->last_token);
}

static void put_delivery(struct tr_pg_sql *q, const struct tr_row_delivery *d)
{
    put(q, "(");
    put_text(q, d->stream_id);
    put(q, ",");
    put_time(q, d->first_byte_us);
    put(q, ",");
    put_count(q, d->delivered_tokens);
    put(q, ",");
    put_time(q, d->closed_us);
    put(q, ")");
}

/* All of one kind; how many they were. */
static size_t put_values(struct tr_pg_sql *q, const struct tr_entry *e, size_t n,
                         enum tr_entry_kind kind)
{
    size_t some = 0;
    for (size_t i = 0; i < n; i++) {
        if (e[i].kind != kind)
            continue;
        put(q, some++ ? "," : "");
        if (kind == TR_ENTRY_BILL)
            put_bill(q, &e[i].bill);
        else
            put_delivery(q, &e[i].delivery);
    }
    return some;
}

static void put_ids(struct tr_pg_sql *q, const struct tr_entry *e, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put(q, i ? "," : "(");
        put_text(q, e[i].kind == TR_ENTRY_BILL ? e[i].bill.stream_id : e[i].delivery.stream_id);
    }
    put(q, ")");
}

/* Statements without values would be wrong: they are taken back. */
static void insert(struct tr_pg_sql *q, const char *head, const struct tr_entry *e, size_t n,
                   enum tr_entry_kind kind)
{
    size_t before = q->len;
    put(q, head);
    if (put_values(q, e, n, kind))
        put(q, " ON CONFLICT DO NOTHING;");
    else
        q->len = before;
}

void tr_pg_sql_apply(struct tr_pg_sql *q, const struct tr_entry *e, size_t n)
{
    put(q, LIMIT);
    insert(q,
           "INSERT INTO tokenring_requests(stream_id,request_id,key,model,status,reason,created_at,"
           "first_token_at,finished_at,disconnect_at,cancel_ack_at,choices,prompt_tokens,"
           "cached_tokens,completion_tokens,overrun_tokens,last_token) VALUES ",
           e, n, TR_ENTRY_BILL);
    insert(q,
           "INSERT INTO tokenring_deliveries(stream_id,first_byte_at,delivered_tokens,closed_at) "
           "VALUES ",
           e, n, TR_ENTRY_DELIVERY);
    /* Whichever part came second brings both together. */
    put(q, "UPDATE tokenring_requests r SET first_byte_at=d.first_byte_at,"
           "delivered_tokens=d.delivered_tokens,closed_at=d.closed_at FROM tokenring_deliveries d "
           "WHERE d.stream_id=r.stream_id AND r.delivered_tokens IS NULL AND r.stream_id IN ");
    put_ids(q, e, n);
    put(q, ";DELETE FROM tokenring_deliveries d USING tokenring_requests r "
           "WHERE d.stream_id=r.stream_id AND d.stream_id IN ");
    put_ids(q, e, n);
    put(q, ";");
}

/* ---- reading ---- */

static void put_where(struct tr_pg_sql *q, const char *column, const char *value)
{
    if (!value)
        return;
    putf(q, " AND %s=", column);
    put_text(q, value);
}

#define TIME(column) ",(extract(epoch from " column ")*1000000)::bigint"

void tr_pg_sql_select(struct tr_pg_sql *q, const struct tr_sink_filter *f)
{
    put(q, "SELECT stream_id,request_id,key,model,status,reason" TIME("created_at")
               TIME("first_token_at") TIME("finished_at") TIME("disconnect_at")
                   TIME("cancel_ack_at") TIME("first_byte_at")
                       TIME("closed_at") ",choices,prompt_tokens,cached_tokens,"
                                         "completion_tokens,overrun_tokens,last_token,delivered_"
                                         "tokens FROM tokenring_requests "
                                         "WHERE true");
    put_where(q, "key", f->key);
    put_where(q, "model", f->model);
    put_where(q, "status", f->status);
    if (f->from_us) {
        put(q, " AND created_at>=");
        put_time(q, f->from_us);
    }
    if (f->until_us) {
        put(q, " AND created_at<");
        put_time(q, f->until_us);
    }
    put(q, " ORDER BY created_at NULLS FIRST,stream_id");
}

/* Whoever may write to the database may have written anything: what does not fit is cut, what is no
 * character for a terminal is '?'. */
void tr_pg_sql_text(const PGresult *r, int i, int column, char *out, size_t size)
{
    const char *s = PQgetisnull(r, i, column) ? "" : PQgetvalue(r, i, column); /* or no column */
    size_t n = strlen(s);
    if (n >= size) {
        n = size - 1;
        while (n && ((unsigned char)s[n] & 0xc0) == 0x80)
            n--;
    }
    for (size_t k = 0; k < n; k++)
        out[k] = (unsigned char)s[k] < 0x20 || s[k] == 0x7f ? '?' : s[k];
    out[n] = '\0';
}

static int64_t take_number(const PGresult *r, int i, int column, int64_t null)
{
    return PQgetisnull(r, i, column) ? null : strtoll(PQgetvalue(r, i, column), NULL, 10);
}

void tr_pg_sql_row(const PGresult *r, int i, struct tr_row_whole *w)
{
    *w = (struct tr_row_whole){.delivered = !PQgetisnull(r, i, 19)};
    struct tr_row *b = &w->bill;
    struct tr_row_delivery *d = &w->delivery;
    tr_pg_sql_text(r, i, 0, b->stream_id, sizeof(b->stream_id));
    tr_pg_sql_text(r, i, 1, b->request_id, sizeof(b->request_id));
    tr_pg_sql_text(r, i, 2, b->key, sizeof(b->key));
    tr_pg_sql_text(r, i, 3, b->model, sizeof(b->model));
    tr_pg_sql_text(r, i, 4, b->status, sizeof(b->status));
    tr_pg_sql_text(r, i, 5, b->reason, sizeof(b->reason));
    memcpy(d->stream_id, b->stream_id, sizeof(d->stream_id));
    int64_t *const number[] = {&b->created_us,    &b->first_token_us,    &b->finished_us,
                               &b->disconnect_us, &b->cancel_ack_us,     &d->first_byte_us,
                               &d->closed_us,     &b->choices,           &b->prompt_tokens,
                               &b->cached_tokens, &b->completion_tokens, &b->overrun_tokens,
                               &b->last_token,    &d->delivered_tokens};
    for (int k = 0; k < (int)(sizeof(number) / sizeof(number[0])); k++)
        *number[k] = take_number(r, i, 6 + k, number[k] == &b->last_token ? -1 : 0);
}

/* ---- the schema ---- */

const char *tr_pg_sql_step(unsigned version)
{
    static const char *const step[] = {
        "CREATE TABLE tokenring_schema(version integer NOT NULL);"
        "INSERT INTO tokenring_schema VALUES (0);"
        "CREATE TABLE tokenring_requests(stream_id text COLLATE \"C\" PRIMARY KEY,"
        "request_id text NOT NULL,key text NOT NULL,model text NOT NULL,status text NOT NULL,"
        "reason text NOT NULL,created_at timestamptz,first_token_at timestamptz,"
        "finished_at timestamptz,choices bigint NOT NULL,prompt_tokens bigint NOT NULL,"
        "cached_tokens bigint NOT NULL,completion_tokens bigint NOT NULL,"
        "overrun_tokens bigint NOT NULL,last_token bigint,disconnect_at timestamptz,"
        "cancel_ack_at timestamptz,first_byte_at timestamptz,delivered_tokens bigint,"
        "closed_at timestamptz);"
        "CREATE INDEX tokenring_requests_created ON tokenring_requests(created_at NULLS "
        "FIRST,stream_id);"
        "CREATE TABLE tokenring_deliveries(stream_id text COLLATE \"C\" PRIMARY KEY,"
        "first_byte_at timestamptz,delivered_tokens bigint NOT NULL,closed_at timestamptz);"};
    _Static_assert(sizeof(step) / sizeof(step[0]) == TR_PG_VERSION, "a step for each version");
    return version >= 1 && version <= TR_PG_VERSION ? step[version - 1] : NULL;
}
