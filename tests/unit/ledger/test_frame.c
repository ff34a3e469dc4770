/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/frame.h"

#include <criterion/criterion.h>
#include <string.h>

enum { FRAMES = 4 };

static uint8_t buf[4096], damaged[4096];
static size_t start[FRAMES + 1];

static void setup(void)
{
    static const char *const payload[FRAMES] = {"first", "", "the third, a little longer", "x"};
    for (int i = 0; i < FRAMES; i++)
        start[i + 1] = start[i] + tr_frame_put((const uint8_t *)payload[i], strlen(payload[i]),
                                               buf + start[i]);
    memcpy(damaged, buf, sizeof(buf));
}

TestSuite(frame, .init = setup);

/* Goes through the bytes: which whole frames of ours are found (bits), and how the rest is called.
 * Pieces must lie side by side and end. */
static unsigned walk(const uint8_t *p, size_t n, size_t *bad, size_t *torn)
{
    unsigned found = 0;
    size_t at = 0;
    *bad = *torn = 0;
    for (struct tr_frame f; (f = tr_frame_next(p, n, at)).kind != TR_FRAME_NONE; at += f.len) {
        cr_assert(f.at == at && f.len > 0 && at + f.len <= n);
        if (f.kind == TR_FRAME_BAD)
            *bad += f.len;
        if (f.kind == TR_FRAME_TORN)
            *torn += f.len;
        for (int i = 0; i < FRAMES && f.kind == TR_FRAME_GOOD; i++)
            if (f.payload_len == start[i + 1] - start[i] - TR_FRAME_HEAD &&
                memcmp(f.payload, buf + start[i] + TR_FRAME_HEAD, f.payload_len) == 0)
                found |= 1u << i;
    }
    cr_assert_eq(at, n);
    return found;
}

Test(frame, whole_ones_are_found_in_their_order)
{
    size_t bad, torn;
    cr_expect_eq(walk(buf, start[FRAMES], &bad, &torn), (1u << FRAMES) - 1);
    cr_expect(bad == 0 && torn == 0);
    cr_expect_eq(tr_frame_next(buf, start[FRAMES], start[FRAMES]).kind, TR_FRAME_NONE);
}

Test(frame, a_cut_at_any_byte_leaves_the_frames_before_it)
{
    size_t bad, torn;
    for (size_t n = 0; n <= start[FRAMES]; n++) {
        int whole = 0;
        while (whole < FRAMES && start[whole + 1] <= n)
            whole++;
        cr_expect_eq(walk(buf, n, &bad, &torn), (1u << whole) - 1, "cut at %zu", n);
        cr_expect(bad == 0 && torn == n - start[whole], "cut at %zu", n);
    }
}

Test(frame, a_flip_of_any_bit_costs_the_frame_it_lies_in)
{
    size_t bad, torn;
    for (size_t at = 0; at < start[FRAMES]; at++)
        for (int bit = 0; bit < 8; bit++) {
            int hit = 0;
            while (start[hit + 1] <= at)
                hit++;
            damaged[at] ^= (uint8_t)(1u << bit);
            cr_expect_eq(walk(damaged, start[FRAMES], &bad, &torn),
                         ((1u << FRAMES) - 1) & ~(1u << hit), "byte %zu, bit %d", at, bit);
            cr_expect(bad == start[hit + 1] - start[hit] && torn == 0, "byte %zu, bit %d", at, bit);
            damaged[at] = buf[at];
        }
}

Test(frame, bytes_that_are_lost_in_the_middle_cost_the_frames_they_belonged_to)
{
    size_t bad, torn;
    for (size_t from = 0; from < start[FRAMES]; from++)
        for (size_t n = 1; from + n <= start[FRAMES]; n += 5) {
            memcpy(damaged, buf, from);
            memcpy(damaged + from, buf + from + n, start[FRAMES] - from - n);
            unsigned kept = 0;
            for (int i = 0; i < FRAMES; i++)
                if (start[i + 1] <= from || start[i] >= from + n)
                    kept |= 1u << i;
            unsigned found = walk(damaged, start[FRAMES] - n, &bad, &torn);
            cr_expect_eq(found & kept, kept, "%zu bytes at %zu", n, from);
        }
}

Test(frame, noise_before_between_and_behind_is_passed_over)
{
    static const uint8_t noise[] = {0xf7, 't', 'r', 1, 0, 0, 0, 0, 0xf7, 0xf7, 't', 'r', 'x'};
    size_t n = 0, bad, torn;
    for (int i = 0; i < FRAMES; i++) {
        memcpy(damaged + n, noise, sizeof(noise));
        n += sizeof(noise);
        memcpy(damaged + n, buf + start[i], start[i + 1] - start[i]);
        n += start[i + 1] - start[i];
    }
    memcpy(damaged + n, noise, sizeof(noise));
    n += sizeof(noise);
    cr_expect_eq(walk(damaged, n, &bad, &torn), (1u << FRAMES) - 1);
    cr_expect_eq(bad, (FRAMES + 1) * sizeof(noise));
}
