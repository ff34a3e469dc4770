/* SPDX-License-Identifier: Apache-2.0 */
/* text/nfc.h - brings text to the normal form NFC (Unicode Standard Annex #15), as the tokenisers of some
 * models do before they cut it.
 *
 * utf8proc says what characters are made of; putting marks into order is done here, because there it takes
 * time in the square of their number, and a request may be nothing else.  Time is in proportion to the text.
 * Nearly all text is in NFC already, which a table of the characters that might not be tells: what lies
 * between those is copied.
 *
 * The table is made once, then only read.  Any thread. */
#ifndef TR_TEXT_NFC_H
#define TR_TEXT_NFC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes that the NFC of one byte has. */
#define TR_NFC_GROWTH 3

struct tr_nfc;

/* NULL when memory has run out. */
struct tr_nfc *tr_nfc_open(void);
void tr_nfc_close(struct tr_nfc *n); /* NULL is fine */

/* Scratch memory of one encoding; zero is the start. */
struct tr_nfc_run {
    char *text;
    size_t text_cap;
    int32_t *chars;
    size_t chars_cap;
};

void tr_nfc_run_fini(struct tr_nfc_run *r);

/* The NFC of text[0, *len), valid UTF-8; *len becomes its length.  It is the text itself where that is in NFC,
 * else in the run until the next call.  NULL when memory has run out. */
const char *tr_nfc_text(const struct tr_nfc *n, struct tr_nfc_run *r, const char *text,
                        size_t *len);

#endif
