/* SPDX-License-Identifier: Apache-2.0 */
/* Accept fields come from sockets: q stays in its range, naming is never more than wanting, and an element
 * more that is closer decides. */
#include "base/assert.h"
#include "frontend/accept.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tr_media media[] = {{"text", "plain", "0.0.4"},
                                            {"application", "openmetrics-text", "1.0.0"}};
    static const char exact[] = ",text/plain;version=0.0.4;q=0.123";
    struct tr_slice field = {(const char *)data, size};

    for (size_t i = 0; i < 2; i++) {
        unsigned any = tr_accept_q(field, &media[i], false);
        unsigned named = tr_accept_q(field, &media[i], true);
        TR_ASSERT(any <= 1000 && (named == 0 || named == any));
    }
    if (size > 65536 || memchr(data, '"', size))
        return 0;
    char *more = malloc(size + sizeof(exact));
    TR_ASSERT(more);
    memcpy(more, data, size);
    memcpy(more + size, exact, sizeof(exact));
    TR_ASSERT(tr_accept_q((struct tr_slice){more, size + sizeof(exact) - 1}, &media[0], false) >=
              123);
    free(more);
    return 0;
}
