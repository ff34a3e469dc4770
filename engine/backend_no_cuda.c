/* SPDX-License-Identifier: Apache-2.0 */
/* The `cuda` backend of a build without CUDA.  A program that is linked with engine/backend_cuda.c has that
 * instead: an object of its own is found before one in this library. */
#include "engine/backend.h"

#include <errno.h>

static bool insisted(const struct tr_backend_config *c)
{
    return c->deterministic;
}

static struct tr_backend *refuse(const struct tr_backend_config *c, struct tr_backend_info *info,
                                 struct tr_errbuf *err)
{
    (void)c;
    (void)info;
    tr_errf(err, -ENOSYS,
            "--backend cuda: this program was built without CUDA (cmake -DTOKENRING_CUDA=ON); "
            "serve with --backend cpu");
    return NULL;
}

static void close_none(struct tr_backend *b)
{
    (void)b;
}

const struct tr_backend_ops tr_backend_cuda = {
    .name = "cuda",
    .deterministic = insisted,
    .open = refuse,
    .close = close_none,
};
