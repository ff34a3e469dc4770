/* SPDX-License-Identifier: Apache-2.0 */
/* tests/unit/grammar/compile.h - a program from a node, for tests. */
#ifndef TR_TESTS_GRAMMAR_COMPILE_H
#define TR_TESTS_GRAMMAR_COMPILE_H

#include "grammar/build.h"
#include "grammar/match.h"

#include <criterion/criterion.h>
#include <string.h>

#define SEQ(b, ...)                                                                                \
    tr_g_seq(b, (tr_gnode[]){__VA_ARGS__}, sizeof((tr_gnode[]){__VA_ARGS__}) / sizeof(tr_gnode))
#define ALT(b, ...)                                                                                \
    tr_g_alt(b, (tr_gnode[]){__VA_ARGS__}, sizeof((tr_gnode[]){__VA_ARGS__}) / sizeof(tr_gnode))

static inline tr_gnode lit(struct tr_gbuild *b, const char *s)
{
    return tr_g_bytes(b, s, strlen(s));
}

static inline tr_gnode chars(struct tr_gbuild *b, uint32_t lo, uint32_t hi)
{
    return tr_g_class(b, &(struct tr_grange){lo, hi}, 1, false);
}

struct compiled {
    struct tr_gprog p;
    size_t len;
    uint8_t image[TR_GRAM_BYTES];
};

/* Finishes and frees the builder. */
static inline void compile(struct compiled *c, struct tr_gbuild *b, tr_gnode start)
{
    struct tr_errbuf err = {{0}};
    int rc = tr_gbuild_finish(b, start, c->image, sizeof(c->image), &c->len, &err);

    cr_assert_eq(rc, 0, "%s", err.msg);
    cr_assert_eq(tr_gprog_open(&c->p, c->image, c->len, 1000, &err), 0, "%s", err.msg);
    tr_gbuild_free(b);
}

static inline bool begins(const struct compiled *c, const char *s)
{
    struct tr_gmatch m;
    tr_gmatch_start(&m, &c->p);
    return tr_gmatch_bytes(&m, &c->p, s, strlen(s));
}

static inline bool accepts(const struct compiled *c, const char *s)
{
    struct tr_gmatch m;
    tr_gmatch_start(&m, &c->p);
    return tr_gmatch_bytes(&m, &c->p, s, strlen(s)) && tr_gmatch_may_end(&m, &c->p);
}

/* Finishing must fail with `want` and a sentence that has `part` in it. */
static inline void refused(struct tr_gbuild *b, tr_gnode start, int want, const char *part)
{
    static uint8_t image[TR_GRAM_BYTES];
    struct tr_errbuf err = {{0}};
    size_t len;
    int rc = tr_gbuild_finish(b, start, image, sizeof(image), &len, &err);

    cr_assert_eq(rc, want, "%d: %s", rc, err.msg);
    cr_assert(strstr(err.msg, part), "%s", err.msg);
    tr_gbuild_free(b);
}

#endif
