/* SPDX-License-Identifier: Apache-2.0 */
#include "client/target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Token characters, a colon, and no byte that could end the line. */
int tr_target_take_header(struct tr_target *t, const char *v)
{
    size_t name = strspn(v, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.");
    if (!name || v[name] != ':' || strpbrk(v, "\r\n") || t->n_headers == TR_TARGET_HEADERS_MAX)
        return -EINVAL;
    t->headers[t->n_headers++] = v;
    return 0;
}

int tr_target_take_key(struct tr_target *t, const char *v)
{
    t->api_key = v;
    return *v && !strpbrk(v, "\r\n") ? 0 : -EINVAL;
}

static void put_headers(FILE *f, const struct tr_target *t)
{
    fprintf(f, "Host: %s\r\nUser-Agent: %s\r\nConnection: close\r\n", t->url.authority, t->agent);
    if (t->api_key)
        fprintf(f, "Authorization: Bearer %s\r\n", t->api_key);
    for (size_t i = 0; i < t->n_headers; i++)
        fprintf(f, "%s\r\n", t->headers[i]);
}

static char *finish(FILE *f, char **all)
{
    if (fclose(f)) {
        free(*all);
        *all = NULL;
    }
    return *all;
}

char *tr_target_post(const struct tr_target *t, const char *path, const char *more,
                     const char *body, size_t *len)
{
    char *all = NULL;
    FILE *f = open_memstream(&all, len);
    if (!f)
        return NULL;
    fprintf(f, "POST %s%s HTTP/1.1\r\n", t->url.base, path);
    put_headers(f, t);
    fprintf(f,
            "%sAccept: text/event-stream\r\nContent-Type: application/json\r\n"
            "Content-Length: %zu\r\n\r\n%s",
            more, strlen(body), body);
    return finish(f, &all);
}

char *tr_target_get(const struct tr_target *t, const char *path, size_t *len)
{
    char *all = NULL;
    FILE *f = open_memstream(&all, len);
    if (!f)
        return NULL;
    fprintf(f, "GET %s%s HTTP/1.1\r\n", t->url.base, path);
    put_headers(f, t);
    fputs("\r\n", f);
    return finish(f, &all);
}
