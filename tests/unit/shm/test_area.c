/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/area.h"

#include "shm/lpring.h"
#include "testlib/shm_rig.h"

#include <criterion/criterion.h>
#include <errno.h>

static struct shm_rig r;

static void setup(void)
{
    shm_rig_open(&r, 130, 1);
    tr_role = TR_ROLE_FRONTEND;
    tr_area_init(&r.s);
}

static void teardown(void)
{
    shm_rig_close(&r);
}

TestSuite(area, .init = setup, .fini = teardown);

struct seen {
    int n;
    uint32_t slot[300];
    uint64_t word[300];
};

static void note(void *arg, uint32_t area, uint32_t slot, uint64_t word)
{
    struct seen *s = arg;
    cr_assert_eq(area, 0);
    s->slot[s->n] = slot;
    s->word[s->n++] = word;
}

static struct seen sweep(void)
{
    struct seen s = {0};
    tr_role = TR_ROLE_ENGINE;
    tr_cmd_sweep(&r.s, 0, note, &s);
    tr_role = TR_ROLE_FRONTEND;
    return s;
}

Test(area, messages_arrive_in_order_and_a_group_as_one)
{
    struct tr_msg m[3] = {{.kind = TR_MSG_SUBMIT, .slot = 1}, {.slot = 2}, {.slot = 3}}, out[8];
    cr_assert_eq(tr_subq_push(&r.s, m, 3), 0);
    cr_assert_eq(tr_subq_peek(&r.s, 0, out, 8), 3);
    cr_assert(out[0].slot == 1 && out[2].slot == 3);
    tr_role = TR_ROLE_ENGINE;
    tr_subq_consume(&r.s, 0, 3);
    cr_assert_eq(tr_subq_peek(&r.s, 0, out, 8), 0);
}

Test(area, a_full_queue_refuses_a_whole_group)
{
    struct tr_msg m[2] = {{.kind = TR_MSG_SUBMIT}};
    uint32_t cap = tr_layout_subq_cap(&r.s.config);
    for (uint32_t i = 0; i < cap - 1; i++)
        cr_assert_eq(tr_subq_push(&r.s, m, 1), 0);
    cr_assert_eq(tr_subq_push(&r.s, m, 2), -EAGAIN);
    cr_assert_eq(tr_subq_push(&r.s, m, 1), 0);
}

Test(area, a_nonsense_tail_reads_as_empty)
{
    struct tr_msg out[4];
    atomic_store(&r.s.area[0]->subq_tail, UINT64_MAX);
    cr_assert_eq(tr_subq_peek(&r.s, 0, out, 4), 0);
    atomic_store(&r.s.area[0]->subq_tail, tr_layout_subq_cap(&r.s.config) + 1u);
    cr_assert_eq(tr_subq_peek(&r.s, 0, out, 4), 0);
}

Test(area, a_command_is_found_once_in_every_word_of_the_bitmap)
{
    const uint32_t slots[] = {0, 63, 64, 129};
    for (int i = 0; i < 4; i++)
        tr_cmd_post(&r.s, slots[i], 5, TR_CMD_CANCEL, TR_ERR_CLIENT_GONE);
    struct seen s = sweep();
    cr_assert_eq(s.n, 4);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(s.slot[i], slots[i]);
        cr_assert_eq(tr_cmd_gen(s.word[i]), 5);
        cr_assert_eq(tr_cmd_flags(s.word[i]), TR_CMD_CANCEL);
        cr_assert_eq(tr_cmd_arg(s.word[i]), TR_ERR_CLIENT_GONE);
    }
    cr_assert_eq(sweep().n, 0);
}

Test(area, the_first_ending_stands_and_release_is_added)
{
    tr_cmd_post(&r.s, 7, 2, TR_CMD_FINISH, 11);
    tr_cmd_post(&r.s, 7, 2, TR_CMD_CANCEL, TR_ERR_CANCELLED);
    tr_cmd_post(&r.s, 7, 2, TR_CMD_RELEASE, 0);
    struct seen s = sweep();
    cr_assert_eq(s.n, 1);
    cr_assert_eq(tr_cmd_flags(s.word[0]), TR_CMD_FINISH | TR_CMD_RELEASE);
    cr_assert_eq(tr_cmd_arg(s.word[0]), 11);
}

static void note_slot(void *arg, uint32_t slot)
{
    struct seen *s = arg;
    s->slot[s->n++] = slot;
}

static struct seen take_news(void)
{
    struct seen s = {0};
    tr_news_take(&r.s, note_slot, &s);
    return s;
}

static void post_news(uint32_t word, uint64_t bits)
{
    tr_role = TR_ROLE_ENGINE;
    tr_news_post(&r.s, 0, word, bits);
    tr_role = TR_ROLE_FRONTEND;
}

Test(area, news_are_found_once_and_never_outside)
{
    post_news(0, 1ull << 3 | 1);
    post_news(1, 1ull << 63);
    post_news(2, UINT64_MAX); /* 130 slots: two in the last word */
    struct seen s = take_news();
    cr_assert_eq(s.n, 5);
    cr_assert(s.slot[0] == 0 && s.slot[1] == 3 && s.slot[2] == 127 && s.slot[3] == 128 &&
              s.slot[4] == 129);
    cr_assert_eq(take_news().n, 0);
    cr_assert_eq(sweep().n, 0, "commands are another bitmap");
}

Test(area, a_new_engine_posts_every_slot)
{
    tr_role = TR_ROLE_ENGINE;
    tr_news_post_all(&r.s, 0);
    tr_role = TR_ROLE_FRONTEND;
    cr_assert_eq(take_news().n, 130);
}

Test(area, another_generation_starts_clean)
{
    tr_cmd_post(&r.s, 7, 2, TR_CMD_FINISH, 11);
    tr_cursor_set(&r.s, 7, 30, 20);
    tr_cursor_reset(&r.s, 7, 3);
    cr_assert_eq(tr_cmd_flags(tr_cmd_word(&r.s, 0, 7)), 0);
    cr_assert_eq(atomic_load(&tr_cursor_at(&r.s, 0, 7)->scanned), 0);
    tr_cmd_post(&r.s, 7, 3, TR_CMD_CANCEL, TR_ERR_CANCELLED);
    cr_assert_eq(tr_cmd_flags(tr_cmd_word(&r.s, 0, 7)), TR_CMD_CANCEL);
}

Test(area, a_moved_cursor_is_told_like_a_command_to_an_engine_that_wants_to_know)
{
    struct tr_lp lp = {0};
    tr_role = TR_ROLE_FRONTEND;
    tr_cursor_set(&r.s, 7, 3, 2);
    cr_assert_eq(sweep().n, 0, "not parked");
    shm_rig_own(&r, 7);
    tr_cursor_want(&r.s, 7);
    cr_assert_eq(tr_lpring_push(&r.s, 7, &lp), 0);
    tr_role = TR_ROLE_FRONTEND;
    tr_cursor_set(&r.s, 6, 3, 3);
    tr_cursor_set(&r.s, 7, 3, 3);
    struct seen s = sweep();
    cr_assert_eq(s.n, 1);
    cr_assert_eq(s.slot[0], 7);
    cr_assert_eq(tr_cmd_flags(s.word[0]), 0);
    tr_lpring_pop(&r.s, 7);
    cr_assert_eq(sweep().n, 1);
}

Test(area, no_cursor_outside)
{
    cr_assert_null(tr_cursor_at(&r.s, 2, 0));
    cr_assert_null(tr_cursor_at(&r.s, 0, 130));
}

Test(area, delivery_records_survive_a_change_of_owner)
{
    struct tr_delivery d = {.delivered_tokens = 3}, out;
    cr_assert_eq(tr_delivery_push(&r.s, &d), 0);
    tr_area_init(&r.s);
    tr_role = TR_ROLE_LEDGER;
    cr_assert_eq(tr_delivery_pop(&r.s, 0, &out), 0);
    cr_assert_eq(out.delivered_tokens, 3);
    cr_assert_eq(tr_delivery_pop(&r.s, 0, &out), -EAGAIN);
}

Test(area, a_new_owner_starts_where_the_engine_stands)
{
    struct tr_msg m = {.kind = TR_MSG_SUBMIT}, out;
    tr_subq_push(&r.s, &m, 1);
    tr_area_init(&r.s);
    cr_assert_eq(tr_subq_peek(&r.s, 0, &out, 1), 0);
}

Test(area, a_command_for_a_generation_that_is_over_leaves_the_next_one_alone)
{
    tr_role = TR_ROLE_FRONTEND;
    tr_cursor_reset(&r.s, 1, 6);
    tr_cmd_post(&r.s, 1, 6, TR_CMD_RELEASE, 0);
    tr_cmd_post(&r.s, 1, 5, TR_CMD_CANCEL, 3);
    cr_assert_eq(tr_cmd_gen(tr_cmd_word(&r.s, r.s.my_area, 1)), 6);
    cr_assert_eq(tr_cmd_flags(tr_cmd_word(&r.s, r.s.my_area, 1)), TR_CMD_RELEASE);
}
