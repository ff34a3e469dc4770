/* SPDX-License-Identifier: Apache-2.0 */
/* text/pretok.c - see pretok.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretok.h"

#include "text/pretok_rules.h"

#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

struct tr_pretok {
    const struct tr_pretok_name *name;
    unsigned n_stages;
    struct {
        pcre2_code *code;
        bool jit;
    } stage[TR_PRETOK_STAGES];
    pcre2_match_context *limits;
};

/* Where a text stands at one stage: in the piece [start, end), and what is known to come behind it. */
struct level {
    size_t start;
    size_t end;
    bool found; /* the next match is [at, to), both the end of the piece cut if there is none */
    size_t at;
    size_t to;
};

struct tr_pretok_run {
    pcre2_match_data *match;
    struct level level[TR_PRETOK_STAGES];
};

/* A run of n blanks without a newline costs n steps back in one rule, nothing costs more.  So the match
 * limit only has to be above the longest text; memory is bounded apart from it, in KiB. */
#define MATCH_LIMIT (1U << 31)
#define HEAP_LIMIT_KIB (1U << 16)

static int compile(struct tr_pretok *p, const char *pattern, bool bytes, bool jit)
{
    uint32_t options = bytes ? 0 : PCRE2_UTF | PCRE2_UCP;
    int code;
    PCRE2_SIZE at;
    pcre2_code *c = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                  options | PCRE2_NO_AUTO_CAPTURE, &code, &at, NULL);

    if (!c)
        return -ENOMEM; /* the patterns are constant: nothing else can fail */
    p->stage[p->n_stages].code = c;
    p->stage[p->n_stages].jit = jit && pcre2_jit_compile(c, PCRE2_JIT_COMPLETE) == 0;
    p->n_stages++;
    return 0;
}

struct tr_pretok *tr_pretok_open(struct tr_str name, bool jit, struct tr_errbuf *err)
{
    const struct tr_pretok_name *known = tr_pretok_named(name);

    if (!known) {
        int shown = name.len < 64 ? (int)name.len : 64;
        tr_errf(err, 0,
                "the pre-tokeniser \"%.*s\" (tokenizer.ggml.pre) is not supported; docs/api.md, "
                "\"Tokens\", has those that are",
                shown, name.p);
        return NULL;
    }
    struct tr_pretok *p = calloc(1, sizeof(*p));
    if (!p)
        goto nomem;
    p->name = known;
    p->limits = pcre2_match_context_create(NULL);
    if (!p->limits)
        goto nomem;
    pcre2_set_match_limit(p->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(p->limits, HEAP_LIMIT_KIB);
    const struct tr_pretok_rule *rule = known->rule;
    for (unsigned i = 0; i < TR_PRETOK_STAGES && rule->pattern[i]; i++)
        if (compile(p, rule->pattern[i], rule->bytes_from && i >= rule->bytes_from, jit) < 0)
            goto nomem;
    return p;
nomem:
    tr_pretok_close(p);
    tr_errf(err, 0, "out of memory for the pre-tokeniser");
    return NULL;
}

void tr_pretok_close(struct tr_pretok *p)
{
    if (!p)
        return;
    for (unsigned i = 0; i < p->n_stages; i++)
        pcre2_code_free(p->stage[i].code);
    pcre2_match_context_free(p->limits);
    free(p);
}

unsigned tr_pretok_flags(const struct tr_pretok *p)
{
    return p->name->flags;
}

struct tr_pretok_run *tr_pretok_run_new(const struct tr_pretok *p)
{
    struct tr_pretok_run *r = calloc(1, sizeof(*r));

    (void)p; /* no pattern captures: one pair for each */
    if (!r)
        return NULL;
    r->match = pcre2_match_data_create(1, NULL);
    if (!r->match) {
        free(r);
        return NULL;
    }
    return r;
}

void tr_pretok_run_free(struct tr_pretok_run *r)
{
    if (!r)
        return;
    pcre2_match_data_free(r->match);
    free(r);
}

/* The first match of a stage at or behind pos in piece[0, len): l->at and l->to, both len if there is none. */
static int search(const struct tr_pretok *p, unsigned stage, struct tr_pretok_run *r,
                  const char *piece, size_t len, size_t pos, size_t *at, size_t *to)
{
    const pcre2_code *code = p->stage[stage].code;
    PCRE2_SPTR subject = (PCRE2_SPTR)piece;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;

    if (p->stage[stage].jit)
        rc = pcre2_jit_match(code, subject, len, pos, PCRE2_NO_UTF_CHECK, r->match, p->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT || rc == PCRE2_ERROR_JIT_BADOPTION)
        rc = pcre2_match(code, subject, len, pos, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, r->match,
                         p->limits);
    if (rc == PCRE2_ERROR_NOMEMORY)
        return -ENOMEM;
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
        return -E2BIG;
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(r->match);
    bool any = rc > 0 && span[1] > span[0]; /* no pattern matches nothing */
    *at = any ? span[0] : len;
    *to = any ? span[1] : len;
    return 0;
}

/* The piece of a stage that begins at pos, within [start, end) of the stage before. */
static int cut(const struct tr_pretok *p, unsigned stage, struct tr_pretok_run *r, const char *text,
               size_t start, size_t end, size_t pos)
{
    struct level *l = &r->level[stage];

    if (!l->found) {
        int rc = search(p, stage, r, text + start, end - start, pos - start, &l->at, &l->to);
        if (rc < 0)
            return rc;
        l->at += start;
        l->to += start;
        l->found = true;
    }
    l->start = pos;
    if (l->at > pos) { /* what lies before the match, which is the next piece */
        l->end = l->at;
    } else {
        l->end = l->to;
        l->found = false;
    }
    return 0;
}

int tr_pretok_next(const struct tr_pretok *p, struct tr_pretok_run *r, const char *text, size_t len,
                   size_t pos, size_t *end)
{
    unsigned last = p->n_stages - 1;
    unsigned stage = pos == 0 ? 0 : last;

    /* The first stage whose piece has come to its end with all of its words. */
    while (stage > 0 && r->level[stage - 1].end <= pos)
        stage--;
    if (pos == 0)
        r->level[0].found = false;
    for (; stage <= last; stage++) {
        size_t from = stage ? r->level[stage - 1].start : 0;
        size_t to = stage ? r->level[stage - 1].end : len;
        int rc = cut(p, stage, r, text, from, to, pos);
        if (rc < 0)
            return rc;
        if (stage < last)
            r->level[stage + 1].found = false;
    }
    *end = r->level[last].end;
    return 0;
}
