/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/ws_accept.c - see ws_accept.h.  SHA-1 is here because the protocol wants it, for nothing
 * that has to be secret; it is not worth a library that reads files when it starts. */
#include "frontend/ws_accept.h"

#include <string.h>
#include <strings.h>

enum { KEY_BYTES = 24, DIGEST_BYTES = 20 };

/* ---- SHA-1 (FIPS 180-4) and base64 of a short text ---- */

static uint32_t rotl(uint32_t v, unsigned n)
{
    return v << n | v >> (32 - n);
}

static void sha1_block(uint32_t h[5], const uint8_t *p)
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];

    for (unsigned i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (unsigned i = 16; i < 80; i++)
        w[i] = rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (unsigned i = 0; i < 80; i++) {
        uint32_t f = i < 20   ? (b & c) | (~b & d)
                     : i < 40 ? b ^ c ^ d
                     : i < 60 ? (b & c) | (b & d) | (c & d)
                              : b ^ c ^ d;
        static const uint32_t k[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
        uint32_t t = rotl(a, 5) + f + e + k[i / 20] + w[i];
        e = d;
        d = c;
        c = rotl(b, 30);
        b = a;
        a = t;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
}

/* Of at most 119 bytes: two blocks. */
static void sha1(const char *text, size_t len, uint8_t out[DIGEST_BYTES])
{
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    uint8_t buf[128] = {0};
    size_t n = len + 9 > 64 ? 128 : 64;

    memcpy(buf, text, len);
    buf[len] = 0x80;
    buf[n - 2] = (uint8_t)(len * 8 >> 8);
    buf[n - 1] = (uint8_t)(len * 8);
    for (size_t at = 0; at < n; at += 64)
        sha1_block(h, buf + at);
    for (unsigned i = 0; i < DIGEST_BYTES; i++)
        out[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void base64(const uint8_t d[DIGEST_BYTES], char out[TR_WS_ACCEPT_BYTES])
{
    for (unsigned i = 0, o = 0; i < DIGEST_BYTES; i += 3) {
        uint32_t v =
            (uint32_t)d[i] << 16 | (uint32_t)d[i + 1] << 8 | (i + 2 < DIGEST_BYTES ? d[i + 2] : 0);
        for (unsigned k = 0; k < 4; k++)
            out[o++] = digits[v >> (18 - 6 * k) & 63];
    }
    out[TR_WS_ACCEPT_BYTES - 2] = '=';
    out[TR_WS_ACCEPT_BYTES - 1] = '\0';
}

/* ---- fields ---- */

/* Sixteen bytes in base64: 22 digits, the last of which has two bits, and "==". */
static bool is_key(struct tr_slice v)
{
    if (v.len != KEY_BYTES || v.p[22] != '=' || v.p[23] != '=')
        return false;
    for (unsigned i = 0; i < 22; i++)
        if (!v.p[i] || !strchr(digits, v.p[i]))
            return false;
    return strchr("AQgw", v.p[21]) != NULL;
}

static bool is(struct tr_slice v, const char *text)
{
    return v.len == strlen(text) && strncasecmp(v.p, text, v.len) == 0;
}

/* A page's origin is "scheme://host[:port]", and Host the rest of it for a page of our own. */
static bool origin_good(const struct tr_http *h, const char *cors)
{
    struct tr_slice origin = tr_http_field(h, "origin"), host = tr_http_field(h, "host");

    if (!origin.p || (cors && (strcmp(cors, "*") == 0 || is(origin, cors))))
        return true;
    for (size_t i = 0; i + 3 <= origin.len; i++)
        if (memcmp(origin.p + i, "://", 3) == 0)
            return host.len && origin.len - i - 3 == host.len &&
                   strncasecmp(origin.p + i + 3, host.p, host.len) == 0;
    return false;
}

static enum tr_err fault_of(const struct tr_http *h, const char *cors, const char **why)
{
    if (h->method != TR_HTTP_GET || h->minor < 1 ||
        !tr_http_list_has(tr_http_field(h, "upgrade"), "websocket") ||
        !tr_http_list_has(tr_http_field(h, "connection"), "upgrade")) {
        *why = "This is a WebSocket: it is opened by GET on HTTP/1.1 with Upgrade: websocket and "
               "Connection: Upgrade.";
        return TR_ERR_UPGRADE;
    }
    if (tr_http_field_count(h, "sec-websocket-version") != 1 ||
        !is(tr_http_field(h, "sec-websocket-version"), "13")) {
        *why = "Sec-WebSocket-Version must be 13.";
        return TR_ERR_UPGRADE;
    }
    if (tr_http_field_count(h, "sec-websocket-key") != 1 ||
        !is_key(tr_http_field(h, "sec-websocket-key"))) {
        *why = "Sec-WebSocket-Key must be 16 bytes in base64, once.";
        return TR_ERR_BAD_HTTP;
    }
    if (h->has_body) {
        *why = "A request that opens a WebSocket has no body.";
        return TR_ERR_BAD_HTTP;
    }
    if (!origin_good(h, cors)) {
        *why = "Pages of this origin may not connect; --cors allows one.";
        return TR_ERR_FORBIDDEN;
    }
    return TR_OK;
}

enum tr_err tr_ws_accept(const struct tr_http *h, const char *cors, char accept[TR_WS_ACCEPT_BYTES],
                         const char **why)
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    char text[KEY_BYTES + sizeof(guid)];
    uint8_t digest[DIGEST_BYTES];
    enum tr_err e = fault_of(h, cors, why);

    if (e)
        return e;
    memcpy(text, tr_http_field(h, "sec-websocket-key").p, KEY_BYTES);
    memcpy(text + KEY_BYTES, guid, sizeof(guid) - 1);
    sha1(text, KEY_BYTES + sizeof(guid) - 1, digest);
    base64(digest, accept);
    return TR_OK;
}

bool tr_ws_wants_protocol(const struct tr_http *h)
{
    for (size_t i = 0; i < h->n_fields; i++) {
        const struct tr_http_field *f = &h->fields[i];
        if (is((struct tr_slice){h->head + f->name, f->name_len}, "sec-websocket-protocol") &&
            tr_http_list_has((struct tr_slice){h->head + f->value, f->value_len}, TR_WS_PROTOCOL))
            return true;
    }
    return false;
}
