/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/digest.h - SHA-256 of bytes that are all there, by OpenSSL.
 *
 * For API keys, which are kept as their hashes, and for the built-in page.  Frontend (event loop only),
 * supervisor, and the subcommand `key`: processes that hash in one thread. */
#ifndef TR_FRONTEND_DIGEST_H
#define TR_FRONTEND_DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum { TR_DIGEST_BYTES = 32 };

/* OpenSSL reads its configuration and finds its code: before the sandbox, where it would have to go on without
 * a configuration.  Who does not call it does so with the first tr_digest.  Once for a process and its
 * children.  0, or -ENOSYS: it has no SHA-256. */
int tr_digest_load(void);

/* 0; -ENOSYS, or -ENOMEM: *out is nobody's hash and must not be used. */
int tr_digest(const void *data, size_t len, uint8_t out[TR_DIGEST_BYTES]);

#endif
