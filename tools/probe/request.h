/* SPDX-License-Identifier: Apache-2.0 */
/* probe/request.h - the bytes of one request. */
#ifndef TR_PROBE_REQUEST_H
#define TR_PROBE_REQUEST_H

#include "probe/options.h"

#include <stddef.h>

/* POST of the chosen route for request `index` (it only matters with --distinct), head and body in
 * one piece.  The caller frees.  NULL without memory, or when the prompt is not UTF-8. */
char *tr_request_post(const struct tr_probe_opts *o, const char *model, uint64_t index,
                      size_t *len);

#endif
