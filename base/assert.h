/* SPDX-License-Identifier: Apache-2.0 */
/* base/assert.h - assertions that stay on in release builds.
 *
 * For our own mistakes only.  Bytes from a socket, a file or another process are input: they are
 * checked and answered, never asserted. */
#ifndef TR_BASE_ASSERT_H
#define TR_BASE_ASSERT_H

/* Writes one line to stderr and aborts.  Never returns. */
__attribute__((noreturn)) void tr_assert_failed(const char *cond, const char *file, int line);

#define TR_ASSERT(cond) ((cond) ? (void)0 : tr_assert_failed(#cond, __FILE__, __LINE__))

/* For conditions that are dear to compute: only in builds with TR_DEBUG. */
#ifdef TR_DEBUG
#define TR_DASSERT(cond) TR_ASSERT(cond)
#else
#define TR_DASSERT(cond) ((void)sizeof(cond))
#endif

#endif
