/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a parsed tree: members, walks, numbers, places. */
#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct tr_json_it tr_json_iter(const struct tr_json *v)
{
    struct tr_json_it it = {0};
    if (!v || (v->type != TR_JSON_ARRAY && v->type != TR_JSON_OBJECT))
        return it;
    it.object = v->type == TR_JSON_OBJECT;
    it.left = v->len;
    it.next = v + 1;
    return it;
}

bool tr_json_step(struct tr_json_it *it)
{
    if (it->left == 0)
        return false;
    it->left--;
    it->index = it->begun ? it->index + 1 : 0;
    it->begun = true;
    it->key = it->object ? it->next : NULL;
    it->val = it->object ? it->next + 1 : it->next;
    it->next = it->val + it->val->skip;
    return true;
}

bool tr_json_eq(const struct tr_json *v, const char *s, size_t len)
{
    return v && v->type == TR_JSON_STRING && v->len == len && memcmp(v->u.s, s, len) == 0;
}

const struct tr_json *tr_json_get(const struct tr_json *obj, const char *key, size_t key_len)
{
    if (!obj || obj->type != TR_JSON_OBJECT)
        return NULL;
    for (struct tr_json_it it = tr_json_iter(obj); tr_json_step(&it);)
        if (tr_json_eq(it.key, key, key_len))
            return it.val;
    return NULL;
}

int tr_json_i64(const struct tr_json *v, int64_t *out)
{
    if (!v || v->type != TR_JSON_NUMBER)
        return -EINVAL;
    if (v->num == TR_JSON_INT) {
        *out = v->u.i;
        return 0;
    }
    if (v->num == TR_JSON_UINT || isinf(v->u.d))
        return -ERANGE;
    if (v->u.d != floor(v->u.d))
        return -EINVAL;
    if (fabs(v->u.d) >= 0x1p53) /* from here on the text may say another integer than the double */
        return -ERANGE;
    *out = (int64_t)v->u.d;
    return 0;
}

int tr_json_f64(const struct tr_json *v, double *out)
{
    if (!v || v->type != TR_JSON_NUMBER)
        return -EINVAL;
    double d = v->num == TR_JSON_INT    ? (double)v->u.i
               : v->num == TR_JSON_UINT ? (double)v->u.u
                                        : v->u.d;
    if (isinf(d))
        return -ERANGE;
    *out = d;
    return 0;
}

/* Appends what fits of s[0, n), cut at a character. */
static size_t put(char *buf, size_t cap, size_t at, const char *s, size_t n)
{
    if (at + 1 >= cap)
        return at;
    if (n > cap - 1 - at) {
        n = cap - 1 - at;
        while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80)
            n--;
    }
    memcpy(buf + at, s, n);
    return at + n;
}

size_t tr_json_param(const struct tr_json_doc *d, const struct tr_json *v, char *buf, size_t cap)
{
    const struct tr_json *at = tr_json_root(d);
    size_t len = 0;
    if (cap == 0)
        return 0;
    while (at != v) {
        struct tr_json_it it = tr_json_iter(at);
        bool inside = false;
        while (!inside && tr_json_step(&it))
            inside = v >= it.val && v < it.val + it.val->skip;
        if (!inside)
            break; /* a key: its object is the place */
        if (it.key) {
            if (len)
                len = put(buf, cap, len, ".", 1);
            len = put(buf, cap, len, it.key->u.s, it.key->len);
        } else {
            char index[16];
            int n = snprintf(index, sizeof(index), "[%u]", it.index);
            len = put(buf, cap, len, index, (size_t)n);
        }
        at = it.val;
    }
    buf[len] = '\0';
    return len;
}
