/* SPDX-License-Identifier: Apache-2.0 */
/* shm/claim.h - the owner word of a slot: admission by compare-and-swap.
 *
 * The engine keeps open + claimed + waiting + running = n_admit by opening slots; a frontend takes
 * an open one.  The word only allocates: at admission the engine notes owner and epoch in the ring
 * and obeys that note alone.  Nonsense here costs free slots until the engine's next sweep, and
 * requests that are claimed but not yet admitted; never one that is.  So a frontend believes an open
 * word only if the ring says the same, takes a generation at most once, looks whether its claim still
 * stands until the ring shows a request (tr_claim_is_lost), and then whether it is its own
 * (tr_request_is_mine).
 *
 *   closed --engine--> open --frontend, CAS--> claimed --engine, at admission--> taken --engine--> closed
 *                        ^--- engine's sweep (owner dead) ---'  ^--frontend gives back: claimed -> open
 *
 * Word: state in bits 0..7, area 8..15, low 16 bits of the area's epoch 16..31, generation 32..63. */
#ifndef TR_SHM_CLAIM_H
#define TR_SHM_CLAIM_H

#include "shm/layout.h"

#include <stdbool.h>

enum tr_claim_state { TR_CLAIM_CLOSED, TR_CLAIM_OPEN, TR_CLAIM_CLAIMED, TR_CLAIM_TAKEN };

struct tr_claim {
    uint8_t state;
    uint8_t area;
    uint16_t epoch;
    uint32_t gen;
};

struct tr_claims {
    struct tr_region_head head;
    TR_LINE _Atomic uint64_t word[]; /* [n_slots] */
};

uint64_t tr_claim_pack(struct tr_claim c);
struct tr_claim tr_claim_unpack(uint64_t word);

struct tr_shm;

/* Frontend: claims `n` slots for this process, all or none.  slots[i], gens[i] are filled.
 * 0, or -EAGAIN when fewer than n are open; nothing is then held. */
int tr_claim_take(struct tr_shm *s, uint32_t n, uint32_t *slots, uint32_t *gens);

/* Frontend: whether a slot looks open now; nothing is held.  Who would be refused is told before he
 * costs more than the look. */
bool tr_claim_any(const struct tr_shm *s);

/* Frontend: whether what it has claimed and submitted will not be admitted, because the word says
 * something else and the ring has no request. */
bool tr_claim_is_lost(const struct tr_shm *s, uint32_t slot, uint32_t gen);

/* Frontend: gives back a claimed slot that was not submitted. */
void tr_claim_give(struct tr_shm *s, uint32_t slot, uint32_t gen);

/* Engine: stores a word (release: what the slot held before is gone). */
void tr_claim_set(struct tr_shm *s, uint32_t slot, struct tr_claim c);

/* Engine: reads a word (acquire: pairs with the CAS of tr_claim_take). */
struct tr_claim tr_claim_get(const struct tr_shm *s, uint32_t slot);

/* Engine: claimed by (area, epoch) or open, with this gen -> wanted; 0 if the word was no longer `old`. */
int tr_claim_swap(struct tr_shm *s, uint32_t slot, struct tr_claim old, struct tr_claim wanted);

#endif
