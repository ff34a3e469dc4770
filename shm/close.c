/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/close.h"

static const struct tr_close_info table[TR_CLOSE_COUNT] = {
#define X(symbol, state, finish, err, reason, level, told, cut, words)                             \
    [TR_CLOSE_##symbol] = {TR_##state,     TR_FINISH_##finish,   TR_##err,                         \
                           reason,         TR_STAT_END_##symbol, TR_LOG_##level,                   \
                           TR_TOLD_##told, TR_CUT_##cut,         words},
#include "shm/close.def"
#undef X
};

const struct tr_close_info *tr_close_info(enum tr_close c)
{
    return &table[(unsigned)c < TR_CLOSE_COUNT ? c : TR_CLOSE_INTERNAL];
}

enum tr_close tr_close_by(uint32_t err)
{
    for (unsigned c = 0; err != TR_OK && c < TR_CLOSE_COUNT; c++)
        if ((uint32_t)table[c].err == err)
            return (enum tr_close)c;
    return TR_CLOSE_INTERNAL;
}

enum tr_close tr_close_of(uint32_t state, uint32_t finish, uint32_t err)
{
    if (state == TR_CANCELLED || state == TR_ERROR)
        return tr_close_by(err);
    for (unsigned c = 0; c < TR_CLOSE_COUNT; c++)
        if ((uint32_t)table[c].state == state && (uint32_t)table[c].finish == finish)
            return (enum tr_close)c;
    return TR_CLOSE_INTERNAL;
}
