/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/trail.h"

#include "base/log.h"
#include "shm/ring.h"

#include <stdio.h>
#include <string.h>

struct when {
    char text[32];
};

/* Seconds since 1970, as in the ledger. */
static struct when when(int64_t us)
{
    struct when w = {.text = "never"};

    if (us > 0)
        snprintf(w.text, sizeof(w.text), "%lld.%06d", (long long)(us / 1000000),
                 (int)(us % 1000000));
    return w;
}

void tr_trail_bill(const struct tr_row *r)
{
    if (!tr_log_on(TR_LOG_DEBUG) || strcmp(r->status, tr_state_name(TR_CANCELLED)) != 0)
        return;
    char last[24] = "none";
    if (r->last_token >= 0)
        snprintf(last, sizeof(last), "%lld", (long long)r->last_token);
    tr_log(TR_LOG_DEBUG,
           "stream %s billed: disconnect seen %s, cancel acknowledged %s, over %s; tokens %lld and "
           "%lld behind the end, the last of all %s; request %s",
           r->stream_id, when(r->disconnect_us).text, when(r->cancel_ack_us).text,
           when(r->finished_us).text, (long long)r->completion_tokens, (long long)r->overrun_tokens,
           last, r->request_id);
}

void tr_trail_delivery(const struct tr_row_delivery *d)
{
    tr_log(TR_LOG_DEBUG, "stream %s delivered: %lld tokens, first byte %s, closed %s", d->stream_id,
           (long long)d->delivered_tokens, when(d->first_byte_us).text, when(d->closed_us).text);
}
