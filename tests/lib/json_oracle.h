/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/json_oracle.h - our JSON parser beside jansson, which was written by others.
 *
 * Both take and refuse the same texts, and what both take is the same tree: kinds, order of members,
 * strings byte for byte, integers exactly, reals to the last bit.  Known differences:
 *
 *   - integers beyond int64 and numbers beyond a double are kept by us (callers ask with a range)
 *   - NUL in a key is kept by us
 *   - a NUL after a number or a word is lost by jansson, and refused by us
 *   - nesting beyond TR_JSON_DEPTH and more than TR_JSON_NODES values are refused by us */
#ifndef TR_TESTS_JSON_ORACLE_H
#define TR_TESTS_JSON_ORACLE_H

#include <stdbool.h>
#include <stddef.h>

/* NULL, or in what the two differ (static).  *both: whether both took it. */
const char *json_disagree(const char *s, size_t len, bool *both);

#endif
