/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_time.c - strftime_now. */
#include "text/jinja_priv.h"

#include <string.h>
#include <time.h>

struct tr_jv *tr_jstrftime(struct tr_jctx *c, struct tr_jstr fmt)
{
    struct tr_jbuf b;
    if (!c->now_set) {
        time_t t = time(NULL);
        if (!localtime_r(&t, &c->now))
            return tr_jfail(c, TR_JERR_RUNTIME, "the local time is unknown");
        c->now_set = true;
    }
    tr_jbuf_init(&b, c);
    for (size_t i = 0; i < fmt.len && !b.bad; i++) {
        char how[3] = {'%', '\0', '\0'};
        char text[128];
        if (fmt.p[i] != '%') {
            tr_jbuf_add_part(&b, fmt, i, i + 1);
            continue;
        }
        how[1] = i + 1 < fmt.len ? fmt.p[i + 1] : '\0';
        if (!how[1] || !strchr("aAbBcdDeFgGhHIjmMnpRSTtuUVwWxXyY%", how[1]))
            return tr_jfail(c, TR_JERR_UNSUPPORTED, "this strftime conversion is not supported");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        size_t n = strftime(text, sizeof text, how, &c->now);
#pragma GCC diagnostic pop
        tr_jbuf_add(&b, text, n, tr_jstr_user(fmt, i, i + 2));
        i++;
    }
    return tr_jbuf_value(&b);
}
