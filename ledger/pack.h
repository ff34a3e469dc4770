/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/pack.h - an entry as bytes: one map of msgpack, {"kind": 1 | 2, column: value, ...}.
 *
 * Columns have the names of struct tr_row and struct tr_row_delivery.  One that is missing has its
 * empty value (an older version wrote the map), one that is unknown is skipped (a newer one).  Read as
 * input: bounded, nothing is allocated, and text comes out clean as row.h says. */
#ifndef TR_LEDGER_PACK_H
#define TR_LEDGER_PACK_H

#include "ledger/row.h"

enum { TR_PACK_MAX = 1024 }; /* bytes of any entry */

/* Bytes written, at most TR_PACK_MAX. */
size_t tr_pack(const struct tr_entry *e, uint8_t out[TR_PACK_MAX]);

/* 0, or -EINVAL for anything but such a map with a known kind and a stream id; *e is then undefined. */
int tr_unpack(const uint8_t *in, size_t len, struct tr_entry *e);

#endif
