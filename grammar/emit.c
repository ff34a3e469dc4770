/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/emit.c - the automata of a builder, written as an image. */
#include "grammar/build_priv.h"
#include "grammar/image.h"

#include <errno.h>
#include <stdlib.h>

/* What will be written: rules sorted so that those called come first, states numbered by rule. */
struct plan {
    struct tr_gbuild *b;
    const struct tr_gdfa_state *s;
    const struct tr_gdfa_edge *e;
    const uint32_t *first; /* the builder's rules: first state of each, and the end */
    uint32_t n_rules;      /* of the builder */
    uint32_t *number;      /* [n_rules] in the image, or UINT32_MAX */
    uint32_t *sorted;      /* [n] rules in the order of the image */
    uint32_t *comp;        /* [n_rules] */
    uint32_t n, n_groups, n_states, n_edges, n_tokens;
    uint32_t *states; /* [dfa states] number in the image */
    uint32_t *tokens; /* ids, ascending */
};

static bool is_kept(const struct plan *p, uint32_t state)
{
    return p->s[state].reached;
}

/* Calls between the builder's rules, as far as they are kept; then their components. */
static int order(struct plan *p, uint32_t *adj_first, uint32_t *adj, uint32_t *scratch)
{
    uint32_t n_adj = 0;

    for (uint32_t r = 0; r < p->n_rules; r++) {
        adj_first[r] = n_adj;
        for (uint32_t i = p->first[r]; i < p->first[r + 1]; i++)
            for (uint32_t k = p->s[i].first; is_kept(p, i) && k < p->s[i].first + p->s[i].n; k++)
                if (p->e[k].used && p->e[k].kind == TR_GE_CALL)
                    adj[n_adj++] = p->e[k].x;
    }
    adj_first[p->n_rules] = n_adj;
    uint32_t n_comp = tr_gscc(p->n_rules, adj_first, adj, p->comp, scratch);
    /* Counting sort by component; rules of one stay in order. */
    uint32_t *at = scratch;
    memset(at, 0, n_comp * sizeof(*at));
    for (uint32_t r = 0; r < p->n_rules; r++)
        if (is_kept(p, p->first[r]))
            at[p->comp[r]]++;
    for (uint32_t c = 0, sum = 0; c < n_comp; c++) {
        uint32_t k = at[c];
        at[c] = sum;
        sum += k;
        p->n_groups += k > 0;
    }
    for (uint32_t r = 0; r < p->n_rules; r++)
        if (is_kept(p, p->first[r])) {
            p->number[r] = at[p->comp[r]]++;
            p->sorted[p->number[r]] = r;
            p->n++;
        }
    return 0;
}

static int by_number(const void *va, const void *vb)
{
    uint32_t a = *(const uint32_t *)va, b = *(const uint32_t *)vb;
    return a < b ? -1 : a > b;
}

/* Numbers states, counts edges, collects token ids. */
static void count(struct plan *p)
{
    uint32_t k_tok = 0;

    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t s = p->first[p->sorted[i]]; s < p->first[p->sorted[i] + 1]; s++) {
            if (!is_kept(p, s))
                continue;
            p->states[s] = p->n_states++;
            for (uint32_t k = p->s[s].first; k < p->s[s].first + p->s[s].n; k++) {
                if (!p->e[k].used)
                    continue;
                p->n_edges++;
                if (p->e[k].kind == TR_GE_TOKEN)
                    p->tokens[k_tok++] = p->e[k].x;
            }
        }
    if (k_tok)
        qsort(p->tokens, k_tok, sizeof(*p->tokens), by_number);
    for (uint32_t i = 0; i < k_tok; i++)
        if (i == 0 || p->tokens[i] != p->tokens[i - 1])
            p->tokens[p->n_tokens++] = p->tokens[i];
}

static int by_called(const void *a, const void *b)
{
    return (int)tr_g_u16(a) - (int)tr_g_u16(b);
}

static uint32_t token_index(const struct plan *p, uint32_t id)
{
    const uint32_t *at = bsearch(&id, p->tokens, p->n_tokens, sizeof(*p->tokens), by_number);
    return (uint32_t)(at - p->tokens);
}

static void put_state(const struct plan *p, uint32_t s, uint8_t *state, uint8_t *edges,
                      uint32_t *n_edges)
{
    uint32_t n[3] = {0};

    tr_g_put32(state, *n_edges);
    for (uint32_t k = p->s[s].first; k < p->s[s].first + p->s[s].n; k++) {
        const struct tr_gdfa_edge *e = &p->e[k];
        if (!e->used)
            continue;
        uint8_t *to = edges + (size_t)(*n_edges)++ * TR_GEDGE_SIZE;
        if (e->kind == TR_GE_BYTE) {
            to[0] = e->lo;
            to[1] = e->hi;
        } else {
            tr_g_put16(to, e->kind == TR_GE_CALL ? p->number[e->x] : token_index(p, e->x));
        }
        tr_g_put16(to + 2, p->states[e->to]);
        n[e->kind]++;
    }
    /* Rules have other numbers now. */
    if (n[TR_GE_CALL] > 1)
        qsort(edges + (size_t)(*n_edges - n[TR_GE_TOKEN] - n[TR_GE_CALL]) * TR_GEDGE_SIZE,
              n[TR_GE_CALL], TR_GEDGE_SIZE, by_called);
    for (uint32_t i = 0; i < 3; i++)
        tr_g_put16(state + 4 + 2 * (size_t)i, n[i]);
    tr_g_put16(state + 10, p->s[s].final);
}

static void put(const struct plan *p, bool empty, uint8_t *out, size_t len)
{
    const uint32_t start = p->states[p->first[p->n_rules - 1]];
    const uint32_t head[] = {TR_GIMAGE_MAGIC, TR_GIMAGE_VERSION,
                             (uint32_t)len,   empty ? TR_GIMAGE_EMPTY : 0,
                             p->n_groups,     p->n,
                             p->n_states,     p->n_edges,
                             p->n_tokens,     start};
    uint8_t *group = out + TR_GHEAD_SIZE;
    uint8_t *rule = group + (size_t)p->n_groups * TR_GGROUP_SIZE;
    uint8_t *state = rule + (size_t)p->n * TR_GRULE_SIZE;
    uint8_t *edge = state + (size_t)p->n_states * TR_GSTATE_SIZE;
    uint8_t *token = edge + (size_t)p->n_edges * TR_GEDGE_SIZE;
    uint32_t n_edges = 0;

    for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++)
        tr_g_put32(out + 4 * i, head[i]);
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t r = p->sorted[i], first = p->states[p->first[r]];
        if (i == 0 || p->comp[r] != p->comp[p->sorted[i - 1]]) {
            tr_g_put32(group, i);
            tr_g_put32(group + 4, first);
            group += TR_GGROUP_SIZE;
        }
        memset(rule + (size_t)i * TR_GRULE_SIZE, 0, TR_GRULE_SIZE);
        tr_g_put32(rule + (size_t)i * TR_GRULE_SIZE, first);
        for (uint32_t s = p->first[r]; s < p->first[r + 1]; s++)
            if (is_kept(p, s))
                put_state(p, s, state + (size_t)p->states[s] * TR_GSTATE_SIZE, edge, &n_edges);
    }
    for (uint32_t i = 0; i < p->n_tokens; i++)
        tr_g_put32(token + (size_t)i * TR_GTOKEN_SIZE, p->tokens[i]);
}

/* What a reader will check: how rules begin, and the digests of groups, those called first. */
static int seal(struct tr_gbuild *b, uint8_t *out, size_t len)
{
    uint16_t todo[TR_GRAM_RULES_MAX];
    struct tr_gprog p;
    struct tr_errbuf err;
    uint32_t flags;
    int rc = tr_gprog_lay_out(&p, out, len, &err);

    if (rc == 0)
        rc = tr_gprog_check_left(&p, todo, &err);
    for (uint32_t i = p.n_rules; rc == 0 && i-- > 0;) {
        uint8_t *rule = out + (p.rules - out) + (size_t)todo[i] * TR_GRULE_SIZE;
        tr_grule_begin(&p, todo[i], rule + 8, &flags);
        tr_g_put32(rule + 4, flags);
    }
    for (uint32_t g = 0; rc == 0 && g < p.n_groups; g++)
        tr_ggroup_digest(&p, g, out + TR_GHEAD_SIZE + (size_t)g * TR_GGROUP_SIZE + 8);
    if (rc == 0)
        rc = tr_gprog_open(&p, out, len, UINT32_MAX, &err);
    return rc < 0 ? tr_gfail(b, rc, "%s", err.msg) : 0;
}

static int write_image(struct plan *p, bool empty, uint8_t *out, size_t cap, size_t *len)
{
    if (p->n > TR_GRAM_RULES_MAX)
        return tr_gfail(p->b, -E2BIG, "the grammar has more than %d rules", TR_GRAM_RULES_MAX);
    size_t size = TR_GHEAD_SIZE + (size_t)p->n_groups * TR_GGROUP_SIZE +
                  (size_t)p->n * TR_GRULE_SIZE + (size_t)p->n_states * TR_GSTATE_SIZE +
                  (size_t)p->n_edges * TR_GEDGE_SIZE + (size_t)p->n_tokens * TR_GTOKEN_SIZE;
    size_t most = cap < TR_GRAM_BYTES ? cap : TR_GRAM_BYTES;
    if (size > most || p->n_states > TR_GRAM_STATES_MAX || p->n_tokens > UINT16_MAX)
        return tr_gfail(p->b, -E2BIG, "the grammar takes %zu bytes as a program, the most is %zu",
                        size, most);
    put(p, empty, out, size);
    *len = size;
    return seal(p->b, out, size);
}

int tr_gemit(struct tr_gbuild *b, bool empty, uint8_t *out, size_t cap, size_t *len)
{
    struct plan p = {.b = b, .s = b->dfa.p, .e = b->dfa_edges.p, .first = b->dfa_rule.p};
    uint32_t n = b->dfa_rule.n, n_e = b->dfa_edges.n, n_s = b->dfa.n;
    uint32_t *space = calloc(8 * (size_t)n + 1 + 2 * (size_t)n_e + n_s, sizeof(*space));

    if (!space)
        return tr_gfail(b, -ENOMEM, "no memory");
    p.n_rules = n;
    p.number = space;
    p.sorted = p.number + n;
    p.comp = p.sorted + n;
    uint32_t *scratch = p.comp + n, *adj_first = scratch + 4 * (size_t)n;
    uint32_t *adj = adj_first + n + 1;
    p.tokens = adj + n_e;
    p.states = p.tokens + n_e;
    order(&p, adj_first, adj, scratch);
    count(&p);
    int rc = write_image(&p, empty, out, cap, len);
    free(space);
    return rc;
}
