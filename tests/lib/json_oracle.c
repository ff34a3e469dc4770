/* SPDX-License-Identifier: Apache-2.0 */
#include "testoracle/json_oracle.h"

#include "base/json.h"

#include <jansson.h>

#include <string.h>

static const char *differ(const struct tr_json *v, json_t *j);

static const char *differ_array(const struct tr_json *v, json_t *j)
{
    if (v->len != json_array_size(j))
        return "length of an array";
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) {
        const char *why = differ(it.val, json_array_get(j, it.index));
        if (why)
            return why;
    }
    return NULL;
}

static const char *differ_object(const struct tr_json *v, json_t *j)
{
    void *member = json_object_iter(j); /* in the order of the text */
    if (v->len != json_object_size(j))
        return "number of members";
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) {
        const char *key = json_object_iter_key(member);
        if (!tr_json_eq(it.key, key, strlen(key)))
            return "a key";
        if (tr_json_get(v, key, strlen(key)) != it.val)
            return "what a key leads to";
        const char *why = differ(it.val, json_object_iter_value(member));
        if (why)
            return why;
        member = json_object_iter_next(j, member);
    }
    return NULL;
}

static const char *differ_number(const struct tr_json *v, json_t *j)
{
    if (v->num == TR_JSON_INT)
        return json_is_integer(j) && json_integer_value(j) == v->u.i ? NULL : "an integer";
    double theirs = json_real_value(j);
    return v->num == TR_JSON_REAL && json_is_real(j) &&
                   memcmp(&theirs, &v->u.d, sizeof(theirs)) == 0
               ? NULL
               : "a real";
}

/* Recursive, as deep as both took it. */
static const char *differ(const struct tr_json *v, json_t *j)
{
    switch ((enum tr_json_type)v->type) {
    case TR_JSON_NULL:
        return json_is_null(j) ? NULL : "null";
    case TR_JSON_BOOL:
        return json_is_boolean(j) && json_is_true(j) == v->u.b ? NULL : "a boolean";
    case TR_JSON_NUMBER:
        return differ_number(v, j);
    case TR_JSON_STRING:
        return json_is_string(j) && tr_json_eq(v, json_string_value(j), json_string_length(j))
                   ? NULL
                   : "a string";
    case TR_JSON_ARRAY:
        return json_is_array(j) ? differ_array(v, j) : "an array";
    case TR_JSON_OBJECT:
        return json_is_object(j) ? differ_object(v, j) : "an object";
    }
    return "a kind that is none";
}

const char *json_disagree(const char *s, size_t len, bool *both)
{
    struct tr_json_fault f = {0};
    json_error_t je;
    struct tr_json_doc *d = tr_json_parse(s, len, &f);
    json_t *j = json_loadb(s, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    enum json_error_code code = j ? json_error_unknown : json_error_code(&je);
    const char *why = NULL;
    *both = d && j;
    if (d && j)
        why = differ(tr_json_root(d), j);
    else if (d && code != json_error_numeric_overflow && code != json_error_null_byte_in_key)
        why = "taken, and jansson refuses it";
    else if (j && !(f.off < len && s[f.off] == '\0') && !strstr(f.why, "too deeply") &&
             !strstr(f.why, "too many values"))
        why = "refused, and jansson takes it";
    json_decref(j);
    tr_json_free(d);
    return why;
}
