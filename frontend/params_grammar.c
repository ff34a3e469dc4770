/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/params_grammar.c - the field that says what an answer must obey: guided_choice of vLLM. */
#include "frontend/params_priv.h"

#include <errno.h>

/* ---- values ---- */

static int bad(struct tr_param_reader *r, const char *param, const char *words)
{
    return tr_fault_set(r->f, TR_ERR_BAD_PARAM, param, "%s", words);
}

static int check_choice(struct tr_param_reader *r, const struct tr_json *v, const char *param)
{
    if (v->type != TR_JSON_ARRAY || v->len == 0)
        return bad(r, param, "Choices are an array of at least one string.");
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
        if (!tr_json_is(it.val, TR_JSON_STRING) || it.val->len == 0)
            return bad(r, param, "Each choice is a string that is not empty.");
    return 0;
}

static int wish(struct tr_param_reader *r, enum tr_wish_kind kind, const struct tr_json *v,
                const char *param)
{
    struct tr_wish *w = &r->a->wish;
    int rc = check_choice(r, v, param);

    *w = (struct tr_wish){.kind = kind, .value = v, .field = param};
    return rc;
}

int tr_param_grammar(struct tr_param_reader *r)
{
    return r->v[F_guided_choice] ? wish(r, TR_WISH_CHOICE, r->v[F_guided_choice], "guided_choice")
                                 : 0;
}
