/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/page.h - the built-in page: GET /.
 *
 * Frontend only.  One file, page/index.html, is in the binary as it is.  Its answer lets a browser run
 * the one script and the one style sheet that are in it, by their hashes, and ask this server; nothing
 * else.  The page needs no key; what it asks for does. */
#ifndef TR_FRONTEND_PAGE_H
#define TR_FRONTEND_PAGE_H

#include "frontend/exchange.h"

#include <stddef.h>

enum {
    TR_PAGE_TAG_BYTES = 35,    /* quoted, with its NUL */
    TR_PAGE_POLICY_BYTES = 384 /* with its NUL */
};

/* What is said of a page besides its bytes. */
struct tr_page_head {
    char tag[TR_PAGE_TAG_BYTES];       /* ETag: of the bytes, so the same at every frontend */
    char policy[TR_PAGE_POLICY_BYTES]; /* Content-Security-Policy */
};

/* 0; -EINVAL if the page has not exactly one <script> and one <style>, both without attributes; or what
 * tr_digest says.  *h is as it was then. */
int tr_page_describe(const char *html, size_t len, struct tr_page_head *h);

/* Whether an If-None-Match names the tag; weak ones are compared as if they were not. */
bool tr_page_known(struct tr_slice if_none_match, const char *tag);

tr_handler tr_page_get;

#endif
