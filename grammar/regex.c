/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/regex.c - see regex.h.  An automaton with choices is made deterministic: a state is the set of
 * the parts that the text may have come to, its alphabet the classes of characters that no set of the
 * pattern tells apart. */
#include "grammar/regex.h"
#include "grammar/regex_nfa.h"

#include <errno.h>

#include <stdlib.h>
#include <string.h>

enum { SIG_WORDS = TR_RE_SETS / 64 };

/* The characters between two neighbouring borders of any set. */
struct stretch {
    uint32_t lo, hi;
    uint32_t class;
};

struct alphabet {
    struct stretch *s; /* ascending, all characters that some set has */
    uint32_t n;
    uint32_t n_classes;
    uint32_t **of_set; /* [n_sets]: the classes of a set, first their number */
};

struct subsets {
    struct tr_gbudget *w;
    struct tr_rn *a;
    struct alphabet abc;
    struct tr_fa_maker *m;
    uint32_t *mark; /* [parts]: the round that has been here */
    uint32_t round;
    uint32_t *stack; /* [parts] */
    uint32_t *key;   /* [parts + 1] */
    uint32_t **goal; /* [classes]: parts reached by a class, [parts] each, made when needed */
    uint32_t *n_goal;
    uint32_t *state_of; /* [classes]: where the class leads, from the state at hand */
};

/* ---- the alphabet ---- */

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Index of the stretch that begins at c. */
static uint32_t find(const struct alphabet *abc, uint32_t c)
{
    uint32_t lo = 0;
    uint32_t hi = abc->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (abc->s[mid].lo < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Stretches from the borders of all sets. */
static bool find_stretches(struct tr_gbudget *w, const struct tr_rn *a, struct alphabet *abc)
{
    size_t n = 0;
    for (uint32_t i = 0; i < a->n_sets; i++)
        n += 2 * (size_t)a->set[i]->n;
    uint32_t *border = tr_gbudget_alloc(w, n * sizeof *border);
    abc->s = tr_gbudget_alloc(w, n * sizeof *abc->s);
    if (!border || !abc->s || !tr_gbudget_step(w, 8 * n))
        return false;
    n = 0;
    for (uint32_t i = 0; i < a->n_sets; i++)
        for (uint32_t j = 0; j < a->set[i]->n; j++) {
            border[n++] = a->set[i]->r[j].lo;
            border[n++] = a->set[i]->r[j].hi + 1;
        }
    qsort(border, n, sizeof *border, by_value);
    for (size_t i = 0; i + 1 < n; i++)
        if (border[i] < border[i + 1])
            abc->s[abc->n++] = (struct stretch){border[i], border[i + 1] - 1, 0};
    return true;
}

/* Classes: stretches that are in the same sets. */
static bool find_classes(struct tr_gbudget *w, const struct tr_rn *a, struct alphabet *abc)
{
    uint64_t(*sig)[SIG_WORDS] = tr_gbudget_alloc(w, (size_t)abc->n * sizeof *sig);
    struct tr_fa_maker *names = tr_fa_new(w); /* numbers the signatures */
    if (!sig || !names)
        return false;
    for (uint32_t i = 0; i < a->n_sets; i++)
        for (uint32_t j = 0; j < a->set[i]->n; j++) {
            uint32_t k = find(abc, a->set[i]->r[j].lo);
            for (; k < abc->n && abc->s[k].lo <= a->set[i]->r[j].hi; k++) {
                sig[k][i / 64] |= UINT64_C(1) << i % 64;
                if (!tr_gbudget_step(w, 1))
                    return false;
            }
        }
    for (uint32_t k = 0; k < abc->n; k++) {
        abc->s[k].class = tr_fa_state(names, sig[k], sizeof sig[k]);
        if (abc->s[k].class == UINT32_MAX)
            return false;
    }
    abc->n_classes = tr_fa_count(names);
    abc->of_set = tr_gbudget_alloc(w, a->n_sets * sizeof(uint32_t *));
    for (uint32_t i = 0; abc->of_set && i < a->n_sets; i++) {
        uint32_t *list = tr_gbudget_alloc(w, ((size_t)abc->n_classes + 1) * sizeof *list);
        if (!list || !tr_gbudget_step(w, abc->n_classes))
            return false;
        for (uint32_t c = 0; c < abc->n_classes; c++) {
            size_t len;
            const uint64_t *of = tr_fa_key(names, c, &len);
            if (of[i / 64] >> i % 64 & 1)
                list[++list[0]] = c;
        }
        abc->of_set[i] = list;
    }
    return abc->of_set != NULL;
}

/* ---- sets of parts ---- */

/* Adds what can be reached from part `p` without a character; `begins`: the text has not begun, `ends`:
 * it ends here.  Parts that wait for a character or for the end are put into the key. */
static bool reach(struct subsets *s, uint32_t p, bool begins, bool ends, uint32_t *n_key)
{
    uint32_t n = 0;
    if (s->mark[p] != s->round) {
        s->mark[p] = s->round;
        s->stack[n++] = p;
    }
    while (n) {
        const struct tr_rn_part *t = &s->a->part[s->stack[--n]];
        uint32_t next[2] = {TR_RN_NONE, TR_RN_NONE};
        if (!tr_gbudget_step(s->w, 1))
            return false;
        if (t->kind == TR_RN_FORK || (t->kind == TR_RN_BEGIN && begins) ||
            (t->kind == TR_RN_END && ends))
            next[0] = t->to;
        if (t->kind == TR_RN_FORK)
            next[1] = t->or_to;
        if (t->kind != TR_RN_FORK && t->kind != TR_RN_BEGIN)
            s->key[(*n_key)++] = (uint32_t)(t - s->a->part);
        for (int i = 0; i < 2; i++)
            if (next[i] != TR_RN_NONE && s->mark[next[i]] != s->round) {
                s->mark[next[i]] = s->round;
                s->stack[n++] = next[i];
            }
    }
    return true;
}

/* The state for the key that was collected.  Where the pattern has occurred nothing else matters. */
static uint32_t state_for(struct subsets *s, bool begins, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (s->a->part[s->key[i]].kind == TR_RN_REST) {
            s->key[0] = s->key[i];
            n = 1;
            begins = false;
            break;
        }
    /* Sorting is the larger part of the work. */
    if (n > 1 && !tr_gbudget_step(s->w, 4 * (uint64_t)n))
        return UINT32_MAX;
    qsort(s->key, n, sizeof *s->key, by_value);
    s->key[n++] = begins;
    return tr_fa_state(s->m, s->key, n * sizeof *s->key);
}

/* Whether the text may end in a state. */
static bool may_end(struct subsets *s, const uint32_t *key, uint32_t n, bool begins)
{
    uint32_t found = 0;
    s->round++;
    for (uint32_t i = 0; i < n; i++)
        if (!reach(s, key[i], begins, true, &found))
            return false;
    for (uint32_t i = 0; i < found; i++) {
        enum tr_rn_kind k = s->a->part[s->key[i]].kind;
        if (k == TR_RN_MATCH || k == TR_RN_REST)
            return true;
    }
    return false;
}

/* Collects for each class of characters where the parts of a state lead. */
static bool collect(struct subsets *s, const uint32_t *key, uint32_t n)
{
    memset(s->n_goal, 0, s->abc.n_classes * sizeof *s->n_goal);
    for (uint32_t i = 0; i < n; i++) {
        const struct tr_rn_part *t = &s->a->part[key[i]];
        if (t->kind != TR_RN_CHAR)
            continue;
        const uint32_t *classes = s->abc.of_set[t->set];
        if (!tr_gbudget_step(s->w, 1 + classes[0]))
            return false;
        for (uint32_t j = 1; j <= classes[0]; j++) {
            uint32_t c = classes[j];
            if (!s->goal[c])
                s->goal[c] = tr_gbudget_alloc(s->w, s->a->n * sizeof **s->goal);
            if (!s->goal[c])
                return false;
            s->goal[c][s->n_goal[c]++] = t->to;
        }
    }
    return true;
}

static bool expand(struct subsets *s, uint32_t state)
{
    size_t len;
    const uint32_t *key = tr_fa_key(s->m, state, &len);
    uint32_t n = (uint32_t)(len / sizeof *key) - 1;
    bool begins = key[n];
    if (may_end(s, key, n, begins))
        tr_fa_final(s->m, state);
    if (n && s->a->part[key[0]].kind == TR_RN_REST) {
        tr_fa_edge(s->m, state, 0, 0xd7ff, state);
        tr_fa_edge(s->m, state, 0xe000, TR_CHAR_MAX, state);
        return true;
    }
    if (!collect(s, key, n) || !tr_gbudget_step(s->w, s->abc.n_classes + s->abc.n))
        return false;
    for (uint32_t c = 0; c < s->abc.n_classes; c++) {
        uint32_t n_key = 0;
        s->round++;
        for (uint32_t i = 0; i < s->n_goal[c]; i++)
            if (!reach(s, s->goal[c][i], false, false, &n_key))
                return false;
        s->state_of[c] = n_key ? state_for(s, false, n_key) : UINT32_MAX;
        if (n_key && s->state_of[c] == UINT32_MAX)
            return false;
    }
    for (uint32_t i = 0; i < s->abc.n; i++)
        if (s->state_of[s->abc.s[i].class] != UINT32_MAX)
            tr_fa_edge(s->m, state, s->abc.s[i].lo, s->abc.s[i].hi, s->state_of[s->abc.s[i].class]);
    return true;
}

static const struct tr_fa *determinise(struct tr_gbudget *w, struct tr_rn *a)
{
    struct subsets s = {.w = w, .a = a, .m = tr_fa_new(w)};
    if (!s.m || !find_stretches(w, a, &s.abc) || !find_classes(w, a, &s.abc))
        return NULL;
    s.mark = tr_gbudget_alloc(w, a->n * sizeof *s.mark);
    s.stack = tr_gbudget_alloc(w, a->n * sizeof *s.stack);
    s.key = tr_gbudget_alloc(w, ((size_t)a->n + 1) * sizeof *s.key);
    s.goal = tr_gbudget_alloc(w, s.abc.n_classes * sizeof(uint32_t *));
    s.n_goal = tr_gbudget_alloc(w, s.abc.n_classes * sizeof *s.n_goal);
    s.state_of = tr_gbudget_alloc(w, s.abc.n_classes * sizeof *s.state_of);
    if (!s.mark || !s.stack || !s.key || !s.goal || !s.n_goal || !s.state_of)
        return NULL;
    uint32_t n_key = 0;
    s.round = 1;
    if (!reach(&s, a->start, true, false, &n_key))
        return NULL;
    (void)state_for(&s, true, n_key);
    for (uint32_t i = 0; i < tr_fa_count(s.m); i++)
        if (!expand(&s, i))
            return NULL;
    return tr_fa_finish(s.m);
}

static const struct tr_fa *automaton(struct tr_gbudget *w, const struct tr_re *t,
                                     enum tr_re_place place)
{
    struct tr_rn nfa;
    return tr_rn_draw(w, t, place, &nfa) ? determinise(w, &nfa) : NULL;
}

/* Of the texts of a those that do, or do not, begin with what is looked for. */
static const struct tr_fa *look(struct tr_gbudget *w, const struct tr_fa *a,
                                const struct tr_re_look *l)
{
    l->tree->next = NULL;
    struct tr_re begin = {.kind = TR_RE_BEGIN, .next = l->tree};
    const struct tr_re seq = {.kind = TR_RE_SEQ, .child = &begin};
    const struct tr_fa *ahead = automaton(w, &seq, TR_RE_SEARCH);
    return l->absent ? tr_fa_minus(w, a, ahead) : tr_fa_and(w, a, ahead);
}

const struct tr_fa *tr_re_fa(struct tr_gbudget *w, const char *text, size_t len,
                             enum tr_re_place place, int *ret, struct tr_errbuf *err)
{
    struct tr_re_pattern p;
    *ret = tr_re_parse(w, text, len, place, &p, err);
    if (*ret)
        return NULL;
    const struct tr_fa *a = automaton(w, p.tree, place);
    for (unsigned i = 0; a && i < p.n_looks; i++)
        a = look(w, a, &p.look[i]);
    if (!a)
        *ret = tr_errf(err, tr_gbudget_why(w), "the pattern is too large for an automaton");
    return a;
}

int tr_gregex(struct tr_gbuild *b, const char *pattern, size_t len, tr_gnode *out,
              struct tr_errbuf *err)
{
    struct tr_gbudget w;
    int ret = 0;
    tr_gbudget_init(&w);
    const struct tr_fa *a = tr_re_fa(&w, pattern, len, TR_RE_WHOLE, &ret, err);
    if (a && !a->n)
        ret = tr_errf(err, -EINVAL, "no text obeys the pattern");
    if (!ret) {
        *out = tr_fa_node(&w, b, a, tr_fa_plain);
        if (*out == TR_G_NONE)
            ret = tr_errf(err, tr_gbuild_failed(b) ? tr_gbuild_failed(b) : tr_gbudget_why(&w),
                          "the pattern is too large");
    }
    tr_gbudget_fini(&w);
    return ret;
}
