/* SPDX-License-Identifier: Apache-2.0 */
/* Masks are made by whoever comes first, the thread or the one who wants them, and are the same: many
 * answers at once, with steps of all lengths between the begin and the end of a pass. */
#include "base/sim_vocab.h"
#include "engine/constrain.h"
#include "grammar/build.h"
#include "grammar/mask.h"
#include "grammar/pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 12, STEPS = 4000 };

static const struct {
    const char *bytes;
    size_t len;
    bool control;
} vocab[] = {
#define X(type, text) {text, sizeof(text) - 1, (type) == TR_SIM_CONTROL},
#include "base/sim_vocab.def"
#undef X
};

static struct tr_gpiece_of piece_of(void *arg, uint32_t id)
{
    (void)arg;
    if (id == TR_SIM_EOS)
        return (struct tr_gpiece_of){.kind = TR_GPIECE_EOG};
    return (struct tr_gpiece_of){vocab[id].bytes, vocab[id].len,
                                 vocab[id].control ? TR_GPIECE_CONTROL : TR_GPIECE_TEXT};
}

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* [a-z]* in brackets of brackets. */
static size_t compile(uint8_t *image, size_t cap)
{
    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode rule = tr_g_rule(b), open = tr_g_bytes(b, "[", 1), close = tr_g_bytes(b, "]", 1);
    tr_gnode letters = tr_g_repeat(
        b, tr_g_class(b, (struct tr_grange[]){{'a', 'z'}, {' ', ' '}}, 2, false), 0, TR_G_INF);
    tr_gnode more = tr_g_repeat(b, tr_g_seq(b, (tr_gnode[]){rule, letters}, 2), 0, TR_G_INF);
    size_t len = 0;
    tr_g_define(b, rule, tr_g_seq(b, (tr_gnode[]){open, letters, more, close}, 4));
    must(tr_gbuild_finish(b, rule, image, cap, &len, NULL) == 0, "a grammar");
    tr_gbuild_free(b);
    return len;
}

static uint32_t count_ids(const uint32_t *mask)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < (TR_SIM_VOCAB_SIZE + 31) / 32; i++)
        n += (uint32_t)__builtin_popcount(mask[i]);
    return n;
}

static uint32_t n_th(const uint32_t *mask, uint32_t n)
{
    for (uint32_t id = 0; id < TR_SIM_VOCAB_SIZE; id++)
        if (mask[id / 32] >> (id % 32) & 1 && n-- == 0)
            return id;
    return UINT32_MAX;
}

static void count_beat(void *arg)
{
    ++*(uint32_t *)arg;
}

static void wait_a_moment(unsigned n)
{
    for (volatile unsigned i = 0; i < n; i++)
        ;
}

int main(void)
{
    static uint8_t image[TR_GRAM_BYTES];
    static uint32_t want[(TR_SIM_VOCAB_SIZE + 31) / 32];
    struct tr_gmatch *match = calloc(SLOTS, sizeof(*match));
    const uint32_t *mask[SLOTS];
    struct tr_gprog prog;
    struct tr_gpieces pieces;
    void *trie = NULL;
    size_t trie_len = 0, len = compile(image, sizeof(image));
    uint64_t bytes;
    must(match && !tr_gpieces_build(TR_SIM_VOCAB_SIZE, piece_of, NULL, &trie, &trie_len), "a trie");
    must(!tr_gpieces_open(&pieces, trie, trie_len, NULL), "a trie that opens");
    must(!tr_gprog_open(&prog, image, len, TR_SIM_VOCAB_SIZE, NULL), "a program");
    struct tr_gmasks *alone = tr_gmasks_open(&pieces, 1 << 20);
    struct tr_constrain *c =
        tr_constrain_new(SLOTS, TR_SIM_VOCAB_SIZE, trie, trie_len, &bytes, NULL);
    must(alone && c && !tr_constrain_start(c, &bytes), "a thread");
    for (uint32_t s = 0; s < SLOTS; s++)
        tr_gmatch_start(&match[s], &prog);
    srand(1);
    for (uint32_t s = 0; s < SLOTS; s++)
        must(!tr_constrain_open(c, s, image, (uint32_t)len), "an answer");
    for (unsigned step = 0; step < STEPS; step++) {
        uint32_t n = 1 + (uint32_t)rand() % SLOTS, first = (uint32_t)rand() % SLOTS, beats = 0;
        bool pass = rand() % 4; /* or the thread may not come to it */
        for (uint32_t k = 0; k < n; k++)
            mask[k] = tr_constrain_ask(c, (first + k) % SLOTS);
        if (pass)
            tr_constrain_begin(c);
        wait_a_moment((unsigned)rand() % 20000);
        tr_constrain_join(c, UINT64_MAX, count_beat, &beats);
        must(beats <= n, "a sign of life for a mask");
        for (uint32_t k = 0; k < n; k++) {
            uint32_t s = (first + k) % SLOTS;
            bool any = tr_gmasks_fill(alone, &prog, &match[s], want);
            uint32_t choices = count_ids(want);
            must(any == (choices > 0), "what there is to choose from");
            must(memcmp(mask[k], want, sizeof(want)) == 0, "another mask");
            uint32_t id = choices ? n_th(mask[k], (uint32_t)rand() % choices) : UINT32_MAX;
            if (id == UINT32_MAX || piece_of(NULL, id).kind != TR_GPIECE_TEXT) { /* over: again */
                tr_gmatch_start(&match[s], &prog);
                must(!tr_constrain_open(c, s, image, (uint32_t)len), "another answer");
                continue;
            }
            must(tr_constrain_take(c, s, id) &&
                     tr_gmatch_bytes(&match[s], &prog, vocab[id].bytes, vocab[id].len),
                 "a token that the mask allows");
        }
    }
    tr_constrain_free(c);
    tr_gmasks_close(alone);
    free(trie);
    free(match);
    printf("%d passed, 0 failed\n", STEPS);
    return 0;
}
