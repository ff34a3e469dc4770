/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/extra.h"
#include "shm/layout.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct tr_extra in, out;
static struct tr_view view, seen;
static uint8_t buf[TR_EXTRA_BYTES];

Test(extra, what_is_packed_is_read_back)
{
    in.n_bias = 3;
    in.bias[0] = (struct tr_bias){5, -100.0f};
    in.bias[1] = (struct tr_bias){99999, 0.25f};
    in.bias[2] = (struct tr_bias){200, 100.0f};
    in.n_stop = 2;
    in.stop_ids[1] = 70000;
    int n = tr_extra_pack(&in, buf, sizeof(buf));
    cr_assert_gt(n, 0);
    cr_assert_eq(tr_extra_unpack(buf, (size_t)n, 100000, &out), 0);
    cr_assert_eq(out.n_bias, 3);
    cr_assert_eq(memcmp(out.bias, in.bias, 3 * sizeof(in.bias[0])), 0);
    cr_assert(out.n_stop == 2 && out.stop_ids[1] == 70000);
}

Test(extra, the_largest_fits_in_its_place)
{
    in.n_bias = TR_MAX_BIAS;
    in.n_stop = TR_MAX_STOP_IDS;
    for (uint32_t i = 0; i < TR_MAX_BIAS; i++)
        in.bias[i].id = 1u << 20;
    static char text[TR_VIEW_STOP_BYTES];
    view = (struct tr_view){255, TR_VIEW_FLAGS, UINT64_MAX, UINT64_MAX, TR_VIEW_STOPS, {{0}}, {0}};
    static char kept[TR_VIEW_KEPT_BYTES];
    view.kept = (struct tr_str){kept, sizeof(kept)};
    static uint8_t grammar[TR_GRAMMAR_BYTES];
    in.grammar = grammar;
    in.grammar_len = sizeof(grammar);
    for (uint32_t i = 0; i < TR_VIEW_STOPS; i++)
        view.stop[i] = (struct tr_str){text, sizeof(text)};
    int n = tr_extra_pack_view(&in, &view, buf, TR_EXTRA_BYTES);
    cr_assert_gt(n, 0);
    cr_assert_eq(tr_extra_unpack(buf, (size_t)n, 1u << 24, &out), 0);
    cr_assert_eq(tr_extra_view(buf, (size_t)n, 1u << 24, &out, &seen), 0);
    cr_assert(seen.n_stop == TR_VIEW_STOPS && seen.stop[15].len == sizeof(text));
    cr_assert_eq(seen.kept.len, sizeof(kept));
    cr_assert_eq(out.grammar_len, sizeof(grammar));
}

Test(extra, a_grammar_is_read_back_with_and_without_a_view)
{
    static const uint32_t len[] = {1, 255, 256, 65535, 65536, TR_GRAMMAR_BYTES};
    static uint8_t grammar[TR_GRAMMAR_BYTES + 1];
    for (size_t i = 0; i < sizeof(grammar); i++)
        grammar[i] = (uint8_t)(i * 7);
    in.grammar = grammar;
    view = (struct tr_view){.kept = {"{}", 2}};
    for (uint32_t i = 0; i < 2 * sizeof(len) / sizeof(*len); i++) {
        in.grammar_len = len[i / 2];
        int n = tr_extra_pack_view(&in, i % 2 ? &view : NULL, buf, sizeof(buf));
        cr_assert_gt(n, 0);
        cr_assert_eq(tr_extra_view(buf, (size_t)n, 10, &out, &seen), i % 2 ? 0 : -ENOENT);
        cr_assert_eq(out.grammar_len, in.grammar_len);
        cr_assert_eq(memcmp(out.grammar, grammar, in.grammar_len), 0);
    }
    in.grammar_len = TR_GRAMMAR_BYTES + 1;
    int n = tr_extra_pack(&in, buf, sizeof(buf));
    cr_assert_eq(tr_extra_unpack(buf, (size_t)n, 10, &out), -EINVAL);
    in.grammar_len = 0; /* none is no key, not an empty one */
    n = tr_extra_pack(&in, buf, sizeof(buf));
    cr_assert_eq(tr_extra_unpack(buf, (size_t)n, 10, &out), 0);
    cr_assert(!out.grammar && !out.grammar_len);
}

Test(extra, a_view_is_read_back)
{
    static const size_t len[] = {1, 31, 32, 255, 256, 1024};
    static char text[TR_VIEW_STOP_BYTES];
    memset(text, 0xff, sizeof(text)); /* texts are bytes here */
    view = (struct tr_view){2, TR_VIEW_ECHO | TR_VIEW_CHAT, 1700000000, 30, 6, {{0}}, {"{}", 2}};
    for (uint32_t i = 0; i < 6; i++)
        view.stop[i] = (struct tr_str){text, len[i]};
    in.n_stop = 1;
    in.stop_ids[0] = 7;
    int n = tr_extra_pack_view(&in, &view, buf, sizeof(buf));
    cr_assert_eq(tr_extra_view(buf, (size_t)n, 10, &out, &seen), 0);
    cr_assert(out.n_stop == 1 && out.stop_ids[0] == 7 && seen.n_stop == 6);
    cr_assert(seen.dialect == 2 && seen.flags == view.flags && seen.created == view.created &&
              seen.timeout_ns == 30 && seen.kept.len == 2 && !memcmp(seen.kept.p, "{}", 2));
    for (uint32_t i = 0; i < 6; i++)
        cr_assert(seen.stop[i].len == len[i] && !memcmp(seen.stop[i].p, text, len[i]));
}

Test(extra, no_view_is_told_apart_from_a_bad_one)
{
    int n = tr_extra_pack(&in, buf, sizeof(buf));
    cr_assert_eq(tr_extra_view(buf, (size_t)n, 10, &out, &seen), -ENOENT);
    cr_assert_eq(tr_extra_view(buf, 0, 10, &out, &seen), -ENOENT);
    view = (struct tr_view){.dialect = 256};
    n = tr_extra_pack_view(&in, &view, buf, sizeof(buf));
    cr_assert_eq(tr_extra_view(buf, (size_t)n, 10, &out, &seen), -EINVAL);
    view = (struct tr_view){.flags = TR_VIEW_FLAGS + 1};
    n = tr_extra_pack_view(&in, &view, buf, sizeof(buf));
    cr_assert_eq(tr_extra_view(buf, (size_t)n, 10, &out, &seen), -EINVAL);
    view = (struct tr_view){.n_stop = 1, .stop = {{"", 0}}}; /* an empty text stops nothing */
    n = tr_extra_pack_view(&in, &view, buf, sizeof(buf));
    cr_assert_eq(tr_extra_unpack(buf, (size_t)n, 10, &out), -EINVAL);
    static char kept[TR_VIEW_KEPT_BYTES + 1];
    view = (struct tr_view){.kept = {kept, sizeof(kept)}};
    n = tr_extra_pack_view(&in, &view, buf, sizeof(buf));
    cr_assert_eq(tr_extra_unpack(buf, (size_t)n, 10, &out), -EINVAL);
}

Test(extra, no_room_is_told)
{
    in.n_bias = 10;
    cr_assert_eq(tr_extra_pack(&in, buf, 20), -ENOSPC);
}

Test(extra, nothing_is_nothing)
{
    cr_assert_eq(tr_extra_unpack(buf, 0, 10, &out), 0);
    cr_assert(out.n_bias == 0 && out.n_stop == 0);
}

Test(extra, ids_and_values_out_of_range_are_refused)
{
    in.n_bias = 1;
    in.bias[0] = (struct tr_bias){10, 1.0f};
    int n = tr_extra_pack(&in, buf, sizeof(buf));
    cr_assert_eq(tr_extra_unpack(buf, (size_t)n, 10, &out), -EINVAL);
    in.bias[0] = (struct tr_bias){9, 101.0f};
    n = tr_extra_pack(&in, buf, sizeof(buf));
    cr_assert_eq(tr_extra_unpack(buf, (size_t)n, 10, &out), -EINVAL);
}

Test(extra, every_cut_and_every_garbled_byte_is_survived)
{
    in.n_bias = 4;
    in.n_stop = 3;
    view = (struct tr_view){.n_stop = 2, .stop = {{"END", 3}, {"\n\n", 2}}, .kept = {"{}", 2}};
    in.grammar = (const uint8_t *)"program";
    in.grammar_len = 7;
    int n = tr_extra_pack_view(&in, &view, buf, sizeof(buf));
    for (int cut = 1; cut < n; cut++) {
        uint8_t *exact = malloc((size_t)cut);
        memcpy(exact, buf, (size_t)cut);
        cr_assert_eq(tr_extra_unpack(exact, (size_t)cut, 100, &out), -EINVAL);
        free(exact);
    }
    srand(1);
    for (int i = 0; i < 200000; i++) {
        uint8_t bad[256];
        memcpy(bad, buf, (size_t)n);
        for (int k = 0; k <= rand() % 3; k++)
            bad[rand() % n] = (uint8_t)rand();
        if (tr_extra_view(bad, (size_t)n, 100, &out, &seen))
            continue;
        for (uint32_t b = 0; b < out.n_bias; b++)
            cr_assert_lt(out.bias[b].id, 100);
        cr_assert_leq(seen.kept.p + seen.kept.len, (char *)bad + n);
        cr_assert(!out.grammar || out.grammar + out.grammar_len <= bad + n);
        for (uint32_t t = 0; t < seen.n_stop; t++)
            cr_assert_leq(seen.stop[t].p + seen.stop[t].len, (char *)bad + n);
    }
}
