/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/address.h"

#include <errno.h>
#include <string.h>

bool tr_sink_is_server(const char *address)
{
    static const char *const scheme[] = {"postgresql://", "postgres://"};
    for (size_t i = 0; i < sizeof(scheme) / sizeof(scheme[0]); i++)
        if (strncmp(address, scheme[i], strlen(scheme[i])) == 0)
            return true;
    return false;
}

int tr_sink_check_address(const char *address, struct tr_errbuf *err)
{
    if (*address && (tr_sink_is_server(address) || !strstr(address, "://")))
        return 0;
    return tr_errf(err, -EINVAL, "--ledger takes a file, postgresql://... or off");
}
