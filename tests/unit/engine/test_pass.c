/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/pass.h"

#include "testrig/apart.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include <stdlib.h>
#include <string.h>

static const struct tr_pass_bounds bounds = {
    .n_vocab = 100, .n_ctx = 160, .n_kv_blocks = 15, .max_rows = 9, .max_out = 8, .max_seqs = 3};

static const uint32_t blocks[] = {3, 1, 4, 11, 5, 9, 2, 6, 7, 8, 10, 0, 14, 13, 12};
static const struct tr_kv_table tables[] = {{blocks, 5}, {blocks + 5, 5}, {blocks + 10, 5}};

/* Two rows of one sequence across two blocks, one of another, and logits in an order of their own. */
static const struct tr_batch_row rows[] = {
    {17, 31, 2, 2}, {18, 32, 2, TR_NO_LOGITS}, {99, 127, 0, 0}, {5, 0, 1, 1}};
static const struct tr_batch batch = {rows, 4, tables, 3, 3};

/* A pass and a copy of its plan, as operations would read it. */
struct test {
    const struct tr_ops *ops;
    struct tr_dev *dev;
    struct tr_pass p;
    uint8_t *seen;
};

static struct test open_test(bool apart)
{
    struct tr_errbuf err = {""};
    struct tr_cpu_config c = {.n_threads = 1};
    struct test t = {.ops = apart ? &tr_ops_apart : &tr_ops_cpu,
                     .dev = apart ? tr_apart_open(&c, &err) : tr_cpu_open(&c, &err)};
    cr_assert(t.dev != NULL);
    cr_assert(tr_pass_open(&t.p, &bounds, t.ops, t.dev, &err) == 0, "%s", err.msg);
    t.seen = malloc(t.p.len);
    return t;
}

static void close_test(struct test *t)
{
    tr_pass_close(&t->p);
    tr_pass_close(&t->p); /* closed is fine */
    t->ops->close(t->dev);
    free(t->seen);
}

/* Where a pointer into the plan points in the copy. */
static const void *seen(const struct test *t, const void *p)
{
    size_t at = (size_t)((const uint8_t *)p - t->p.mem);
    cr_assert(at < t->p.used, "outside of what was uploaded");
    return t->seen + at;
}

static void set(struct test *t, const struct tr_batch *b, uint32_t n_rows, uint32_t n_out)
{
    memset(t->seen, 0xa5, t->p.len);
    tr_pass_set(&t->p, b, n_rows, n_out);
    t->ops->download(t->dev, t->seen, t->p.mem, t->p.used);
}

static void check_place(const struct test *t, const struct tr_place *p,
                        const struct tr_batch_row *r)
{
    cr_expect(eq(u32, p->pos, r->pos));
    const uint32_t *table = t->ops->apart ? seen(t, p->blocks) : p->blocks;
    for (uint32_t i = 0; i <= r->pos / TR_KV_BLOCK; i++)
        cr_expect(eq(u32, table[i], tables[r->seq].blocks[i]));
}

static void check_batch(struct test *t)
{
    static const uint32_t row_of[] = {2, 3, 0};
    const uint32_t *tokens = seen(t, t->p.tokens), *out_row = seen(t, t->p.out_row);
    const struct tr_place *places = seen(t, t->p.places), *out_place = seen(t, t->p.out_place);
    for (uint32_t i = 0; i < 4; i++) {
        cr_expect(eq(u32, tokens[i], rows[i].token));
        check_place(t, &places[i], &rows[i]);
    }
    for (uint32_t o = 0; o < 3; o++) {
        cr_expect(eq(u32, out_row[o], row_of[o]));
        check_place(t, &out_place[o], &rows[row_of[o]]);
    }
    cr_expect(places[0].blocks == places[1].blocks && places[0].blocks != places[2].blocks);
    cr_expect(t->p.n_rows == 4 && t->p.n_out == 3 && t->p.n_pos == 128);
}

Test(pass, is_what_the_batch_says)
{
    for (int apart = 0; apart < 2; apart++) {
        struct test t = open_test(apart);
        set(&t, &batch, 4, 3);
        check_batch(&t);
        close_test(&t);
    }
}

Test(pass, is_read_where_it_is_filled_and_tables_where_they_lie_unless_the_device_is_apart)
{
    struct test t = open_test(false);
    set(&t, &batch, 4, 3);
    cr_expect(t.p.mem == t.p.host && t.p.places[0].blocks == tables[2].blocks);
    close_test(&t);
    t = open_test(true);
    set(&t, &batch, 4, 3);
    cr_expect(t.p.mem != t.p.host && tr_apart_count(t.dev).uploads == 1);
    close_test(&t);
}

/* With rows that are not there behind those that are, and where things lie is the same as without. */
Test(pass, rows_that_are_not_there_have_no_place)
{
    static const struct tr_batch_row few[] = {{1, 5, 0, 1}, {2, 6, 0, 0}};
    struct test t = open_test(true);
    set(&t, &(struct tr_batch){few, 2, tables, 1, 2}, 8, 8);
    const uint32_t *tokens = seen(&t, t.p.tokens), *out_row = seen(&t, t.p.out_row);
    const struct tr_place *places = seen(&t, t.p.places), *out_place = seen(&t, t.p.out_place);
    cr_expect(tokens[0] == 1 && out_row[0] == 1 && out_row[1] == 0 && places[1].pos == 6);
    for (uint32_t i = 2; i < 8; i++)
        cr_expect(tokens[i] < bounds.n_vocab && out_row[i] < 8 && places[i].pos == TR_NO_POS &&
                      !places[i].blocks && out_place[i].pos == TR_NO_POS,
                  "row %u", i);
    cr_expect(t.p.n_rows == 8 && t.p.n_out == 8 && t.p.n_pos == 7);
    struct tr_pass before = t.p;
    set(&t, &(struct tr_batch){0}, 8, 8);
    cr_expect(t.p.tokens == before.tokens && t.p.places == before.places &&
              t.p.out_row == before.out_row && t.p.out_place == before.out_place);
    cr_expect(eq(u32, t.p.n_pos, 0));
    close_test(&t);
}

/* As many rows, logits and whole contexts as there may be. */
Test(pass, the_largest_one_has_room)
{
    struct tr_batch_row many[9];
    struct test t = open_test(true);
    for (uint32_t i = 0; i < 9; i++)
        many[i] = (struct tr_batch_row){i, 157 + i % 3, i / 3, i < 8 ? 7 - i : TR_NO_LOGITS};
    set(&t, &(struct tr_batch){many, 9, tables, 3, 8}, 9, 8);
    const struct tr_place *places = seen(&t, t.p.places);
    for (uint32_t i = 0; i < 9; i++)
        check_place(&t, &places[i], &many[i]);
    cr_expect(t.p.used <= t.p.len);
    close_test(&t);
}

Test(pass, without_memory_is_a_sentence)
{
    for (size_t bytes = 0; bytes < 2; bytes++) {
        struct tr_errbuf err = {""};
        struct tr_dev *dev = tr_apart_open(&(struct tr_cpu_config){.n_threads = 1}, &err);
        struct tr_pass p;
        tr_apart_limit(dev, bytes ? tr_pass_bytes(&bounds) : tr_pass_bytes(&bounds) - 1);
        int ret = tr_pass_open(&p, &bounds, &tr_ops_apart, dev, &err);
        bool said = strstr(err.msg, "no memory for the plan") != NULL, opened = ret == 0;
        cr_expect(opened == (bytes == 1) && said == !opened);
        tr_pass_close(&p);
        tr_ops_apart.close(dev);
    }
}
