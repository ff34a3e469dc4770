/* SPDX-License-Identifier: Apache-2.0 */
/* testlib/grammar_json.h - JSON for tests of programs: any value, and an object with the usual kinds of
 * properties, some of them nested. */
#ifndef TR_TESTLIB_GRAMMAR_JSON_H
#define TR_TESTLIB_GRAMMAR_JSON_H

#include "grammar/build.h"

#include <string.h>

struct gjson {
    struct tr_gbuild *b;
    tr_gnode string, number, integer, value, ws, boolean;
};

static inline tr_gnode gj_lit(struct tr_gbuild *b, const char *s)
{
    return tr_g_bytes(b, s, strlen(s));
}

static inline tr_gnode gj_set(struct tr_gbuild *b, const char *pairs)
{
    struct tr_grange r[8];
    size_t n = strlen(pairs) / 2;

    for (size_t i = 0; i < n; i++)
        r[i] = (struct tr_grange){(uint8_t)pairs[2 * i], (uint8_t)pairs[2 * i + 1]};
    return tr_g_class(b, r, n, false);
}

#define GJ_SEQ(b, ...)                                                                             \
    tr_g_seq(b, (tr_gnode[]){__VA_ARGS__}, sizeof((tr_gnode[]){__VA_ARGS__}) / sizeof(tr_gnode))
#define GJ_ALT(b, ...)                                                                             \
    tr_g_alt(b, (tr_gnode[]){__VA_ARGS__}, sizeof((tr_gnode[]){__VA_ARGS__}) / sizeof(tr_gnode))

/* One character within a string. */
static inline tr_gnode gj_char(struct tr_gbuild *b)
{
    struct tr_grange not [] = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
    tr_gnode hex = gj_set(b, "09afAF"), plain = tr_g_class(b, not, 3, true);
    tr_gnode u = GJ_SEQ(b, gj_lit(b, "u"), tr_g_repeat(b, hex, 4, 4));
    tr_gnode esc = GJ_SEQ(b, gj_lit(b, "\\"), GJ_ALT(b, gj_set(b, "\"\"\\\\//bbffnnrrtt"), u));

    return GJ_ALT(b, plain, esc);
}

static inline tr_gnode gj_string_of(struct tr_gbuild *b, uint32_t min, uint32_t max)
{
    return GJ_SEQ(b, gj_lit(b, "\""), tr_g_repeat(b, gj_char(b), min, max), gj_lit(b, "\""));
}

/* item, item, ... between two brackets, at least `min` of them. */
static inline tr_gnode gj_list(struct gjson *j, const char *open, tr_gnode item, uint32_t min,
                               const char *shut)
{
    struct tr_gbuild *b = j->b;
    tr_gnode more = GJ_SEQ(b, gj_lit(b, ","), j->ws, item);
    tr_gnode all = GJ_SEQ(b, item, tr_g_repeat(b, more, min ? min - 1 : 0, TR_G_INF));

    if (min == 0)
        all = tr_g_repeat(b, all, 0, 1);
    return GJ_SEQ(b, gj_lit(b, open), j->ws, all, j->ws, gj_lit(b, shut));
}

static inline void gj_init(struct gjson *j, struct tr_gbuild *b)
{
    *j = (struct gjson){
        .b = b, .string = tr_g_rule(b), .number = tr_g_rule(b), .value = tr_g_rule(b)};
    tr_gnode digits = tr_g_repeat(b, gj_set(b, "09"), 1, TR_G_INF), minus = gj_lit(b, "-");
    tr_gnode whole =
        GJ_ALT(b, gj_lit(b, "0"),
               GJ_SEQ(b, gj_set(b, "19"), tr_g_repeat(b, gj_set(b, "09"), 0, TR_G_INF)));
    tr_gnode frac = GJ_SEQ(b, gj_lit(b, "."), digits);
    tr_gnode exp = GJ_SEQ(b, gj_set(b, "eeEE"), tr_g_repeat(b, gj_set(b, "++--"), 0, 1), digits);

    j->ws = tr_g_repeat(b, gj_set(b, "  \n\n"), 0, 1);
    j->boolean = GJ_ALT(b, gj_lit(b, "true"), gj_lit(b, "false"));
    j->integer = GJ_SEQ(b, tr_g_repeat(b, minus, 0, 1), whole);
    tr_g_define(b, j->number,
                GJ_SEQ(b, j->integer, tr_g_repeat(b, frac, 0, 1), tr_g_repeat(b, exp, 0, 1)));
    tr_g_define(b, j->string, gj_string_of(b, 0, TR_G_INF));
    tr_gnode member = GJ_SEQ(b, j->string, gj_lit(b, ":"), j->ws, j->value);
    tr_g_define(b, j->value,
                GJ_ALT(b, j->string, j->number, j->boolean, gj_lit(b, "null"),
                       gj_list(j, "[", j->value, 0, "]"), gj_list(j, "{", member, 0, "}")));
}

/* "name": value */
static inline tr_gnode gj_member(struct gjson *j, const char *name, tr_gnode value)
{
    struct tr_gbuild *b = j->b;

    return GJ_SEQ(b, gj_lit(b, "\""), gj_lit(b, name), gj_lit(b, "\":"), j->ws, value);
}

static inline tr_gnode gj_object(struct gjson *j, const tr_gnode *members, size_t n)
{
    struct tr_gbuild *b = j->b;
    tr_gnode all = gj_lit(b, "{");

    for (size_t i = 0; i < n; i++)
        all = GJ_SEQ(b, all, i ? gj_lit(b, ",") : tr_g_empty(b), j->ws, members[i]);
    return GJ_SEQ(b, all, j->ws, gj_lit(b, "}"));
}

/* A person: string, integer, enum, boolean, array of strings, nested object, array of objects, number; with
 * free: any JSON value as well. */
static inline tr_gnode gj_person(struct gjson *j, bool free)
{
    struct tr_gbuild *b = j->b;
    tr_gnode role =
        GJ_ALT(b, gj_lit(b, "\"admin\""), gj_lit(b, "\"user\""), gj_lit(b, "\"guest\""));
    tr_gnode address[] = {gj_member(j, "street", j->string), gj_member(j, "city", j->string),
                          gj_member(j, "zip", j->integer)};
    tr_gnode job[] = {gj_member(j, "title", j->string), gj_member(j, "years", j->number)};
    tr_gnode all[] = {gj_member(j, "name", j->string),
                      gj_member(j, "age", j->integer),
                      gj_member(j, "role", role),
                      gj_member(j, "active", j->boolean),
                      gj_member(j, "tags", gj_list(j, "[", j->string, 0, "]")),
                      gj_member(j, "address", gj_object(j, address, 3)),
                      gj_member(j, "jobs", gj_list(j, "[", gj_object(j, job, 2), 1, "]")),
                      gj_member(j, "score", j->number),
                      gj_member(j, "extra", j->value)};

    return gj_object(j, all, free ? 9 : 8);
}

#endif
