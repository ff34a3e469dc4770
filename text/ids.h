/* SPDX-License-Identifier: Apache-2.0 */
/* text/ids.h - the ids of an encoding: the first cap are kept, all are counted. */
#ifndef TR_TEXT_IDS_H
#define TR_TEXT_IDS_H

#include <stddef.h>
#include <stdint.h>

struct tr_ids {
    int32_t *ids;
    size_t cap;
    size_t n;
};

static inline void tr_ids_push(struct tr_ids *out, int32_t id)
{
    if (out->n < out->cap)
        out->ids[out->n] = id;
    out->n++;
}

#endif
