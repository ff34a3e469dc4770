/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/accept.h - what of an Accept field holds for one media type (RFC 9110, 12.5.1).
 *
 * The field is input: what does not parse is an element that names nothing.  No allocation. */
#ifndef TR_FRONTEND_ACCEPT_H
#define TR_FRONTEND_ACCEPT_H

#include "frontend/http.h"

/* A media type, lower case, and the one version of it that we write. */
struct tr_media {
    const char *type, *subtype;
    const char *version; /* what a `version` parameter must say if there is one */
};

/* How much it is wanted, 0 (not at all) to 1000: the q of the most specific element that means it.
 * A field that is not there (p NULL) wants everything.  `named`: only elements that name the subtype count,
 * no wildcards. */
unsigned tr_accept_q(struct tr_slice field, const struct tr_media *m, bool named);

#endif
