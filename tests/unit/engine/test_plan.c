/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan.h"

#include "engine/kv.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 64 };

static struct tr_plan_step step; /* as the last plan says */

static struct tr_plan_seq seq(enum tr_state s, uint32_t total, uint32_t in_kv)
{
    struct tr_plan_seq q = {
        .state = s, .total = total, .in_kv = in_kv, .limit = total + 100, .row_cap = UINT32_MAX};
    if (s != TR_WAITING)
        q.blocks = tr_kv_blocks_for(s == TR_PREFILL ? total : in_kv);
    return q;
}

static struct tr_plan_in input(struct tr_plan_seq *q, uint32_t n, uint32_t free)
{
    return (struct tr_plan_in){.seqs = q,
                               .n = n,
                               .max_seqs = 8,
                               .max_rows = 8 + 64,
                               .prefill_chunk = 64,
                               .out_chunk = 16,
                               .free_blocks = free};
}

/* Makes the plan with what parked ones hold counted, as if nothing of it were shared. */
static uint32_t make(struct tr_plan_in *in, struct tr_plan_do *todo)
{
    in->evictable = 0;
    for (uint32_t i = 0; i < in->n_aside; i++)
        in->evictable += in->own[in->aside[i]];
    for (uint32_t i = 0; i < in->n; i++) {
        const struct tr_plan_seq *q = &in->seqs[i];
        if (q->state == TR_PARKED || q->hold)
            in->evictable += q->blocks;
    }
    return tr_plan_make(in, todo, &step);
}

Test(plan, decode_rows_come_first_and_one_long_prompt_only_takes_the_chunk)
{
    struct tr_plan_seq q[] = {seq(TR_PREFILL, 7000, 64), seq(TR_RUNNING, 10, 9),
                              seq(TR_RUNNING, 33, 32)};
    struct tr_plan_in in = input(q, 3, 4);
    struct tr_plan_do todo[3];
    cr_assert_eq(make(&in, todo), 66);
    cr_assert_eq(todo[0].rows, 64);
    cr_assert_eq(todo[1].rows, 1);
    cr_assert_eq(todo[2].rows, 1);
}

/* ---- prompts share the step ---- */

Test(plan, the_first_prompt_gets_half_of_the_chunk_and_the_shortest_the_rest)
{
    struct tr_plan_seq q[] = {seq(TR_PREFILL, 7000, 64), seq(TR_PREFILL, 5000, 0),
                              seq(TR_WAITING, 25, 0), seq(TR_WAITING, 900, 0)};
    struct tr_plan_in in = input(q, 4, 100);
    struct tr_plan_do todo[4];
    cr_assert_eq(make(&in, todo), 64);
    cr_assert_eq(todo[0].rows, 32);
    cr_assert_eq(todo[1].rows, 0);
    cr_assert_eq(todo[2].what, TR_PLAN_ADMIT);
    cr_assert_eq(todo[2].rows, 25);
    cr_assert_eq(todo[3].what, TR_PLAN_ADMIT, "the next short one");
    cr_assert_eq(todo[3].rows, 7);
}

Test(plan, a_prompt_alone_gets_the_whole_chunk)
{
    struct tr_plan_seq q[] = {seq(TR_PREFILL, 7000, 64), seq(TR_RUNNING, 33, 32)};
    struct tr_plan_in in = input(q, 2, 100);
    struct tr_plan_do todo[2];
    make(&in, todo);
    cr_assert_eq(todo[0].rows, 64);
}

Test(plan, priority_goes_before_age_and_length)
{
    struct tr_plan_seq q[] = {seq(TR_WAITING, 3000, 0), seq(TR_PREFILL, 7000, 64),
                              seq(TR_WAITING, 5, 0)};
    q[0].priority = -1;
    struct tr_plan_in in = input(q, 3, 300);
    struct tr_plan_do todo[3];
    make(&in, todo);
    cr_assert_eq(todo[0].rows, 64);
    cr_assert_eq(todo[1].rows, 0);
    cr_assert_eq(todo[2].what, TR_PLAN_STAY);
}

Test(plan, the_key_that_was_served_least_goes_before_age_and_length)
{
    const uint64_t served[] = {500, 20};
    struct tr_plan_seq q[] = {seq(TR_WAITING, 50, 0), seq(TR_WAITING, 3000, 0),
                              seq(TR_WAITING, 20, 0)};
    q[1].key = 1;
    struct tr_plan_in in = input(q, 3, 300);
    in.served = served;
    in.max_seqs = 1;
    struct tr_plan_do todo[3];
    make(&in, todo);
    cr_assert_eq(todo[0].what, TR_PLAN_STAY);
    cr_assert_eq(todo[1].rows, 64);
    cr_assert_eq(todo[2].what, TR_PLAN_STAY);
}

Test(plan, who_was_preempted_comes_back_before_all_who_wait)
{
    struct tr_plan_seq q[] = {seq(TR_WAITING, 50, 0), seq(TR_WAITING, 300, 0)};
    q[1].again = true;
    struct tr_plan_in in = input(q, 2, 300);
    in.max_seqs = 1;
    struct tr_plan_do todo[2];
    make(&in, todo);
    cr_assert_eq(todo[0].what, TR_PLAN_STAY);
    cr_assert_eq(todo[1].rows, 64);
}

Test(plan, who_came_back_and_has_made_no_token_is_not_preempted_again)
{
    struct tr_plan_seq q[] = {seq(TR_RUNNING, 33, 32), seq(TR_RUNNING, 33, 32),
                              seq(TR_PREFILL, 200, 64)};
    q[2].again = true;
    struct tr_plan_in in = input(q, 3, 0);
    struct tr_plan_do todo[3];
    make(&in, todo);
    cr_assert_eq(todo[2].what, TR_PLAN_STAY);
    cr_assert_gt(todo[2].rows, 0);
    cr_assert_eq(todo[1].what, TR_PLAN_PREEMPT);
    cr_assert_eq(todo[0].rows, 1);
}

/* ---- the prefix cache, drafts ---- */

Test(plan, a_cached_prefix_is_neither_computed_nor_allocated)
{
    struct tr_plan_seq q[] = {seq(TR_WAITING, 100, 0)};
    q[0].cached = 64;
    struct tr_plan_in in = input(q, 1, 3);
    struct tr_plan_do todo[1];
    make(&in, todo);
    cr_assert_eq(todo[0].what, TR_PLAN_ADMIT, "two blocks, and one to grow");
    cr_assert_eq(todo[0].rows, 36);
    q[0].cached_free = 2;
    make(&in, todo);
    cr_assert_eq(todo[0].what, TR_PLAN_STAY, "the cached ones were counted as free");
    in.free_blocks = 5;
    make(&in, todo);
    cr_assert_eq(todo[0].what, TR_PLAN_ADMIT);
}

Test(plan, blocks_that_others_hold_stay_when_one_of_them_gives_up_its_own)
{
    /* Two parked ones share three blocks; a third of them is the running one's as well. */
    struct tr_plan_seq q[] = {seq(TR_RUNNING, 64, 63), seq(TR_PARKED, 128, 127),
                              seq(TR_PARKED, 128, 127), seq(TR_WAITING, 60, 0)};
    q[1].shared = q[2].shared = 3;
    q[1].bound = q[2].bound = 1;
    struct tr_plan_in in = input(q, 4, 0);
    in.evictable = 4;
    in.n_blocks = 7;
    q[0].limit = 64;
    q[3].limit = 60;
    struct tr_plan_do todo[4];
    cr_assert_eq(tr_plan_make(&in, todo, &step), 61);
    cr_assert_eq(todo[3].what, TR_PLAN_ADMIT);
    cr_assert(todo[1].drop && todo[2].drop);
    q[3].total = q[3].limit = 128;
    cr_assert_eq(tr_plan_make(&in, todo, &step), 65, "all that the parked ones hold together");
    q[3].total = q[3].limit = 129;
    cr_assert_eq(tr_plan_make(&in, todo, &step), 1, "one more than there can be");
    cr_assert(!todo[1].drop && !todo[2].drop);
}

Test(plan, a_parked_one_keeps_what_it_shares_when_it_comes_back)
{
    struct tr_plan_seq q[] = {seq(TR_PARKED, 129, 128), seq(TR_PARKED, 128, 127)};
    q[0].shared = q[1].shared = 3;
    q[0].limit = 129;
    q[0].ready = true;
    struct tr_plan_in in = input(q, 2, 0);
    in.evictable = in.n_blocks = 5;
    struct tr_plan_do todo[2];
    cr_assert_eq(tr_plan_make(&in, todo, &step), 1, "the other's own block");
    cr_assert(!todo[0].drop && todo[1].drop);
    q[1].shared = 4;
    q[0].shared = 4;
    in.evictable = in.n_blocks = 4;
    cr_assert_eq(tr_plan_make(&in, todo, &step), 0, "all is its own, and it needs one more");
}

Test(plan, who_is_alone_has_all_that_others_have_shared)
{
    struct tr_plan_seq q[] = {seq(TR_RUNNING, 65, 64), seq(TR_RUNNING, 33, 32),
                              seq(TR_RUNNING, 33, 32)};
    q[1].shared = q[2].shared = 1; /* the same block */
    struct tr_plan_in in = input(q, 3, 0);
    in.n_blocks = 3;
    struct tr_plan_do todo[3];
    cr_assert_eq(tr_plan_make(&in, todo, &step), 1);
    cr_assert_eq(todo[0].rows, 1);
    cr_assert_eq(todo[1].what, TR_PLAN_PREEMPT);
}

Test(plan, who_was_there_before_those_who_wait_for_a_block_does_not_wait_with_them)
{
    struct tr_plan_seq q[] = {seq(TR_PREFILL, 7000, 64), seq(TR_WAITING, 25, 0),
                              seq(TR_WAITING, 7000, 0),  seq(TR_WAITING, 7000, 0),
                              seq(TR_WAITING, 7000, 0),  seq(TR_WAITING, 20, 0)};
    struct tr_plan_in in = input(q, 6, 1000);
    struct tr_plan_do todo[6];
    in.max_seqs = 4;
    q[0].next = q[2].next = q[3].next = q[4].next = 77;
    make(&in, todo);
    cr_assert_eq(todo[1].what, TR_PLAN_ADMIT, "older than they are");
    cr_assert_eq(todo[5].what, TR_PLAN_STAY, "the three would fill the batch");
    q[5].priority = -1;
    struct tr_plan_seq urgent = q[5];
    memmove(q + 1, q, 5 * sizeof(q[0]));
    q[0] = urgent;
    make(&in, todo);
    cr_assert_eq(todo[0].what, TR_PLAN_ADMIT);
    cr_assert_eq(todo[2].what, TR_PLAN_ADMIT);
}

Test(plan, the_same_block_is_computed_once_and_the_others_keep_their_places)
{
    struct tr_plan_seq q[] = {seq(TR_WAITING, 50, 0), seq(TR_WAITING, 60, 0),
                              seq(TR_PREFILL, 40, 0), seq(TR_WAITING, 20, 0),
                              seq(TR_WAITING, 20, 0)};
    q[0].next = q[1].next = q[2].next = 77;
    q[0].limit = q[1].limit = 60;
    struct tr_plan_in in = input(q, 5, 100);
    in.max_seqs = 4;
    struct tr_plan_do todo[5];
    in.prefill_chunk = 1000;
    in.max_rows = 1008;
    cr_assert_eq(make(&in, todo), 50 + 20);
    cr_assert_eq(todo[0].rows, 50);
    cr_assert_eq(todo[1].what, TR_PLAN_STAY);
    cr_assert_eq(todo[2].rows, 0, "also who is in the batch");
    cr_assert_eq(todo[3].rows + todo[4].rows, 20, "of four places one is kept");
    q[0].limit = q[1].limit = 100;
    in.max_seqs = 8;
    in.free_blocks = 5;
    cr_assert_eq(make(&in, todo), 50, "so are its blocks");
    q[0].next = 78;
    in.free_blocks = 100;
    cr_assert_eq(make(&in, todo), 50 + 20 + 20 + 40);
}

Test(plan, drafts_get_rows_while_there_are_blocks_and_nobody_is_preempted_for_them)
{
    struct tr_plan_seq q[] = {seq(TR_RUNNING, 60, 59), seq(TR_RUNNING, 33, 32)};
    q[0].drafts = 8;
    struct tr_plan_in in = input(q, 2, 4);
    struct tr_plan_do todo[2];
    make(&in, todo);
    cr_assert_eq(todo[0].rows, 9, "two blocks are left, in case that both grow");
    cr_assert_eq(todo[1].rows, 1);
    in.free_blocks = 3;
    make(&in, todo);
    cr_assert_eq(todo[0].rows, 1 + 4, "up to the end of its block");
    in.free_blocks = 1;
    make(&in, todo);
    cr_assert_eq(todo[0].rows, 1 + 4);
    q[0].limit = 62;
    make(&in, todo);
    cr_assert_eq(todo[0].rows, 1 + 2);
    in.free_blocks = 0;
    make(&in, todo);
    cr_assert_eq(todo[0].rows, 1, "somebody was preempted");
}

/* ---- the time of a step ---- */

static struct tr_cost known(double step_ns, double row_ns)
{
    struct tr_cost c = {.measured = 10000};
    c.price[TR_COST_STEP] = step_ns;
    c.price[TR_COST_PREFILL] = row_ns;
    c.price[TR_COST_DECODE] = row_ns;
    return c;
}

Test(plan, a_prompt_gets_the_rows_that_keep_the_step_within_its_time)
{
    struct tr_cost c = known(2000, 100);
    struct tr_plan_seq q[] = {seq(TR_PREFILL, 7000, 64), seq(TR_RUNNING, 33, 32)};
    struct tr_plan_in in = input(q, 2, 100);
    in.cost = &c;
    in.budget_ns = 5000;
    in.idle_ns = 7000;
    struct tr_plan_do todo[2];
    make(&in, todo);
    cr_assert_eq(todo[0].rows, (5000 - 2000 - 100) / 100);
    cr_assert_eq(tr_cost_predict(&c, &step.work), 5000);
    in.n = 1;
    make(&in, todo);
    cr_assert_eq(todo[0].rows, (7000 - 2000) / 100, "nobody decodes");
    in.budget_ns = 100000;
    make(&in, todo);
    cr_assert_eq(todo[0].rows, 64, "the chunk is the cap");
}

Test(plan, a_batch_that_is_too_slow_by_itself_does_not_starve_a_prompt)
{
    struct tr_cost c = known(20000, 100);
    struct tr_plan_seq q[] = {seq(TR_PREFILL, 7000, 64), seq(TR_RUNNING, 33, 32)};
    struct tr_plan_in in = input(q, 2, 100);
    in.cost = &c;
    in.budget_ns = 8000;
    struct tr_plan_do todo[2];
    make(&in, todo);
    cr_assert_eq(todo[0].rows, 10, "an eighth of the time");
    c.price[TR_COST_PREFILL] = 5000;
    make(&in, todo);
    cr_assert_eq(todo[0].rows, 1, "never less than one");
}

Test(plan, no_more_rows_than_the_prices_are_known_for)
{
    struct tr_cost c = known(1, 1);
    c.measured = 10;
    struct tr_plan_seq q[] = {seq(TR_PREFILL, 7000, 64)};
    struct tr_plan_in in = input(q, 1, 100);
    in.cost = &c;
    in.budget_ns = 1000000;
    struct tr_plan_do todo[1];
    make(&in, todo);
    cr_assert_eq(todo[0].rows, 40);
}

Test(plan, no_chunk_limit_means_whole_prompts)
{
    struct tr_plan_seq q[] = {seq(TR_WAITING, 500, 0), seq(TR_WAITING, 20, 0)};
    struct tr_plan_in in = input(q, 2, 100);
    in.prefill_chunk = 0;
    in.max_rows = 1000;
    struct tr_plan_do todo[2];
    cr_assert_eq(make(&in, todo), 520);
}

Test(plan, nobody_is_kept_out_by_others_that_need_less)
{
    struct tr_plan_seq q[] = {seq(TR_RUNNING, 20, 19), seq(TR_WAITING, 900, 0),
                              seq(TR_WAITING, 5, 0)};
    struct tr_plan_in in = input(q, 3, 10);
    struct tr_plan_do todo[3];
    make(&in, todo);
    cr_assert_eq(todo[1].what, TR_PLAN_STAY, "no blocks");
    cr_assert_eq(todo[2].what, TR_PLAN_STAY);
    in.free_blocks = 100;
    make(&in, todo);
    cr_assert_eq(todo[1].what, TR_PLAN_ADMIT);
    cr_assert_eq(todo[2].what, TR_PLAN_ADMIT);
}

Test(plan, the_youngest_is_preempted_and_nobody_admitted_in_that_step)
{
    struct tr_plan_seq q[] = {seq(TR_RUNNING, 33, 32), seq(TR_RUNNING, 20, 19),
                              seq(TR_RUNNING, 20, 19), seq(TR_WAITING, 5, 0)};
    struct tr_plan_in in = input(q, 4, 0);
    struct tr_plan_do todo[4];
    cr_assert_eq(make(&in, todo), 2);
    cr_assert_eq(todo[2].what, TR_PLAN_PREEMPT);
    cr_assert(todo[2].drop);
    cr_assert_eq(todo[0].rows, 1);
    cr_assert_eq(todo[1].rows, 1);
    cr_assert_eq(todo[3].what, TR_PLAN_STAY);
}

Test(plan, parked_blocks_go_before_anybody_is_preempted)
{
    struct tr_plan_seq q[] = {seq(TR_RUNNING, 33, 32), seq(TR_PARKED, 20, 19),
                              seq(TR_RUNNING, 20, 19)};
    struct tr_plan_in in = input(q, 3, 0);
    struct tr_plan_do todo[3];
    cr_assert_eq(make(&in, todo), 2);
    cr_assert_eq(todo[1].what, TR_PLAN_STAY);
    cr_assert(todo[1].drop);
    cr_assert_eq(todo[2].rows, 1);
}

Test(plan, parked_gives_its_place_at_once_and_its_blocks_to_a_waiting_one)
{
    struct tr_plan_seq q[] = {seq(TR_RUNNING, 64, 63), seq(TR_WAITING, 30, 0)};
    q[0].hold = true;
    struct tr_plan_in in = input(q, 2, 0);
    in.max_seqs = 1;
    struct tr_plan_do todo[2];
    cr_assert_eq(make(&in, todo), 30);
    cr_assert_eq(todo[0].what, TR_PLAN_PARK);
    cr_assert(todo[0].drop);
    cr_assert_eq(todo[1].what, TR_PLAN_ADMIT);
}

Test(plan, parked_keeps_its_blocks_when_giving_them_would_not_help)
{
    struct tr_plan_seq q[] = {seq(TR_PARKED, 64, 63), seq(TR_WAITING, 300, 0)};
    struct tr_plan_in in = input(q, 2, 1);
    struct tr_plan_do todo[2];
    cr_assert_eq(make(&in, todo), 0);
    cr_assert(!todo[0].drop);
}

Test(plan, blocks_of_those_aside_go_first_the_youngest_before_the_oldest)
{
    struct tr_plan_seq q[] = {seq(TR_RUNNING, 64, 63), seq(TR_RUNNING, 33, 32),
                              seq(TR_WAITING, 90, 0)};
    const uint32_t aside[] = {3, 0, 2, 1}, own[] = {0, 1, 2, 5};
    q[0].hold = true;
    struct tr_plan_in in = input(q, 3, 0);
    in.aside = aside;
    in.own = own;
    in.n_aside = 4;
    struct tr_plan_do todo[3];
    q[2].total = 20, q[2].limit = 20;
    q[1].limit = 33;
    cr_assert_eq(make(&in, todo), 21);
    cr_assert_eq(step.evict, 2, "one for the running one, then one for the one that comes in");
    cr_assert(!todo[0].drop);
    q[2].total = q[2].limit = 320;
    in.prefill_chunk = 64;
    cr_assert_eq(make(&in, todo), 1);
    cr_assert_eq(step.evict, 1, "all that is parked would not be enough");
    q[2].total = q[2].limit = 32 * 8;
    cr_assert_eq(make(&in, todo), 65);
    cr_assert_eq(step.evict, 4);
    cr_assert(todo[0].drop, "then the one that parks in this step");
    cr_assert_eq(todo[2].what, TR_PLAN_ADMIT);
}

Test(plan, unparked_comes_before_waiting_and_decodes_in_the_same_step)
{
    struct tr_plan_seq q[] = {seq(TR_WAITING, 5, 0), seq(TR_PARKED, 64, 63), seq(TR_WAITING, 5, 0)};
    q[1].ready = true;
    struct tr_plan_in in = input(q, 3, 9);
    in.max_seqs = 1;
    struct tr_plan_do todo[3];
    cr_assert_eq(make(&in, todo), 1);
    cr_assert_eq(todo[1].what, TR_PLAN_UNPARK);
    cr_assert_eq(todo[0].what, TR_PLAN_STAY);
}

Test(plan, echoed_rows_are_capped_for_all_together)
{
    struct tr_plan_seq q[] = {seq(TR_WAITING, 30, 0), seq(TR_WAITING, 30, 0),
                              seq(TR_WAITING, 30, 0)};
    q[0].out_rows = q[1].out_rows = true;
    q[0].row_cap = 10;
    struct tr_plan_in in = input(q, 3, 90);
    struct tr_plan_do todo[3];
    make(&in, todo);
    cr_assert_eq(todo[0].rows, 10);
    cr_assert_eq(todo[1].rows, 6);
    cr_assert_eq(todo[2].rows, 30);
}

/* ---- properties over random states ---- */

static uint32_t between(uint32_t lo, uint32_t hi)
{
    return lo + (uint32_t)rand() % (hi - lo + 1);
}

/* Tight: nobody is parked, and who runs needs a block now as often as not. */
static struct tr_plan_seq random_seq(uint32_t ctx, bool tight)
{
    static const enum tr_state live[] = {TR_WAITING, TR_PREFILL, TR_RUNNING, TR_PARKED};
    struct tr_plan_seq q = {.state = live[between(0, 3)], .total = between(2, ctx)};
    if (tight && q.state == TR_PARKED)
        q.state = TR_RUNNING;
    if (tight && q.state == TR_RUNNING)
        q.total = between(0, ctx / TR_KV_BLOCK - 1) * TR_KV_BLOCK + 1 + between(0, 1);
    q.limit = between(q.total, ctx);
    q.in_kv = q.state == TR_RUNNING   ? q.total - 1
              : q.state == TR_WAITING ? 0
                                      : between(0, q.total - 1);
    if (q.state == TR_PREFILL)
        q.blocks = tr_kv_blocks_for(q.total);
    else if (q.state != TR_WAITING)
        q.blocks = tr_kv_blocks_for(q.in_kv);
    q.hold = between(0, 5) == 0;
    q.again = (q.state == TR_WAITING || q.state == TR_PREFILL) && between(0, 3) == 0;
    q.ready = q.state == TR_PARKED && !q.hold && between(0, 1);
    q.out_rows = between(0, 4) == 0;
    q.row_cap = between(0, 2) ? UINT32_MAX : between(1, 20);
    q.drafts = between(0, q.limit - q.total < 8 ? q.limit - q.total : 8);
    return q;
}

/* A state that the scheduler could be in: the batch within its places, blocks within the pool. */
static uint32_t random_state(struct tr_plan_seq *q, struct tr_plan_in *in, uint32_t ctx, bool tight)
{
    uint32_t n = between(1, MAX);
    uint32_t batch = 0;
    uint32_t used = 0;
    for (uint32_t i = 0; i < n; i++) {
        q[i] = random_seq(ctx, tight);
        bool b = q[i].state == TR_PREFILL || q[i].state == TR_RUNNING;
        if (b && batch == in->max_seqs) {
            i--;
            continue;
        }
        batch += b;
        used += q[i].blocks;
    }
    static uint32_t aside[8], own[8];
    in->aside = aside;
    in->own = own;
    in->n_aside = tight ? 0 : between(0, 8);
    for (uint32_t i = 0; i < in->n_aside; i++) {
        aside[i] = 7 - i;
        own[7 - i] = between(0, 4);
        used += own[7 - i];
    }
    in->seqs = q;
    in->n = n;
    in->free_blocks = between(0, tight ? 2 : 20);
    return used + in->free_blocks;
}

static bool in_batch(const struct tr_plan_seq *q, const struct tr_plan_do *d)
{
    return d->what == TR_PLAN_UNPARK || d->what == TR_PLAN_ADMIT ||
           (d->what == TR_PLAN_STAY && (q->state == TR_PREFILL || q->state == TR_RUNNING));
}

static void check_plan(const struct tr_plan_in *in, const struct tr_plan_do *todo, uint32_t rows,
                       uint32_t pool)
{
    uint32_t n_batch = 0, n_rows = 0, prefill = 0, out = 0, used = 0, preempted = 0, admitted = 0;
    uint32_t drafts = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        const struct tr_plan_seq *q = &in->seqs[i];
        const struct tr_plan_do *d = &todo[i];
        bool b = in_batch(q, d);
        uint32_t done = d->drop ? 0 : q->in_kv;
        cr_assert(b || d->rows == 0);
        cr_assert(!(b && q->hold), "who must not run does not");
        cr_assert(d->what != TR_PLAN_PREEMPT || d->drop);
        cr_assert(q->state != TR_RUNNING || !b || d->rows >= 1, "no running stream is left out");
        uint32_t beyond = done + d->rows > q->total ? done + d->rows - q->total : 0;
        cr_assert(!beyond || (q->state == TR_RUNNING && beyond <= q->drafts));
        drafts += beyond;
        cr_assert_leq(d->rows, q->row_cap);
        n_batch += b;
        n_rows += d->rows;
        bool decodes =
            q->state == TR_RUNNING || (d->what == TR_PLAN_UNPARK && done + 1 == q->total);
        prefill += decodes ? 0 : d->rows;
        out += decodes || !q->out_rows ? 0 : d->rows;
        uint32_t needed = tr_kv_blocks_for(q->total + beyond);
        used +=
            b ? needed > (d->drop ? 0 : q->blocks) ? needed : q->blocks : (d->drop ? 0 : q->blocks);
        preempted += d->what == TR_PLAN_PREEMPT;
        admitted += d->what == TR_PLAN_ADMIT || d->what == TR_PLAN_UNPARK;
    }
    cr_assert_leq(step.evict, in->n_aside);
    for (uint32_t i = 0; i < in->n_aside - step.evict; i++)
        used += in->own[in->aside[i]];
    cr_assert_eq(rows, n_rows);
    cr_assert_leq(n_batch, in->max_seqs);
    cr_assert_leq(n_rows, in->max_rows);
    cr_assert(!in->prefill_chunk || prefill <= in->prefill_chunk);
    cr_assert_leq(out, in->out_chunk);
    cr_assert_leq(used, pool, "blocks out of nothing");
    cr_assert(!preempted || !admitted);
    cr_assert(!preempted || !drafts);
}

/* Who is passed by another in the queue has more to do than that one, or comes later by priority, or can
 * have no rows in this step.  Returns how often somebody was put back in the stead of a younger one who
 * has made no token since the last time. */
static uint32_t check_order(const struct tr_plan_in *in, const struct tr_plan_do *todo)
{
    bool preempted = false;
    uint32_t spared = 0;
    for (uint32_t i = in->n, again = 0; i-- > 0;) {
        if (todo[i].what == TR_PLAN_PREEMPT)
            spared += again;
        again += in->seqs[i].again && in->seqs[i].state == TR_PREFILL && !in->seqs[i].hold;
    }
    for (uint32_t i = 0; i < in->n; i++) {
        const struct tr_plan_seq *q = &in->seqs[i];
        for (uint32_t k = 0; k < i && todo[i].what == TR_PLAN_ADMIT; k++) {
            const struct tr_plan_seq *o = &in->seqs[k];
            if (o->state == TR_WAITING && !o->hold && todo[k].what == TR_PLAN_STAY &&
                q->again <= o->again && !o->out_rows)
                cr_assert(q->total - q->cached < o->total - o->cached, "overtaken in the queue");
        }
        if (q->state == TR_RUNNING || q->state == TR_PREFILL) {
            cr_assert(!(q->again && todo[i].what == TR_PLAN_PREEMPT), "twice without a token");
            cr_assert(!(preempted && todo[i].what == TR_PLAN_STAY && !q->again),
                      "an older one was preempted");
            preempted |= todo[i].what == TR_PLAN_PREEMPT;
        }
    }
    return spared;
}

Test(plan, holds_its_promises_in_any_state)
{
    static struct tr_plan_seq q[MAX];
    static struct tr_plan_do todo[MAX];
    uint32_t spared = 0;
    srand(11);
    for (int round = 0; round < 20000; round++) {
        struct tr_plan_in in = {.max_seqs = between(1, 12), .prefill_chunk = between(0, 2) * 17};
        in.max_rows = in.max_seqs + (in.prefill_chunk ? in.prefill_chunk : 300);
        in.out_chunk = between(1, 16);
        uint32_t pool = random_state(q, &in, 300, round % 2);
        in.n_blocks = pool;
        uint32_t rows = make(&in, todo);
        check_plan(&in, todo, rows, pool);
        spared += check_order(&in, todo);
    }
    cr_assert_gt(spared, 100, "this tests less than it says");
}

/* Played to the end on a tiny pool, everybody finishes: no deadlock, no endless preemption.  In small
 * chunks who was put back takes so long that the others use up what was kept for them. */
static uint32_t play(uint32_t chunk, uint32_t pool)
{
    enum { N = 12, CTX = 128 };
    uint32_t preempted = 0;
    struct tr_plan_seq q[N];
    struct tr_plan_do todo[N];
    uint32_t steps = 0, left = N;
    for (uint32_t i = 0; i < N; i++)
        q[i] = (struct tr_plan_seq){
            .state = TR_WAITING, .total = 5 + 7 * i, .limit = CTX, .row_cap = UINT32_MAX};
    while (left) {
        struct tr_plan_in in = input(q, N, pool);
        in.prefill_chunk = chunk;
        cr_assert_gt(make(&in, todo), 0, "stuck");
        cr_assert_lt(++steps, 20000, "no end");
        for (uint32_t i = 0; i < N; i++) {
            if (!todo[i].drop)
                continue;
            pool += q[i].blocks;
            q[i].blocks = q[i].in_kv = 0;
        }
        for (uint32_t i = 0; i < N; i++) {
            if (todo[i].what == TR_PLAN_PREEMPT) {
                cr_assert(!q[i].again, "twice without a token");
                q[i].state = TR_WAITING;
                q[i].again = true;
                preempted++;
            }
            if (!todo[i].rows)
                continue;
            uint32_t need = tr_kv_blocks_for(q[i].total) - q[i].blocks;
            cr_assert_leq(need, pool);
            pool -= need;
            q[i].blocks += need;
            q[i].in_kv += todo[i].rows;
            q[i].state = q[i].in_kv == q[i].total ? TR_RUNNING : TR_PREFILL;
            q[i].again &= q[i].state != TR_RUNNING;
            if (q[i].state == TR_RUNNING && ++q[i].total > CTX) {
                q[i].state = TR_FREE;
                pool += q[i].blocks;
                q[i].blocks = 0;
                left--;
            }
        }
    }
    return preempted;
}

Test(plan, everybody_finishes_on_the_smallest_pool)
{
    for (uint32_t blocks = tr_kv_blocks_for(128); blocks < 12; blocks++)
        for (uint32_t chunk = 1; chunk <= 64; chunk *= 2)
            cr_assert_gt(play(chunk, blocks), 0, "nobody was put back");
}

/* ---- suspects ---- */

static struct tr_plan_seq part(struct tr_plan_seq q, enum tr_plan_part p)
{
    q.part = p;
    return q;
}

Test(plan, a_step_is_for_the_others_or_for_the_trial_and_all_keep_what_they_have)
{
    struct tr_plan_seq q[] = {part(seq(TR_RUNNING, 20, 19), TR_PLAN_TRIAL),
                              seq(TR_RUNNING, 20, 19),
                              part(seq(TR_PREFILL, 90, 32), TR_PLAN_TRIAL),
                              seq(TR_PREFILL, 90, 32),
                              part(seq(TR_WAITING, 5, 0), TR_PLAN_TRIAL),
                              part(seq(TR_WAITING, 5, 0), TR_PLAN_SUSPECT),
                              seq(TR_WAITING, 5, 0)};
    struct tr_plan_do todo[7];
    for (uint32_t trial = 0; trial < 2; trial++) {
        struct tr_plan_in in = input(q, 7, 100);
        in.part = trial ? TR_PLAN_TRIAL : TR_PLAN_OTHERS;
        cr_assert_gt(make(&in, todo), 0);
        for (uint32_t i = 0; i < 7; i++) {
            bool meant = q[i].part == in.part;
            cr_assert_eq(todo[i].rows > 0, meant, "%u", i);
            cr_assert(!todo[i].drop);
            cr_assert_eq(todo[i].what,
                         meant && q[i].state == TR_WAITING ? TR_PLAN_ADMIT : TR_PLAN_STAY);
        }
    }
}

/* A pass had all of them: they find their places again, whoever has come meanwhile. */
Test(plan, places_and_blocks_of_suspects_are_kept_free)
{
    struct tr_plan_seq q[] = {part(seq(TR_WAITING, 64, 0), TR_PLAN_TRIAL),
                              part(seq(TR_WAITING, 64, 0), TR_PLAN_SUSPECT), seq(TR_WAITING, 32, 0),
                              seq(TR_WAITING, 32, 0)};
    struct tr_plan_do todo[4];
    struct tr_plan_in in = input(q, 4, 100);
    in.max_seqs = 3;
    make(&in, todo);
    cr_assert_eq(todo[2].what, TR_PLAN_ADMIT);
    cr_assert_eq(todo[3].what, TR_PLAN_STAY, "two places are theirs");
    in = input(q, 4, 2 * 3 + 1);
    make(&in, todo);
    cr_assert_eq(todo[2].what, TR_PLAN_STAY, "so are two blocks and one to grow for each");
    in.free_blocks = 2 * 3 + 2;
    make(&in, todo);
    cr_assert_eq(todo[2].what, TR_PLAN_ADMIT);
    in.part = TR_PLAN_TRIAL;
    in.free_blocks = 3;
    make(&in, todo);
    cr_assert_eq(todo[0].what, TR_PLAN_ADMIT, "the trial needs no more than its own");
}

Test(plan, a_suspect_that_waits_for_its_reader_keeps_nothing)
{
    struct tr_plan_seq q[] = {part(seq(TR_PARKED, 64, 0), TR_PLAN_SUSPECT), seq(TR_WAITING, 32, 0)};
    struct tr_plan_do todo[2];
    q[0].blocks = 0;
    struct tr_plan_in in = input(q, 2, 2);
    in.max_seqs = 1;
    make(&in, todo);
    cr_assert_eq(todo[1].what, TR_PLAN_ADMIT);
}
