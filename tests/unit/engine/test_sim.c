/* SPDX-License-Identifier: Apache-2.0 */
/* The sim backend is a witness: scheduler tests prove what they say only if its output depends on every
 * token and on every block of the table. */
#include "engine/backend.h"

#include "base/sim_vocab.h"

#include <criterion/criterion.h>
#include <string.h>

enum { LEN = 3 * TR_KV_BLOCK - 5 };

static struct tr_backend *b;
static struct tr_backend_info info;
static float logits[TR_SIM_VOCAB_SIZE], want[TR_SIM_VOCAB_SIZE];
static uint32_t mine[] = {5, 2, 7}, other[] = {1, 3, 4};

static void setup(void)
{
    struct tr_errbuf err;
    struct tr_backend_config c = {
        .n_ctx = 128, .max_seqs = 2, .max_rows = 128, .max_out = 2, .n_threads = 1};
    b = tr_backend_sim.open(&c, &info, &err);
    cr_assert(b && info.n_kv_blocks >= 8 && info.n_vocab == TR_SIM_VOCAB_SIZE);
}

static void teardown(void)
{
    tr_backend_sim.close(b);
}

TestSuite(sim, .init = setup, .fini = teardown);

static void beat(void *arg)
{
    (void)arg;
}

/* Positions [from, to) of a sequence; `salt` says whose tokens.  The last row's logits, if any row is
 * to have some. */
static void forward(uint32_t *blocks, uint32_t from, uint32_t to, uint32_t salt, bool out)
{
    static struct tr_batch_row rows[LEN];
    struct tr_kv_table table = {.blocks = blocks, .n_blocks = 3};
    for (uint32_t p = from; p < to; p++)
        rows[p - from] = (struct tr_batch_row){.token = TR_SIM_TEXT + (p * 7 + salt) % 50,
                                               .pos = p,
                                               .out = out && p + 1 == to ? 0 : TR_NO_LOGITS};
    struct tr_batch batch = {
        .rows = rows, .n_rows = to - from, .seqs = &table, .n_seqs = 1, .n_out = out};
    tr_backend_sim.forward(b, &batch, logits, beat, NULL);
}

static void as_it_should_be(void)
{
    forward(mine, 0, LEN, 0, true);
    memcpy(want, logits, sizeof(want));
}

static bool same(void)
{
    forward(mine, LEN - 1, LEN, 0, true);
    return memcmp(logits, want, sizeof(want)) == 0;
}

Test(sim, chunks_and_other_blocks_make_no_difference)
{
    as_it_should_be();
    cr_assert(same(), "the last row again");
    static const uint32_t cuts[] = {0, 1, 31, 32, 33, 70, LEN};
    for (size_t i = 0; i + 1 < sizeof(cuts) / sizeof(cuts[0]); i++)
        forward(other, cuts[i], cuts[i + 1], 0, i % 2);
    cr_assert_eq(memcmp(logits, want, sizeof(want)), 0);
    forward(mine, 20, LEN, 0, false); /* computed again from the middle */
    cr_assert(same());
}

Test(sim, every_token_counts)
{
    for (uint32_t p = 0; p < LEN; p++) {
        as_it_should_be();
        forward(mine, p, p + 1, 1, false);
        if (p + 1 < LEN)
            forward(mine, p + 1, LEN, 0, true);
        cr_assert(p + 1 == LEN || memcmp(logits, want, sizeof(want)), "position %u", p);
    }
}

/* Somebody else writes a single position of a block that is still in use. */
Test(sim, a_cell_that_is_written_over_is_seen)
{
    for (uint32_t p = 0; p < LEN - 1; p++) {
        as_it_should_be();
        uint32_t stolen[] = {other[0], other[1], other[2]};
        forward(other, 0, LEN, 1, false);
        stolen[p / TR_KV_BLOCK] = mine[p / TR_KV_BLOCK];
        forward(stolen, p, p + 1, 1, false);
        cr_assert(!same(), "position %u", p);
    }
}

Test(sim, a_wrong_block_is_seen)
{
    for (uint32_t k = 0; k < 3; k++) {
        as_it_should_be();
        forward(other, 0, LEN, 1, false);
        uint32_t keep = mine[k];
        mine[k] = other[k];
        cr_assert(!same(), "block %u", k);
        mine[k] = keep;
    }
    as_it_should_be();
    uint32_t first = mine[0];
    mine[0] = mine[1];
    mine[1] = first;
    cr_assert(!same(), "in another order");
    mine[1] = mine[0];
    mine[0] = first;
}

Test(sim, a_hole_is_seen)
{
    as_it_should_be();
    for (uint32_t p = 1; p < LEN - 1; p++) {
        forward(other, 0, LEN, 1, false); /* what stood there before */
        forward(other, 0, p, 0, false);
        forward(other, p + 1, LEN, 0, true);
        cr_assert(memcmp(logits, want, sizeof(want)), "position %u", p);
    }
}
