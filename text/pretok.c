/* SPDX-License-Identifier: Apache-2.0 */
/* text/pretok.c - see pretok.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretok.h"

#include "base/utf8.h"

#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

/* The property White_Space, for use inside brackets. */
#define BLANK "\\t-\\r\\x{85}\\p{Z}"

/* The last two rules of all: blanks up to a word leave one blank to it, if it can take one. */
#define BLANKS "|[" BLANK "]+(?![^" BLANK "])|[" BLANK "]+"

/* Llama 3's and Qwen 2's rules differ in how many digits go together. */
#define LINES(digits)                                                                              \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)"                                                                 \
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"                                                               \
    "|\\p{N}" digits "| ?[^" BLANK "\\p{L}\\p{N}]+[\\r\\n]*"                                       \
    "|[" BLANK "]*[\\r\\n]+" BLANKS

static const struct rule {
    const char *name;
    bool ignore_merges;
    const char *pattern;
} RULES[] = {
    {"gpt-2", false,
     "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" BLANK "\\p{L}\\p{N}]+" BLANKS},
    /* Each digit is cut out first, so for the rule of blanks a digit is an end of text. */
    {"smollm", false,
     "\\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?[^" BLANK "\\p{L}\\p{N}]+"
     "|[" BLANK "]+(?![^" BLANK "\\p{N}])|[" BLANK "]+"},
    {"llama-bpe", true, LINES("{1,3}")},
    {"qwen2", false, LINES("")},
};

struct tr_pretok {
    const struct rule *rule;
    pcre2_code *code;
    pcre2_match_context *limits;
    bool jit;
};

struct tr_pretok_run {
    pcre2_match_data *match;
};

/* A run of n blanks without a newline costs n steps back in one rule, nothing costs more.  So the match
 * limit only has to be above the longest text; memory is bounded apart from it, in KiB. */
#define MATCH_LIMIT (1U << 31)
#define HEAP_LIMIT_KIB (1U << 16)

static const struct rule *find(struct tr_str name)
{
    for (size_t i = 0; i < sizeof(RULES) / sizeof(RULES[0]); i++)
        if (strlen(RULES[i].name) == name.len && memcmp(RULES[i].name, name.p, name.len) == 0)
            return &RULES[i];
    return NULL;
}

struct tr_pretok *tr_pretok_open(struct tr_str name, bool jit, struct tr_errbuf *err)
{
    const struct rule *rule = find(name);

    if (!rule) {
        int shown = name.len < 64 ? (int)name.len : 64;
        tr_errf(err, 0,
                "the pre-tokeniser \"%.*s\" (tokenizer.ggml.pre) is not supported; known are "
                "smollm, gpt-2, llama-bpe and qwen2",
                shown, name.p);
        return NULL;
    }
    struct tr_pretok *p = calloc(1, sizeof(*p));
    if (!p)
        goto nomem;
    int code;
    PCRE2_SIZE at;
    p->rule = rule;
    p->code = pcre2_compile((PCRE2_SPTR)rule->pattern, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NO_AUTO_CAPTURE, &code,
                            &at, NULL);
    p->limits = pcre2_match_context_create(NULL);
    if (!p->code || !p->limits)
        goto nomem; /* the patterns are constant: nothing else can fail */
    pcre2_set_match_limit(p->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(p->limits, HEAP_LIMIT_KIB);
    p->jit = jit && pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;
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
    pcre2_match_context_free(p->limits);
    pcre2_code_free(p->code);
    free(p);
}

bool tr_pretok_ignore_merges(const struct tr_pretok *p)
{
    return p->rule->ignore_merges;
}

struct tr_pretok_run *tr_pretok_run_new(const struct tr_pretok *p)
{
    struct tr_pretok_run *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->match = pcre2_match_data_create_from_pattern(p->code, NULL);
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

int tr_pretok_next(const struct tr_pretok *p, struct tr_pretok_run *r, const char *text, size_t len,
                   size_t pos, size_t *end)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;

    if (p->jit)
        rc = pcre2_jit_match(p->code, subject, len, pos, PCRE2_NO_UTF_CHECK, r->match, p->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT || rc == PCRE2_ERROR_JIT_BADOPTION)
        rc = pcre2_match(p->code, subject, len, pos, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, r->match,
                         p->limits);
    if (rc == PCRE2_ERROR_NOMEMORY)
        return -ENOMEM;
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
        return -E2BIG;
    if (rc > 0)
        *end = pcre2_get_ovector_pointer(r->match)[1];
    if (rc <= 0 || *end <= pos) {
        /* The rules together take every character; should one not, it is a word. */
        size_t n = 1;
        while (pos + n < len && ((unsigned char)text[pos + n] & 0xc0) == 0x80)
            n++;
        *end = pos + n;
    }
    return 0;
}
