/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/program.c - see program.h. */
#include "grammar/image.h"

#include <errno.h>

#define BAD(...) tr_errf(err, -EINVAL, __VA_ARGS__)

static uint32_t group_first_rule(const struct tr_gprog *p, uint32_t g)
{
    return g < p->n_groups ? tr_g_u32(tr_ggroup_at(p, g)) : p->n_rules;
}

static uint32_t group_first_state(const struct tr_gprog *p, uint32_t g)
{
    return g < p->n_groups ? tr_g_u32(tr_ggroup_at(p, g) + 4) : p->n_states;
}

static uint32_t rule_first_state(const struct tr_gprog *p, uint32_t r)
{
    return r < p->n_rules ? tr_grule_start(p, r) : p->n_states;
}

uint32_t tr_gstate_group(const struct tr_gprog *p, uint32_t state)
{
    uint32_t lo = 0, hi = p->n_groups;

    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (group_first_state(p, mid) <= state)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* The group of a rule. */
static uint32_t rule_group(const struct tr_gprog *p, uint32_t rule)
{
    return tr_gstate_group(p, tr_grule_start(p, rule));
}

static void digest_edges(const struct tr_gprog *p, struct tr_blake2s *h, uint32_t group,
                         const struct tr_gstate *s)
{
    uint32_t base = group_first_state(p, group), base_rule = group_first_rule(p, group);
    const uint8_t *e = s->edge;
    uint8_t rec[8];

    for (uint32_t i = 0; i < s->n_bytes; i++, e += TR_GEDGE_SIZE) {
        memcpy(rec, e, 2);
        tr_g_put16(rec + 2, tr_g_u16(e + 2) - base);
        tr_blake2s_add(h, rec, 4);
    }
    for (uint32_t i = 0; i < s->n_calls; i++, e += TR_GEDGE_SIZE) {
        uint32_t rule = tr_g_u16(e), of = rule_group(p, rule);
        tr_g_put16(rec, tr_g_u16(e + 2) - base);
        tr_g_put16(rec + 2, of == group);
        tr_g_put32(rec + 4, rule - (of == group ? base_rule : group_first_rule(p, of)));
        tr_blake2s_add(h, rec, 8);
        if (of != group)
            tr_blake2s_add(h, tr_ggroup_at(p, of) + 8, TR_GDIGEST);
    }
    for (uint32_t i = 0; i < s->n_tokens; i++, e += TR_GEDGE_SIZE) {
        memcpy(rec, p->tokens + (size_t)tr_g_u16(e) * TR_GTOKEN_SIZE, 4);
        tr_g_put32(rec + 4, tr_g_u16(e + 2) - base);
        tr_blake2s_add(h, rec, 8);
    }
}

void tr_ggroup_digest(const struct tr_gprog *p, uint32_t group, uint8_t out[TR_GDIGEST])
{
    uint32_t base = group_first_state(p, group), end = group_first_state(p, group + 1);
    struct tr_blake2s h;
    uint8_t rec[8];

    tr_blake2s_init(&h);
    tr_g_put32(rec, group_first_rule(p, group + 1) - group_first_rule(p, group));
    tr_g_put32(rec + 4, end - base);
    tr_blake2s_add(&h, rec, 8);
    for (uint32_t r = group_first_rule(p, group); r < group_first_rule(p, group + 1); r++) {
        tr_g_put32(rec, rule_first_state(p, r) - base);
        tr_blake2s_add(&h, rec, 4);
    }
    for (uint32_t i = base; i < end; i++) {
        struct tr_gstate s = tr_gstate_at(p, i);
        tr_g_put16(rec, s.n_bytes);
        tr_g_put16(rec + 2, s.n_calls);
        tr_g_put16(rec + 4, s.n_tokens);
        tr_g_put16(rec + 6, s.final);
        tr_blake2s_add(&h, rec, 8);
        digest_edges(p, &h, group, &s);
    }
    tr_blake2s_end(&h, out);
}

void tr_grule_begin(const struct tr_gprog *p, uint32_t rule, uint8_t begin[32], uint32_t *flags)
{
    struct tr_gstate s = tr_gstate_at(p, rule_first_state(p, rule));
    const uint8_t *e = s.edge;

    memset(begin, 0, 32);
    *flags = s.n_tokens ? TR_GRULE_TOKEN : 0;
    for (uint32_t i = 0; i < s.n_bytes; i++, e += TR_GEDGE_SIZE)
        for (uint32_t b = e[0]; b <= e[1]; b++)
            begin[b / 8] |= (uint8_t)(1u << b % 8);
    for (uint32_t i = 0; i < s.n_calls; i++, e += TR_GEDGE_SIZE) {
        const uint8_t *of = p->rules + (size_t)tr_g_u16(e) * TR_GRULE_SIZE;
        *flags |= tr_g_u32(of + 4);
        for (size_t k = 0; k < 32; k++)
            begin[k] |= of[8 + k];
    }
}

/* ---- what an image must be ---- */

int tr_gprog_lay_out(struct tr_gprog *p, const uint8_t *image, size_t len, struct tr_errbuf *err)
{
    if (len < TR_GHEAD_SIZE || len > TR_GRAM_BYTES)
        return BAD("a grammar program of %zu bytes", len);
    if (tr_g_u32(image) != TR_GIMAGE_MAGIC || tr_g_u32(image + 4) != TR_GIMAGE_VERSION)
        return BAD("this is no grammar program of version %u", TR_GIMAGE_VERSION);
    uint32_t flags = tr_g_u32(image + 12);
    *p = (struct tr_gprog){
        .image = image,
        .empty = flags & TR_GIMAGE_EMPTY,
        .n_groups = tr_g_u32(image + 16),
        .n_rules = tr_g_u32(image + 20),
        .n_states = tr_g_u32(image + 24),
        .n_edges = tr_g_u32(image + 28),
        .n_tokens = tr_g_u32(image + 32),
        .start = tr_g_u32(image + 36),
    };
    if (flags & ~TR_GIMAGE_EMPTY || tr_g_u32(image + 8) != len)
        return BAD("the header of a grammar program is damaged");
    if (p->n_groups == 0 || p->n_rules == 0 || p->n_states == 0 || p->n_groups > p->n_rules ||
        p->n_rules > TR_GRAM_RULES_MAX || p->n_rules > p->n_states ||
        p->n_states > TR_GRAM_STATES_MAX || p->n_edges > len || p->n_tokens > UINT16_MAX)
        return BAD("the counts of a grammar program are out of bounds");
    p->groups = image + TR_GHEAD_SIZE;
    p->rules = p->groups + (size_t)p->n_groups * TR_GGROUP_SIZE;
    p->states = p->rules + (size_t)p->n_rules * TR_GRULE_SIZE;
    p->edges = p->states + (size_t)p->n_states * TR_GSTATE_SIZE;
    p->tokens = p->edges + (size_t)p->n_edges * TR_GEDGE_SIZE;
    if ((size_t)(p->tokens - image) + (size_t)p->n_tokens * TR_GTOKEN_SIZE != len)
        return BAD("the parts of a grammar program do not make up its length");
    return 0;
}

/* Groups and rules cut the states into pieces, none of them empty, in order. */
static int check_order(const struct tr_gprog *p, struct tr_errbuf *err)
{
    if (group_first_rule(p, 0) != 0 || rule_first_state(p, 0) != 0)
        return BAD("a grammar program does not begin with its first rule");
    for (uint32_t r = 0; r < p->n_rules; r++)
        if (rule_first_state(p, r) >= rule_first_state(p, r + 1))
            return BAD("rule %u of a grammar program is out of order", r);
    for (uint32_t g = 0; g < p->n_groups; g++) {
        uint32_t r = group_first_rule(p, g);
        if (r >= group_first_rule(p, g + 1) || r >= p->n_rules ||
            group_first_state(p, g) != rule_first_state(p, r))
            return BAD("group %u of a grammar program is out of order", g);
    }
    for (uint32_t r = 0; r < p->n_rules; r++)
        if (rule_first_state(p, r) == p->start)
            return 0;
    return BAD("a grammar program starts in no rule");
}

/* One state of rule [first, end) in a group that may call the rules below `callable`. */
static int check_state(const struct tr_gprog *p, uint32_t i, uint32_t first, uint32_t end,
                       uint32_t callable, struct tr_errbuf *err)
{
    struct tr_gstate s = tr_gstate_at(p, i);
    const uint8_t *e = s.edge;
    int above = -1; /* byte edges so far end here */

    if (s.final && i == first)
        return BAD("a rule of a grammar program has the empty text");
    for (uint32_t k = 0; k < s.n_bytes; k++, e += TR_GEDGE_SIZE) {
        if (e[0] <= above || e[0] > e[1])
            return BAD("byte edges of state %u of a grammar program are out of order", i);
        above = e[1];
    }
    above = -1;
    for (uint32_t k = 0; k < s.n_calls; k++, e += TR_GEDGE_SIZE) {
        if (tr_g_u16(e) >= callable || tr_g_u16(e) <= above)
            return BAD("state %u of a grammar program calls a rule that it may not", i);
        above = tr_g_u16(e);
    }
    above = -1;
    for (uint32_t k = 0; k < s.n_tokens; k++, e += TR_GEDGE_SIZE) {
        if (tr_g_u16(e) >= p->n_tokens || tr_g_u16(e) <= above)
            return BAD("state %u of a grammar program names a token that is not there", i);
        above = tr_g_u16(e);
    }
    for (e = s.edge; e < s.edge + ((size_t)s.n_bytes + s.n_calls + s.n_tokens) * TR_GEDGE_SIZE;
         e += TR_GEDGE_SIZE)
        if (tr_g_u16(e + 2) < first || tr_g_u16(e + 2) >= end)
            return BAD("an edge of state %u of a grammar program leaves its rule", i);
    return 0;
}

static int check_states(const struct tr_gprog *p, struct tr_errbuf *err)
{
    uint32_t edge = 0, rule = 0, group = 0;

    for (uint32_t i = 0; i < p->n_states; i++) {
        const uint8_t *s = p->states + (size_t)i * TR_GSTATE_SIZE;
        uint32_t n = (uint32_t)tr_g_u16(s + 4) + tr_g_u16(s + 6) + tr_g_u16(s + 8);
        /* Edges of all states follow each other, so that looking at each state's is linear. */
        if (tr_g_u32(s) != edge || n > p->n_edges - edge || tr_g_u16(s + 10) > 1)
            return BAD("state %u of a grammar program is damaged", i);
        edge += n;
        while (rule_first_state(p, rule + 1) <= i)
            rule++;
        while (group_first_rule(p, group + 1) <= rule)
            group++;
        int rc = check_state(p, i, rule_first_state(p, rule), rule_first_state(p, rule + 1),
                             group_first_rule(p, group + 1), err);
        if (rc < 0)
            return rc;
    }
    return edge == p->n_edges ? 0 : BAD("a grammar program has edges of no state");
}

/* Rules that call each other before they have taken a byte would be called without end.  Takes away rules
 * that begin with a call of no rule still there (Kahn), within one pass over the start states' calls. */
int tr_gprog_check_left(const struct tr_gprog *p, uint16_t todo[TR_GRAM_RULES_MAX],
                        struct tr_errbuf *err)
{
    uint16_t indeg[TR_GRAM_RULES_MAX] = {0};
    uint32_t n = 0;

    for (uint32_t r = 0; r < p->n_rules; r++) {
        struct tr_gstate s = tr_gstate_at(p, rule_first_state(p, r));
        const uint8_t *e = s.edge + (size_t)s.n_bytes * TR_GEDGE_SIZE;
        for (uint32_t k = 0; k < s.n_calls; k++, e += TR_GEDGE_SIZE)
            if (indeg[tr_g_u16(e)]++ == UINT16_MAX)
                return BAD("too many rules of a grammar program begin alike");
    }
    for (uint32_t r = 0; r < p->n_rules; r++)
        if (indeg[r] == 0)
            todo[n++] = (uint16_t)r;
    for (uint32_t i = 0; i < n; i++) {
        struct tr_gstate s = tr_gstate_at(p, rule_first_state(p, todo[i]));
        const uint8_t *e = s.edge + (size_t)s.n_bytes * TR_GEDGE_SIZE;
        for (uint32_t k = 0; k < s.n_calls; k++, e += TR_GEDGE_SIZE)
            if (--indeg[tr_g_u16(e)] == 0)
                todo[n++] = tr_g_u16(e);
    }
    return n == p->n_rules ? 0 : BAD("a rule of the grammar begins with itself");
}

int tr_gprog_check_parts(const struct tr_gprog *p, struct tr_errbuf *err)
{
    int rc = check_order(p, err);
    return rc < 0 ? rc : check_states(p, err);
}

/* Rules do not begin with themselves, so there is one answer, and it is the one that agrees with itself. */
static int check_begin(const struct tr_gprog *p, struct tr_errbuf *err)
{
    uint8_t begin[32];
    uint32_t flags;

    for (uint32_t r = 0; r < p->n_rules; r++) {
        const uint8_t *rule = p->rules + (size_t)r * TR_GRULE_SIZE;
        tr_grule_begin(p, r, begin, &flags);
        if (tr_g_u32(rule + 4) != flags || memcmp(begin, rule + 8, sizeof(begin)) != 0)
            return BAD("what rule %u of a grammar program begins with is wrong", r);
    }
    return 0;
}

int tr_gprog_open(struct tr_gprog *p, const uint8_t *image, size_t len, uint32_t n_vocab,
                  struct tr_errbuf *err)
{
    struct tr_gprog q;
    uint16_t todo[TR_GRAM_RULES_MAX];
    uint8_t digest[TR_GDIGEST];
    int rc = tr_gprog_lay_out(&q, image, len, err);

    if (rc < 0 || (rc = tr_gprog_check_parts(&q, err)) < 0 ||
        (rc = tr_gprog_check_left(&q, todo, err)) < 0)
        return rc;
    for (uint32_t i = 0, least = 0; i < q.n_tokens; i++, least++) {
        uint32_t id = tr_g_u32(q.tokens + (size_t)i * TR_GTOKEN_SIZE);
        if (id < least || id >= n_vocab)
            return BAD("a grammar program names a token outside the vocabulary, or twice");
        least = id;
    }
    if ((rc = check_begin(&q, err)) < 0)
        return rc;
    for (uint32_t g = 0; g < q.n_groups; g++) {
        tr_ggroup_digest(&q, g, digest);
        if (memcmp(digest, tr_ggroup_at(&q, g) + 8, TR_GDIGEST) != 0)
            return BAD("the digest of a grammar program is wrong");
    }
    /* Header and groups say all: digests of groups cover the rest. */
    struct tr_blake2s h;
    tr_blake2s_init(&h);
    tr_blake2s_add(&h, image, (size_t)(q.rules - image));
    tr_blake2s_end(&h, q.digest);
    *p = q;
    return 0;
}
