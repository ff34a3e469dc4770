/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/image.h - reading the parts of a program image (format: grammar/program.h).  Private to grammar/. */
#ifndef TR_GRAMMAR_IMAGE_H
#define TR_GRAMMAR_IMAGE_H

#include "base/assert.h"
#include "grammar/program.h"

#include <string.h>

#define TR_GIMAGE_MAGIC 0x4d475254u /* "TRGM" */
#define TR_GIMAGE_VERSION 1u
#define TR_GIMAGE_EMPTY 1u /* flag: the empty answer is one, too */

#define TR_GDIGEST 16

enum { TR_GHEAD_SIZE = 40, TR_GGROUP_SIZE = 24, TR_GRULE_SIZE = 40, TR_GSTATE_SIZE = 12 };
enum { TR_GEDGE_SIZE = 4, TR_GTOKEN_SIZE = 4 };

static inline uint16_t tr_g_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap16(v);
#endif
    return v;
}

static inline uint32_t tr_g_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return v;
}

static inline void tr_g_put16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void tr_g_put32(uint8_t *p, uint32_t v)
{
    tr_g_put16(p, v & 0xffff);
    tr_g_put16(p + 2, v >> 16);
}

struct tr_gstate {
    const uint8_t *edge; /* byte edges, call edges, token edges */
    uint16_t n_bytes, n_calls, n_tokens;
    bool final;
};

static inline struct tr_gstate tr_gstate_at(const struct tr_gprog *p, uint32_t state)
{
    const uint8_t *s = p->states + (size_t)state * TR_GSTATE_SIZE;
    TR_ASSERT(p->edges); /* of a program that was checked, also if there are none */
    return (struct tr_gstate){
        .edge = p->edges + (size_t)tr_g_u32(s) * TR_GEDGE_SIZE,
        .n_bytes = tr_g_u16(s + 4),
        .n_calls = tr_g_u16(s + 6),
        .n_tokens = tr_g_u16(s + 8),
        .final = tr_g_u16(s + 10) != 0,
    };
}

/* Final and without a way on: a rule that comes here is left at once. */
static inline bool tr_gstate_is_end(const struct tr_gprog *p, uint32_t state)
{
    const uint8_t *s = p->states + (size_t)state * TR_GSTATE_SIZE;
    return tr_g_u16(s + 10) && !(tr_g_u16(s + 4) | tr_g_u16(s + 6) | tr_g_u16(s + 8));
}

static inline uint32_t tr_grule_start(const struct tr_gprog *p, uint32_t rule)
{
    return tr_g_u32(p->rules + (size_t)rule * TR_GRULE_SIZE);
}

static inline bool tr_grule_begins(const struct tr_gprog *p, uint32_t rule, uint8_t byte)
{
    return p->rules[(size_t)rule * TR_GRULE_SIZE + 8 + byte / 8] >> byte % 8 & 1;
}

#define TR_GRULE_TOKEN 1u /* flag: a text of it can begin with a token */

static inline bool tr_grule_begins_token(const struct tr_gprog *p, uint32_t rule)
{
    return tr_g_u32(p->rules + (size_t)rule * TR_GRULE_SIZE + 4) & TR_GRULE_TOKEN;
}

static inline const uint8_t *tr_ggroup_at(const struct tr_gprog *p, uint32_t group)
{
    return p->groups + (size_t)group * TR_GGROUP_SIZE;
}

/* The counts and parts of an image, from its header.  Nothing but lengths is checked. */
int tr_gprog_lay_out(struct tr_gprog *p, const uint8_t *image, size_t len, struct tr_errbuf *err);

/* Groups, rules, states and edges are in order and name nothing that is not there. */
int tr_gprog_check_parts(const struct tr_gprog *p, struct tr_errbuf *err);

/* No rule begins with itself.  `order`: all rules, each before those it begins with. */
int tr_gprog_check_left(const struct tr_gprog *p, uint16_t order[TR_GRAM_RULES_MAX],
                        struct tr_errbuf *err);

/* The group a state belongs to. */
uint32_t tr_gstate_group(const struct tr_gprog *p, uint32_t state);

/* What the rule's `begin` and flags must be, if those of the rules it begins with are right. */
void tr_grule_begin(const struct tr_gprog *p, uint32_t rule, uint8_t begin[32], uint32_t *flags);

/* The digest of a group, from the automata in the image and the digests of earlier groups. */
void tr_ggroup_digest(const struct tr_gprog *p, uint32_t group, uint8_t out[TR_GDIGEST]);

/* BLAKE2s without a key (RFC 7693), 16 bytes of output. */
struct tr_blake2s {
    uint32_t h[8];
    uint64_t n;
    uint8_t buf[64];
    uint32_t held;
};

void tr_blake2s_init(struct tr_blake2s *b);
void tr_blake2s_add(struct tr_blake2s *b, const void *p, size_t n);
void tr_blake2s_end(struct tr_blake2s *b, uint8_t out[TR_GDIGEST]);

#endif
