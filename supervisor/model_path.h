/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/model_path.h - from the word after --model to a file. */
#ifndef TR_SUPERVISOR_MODEL_PATH_H
#define TR_SUPERVISOR_MODEL_PATH_H

#include "base/err.h"

#include <stddef.h>

/* Where tools/fetch-model keeps models: $TOKENRING_CACHE, else $XDG_CACHE_HOME/tokenring, else
 * ~/.cache/tokenring. */
int tr_model_cache(char *out, size_t cap, struct tr_errbuf *err);

/* "smollm2" is the file of that name in the cache; everything else is a path.  0, or -errno and a
 * sentence when there is no such file. */
int tr_model_path(const char *model, char *out, size_t cap, struct tr_errbuf *err);

#endif
