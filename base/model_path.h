/* SPDX-License-Identifier: Apache-2.0 */
/* base/model_path.h - from the word that names a model, as --model of serve has it, to a file. */
#ifndef TR_BASE_MODEL_PATH_H
#define TR_BASE_MODEL_PATH_H

#include "base/err.h"

#include <stddef.h>

/* "smollm2" is the file of that name where tools/fetch-model keeps models: $TOKENRING_CACHE, else
 * $XDG_CACHE_HOME/tokenring, else ~/.cache/tokenring.  Everything else is a path.  0, or -errno and a
 * sentence when there is no such file. */
int tr_model_path(const char *model, char *out, size_t cap, struct tr_errbuf *err);

#endif
