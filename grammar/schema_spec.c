/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/schema_spec.c - what the keywords of a demand say; see schema_priv.h.  Each keyword is a row of a
 * table; one that is not there is refused, for it might forbid something. */
#include "base/err.h"
#include "grammar/regex.h"
#include "grammar/schema_priv.h"

#include <errno.h>
#include <string.h>

/* Reads the value v of one keyword of part number i into s.  False: a fault. */
struct reading {
    struct tr_sc *c;
    struct tr_spec *s;
    const struct tr_sc_part *part;
    uint32_t index; /* of the part */
    bool typed;
};

/* ---- patterns and formats ---- */

const struct tr_fa *tr_sc_pattern(struct tr_sc *c, const struct tr_json *pattern,
                                  const struct tr_json *at)
{
    for (struct tr_pattern *p = c->patterns; p; p = p->next)
        if (p->at == pattern)
            return p->fa;
    struct tr_errbuf err = {.msg = ""};
    int ret = 0;
    struct tr_pattern *p = tr_gbudget_alloc(&c->w, sizeof *p);
    if (!p)
        return tr_sc_full(c, at), NULL;
    p->fa = tr_re_fa(&c->w, pattern->u.s, pattern->len, TR_RE_SEARCH, &ret, &err);
    if (!p->fa) {
        (void)tr_sc_refuse(c, at, "%s", err.msg);
        c->ret = ret;
        return NULL;
    }
    p->at = pattern;
    p->next = c->patterns;
    c->patterns = p;
    return p->fa;
}

struct format {
    const char *name, *pattern;
};

static const struct format FORMATS[] = {
#define X(name, pattern) {name, pattern},
#include "grammar/schema_format.def"
#undef X
};

static const struct tr_fa *format(struct tr_sc *c, const struct tr_json *name, bool *known)
{
    *known = false;
    for (size_t i = 0; i < sizeof FORMATS / sizeof *FORMATS; i++) {
        const char *pattern = FORMATS[i].pattern;
        if (!tr_json_eq(name, FORMATS[i].name, strlen(FORMATS[i].name)))
            continue;
        int ret = 0;
        const struct tr_fa *a = tr_re_fa(&c->w, pattern, strlen(pattern), TR_RE_WHOLE, &ret, NULL);
        if (!a)
            tr_sc_full(c, name);
        *known = true;
        return a;
    }
    return NULL;
}

/* Every text has to be one of a's, besides. */
static bool add_text(struct reading *r, const struct tr_fa *a, const struct tr_json *at)
{
    if (!a)
        return tr_sc_full(r->c, at);
    r->s->text = r->s->text ? tr_fa_and(&r->c->w, r->s->text, a) : a;
    return r->s->text || tr_sc_full(r->c, at);
}

static bool read_pattern(struct reading *r, const struct tr_json *v)
{
    if (!tr_json_is(v, TR_JSON_STRING))
        return tr_sc_refuse(r->c, v, "pattern is a string");
    r->s->string_words = true;
    return add_text(r, tr_sc_pattern(r->c, v, v), v);
}

/* ---- numbers ---- */

static bool read_decimal(struct reading *r, const struct tr_json *v, struct tr_dec *d)
{
    size_t len;
    if (!tr_json_is(v, TR_JSON_NUMBER))
        return tr_sc_refuse(r->c, v, "the bound is a number");
    const char *text = tr_json_number_text(r->c->doc, v, &len);
    if (tr_dec_read(text, len, d))
        return tr_sc_refuse(r->c, v, "more than %d digits behind the point are not supported",
                            TR_DEC_FRAC);
    r->s->bounded = true;
    return true;
}

static void not_below(struct tr_drange *n, const struct tr_dec *d, bool open)
{
    int cmp = n->has_lo ? tr_dec_cmp(d, &n->lo) : 1;
    if (cmp < 0)
        return;
    n->lo_open = open || (cmp == 0 && n->lo_open);
    n->has_lo = true;
    n->lo = *d;
}

static void not_above(struct tr_drange *n, const struct tr_dec *d, bool open)
{
    int cmp = n->has_hi ? tr_dec_cmp(d, &n->hi) : -1;
    if (cmp > 0)
        return;
    n->hi_open = open || (cmp == 0 && n->hi_open);
    n->has_hi = true;
    n->hi = *d;
}

static bool lower(struct reading *r, const struct tr_json *v, bool open)
{
    struct tr_dec d;
    if (!read_decimal(r, v, &d))
        return false;
    not_below(&r->s->num, &d, open);
    return true;
}

static bool upper(struct reading *r, const struct tr_json *v, bool open)
{
    struct tr_dec d;
    if (!read_decimal(r, v, &d))
        return false;
    not_above(&r->s->num, &d, open);
    return true;
}

static bool read_minimum(struct reading *r, const struct tr_json *v)
{
    return lower(r, v, false);
}

static bool read_exclusive_minimum(struct reading *r, const struct tr_json *v)
{
    return lower(r, v, true);
}

static bool read_maximum(struct reading *r, const struct tr_json *v)
{
    return upper(r, v, false);
}

static bool read_exclusive_maximum(struct reading *r, const struct tr_json *v)
{
    return upper(r, v, true);
}

static bool read_multiple_of(struct reading *r, const struct tr_json *v)
{
    enum { STEP_MAX = 1000 };
    struct tr_dec d = {.neg = false};
    if (!read_decimal(r, v, &d))
        return false;
    if (d.neg || tr_dec_is_zero(&d))
        return tr_sc_refuse(r->c, v, "multipleOf is above 0");
    uint64_t step = 0;
    for (unsigned i = 0; i < d.n_int + d.n_frac && step <= STEP_MAX; i++)
        step = step * 10 + (i < d.n_int ? d.i[i] : d.f[i - d.n_int]);
    if (d.huge || step > STEP_MAX)
        return tr_sc_refuse(r->c, v,
                            "multipleOf is supported up to %d (digits counted without the point)",
                            STEP_MAX);
    struct tr_drange *n = &r->s->num;
    if (n->step && (n->step != step || n->step_scale != d.n_frac)) {
        /* Integers on both sides: the least common multiple. */
        uint64_t a = n->step;
        uint64_t b = step;
        while (b) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        step = n->step / a * step;
        if (n->step_scale || d.n_frac || step > STEP_MAX)
            return tr_sc_refuse(r->c, v, "these two multipleOf together are not supported");
    }
    n->step = (uint32_t)step;
    n->step_scale = d.n_frac;
    return true;
}

/* ---- counts ---- */

static bool read_count(struct reading *r, const struct tr_json *v, uint32_t limit, uint32_t *out)
{
    int64_t i;
    int ret = tr_json_i64(v, &i);
    if (ret == -EINVAL || (!ret && i < 0))
        return tr_sc_refuse(r->c, v, "the count is an integer from 0");
    if (ret || i > limit)
        return tr_sc_refuse(r->c, v, "the count is above the limit of %u", limit);
    *out = (uint32_t)i;
    return true;
}

static bool raise_to(struct reading *r, const struct tr_json *v, uint32_t limit, uint32_t *least)
{
    uint32_t n = 0;
    if (!read_count(r, v, limit, &n))
        return false;
    *least = n > *least ? n : *least;
    return true;
}

static bool lower_to(struct reading *r, const struct tr_json *v, uint32_t limit, uint32_t *most)
{
    uint32_t n = 0;
    if (!read_count(r, v, limit, &n))
        return false;
    *most = n < *most ? n : *most;
    return true;
}

static bool read_min_length(struct reading *r, const struct tr_json *v)
{
    r->s->string_words = true;
    return raise_to(r, v, TR_SC_LENGTH, &r->s->min_len);
}

static bool read_max_length(struct reading *r, const struct tr_json *v)
{
    r->s->string_words = true;
    return lower_to(r, v, TR_SC_LENGTH, &r->s->max_len);
}

static bool read_min_items(struct reading *r, const struct tr_json *v)
{
    r->s->array_words = true;
    return raise_to(r, v, TR_SC_COUNT, &r->s->min_items);
}

static bool read_max_items(struct reading *r, const struct tr_json *v)
{
    r->s->array_words = true;
    return lower_to(r, v, TR_SC_COUNT, &r->s->max_items);
}

static bool read_min_properties(struct reading *r, const struct tr_json *v)
{
    r->s->object_words = true;
    return raise_to(r, v, TR_SC_COUNT, &r->s->min_props);
}

static bool read_max_properties(struct reading *r, const struct tr_json *v)
{
    r->s->object_words = true;
    return lower_to(r, v, TR_SC_COUNT, &r->s->max_props);
}

/* ---- kinds ---- */

static unsigned kind(const struct tr_json *name)
{
    static const struct {
        const char *name;
        unsigned kind;
    } KINDS[] = {{"null", TR_SC_NULL},     {"boolean", TR_SC_BOOL},  {"integer", TR_SC_INTEGER},
                 {"number", TR_SC_NUMBER}, {"string", TR_SC_STRING}, {"array", TR_SC_ARRAY},
                 {"object", TR_SC_OBJECT}};
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (tr_json_eq(name, KINDS[i].name, strlen(KINDS[i].name)))
            return KINDS[i].kind;
    return 0;
}

static bool read_type(struct reading *r, const struct tr_json *v)
{
    unsigned types = kind(v);
    if (tr_json_is(v, TR_JSON_ARRAY)) {
        for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) {
            unsigned k = kind(it.val);
            if (!k)
                return tr_sc_refuse(r->c, it.val, "not a type of JSON Schema");
            types |= k;
        }
    }
    if (!types)
        return tr_sc_refuse(r->c, v, "not a type of JSON Schema");
    r->s->types &= types;
    r->typed = true;
    return true;
}

static bool read_format(struct reading *r, const struct tr_json *v)
{
    if (!tr_json_is(v, TR_JSON_STRING))
        return tr_sc_refuse(r->c, v, "format is a string");
    /* Of OpenAPI: what a number is kept in.  64 bits hold all integers that are written. */
    if (TR_JSON_EQ(v, "int32")) {
        const struct tr_dec high = {.n_int = 10, .i = {2, 1, 4, 7, 4, 8, 3, 6, 4, 7}};
        const struct tr_dec low = {.neg = true, .n_int = 10, .i = {2, 1, 4, 7, 4, 8, 3, 6, 4, 8}};
        not_below(&r->s->num, &low, false);
        not_above(&r->s->num, &high, false);
        r->s->bounded = true;
        return true;
    }
    if (TR_JSON_EQ(v, "float") || TR_JSON_EQ(v, "double") || TR_JSON_EQ(v, "int64"))
        return true;
    bool known;
    const struct tr_fa *a = format(r->c, v, &known);
    if (!known)
        return tr_sc_refuse(r->c, v, "the format is not supported");
    r->s->string_words = true;
    return add_text(r, a, v);
}

/* ---- values, combinations ---- */

static bool read_enum(struct reading *r, const struct tr_json *v)
{
    if (!tr_json_is(v, TR_JSON_ARRAY) || !v->len)
        return tr_sc_refuse(r->c, v, "enum is a list of values");
    if (!r->s->only)
        r->s->only = v;
    return true;
}

static bool read_const(struct reading *r, const struct tr_json *v)
{
    if (!r->s->only || !r->s->only_const) {
        r->s->only = v;
        r->s->only_const = true;
    }
    return true;
}

static bool read_anyof(struct reading *r, const struct tr_json *v)
{
    if (r->part->skip & TR_SC_NO_ANYOF || r->s->anyof)
        return true;
    r->s->anyof = v;
    r->s->anyof_part = r->index;
    return true;
}

static bool read_oneof(struct reading *r, const struct tr_json *v)
{
    if (r->part->skip & TR_SC_NO_ONEOF || r->s->oneof)
        return true;
    r->s->oneof = v;
    r->s->oneof_part = r->index;
    return true;
}

/* ---- objects and arrays: schema_object.c and schema_array.c read what they need ---- */

static bool is_members(struct reading *r, const struct tr_json *v)
{
    r->s->object_words = true;
    return tr_json_is(v, TR_JSON_OBJECT) ||
           tr_sc_refuse(r->c, v, "an object of schemas is expected");
}

static bool is_patterns(struct reading *r, const struct tr_json *v)
{
    if (!is_members(r, v))
        return false;
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
        if (!tr_sc_pattern(r->c, it.key, it.val))
            return false;
    return true;
}

static bool is_required(struct reading *r, const struct tr_json *v)
{
    r->s->object_words = true;
    if (!tr_json_is(v, TR_JSON_ARRAY))
        return tr_sc_refuse(r->c, v, "required is a list of names");
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
        if (!tr_json_is(it.val, TR_JSON_STRING))
            return tr_sc_refuse(r->c, it.val, "required is a list of names");
    return true;
}

static bool is_schema(struct reading *r, const struct tr_json *v)
{
    return tr_json_is(v, TR_JSON_OBJECT) || tr_json_is(v, TR_JSON_BOOL) ||
           tr_sc_refuse(r->c, v, "a schema is an object, true or false");
}

static bool is_extra(struct reading *r, const struct tr_json *v)
{
    r->s->object_words = true;
    return is_schema(r, v);
}

static bool is_names(struct reading *r, const struct tr_json *v)
{
    r->s->object_words = true;
    return is_schema(r, v);
}

static bool is_items(struct reading *r, const struct tr_json *v)
{
    r->s->array_words = true;
    if (tr_json_is(v, TR_JSON_ARRAY))
        return tr_sc_refuse(r->c, v, "items is one schema; a list of them is called prefixItems");
    return is_schema(r, v);
}

static bool is_prefix(struct reading *r, const struct tr_json *v)
{
    r->s->array_words = true;
    if (!tr_json_is(v, TR_JSON_ARRAY) || !v->len)
        return tr_sc_refuse(r->c, v, "prefixItems is a list of schemas");
    return v->len <= TR_SC_COUNT ||
           tr_sc_refuse(r->c, v, "too many prefixItems (limit %d)", TR_SC_COUNT);
}

/* Only what is nothing but true or false. */
static bool read_not(struct reading *r, const struct tr_json *v)
{
    bool all = tr_json_is(v, TR_JSON_BOOL) ? v->u.b : tr_json_is(v, TR_JSON_OBJECT) && !v->len;
    if (!all && !tr_json_is(v, TR_JSON_BOOL))
        return tr_sc_refuse(r->c, v, "\"not\" is supported for {}, true and false alone");
    if (all) {
        r->s->types = 0;
        r->typed = true;
    }
    return true;
}

static bool is_false(struct reading *r, const struct tr_json *v)
{
    if (tr_json_is(v, TR_JSON_BOOL) && !v->u.b)
        return true;
    return tr_sc_refuse(r->c, v, "uniqueItems is not supported");
}

/* What is said to people, or read elsewhere. */
static bool skip(struct reading *r, const struct tr_json *v)
{
    (void)r;
    (void)v;
    return true;
}

static const struct word {
    const char *name;
    bool (*read)(struct reading *r, const struct tr_json *v);
} WORDS[] = {
    {"type", read_type},
    {"enum", read_enum},
    {"const", read_const},
    {"properties", is_members},
    {"required", is_required},
    {"additionalProperties", is_extra},
    {"patternProperties", is_patterns},
    {"propertyNames", is_names},
    {"minProperties", read_min_properties},
    {"maxProperties", read_max_properties},
    {"items", is_items},
    {"prefixItems", is_prefix},
    {"minItems", read_min_items},
    {"maxItems", read_max_items},
    {"uniqueItems", is_false},
    {"minLength", read_min_length},
    {"maxLength", read_max_length},
    {"pattern", read_pattern},
    {"format", read_format},
    {"minimum", read_minimum},
    {"maximum", read_maximum},
    {"exclusiveMinimum", read_exclusive_minimum},
    {"exclusiveMaximum", read_exclusive_maximum},
    {"multipleOf", read_multiple_of},
    {"not", read_not},
    {"anyOf", read_anyof},
    {"oneOf", read_oneof},
    {"allOf", skip},
    {"$ref", skip},
    {"$defs", skip},
    {"definitions", skip},
    {"title", skip},
    {"description", skip},
    {"default", skip},
    {"example", skip},
    {"examples", skip},
    {"deprecated", skip},
    {"readOnly", skip},
    {"writeOnly", skip},
    {"discriminator", skip}, /* of OpenAPI: a hint where oneOf says it */
    {"contentEncoding", skip},
    {"contentMediaType", skip},
    {"$schema", skip},
    {"$id", skip},
    {"$comment", skip},
};

/* The row of a keyword, or NULL; x-... is anybody's and says nothing to us. */
static const struct word *find(const struct tr_json *key)
{
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (tr_json_eq(key, WORDS[i].name, strlen(WORDS[i].name)))
            return &WORDS[i];
    static const struct word OTHER = {"x-", skip};
    return key->len > 2 && memcmp(key->u.s, "x-", 2) == 0 ? &OTHER : NULL;
}

bool tr_sc_says(const struct tr_sc_part *part)
{
    for (struct tr_json_it it = tr_json_iter(part->schema); tr_json_step(&it);) {
        const struct word *w = find(it.key);
        bool done =
            w && (w->read == skip || (w->read == read_anyof && part->skip & TR_SC_NO_ANYOF) ||
                  (w->read == read_oneof && part->skip & TR_SC_NO_ONEOF));
        if (!done)
            return true;
    }
    return false;
}

static bool read_part(struct reading *r)
{
    for (struct tr_json_it it = tr_json_iter(r->part->schema); tr_json_step(&it);) {
        const struct word *w = find(it.key);
        if (!w)
            return tr_sc_refuse(r->c, it.val, "the keyword \"%.*s\" is not supported",
                                (int)(it.key->len < 64 ? it.key->len : 64), it.key->u.s);
        if (!tr_gbudget_step(&r->c->w, 8))
            return tr_sc_full(r->c, it.val);
        if (!w->read(r, it.val))
            return false;
    }
    return true;
}

/* Without a type, the keywords say which kinds are meant. */
static void guess_types(struct tr_spec *s)
{
    unsigned types = 0;
    types |= s->object_words ? TR_SC_OBJECT : 0;
    types |= s->array_words ? TR_SC_ARRAY : 0;
    types |= s->string_words ? TR_SC_STRING : 0;
    types |= s->bounded ? TR_SC_NUMBER : 0;
    if (types)
        s->types = types;
}

const struct tr_spec *tr_sc_spec(struct tr_sc *c, struct tr_demand *d)
{
    if (d->spec)
        return d->spec;
    struct tr_spec *s = tr_gbudget_alloc(&c->w, sizeof *s);
    if (!s)
        return tr_sc_full(c, NULL), NULL;
    s->types = TR_SC_ALL;
    s->max_len = s->max_props = s->max_items = UINT32_MAX;
    struct reading r = {.c = c, .s = s};
    for (uint32_t i = 0; i < d->n; i++) {
        r.part = &d->part[i];
        r.index = i;
        if (!read_part(&r))
            return NULL;
    }
    if (!r.typed && !s->only)
        guess_types(s);
    d->spec = s;
    return s;
}
