/* SPDX-License-Identifier: Apache-2.0 */
/* Masks that are much work, or come near to what a walk holds: what is remembered decides nothing. */
#include "compile.h"

#include "grammar/gbnf.h"
#include "grammar/mask.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* All words x???a of the first 25 letters, but for the last one: it ends an answer. */
enum { LETTERS = 25, WORDS = LETTERS * LETTERS * LETTERS, VOCAB = WORDS + 1 };
enum { MASK = (VOCAB + 31) / 32 };

static struct compiled c;
static struct tr_gpieces pieces;
static void *trie;

static struct tr_gpiece_of piece(void *arg, uint32_t id)
{
    static char words[WORDS][5];
    char *w = words[id % WORDS];

    (void)arg;
    if (id == WORDS)
        return (struct tr_gpiece_of){.kind = TR_GPIECE_EOG};
    w[0] = 'x';
    for (uint32_t i = 1, n = id; i < 4; i++, n /= LETTERS)
        w[i] = (char)('a' + n % LETTERS);
    w[4] = 'a';
    return (struct tr_gpiece_of){w, 5, TR_GPIECE_TEXT};
}

static void open_pieces(void)
{
    size_t len;

    cr_assert_eq(tr_gpieces_build(VOCAB, piece, NULL, &trie, &len), 0);
    cr_assert_eq(tr_gpieces_open(&pieces, trie, len, NULL), 0);
}

struct text {
    char s[1 << 18];
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    t->n += (size_t)vsnprintf(t->s + t->n, sizeof(t->s) - t->n, format, ap);
    va_end(ap);
    cr_assert_lt(t->n, sizeof(t->s));
}

static void compile_text(const struct text *t)
{
    struct tr_errbuf err = {{0}};
    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode start;

    cr_assert_eq(tr_gbnf(b, t->s, t->n, &start, &err), 0, "%s", err.msg);
    compile(&c, b, start);
}

/* Palindromes of the letters, with `mark` in the middle: their stacks are as many as there are words. */
static void palindromes(struct text *t, char rule, int mark)
{
    add(t, "q%c ::= \"#%d\"", rule, mark);
    for (int i = 0; i < LETTERS; i++)
        add(t, " | \"%c\" q%c \"%c!\"", 'a' + i, rule, 'a' + i);
    add(t, "\n");
}

Test(mask_bounds, work_is_counted_over_all_ways_to_read_the_answer)
{
    enum { KINDS = 24 };
    static struct text t;
    struct tr_gmatch m;
    struct tr_gmasks_stats st;
    uint32_t mask[MASK];

    add(&t, "root ::= pA");
    for (int i = 1; i < KINDS; i++)
        add(&t, " | p%c", 'A' + i);
    add(&t, "\n");
    for (int i = 0; i < KINDS; i++) {
        add(&t, "p%c ::= \"~\" q%c \"%d\" | \"~~\" p%c \"%d\"\n", 'A' + i, 'A' + i, i, 'A' + i, i);
        palindromes(&t, (char)('A' + i), i);
    }
    compile_text(&t);
    open_pieces();
    struct tr_gmasks *k = tr_gmasks_open(&pieces, 1 << 20);
    tr_gmatch_start(&m, &c.p);
    cr_assert(tr_gmatch_bytes(&m, &c.p, "~", 1));
    cr_assert_eq(m.n_heads, KINDS);
    cr_assert_not(tr_gmasks_fill(k, &c.p, &m, mask));
    tr_gmasks_stats(k, &st);
    cr_assert_lt(st.misses, KINDS - 5, "%lu", st.misses); /* the rest was not looked at */
    tr_gmasks_close(k);
    free(trie);
}

static void nest(struct tr_gmatch *m, uint32_t depth)
{
    tr_gmatch_start(m, &c.p);
    for (uint32_t i = 0; i < depth; i++)
        cr_assert(tr_gmatch_bytes(m, &c.p, "(", 1));
}

Test(mask_bounds, what_a_walk_holds_does_not_depend_on_the_depth_it_begins_at)
{
    static struct text t;
    struct tr_gmatch shallow, deep;
    uint32_t first[MASK], again[MASK], alone[MASK];

    add(&t, "root ::= \"(\" root \")\" | r qA\n"
            "r ::= \"yx\" | \"<\" r \">\"\n");
    palindromes(&t, 'A', 1);
    compile_text(&t);
    open_pieces();
    struct tr_gmasks *k = tr_gmasks_open(&pieces, 1 << 20), *fresh = tr_gmasks_open(&pieces, 0);
    nest(&shallow, 20);
    nest(&deep, 220);
    cr_assert(tr_gmatch_bytes(&shallow, &c.p, "y", 1) && tr_gmatch_bytes(&deep, &c.p, "y", 1));
    cr_assert(tr_gmasks_fill(k, &c.p, &shallow, first));
    cr_assert(tr_gmasks_fill(k, &c.p, &deep, again));
    cr_assert(tr_gmasks_fill(fresh, &c.p, &deep, alone));
    cr_assert_arr_eq(again, alone, sizeof(alone));
    cr_assert_arr_eq(again, first, sizeof(first));
    tr_gmasks_close(k);
    tr_gmasks_close(fresh);
    free(trie);
}
