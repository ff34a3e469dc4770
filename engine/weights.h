/* SPDX-License-Identifier: Apache-2.0 */
/* engine/weights.h - packed weights that outlive the engine that packed them.
 *
 * The supervisor makes an empty memfd and keeps it; every engine inherits it and nobody else does.  The
 * first one packs the model into it and makes its mapping read-only; the next one maps what it finds,
 * if it is whole and of the same file, and neither reads the file's weights nor packs.  Options,
 * machine and binary are the same for all engines of a service, so the file is all there is to compare.
 *
 *   I1  a complete one is never written again: it is sealed (from Linux 5.1 on), and no engine has a
 *       mapping of it that is writable or can be made so; one that runs wild cannot spoil its successor
 *
 * An engine that died while it packed leaves it incomplete: it is packed anew.  A file that has changed
 * since is packed elsewhere, by each engine for itself.  Whatever else does not work (an old kernel, no
 * memory of that kind) costs the keeping too, not the start. */
#ifndef TR_ENGINE_WEIGHTS_H
#define TR_ENGINE_WEIGHTS_H

#include "base/gguf.h"

#include <stdbool.h>
#include <stddef.h>

/* Memory for `len` bytes of packed weights of that file, in whole pages: read-only and filled, or
 * writable and zero.  NULL if there is none to be had; then there is other memory.  `beat(arg)`, if not
 * NULL, is called now and then. */
void *tr_weights_take(int fd, struct tr_gguf_origin file, size_t len, void (*beat)(void *),
                      void *arg, bool *filled);

/* It is packed: nobody writes it again, and the next engine finds it.  0, or -errno: then `mem` may be
 * gone. */
int tr_weights_keep(int fd, void *mem, size_t len);

#endif
