/* SPDX-License-Identifier: Apache-2.0 */
/* shm/close.h - the ways a request ends: the table that engine (metrics), ledger (reason, status) and
 * frontends (log, what the client is given) read, so that all of them say the same.
 *
 * It stands here and not in frontend/ because all three need it and none of them may include
 * another.  Any process, any thread; what another process wrote may be given to it as it is. */
#ifndef TR_SHM_CLOSE_H
#define TR_SHM_CLOSE_H

#include "base/err.h"
#include "base/log.h"
#include "shm/ring.h"
#include "shm/stat.h"

enum tr_close {
#define X(symbol, ...) TR_CLOSE_##symbol,
#include "shm/close.def"
#undef X
    TR_CLOSE_COUNT
};

enum tr_told { TR_TOLD_EVENT, TR_TOLD_NOBODY };
enum tr_cut { TR_CUT_OPEN, TR_CUT_RESET, TR_CUT_PEER };

struct tr_close_info {
    enum tr_state state; /* terminal */
    enum tr_finish finish;
    enum tr_err err;    /* TR_OK for completed and incomplete */
    const char *reason; /* word of ledger, metrics and log */
    enum tr_stat_id stat;
    enum tr_log_level level;
    enum tr_told told;
    enum tr_cut cut;
    const char *words;
};

/* Never NULL, static storage; a value outside the table is INTERNAL. */
const struct tr_close_info *tr_close_info(enum tr_close c);

/* The row of an end as a ring or a record tells it.  Nonsense is INTERNAL. */
enum tr_close tr_close_of(uint32_t state, uint32_t finish, uint32_t err);

/* The row of a cause; one that no request can end by is INTERNAL. */
enum tr_close tr_close_by(uint32_t err);

#endif
