/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/grammar_program.c - a program image that another process wrote, and an answer under it.
 *
 * What is accepted must be safe to follow: the matcher takes any bytes, and a mask is what the matcher takes
 * token by token.  So that mutations get past the digests, the input's are put right first; the first byte
 * says whether they are. */
#include "base/assert.h"
#include "grammar/image.h"
#include "grammar/mask.h"

#include <stdlib.h>
#include <string.h>

enum { VOCAB = 300 };

static const char *const WORDS[] = {
    "{\"", "\":", "\",\"", "ab",       "abc",      "12",  ".5",       "e1",    "[[",   "]]",
    "}}",  "tr",  "ue",    "\xc3\xa9", "\xe6\xbc", " \n", "aaaaaaaa", "\\u00", "null", "a\"}"};
enum { N_WORDS = sizeof(WORDS) / sizeof(WORDS[0]) };

/* Ids: 0 ends, 1 to 3 are control tokens, then all bytes, then words. */
static struct tr_gpiece_of piece(void *arg, uint32_t id)
{
    static uint8_t bytes[256];

    (void)arg;
    if (id < 4)
        return (struct tr_gpiece_of){.kind = id ? TR_GPIECE_CONTROL : TR_GPIECE_EOG};
    if (id < 260) {
        bytes[id - 4] = (uint8_t)(id - 4);
        return (struct tr_gpiece_of){&bytes[id - 4], 1, TR_GPIECE_TEXT};
    }
    const char *s = WORDS[(id - 260) % N_WORDS];
    return (struct tr_gpiece_of){s, strlen(s), TR_GPIECE_TEXT};
}

/* Digests and `begin` of whatever these parts are. */
static void put_right(uint8_t *image, size_t len)
{
    struct tr_gprog p;
    uint16_t order[TR_GRAM_RULES_MAX];
    uint32_t flags;

    if (tr_gprog_lay_out(&p, image, len, NULL) < 0 || tr_gprog_check_parts(&p, NULL) < 0 ||
        tr_gprog_check_left(&p, order, NULL) < 0)
        return;
    for (uint32_t i = p.n_rules; i-- > 0;) {
        uint8_t *rule = image + (p.rules - image) + (size_t)order[i] * TR_GRULE_SIZE;
        tr_grule_begin(&p, order[i], rule + 8, &flags);
        tr_g_put32(rule + 4, flags);
    }
    for (uint32_t g = 0; g < p.n_groups; g++)
        tr_ggroup_digest(&p, g, image + TR_GHEAD_SIZE + (size_t)g * TR_GGROUP_SIZE + 8);
}

static bool takes(struct tr_gmatch *m, const struct tr_gprog *p, uint32_t id)
{
    struct tr_gpiece_of o = piece(NULL, id);

    if (o.kind == TR_GPIECE_EOG)
        return tr_gmatch_may_end(m, p);
    return o.kind == TR_GPIECE_CONTROL ? tr_gmatch_token(m, p, id)
                                       : tr_gmatch_bytes(m, p, o.bytes, o.len);
}

static void follow(const struct tr_gprog *p, struct tr_gmasks *k, uint32_t choice)
{
    struct tr_gmatch m;
    uint32_t mask[(VOCAB + 31) / 32];

    tr_gmatch_start(&m, p);
    for (int step = 0; step < 12; step++) {
        uint32_t n = 0, pick = 0;
        if (!tr_gmasks_fill(k, p, &m, mask))
            return;
        for (uint32_t id = 0; id < VOCAB; id++) {
            struct tr_gmatch after = m;
            bool bit = mask[id / 32] >> id % 32 & 1, yes = takes(&after, p, id);
            TR_ASSERT(bit == yes || after.overflow);
            if (bit && id && choice++ % ++n == 0)
                pick = id;
        }
        if (!pick || !takes(&m, p, pick))
            return;
        choice = choice * 2654435761u + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tr_gpieces pieces;
    static struct tr_gmasks *masks;
    struct tr_gprog p;
    size_t len;
    void *image;

    if (!masks) {
        TR_ASSERT(tr_gpieces_build(VOCAB, piece, NULL, &image, &len) == 0);
        TR_ASSERT(tr_gpieces_open(&pieces, image, len, NULL) == 0);
        masks = tr_gmasks_open(&pieces, 1 << 20);
        TR_ASSERT(masks);
    }
    if (size < 2)
        return 0;
    uint8_t *copy = malloc(size - 1);
    TR_ASSERT(copy);
    memcpy(copy, data + 1, size - 1);
    if (data[0] & 1)
        put_right(copy, size - 1);
    if (tr_gprog_open(&p, copy, size - 1, VOCAB, NULL) == 0)
        for (uint32_t i = 0; i < 3; i++)
            follow(&p, masks, data[0] + 77 * i);
    free(copy);
    return 0;
}
