/* SPDX-License-Identifier: Apache-2.0 */
#include "base/model_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int joined(char *out, size_t cap, const char *a, const char *b, struct tr_errbuf *err)
{
    if ((size_t)snprintf(out, cap, "%s%s", a, b) >= cap)
        return tr_errf(err, -ENAMETOOLONG, "the path of the model cache is too long");
    return 0;
}

static int find_cache(char *out, size_t cap, struct tr_errbuf *err)
{
    const char *own = getenv("TOKENRING_CACHE"), *xdg = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (own && *own)
        return joined(out, cap, own, "", err);
    if (xdg && *xdg)
        return joined(out, cap, xdg, "/tokenring", err);
    return joined(out, cap, home && *home ? home : "/root", "/.cache/tokenring", err);
}

int tr_model_path(const char *model, char *out, size_t cap, struct tr_errbuf *err)
{
    struct stat st;
    if (strcmp(model, "smollm2") != 0) {
        if (joined(out, cap, model, "", err))
            return -ENAMETOOLONG;
        if (stat(out, &st) < 0)
            return tr_errf(err, -errno, "cannot open the model %s: %s", model, strerror(errno));
        return 0;
    }
    char dir[4096];
    int ret = find_cache(dir, sizeof(dir), err);
    if (!ret)
        ret = joined(out, cap, dir, "/smollm2.gguf", err);
    if (!ret && stat(out, &st) < 0)
        ret = tr_errf(err, -ENOENT, "the model smollm2 is not in %s: run tools/fetch-model", dir);
    return ret;
}
