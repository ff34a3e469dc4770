/* SPDX-License-Identifier: Apache-2.0 */
/* client/json_out.h - pieces of the reports' JSON objects.
 *
 * jansson's *_new setters take NULL as a failure, so one flag at the end of each object is enough:
 * `bad` is raised by any part that could not be made. */
#ifndef TR_CLIENT_JSON_OUT_H
#define TR_CLIENT_JSON_OUT_H

#include "client/samples.h"
#include "client/server_hist.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

struct tr_json_maker {
    int bad;
};

json_t *tr_json_object(struct tr_json_maker *m);
void tr_json_put(struct tr_json_maker *m, json_t *to, const char *key, json_t *v);
void tr_json_put_int(struct tr_json_maker *m, json_t *to, const char *key, uint64_t v);
void tr_json_put_text(struct tr_json_maker *m, json_t *to, const char *key, const char *v);

/* In microsecond steps: more digits would be noise. */
json_t *tr_json_ms(double v);

/* null when n is 0. */
json_t *tr_json_summary(struct tr_json_maker *m, const struct tr_summary *s);

/* Per histogram: metric, n, mean, p50, p90, p99 in ms; null if there is none. */
json_t *tr_json_server_hists(struct tr_json_maker *m, const struct tr_server_hists *s);

/* Takes `o`, which is written and released.  0, -ENOMEM when a part is missing, -EIO. */
int tr_json_write(const struct tr_json_maker *m, json_t *o, FILE *out);

#endif
