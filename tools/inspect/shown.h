/* SPDX-License-Identifier: Apache-2.0 */
/* tools/inspect/shown.h - strings of a file for a terminal, which obeys what stands in them.
 *
 * What is no printable character of UTF-8 becomes an escape; what is too long is cut and says so. */
#ifndef TR_INSPECT_SHOWN_H
#define TR_INSPECT_SHOWN_H

#include "base/gguf.h"

enum { TR_SHOWN_BYTES = 400 };

/* At most `most` bytes of it (<= 80), in `out`, which comes back. */
const char *tr_shown(char out[TR_SHOWN_BYTES], struct tr_str s, size_t most);

/* "u32", "string", "array of f32". */
const char *tr_shown_type(char out[32], const struct tr_gguf_entry *e);

/* A value on one line: strings in quotes, of arrays the length and what they begin with. */
const char *tr_shown_value(char out[TR_SHOWN_BYTES], const struct tr_gguf_entry *e);

/* "1.5 GB", with the unit that leaves at least one digit before the point; powers of 1000. */
const char *tr_shown_bytes(char out[32], uint64_t bytes);

#endif
