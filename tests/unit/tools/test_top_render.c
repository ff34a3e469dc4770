/* SPDX-License-Identifier: Apache-2.0 */
/* Screens and JSON of services that consist of their regions. */
#include "top_fixture.h"

#include <jansson.h>
#include <math.h>

static struct top_rig r;

static void close_rig(void)
{
    top_rig_close(&r);
}

TestSuite(top_render, .fini = close_rig);

/* ---- a service at work ---- */

static void serve(void)
{
    top_process(&r, TR_STAT_ENGINE, TR_PROCESS_SERVING, 100, 0);
    top_process(&r, TR_STAT_SUPERVISOR, TR_PROCESS_SERVING, 99, 0);
    top_process(&r, TR_STAT_AREA0, TR_PROCESS_SERVING, 101, 0);
    top_process(&r, TR_STAT_AREA0 + 1, TR_PROCESS_SERVING, 102, 1);
    top_process(&r, TR_STAT_AREA0 + 2, TR_PROCESS_DEAD, 77, 1); /* the former frontend 1 */
    struct tr_stat *e = r.s.stat[TR_STAT_ENGINE], *f = r.s.stat[TR_STAT_AREA0];
    tr_stat_set(e, TR_STAT_KV_USED, 60);
    tr_stat_set(e, TR_STAT_KV_FREE, 40);
    tr_stat_set(e, TR_STAT_SLOTS_FREE, 5);
    tr_stat_set(f, TR_STAT_BUFFERED_PENDING, 5 << 20);
    tr_stat_set(r.s.stat[TR_STAT_AREA0 + 1], TR_STAT_BUFFERED_PENDING, 1 << 20);
    tr_stat_set(r.s.stat[TR_STAT_AREA0 + 2], TR_STAT_BUFFERED_PENDING, 900 << 20);
    tr_stat_set(f, TR_STAT_CONNECTIONS, 12);
    tr_stat_add(r.s.stat[TR_STAT_SUPERVISOR], TR_STAT_RESTART_FRONTEND, 3);
    tr_stat_add(e, TR_STAT_END_LENGTH, 41);
    for (int i = 0; i < 100; i++)
        tr_hist_add(e, TR_HIST_TTFT, 250000000);
    top_slot(&r, 0, TR_RUNNING, 50, 40, 3);
    top_slot(&r, 1, TR_PARKED, 100, 0, 30);
    top_slot(&r, 2, TR_WAITING, 0, 0, 1);
    top_slot(&r, 3, TR_COMPLETED, 500, 20, 90);
}

static void work(struct top_rig *rig)
{
    struct tr_stat *e = rig->s.stat[TR_STAT_ENGINE];
    tr_stat_add(e, TR_STAT_PUBLISHED, 750);
    tr_stat_add(e, TR_STAT_ROWS, 800);
    tr_stat_add(e, TR_STAT_END_LENGTH, 1);
    tr_stat_add(rig->s.stat[TR_STAT_AREA0], TR_STAT_HTTP_REQUESTS, 7);
    for (int i = 0; i < 10; i++)
        tr_hist_add(e, TR_HIST_ITL, 17500000);
    tr_hist_add_n(e, TR_HIST_STEP, 50000000, 10);
    atomic_store(&rig->s.slots->slot[0].published, 75);
    atomic_store(&rig->s.slots->slot[0].cursors, 70 | 70ull << 32);
}

Test(top_render, a_screen_of_80_by_24_tells_it_all)
{
    top_rig_open(&r, 16);
    serve();
    top_look_twice(&r, work, TR_TOP_BY_FILL);
    struct tr_top_text *t = &r.text;
    tr_top_render(t, &r.f, r.then, 24, 80);
    must_hold(t->line[0].s, "tokenring 1.2.3  serving  some-model (sim)  port 8080  pid 4711");
    must_hold(top_line(t, "tokens"), "750.0/s  through the model 800.0/s  steps 10.0/s");
    must_hold(top_line(t, "tokens"), "busy 50 %");
    must_hold(top_line(t, "slots"), "queue 1  prefill 0  running 1  parked 1");
    must_hold(top_line(t, "kv"), "[##################            ]  used 60  cached 0  free 40");
    must_hold(top_line(t, "buffered"), "pending 6.0M");
    must_hold(top_line(t, "ended/s"), "length 1.0 (42)");
    must_hold(top_line(t, "refused/s"), "none");
    must_hold(top_line(t, "clients"), "connections 12  streams 0  held 0  requests 7.0/s");
    must_hold(top_line(t, "restarts"), "engine 0  ledger 0  frontends 3");
    must_hold(top_line(t, "first token"), "-");
    must_hold(top_line(t, "first token"), "200 ms"); /* between 150 and 250 */
    must_hold(top_line(t, "token gap"), "17.5 ms");
    must_hold(top_line(t, "engine"), "100 serving");
    must_hold(top_line(t, "frontend 0"), "7.0");
    must_hold(top_line(t, "frontend 1"), "102 serving");
    cr_assert_null(strstr(top_line(t, "frontend 1") + 1, "dead"));
    cr_assert_str_eq(top_line(t, "ledger"), "", "there is none");
    cr_assert_eq(t->line[t->n - 4].s[0], '1', "the fullest window comes first: %s",
                 t->line[t->n - 4].s);
    must_hold(t->line[t->n - 4].s, "########");
    must_hold(t->line[t->n - 4].s, "100%");
    must_hold(t->line[t->n - 3].s, "75/500");
    must_hold(t->line[t->n - 3].s, "25.0");
    must_hold(t->line[t->n - 3].s, "5%");
}

Test(top_render, letters_sort)
{
    top_rig_open(&r, 16);
    serve();
    top_look_twice(&r, work, TR_TOP_BY_FILL);
    cr_assert_eq(r.f.n_live, 4);
    cr_assert_eq(r.f.live[0].slot, 1);
    top_look_twice(&r, NULL, TR_TOP_BY_AGE);
    cr_assert_eq(r.f.live[0].slot, 3);
    cr_assert_eq(r.f.live[1].slot, 1);
    atomic_store(&r.s.slots->slot[0].published, 76);
    tr_top_snap_take(r.now, &r.view, r.then->now_ns + 1000000000ull);
    tr_top_figure(&r.f, &r.view.hello, r.then, r.now, TR_TOP_BY_RATE);
    cr_assert_eq(r.f.live[0].slot, 0);
}

Test(top_render, every_size_of_a_screen_is_kept)
{
    static const unsigned cols[] = {1, 2, 10, 39, 80, 132, 240, 500};
    top_rig_open(&r, 64);
    serve();
    for (uint32_t i = 4; i < 60; i++)
        top_slot(&r, i, TR_RUNNING, 9, 9, i);
    top_look_twice(&r, work, TR_TOP_BY_FILL);
    for (unsigned rows = 1; rows <= 100; rows++)
        for (unsigned c = 0; c < sizeof(cols) / sizeof(cols[0]); c++) {
            tr_top_render(&r.text, &r.f, r.then, rows, cols[c]);
            cr_assert_eq(r.text.n, rows < 80 ? rows : 80, "%u lines of %u", r.text.n, rows);
            for (unsigned i = 0; i < r.text.n; i++)
                cr_assert_leq(strlen(r.text.line[i].s), cols[c]);
        }
    tr_top_render(&r.text, &r.f, r.then, 100000, 100000);
    cr_assert_eq(r.text.n, 80);
}

Test(top_render, a_small_screen_keeps_summary_and_slots)
{
    top_rig_open(&r, 64);
    serve();
    top_look_twice(&r, work, TR_TOP_BY_FILL);
    tr_top_render(&r.text, &r.f, r.then, 13, 80);
    must_hold(top_line(&r.text, "slot "), "state");
    must_hold(r.text.line[12].s, "waiting");
    cr_assert_str_eq(top_line(&r.text, "latency"), "");
    tr_top_render(&r.text, &r.f, r.then, 3, 80);
    must_hold(r.text.line[2].s, "queue");
}

Test(top_render, of_many_processes_a_screen_shows_some)
{
    top_rig_open(&r, 64);
    serve();
    top_process(&r, TR_STAT_AREA0 + 2, TR_PROCESS_RETIRED, 103, 2);
    top_process(&r, TR_STAT_AREA0 + 3, TR_PROCESS_STARTING, 104, 3);
    top_look_twice(&r, work, TR_TOP_BY_FILL);
    tr_top_render(&r.text, &r.f, r.then, 21, 80);
    must_hold(top_line(&r.text, "..."), "more");
    tr_top_render(&r.text, &r.f, r.then, 40, 80);
    cr_assert_str_eq(top_line(&r.text, "..."), "");
    must_hold(top_line(&r.text, "frontend 2"), "retired");
    must_hold(top_line(&r.text, "frontend 3"), "starting");
}

Test(top_render, a_process_without_a_sign_of_life_is_silent)
{
    top_rig_open(&r, 16);
    serve();
    tr_stat_beat(r.s.stat[TR_STAT_ENGINE], tr_now_ns() - 7 * 1000000000ull);
    top_look_twice(&r, NULL, TR_TOP_BY_FILL);
    tr_top_render(&r.text, &r.f, r.then, 40, 80);
    must_hold(top_line(&r.text, "engine"), "silent");
}

Test(top_render, ten_thousand_slots_show_the_busiest)
{
    top_rig_open(&r, 10000);
    serve();
    for (uint32_t i = 0; i < 10000; i++)
        top_slot(&r, i, TR_RUNNING, 90, 90 - i % 50, 1);
    top_slot(&r, 7777, TR_PARKED, 99, 1, 1);
    top_look_twice(&r, NULL, TR_TOP_BY_FILL);
    cr_assert_eq(r.f.n_live, 10000);
    tr_top_render(&r.text, &r.f, r.then, 24, 80);
    cr_assert_eq(r.text.n, 24);
    must_hold(top_line(&r.text, "7777"), "parked");
    tr_top_render_all(&r.text, &r.f, r.then, 5);
    must_hold(top_line(&r.text, "..."), "9995 more");
    tr_top_render_all(&r.text, &r.f, r.then, 1u << 20);
    cr_assert_leq(r.text.n, TR_TOP_LINES);
}

Test(top_render, a_slot_that_got_a_new_request_has_no_rate_from_the_old_one)
{
    top_rig_open(&r, 4);
    top_slot(&r, 0, TR_RUNNING, 400, 400, 9);
    tr_top_snap_take(r.then, &r.view, tr_now_ns());
    top_slot(&r, 0, TR_RUNNING, 3, 3, 0);
    atomic_store(&r.s.slots->slot[0].gen, 2);
    tr_top_snap_take(r.now, &r.view, r.then->now_ns + 1000000000ull);
    tr_top_figure(&r.f, &r.view.hello, r.then, r.now, TR_TOP_BY_RATE);
    cr_assert_float_eq(r.f.live[0].tokens_s, 3, 1e-9);
}

/* ---- JSON ---- */

static json_t *as_json(unsigned slots)
{
    char *buf = NULL;
    size_t len = 0;
    json_error_t why;
    FILE *f = open_memstream(&buf, &len);
    tr_top_render_json(f, &r.f, r.then, slots);
    fclose(f);
    cr_assert_eq(strchr(buf, '\n'), buf + len - 1, "one line");
    json_t *j = json_loadb(buf, len, JSON_REJECT_DUPLICATES, &why);
    cr_assert_not_null(j, "%s in %s", why.text, buf);
    free(buf);
    return j;
}

static double at(const json_t *j, const char *a, const char *b, const char *c)
{
    const json_t *v = json_object_get(j, a);
    v = b ? json_object_get(v, b) : v;
    v = c ? json_object_get(v, c) : v;
    return json_is_number(v) ? json_number_value(v) : NAN;
}

Test(top_render, json_says_the_same)
{
    top_rig_open(&r, 16);
    serve();
    top_look_twice(&r, work, TR_TOP_BY_FILL);
    json_t *j = as_json(2);
    cr_assert_float_eq(at(j, "tokens", "generated_per_s", NULL), 750, 1e-6);
    cr_assert_float_eq(at(j, "slots", "waiting", NULL), 1, 0);
    cr_assert_float_eq(at(j, "kv_blocks", "used", NULL), 60, 0);
    cr_assert_float_eq(at(j, "buffered_bytes", "pending", NULL), 6 << 20, 0);
    cr_assert_float_eq(at(j, "ended", "length", "total"), 42, 0);
    cr_assert_float_eq(at(j, "ended", "length", "per_s"), 1, 1e-6);
    cr_assert_eq(json_array_size(json_object_get(j, "live")), 2);
    cr_assert_eq(json_array_size(json_object_get(j, "processes")), 4);
    const json_t *first = json_array_get(json_object_get(j, "live"), 0);
    cr_assert_eq(json_integer_value(json_object_get(first, "slot")), 1);
    cr_assert_eq(json_integer_value(json_object_get(first, "frontend")), 1);
    const json_t *none = json_object_get(
        json_object_get(json_object_get(json_object_get(j, "latency"), "first_token"), "last"),
        "p50_s");
    cr_assert(json_is_null(none), "no value, no number");
    json_decref(j);
}

/* ---- nonsense ---- */

static void scribble(void *p, size_t n)
{
    uint32_t *w = p;
    for (size_t i = 0; i < n / sizeof(*w); i++)
        w[i] = rand() % 4 ? (uint32_t)rand() * 2654435761u : rand() % 2 ? UINT32_MAX : 0;
}

Test(top_render, whatever_the_regions_hold_it_is_drawn)
{
    top_rig_open(&r, 256);
    const struct tr_shm_config *c = &r.fds.config;
    size_t head = sizeof(struct tr_region_head);
    srand(11);
    for (int round = 0; round < 300; round++) {
        for (uint32_t i = 0; i < tr_layout_n_stats(c); i++)
            scribble((char *)r.s.stat[i] + head, sizeof(struct tr_stat) - head);
        scribble((char *)r.s.slots + head, tr_layout_region_bytes(c, TR_REGION_SLOTS) - head);
        scribble((char *)r.s.processes + head, sizeof(struct tr_processes) - head);
        top_look_twice(&r, NULL, (enum tr_top_sort)(round % 3));
        tr_top_render(&r.text, &r.f, r.then, 1 + (unsigned)round % 60, 1 + (unsigned)rand() % 260);
        tr_top_render_all(&r.text, &r.f, r.then, 300);
        for (unsigned i = 0; i < r.text.n; i++)
            for (const char *p = r.text.line[i].s; *p; p++)
                cr_assert(*p >= ' ' && *p <= '~');
        json_decref(as_json(300));
    }
}
