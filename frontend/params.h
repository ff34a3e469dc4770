/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/params.h - checks every known field of a request and replaces defaults by values.
 *
 * Frontend only, pure.  A wrong type, range or shape is an error that names the field; null is the
 * same as absent; unknown fields are ignored; known ones that would change the answer and are not
 * supported are refused by name.
 *
 * Rules that are ours: 10.0 is 10; max_tokens beyond the context is limited by it, however large;
 * max_tokens 0 is allowed; max_completion_tokens wins over max_tokens; at most 16 stop strings of
 * at most 1024 bytes; n times prompts at most --max-choices; best_of must equal n; a model must be named. */
#ifndef TR_FRONTEND_PARAMS_H
#define TR_FRONTEND_PARAMS_H

#include "frontend/ask.h"

enum { TR_PARAMS_STOPS = 16 };

/* Fills *a from a->body.  0, or -EINVAL with *f; `a` may then only be closed. */
int tr_params_read(struct tr_ask *a, enum tr_api api, struct tr_fault *f);

/* The model field: 0, or -EINVAL with *f (missing, no string, unknown). */
int tr_params_model(const struct tr_fe *fe, const struct tr_json *model, struct tr_fault *f);

#endif
