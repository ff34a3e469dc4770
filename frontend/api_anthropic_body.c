/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_anthropic_body.c - a body of Anthropic's Messages written as one of chat completions: its
 * fields.  The messages are in api_anthropic_turns.c.
 *
 * Here is looked at what the two do not share: tools, stop sequences, formats.  The values of fields that
 * both have are checked where those of chat are (params.c), under the names that the client used.
 *
 *   stop_sequences         stop
 *   tools                  tools, as functions
 *   tool_choice            tool_choice, parallel_tool_calls
 *   output_config.format   response_format
 *   output_config.effort   reasoning_effort
 *   thinking               the argument that templates of models that can think know */
#include "frontend/api_anthropic.h"

#include <errno.h>
#include <string.h>

/* ---- values ---- */

static int refuse(struct tr_anthropic *w, enum tr_err err, const struct tr_json *v, const char *why)
{
    char param[sizeof(w->f->param)];

    tr_json_param(w->doc, v, param, sizeof(param));
    return tr_fault_set(w->f, err, param, "%s", why);
}

int tr_anthropic_bad(struct tr_anthropic *w, const struct tr_json *v, const char *why)
{
    return refuse(w, TR_ERR_BAD_PARAM, v, why);
}

int tr_anthropic_unsupported(struct tr_anthropic *w, const struct tr_json *v, const char *why)
{
    return refuse(w, TR_ERR_UNSUPPORTED_PARAM, v, why);
}

const struct tr_json *tr_anthropic_get(const struct tr_json *obj, const char *name)
{
    const struct tr_json *v = tr_json_get(obj, name, strlen(name));

    return v && v->type != TR_JSON_NULL ? v : NULL;
}

const struct tr_json *tr_anthropic_string(struct tr_anthropic *w, const struct tr_json *obj,
                                          const char *name)
{
    const struct tr_json *s = tr_json_get(obj, name, strlen(name));
    char param[sizeof(w->f->param)];

    if (tr_json_is(s, TR_JSON_STRING))
        return s;
    tr_json_param(w->doc, s ? s : obj, param, sizeof(param));
    tr_fault_set(w->f, TR_ERR_BAD_PARAM, param, "%s must be there and be a string.", name);
    return NULL;
}

int tr_anthropic_copy(struct tr_anthropic *w, const char *key, const struct tr_json *v)
{
    if (!tr_emit_may_copy(v))
        return tr_anthropic_bad(w, v, "This is nested too deeply.");
    tr_emit_key(w->e, key);
    tr_emit_json(w->e, w->doc, v);
    return 0;
}

/* ---- other fields with a shape of their own ---- */

static int stop_sequences(struct tr_anthropic *w, const struct tr_json *v)
{
    if (v->type != TR_JSON_ARRAY)
        return tr_anthropic_bad(w, v, "stop_sequences must be an array of strings.");
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
        if (it.val->type != TR_JSON_STRING)
            return tr_anthropic_bad(w, it.val, "A stop sequence must be a string.");
    return tr_anthropic_copy(w, "stop", v);
}

static int tool(struct tr_anthropic *w, const struct tr_json *t)
{
    const struct tr_json *type = tr_anthropic_get(t, "type"), *name,
                         *about = tr_anthropic_get(t, "description"),
                         *strict = tr_anthropic_get(t, "strict"), *schema;

    if (t->type != TR_JSON_OBJECT)
        return tr_anthropic_bad(w, t, "A tool must be an object.");
    if (type && !TR_JSON_EQ(type, "custom"))
        return tr_anthropic_unsupported(w, type, "Only tools of the client's own are supported.");
    if (!(name = tr_anthropic_string(w, t, "name")))
        return -EINVAL;
    if (about && about->type != TR_JSON_STRING)
        return tr_anthropic_bad(w, about, "The description of a tool must be a string.");
    if (strict && strict->type != TR_JSON_BOOL)
        return tr_anthropic_bad(w, strict, "strict must be true or false.");
    schema = TR_JSON_GET(t, "input_schema");
    if (!tr_json_is(schema, TR_JSON_OBJECT))
        return tr_anthropic_bad(w, schema ? schema : t,
                                "A tool needs an input_schema that is an object.");
    const struct tr_json *of = TR_JSON_GET(schema, "type");
    if (schema->len && !TR_JSON_EQ(of, "object"))
        return tr_anthropic_bad(w, of ? of : schema, "An input_schema has the type object.");
    tr_emit_obj(w->e);
    tr_emit_kstr(w->e, "type", "function");
    tr_emit_key(w->e, "function");
    tr_emit_obj(w->e);
    tr_emit_kstrn(w->e, "name", name->u.s, name->len);
    if (about)
        tr_emit_kstrn(w->e, "description", about->u.s, about->len);
    if (strict)
        tr_emit_kbool(w->e, "strict", strict->u.b);
    if (tr_anthropic_copy(w, "parameters", schema))
        return -EINVAL;
    tr_emit_obj_end(w->e);
    tr_emit_obj_end(w->e);
    return 0;
}

static int tools(struct tr_anthropic *w, const struct tr_json *v)
{
    if (v->type != TR_JSON_ARRAY)
        return tr_anthropic_bad(w, v, "tools must be an array.");
    tr_emit_key(w->e, "tools");
    tr_emit_arr(w->e);
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
        if (tool(w, it.val))
            return -EINVAL;
    tr_emit_arr_end(w->e);
    return 0;
}

static int tool_choice(struct tr_anthropic *w, const struct tr_json *v)
{
    const struct tr_json *type = TR_JSON_GET(v, "type"), *name;
    const struct tr_json *single = tr_anthropic_get(v, "disable_parallel_tool_use");

    if (v->type != TR_JSON_OBJECT || !tr_json_is(type, TR_JSON_STRING))
        return tr_anthropic_bad(w, v,
                                "tool_choice must be an object with a type that is a string.");
    if (single && single->type != TR_JSON_BOOL)
        return tr_anthropic_bad(w, single, "This must be true or false.");
    if (single)
        tr_emit_kbool(w->e, "parallel_tool_calls", !single->u.b);
    tr_emit_key(w->e, "tool_choice");
    if (TR_JSON_EQ(type, "auto") || TR_JSON_EQ(type, "none")) {
        tr_emit_strn(w->e, type->u.s, type->len);
        return 0;
    }
    if (TR_JSON_EQ(type, "any")) {
        tr_emit_str(w->e, "required");
        return 0;
    }
    if (!TR_JSON_EQ(type, "tool"))
        return tr_anthropic_bad(w, type, "The type of tool_choice is auto, any, tool or none.");
    if (!(name = tr_anthropic_string(w, v, "name")))
        return -EINVAL;
    tr_emit_obj(w->e);
    tr_emit_kstr(w->e, "type", "function");
    tr_emit_key(w->e, "function");
    tr_emit_obj(w->e);
    tr_emit_kstrn(w->e, "name", name->u.s, name->len);
    tr_emit_obj_end(w->e);
    tr_emit_obj_end(w->e);
    return 0;
}

/* What it says of enable_thinking: nothing, where adaptive and between_tools leave it to the model. */
static int thinking(struct tr_anthropic *w, const struct tr_json *v, bool *said, bool *on)
{
    const struct tr_json *type = TR_JSON_GET(v, "type");

    if (v->type != TR_JSON_OBJECT || !tr_json_is(type, TR_JSON_STRING))
        return tr_anthropic_bad(w, v, "thinking must be an object with a type that is a string.");
    *on = TR_JSON_EQ(type, "enabled");
    *said = *on || TR_JSON_EQ(type, "disabled");
    if (*said || TR_JSON_EQ(type, "adaptive") || TR_JSON_EQ(type, "between_tools"))
        return 0;
    return tr_anthropic_bad(
        w, type, "The type of thinking is enabled, adaptive, between_tools or disabled.");
}

/* The client's arguments of the template and what `thinking` adds to them, as templates of models that can
 * think call it; the client's own word goes first. */
static int template_args(struct tr_anthropic *w, const struct tr_json *args,
                         const struct tr_json *think)
{
    bool said = false, on = false;

    if (think && thinking(w, think, &said, &on))
        return -EINVAL;
    if (args && (!said || args->type != TR_JSON_OBJECT || TR_JSON_GET(args, "enable_thinking")))
        return tr_anthropic_copy(w, "chat_template_kwargs", args);
    if (!said)
        return 0;
    if (args && !tr_emit_may_copy(args))
        return tr_anthropic_bad(w, args, "This is nested too deeply.");
    tr_emit_key(w->e, "chat_template_kwargs");
    tr_emit_obj(w->e);
    for (struct tr_json_it it = tr_json_iter(args); tr_json_step(&it);) {
        tr_emit_keyn(w->e, it.key->u.s, it.key->len);
        tr_emit_json(w->e, w->doc, it.val);
    }
    tr_emit_kbool(w->e, "enable_thinking", on);
    tr_emit_obj_end(w->e);
    return 0;
}

static int output_config(struct tr_anthropic *w, const struct tr_json *v)
{
    const struct tr_json *format = tr_anthropic_get(v, "format"), *type, *schema,
                         *effort = tr_anthropic_get(v, "effort");

    if (v->type != TR_JSON_OBJECT)
        return tr_anthropic_bad(w, v, "output_config must be an object.");
    if (effort && effort->type != TR_JSON_STRING)
        return tr_anthropic_bad(w, effort, "effort must be a string.");
    if (effort)
        tr_emit_kstrn(w->e, "reasoning_effort", effort->u.s, effort->len);
    if (!format)
        return 0;
    type = TR_JSON_GET(format, "type");
    schema = TR_JSON_GET(format, "schema");
    if (!TR_JSON_EQ(type, "json_schema"))
        return tr_anthropic_bad(w, type ? type : format, "The type of a format is json_schema.");
    if (!tr_json_is(schema, TR_JSON_OBJECT))
        return tr_anthropic_bad(w, schema ? schema : format,
                                "A format needs a schema that is an object.");
    tr_emit_key(w->e, "response_format");
    tr_emit_obj(w->e);
    tr_emit_kstr(w->e, "type", "json_schema");
    if (tr_anthropic_copy(w, "schema", schema))
        return -EINVAL;
    tr_emit_obj_end(w->e);
    return 0;
}

/* ---- all of it ---- */

/* Fields that are not what they are in chat; and one whose presence has to be known. */
enum {
    MESSAGES,
    SYSTEM,
    STOPS,
    TOOLS,
    CHOICE,
    THINKING,
    OUTPUT,
    ARGS,
    N_SHAPED,
    LIMIT = N_SHAPED,
    N_KEPT
};

static const char *const kept_name[N_KEPT] = {
    [MESSAGES] = "messages",    [SYSTEM] = "system",      [STOPS] = "stop_sequences",
    [TOOLS] = "tools",          [CHOICE] = "tool_choice", [THINKING] = "thinking",
    [OUTPUT] = "output_config", [LIMIT] = "max_tokens",   [ARGS] = "chat_template_kwargs"};

/* The rows are sorted. */
static const struct tr_field_row *find_row(const struct tr_json *key)
{
    size_t lo = 0, hi = tr_anthropic_n_fields;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2, n = strlen(tr_anthropic_fields[mid].theirs);
        int c = memcmp(key->u.s, tr_anthropic_fields[mid].theirs, key->len < n ? key->len : n);
        if (c == 0 && key->len == n)
            return &tr_anthropic_fields[mid];
        if (c < 0 || (c == 0 && key->len < n))
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

/* One pass over the body, however many members it has: copies what is as in chat, keeps the rest. */
static int copy_fields(struct tr_anthropic *w, const struct tr_json *body,
                       const struct tr_json *kept[N_KEPT])
{
    for (struct tr_json_it it = tr_json_iter(body); tr_json_step(&it);) {
        const struct tr_field_row *r = find_row(it.key);
        int k = 0;
        if (!r || r->kind != TR_FIELD_OBEYED || it.val->type == TR_JSON_NULL)
            continue;
        while (k < N_KEPT && strcmp(kept_name[k], r->theirs) != 0)
            k++;
        if (k < N_KEPT)
            kept[k] = it.val;
        if (k >= N_SHAPED && tr_anthropic_copy(w, r->ours, it.val))
            return -EINVAL;
    }
    return 0;
}

int tr_anthropic_body(const struct tr_json_doc *doc, const struct tr_json *body, bool counting,
                      struct tr_emit *out, struct tr_fault *f)
{
    struct tr_anthropic w = {.doc = doc, .e = out, .f = f};
    const struct tr_json *v[N_KEPT] = {0};

    tr_emit_obj(out);
    if (tr_fields_refuse(tr_anthropic_fields, tr_anthropic_n_fields, body, f) ||
        copy_fields(&w, body, v) || tr_anthropic_turns(&w, v[MESSAGES], v[SYSTEM]) ||
        (v[STOPS] && stop_sequences(&w, v[STOPS])) || (v[TOOLS] && tools(&w, v[TOOLS])) ||
        (v[CHOICE] && tool_choice(&w, v[CHOICE])) || template_args(&w, v[ARGS], v[THINKING]) ||
        (v[OUTPUT] && output_config(&w, v[OUTPUT])))
        return -EINVAL;
    if (!counting && !v[LIMIT])
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "max_tokens", "max_tokens is required.");
    tr_emit_obj_end(out);
    return 0;
}
