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
#define X(name, ...) F_##name,
#include "frontend/params.def"
#undef X
    F_COUNT
};

/* The columns of params.def. */
enum tr_param_who { TR_PARAM_SHARED, TR_PARAM_CHAT, TR_PARAM_COMPLETIONS, TR_PARAM_NATIVE };
enum tr_param_kind {
    TR_PARAM_BOOL,
    TR_PARAM_NUM,
    TR_PARAM_INT,
    TR_PARAM_STRING,
    TR_PARAM_ARRAY,
    TR_PARAM_OBJECT,
    TR_PARAM_OWN,
    TR_PARAM_WORD,
    TR_PARAM_NEVER,
    TR_PARAM_IGNORED
};

struct tr_param_row {
    const char *name;
    enum tr_param_who who;
    enum tr_param_kind kind;
    double min, max;      /* NUM */
    int64_t i_min, i_max; /* INT */
    const char *values;   /* WORD */
    const char *what;     /* subject of the refusal, "": the name */
    const char *words;    /* what follows it */
};

extern const struct tr_param_row tr_param_row[F_COUNT];

struct tr_param_reader {
    struct tr_ask *a;
    struct tr_fault *f;
    const struct tr_json *v[F_COUNT]; /* NULL: absent or null */
};

/* params_value.c */

#define TR_PARAM_BAD(r, k, ...)                                                                    \
    tr_fault_set((r)->f, TR_ERR_BAD_PARAM, tr_param_row[k].name, __VA_ARGS__)

/* Fills r->v from r->a->body. */
void tr_param_collect(struct tr_param_reader *r);

/* Refuses a field by the sentence of its row; `what` in place of the row's subject unless NULL. */
int tr_param_unsupported(struct tr_param_reader *r, enum tr_field k, const char *what);

/* By the row's kind and bounds.  An integer that is larger than 64 bits but finite counts as INT64_MAX. */
int tr_param_bool(struct tr_param_reader *r, enum tr_field k, bool *out);
int tr_param_num(struct tr_param_reader *r, enum tr_field k, double *out);
int tr_param_int(struct tr_param_reader *r, enum tr_field k, int64_t *out);
/* With other bounds. */
int tr_param_int_in(struct tr_param_reader *r, enum tr_field k, int64_t min, int64_t max,
                    int64_t *out);

/* params_grammar.c */

/* Which of the fields that bind an answer is there: the ask's wish. */
int tr_param_grammar(struct tr_param_reader *r);

/* params_refuse.c */

/* Refuses what is known and not supported, and fields of the wrong type. */
int tr_param_refuse(struct tr_param_reader *r);

#endif
