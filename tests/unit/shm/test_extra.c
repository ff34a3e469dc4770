/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/extra.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct tr_extra in, out;
static uint8_t buf[32768];

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
    int n = tr_extra_pack(&in, buf, 16384);
    cr_assert_gt(n, 0);
    cr_assert_eq(tr_extra_unpack(buf, (size_t)n, 1u << 24, &out), 0);
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
    int n = tr_extra_pack(&in, buf, sizeof(buf));
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
        if (tr_extra_unpack(bad, (size_t)n, 100, &out) == 0)
            for (uint32_t b = 0; b < out.n_bias; b++)
                cr_assert_lt(out.bias[b].id, 100);
    }
}
