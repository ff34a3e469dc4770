/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/tools.c - see tools.h. */
#include "frontend/tools.h"

#include <errno.h>
#include <string.h>

/* ---- faults ---- */

static int refuse(const struct tr_json_doc *doc, const struct tr_json *v, enum tr_err e,
                  const char *why, struct tr_fault *f)
{
    char param[sizeof(f->param)];

    tr_json_param(doc, v, param, sizeof(param));
    return tr_fault_set(f, e, param, "%s", why);
}

static int bad(const struct tr_json_doc *doc, const struct tr_json *v, const char *why,
               struct tr_fault *f)
{
    return refuse(doc, v, TR_ERR_BAD_PARAM, why, f);
}

/* A member; NULL if it is absent or null. */
static const struct tr_json *member(const struct tr_json *o, const char *name)
{
    const struct tr_json *v = tr_json_get(o, name, strlen(name));

    return v && v->type != TR_JSON_NULL ? v : NULL;
}

/* ---- tools ---- */

const struct tr_json *tr_tool_name(const struct tr_json *tool)
{
    return TR_JSON_GET(TR_JSON_GET(tool, "function"), "name");
}

const struct tr_json *tr_tool_parameters(const struct tr_json *tool)
{
    return member(TR_JSON_GET(tool, "function"), "parameters");
}

bool tr_tool_is_strict(const struct tr_json *tool)
{
    const struct tr_json *v = member(TR_JSON_GET(tool, "function"), "strict");

    return v && v->u.b;
}

static bool name_is_good(const struct tr_json *name)
{
    static const char others[] = "_-.:/";

    if (!tr_json_is(name, TR_JSON_STRING) || name->len == 0 || name->len > TR_TOOL_NAME_MAX)
        return false;
    for (uint32_t i = 0; i < name->len; i++) {
        char c = name->u.s[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && !memchr(others, c, sizeof(others) - 1))
            return false;
    }
    return true;
}

static int check_function(const struct tr_json_doc *doc, const struct tr_json *fn,
                          struct tr_fault *f)
{
    const struct tr_json *name = TR_JSON_GET(fn, "name"), *about = member(fn, "description"),
                         *params = member(fn, "parameters"), *strict = member(fn, "strict");

    if (!name_is_good(name))
        return bad(doc, name ? name : fn,
                   "A function needs a name of 1 to 64 letters, digits and _ - . : /.", f);
    if (about && about->type != TR_JSON_STRING)
        return bad(doc, about, "The description of a function must be a string.", f);
    if (params && params->type != TR_JSON_OBJECT)
        return bad(doc, params, "The parameters of a function must be an object: a JSON Schema.",
                   f);
    if (params && params->len && !TR_JSON_EQ(TR_JSON_GET(params, "type"), "object"))
        return bad(doc, TR_JSON_GET(params, "type") ? TR_JSON_GET(params, "type") : params,
                   "The parameters of a function must be a schema of the type object.", f);
    if (strict && strict->type != TR_JSON_BOOL)
        return bad(doc, strict, "strict must be true or false.", f);
    return 0;
}

static int check_tool(const struct tr_json_doc *doc, const struct tr_json *tool, struct tr_fault *f)
{
    const struct tr_json *type = TR_JSON_GET(tool, "type"), *fn = TR_JSON_GET(tool, "function");

    if (tool->type != TR_JSON_OBJECT)
        return bad(doc, tool, "A tool must be an object.", f);
    if (!tr_json_is(type, TR_JSON_STRING))
        return bad(doc, type ? type : tool, "A tool needs a type that is a string.", f);
    if (!TR_JSON_EQ(type, "function"))
        return refuse(doc, type, TR_ERR_UNSUPPORTED_PARAM,
                      "Only tools of the type function are supported.", f);
    if (!tr_json_is(fn, TR_JSON_OBJECT))
        return bad(doc, fn ? fn : tool, "A tool needs a function that is an object.", f);
    return check_function(doc, fn, f);
}

/* The place of a name in the list before `upto`; upto if it is not there. */
static uint32_t find(const struct tr_json *list, uint32_t upto, const struct tr_json *name)
{
    struct tr_json_it it = tr_json_iter(list);

    while (tr_json_step(&it) && it.index < upto)
        if (tr_json_eq(tr_tool_name(it.val), name->u.s, name->len))
            return it.index;
    return upto;
}

static int read_list(const struct tr_json_doc *doc, const struct tr_json *v, struct tr_tools *out,
                     struct tr_fault *f)
{
    if (v->type != TR_JSON_ARRAY)
        return bad(doc, v, "tools must be an array.", f);
    if (v->len > TR_TOOL_LIST_MAX)
        return bad(doc, v, "At most 128 tools.", f);
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) {
        if (check_tool(doc, it.val, f))
            return -EINVAL;
        const struct tr_json *name = tr_tool_name(it.val);
        if (find(v, it.index, name) < it.index)
            return bad(doc, name, "Two functions have this name.", f);
        out->allowed[it.index / 64] |= 1ull << it.index % 64;
    }
    out->list = v->len ? v : NULL;
    return 0;
}

/* ---- tool_choice ---- */

static int read_word(const struct tr_json_doc *doc, const struct tr_json *v, struct tr_tools *out,
                     struct tr_fault *f)
{
    if (TR_JSON_EQ(v, "none"))
        out->list = NULL;
    else if (TR_JSON_EQ(v, "required"))
        out->forced = true;
    else if (!TR_JSON_EQ(v, "auto"))
        return bad(doc, v, "tool_choice is none, auto, required, or an object.", f);
    return 0;
}

/* {"type": "function", "function": {"name": ...}} */
static int allow(const struct tr_json_doc *doc, const struct tr_json *v, struct tr_tools *out,
                 struct tr_fault *f)
{
    const struct tr_json *type = TR_JSON_GET(v, "type"), *fn = TR_JSON_GET(v, "function"),
                         *name = TR_JSON_GET(fn, "name");

    if (!TR_JSON_EQ(type, "function"))
        return refuse(doc, type ? type : v, TR_ERR_UNSUPPORTED_PARAM,
                      "Only tools of the type function are supported.", f);
    if (!tr_json_is(name, TR_JSON_STRING))
        return bad(doc, name ? name : fn ? fn : v, "The function that is chosen needs a name.", f);
    uint32_t i = find(out->list, out->list->len, name);
    if (i == out->list->len)
        return bad(doc, name, "There is no function of this name in tools.", f);
    out->allowed[i / 64] |= 1ull << i % 64;
    return 0;
}

/* {"type": "allowed_tools", "allowed_tools": {"mode": ..., "tools": [...]}} */
static int read_allowed(const struct tr_json_doc *doc, const struct tr_json *v,
                        struct tr_tools *out, struct tr_fault *f)
{
    const struct tr_json *o = TR_JSON_GET(v, "allowed_tools"), *mode = TR_JSON_GET(o, "mode"),
                         *list = TR_JSON_GET(o, "tools");

    if (!tr_json_is(o, TR_JSON_OBJECT))
        return bad(doc, o ? o : v, "allowed_tools must be an object.", f);
    if (!TR_JSON_EQ(mode, "auto") && !TR_JSON_EQ(mode, "required"))
        return bad(doc, mode ? mode : o, "mode must be auto or required.", f);
    if (!tr_json_is(list, TR_JSON_ARRAY) || list->len == 0)
        return bad(doc, list ? list : o, "tools must be an array with at least one tool.", f);
    out->forced = TR_JSON_EQ(mode, "required");
    memset(out->allowed, 0, sizeof(out->allowed));
    for (struct tr_json_it it = tr_json_iter(list); tr_json_step(&it);)
        if (allow(doc, it.val, out, f))
            return -EINVAL;
    return 0;
}

static int read_choice(const struct tr_json_doc *doc, const struct tr_json *v, struct tr_tools *out,
                       struct tr_fault *f)
{
    if (!out->list && (TR_JSON_EQ(v, "none") || TR_JSON_EQ(v, "auto")))
        return 0;
    if (!out->list)
        return bad(doc, v, "tool_choice needs tools.", f);
    if (v->type == TR_JSON_STRING)
        return read_word(doc, v, out, f);
    if (v->type != TR_JSON_OBJECT)
        return bad(doc, v, "tool_choice is none, auto, required, or an object.", f);
    if (TR_JSON_EQ(TR_JSON_GET(v, "type"), "allowed_tools"))
        return read_allowed(doc, v, out, f);
    out->forced = out->one = true;
    memset(out->allowed, 0, sizeof(out->allowed));
    return allow(doc, v, out, f);
}

int tr_tools_read(const struct tr_json_doc *doc, const struct tr_json *tools,
                  const struct tr_json *choice, struct tr_tools *out, struct tr_fault *f)
{
    *out = (struct tr_tools){0};
    if (tools && read_list(doc, tools, out, f))
        return -EINVAL;
    return choice ? read_choice(doc, choice, out, f) : 0;
}
