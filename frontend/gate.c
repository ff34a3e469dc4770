/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/gate.c - see gate.h. */
#include "frontend/gate.h"

#include "frontend/route.h"

enum tr_err tr_gate_identify(const struct tr_fe *fe, const struct tr_http *head, unsigned flags,
                             const struct tr_key **key, const char **why)
{
    const struct tr_keys *k = fe->cfg->keys;
    bool admin = flags & TR_ROUTE_ADMIN;
    const struct tr_key *found;

    *key = NULL;
    if (!k)
        return TR_OK;
    enum tr_key_found f = tr_keys_find(k, head, &found);
    if (f == TR_KEY_GOOD && admin && !found->admin)
        return TR_ERR_FORBIDDEN;
    *key = found;
    if (f == TR_KEY_GOOD || (!k->needed && !admin))
        return TR_OK;
    if (f == TR_KEY_NONE)
        *why = "An API key is needed: send Authorization: Bearer KEY.";
    return TR_ERR_UNAUTHORIZED;
}
