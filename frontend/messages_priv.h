/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/messages_priv.h - what the files of messages share: the checks of messages_check.c. */
#ifndef TR_FRONTEND_MESSAGES_PRIV_H
#define TR_FRONTEND_MESSAGES_PRIV_H

#include "frontend/messages.h"

/* Whether every message is as messages.h says, and the last one has a text if it is continued: 0, or
 * -EINVAL with *f, whose param is the path of what is wrong. */
int tr_messages_check(const struct tr_json_doc *doc, const struct tr_json *messages, bool continued,
                      struct tr_fault *f);

/* No argument of a template is a variable that the server sets. */
int tr_messages_check_args(const struct tr_json_doc *doc, const struct tr_json *args,
                           struct tr_fault *f);

/* The text of a part that has been checked. */
const struct tr_json *tr_messages_part(const struct tr_json *part);

#endif
