/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a parsed head: fields, lists, the query; and the reasons of statuses. */
#include "frontend/http_priv.h"

#include <errno.h>

struct tr_slice tr_http_field(const struct tr_http *h, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < h->n_fields; i++) {
        const struct tr_http_field *f = &h->fields[i];
        if (f->name_len == len && memcmp(h->head + f->name, name, len) == 0)
            return slice_of(h, f->value, f->value_len);
    }
    return (struct tr_slice){NULL, 0};
}

size_t tr_http_field_count(const struct tr_http *h, const char *name)
{
    size_t len = strlen(name), n = 0;
    for (size_t i = 0; i < h->n_fields; i++)
        n += h->fields[i].name_len == len && memcmp(h->head + h->fields[i].name, name, len) == 0;
    return n;
}

bool tr_http_list_has(struct tr_slice v, const char *token)
{
    while (v.len) {
        const char *comma = memchr(v.p, ',', v.len);
        size_t n = comma ? (size_t)(comma - v.p) : v.len;
        if (same(trim((struct tr_slice){v.p, n}), token))
            return true;
        n += comma != NULL;
        v.p += n;
        v.len -= n;
    }
    return false;
}

/* Decodes one value; its length or -EINVAL / -E2BIG. */
static int decode_value(const char *p, size_t len, char *buf, size_t cap)
{
    size_t out = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c == '+') {
            c = ' ';
        } else if (c == '%') {
            int hi = len - i > 2 ? tr_hex_digit((unsigned char)p[i + 1]) : -1;
            int lo = len - i > 2 ? tr_hex_digit((unsigned char)p[i + 2]) : -1;
            if (hi < 0 || lo < 0 || (hi == 0 && lo == 0))
                return -EINVAL;
            c = (unsigned char)(hi << 4 | lo);
            i += 2;
        }
        if (out + 1 >= cap)
            return -E2BIG;
        buf[out++] = (char)c;
    }
    buf[out] = '\0';
    return (int)out;
}

int tr_http_query(const struct tr_http *h, const char *name, char *buf, size_t cap)
{
    const char *p = h->query.p, *end = p ? p + h->query.len : p;
    size_t name_len = strlen(name);
    if (cap == 0)
        return -E2BIG;
    while (p < end) {
        const char *amp = memchr(p, '&', (size_t)(end - p));
        const char *stop = amp ? amp : end;
        const char *eq = memchr(p, '=', (size_t)(stop - p));
        const char *key_end = eq ? eq : stop;
        if ((size_t)(key_end - p) == name_len && memcmp(p, name, name_len) == 0)
            return decode_value(eq ? eq + 1 : stop, eq ? (size_t)(stop - eq - 1) : 0, buf, cap);
        p = amp ? amp + 1 : end;
    }
    return -ENOENT;
}

const char *tr_http_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } table[] = {
        {100, "Continue"},
        {200, "OK"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"}, /* not retried by clients, as 408 and 409 are */
        {411, "Length Required"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {426, "Upgrade Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].status == status)
            return table[i].reason;
    return status < 400 ? "OK" : "Error";
}
