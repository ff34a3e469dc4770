/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/route.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Whether the path fits the pattern; *id is then what {id} stands for. */
static bool matches(const char *pattern, struct tr_slice path, struct tr_slice *id)
{
    const char *brace = strchr(pattern, '{');
    size_t lead = brace ? (size_t)(brace - pattern) : strlen(pattern);
    *id = (struct tr_slice){NULL, 0};
    if (path.len < lead || memcmp(path.p, pattern, lead) != 0)
        return false;
    if (!brace)
        return path.len == lead;
    bool rest = strcmp(brace, "{id*}") == 0;
    const char *tail = strchr(brace, '}') + 1;
    const char *slash = rest ? NULL : memchr(path.p + lead, '/', path.len - lead);
    size_t len = (slash ? (size_t)(slash - path.p) : path.len) - lead;
    size_t left = path.len - lead - len;
    if (len == 0 || left != strlen(tail) || memcmp(path.p + lead + len, tail, left) != 0)
        return false;
    *id = (struct tr_slice){path.p + lead, len};
    return true;
}

const struct tr_route *tr_route_find(const struct tr_route *routes, size_t n,
                                     enum tr_http_method method, struct tr_slice path,
                                     struct tr_slice *id, unsigned *allow)
{
    const struct tr_route *found = NULL;
    struct tr_slice part;
    *allow = 0;
    *id = (struct tr_slice){NULL, 0};
    for (size_t i = 0; i < n; i++) {
        const struct tr_route *r = &routes[i];
        if (!r->handler || !matches(r->pattern, path, &part))
            continue;
        *allow |= 1u << r->method;
        bool fits =
            r->method == method || (r->method == TR_HTTP_GET && method == TR_HTTP_HEAD_METHOD);
        if (r->method == TR_HTTP_GET)
            *allow |= 1u << TR_HTTP_HEAD_METHOD;
        if (!found && fits) {
            found = r;
            *id = part;
        }
    }
    return found;
}

void tr_route_prepare(struct tr_exchange *x, const struct tr_route *routes, size_t n,
                      struct tr_slice path)
{
    struct tr_slice part;
    size_t i = 0;

    while (i < n && !matches(routes[i].pattern, path, &part))
        i++;
    x->error_body = i < n ? routes[i].errors : NULL;
    if (i < n && x->request_id && (routes[i].flags & TR_ROUTE_ANTHROPIC))
        tr_exchange_header(x, "Request-Id", x->request_id);
}

void tr_route_allow(unsigned allow, char buf[96])
{
    size_t len = 0;
    buf[0] = '\0';
    for (int m = 0; m < TR_HTTP_OTHER; m++)
        if ((allow & 1u << m) || m == TR_HTTP_OPTIONS)
            len += (size_t)snprintf(buf + len, 96 - len, "%s%s", len ? ", " : "",
                                    tr_http_method_name((enum tr_http_method)m));
}

bool tr_route_json_type(struct tr_slice type)
{
    static const char json[] = "application/json", suffix[] = "+json";
    const char *semicolon = type.len ? memchr(type.p, ';', type.len) : NULL;
    size_t len = semicolon ? (size_t)(semicolon - type.p) : type.len;

    while (len > 0 && (type.p[len - 1] == ' ' || type.p[len - 1] == '\t'))
        len--;
    if (type.len == 0)
        return true;
    if (len == sizeof(json) - 1)
        return strncasecmp(type.p, json, len) == 0;
    size_t n = sizeof(suffix) - 1;
    return len > n && memchr(type.p, '/', len - n) && strncasecmp(type.p + len - n, suffix, n) == 0;
}
