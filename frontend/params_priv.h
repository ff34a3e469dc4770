/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/params_priv.h - what the files of params share: the known fields of one body and the
 * readers of single values.
 *
 * Readers say 0, or -EINVAL after setting the fault (with the field as its `param`).  A field that
 * is absent or null leaves *out alone. */
#ifndef TR_FRONTEND_PARAMS_PRIV_H
#define TR_FRONTEND_PARAMS_PRIV_H

#include "frontend/params.h"

enum tr_field {
#define X(name) F_##name,
#include "frontend/params.def"
#undef X
    F_COUNT
};

extern const char *const tr_field_name[F_COUNT];

struct tr_param_reader {
    struct tr_ask *a;
    struct tr_fault *f;
    const struct tr_json *v[F_COUNT]; /* NULL: absent or null */
};

/* params_value.c */

#define TR_PARAM_BAD(r, k, ...)                                                                    \
    tr_fault_set((r)->f, TR_ERR_BAD_PARAM, tr_field_name[k], __VA_ARGS__)

/* Fills r->v from r->a->body. */
void tr_param_collect(struct tr_param_reader *r);

/* Refuses a field: "`what` is not supported."; NULL means the field's own name. */
int tr_param_unsupported(struct tr_param_reader *r, enum tr_field k, const char *what);

int tr_param_bool(struct tr_param_reader *r, enum tr_field k, bool *out);
int tr_param_num(struct tr_param_reader *r, enum tr_field k, double min, double max, double *out);
/* An integer in [min, max]; what is larger than 64 bits but finite counts as INT64_MAX. */
int tr_param_int(struct tr_param_reader *r, enum tr_field k, int64_t min, int64_t max,
                 int64_t *out);
/* Only the type; `what` is how the sentence calls it. */
int tr_param_type(struct tr_param_reader *r, enum tr_field k, enum tr_json_type t,
                  const char *what);

/* params_refuse.c */

/* Refuses what is known and not supported. */
int tr_param_refuse(struct tr_param_reader *r);

#endif
