/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/stat.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static struct tr_stat *stat_new(void)
{
    struct tr_stat *s = aligned_alloc(TR_LINE_BYTES, sizeof(*s));
    cr_assert(s);
    memset(s, 0, sizeof(*s));
    return s;
}

static uint64_t in_bucket(struct tr_stat *s, enum tr_hist_id id, unsigned b)
{
    return atomic_load(&s->hist[id].bucket[b]);
}

Test(stat, bounds_of_every_scale_rise)
{
    for (unsigned s = 0; s < TR_SCALE_N; s++) {
        cr_assert(tr_hist_bounds[s][0] > 0);
        for (unsigned b = 1; b < TR_HIST_BUCKETS; b++)
            cr_assert(tr_hist_bounds[s][b] > tr_hist_bounds[s][b - 1], "scale %u, bound %u", s, b);
    }
}

Test(stat, a_value_at_a_bound_is_within_it)
{
    struct tr_stat *s = stat_new();
    for (unsigned b = 0; b < TR_HIST_BUCKETS; b++) {
        uint64_t ns = (uint64_t)(tr_hist_bounds[TR_SCALE_LONG][b] * 1e9 + 0.5);
        tr_hist_add(s, TR_HIST_TTFT, ns);
        tr_hist_add(s, TR_HIST_TTFT, ns + 1000);
        cr_assert_eq(in_bucket(s, TR_HIST_TTFT, b), b ? 2 : 1, "bound %u", b);
    }
    cr_assert_eq(in_bucket(s, TR_HIST_TTFT, TR_HIST_BUCKETS), 1);
    free(s);
}

Test(stat, tokens_are_counted_in_tokens)
{
    struct tr_stat *s = stat_new();
    tr_hist_add(s, TR_HIST_PROMPT_TOKENS, 0);
    tr_hist_add(s, TR_HIST_PROMPT_TOKENS, 3);
    tr_hist_add_n(s, TR_HIST_PROMPT_TOKENS, 4, 2);
    tr_hist_add(s, TR_HIST_PROMPT_TOKENS, 1 << 20);
    cr_assert_eq(in_bucket(s, TR_HIST_PROMPT_TOKENS, 0), 1);
    cr_assert_eq(in_bucket(s, TR_HIST_PROMPT_TOKENS, 2), 3);
    cr_assert_eq(in_bucket(s, TR_HIST_PROMPT_TOKENS, TR_HIST_BUCKETS), 1);
    cr_assert_eq(atomic_load(&s->hist[TR_HIST_PROMPT_TOKENS].sum), 11 + (1 << 20));
    cr_assert_eq(atomic_load(&s->hist[TR_HIST_PROMPT_TOKENS].count), 5);
    free(s);
}

/* A dashboard that asks how many were within the objective wants no interpolation. */
Test(stat, usual_objectives_are_bounds)
{
    static const struct {
        enum tr_hist_id id;
        double s;
    } objective[] = {{TR_HIST_TTFT, 1},   {TR_HIST_TTFT, 0.5},     {TR_HIST_ITL, 0.1},
                     {TR_HIST_ITL, 0.05}, {TR_HIST_FIRST_BYTE, 1}, {TR_HIST_DELIVERED_GAP, 0.1},
                     {TR_HIST_E2E, 60}};
    for (size_t i = 0; i < sizeof(objective) / sizeof(objective[0]); i++) {
        const double *b = tr_hist_bounds[tr_hist_rows[objective[i].id].scale];
        bool found = false;
        for (unsigned k = 0; k < TR_HIST_BUCKETS; k++)
            found = found || b[k] == objective[i].s;
        cr_assert(found, "%s has no bound at %g s", tr_hist_rows[objective[i].id].metric,
                  objective[i].s);
    }
}
