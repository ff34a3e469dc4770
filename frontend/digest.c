/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/digest.h"

#include <errno.h>
#include <openssl/evp.h>

static EVP_MD
    *sha256; /* looked up once: each look takes locks and memory; the process's for life */

int tr_digest_load(void)
{
    if (!sha256)
        sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    return sha256 && EVP_MD_get_size(sha256) == TR_DIGEST_BYTES ? 0 : -ENOSYS;
}

int tr_digest(const void *data, size_t len, uint8_t out[TR_DIGEST_BYTES])
{
    int ret = tr_digest_load();

    return ret ? ret : EVP_Digest(data, len, out, NULL, sha256, NULL) == 1 ? 0 : -ENOMEM;
}
