/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/run.c - see run.h. */
#include "grammar/run.h"

#include "grammar/pieces.h"

#include <errno.h>
#include <stdlib.h>

#define NOWHERE UINT16_MAX
/* States between the bytes of a character that are remembered as right. */
#define SEEN 32

int tr_gruns_open(struct tr_gruns *r)
{
    *r = (struct tr_gruns){.stamp = 1};
    r->of_state = calloc(TR_GRAM_STATES_MAX, sizeof(*r->of_state));
    r->of_rule = calloc(TR_GRAM_RULES_MAX, sizeof(*r->of_rule));
    if (r->of_state && r->of_rule)
        return 0;
    tr_gruns_close(r);
    return -ENOMEM;
}

void tr_gruns_close(struct tr_gruns *r)
{
    free(r->of_state);
    free(r->of_rule);
    *r = (struct tr_gruns){0};
}

void tr_gruns_of(struct tr_gruns *r, const struct tr_gprog *p)
{
    if (memcmp(r->digest, p->digest, TR_GDIGEST) == 0)
        return;
    memcpy(r->digest, p->digest, TR_GDIGEST);
    if (++r->stamp == 0) { /* once in 2^32 programs */
        memset(r->of_state, 0, TR_GRAM_STATES_MAX * sizeof(*r->of_state));
        memset(r->of_rule, 0, TR_GRAM_RULES_MAX * sizeof(*r->of_rule));
        r->stamp = 1;
    }
}

/* Where the bytes of a state lead, calls left aside. */
static void spread(const struct tr_gprog *p, uint32_t state, uint16_t next[256])
{
    struct tr_gstate s = tr_gstate_at(p, state);
    const uint8_t *e = s.edge;

    memset(next, 0xff, 256 * sizeof(*next));
    for (uint32_t i = 0; i < s.n_bytes; i++, e += TR_GEDGE_SIZE)
        for (uint32_t b = e[0]; b <= e[1]; b++)
            next[b] = tr_g_u16(e + 2);
}

/* What a character has to lead to. */
struct goal {
    const struct tr_gprog *p;
    uint32_t to;
    bool any_end; /* or to any state in which its rule ends */
    uint32_t n;
    uint32_t seen[SEEN]; /* state << 4 | place in UTF-8: all ways on are right */
};

static bool is_goal(const struct goal *g, uint32_t state)
{
    return g->any_end ? tr_gstate_is_end(g->p, state) : state == g->to;
}

/* All that UTF-8 allows at `at` leads from `state` to the goal with the end of the character. */
static bool leads(struct goal *g, uint32_t state, enum tr_gutf8 at)
{
    uint16_t next[256], last = NOWHERE;
    uint32_t what = state << 4 | at;
    enum tr_gutf8 last_at = TR_GUTF8_NONE;

    for (uint32_t i = 0; i < g->n; i++)
        if (g->seen[i] == what)
            return true;
    struct tr_gstate s = tr_gstate_at(g->p, state);
    if (at != TR_GUTF8_BETWEEN && (s.n_calls || s.final))
        return false;
    spread(g->p, state, next);
    for (uint32_t b = 0x80; b < 0xf5; b++) {
        enum tr_gutf8 to = tr_gutf8_next(at, (uint8_t)b);
        if (to == TR_GUTF8_NONE || (next[b] == last && to == last_at))
            continue;
        if (next[b] == NOWHERE ||
            !(to == TR_GUTF8_BETWEEN ? is_goal(g, next[b]) : leads(g, next[b], to)))
            return false;
        last = next[b];
        last_at = to;
    }
    if (g->n < SEEN)
        g->seen[g->n++] = what;
    return true;
}

/* Classes of ASCII of which every byte leads to the goal. */
static uint64_t ascii(const struct goal *g, const uint16_t next[256])
{
    uint64_t not = 0;

    for (uint32_t b = 0; b < 0x80; b++)
        if (next[b] == NOWHERE || !is_goal(g, next[b]))
            not |= UINT64_C(1) << tr_gpiece_class[b];
    return TR_GPIECE_ASCII & ~not ;
}

static uint64_t accept(struct goal *g, uint32_t state)
{
    uint16_t next[256];

    spread(g->p, state, next);
    uint64_t a = ascii(g, next);
    return leads(g, state, TR_GUTF8_BETWEEN) ? a | TR_GPIECE_HIGH : a;
}

/* Where most bytes of ASCII lead. */
static uint16_t usual(const uint16_t next[256])
{
    uint16_t best = NOWHERE;
    uint32_t most = 0;

    for (uint32_t b = 0; b < 0x80; b++) {
        uint32_t n = 0;
        if (next[b] == NOWHERE || next[b] == best || (b && next[b] == next[b - 1]))
            continue;
        for (uint32_t k = b; k < 0x80; k++)
            n += next[k] == next[b];
        if (n > most) {
            most = n;
            best = next[b];
        }
    }
    return best;
}

/* Characters that are a text of `rule` and of which it takes no more. */
static uint64_t of_rule(struct tr_gruns *r, const struct tr_gprog *p, uint32_t rule)
{
    struct tr_grun *run = &r->of_rule[rule];
    uint32_t start = tr_grule_start(p, rule);

    if (run->stamp != r->stamp) {
        struct goal g = {.p = p, .any_end = true};
        *run = (struct tr_grun){.stamp = r->stamp};
        if (tr_gstate_at(p, start).n_calls == 0)
            run->accept = accept(&g, start);
    }
    return run->accept;
}

/* Classes that some byte edge of the state has to do with. */
static uint64_t touched(const uint16_t next[256])
{
    uint64_t a = 0;

    for (uint32_t b = 0; b < 256; b++)
        if (next[b] != NOWHERE)
            a |= b < 0x80 ? UINT64_C(1) << tr_gpiece_class[b] : TR_GPIECE_HIGH;
    return a;
}

static void find(struct tr_gruns *r, const struct tr_gprog *p, uint32_t state, struct tr_grun *run)
{
    struct tr_gstate s = tr_gstate_at(p, state);
    uint16_t next[256];

    if (s.final || s.n_calls > 1)
        return;
    spread(p, state, next);
    if (s.n_calls == 1) {
        const uint8_t *e = s.edge + (size_t)s.n_bytes * TR_GEDGE_SIZE;
        run->call = true;
        run->to = tr_g_u16(e + 2);
        run->accept = of_rule(r, p, tr_g_u16(e)) & ~touched(next);
        return;
    }
    run->to = usual(next);
    if (run->to == NOWHERE)
        return;
    struct goal g = {.p = p, .to = run->to};
    run->accept = accept(&g, state);
}

const struct tr_grun *tr_grun_at(struct tr_gruns *r, const struct tr_gprog *p, uint32_t state)
{
    struct tr_grun *run = &r->of_state[state];

    if (run->stamp != r->stamp) {
        *run = (struct tr_grun){.stamp = r->stamp};
        find(r, p, state, run);
    }
    return run;
}
