/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/grammar.c - see grammar.h. */
#include "frontend/grammar.h"

#include "frontend/ask.h"
#include "grammar/gbnf.h"
#include "grammar/json_text.h"
#include "grammar/program.h"
#include "grammar/regex.h"
#include "grammar/schema.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(TR_GRAM_BYTES <= TR_GRAMMAR_BYTES, "every program has its place in shared memory");

static int refuse(struct tr_fault *f, int rc, const char *param, const char *why)
{
    size_t n = strlen(why);

    if (rc == -ENOMEM)
        return tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    return tr_fault_set(f, TR_ERR_BAD_PARAM, param, "%s%s", why, n && why[n - 1] == '.' ? "" : ".");
}

/* ---- schemas ---- */

/* A place in the body, or in a schema that was sent as text behind the name of its field. */
static void place_of(const struct tr_wish *w, const struct tr_json_doc *doc,
                     const struct tr_json *at, bool own, char *out, size_t cap)
{
    char inside[160];

    if (!at) {
        snprintf(out, cap, "%s", w->field);
        return;
    }
    tr_json_param(doc, at, inside, sizeof(inside));
    if (own)
        snprintf(out, cap, "%s", inside);
    else
        snprintf(out, cap, "%s%s%s", w->field, *inside && *inside != '[' ? "." : "", inside);
}

static int add_schema(const struct tr_wish *w, const struct tr_json_doc *doc,
                      const struct tr_json *schema, bool own, struct tr_gbuild *b, tr_gnode *out,
                      struct tr_fault *f)
{
    struct tr_gfault g = {.at = NULL};
    char param[sizeof(f->param)];
    int rc = tr_gschema(b, doc, schema, out, &g);

    if (rc == 0)
        return 0;
    place_of(w, doc, g.at, own, param, sizeof(param));
    return refuse(f, rc, param, g.why);
}

/* guided_json may be the text of a schema. */
static int add_schema_text(const struct tr_wish *w, struct tr_gbuild *b, tr_gnode *out,
                           struct tr_fault *f)
{
    struct tr_json_fault jf;
    struct tr_json_doc *doc = tr_json_parse(w->value->u.s, w->value->len, &jf);

    if (!doc && jf.no_memory)
        return refuse(f, -ENOMEM, NULL, "");
    if (!doc)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, w->field,
                            "This text is not JSON: %s (at byte %zu).", jf.why, jf.off);
    int rc = add_schema(w, doc, tr_json_root(doc), false, b, out, f);
    tr_json_free(doc);
    return rc;
}

/* ---- the others ---- */

static int add_choice(const struct tr_wish *w, struct tr_gbuild *b, tr_gnode *out,
                      struct tr_fault *f)
{
    tr_gnode *list = calloc(w->value->len ? w->value->len : 1, sizeof(*list));

    if (!list)
        return refuse(f, -ENOMEM, NULL, "");
    for (struct tr_json_it it = tr_json_iter(w->value); tr_json_step(&it);)
        list[it.index] = tr_g_bytes(b, it.val->u.s, it.val->len);
    *out = tr_g_alt(b, list, w->value->len);
    free(list);
    return 0;
}

int tr_ask_grammar_node(const struct tr_ask *a, struct tr_gbuild *b, tr_gnode *out,
                        struct tr_fault *f)
{
    const struct tr_wish *w = &a->wish;
    const struct tr_json *v = w->value;
    struct tr_errbuf err = {""};
    int rc = 0;

    *out = TR_G_NONE;
    switch (w->kind) {
    case TR_WISH_NONE:
        break;
    case TR_WISH_OBJECT:
        *out = tr_gjson_object(b);
        break;
    case TR_WISH_SCHEMA:
        return v->type == TR_JSON_STRING ? add_schema_text(w, b, out, f)
                                         : add_schema(w, a->doc, v, true, b, out, f);
    case TR_WISH_REGEX:
        rc = tr_gregex(b, v->u.s, v->len, out, &err);
        break;
    case TR_WISH_GBNF:
        rc = tr_gbnf(b, v->u.s, v->len, out, &err);
        break;
    case TR_WISH_CHOICE:
        return add_choice(w, b, out, f);
    }
    return rc ? refuse(f, rc, w->field, err.msg) : 0;
}

int tr_ask_grammar_take(struct tr_ask *a, struct tr_gbuild *b, tr_gnode start, const char *param,
                        struct tr_fault *f)
{
    struct tr_errbuf err = {""};
    size_t len = 0;

    if (!a->grammar)
        a->grammar = malloc(TR_GRAM_BYTES);
    if (!a->grammar)
        return refuse(f, -ENOMEM, NULL, "");
    int rc = tr_gbuild_finish(b, start, a->grammar, TR_GRAM_BYTES, &len, &err);
    if (rc)
        return refuse(f, rc, param, err.msg);
    /* Most are far smaller than the largest, and wait for slots or die. */
    uint8_t *fit = realloc(a->grammar, len);
    a->grammar = fit ? fit : a->grammar;
    a->extra->grammar = a->grammar;
    a->extra->grammar_len = (uint32_t)len;
    return 0;
}
