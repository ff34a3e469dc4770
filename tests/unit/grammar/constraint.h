/* SPDX-License-Identifier: Apache-2.0 */
/* tests/unit/grammar/constraint.h - programs from constraints, for tests. */
#ifndef TR_TESTS_GRAMMAR_CONSTRAINT_H
#define TR_TESTS_GRAMMAR_CONSTRAINT_H

#include "compile.h"
#include "grammar/gbnf.h"
#include "grammar/regex.h"

#include <stdio.h>
#include <stdlib.h>

static struct compiled made;

/* What a refusal said. */
static char why[600];

/* Finishes and frees the builder; the status, with the sentence in `why`. */
static inline int finish(struct tr_gbuild *b, tr_gnode node)
{
    struct tr_errbuf err = {.msg = ""};
    int ret = tr_gbuild_finish(b, node, made.image, sizeof made.image, &made.len, &err);
    if (!ret)
        cr_assert_eq(tr_gprog_open(&made.p, made.image, made.len, 1, &err), 0, "%s", err.msg);
    tr_gbuild_free(b);
    snprintf(why, sizeof why, "%s", err.msg);
    return ret;
}

/* `made` is the program of the pattern or grammar; the status. */
static inline int by(int (*make)(struct tr_gbuild *, const char *, size_t, tr_gnode *,
                                 struct tr_errbuf *),
                     const char *text, size_t len)
{
    struct tr_errbuf err = {.msg = ""};
    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode node;
    int ret = make(b, text, len, &node, &err);

    if (!ret)
        return finish(b, node);
    tr_gbuild_free(b);
    snprintf(why, sizeof why, "%s", err.msg);
    return ret;
}

/* Texts that are taken, and texts that are not; both lists end with NULL. */
static inline void expect(const char *what, const char *const *good, const char *const *bad)
{
    for (; *good; good++)
        cr_expect(accepts(&made, *good), "%s does not take %s", what, *good);
    for (; *bad; bad++)
        cr_expect_not(accepts(&made, *bad), "%s takes %s", what, *bad);
}

#define GOOD(...) ((const char *const[]){__VA_ARGS__, NULL})
#define BAD(...) ((const char *const[]){__VA_ARGS__, NULL})

#define REGEX(text, good, bad)                                                                     \
    do {                                                                                           \
        cr_assert_eq(by(tr_gregex, text, strlen(text)), 0, "%s: %s", text, why);                   \
        expect(text, good, bad);                                                                   \
    } while (0)

#define GBNF(text, good, bad)                                                                      \
    do {                                                                                           \
        cr_assert_eq(by(tr_gbnf, text, strlen(text)), 0, "%s: %s", text, why);                     \
        expect(text, good, bad);                                                                   \
    } while (0)

#endif
