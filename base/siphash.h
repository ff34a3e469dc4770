/* SPDX-License-Identifier: Apache-2.0 */
/* base/siphash.h - SipHash-2-4 (Aumasson, Bernstein 2012): 64 bits of a text under a secret key.  Pure.
 *
 * For tables whose keys others choose: who does not know the key can neither find two texts with the same
 * hash nor tell which bits one will have, whatever he has seen of the table's behaviour. */
#ifndef TR_BASE_SIPHASH_H
#define TR_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t tr_siphash(const uint64_t key[2], const void *text, size_t len);

#endif
