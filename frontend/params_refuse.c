/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/params_refuse.c - what params.def says by itself: types, and fields that would change the answer
 * and are not there, which are refused by name unless their value asks for nothing. */
#include "frontend/fields.h"
#include "frontend/params_priv.h"

#include <errno.h>
#include <string.h>

/* One of the words of the row? */
static bool is_word(const struct tr_json *v, const char *words)
{
    while (*words) {
        size_t n = strcspn(words, " ");
        if (tr_json_is(v, TR_JSON_STRING) && tr_json_eq(v, words, n))
            return true;
        words += n + (words[n] != '\0');
    }
    return false;
}

/* A field that is there, by its row. */
static int check_row(struct tr_param_reader *r, enum tr_field k)
{
    const struct tr_json *v = r->v[k];
    const char *name = tr_param_row[k].name;

    switch (tr_param_row[k].kind) {
    case TR_PARAM_BOOL:
        return v->type == TR_JSON_BOOL ? 0 : TR_PARAM_BAD(r, k, "%s must be true or false.", name);
    case TR_PARAM_STRING:
        return v->type == TR_JSON_STRING ? 0 : TR_PARAM_BAD(r, k, "%s must be a string.", name);
    case TR_PARAM_ARRAY:
        return v->type == TR_JSON_ARRAY ? 0 : TR_PARAM_BAD(r, k, "%s must be an array.", name);
    case TR_PARAM_OBJECT:
        return v->type == TR_JSON_OBJECT ? 0 : TR_PARAM_BAD(r, k, "%s must be an object.", name);
    case TR_PARAM_WORD:
        return is_word(v, tr_param_row[k].values) ? 0 : tr_param_unsupported(r, k, NULL);
    case TR_PARAM_NEVER:
        return tr_field_empty(v) ? 0 : tr_param_unsupported(r, k, NULL);
    case TR_PARAM_NUM: /* these by whoever reads them */
    case TR_PARAM_INT:
    case TR_PARAM_OWN:
    case TR_PARAM_IGNORED:
        break;
    }
    return 0;
}

static int refuse_formats(struct tr_param_reader *r)
{
    const struct tr_json *v;

    if ((v = r->v[F_modalities])) {
        if (v->type != TR_JSON_ARRAY)
            return TR_PARAM_BAD(r, F_modalities, "modalities must be an array.");
        for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
            if (!TR_JSON_EQ(it.val, "text"))
                return tr_param_unsupported(r, F_modalities, NULL);
    }
    if ((v = r->v[F_on_disconnect])) {
        if (!TR_JSON_EQ(v, "cancel") && !TR_JSON_EQ(v, "hold"))
            return TR_PARAM_BAD(r, F_on_disconnect,
                                "on_disconnect must be \"cancel\" or \"hold\".");
        if (TR_JSON_EQ(v, "hold") && r->a->api != TR_API_NATIVE &&
            !tr_dialect_of(r->a->api)->translate)
            return TR_PARAM_BAD(r, F_on_disconnect,
                                "Streams of this endpoint are held by the header "
                                "X-Tokenring-Resume: 1.");
    }
    return 0;
}

int tr_param_refuse(struct tr_param_reader *r)
{
    enum tr_param_who not_here = r->a->chat ? TR_PARAM_COMPLETIONS : TR_PARAM_CHAT;

    /* Words last: who sends functions and a function_call is told of the functions. */
    for (int words = 0; words < 2; words++)
        for (enum tr_field k = 0; k < F_COUNT; k++)
            if (r->v[k] && tr_param_row[k].who != not_here &&
                (tr_param_row[k].kind == TR_PARAM_WORD) == words && check_row(r, k))
                return -EINVAL;
    return refuse_formats(r);
}
