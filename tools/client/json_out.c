/* SPDX-License-Identifier: Apache-2.0 */
#include "client/json_out.h"

#include <errno.h>

json_t *tr_json_object(struct tr_json_maker *m)
{
    json_t *o = json_object();
    m->bad |= !o;
    return o;
}

void tr_json_put(struct tr_json_maker *m, json_t *to, const char *key, json_t *v)
{
    m->bad |= json_object_set_new(to, key, v);
}

void tr_json_put_int(struct tr_json_maker *m, json_t *to, const char *key, uint64_t v)
{
    tr_json_put(m, to, key, json_integer((json_int_t)v));
}

void tr_json_put_text(struct tr_json_maker *m, json_t *to, const char *key, const char *v)
{
    tr_json_put(m, to, key, v && *v ? json_string(v) : json_null());
}

json_t *tr_json_ms(double v)
{
    return json_real((double)(long long)(v * 1e3 + 0.5) / 1e3);
}

json_t *tr_json_summary(struct tr_json_maker *m, const struct tr_summary *s)
{
    if (!s->n)
        return json_null();
    json_t *o = tr_json_object(m);
    tr_json_put_int(m, o, "n", s->n);
    tr_json_put_int(m, o, "left_out", s->left_out);
    tr_json_put(m, o, "min", tr_json_ms(s->min));
    tr_json_put(m, o, "mean", tr_json_ms(s->mean));
    tr_json_put(m, o, "p50", tr_json_ms(s->p50));
    tr_json_put(m, o, "p90", tr_json_ms(s->p90));
    tr_json_put(m, o, "p99", tr_json_ms(s->p99));
    tr_json_put(m, o, "max", tr_json_ms(s->max));
    return o;
}

json_t *tr_json_server_hists(struct tr_json_maker *m, const struct tr_server_hists *s)
{
    if (s->note)
        return json_null();
    json_t *o = tr_json_object(m);
    for (int i = 0; i < TR_SERVER_HISTS; i++) {
        const struct tr_hist *h = &s->of[i].diff;
        if (!s->of[i].metric)
            continue;
        json_t *one = tr_json_object(m);
        tr_json_put_text(m, one, "metric", s->of[i].metric);
        tr_json_put(m, one, "n", json_integer((json_int_t)h->count));
        tr_json_put(m, one, "mean",
                    h->count > 0 ? tr_json_ms(h->sum / h->count * 1e3) : json_null());
        tr_json_put(m, one, "p50", tr_json_ms(tr_hist_quantile(h, 0.5) * 1e3));
        tr_json_put(m, one, "p90", tr_json_ms(tr_hist_quantile(h, 0.9) * 1e3));
        tr_json_put(m, one, "p99", tr_json_ms(tr_hist_quantile(h, 0.99) * 1e3));
        tr_json_put(m, o, tr_server_hist_name((enum tr_server_hist)i), one);
    }
    return o;
}

int tr_json_write(const struct tr_json_maker *m, json_t *o, FILE *out)
{
    int rc = m->bad ? -ENOMEM : 0;
    if (!rc && json_dumpf(o, out, JSON_INDENT(1) | JSON_REAL_PRECISION(9)))
        rc = -EIO;
    json_decref(o);
    if (!rc)
        fputs("\n", out);
    return rc;
}
