/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/observe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tr_observe_path(enum tr_observe_place place, unsigned port, char *out, size_t cap)
{
    static const char *const variable[TR_OBSERVE_PLACES] = {
        [TR_OBSERVE_RUNTIME] = "RUNTIME_DIRECTORY", [TR_OBSERVE_USER] = "XDG_RUNTIME_DIR"};
    static const char *const fixed[TR_OBSERVE_PLACES] = {
        [TR_OBSERVE_SYSTEM] = "/run/tokenring", [TR_OBSERVE_TMP] = "/tmp"};
    const char *dir = variable[place] ? getenv(variable[place]) : fixed[place];
    if (!dir || *dir != '/')
        return -ENOENT;
    /* The service manager may name several, with colons between. */
    int n = snprintf(out, cap, "%.*s/tokenring-%u.sock", (int)strcspn(dir, ":"), dir, port);
    return n > 0 && (size_t)n < cap ? 0 : -ENAMETOOLONG;
}
