/* SPDX-License-Identifier: Apache-2.0 */
/* tools/inspect/report.h - the facts of a file, as a page or as one object of JSON. */
#ifndef TR_INSPECT_REPORT_H
#define TR_INSPECT_REPORT_H

#include "inspect/facts.h"

#include <stdio.h>

struct tr_inspect_wish {
    const char *path;
    bool tensors, metadata; /* list each of them too */
};

void tr_inspect_text(FILE *to, const struct tr_facts *f, const struct tr_inspect_wish *r);

/* 0, or -ENOMEM. */
int tr_inspect_json(FILE *to, const struct tr_facts *f, const struct tr_inspect_wish *r);

/* Both: what of a template's traits has a word. */
const char *tr_inspect_content(enum tr_chat_content c);

#endif
