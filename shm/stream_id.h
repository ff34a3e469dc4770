/* SPDX-License-Identifier: Apache-2.0 */
/* shm/stream_id.h - the name of a request towards the outside: slot, generation, random bits.
 *
 * "tr-<slot>-<generation>-<64 random bits>", all hexadecimal.  Whoever names a stream must know all
 * three; slot and generation find its ring without a table, the random bits cannot be guessed. */
#ifndef TR_SHM_STREAM_ID_H
#define TR_SHM_STREAM_ID_H

#include <stddef.h>
#include <stdint.h>

enum { TR_STREAM_ID_BYTES = 40 };

struct tr_stream_id {
    uint32_t slot, gen;
    uint64_t rand;
};

/* NUL-ended text into `out`. */
void tr_stream_id_format(struct tr_stream_id id, char out[TR_STREAM_ID_BYTES]);

/* 0, or -EINVAL for anything that tr_stream_id_format would not have written. */
int tr_stream_id_parse(const char *text, size_t len, struct tr_stream_id *id);

#endif
