/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/params_value.c - the known fields of a body, and readers of one value: type and range, or
 * a fault that names the field.
 *
 * The members of the body are sorted into an array by one pass, so that a body of half a million
 * unknown members costs half a million small searches and not sixty times as many. */
#include "frontend/params_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

const struct tr_param_row tr_param_row[F_COUNT] = {
#define X(name, who, kind, min, max, values, fallback, words)                                      \
    {#name,          TR_PARAM_##who, TR_PARAM_##kind, (double)(min), (double)(max),                \
     (int64_t)(min), (int64_t)(max), values,          fallback,      words},
#include "frontend/params.def"
#undef X
};

static int find_field(const char *key, size_t len)
{
    int lo = 0, hi = F_COUNT - 1;

    while (lo <= hi) {
        int mid = (lo + hi) / 2;
        size_t n = strlen(tr_param_row[mid].name);
        int c = memcmp(key, tr_param_row[mid].name, len < n ? len : n);
        if (c == 0 && len == n)
            return mid;
        if (c < 0 || (c == 0 && len < n))
            hi = mid - 1;
        else
            lo = mid + 1;
    }
    return -1;
}

void tr_param_collect(struct tr_param_reader *r)
{
    for (struct tr_json_it it = tr_json_iter(r->a->body); tr_json_step(&it);) {
        int k = find_field(it.key->u.s, it.key->len);
        if (k >= 0 && it.val->type != TR_JSON_NULL)
            r->v[k] = it.val;
    }
}

int tr_param_unsupported(struct tr_param_reader *r, enum tr_field k, const char *what)
{
    const struct tr_param_row *row = &tr_param_row[k];
    bool own = row->kind == TR_PARAM_NEVER || row->kind == TR_PARAM_WORD;

    if (!what)
        what = row->what[0] ? row->what : row->name;
    return tr_fault_set(r->f, TR_ERR_UNSUPPORTED_PARAM, row->name, "%s is not supported.%s%s", what,
                        own ? " " : "", own ? row->words : "");
}

int tr_param_bool(struct tr_param_reader *r, enum tr_field k, bool *out)
{
    if (!r->v[k])
        return 0;
    if (r->v[k]->type != TR_JSON_BOOL)
        return TR_PARAM_BAD(r, k, "%s must be true or false.", tr_param_row[k].name);
    *out = r->v[k]->u.b;
    return 0;
}

int tr_param_num(struct tr_param_reader *r, enum tr_field k, double *out)
{
    const struct tr_param_row *row = &tr_param_row[k];
    double d;

    if (!r->v[k])
        return 0;
    int rc = tr_json_f64(r->v[k], &d);
    if (rc == -EINVAL)
        return TR_PARAM_BAD(r, k, "%s must be a number.", row->name);
    if (rc || !(d >= row->min && d <= row->max))
        return TR_PARAM_BAD(r, k, "%s must be between %g and %g.", row->name, row->min, row->max);
    *out = d == 0 ? 0 : d; /* -0.0 is 0 */
    return 0;
}

int tr_param_int_in(struct tr_param_reader *r, enum tr_field k, int64_t min, int64_t max,
                    int64_t *out)
{
    const char *name = tr_param_row[k].name;
    int64_t i;
    double d;

    if (!r->v[k])
        return 0;
    int rc = tr_json_i64(r->v[k], &i);
    if (rc == -ERANGE && tr_json_f64(r->v[k], &d) == 0 && fabs(d) < 1e300) {
        i = d > 0 ? INT64_MAX : INT64_MIN;
        rc = 0;
    }
    if (rc)
        return TR_PARAM_BAD(r, k, "%s must be an integer.", name);
    if (i < min || i > max) {
        if (max == INT64_MAX)
            return TR_PARAM_BAD(r, k, "%s must be at least %" PRId64 ".", name, min);
        return TR_PARAM_BAD(r, k, "%s must be between %" PRId64 " and %" PRId64 ".", name, min,
                            max);
    }
    *out = i;
    return 0;
}

int tr_param_int(struct tr_param_reader *r, enum tr_field k, int64_t *out)
{
    return tr_param_int_in(r, k, tr_param_row[k].i_min, tr_param_row[k].i_max, out);
}
