/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sim_vocab.h"
#include "testlib/tiny_vocab.h"
#include "text/encode.h"
#include "text/scan.h"

#include <criterion/criterion.h>
#include <errno.h>

static struct tr_vocab *sim;

static void setup(void)
{
    sim = tr_vocab_sim();
}

static void teardown(void)
{
    tr_vocab_close(sim);
}

TestSuite(scan, .init = setup, .fini = teardown);

#define MAX_IDS 40
#define MAX_TEXT (MAX_IDS * 64)

/* The text of ids[0, n), decoded anew: what the windowed way must equal. */
static size_t whole_text(const int32_t *ids, size_t n, bool skip, bool ended, char *out)
{
    struct tr_utf8 u = {0};
    char bytes[MAX_TEXT];
    size_t len = 0;

    for (size_t i = 0; i < n; i++) {
        size_t k;
        const char *p = tr_vocab_bytes(sim, ids[i], &k);
        if (skip && tr_vocab_is_control(sim, ids[i]))
            continue;
        memcpy(bytes + len, p, k);
        len += k;
    }
    len = tr_utf8_push(&u, bytes, len, out);
    if (ended)
        len += tr_utf8_flush(&u, out + len);
    return len;
}

/* The first match by trying each end and each string; returns its index or -1, *end. */
static int first_match(const char *text, size_t len, const struct tr_str *stops, size_t n,
                       size_t *end)
{
    for (size_t e = 1; e <= len; e++) {
        int best = -1;
        for (size_t i = 0; i < n; i++)
            if (stops[i].len <= e && !memcmp(text + e - stops[i].len, stops[i].p, stops[i].len) &&
                (best < 0 || stops[i].len > stops[best].len))
                best = (int)i;
        if (best >= 0) {
            *end = e;
            return best;
        }
    }
    return -1;
}

static size_t hold(const char *text, size_t len, const struct tr_str *stops, size_t n)
{
    size_t best = 0;

    for (size_t i = 0; i < n; i++)
        for (size_t k = 1; k < stops[i].len && k <= len; k++)
            if (k > best && memcmp(text + len - k, stops[i].p, k) == 0)
                best = k;
    return best;
}

/* How much of the answer may be seen after n ids, from the start. */
static size_t visible(const int32_t *ids, size_t n, bool skip, bool ended, bool include,
                      const struct tr_str *stops, size_t n_stops, int *stop, char *text)
{
    size_t end = 0;
    size_t len = whole_text(ids, n, skip, ended, text);

    *stop = first_match(text, len, stops, n_stops, &end);
    if (*stop >= 0)
        return include ? end : end - stops[*stop].len;
    return ended ? len : len - hold(text, len, stops, n_stops);
}

struct world {
    int32_t ids[MAX_IDS];
    size_t n_ids;
    struct tr_str stops[4];
    char stop_text[4][16];
    size_t n_stops;
    struct tr_stopset *set;
    bool skip;
    bool include;
};

/* Few different ids, and stop strings cut from the text they make, so that matches are common. */
static void make_world(struct world *w, uint64_t *seed)
{
    char text[MAX_TEXT];
    int32_t pick[6];

    *w = (struct world){.skip = tiny_rand(seed) & 1, .include = tiny_rand(seed) & 1};
    for (size_t i = 0; i < 6; i++)
        pick[i] = (int32_t)(tiny_rand(seed) % TR_SIM_VOCAB_SIZE);
    if (tiny_rand(seed) & 1) {
        pick[0] = 'a';
        pick[1] = 'b';
        pick[2] = TR_SIM_TEXT_END;     /* F0 9F */
        pick[3] = TR_SIM_TEXT_END + 1; /* 98 80 */
    }
    w->n_ids = tiny_rand(seed) % MAX_IDS;
    for (size_t i = 0; i < w->n_ids; i++)
        w->ids[i] = pick[tiny_rand(seed) % 6];
    size_t len = whole_text(w->ids, w->n_ids, w->skip, true, text);
    size_t want = tiny_rand(seed) % 5;
    for (size_t i = 0; i < want && len > 0; i++) {
        size_t at = tiny_rand(seed) % len;
        size_t n = 1 + tiny_rand(seed) % 12;
        if (n > len - at)
            n = len - at;
        struct tr_str s = {w->stop_text[w->n_stops], n};
        memcpy(w->stop_text[w->n_stops], text + at, n);
        if (tiny_rand(seed) & 1)
            w->stop_text[w->n_stops][n - 1] = 'b';
        if (tr_utf8_is_valid(s.p, n))
            w->stops[w->n_stops++] = s;
    }
    if (w->n_stops > 0)
        cr_assert_eq(tr_stopset_open(w->stops, w->n_stops, &w->set), 0);
}

static void follow(const struct world *w, struct tr_scan s, size_t from, size_t shown)
{
    static char out[TR_SCAN_TEXT_MAX];
    char text[MAX_TEXT];
    int rc = s.stop >= 0 ? TR_SCAN_STOPPED : TR_SCAN_GO;

    for (size_t i = from; i <= w->n_ids && rc == TR_SCAN_GO; i++) {
        size_t len;
        int stop;
        bool ended = i == w->n_ids;
        rc = ended ? tr_scan_flush(&s, out, &len) : tr_scan_push(&s, w->ids[i], out, &len);
        size_t want = visible(w->ids, ended ? i : i + 1, w->skip, ended, w->include, w->stops,
                              w->n_stops, &stop, text);
        cr_assert(tr_utf8_is_valid(out, len));
        cr_assert_eq(shown + len, want, "nothing more, nothing less, nothing taken back");
        cr_assert(memcmp(text + shown, out, len) == 0);
        shown += len;
        cr_assert_eq(rc == TR_SCAN_STOPPED, stop >= 0);
        if (stop >= 0)
            cr_assert(s.stop == stop || (w->stops[s.stop].len == w->stops[stop].len));
        if (!ended && rc == TR_SCAN_GO) {
            size_t all = whole_text(w->ids, i + 1, w->skip, true, text);
            cr_assert_eq(tr_scan_held(&s), all != shown, "held is what the end would add");
        }
    }
}

Test(scan, windowed_equals_decoding_everything_anew_from_any_copy_of_the_state)
{
    uint64_t seed = 7;
    unsigned stopped = 0;

    for (int round = 0; round < 3000; round++) {
        static char out[TR_SCAN_TEXT_MAX];
        struct world w;
        struct tr_scan s;
        size_t shown = 0;
        make_world(&w, &seed);
        tr_scan_init(&s, sim, w.set, w.skip);
        s.include_stop = w.include;
        follow(&w, s, 0, 0);
        for (size_t i = 0; i < w.n_ids && s.stop < 0; i++) {
            size_t len;
            struct tr_scan before = s;
            cr_assert(tr_scan_push(&s, w.ids[i], out, &len) >= 0);
            if (tiny_rand(&seed) % 8 == 0) {
                follow(&w, before, i, shown);
                follow(&w, s, i + 1, shown + len);
            }
            shown += len;
        }
        stopped += s.stop >= 0;
        tr_stopset_close(w.set);
    }
    cr_assert(stopped > 500 && stopped < 2500, "%u of 3000 stopped", stopped);
}

/* "ababab..." with the stop "baba" is "a", and no b is ever shown. */
Test(scan, a_stop_over_several_tokens_shows_no_part_of_itself)
{
    struct tr_stopset *set = NULL;
    struct tr_scan s;
    char out[TR_SCAN_TEXT_MAX];
    size_t len;

    cr_assert_eq(tr_stopset_open(&(struct tr_str){"baba", 4}, 1, &set), 0);
    tr_scan_init(&s, sim, set, true);
    cr_assert_eq(tr_scan_push(&s, 'a', out, &len), TR_SCAN_GO);
    cr_assert(len == 1 && out[0] == 'a');
    for (const char *c = "bab"; *c; c++) {
        cr_assert_eq(tr_scan_push(&s, *c, out, &len), TR_SCAN_GO);
        cr_assert_eq(len, 0);
        cr_assert(tr_scan_held(&s));
    }
    struct tr_scan keep = s;
    cr_assert_eq(tr_scan_push(&s, 'a', out, &len), TR_SCAN_STOPPED);
    cr_assert_eq(len, 0);
    cr_assert_not(tr_scan_held(&s));
    cr_assert_eq(tr_scan_push(&s, 'z', out, &len), TR_SCAN_STOPPED, "nothing comes after it");
    cr_assert_eq(len, 0);
    keep.include_stop = true;
    cr_assert_eq(tr_scan_push(&keep, 'a', out, &len), TR_SCAN_STOPPED);
    cr_assert(len == 4 && memcmp(out, "baba", 4) == 0);
    tr_stopset_close(set);
}

Test(scan, an_id_outside_the_vocabulary_changes_nothing)
{
    struct tr_scan s;
    char out[TR_SCAN_TEXT_MAX];
    size_t len = 99;

    tr_scan_init(&s, sim, NULL, true);
    cr_assert_eq(tr_scan_push(&s, 0xe2, out, &len), TR_SCAN_GO);
    len = 99;
    cr_assert_eq(tr_scan_push(&s, -1, out, &len), -EINVAL);
    cr_assert_eq(tr_scan_push(&s, TR_SIM_VOCAB_SIZE, out, &len), -EINVAL);
    cr_assert_eq(len, 99);
    cr_assert(tr_scan_held(&s));
}

Test(scan, control_tokens_are_left_out_and_a_character_goes_on_across_them)
{
    struct tr_scan s;
    char out[TR_SCAN_TEXT_MAX];
    size_t len;

    tr_scan_init(&s, sim, NULL, true);
    cr_assert_eq(tr_scan_push(&s, TR_SIM_TEXT_END, out, &len), 0);
    cr_assert_eq(tr_scan_push(&s, TR_SIM_IM_START, out, &len), 0);
    cr_assert_eq(len, 0);
    cr_assert_eq(tr_scan_push(&s, TR_SIM_TEXT_END + 1, out, &len), 0);
    cr_assert(len == 4 && memcmp(out, "\xf0\x9f\x98\x80", 4) == 0);
    tr_scan_init(&s, sim, NULL, false);
    cr_assert_eq(tr_scan_push(&s, TR_SIM_IM_END, out, &len), 0);
    cr_assert(len == 10 && memcmp(out, "<|im_end|>", 10) == 0);
}

/* The longest piece of nothing but bad bytes, after held bytes, with a held beginning of a stop. */
Test(scan, a_control_token_that_is_shown_gives_its_name)
{
    int32_t eos = tr_vocab_eos(sim), ids[] = {'a', eos, 'b'};
    struct tr_scan s;
    char out[TR_SCAN_TEXT_MAX];
    size_t n, len;
    const char *name = tr_vocab_bytes(sim, eos, &n);

    tr_scan_init(&s, sim, NULL, true);
    s.shown = &eos;
    s.n_shown = 1;
    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(tr_scan_push(&s, ids[i], out, &len), TR_SCAN_GO);
        cr_assert_eq(len, i == 1 ? n : 1);
        cr_assert_eq(memcmp(out, i == 1 ? name : i ? "b" : "a", len), 0);
    }
}

Test(scan, one_call_never_gives_more_than_the_promised_maximum)
{
    static char piece[TR_VOCAB_PIECE_MAX + 1];
    static char stop[TR_STOP_LEN_MAX];
    const char *control[] = {piece, NULL};
    struct tiny t = {.control = control};
    struct tr_errbuf err = {""};
    struct tr_stopset *set = NULL;
    struct tr_scan s;
    char *out = malloc(TR_SCAN_TEXT_MAX); /* exact, for the address sanitizer */
    size_t len;

    memset(piece, 0xff, TR_VOCAB_PIECE_MAX);
    memset(stop, 'x', sizeof(stop));
    struct tr_vocab *v = tiny_open(&t, &err);
    cr_assert_not_null(v, "%s", err.msg);
    cr_assert_eq(tr_stopset_open(&(struct tr_str){stop, sizeof(stop)}, 1, &set), 0);
    tr_scan_init(&s, v, set, false);
    for (size_t i = 0; i < TR_STOP_LEN_MAX - 1; i++) {
        cr_assert_eq(tr_scan_push(&s, 'x', out, &len), 0);
        cr_assert_eq(len, 0);
    }
    cr_assert_eq(tr_scan_push(&s, 0xed, out, &len), 0);
    cr_assert_eq(tr_scan_push(&s, 0xa0, out, &len), 0);
    cr_assert_eq(len, 0);
    cr_assert_eq(tr_scan_push(&s, 256, out, &len), 0);
    cr_assert_eq(len, TR_SCAN_TEXT_MAX - 1);
    tr_stopset_close(set);
    tr_vocab_close(v);
    free(out);
}
