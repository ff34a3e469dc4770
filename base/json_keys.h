/* SPDX-License-Identifier: Apache-2.0 */
/* base/json_keys.h - whether a key stands twice in an object; for json.c.
 *
 * Linear in the members however they are chosen: small objects are compared pair by pair, larger
 * ones go through a table with a keyed hash, so nobody can send keys that meet. */
#ifndef TR_BASE_JSON_KEYS_H
#define TR_BASE_JSON_KEYS_H

#include "base/json.h"

/* Key of the hash: zero at the start of a parse, drawn when first needed. */
struct tr_json_seed {
    uint64_t k[2];
    bool drawn;
};

/* 0 and the second of two equal keys in *twice, untouched if there is none; -ENOMEM. */
int tr_json_twice(const struct tr_json *obj, struct tr_json_seed *seed,
                  const struct tr_json **twice);

#endif
