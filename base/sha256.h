/* SPDX-License-Identifier: Apache-2.0 */
/* base/sha256.h - SHA-256 of bytes that are all there (FIPS 180-4).
 *
 * For API keys, which are kept as their hashes: the time it takes depends on the length alone.  Not a
 * library's: those read files when they start, which a process in its sandbox cannot. */
#ifndef TR_BASE_SHA256_H
#define TR_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { TR_SHA256_BYTES = 32 };

void tr_sha256(const void *data, size_t len, uint8_t out[TR_SHA256_BYTES]);

/* 64 digits, of either case, and nothing else.  0, or -EINVAL and out as it was. */
int tr_sha256_parse(const char *hex, size_t len, uint8_t out[TR_SHA256_BYTES]);
/* 64 digits of lower case and NUL. */
void tr_sha256_format(const uint8_t hash[TR_SHA256_BYTES], char out[2 * TR_SHA256_BYTES + 1]);

#endif
