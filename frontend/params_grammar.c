/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/params_grammar.c - the fields that say what an answer must obey: OpenAI's response_format, vLLM's
 * guided_... and structured_outputs, llama.cpp's json_schema and grammar.  One request has at most one
 * such wish.  What is in a schema, a pattern or a grammar is looked at when it is compiled (grammar.h). */
#include "frontend/params_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- values ---- */

static int bad(struct tr_param_reader *r, const char *param, const char *words)
{
    return tr_fault_set(r->f, TR_ERR_BAD_PARAM, param, "%s", words);
}

/* A schema is an object or true or false; the text of one is as good. */
static int check_schema(struct tr_param_reader *r, const struct tr_json *v, const char *param,
                        bool text)
{
    if (v->type == TR_JSON_OBJECT || v->type == TR_JSON_BOOL || (text && v->type == TR_JSON_STRING))
        return 0;
    return bad(r, param, "A JSON Schema is an object.");
}

static int check_choice(struct tr_param_reader *r, const struct tr_json *v, const char *param)
{
    if (v->type != TR_JSON_ARRAY || v->len == 0)
        return bad(r, param, "Choices are an array of at least one string.");
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
        if (!tr_json_is(it.val, TR_JSON_STRING) || it.val->len == 0)
            return bad(r, param, "Each choice is a string that is not empty.");
    return 0;
}

static int wish(struct tr_param_reader *r, enum tr_wish_kind kind, const struct tr_json *v,
                const char *param)
{
    struct tr_wish *w = &r->a->wish;
    int rc = 0;

    if (w->kind != TR_WISH_NONE)
        return tr_fault_set(r->f, TR_ERR_BAD_PARAM, param,
                            "An answer obeys one thing: %s is there besides %s.", w->field, param);
    if (kind == TR_WISH_SCHEMA)
        rc = check_schema(r, v, param, true);
    else if (kind == TR_WISH_CHOICE)
        rc = check_choice(r, v, param);
    else if (kind != TR_WISH_OBJECT && (v->type != TR_JSON_STRING || v->len == 0))
        rc = bad(r, param, "This must be a string that is not empty.");
    *w = (struct tr_wish){.kind = kind, .value = v, .field = param};
    return rc;
}

/* ---- fields ---- */

static const struct tr_json *present(const struct tr_json *v)
{
    return v && v->type != TR_JSON_NULL ? v : NULL;
}

/* {"type": "json_schema", "json_schema": {"name": ..., "schema": ...}}; the inner object may be left out,
 * as Responses has it.  {"type": "json_object", "schema": ...} of llama.cpp means the same. */
static int read_json_schema(struct tr_param_reader *r, const struct tr_json *o)
{
    const struct tr_json *inner = present(TR_JSON_GET(o, "json_schema"));
    const struct tr_json *schema = present(TR_JSON_GET(inner ? inner : o, "schema"));
    const char *param = inner ? "response_format.json_schema" : "response_format";

    if (inner && inner->type != TR_JSON_OBJECT)
        return bad(r, param, "json_schema must be an object with a schema.");
    if (!schema)
        return bad(r, param, "A response_format of type json_schema needs a schema.");
    if (check_schema(r, schema,
                     inner ? "response_format.json_schema.schema" : "response_format.schema",
                     false))
        return -EINVAL;
    return wish(r, TR_WISH_SCHEMA, schema, "response_format");
}

static int read_response_format(struct tr_param_reader *r, const struct tr_json *v)
{
    const struct tr_json *t = TR_JSON_GET(v, "type");

    if (v->type != TR_JSON_OBJECT || !tr_json_is(t, TR_JSON_STRING))
        return bad(r, "response_format",
                   "response_format must be an object with a type that is a string.");
    if (TR_JSON_EQ(t, "text"))
        return 0;
    if (TR_JSON_EQ(t, "json_schema") ||
        (TR_JSON_EQ(t, "json_object") && present(TR_JSON_GET(v, "schema"))))
        return read_json_schema(r, v);
    if (TR_JSON_EQ(t, "json_object"))
        return wish(r, TR_WISH_OBJECT, v, "response_format");
    return tr_fault_set(r->f, TR_ERR_UNSUPPORTED_PARAM, "response_format",
                        "The type of a response_format is text, json_object or json_schema.");
}

static const struct {
    const char *name;
    const char *param;
    enum tr_wish_kind kind;
} outputs[] = {{"choice", "structured_outputs.choice", TR_WISH_CHOICE},
               {"grammar", "structured_outputs.grammar", TR_WISH_GBNF},
               {"json", "structured_outputs.json", TR_WISH_SCHEMA},
               {"json_object", "structured_outputs.json_object", TR_WISH_OBJECT},
               {"regex", "structured_outputs.regex", TR_WISH_REGEX}};

static int read_output(struct tr_param_reader *r, const struct tr_json *key,
                       const struct tr_json *v)
{
    if (v->type == TR_JSON_NULL || (v->type == TR_JSON_BOOL && !v->u.b))
        return 0;
    for (size_t i = 0; i < sizeof(outputs) / sizeof(outputs[0]); i++)
        if (tr_json_eq(key, outputs[i].name, strlen(outputs[i].name))) {
            if (outputs[i].kind == TR_WISH_OBJECT && v->type != TR_JSON_BOOL)
                return bad(r, outputs[i].param, "json_object must be true or false.");
            return wish(r, outputs[i].kind, v, outputs[i].param);
        }
    return tr_fault_set(r->f, TR_ERR_UNSUPPORTED_PARAM, "structured_outputs",
                        "structured_outputs takes one of choice, grammar, json, json_object and "
                        "regex, not %.*s.",
                        key->len < 64 ? (int)key->len : 64, key->u.s);
}

static int read_outputs(struct tr_param_reader *r, const struct tr_json *v)
{
    if (v->type != TR_JSON_OBJECT)
        return bad(r, "structured_outputs", "structured_outputs must be an object.");
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
        if (read_output(r, it.key, it.val))
            return -EINVAL;
    return 0;
}

int tr_param_grammar(struct tr_param_reader *r)
{
    static const struct {
        enum tr_field k;
        enum tr_wish_kind kind;
    } plain[] = {{F_guided_json, TR_WISH_SCHEMA}, {F_json_schema, TR_WISH_SCHEMA},
                 {F_guided_regex, TR_WISH_REGEX}, {F_guided_grammar, TR_WISH_GBNF},
                 {F_grammar, TR_WISH_GBNF},       {F_guided_choice, TR_WISH_CHOICE}};

    if (r->v[F_response_format] && read_response_format(r, r->v[F_response_format]))
        return -EINVAL;
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        enum tr_field k = plain[i].k;
        if (r->v[k] && wish(r, plain[i].kind, r->v[k], tr_param_row[k].name))
            return -EINVAL;
    }
    return r->v[F_structured_outputs] ? read_outputs(r, r->v[F_structured_outputs]) : 0;
}
