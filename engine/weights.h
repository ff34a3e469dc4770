/* SPDX-License-Identifier: Apache-2.0 */
/* engine/weights.h - packed weights that outlive the engine that packed them.
 *
 * The supervisor makes an empty memfd and keeps it; every engine inherits it and nobody else does.  The
 * first one packs the model into it and makes its mapping read-only; the next one maps what it finds,
 * if it is whole and of the same file, and neither reads the file's weights nor packs.  Options,
 * machine and binary are the same for all engines of a service, so the file is all there is to compare.
 *
 *   I1  a complete one is never written again: no engine has a writable mapping of it, so one that runs
 *       wild cannot spoil its successor
 *
 * An engine that died while it packed leaves it incomplete: it is packed anew.  Whatever does not work
 * (an old kernel, no memory of that kind) costs the keeping, not the start. */
#ifndef TR_ENGINE_WEIGHTS_H
#define TR_ENGINE_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>

/* Memory for `len` bytes of packed weights of the file at `path`, in whole pages: read-only and filled,
 * or writable and zero.  NULL if there is none to be had; then there is other memory. */
void *tr_weights_take(int fd, const char *path, size_t len, bool *filled);

/* It is packed: nobody writes it again, and the next engine finds it. */
void tr_weights_keep(int fd, void *mem, size_t len);

#endif
