/* SPDX-License-Identifier: Apache-2.0 */
#include "compile.h"

#include "grammar/mask.h"
#include "testlib/grammar_json.h"
#include "testlib/grammar_tree.h"

#include <errno.h>
#include <stdlib.h>

enum { VOCAB = 3000, WORDS = (VOCAB + 31) / 32 };

static struct compiled c;

/* A vocabulary: id 0 ends an answer, ids 1 and 2 are control tokens, one has no bytes. */
static struct {
    uint8_t bytes[VOCAB][16];
    size_t len[VOCAB];
} vocab;

static struct tr_gpiece_of piece(void *arg, uint32_t id)
{
    (void)arg;
    if (id < 3)
        return (struct tr_gpiece_of){.kind = id ? TR_GPIECE_CONTROL : TR_GPIECE_EOG};
    return (struct tr_gpiece_of){vocab.bytes[id], vocab.len[id], TR_GPIECE_TEXT};
}

static void put(uint32_t id, const char *s)
{
    vocab.len[id] = strlen(s);
    memcpy(vocab.bytes[id], s, vocab.len[id]);
}

/* Words of the letters that random programs are about, and of what JSON is made of. */
static void make_vocab(uint64_t *seed)
{
    static const char *const bits[] = {
        "a",    "b",    "ab",   "c",        "\"",    "\"",       ",",        ":",
        " ",    "\n",   "{",    "}",        "[",     "]",        "1",        "0",
        ".",    "e",    "-",    "\\",       "n",     "u0041",    "\t",       "tr",
        "ue",   "\xc3", "\xa9", "\xe6\xbc", "\xa2",  "\xf0\x9f", "\x98\x80", "\xed",
        "name", "age",  "\": ", "\", \"",   "false", "null",     "\xff",     "user"};
    for (uint32_t id = 3; id < VOCAB; id++) {
        uint32_t n = 1 + tiny_rand(seed) % 4, all = id < 600 ? 4 : sizeof(bits) / sizeof(bits[0]);
        char s[64] = "";
        for (uint32_t i = 0; i < n; i++)
            strcat(s, bits[tiny_rand(seed) % all]);
        s[15] = 0;
        put(id, id == 77 ? "" : s);
    }
}

struct rig {
    struct tr_gpieces v;
    struct tr_gmasks *k;
    void *image;
};

static void open_rig(struct rig *r, size_t cache_bytes)
{
    uint64_t seed = 7;
    size_t len;

    make_vocab(&seed);
    cr_assert_eq(tr_gpieces_build(VOCAB, piece, NULL, &r->image, &len), 0);
    cr_assert_eq(tr_gpieces_open(&r->v, r->image, len, NULL), 0);
    r->k = tr_gmasks_open(&r->v, cache_bytes);
}

static void close_rig(struct rig *r)
{
    tr_gmasks_close(r->k);
    free(r->image);
}

static bool may(const struct tr_gmatch *m, uint32_t id, struct tr_gmatch *after)
{
    *after = *m;
    if (id == 0)
        return tr_gmatch_may_end(m, &c.p);
    if (id < 3)
        return tr_gmatch_token(after, &c.p, id);
    return vocab.len[id] && tr_gmatch_bytes(after, &c.p, vocab.bytes[id], vocab.len[id]);
}

/* The mask, token by token with the matcher; how many are allowed. */
static uint32_t check(struct rig *r, const struct tr_gmatch *m, uint32_t *ids)
{
    uint32_t mask[WORDS], n = 0;
    struct tr_gmatch after;
    bool any = tr_gmasks_fill(r->k, &c.p, m, mask);

    for (uint32_t id = 0; id < VOCAB; id++) {
        bool yes = may(m, id, &after), bit = mask[id / 32] >> id % 32 & 1;
        cr_assert(yes == bit || after.overflow, "token %u '%.*s': %d", id, (int)vocab.len[id],
                  vocab.bytes[id], bit);
        if (bit)
            ids[n++] = id;
    }
    cr_assert_eq(any, n > 0);
    return n;
}

/* An answer of random allowed tokens, every mask checked. */
static uint32_t answer(struct rig *r, uint64_t *seed, uint32_t most)
{
    static uint32_t ids[VOCAB];
    struct tr_gmatch m;
    uint32_t steps = 0;

    tr_gmatch_start(&m, &c.p);
    for (; steps < most; steps++) {
        uint32_t n = check(r, &m, ids);
        if (n == 0)
            break;
        uint32_t id = ids[tiny_rand(seed) % n];
        if (id == 0)
            break;
        struct tr_gmatch after;
        if (may(&m, id, &after)) /* but for a bound */
            m = after;
    }
    return steps;
}

Test(mask, says_what_may_be_sampled)
{
    struct rig r;
    uint32_t mask[WORDS];
    struct tr_gmatch m;
    open_rig(&r, 0);
    struct tr_gbuild *b = tr_gbuild_new();
    compile(&c, b, SEQ(b, lit(b, "ab"), tr_g_repeat(b, tr_g_token(b, 2), 0, 1)));
    tr_gmatch_start(&m, &c.p);
    cr_assert(tr_gmasks_fill(r.k, &c.p, &m, mask));
    cr_assert_eq(mask[0] & 7, 0);
    tr_gmatch_bytes(&m, &c.p, "ab", 2);
    cr_assert(tr_gmasks_fill(r.k, &c.p, &m, mask));
    cr_assert_eq(mask[0], 1u << 0 | 1u << 2);
    tr_gmatch_token(&m, &c.p, 2);
    cr_assert(tr_gmasks_fill(r.k, &c.p, &m, mask));
    cr_assert_eq(mask[0], 1u << 0);
    close_rig(&r);
}

/* One set of remembered masks for all programs: what one leaves there must be right for the others. */
static void random_programs(size_t cache_bytes, uint64_t seed, int rounds)
{
    static struct tree t;
    struct rig r;
    uint32_t steps = 0;
    struct tr_gmasks_stats st;

    open_rig(&r, cache_bytes);
    for (int round = 0; round < rounds; round++) {
        struct tr_errbuf err = {{0}};
        struct tr_gbuild *b = tr_gbuild_new();
        tree_random(&t, &seed);
        int rc = tr_gbuild_finish(b, tree_build(&t, b), c.image, sizeof(c.image), &c.len, &err);
        tr_gbuild_free(b);
        if (rc == -E2BIG)
            continue;
        cr_assert_eq(tr_gprog_open(&c.p, c.image, c.len, VOCAB, &err), 0, "%s", err.msg);
        for (int k = 0; k < 4; k++)
            steps += answer(&r, &seed, 8);
    }
    tr_gmasks_stats(r.k, &st);
    cr_log_info("%u masks, %llu hits, %llu misses, %llu dropped", steps,
                (unsigned long long)st.hits, (unsigned long long)st.misses,
                (unsigned long long)st.dropped);
    cr_assert_gt(steps, (uint32_t)rounds * 2);
    cr_assert_eq(st.dropped > 0, cache_bytes == 0);
    close_rig(&r);
}

Test(mask, is_what_the_matcher_takes_token_by_token)
{
    random_programs(64 << 20, 11, 80);
}

Test(mask, is_the_same_with_hardly_any_room_to_remember)
{
    random_programs(0, 12, 80);
}

Test(mask, of_json_is_what_the_matcher_takes)
{
    struct rig r;
    uint64_t seed = 5;
    uint32_t steps = 0;

    open_rig(&r, 64 << 20);
    for (int kind = 0; kind < 4; kind++) {
        struct tr_gbuild *b = tr_gbuild_new();
        struct gjson j;
        gj_init(&j, b);
        tr_gnode named = gj_member(&j, "name", gj_string_of(b, 2, 9));
        compile(&c, b,
                kind == 0  ? j.value
                : kind < 3 ? gj_person(&j, kind == 2)
                           : gj_object(&j, &named, 1));
        for (int k = 0; k < 12; k++)
            steps += answer(&r, &seed, 60);
    }
    cr_log_info("%u masks", steps);
    cr_assert_gt(steps, 500);
    close_rig(&r);
}

Test(mask, of_a_nesting_near_the_bound_is_what_the_matcher_takes)
{
    struct rig r;
    uint32_t ids[VOCAB];
    struct tr_gmatch m;
    struct tr_gbuild *b = tr_gbuild_new();
    struct gjson j;

    open_rig(&r, 64 << 20);
    gj_init(&j, b);
    compile(&c, b, j.value);
    tr_gmatch_start(&m, &c.p);
    uint32_t depth = 0;
    while (tr_gmatch_bytes(&m, &c.p, "[", 1)) {
        if (depth++ % 16 == 0 || depth > TR_GRAM_DEPTH / 2)
            check(&r, &m, ids);
        if (depth % 2 && !tr_gmatch_bytes(&m, &c.p, "1,", 2))
            break;
    }
    cr_assert_not(m.overflow);
    cr_assert_gt(check(&r, &m, ids), 0);
    cr_assert_gt(depth, TR_GRAM_DEPTH / 2 - 2);
    close_rig(&r);
}

Test(mask, free_text_before_and_after_a_rule_is_right)
{
    struct rig r;
    uint64_t seed = 9;
    struct tr_gbuild *b = tr_gbuild_new();
    struct tr_gliteral l = {"ab", 2};
    tr_gnode text = tr_g_rule(b), call = tr_g_rule(b);

    open_rig(&r, 64 << 20);
    tr_g_define(b, text, tr_g_repeat(b, chars(b, ' ', '~'), 1, TR_G_INF));
    tr_g_define(b, call, SEQ(b, lit(b, "ab"), text, tr_g_token(b, 1), tr_g_repeat(b, call, 0, 1)));
    compile(&c, b, SEQ(b, tr_g_text_without(b, &l, 1), tr_g_repeat(b, call, 0, 1)));
    for (int k = 0; k < 30; k++)
        answer(&r, &seed, 30);
    close_rig(&r);
}
