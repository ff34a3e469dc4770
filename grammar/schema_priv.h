/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/schema_priv.h - what the files of the schema compiler share.
 *
 * The unit of work is a *demand*: schemas that one value has to obey all at once.  It begins as one
 * schema; $ref and allOf add theirs, and what several parts say about one property or element becomes
 * the demand on that value.  Demands are numbered by their parts, so a schema that refers to itself
 * comes back to the same demand.
 *
 *   schema.c          demands: numbering, $ref and allOf, the order of work, anyOf
 *   schema_spec.c     what the keywords of a demand say, in one struct
 *   schema_names.c    the keys that an object may have
 *   schema_oneof.c    whether two demands exclude each other
 *   schema_object.c, schema_array.c, schema_string.c, schema_number.c, schema_enum.c
 *                     the node for values of one kind */
#ifndef TR_GRAMMAR_SCHEMA_PRIV_H
#define TR_GRAMMAR_SCHEMA_PRIV_H

#include "grammar/decimal.h"
#include "grammar/fa.h"
#include "grammar/json_text.h"
#include "grammar/schema.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TR_SC_PARTS = 64,       /* schemas that one value has to obey */
    TR_SC_DEPTH = 64,       /* anyOf inside anyOf */
    TR_SC_CALLS = 1,        /* branches that are rules; more are copied */
    TR_SC_BRANCHES = 256,   /* of one anyOf or oneOf */
    TR_SC_PATTERNS = 4,     /* patternProperties that one object has to obey */
    TR_SC_LENGTH = 1000000, /* the largest minLength, maxLength */
    TR_SC_COUNT = 4096      /* the largest minItems, maxItems, minProperties, maxProperties */
};

/* Kinds of values; a number is an integer or a fraction. */
enum {
    TR_SC_NULL = 1,
    TR_SC_BOOL = 2,
    TR_SC_INTEGER = 4,
    TR_SC_FRACTION = 8,
    TR_SC_STRING = 16,
    TR_SC_ARRAY = 32,
    TR_SC_OBJECT = 64,
    TR_SC_NUMBER = TR_SC_INTEGER | TR_SC_FRACTION,
    TR_SC_ALL = 127
};

/* Keywords of a part that were already turned into demands of their own. */
enum { TR_SC_NO_ANYOF = 1, TR_SC_NO_ONEOF = 2 };

struct tr_sc_part {
    const struct tr_json *schema; /* an object */
    uint64_t skip;
};

struct tr_demand {
    struct tr_sc_part *part;
    uint32_t n;
    bool never; /* nothing obeys it */
    bool busy, done, queued;
    tr_gnode rule;              /* TR_G_NONE: not asked for yet */
    tr_gnode node;              /* when done: the rule, or what is small, itself */
    tr_gnode body;              /* when done: what the rule says */
    const struct tr_spec *spec; /* when asked for */
};

/* What the keywords of a demand say. */
struct tr_spec {
    unsigned types;
    const struct tr_json *anyof, *oneof; /* the first that is not skipped, and its part */
    uint32_t anyof_part, oneof_part;
    struct tr_drange num;
    bool bounded; /* some keyword about numbers */
    uint32_t min_len, max_len;
    const struct tr_fa *text;   /* pattern and format, or NULL */
    const struct tr_json *only; /* the first enum, or const, and whether it is one value */
    bool only_const;
    bool object_words, array_words; /* some keyword about objects, arrays */
    bool string_words;
    uint32_t min_props, max_props, min_items, max_items;
};

struct tr_pattern {
    const struct tr_json *at;
    const struct tr_fa *fa;
    struct tr_pattern *next;
};

struct tr_sc {
    struct tr_gbudget w;
    struct tr_gbuild *b;
    struct tr_gjson j;
    const struct tr_json_doc *doc;
    const struct tr_json *root;
    struct tr_fa_maker *names; /* numbers of demands by their parts */
    struct tr_demand **demand; /* [TR_FA_STATES] */
    struct tr_demand **queue;  /* [TR_FA_STATES] */
    uint32_t n_queue;
    unsigned depth;
    struct tr_pattern *patterns; /* those compiled */
    struct tr_gfault *f;
    int ret; /* the first fault */
};

/* Notes the first fault; false. */
bool tr_sc_refuse(struct tr_sc *c, const struct tr_json *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Notes that a bound was met (or memory is gone); false. */
bool tr_sc_full(struct tr_sc *c, const struct tr_json *at);

/* ---- schema.c ---- */

/* A demand under construction: schemas are added, then it is numbered. */
struct tr_draft {
    struct tr_sc_part part[TR_SC_PARTS];
    uint8_t parent[TR_SC_PARTS]; /* who brought it, itself: it stands by itself */
    uint32_t n;
    uint32_t followed; /* parts that have brought theirs already */
    bool never;
};
bool tr_sc_add(struct tr_sc *c, struct tr_draft *d, const struct tr_json *schema);
bool tr_sc_add_part(struct tr_sc *c, struct tr_draft *d, struct tr_sc_part part);
/* Follows $ref and allOf, then the demand of these parts; NULL at a fault. */
struct tr_demand *tr_sc_demand(struct tr_sc *c, struct tr_draft *d);
/* The node for a value inside an object or array, or TR_G_NONE at a fault. */
tr_gnode tr_sc_value(struct tr_sc *c, struct tr_demand *d);

/* ---- schema_spec.c ---- */

/* NULL at a fault. */
const struct tr_spec *tr_sc_spec(struct tr_sc *c, struct tr_demand *d);
/* Whether a part has a keyword of its own, besides those that bring or brought other schemas. */
bool tr_sc_says(const struct tr_sc_part *part);
/* The automaton of a pattern (a string), compiled once; `at`: the place of a fault. */
const struct tr_fa *tr_sc_pattern(struct tr_sc *c, const struct tr_json *pattern,
                                  const struct tr_json *at);

/* ---- one file each; TR_G_NONE at a fault, *never: nothing can be written ---- */

tr_gnode tr_sc_object(struct tr_sc *c, const struct tr_demand *d, const struct tr_spec *s,
                      bool *never);
tr_gnode tr_sc_array(struct tr_sc *c, const struct tr_demand *d, const struct tr_spec *s,
                     bool *never);
tr_gnode tr_sc_string(struct tr_sc *c, const struct tr_spec *s, bool *never);
tr_gnode tr_sc_number(struct tr_sc *c, const struct tr_spec *s, bool *never);
tr_gnode tr_sc_enum(struct tr_sc *c, const struct tr_demand *d, const struct tr_spec *s,
                    bool *never);

/* The demand on the property `key`, by all parts of d.  NULL at a fault. */
struct tr_demand *tr_sc_property(struct tr_sc *c, const struct tr_demand *d, const char *key,
                                 uint32_t len);
/* The keys that propertyNames of all parts allow, NULL: any.  False at a fault. */
bool tr_sc_names(struct tr_sc *c, const struct tr_demand *d, const struct tr_fa **names);
/* Whether some part of d demands the property. */
bool tr_sc_requires(const struct tr_demand *d, const char *key, uint32_t len);

/* Whether two values are the same JSON. */
bool tr_sc_same(const struct tr_sc *c, const struct tr_json *a, const struct tr_json *b);
/* Whether v is one that the enum and const of every part of d allow, and s besides. */
bool tr_sc_allows(struct tr_sc *c, const struct tr_demand *d, const struct tr_spec *s,
                  const struct tr_json *v);

/* Whether no value obeys both.  False also at a fault. */
bool tr_sc_apart(struct tr_sc *c, struct tr_demand *a, struct tr_demand *b, unsigned depth);

/* One node after another, and one of several. */
#define TR_SC_SEQ(c, ...)                                                                          \
    tr_g_seq((c)->b, (const tr_gnode[]){__VA_ARGS__},                                              \
             sizeof((const tr_gnode[]){__VA_ARGS__}) / sizeof(tr_gnode))

static inline tr_gnode tr_sc_text(struct tr_sc *c, const char *s, size_t n)
{
    return tr_g_bytes(c->b, s, n);
}

#endif
