/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/page.h"

#include "base/assert.h"
#include "base/hex.h"
#include "frontend/digest.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

/* The file, as it is: the assembler reads it (TR_PAGE_FILE: CMakeLists.txt). */
__asm__(".pushsection .rodata\n"
        "tr_page_begin: .incbin \"" TR_PAGE_FILE "\"\n"
        "tr_page_end: .byte 0\n"
        ".popsection\n");
extern const char tr_page_begin[], tr_page_end[];

enum { HASH_TEXT = 4 * ((TR_DIGEST_BYTES + 2) / 3) + 1, TAG_DIGITS = 32 };
_Static_assert(TR_PAGE_TAG_BYTES == TAG_DIGITS + sizeof("\"\""), "quoted");

/* The hash of what is between the only <name> and the only </name>, as a policy has it. */
static int hash_element(const char *html, size_t len, const char *name, char out[HASH_TEXT])
{
    unsigned char sum[TR_DIGEST_BYTES];
    char open[16], close[16];
    size_t n_open = (size_t)snprintf(open, sizeof(open), "<%s>", name);
    size_t n_close = (size_t)snprintf(close, sizeof(close), "</%s>", name);
    const char *end = html + len, *from = memmem(html, len, open, n_open);

    if (!from || memmem(from + n_open, (size_t)(end - from) - n_open, open, n_open))
        return -EINVAL;
    from += n_open;
    const char *to = memmem(from, (size_t)(end - from), close, n_close);
    if (!to)
        return -EINVAL;
    if (tr_digest(from, (size_t)(to - from), sum))
        return -ENOMEM;
    EVP_EncodeBlock((unsigned char *)out, sum, sizeof(sum));
    return 0;
}

int tr_page_describe(const char *html, size_t len, struct tr_page_head *h)
{
    unsigned char sum[TR_DIGEST_BYTES];
    char script[HASH_TEXT], style[HASH_TEXT];

    int ret = hash_element(html, len, "script", script);
    if (!ret)
        ret = hash_element(html, len, "style", style);
    if (!ret)
        ret = tr_digest(html, len, sum);
    if (ret)
        return ret;
    h->tag[0] = '"';
    tr_hex_format(sum, TAG_DIGITS / 2, h->tag + 1);
    memcpy(h->tag + 1 + TAG_DIGITS, "\"", 2);
    int n = snprintf(h->policy, sizeof(h->policy),
                     "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; "
                     "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                     "frame-ancestors 'none'",
                     script, style);
    return n < (int)sizeof(h->policy) ? 0 : -EINVAL;
}

bool tr_page_known(struct tr_slice v, const char *tag)
{
    size_t n = strlen(tag);

    if (v.len == 1 && v.p[0] == '*')
        return true;
    return v.len >= n && memmem(v.p, v.len, tag, n) != NULL; /* the quotes are part of it */
}

void tr_page_get(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    static struct tr_page_head head; /* made by the first request; one thread is here */
    size_t len = (size_t)(tr_page_end - tr_page_begin);

    (void)ctx;
    int ret = head.tag[0] ? 0 : tr_page_describe(tr_page_begin, len, &head);
    TR_ASSERT(ret != -EINVAL);
    if (ret) {
        tr_exchange_error(x, TR_ERR_INTERNAL, NULL, NULL);
        return;
    }
    tr_exchange_header(x, "ETag", head.tag);
    tr_exchange_header(x, "Cache-Control", "no-cache"); /* asks each time, and is told 304 */
    tr_exchange_header(x, "Content-Security-Policy", head.policy);
    tr_exchange_header(x, "X-Content-Type-Options", "nosniff");
    tr_exchange_header(x, "Referrer-Policy", "no-referrer");
    tr_exchange_header(x, "Cross-Origin-Opener-Policy", "same-origin");
    if (tr_page_known(tr_http_field(rq->http, "if-none-match"), head.tag))
        tr_exchange_reply(x, 304, NULL, NULL, 0);
    else
        tr_exchange_reply(x, 200, "text/html; charset=utf-8", tr_page_begin, len);
}
