/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/row.h - one request as the ledger keeps it, and its two parts as they arrive.
 *
 * The billing part is written at settlement and never changed; the delivery part follows when the
 * frontend lets go of the stream, or never (its columns are then null).  They come in either order and
 * meet by the stream id.
 *
 * Times are microseconds of the wall clock since 1970, 0 = null.  Text is NUL-ended and safe to hand on:
 * ids and key are printable ASCII, the model's name is valid UTF-8 without control characters; what
 * another process wrote otherwise stands as '?'. */
#ifndef TR_LEDGER_ROW_H
#define TR_LEDGER_ROW_H

#include "shm/area.h"
#include "shm/bill.h"
#include "shm/stream_id.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TR_ROW_MODEL_BYTES = 128, TR_ROW_WORD_BYTES = 32 };

struct tr_row {
    char request_id[TR_ID_BYTES];
    char stream_id[TR_STREAM_ID_BYTES]; /* unique: one row for each */
    char key[TR_KEY_BYTES];
    char model[TR_ROW_MODEL_BYTES];
    char status[TR_ROW_WORD_BYTES]; /* completed, incomplete, cancelled, error */
    char reason[TR_ROW_WORD_BYTES]; /* shm/close.def */
    int64_t created_us, first_token_us, finished_us;
    int64_t choices, prompt_tokens, cached_tokens, completion_tokens, overrun_tokens;
    int64_t last_token; /* id; -1 = null */
    int64_t disconnect_us, cancel_ack_us;
};

struct tr_row_delivery {
    char stream_id[TR_STREAM_ID_BYTES];
    int64_t first_byte_us;
    int64_t delivered_tokens;
    int64_t closed_us;
};

/* What travels through the spool. */
enum tr_entry_kind { TR_ENTRY_BILL = 1, TR_ENTRY_DELIVERY = 2 };

struct tr_entry {
    enum tr_entry_kind kind;
    union {
        struct tr_row bill;
        struct tr_row_delivery delivery;
    };
};

/* What is read from a database. */
struct tr_row_whole {
    struct tr_row bill;
    struct tr_row_delivery delivery; /* meaningful if delivered */
    bool delivered;
};

/* What engines and frontends wrote, as entries.  `model` is the served name. */
void tr_row_of_bill(const struct tr_bill *b, const char *model, struct tr_entry *out);
void tr_row_of_delivery(const struct tr_delivery *d, struct tr_entry *out);

/* Makes text that came from a file or another process what it is to be (above). */
void tr_row_clean(struct tr_row *r);

#endif
