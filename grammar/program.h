/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/program.h - a program: what an answer may be, in one flat image.
 *
 * Made in a frontend (grammar/build.h), checked once by the engine, then read by matcher and masks.
 * Opening an image checks all that its readers rely on, in time linear in its length, since another
 * process wrote it; nobody may be able to change it afterwards.
 *
 * An image is a recursive transition network over bytes.  Each rule is an automaton whose states have
 *   byte edges    lo..hi -> state                ascending, disjoint
 *   call edges    rule, then -> state            ascending; what lies between is a text of that rule
 *   token edges   id -> state                    ascending; a token that has no bytes
 * and may be final.  A rule's first state is its start; it is never final (no rule has the empty text),
 * and no rule calls itself before it has taken a byte or a token.  Rules that can reach each other
 * form a group, and calls go to the own group or to an earlier one.
 *
 * Format, all little endian, no alignment asked for:
 *   header   u32 magic, version, length, flags, n_groups, n_rules, n_states, n_edges, n_tokens, start
 *   groups   n_groups * { u32 first rule, u32 first state, u8 digest[16] }
 *   rules    n_rules * { u32 first state, u32 flags, u8 begin[32] }
 *   states   n_states * { u32 first edge; u16 byte edges, call edges, token edges; u16 final }
 *   edges    n_edges * { u8 lo, hi; u16 to }, { u16 rule; u16 to } or { u16 index in tokens; u16 to }
 *   tokens   n_tokens * u32 id, ascending
 * A rule's `begin` has a bit for each byte that a text of it can begin with (bit b % 8 of byte b / 8), its flag 1
 * says that one can begin with a token: calls that lead nowhere are not opened.
 * A group's digest (BLAKE2s, 16 bytes) covers its automata and the digests of what they call: equal
 * digests are equal languages, whatever program they stand in. */
#ifndef TR_GRAMMAR_PROGRAM_H
#define TR_GRAMMAR_PROGRAM_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest image. */
#define TR_GRAM_BYTES ((size_t)256 << 10)
#define TR_GRAM_STATES_MAX 65000
#define TR_GRAM_RULES_MAX 4096

struct tr_gprog {
    const uint8_t *image; /* borrowed */
    const uint8_t *groups, *rules, *states, *edges, *tokens;
    uint32_t n_groups, n_rules, n_states, n_edges, n_tokens;
    uint32_t start;     /* the first state of the rule that a whole answer is */
    bool empty;         /* the empty answer is one, too */
    uint8_t digest[16]; /* of all of it: equal ones have equal states */
};

/* 0, or -EINVAL and a sentence.  `image` is borrowed and stays as it is while `p` is used.  n_vocab: ids of
 * token edges lie below. */
int tr_gprog_open(struct tr_gprog *p, const uint8_t *image, size_t len, uint32_t n_vocab,
                  struct tr_errbuf *err);

#endif
