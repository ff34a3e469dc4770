/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/sections.h - a whole answer in its sections: what is said, thought and called, in the order in
 * which the model wrote it, each with its text as JSON writes it.
 *
 * Path: http > tokens > subq > engine > step > ring > [detok] > event > socket
 *
 * Frontend only.  Made in pieces out of the ring (retell.h).  Memory is the texts' own, plus a row for each
 * section.
 *
 * Out of memory: `failed`, and nothing of it may be used. */
#ifndef TR_FRONTEND_SECTIONS_H
#define TR_FRONTEND_SECTIONS_H

#include "frontend/retell.h"

struct tr_section {
    enum tr_part_kind kind; /* TEXT, REASONING, or CALL, whose text is its arguments */
    uint32_t call;
    bool done;             /* CALL: it is complete */
    size_t begin, end;     /* bytes of `text` */
    size_t name, name_end; /* CALL */
};

struct tr_sections {
    struct tr_emit text; /* insides of strings, one after the other */
    struct tr_section *at;
    uint32_t n, cap;
    uint32_t calls; /* complete ones */
    bool failed;
};

/* All zero is empty. */
void tr_sections_fini(struct tr_sections *s);

/* Goes on with at most *budget tokens, which it counts down.  True: all of the answer is there. */
bool tr_sections_make(struct tr_sections *s, struct tr_retell *r, uint64_t *budget);

/* Whether there is one of this kind. */
bool tr_sections_have(const struct tr_sections *s, enum tr_part_kind kind);

/* One string of all of this kind, TEXT or REASONING, joined; of section `i`; the name of call `i`. */
void tr_sections_joined(const struct tr_sections *s, enum tr_part_kind kind, struct tr_emit *e);
void tr_sections_text(const struct tr_sections *s, uint32_t i, struct tr_emit *e);
void tr_sections_name(const struct tr_sections *s, uint32_t i, struct tr_emit *e);

#endif
