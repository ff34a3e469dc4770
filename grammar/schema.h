/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/schema.h - JSON Schema into a node of the builder.
 *
 * What is written by the node obeys the schema; what cannot be said exactly is refused with the place
 * where it stands, never left out.  Not every valid text can be written: how JSON is written says
 * grammar/json_text.h; besides, properties come in the order of the schema, and an object whose
 * `properties` are given has no others unless `additionalProperties` or `patternProperties` say so.
 * docs/structured-output.md has the table of keywords.
 *
 * Bounded in memory, steps (grammar/fa.h) and depth; linear for ordinary schemas.  All schemas of one builder
 * share TR_GSCHEMA_STEPS: a request may bring many.  Pure, any thread. */
#ifndef TR_GRAMMAR_SCHEMA_H
#define TR_GRAMMAR_SCHEMA_H

#include "base/json.h"
#include "grammar/build.h"

struct tr_gfault {
    const struct tr_json *at; /* the value that is not accepted, or NULL: the whole */
    char why[256];            /* a sentence without full stop */
};

/* Of all the schemas of a builder: twice what one may take, so that one that is too large, and counts as all
 * it might have taken, leaves something to the others. */
#define TR_GSCHEMA_STEPS ((uint64_t)40000000)

/* 0 and *out, or -EINVAL (refused), -E2BIG (a bound) or -ENOMEM and *f.  `doc` is the document that
 * `schema` stands in; "#" of a $ref is `schema` itself. */
int tr_gschema(struct tr_gbuild *b, const struct tr_json_doc *doc, const struct tr_json *schema,
               tr_gnode *out, struct tr_gfault *f);

#endif
