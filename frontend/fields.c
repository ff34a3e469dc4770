/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/fields.c - see fields.h. */
#include "frontend/fields.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool tr_field_empty(const struct tr_json *v)
{
    switch ((enum tr_json_type)v->type) {
    case TR_JSON_ARRAY:
    case TR_JSON_OBJECT:
    case TR_JSON_STRING:
        return v->len == 0;
    case TR_JSON_BOOL:
        return !v->u.b;
    case TR_JSON_NULL:
        return true;
    case TR_JSON_NUMBER:
        break;
    }
    return false;
}

static const struct tr_field_row *find(const struct tr_field_row *rows, size_t n,
                                       const struct tr_json *key)
{
    for (size_t i = 0; i < n; i++)
        if (tr_json_eq(key, rows[i].theirs, strlen(rows[i].theirs)))
            return &rows[i];
    return NULL;
}

int tr_fields_refuse(const struct tr_field_row *rows, size_t n, const struct tr_json *body,
                     struct tr_fault *f)
{
    for (struct tr_json_it it = tr_json_iter(body); tr_json_step(&it);) {
        if (tr_field_empty(it.val))
            continue;
        const struct tr_field_row *r = find(rows, n, it.key);
        if (r && r->kind == TR_FIELD_REFUSED)
            return tr_fault_set(f, TR_ERR_UNSUPPORTED_PARAM, r->theirs, "%s is not supported. %s",
                                r->what[0] ? r->what : r->theirs, r->words);
    }
    return 0;
}

void tr_fields_theirs(const struct tr_field_row *rows, size_t n, const char *ours, char *out,
                      size_t size)
{
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(rows[i].ours);
        if (len && strncmp(ours, rows[i].ours, len) == 0 && strchr("[.", ours[len])) {
            snprintf(out, size, "%s%s", rows[i].theirs, ours + len);
            return;
        }
    }
    snprintf(out, size, "%s", ours);
}
