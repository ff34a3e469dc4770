/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/grammar.c - see grammar.h. */
#include "frontend/grammar.h"

#include "frontend/ask.h"
#include "grammar/program.h"

#include <errno.h>
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

    *out = TR_G_NONE;
    return w->kind == TR_WISH_CHOICE ? add_choice(w, b, out, f) : 0;
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

int tr_ask_grammar_make(struct tr_ask *a, struct tr_fault *f)
{
    tr_gnode start;

    if (a->wish.kind == TR_WISH_NONE)
        return 0;
    struct tr_gbuild *b = tr_gbuild_new();
    if (!b)
        return refuse(f, -ENOMEM, NULL, "");
    int rc = tr_ask_grammar_node(a, b, &start, f);
    if (rc == 0)
        rc = tr_ask_grammar_take(a, b, start, a->wish.field, f);
    tr_gbuild_free(b);
    return rc;
}
