/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger_tool/verify.h"

#include "shm/close.h"
#include "shm/stream_id.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct case_ {
    const struct tr_row_whole *w;
    void (*fn)(void *arg, const char *sentence);
    void *arg;
};

__attribute__((format(printf, 2, 3))) static void wrong(const struct case_ *c, const char *fmt, ...)
{
    char what[256], line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    snprintf(line, sizeof(line), "%s: %s", c->w->bill.stream_id, what);
    c->fn(c->arg, line);
}

static void look_at_words(const struct case_ *c)
{
    const struct tr_row *r = &c->w->bill;
    struct tr_stream_id id;
    const char *status = NULL;
    for (unsigned i = 0; i < TR_CLOSE_COUNT && !status; i++)
        if (strcmp(tr_close_info((enum tr_close)i)->reason, r->reason) == 0)
            status = tr_state_name(tr_close_info((enum tr_close)i)->state);
    if (tr_stream_id_parse(r->stream_id, strlen(r->stream_id), &id))
        wrong(c, "no stream id");
    if (!status)
        wrong(c, "the reason '%s' is not known", r->reason);
    else if (strcmp(status, r->status) != 0)
        wrong(c, "the reason '%s' goes with status %s, not '%s'", r->reason, status, r->status);
}

static void look_at_counts(const struct case_ *c)
{
    const struct tr_row *r = &c->w->bill;
    const struct {
        const char *name;
        int64_t value, least;
    } count[] = {{"choices", r->choices, 1},
                 {"prompt_tokens", r->prompt_tokens, 0},
                 {"cached_tokens", r->cached_tokens, 0},
                 {"completion_tokens", r->completion_tokens, 0},
                 {"overrun_tokens", r->overrun_tokens, 0},
                 {"last_token", r->last_token, -1},
                 {"delivered_tokens", c->w->delivered ? c->w->delivery.delivered_tokens : 0, 0}};
    for (size_t i = 0; i < sizeof(count) / sizeof(count[0]); i++)
        if (count[i].value < count[i].least)
            wrong(c, "%s is %" PRId64, count[i].name, count[i].value);
    int64_t sampled; /* somebody may have written anything into the database */
    if (__builtin_add_overflow(r->completion_tokens, r->overrun_tokens, &sampled))
        sampled = INT64_MAX;
    if (sampled > 0 && r->last_token < 0)
        wrong(c, "%" PRId64 " tokens, but no last one", sampled);
    if (sampled == 0 && r->last_token >= 0)
        wrong(c, "a last token, but none was counted");
    if (c->w->delivered && c->w->delivery.delivered_tokens > sampled)
        wrong(c, "%" PRId64 " tokens delivered of %" PRId64, c->w->delivery.delivered_tokens,
              sampled);
}

/* Times of the billing part come from one clock.  Those of the delivery part are turned into wall time
 * later, when that clock may have been set: they are compared among themselves. */
static void look_at_times(const struct case_ *c)
{
    const struct tr_row *r = &c->w->bill;
    const struct tr_row_delivery *d = &c->w->delivery;
    const struct {
        const char *first, *then;
        int64_t a, b;
    } order[] = {{"first token", "arrival", r->created_us, r->first_token_us},
                 {"end", "arrival", r->created_us, r->finished_us},
                 {"end", "first token", r->first_token_us, r->finished_us},
                 {"disconnect", "arrival", r->created_us, r->disconnect_us},
                 {"close", "first byte", d->first_byte_us, c->w->delivered ? d->closed_us : 0}};
    if (!r->created_us || !r->finished_us)
        wrong(c, "no time of its %s", r->created_us ? "end" : "arrival");
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
        if (order[i].a && order[i].b && order[i].b < order[i].a)
            wrong(c, "its %s is before its %s", order[i].first, order[i].then);
    if (r->completion_tokens > 0 && !r->first_token_us)
        wrong(c, "tokens, but no time of the first");
}

void tr_lt_verify_row(const struct tr_row_whole *r, void (*fn)(void *arg, const char *sentence),
                      void *arg)
{
    struct case_ c = {r, fn, arg};
    look_at_words(&c);
    look_at_counts(&c);
    look_at_times(&c);
}
